"""Hosts without any slot: what an epoch costs where nothing can grow.  The measure of what empty slots cost."""

import functools

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.scenes import Scene
from morphogen.nets.forward import Growth, forward
from morphogen.nets.hosts import cnn
from morphogen.nets.net import Net
from morphogen.nets.optim import clip, sgd
from morphogen.nets.slope import slope
from morphogen.state.measure import Batch
from morphogen.steps.validate import CHUNK


class Bare:
    """The hosts of a scene, trained and judged as in a run, by code that knows of no slots."""

    def __init__(self, scene: Scene) -> None:
        self.scene, self.net = scene, Net(scene.net.host, ())

    def train(self) -> Tensor:
        """The hosts after all minibatches, from the same state at every call.  [E, P]."""
        host, knobs = self.scene.state.host, self.scene.spec.host
        params, velocity, frame = host.params, host.momentum, self._frame()
        sums = params.new_zeros(3, params.shape[0])
        for batch in self.scene.batches:
            objective = functools.partial(self._objective, batch=batch, frame=frame)
            (push,), (loss, correct) = slope(objective, (params,))
            norm = torch.linalg.vector_norm(push, dim=-1)
            finite = torch.isfinite(loss) & torch.isfinite(norm)
            sums = sums + torch.where(finite, torch.stack((loss, correct, norm.square())), 0.0)
            push = clip(push, norm, max_norm=knobs.max_grad_norm)
            own = {"lr": knobs.lr, "momentum": knobs.momentum, "weight_decay": knobs.weight_decay}
            params, velocity = sgd(params, velocity, push, finite, **own)
        return params

    @torch.no_grad()
    def validate(self) -> Tensor:
        """Accuracy on the split in points.  [E]."""
        split, rows = self.scene.split, self._rows(self.scene.state.host.params, self._frame())
        labels = self.scene.state.instance.class_of.index_select(1, split.labels)
        parts = -(-split.labels.shape[0] // CHUNK)
        counts = []
        for images, own in zip(split.images.tensor_split(parts), labels.tensor_split(parts, dim=1), strict=True):
            logits = forward(images, rows, Growth((), (), ()), net=self.net)
            nats = F.cross_entropy(logits.flatten(0, 1), own.flatten(), reduction="none").view(own.shape)
            right = (logits.argmax(-1) == own) & torch.isfinite(logits).all(-1)
            counts.append(torch.stack((right.sum(-1).to(nats.dtype), nats.sum(-1))))
        return 100.0 * torch.stack(counts).sum(0)[0] / labels.shape[1]

    def _frame(self) -> cnn.Frame:
        state = self.scene.state
        return cnn.frame(state.instance, self.net.host, state.host.params)

    def _rows(self, params: Tensor, frame: cnn.Frame) -> cnn.Rows:
        return cnn.Rows(cnn.layout(self.net.host).split(params), frame, None)

    def _objective(
        self, leaves: tuple[Tensor, ...], *, batch: Batch, frame: cnn.Frame
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        logits = forward(batch.images, self._rows(leaves[0], frame), Growth((), (), ()), net=self.net)
        nats = F.cross_entropy(logits.flatten(0, 1), batch.labels.flatten(), reduction="none")
        loss = nats.view(batch.labels.shape).mean(-1)
        correct = (logits.detach().argmax(-1) == batch.labels).to(loss.dtype).mean(-1)
        return loss.sum(), (loss.detach(), correct)
