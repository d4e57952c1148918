"""Instances: parameters that vary between the envs of a task, and the ones that a policy
observes.
"""

from dataclasses import fields, replace
from typing import Annotated, ClassVar

from morphogen.config.fields import (
    UNSET,
    Checks,
    Count,
    Names,
    Natural,
    NonNegative,
    PositiveShare,
    Share,
    Span,
    Spec,
    spec,
)
from morphogen.config.host import Host

# a width that varies is one of the multiples of this in its range, all equally likely
WIDTH_STEP = 0.25


@spec
class InstanceSpec(Spec):
    """Ranges `(low, high)`, equal = constant.  None = from the task; a resolved spec has none left.

    Raises: ConfigError with all faults, a line each.

    Example:
        >>> import morphogen as mg
        >>> mg.resolve(mg.RunSpec(task="tiny", instance={"width": (1, 1)})).instance.width
        (1.0, 1.0)
        >>> mg.InstanceSpec(width=(0.1, 1.0))
        Traceback (most recent call last):
            ...
        morphogen.errors.ConfigError: instance.width: expected multiples of 0.25, or
            low == high, got [0.1, 1.0]
    """

    PATH: ClassVar[str] = "instance"

    width: Span[PositiveShare] = UNSET
    """share of the host's channels in use"""
    data_share: Span[PositiveShare] = UNSET
    """share of the training samples that an env may use, log-uniform"""
    label_noise: Span[Share] = UNSET
    """share of training labels replaced by another class, uniform"""
    classes: Span[Count] = UNSET
    """number of classes, uniform; a random subset of that size is drawn"""
    reach: Span[Natural] = UNSET
    """pixels that a kernel of the host sees to each side; places back that its attention sees"""
    param_price: Span[NonNegative] = UNSET
    """price of the full parameter budget in reward, log-uniform"""

    def cross_checks(self) -> Checks:
        """A width that varies moves in steps of a quarter; a price that varies is above 0 (it is
        log-uniform).
        """
        low, high = self.width or (1.0, 1.0)
        free, dear = self.param_price or (1.0, 1.0)
        stepped = low == high or not (low % WIDTH_STEP or high % WIDTH_STEP)
        return {
            "width": (stepped, f"multiples of {WIDTH_STEP}, or low == high"),
            "param_price": (free > 0 or free == dear, "low > 0 where low < high"),
        }


_OF_CLASS_LABELS = ("label_noise", "classes")
INSTANCE_PARAMETERS = tuple(field.name for field in fields(InstanceSpec))  # order of records


@spec
class ObserveSpec(Spec):
    """Parameters of the instance that the policy observes; it observes all that it can measure
    besides.

    Raises: ConfigError with all faults, a line each.

    Example:
        >>> import morphogen as mg
        >>> mg.ObserveSpec(instance=("param_price", "width")).instance
        ('width', 'param_price')
        >>> mg.ObserveSpec(instance=("colour",))
        Traceback (most recent call last):
            ...
        morphogen.errors.ConfigError: observe.instance[0]: expected one of
            width, data_share, ...
    """

    PATH: ClassVar[str] = "observe"

    instance: Annotated[tuple[str, ...], Names(among=INSTANCE_PARAMETERS)] = INSTANCE_PARAMETERS
    """parameters of the instance that the policy observes; the others, and what is derived from
    them, are 0
    """


def reference_instance(host: Host) -> InstanceSpec:
    """The single instance of `instances = "single"`: nothing impaired, all classes, price .1."""
    return InstanceSpec(
        width=(1.0, 1.0),
        data_share=(1.0, 1.0),
        label_noise=(0.0, 0.0),
        classes=(host.classes, host.classes),
        reach=(host.reach, host.reach),
        param_price=(0.1, 0.1),
    )


def fill_ranges(instance: InstanceSpec, default: InstanceSpec) -> InstanceSpec:
    """Return an instance in which the ranges that are None are the default ones."""
    given = {name: span for name, span in vars(instance).items() if span is not None}
    return replace(default, **given)


def variable_parameters(host: Host, labelled: bool) -> tuple[str, ...]:
    """Names of the parameters that may vary: all, or the price and the reach, if any, of a host
    without labels.

    labelled: the targets are class labels; without these, no classes and no noise.
    """
    if host.labelled:
        return tuple(
            name for name in INSTANCE_PARAMETERS if labelled or name not in _OF_CLASS_LABELS
        )
    return ("reach", "param_price") if host.reach else ("param_price",)


def impaired_parameters(instance: InstanceSpec, host: Host, labelled: bool) -> list[str]:
    """Names of the parameters that vary, or differ from the reference, although the host or the
    targets do not know them.
    """
    reference = vars(reference_instance(host))
    known = variable_parameters(host, labelled)
    return [
        name
        for name, span in vars(instance).items()
        if name not in known and span not in (None, reference[name])
    ]
