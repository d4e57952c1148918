"""A host of one slot whose features are its inputs and whose logits are the features behind the
slot.

A pass through it is a pass through the seeds of a slot: what `forward` returns, and its gradients,
are theirs.
"""

from dataclasses import dataclass, field

from support import small_states
from torch import Tensor

from morphogen.config.host import Host
from morphogen.extras.text.host import TOKEN_BLUEPRINTS
from morphogen.hosts import sites
from morphogen.hosts.forward_pass import SlotSeeds, forward, used_classes
from morphogen.hosts.host_networks import HostRows
from morphogen.hosts.layout import ParamLayout, ParamLeaf
from morphogen.hosts.net import Net
from morphogen.state.env import EnvState
from morphogen.vocab.slot import SlotSpec

WIDTH, LENGTH = 16, 6


@dataclass(frozen=True)
class TokenStream(Host):
    """Tokens as features, handed through.  isolates: as in `Host`."""

    isolates: bool = False
    classes: int = WIDTH
    input_shape: tuple[int, ...] = (LENGTH, WIDTH)
    all_slots: tuple[SlotSpec, ...] = (SlotSpec("r0c0", WIDTH, (LENGTH,)),)
    blueprints: tuple[str, ...] = field(default=tuple(code.label for code in TOKEN_BLUEPRINTS))
    causal: bool = True

    def module_name(self, blueprint: str) -> str:
        return small_states.token_host().module_name(blueprint)

    def layout(self) -> ParamLayout:
        return ParamLayout((ParamLeaf("nothing", (1,)),))

    def embed(self, inputs: Tensor) -> Tensor:
        return inputs.permute(1, 2, 0, 3)

    def stage(self, i: int, x: Tensor, rows: HostRows) -> Tensor:
        return x

    def head(self, x: Tensor, rows: HostRows) -> Tensor:
        return x.permute(2, 0, 1, 3)


def stream_net(*, isolates: bool = False) -> Net:
    host = TokenStream(isolates=isolates)
    return Net(host, host.all_slots)


def grown_logits(
    inputs: Tensor, state: EnvState, net: Net, seeds: dict[str, Tensor] | None = None
) -> Tensor:
    """Logits of all envs with their seeds, as in training.  seeds: {slot: [E, P_s]}, in the place
    of those stored.
    """
    plan, stored = small_states.plan(state, net), state.seeds
    if seeds is not None:
        stored = type(stored)(
            {name: {"params": row} for name, row in seeds.items()}, batch_size=stored.batch_size
        )
    where = sites.training_indices(state.slots, plan)
    params = sites.gather_params(stored, "params", plan.train, where, net=net)
    host = state.host.params
    rows = HostRows(net.host_layout.split(host), net.networks.masks(state.instance, host), None)
    return forward(
        inputs,
        rows,
        used_classes(state.instance, net),
        SlotSeeds(plan.train, where, params),
        net=net,
    )
