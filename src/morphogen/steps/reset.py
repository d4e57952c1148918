"""reset: a new episode with a fresh host and empty slots; place_fossils: fossils without their lifecycles."""

from tensordict import TensorDict
from torch import Tensor

from morphogen.nets import cnn
from morphogen.nets.net import Net
from morphogen.state import schema
from morphogen.state.env import EnvState, Instance
from morphogen.state.tree_ops import masked_update, replace
from morphogen.vocab.blueprint import EMPTY
from morphogen.vocab.stage import Stage


def reset(
    key: Tensor, instance: Instance, noise: Tensor, *, episode: int, ledger: TensorDict, net: Net, window: int
) -> EnvState:
    """Build the unmeasured state of envs at the start of an episode.

    Shapes: key int64 [E, 3]; instance, ledger [E]; noise float32 [E, P] uniform in [0, 1) -> EnvState [E].
    Promise: the host is the initial draw; every other leaf has its empty value.
    """
    classes, table = instance.class_of.shape[-1], instance.usable.shape[-1]
    sizes = net.sizes(envs=key.shape[0], window=window, classes=classes, table=table)
    state = schema.empty_state(sizes, key, ledger)
    host = state.host.replace(params=cnn.host_layout(net.host).draw(noise))
    clock = state.clock.replace(episode=state.clock.episode + episode)
    # `replace` of the TensorClass copies: a fresh state is locked, and a graph distinguishes locked parts.
    return state.replace(host=host, instance=instance, clock=clock)


def place_fossils(state: EnvState, blueprint: Tensor, algorithm: Tensor) -> EnvState:
    """Place unmeasured fossils at alpha 1 in empty slots.

    Shapes: state [E]; blueprint int64 [E, S], -1 = unchanged; algorithm int64 [E, S] (`Algorithm`) -> EnvState [E].
    Promise: nothing but the named slots changes.  `steps.init_seeds` draws their parameters.
    """
    where = blueprint > EMPTY
    slots = masked_update(
        state.slots,
        where,
        stage=int(Stage.FOSSILIZED),
        previous_stage=int(Stage.HOLDING),
        epochs_in_stage=1,
        previous_epochs_in_stage=1,
        age=1,
        blueprint=blueprint,
        algorithm=algorithm,
        blend_target=1.0,
        alpha=1.0,
        alpha_start=1.0,
        alpha_target=1.0,
    )
    return replace(state, slots=slots)
