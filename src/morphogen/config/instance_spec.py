"""Instances: the ranges from which the parameters of one env's task are drawn at reset."""

from dataclasses import fields
from typing import Annotated, ClassVar

from pydantic import Field

from morphogen.config.fields import Natural, NonNegative, PositiveShare, Share, Span, Spec, option, spec

Classes = Annotated[int, Field(ge=2, lt=2**63)]
WIDTH_STEP = 0.25  # a width that varies is one of the multiples of this in its range, all equally likely


@spec
class InstanceSpec(Spec):
    """Ranges `(low, high)`, equal = constant.  None = from the task; a resolved spec has none left."""

    PATH: ClassVar[str] = "instance"

    width: Span[PositiveShare] = option(None)  # share of the host's channels in use
    data_share: Span[PositiveShare] = option(None)  # share of the training samples, log-uniform
    label_noise: Span[Share] = option(None)  # share of training labels replaced, uniform
    classes: Span[Classes] = option(None)  # number of classes, uniform; a random subset of that size is drawn
    reach: Span[Natural] = option(None)  # pixels that a kernel of the host sees to each side
    param_price: Span[NonNegative] = option(None)  # price of the whole parameter budget, log-uniform

    def cross_checks(self) -> list[str]:
        """A width that varies moves in steps of a quarter; a price that varies is above 0 (it is log-uniform)."""
        faults, width, price = [], self.width, self.param_price
        if width and width[0] < width[1] and any(end % WIDTH_STEP for end in width):
            faults.append(f"instance.width: expected multiples of {WIDTH_STEP}, or low == high, got {list(width)}")
        if price and price[0] == 0 < price[1]:
            faults.append(f"instance.param_price: expected low > 0 where low < high, got {list(price)}")
        return faults


INSTANCE_PARAMETERS = tuple(field.name for field in fields(InstanceSpec))  # type: ignore[arg-type]  # order of records


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
