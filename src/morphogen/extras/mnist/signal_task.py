"""The task MNIST-1D, and its host: a module that sees one number at a time."""

import torch
from torch import Tensor, nn

from morphogen.config.task import TaskSpec, read_table
from morphogen.extras.mnist.signals import LENGTH
from morphogen.extras.modules.module_host import host_from_module
from morphogen.extras.modules.module_stages import Slot

CLASSES = 10
CHANNELS = 8


class SignalNet(nn.Module):
    """Two layers of single numbers, a slot after each, and a linear output.

    Features at a slot are images of height 1, so that all blueprints of images fit.
    """

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, CHANNELS, 1)
        self.early = Slot()
        self.second = nn.Conv2d(CHANNELS, CHANNELS, 1)
        self.late = Slot()
        self.head = nn.Linear(CHANNELS * LENGTH // 4, CLASSES)

    def forward(self, signals: Tensor) -> Tensor:
        """Return the logits of signals.  float32 [B, 1, 40] -> [B, 10]."""
        x = self.early(torch.relu(self.first(signals.unsqueeze(2))))
        x = nn.functional.avg_pool2d(x, (1, 2))
        x = self.late(torch.relu(self.second(x)))
        x = nn.functional.avg_pool2d(x, (1, 2))
        return self.head(x.flatten(1))


MNIST1D = TaskSpec(
    name="mnist1d",
    dataset="mnist1d",
    host=host_from_module(SignalNet, example=torch.zeros(1, LENGTH, device="cpu")),
    **read_table(__file__, "signal_task.json"),
)
