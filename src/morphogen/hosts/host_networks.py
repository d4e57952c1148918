"""Protocol of host networks: what the steps know of a host, whatever its layers."""

from typing import Any, NamedTuple, Protocol, runtime_checkable

from torch import Tensor

from morphogen.hosts.layout import Leaves, ParamLayout
from morphogen.state.env import Instance


class HostRows(NamedTuple):
    """Networks of a pass: parameters and masks of the envs, the env of each row (None: row = env),
    noise of training.

    Rows of one env share its parameters; they differ by the seeds that are switched on.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> rows = mg.HostRows({}, (), env=torch.tensor([0, 0, 1]))  # env 0 is evaluated twice
        >>> rows.pick(torch.tensor([10, 20])).tolist()
        [10, 10, 20]
    """

    leaves: Leaves
    """{name: [E, *shape]}."""
    masks: Any
    """Of `HostNetworks.masks`."""
    env: Tensor | None
    dropout: Tensor | None = None
    """int64 [E, 5], random streams of this minibatch; None: nothing is dropped."""

    def pick(self, values: Tensor) -> Tensor:
        """Select values of the envs for every row.  values [E, ...] -> [R, ...]."""
        return values if self.env is None else values.index_select(0, self.env)


# axes of features [R, B, *shape] in the order of seeds, and back, by the axes of a sample
_TO_SLOT = {1: (1, 0, 2), 2: (1, 2, 0, 3), 3: (1, 3, 4, 0, 2)}
_FROM_SLOT = {1: (1, 0, 2), 2: (2, 0, 1, 3), 3: (3, 0, 4, 1, 2)}


class Features(NamedTuple):
    """Features at a slot as plain torch orders them, with values that are computed before the slot
    and used after it.
    """

    values: Tensor
    """[R, B, C], [R, B, L, C] or [R, B, C, H, W]."""
    carried: dict[str, Tensor]
    """{name: [R, ...]}; no seed sees them, and rows take them along."""

    def in_slot_order(self) -> Tensor:
        """Return the features as seeds read them, [B, ..., R, C]."""
        return self.values.permute(_TO_SLOT[self.values.dim() - 2]).contiguous()

    @staticmethod
    def from_slot_order(x: Tensor, carried: dict[str, Tensor]) -> "Features":
        """Return features of [B, ..., R, C]."""
        return Features(x.permute(_FROM_SLOT[x.dim() - 2]).contiguous(), carried)


@runtime_checkable
class HostNetworks(Protocol):
    """Networks of all envs at once.  Rows are networks; rows of one env share its parameters.

    The steps walk through a host like this: `embed`, then for every slot in the order of the
    forward pass `stage`, the seeds of the slot and max pooling where `SlotSpec.pooled` says so,
    then `head`.  Features are [B, ..., R, C].
    Everything is a function of tensors: no reads, no state, no draws but those from the streams of
    a pass. `morphogen.testing.laws.check_host` checks a host with its networks.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> env = mg.make("tiny", envs=2, seed=0)
        >>> networks, (state, _) = env.net.networks, env.reset()
        >>> params, masks = state.host.params, networks.masks(state.instance, state.host.params)
        >>> rows = mg.HostRows(networks.layout().split(params), masks, env=None)
        >>> x = networks.stage(0, networks.embed(torch.zeros(5, 1, 8, 8)), rows)
        >>> x.shape  # features of 5 images at the first slot, of 2 hosts with 4 channels
        torch.Size([5, 8, 8, 2, 4])
    """

    def layout(self) -> ParamLayout:
        """Return the parameters of one host, in storage order; `Host.params()` elements."""
        ...

    def masks(self, instance: Instance, like: Tensor) -> Any:
        """Return the tensors by which instances restrict their hosts, in the dtype of `like`; any
        tree of [E, ...].
        """
        ...

    def embed(self, inputs: Tensor) -> Tensor:
        """Return inputs as features.  [E, B, *shape], or [B, *shape] shared by all rows -> [B, ...,
        E or 1, C].
        """
        ...

    def stage(self, i: int, x: Any, rows: HostRows) -> Tensor | Features:
        """Compute the layers between slot i - 1 and slot i.

        Shapes: x [B, ..., R, C], or [B, ..., 1, C] shared by all rows before the first slot -> [B,
        ..., R, C'].  A host in the order of plain torch, or whose values cross slots, returns and
        takes `Features`.
        """
        ...

    def head(self, x: Any, rows: HostRows) -> Tensor:
        """Return logits.  x [B, ..., R, C], features after the last slot -> [R, B, classes]."""
        ...

    def params_in_use(self, instance: Instance) -> Tensor:
        """Return the parameters in use under each instance.  int64 [E]."""
        ...
