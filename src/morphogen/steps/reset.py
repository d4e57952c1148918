"""reset: a new episode of every env.  Fresh host, empty slots, zero optimiser state, ledger, governor and clock."""

from tensordict import TensorDict
from torch import Tensor

from morphogen.nets import cnn
from morphogen.nets.net import Net
from morphogen.state import schema
from morphogen.state.env import EnvState, Instance


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
    # Copied, not shared: a fresh state is locked throughout, and a graph tells locked parts from others.
    return state.replace(host=host, instance=instance, clock=clock)
