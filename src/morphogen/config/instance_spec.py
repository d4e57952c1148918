"""Instances: the ranges from which the parameters of one env's task are drawn at reset."""

from dataclasses import dataclass, fields
from typing import Any, ClassVar

from morphogen.config.fields import Int, Real, Span, Spec, spec_field

FROM_TASK = "from the task"
WIDTH_STEP = 0.25  # a width that varies is one of the multiples of this in its range, all equally likely


def _range_field(of: Int | Real) -> Any:
    return spec_field(None, Span(of=of, null=FROM_TASK))


@dataclass(frozen=True)
class InstanceSpec(Spec):
    """Ranges `(low, high)`, equal = constant.  None = from the task; a resolved spec has none left."""

    PATH: ClassVar[str] = "instance"

    width: tuple[float, float] = _range_field(Real(above=0, high=1))  # share of the host's channels in use
    data_share: tuple[float, float] = _range_field(Real(above=0, high=1))  # share of the training samples, log-uniform
    label_noise: tuple[float, float] = _range_field(Real(low=0, high=1))  # share of training labels replaced, uniform
    classes: tuple[int, int] = _range_field(Int(low=2))  # how many classes, uniform; which ones is drawn too
    reach: tuple[int, int] = _range_field(Int(low=0))  # pixels that a kernel of the host sees to each side
    param_price: tuple[float, float] = _range_field(Real(low=0))  # price of the whole parameter budget, log-uniform

    def cross_checks(self) -> list[str]:
        """A width that varies moves in steps of a quarter; a price that varies is above 0 (it is log-uniform)."""
        found = []
        if self.width and self.width[0] < self.width[1] and any(end % WIDTH_STEP for end in self.width):
            found.append(f"instance.width is {list(self.width)}; want multiples of {WIDTH_STEP}, or low == high")
        if self.param_price and self.param_price[0] == 0 < self.param_price[1]:
            found.append(f"instance.param_price is {list(self.param_price)}; want low > 0 where low < high")
        return found


INSTANCE_PARAMETERS = tuple(field.name for field in fields(InstanceSpec))  # in the order of records


def reference_instance(classes: int, kernel: int) -> InstanceSpec:
    """The single instance of `instances = "single"`: nothing impaired, all classes, price .1."""
    return InstanceSpec(
        width=(1.0, 1.0),
        data_share=(1.0, 1.0),
        label_noise=(0.0, 0.0),
        classes=(classes, classes),
        reach=(kernel // 2, kernel // 2),
        param_price=(0.1, 0.1),
    )
