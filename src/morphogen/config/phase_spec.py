"""Phases: how the world of an env changes within an episode."""

from typing import Annotated, ClassVar

from pydantic import Field

from morphogen.config.fields import Ascending, Count, Null, Share, Spec, option, spec
from morphogen.config.instance_spec import Classes
from morphogen.vocab.host import Host
from morphogen.vocab.image_view import View, Views

FORMULA_VIEWS = 3  # views that the formula of the white-box task distinguishes: plain, inverted, turned
Weight = Annotated[int, Field(ge=0, le=1000)]


@spec
class ViewWeights(Spec):
    """Weights with which the phases of an env draw how images are shown.

    Raises: ConfigError with all faults, a line each.

    Example:
        >>> import morphogen as mg
        >>> mg.ViewWeights(turned=2).used
        (<View.PLAIN: 0>, <View.TURNED: 2>)
    """

    PATH: ClassVar[str] = "phase.views"

    plain: Weight = option(default=1, text="weight of images as they are")
    inverted: Weight = option(default=0, text="weight of images with every normalised number negated")
    turned: Weight = option(default=0, text="weight of images turned by 90 degrees")
    half: Weight = option(default=0, text="weight of images whose right half is hidden")
    noisy: Weight = option(default=0, text="weight of images with noise")

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
class PhaseSpec(Spec):
    """Phases of the world of an env: each has a view of the images, and its own classes if `classes` is set.

    Phases are never observed.  By default the world of an env stays as it is.

    Raises: ConfigError with all faults, a line each.

    Example:
        >>> import morphogen as mg
        >>> spec = mg.PhaseSpec(hazard=0.1, least=4, views={"inverted": 1})
        >>> [view.name for view in spec.views.used]
        ['PLAIN', 'INVERTED']
    """

    PATH: ClassVar[str] = "phase"

    hazard: Share = option(default=0.0, text="probability per epoch that a new phase begins; 0 = one phase")
    least: Count = option(default=1, text="epochs that a phase lasts at least")
    views: ViewWeights = option(default=ViewWeights())
    noise: Annotated[float, Field(gt=0, le=100)] = option(
        default=1.0, text="deviation of the noise of noisy images, whose numbers are normalised"
    )
    classes: Annotated[tuple[Classes, Classes] | None, Ascending(), Null("those of the env")] = option(
        default=None,
        text="number of classes of a phase, uniform; a random subset of that size is drawn (default: those of the env)",
    )
    noisy_classes: Annotated[tuple[Classes, Classes] | None, Ascending(), Null("as in other phases")] = option(
        default=None, text="number of classes of a phase whose images are noisy, uniform (default: as in other phases)"
    )

    def classes_in(self, view: View) -> tuple[int, int] | None:
        """Range of the number of classes of a phase with this view; None = that of the env."""
        return (self.noisy_classes if view is View.NOISY else None) or self.classes

    @property
    def most_classes(self) -> int | None:
        """Largest number of classes of a phase; None = that of the env."""
        ranges = [self.classes_in(view) for view in self.views.used]
        return max((own[1] for own in ranges if own is not None), default=None)

    @property
    def view_set(self) -> Views:
        """Views that occur, with their noise."""
        return Views(self.views.used, self.noise)


def formula_faults(spec: PhaseSpec) -> list[str]:
    """Describe settings that do not fit a task whose accuracy is a formula, a line each."""
    known = tuple(View)[:FORMULA_VIEWS]
    shown = [view.label for view in spec.views.used if view not in known]
    names = ", ".join(view.label for view in known)
    faults = [f"phase.views: expected {names} alone where accuracy is a formula, got {shown[0]}"] if shown else []
    if spec.classes is not None:
        faults.append(f"phase.classes: expected null where accuracy is a formula, got {list(spec.classes)}")
    if not spec.hazard and spec.views.used != (View.PLAIN,):
        faults.append("phase.views: expected plain alone where accuracy is a formula and phase.hazard is 0")
    return faults


def phase_faults(spec: PhaseSpec, host: Host, *, classes: tuple[int, int], observed: tuple[str, ...]) -> list[str]:
    """Describe settings that do not fit a host, the range of its classes and what is observed, a line each."""
    shape = host.input_shape
    own = spec.classes
    faults = list[str]()
    if spec.views.used != (View.PLAIN,) and len(shape) != 3:
        faults.append("phase.views: expected plain alone with samples that are no images")
    elif spec.views.turned and shape[-1] != shape[-2]:
        faults.append(f"phase.views.turned: expected 0 with images that are not square, got {spec.views.turned}")
    if spec.noisy_classes is not None and (own is None or View.NOISY not in spec.views.used):
        given = list(spec.noisy_classes)
        faults.append(f"phase.noisy_classes: expected null without phase.classes and phase.views.noisy, got {given}")
    if own is None:
        return faults
    if host.vocabulary or classes != (host.classes, host.classes):
        faults.append(f"phase.classes: expected null where instance.classes is {list(classes)}, got {list(own)}")
    else:
        faults += [
            f"phase.{name}: expected at most {host.classes}, got {list(some)}"
            for name, some in (("classes", own), ("noisy_classes", spec.noisy_classes))
            if some is not None and some[1] > host.classes
        ]
    if "classes" in observed:
        faults.append(f"phase.classes: expected null where observe.instance names classes, got {list(own)}")
    return faults
