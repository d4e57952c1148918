"""Made-up states of hosts as a policy sees them."""

import torch
from support.made_up_rollouts import noise

from morphogen.config.host import CnnSpec
from morphogen.hosts.net import Net
from morphogen.rules.legality import action_masks
from morphogen.steps.observe_step import observe
from morphogen.testing.builders.scenes import make_limits

HOST = CnnSpec(base=4, blocks=3, kernel=3, pools=0, channels_in=1, size=8, classes=10)
LENGTH = 60  # epochs
BUDGET = 1000  # parameters


def net_of(slots: int) -> Net:
    return Net(HOST, HOST.all_slots[:slots])


def look(whole, bounds=None):
    bounds = bounds or make_limits(whole.slots)
    net = net_of(whole.slots.stage.shape[1])
    seen = observe(whole, bounds, net=net, episode_length=LENGTH, param_budget=BUDGET)
    return seen, action_masks(whole.slots, bounds)


def stand_still(whole, *, epoch: int = 9, plateau: int = 4):
    """Put a host on a plateau at an epoch."""
    envs = whole.batch_size[0]
    signals = whole.signals.replace(plateau=torch.full((envs,), plateau))
    return whole.replace(
        signals=signals, clock=whole.clock.replace(epoch=torch.full((envs,), epoch))
    )


def decide(policy, whole, bounds=None, hidden=None):
    obs, legal = look(whole, bounds)
    envs, slots = whole.slots.stage.shape
    memory = policy.initial_hidden(envs) if hidden is None else hidden
    return policy.act(policy.init(torch.zeros(3)), obs, legal, memory, noise(envs, slots, 0))
