"""Settings of regimes: how the world of an env changes within an episode."""

from typing import Annotated, ClassVar

from pydantic import Field

from morphogen.config.extra_settings import ExtraSpec
from morphogen.config.fields import (
    Checks,
    Count,
    Pair,
    Several,
    Share,
    Spec,
    spec,
)
from morphogen.config.host import Host
from morphogen.extras.regimes.image_view import View

Weight = Annotated[int, Field(ge=0, le=1000)]


@spec
class ViewWeights(Spec):
    """Weights with which the regimes of an env draw how images are shown.

    Raises: ConfigError with all faults, a line each.

    Example:
        >>> from morphogen.extras.regimes.regime_spec import ViewWeights
        >>> ViewWeights(turned=2).used
        (<View.PLAIN: 0>, <View.TURNED: 2>)
    """

    PATH: ClassVar[str] = "regime.views"

    plain: Weight = 1
    """weight of images as they are"""
    inverted: Weight = 0
    """weight of images with every normalised number negated"""
    turned: Weight = 0
    """weight of images turned by 90 degrees"""
    half: Weight = 0
    """weight of images whose right half is hidden"""
    noisy: Weight = 0
    """weight of images with noise"""

    @property
    def choices(self) -> tuple[View, ...]:
        """Views, each as often as its weight; PLAIN alone if every weight is 0."""
        drawn = tuple(view for view in View for _ in range(getattr(self, view.label)))
        return drawn or (View.PLAIN,)

    @property
    def used(self) -> tuple[View, ...]:
        """Views that are drawn, in the order of their codes."""
        return tuple(dict.fromkeys(self.choices))


@spec
class RegimeSpec(ExtraSpec):
    """Regimes of the world of an env: each has a view of the images, and its own classes if
    `classes` is set.

    Regimes are never observed.  By default the world of an env stays as it is.

    Raises: ConfigError with all faults, a line each.

    Example:
        >>> from morphogen.extras.regimes.regime_spec import RegimeSpec
        >>> [view.name for view in RegimeSpec(hazard=0.1, views={"inverted": 1}).views.used]
        ['PLAIN', 'INVERTED']
    """

    PATH: ClassVar[str] = "regime"
    PROCESS: ClassVar[str] = "morphogen.extras.regimes.regime_process:RegimeProcess"

    hazard: Share = 0.0
    """probability per epoch that a new regime begins; 0 = one regime"""
    least: Count = 1
    """epochs that a regime lasts at least"""
    views: ViewWeights = ViewWeights()
    noise: Annotated[float, Field(gt=0, le=100)] = 1.0
    """deviation of the noise of noisy images, whose numbers are normalised"""
    classes: Pair[Several] | None = None
    """number of classes of a regime, uniform; a random subset of that size is drawn (default: as
    in the env)
    """
    noisy_classes: Pair[Several] | None = None
    """number of classes of a regime whose images are noisy, uniform (default: as in other
    regimes)
    """

    def classes_in(self, view: View) -> tuple[int, int] | None:
        """Range of the number of classes of a regime with this view; None = as in the env."""
        return (self.noisy_classes if view is View.NOISY else None) or self.classes

    def host_checks(
        self, host: Host, *, classes: tuple[int, int], observed: tuple[str, ...]
    ) -> Checks:
        """Views and classes fit the host and the instances of the run."""
        shape = host.input_shape
        views = self.views.used
        own = self.classes
        noisy = self.noisy_classes
        complete = classes == (host.classes, host.classes)
        fits = own is None or (complete and own[1] <= host.classes and "classes" not in observed)
        noisy_fits = noisy is None or (
            own is not None and noisy[1] <= host.classes and View.NOISY in views
        )
        return {
            "views": (
                views == (View.PLAIN,) or len(shape) == 3,
                "plain alone with samples that are no images",
            ),
            "views.turned": (
                View.TURNED not in views or shape[-1:] == shape[-2:-1],
                "0 with images that are not square",
            ),
            "classes": (
                fits,
                "null where samples have no class labels"
                if classes == (0, 0)
                else f"null, or at most {host.classes} where instance.classes is [{host.classes}, "
                f"{host.classes}] and observe.instance does not name classes",
            ),
            "noisy_classes": (
                noisy_fits,
                f"null, or at most {host.classes} with regime.classes and regime.views.noisy",
            ),
        }
