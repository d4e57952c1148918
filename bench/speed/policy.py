"""The controller in ms, one choice for all envs and the update after a round: `python -m
bench.speed.policy`.
"""

import torch

from bench.harness.bench_scenes import build_scheduler
from bench.harness.timing import Bench, Measure, ms_measure, run_bench
from morphogen.config.groups import DataSpec
from morphogen.policy.distribution import noise_lanes
from morphogen.rules.legality import action_masks
from morphogen.steps.observe_step import observe


def measures(bench: Bench, envs: int = 32, epochs: int = 24) -> list[Measure]:
    """Measure observe, mask and act, and a whole PPO update on a round with little training of
    hosts.
    """
    data = DataSpec(minibatches=1, val_samples=32)
    own = build_scheduler(envs, bench.device, episode_length=epochs, data=data)
    setup, learner = own.setup, own.learned
    own.run_round()
    (state, _), hidden = own.env.reset(1), own.policy.initial_hidden(envs, device=setup.device)
    noise = torch.zeros(envs, noise_lanes(len(setup.net.slots)), device=setup.device)
    seen = {"net": setup.net, "episode_length": epochs, "param_budget": setup.budget}
    observation = observe(state, setup.limits, **seen)
    masks = action_masks(state.slots, setup.limits)

    def update() -> None:
        own.learned = learner  # the same update at every call
        own._update(own.rollout.rows, hidden)

    forms = {
        "observe": lambda: observe(state, setup.limits, **seen),
        "masks": lambda: action_masks(state.slots, setup.limits),
        "act": torch.no_grad()(
            lambda: own.policy.act(own.params, observation, masks, hidden, noise)
        ),
        "update": update,
    }
    seconds = bench.time_interleaved(forms)
    bench.record_checksum(
        "policy", torch.cat([leaf.flatten() for leaf in own.params["net"].values(True, True)])
    )
    return [ms_measure(f"policy_{name}_ms", found) for name, found in seconds.items()]


if __name__ == "__main__":
    run_bench(__doc__, measures)
