"""Made-up observations, masks and whole rollouts for tests of the policy; the only draws are those
of a seed.
"""

import torch
from tensordict import TensorDict

from morphogen.config.groups import RewardSpec
from morphogen.config.policy_spec import PpoSpec
from morphogen.config.spec import RunSpec
from morphogen.policy.distribution import LogitTables, Support, noise_lanes
from morphogen.policy.policy import NetworkPolicy
from morphogen.policy.policy_network import LstmNetwork
from morphogen.ppo.learner import Round
from morphogen.state import rng
from morphogen.state.decision import ActionMasks, Observation
from morphogen.vocab.action import SIZES, Head
from morphogen.vocab.purpose import Purpose

FLOOR = (0.005,) + (0.01,) * 7
KEY = rng.env_keys(3, 0, 1)[0]
FREE = [head for head in Head if head > Head.SLOT]


def source(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def masks(*lead: int, slots: int = 3, seed: int = 0, share: float = 0.6) -> ActionMasks:
    """Random legality in which WAIT is always legal and the blueprints are the seven of a CNN or
    fewer.
    """
    draw = source(seed)
    slot = torch.rand(*lead, 6, slots, generator=draw) < share
    slot[..., 0, :] = True
    blueprint = torch.rand(*lead, 13, generator=draw) < share
    blueprint[..., 0], blueprint[..., 8:], blueprint[..., 1] = False, False, True
    free = {head.label: torch.ones(*lead, SIZES[head], dtype=torch.bool) for head in FREE}
    return ActionMasks(
        op=slot.any(-1), slot=slot, **{**free, "blueprint": blueprint}, batch_size=list(lead)
    )


def observation(*lead: int, slots: int = 3, seed: int = 0) -> Observation:
    draw = source(seed + 1000)
    per_slot = torch.randn(*lead, slots, 46, generator=draw)
    per_slot[..., 9] = 1.0  # enabled
    return Observation(
        env=torch.randn(*lead, 52, generator=draw),
        instance=torch.randn(*lead, 8, generator=draw),
        slots=per_slot,
        blueprints=torch.randint(-1, 13, (*lead, slots), generator=draw),
        finite=torch.ones(*lead, dtype=torch.bool),
        nonfinite=torch.zeros(*lead, dtype=torch.int64),
        batch_size=list(lead),
    )


def tables(*lead: int, slots: int = 3, seed: int = 0, scale: float = 2.0) -> LogitTables:
    draw = source(seed + 2000)
    shapes = ((*lead, 6), (*lead, 6, slots), (*lead, slots, 10, 13))
    return LogitTables(*(scale * torch.randn(shape, generator=draw) for shape in shapes))


def batched(support: Support, count: int) -> Support:
    """The masks of one env for many rows."""
    return Support(*(mask.expand(count, *mask.shape[1:]) for mask in support))


def noise(envs: int, slots: int, epoch: int, seed: int = 3) -> torch.Tensor:
    return rng.gumbel(
        rng.stream(rng.env_keys(seed, 0, envs), Purpose.ACTION, epoch=epoch), noise_lanes(slots)
    )


def turn(spec: PpoSpec, return_scale: str = "running", **more) -> Round:
    """Round 0 of a run with these settings."""
    reward = RewardSpec(return_scale=return_scale)
    return Round(RunSpec(ppo=spec, reward=reward), 0, **more)


def small(floor=FLOOR, **knobs) -> NetworkPolicy:
    return NetworkPolicy(LstmNetwork(**{"hidden": 16, **knobs}), floor)


def play(
    policy, params, *, steps: int = 6, envs: int = 4, slots: int = 3, seed: int = 0, ends=None
) -> TensorDict:
    """A rollout by `act`; `ends` bool [T, E] marks terminals beside the horizon.  Rewards are
    random.
    """
    obs, legal = (
        observation(steps, envs, slots=slots, seed=seed),
        masks(steps, envs, slots=slots, seed=seed),
    )
    terminated = torch.zeros(steps, envs, dtype=torch.bool) if ends is None else ends.clone()
    terminated[-1] = True
    reset = torch.cat((torch.ones_like(terminated[:1]), terminated[:-1]))
    hidden, outs = policy.initial_hidden(envs), []
    for t in range(steps):
        fresh = policy.initial_hidden(envs)
        hidden = hidden.apply(lambda x, zero, t=t: torch.where(reset[t, :, None], zero, x), fresh)
        outs.append(policy.act(params, obs[t], legal[t], hidden, noise(envs, slots, t, seed)))
        hidden = outs[-1].hidden
    draw = source(seed + 3000)
    columns = {
        name: torch.stack([getattr(o, name) for o in outs])
        for name in ("action", "log_prob", "value", "forced")
    }
    return TensorDict(
        {
            "observation": obs,
            "masks": legal,
            **columns,
            "reward": 0.1 * torch.randn(steps, envs, generator=draw),
            "terminated": terminated,
            "truncated": torch.zeros_like(terminated),
            "next_value": torch.zeros(steps, envs),
            "reset_before": reset,
            "contribution": torch.randn(steps, envs, slots, generator=draw),
            "contribution_valid": torch.rand(steps, envs, slots, generator=draw) < 0.5,
        },
        batch_size=[steps, envs],
    )
