"""Size of a run in words, for a dry run and for the header of a run."""

from morphogen.config.action_schedule import Schedule
from morphogen.engine.setup import Setup

STATE_COPIES = 4  # parameters, momentum, and both again in the snapshot of the governor
FLOAT_BYTES = 4  # float32


def describe_run(setup: Setup) -> dict[str, str]:
    """Name -> text, in the order to print; `setup` as built from a resolved spec."""
    spec, net = setup.spec, setup.net
    split = setup.dataset.sizes
    steps = spec.episode_length * spec.data.minibatches
    state = spec.envs * (net.host_size + sum(net.seed_sizes)) * STATE_COPIES * FLOAT_BYTES
    return {
        "task": f"{spec.task} ({setup.task.question})",
        "policy": spec.policy_name,
        **_schedule_row(setup.schedule),
        "reward": spec.reward.rule,
        "device": str(setup.device),
        "data": f"{split['train']:,} train, {split['validation']:,} validation, {split['test']:,} test samples",
        "training data": setup.dataset.placement,
        "run": f"{spec.rounds:,} rounds of {spec.episode_length:,} epochs with {spec.envs:,} envs",
        "life of a host": f"{steps:,} minibatches of {spec.data.batch:,} samples",
        "host": f"{net.host_size:,} parameters",
        "slots": ", ".join(f"{slot.name} ({slot.channels} channels)" for slot in net.slots),
        "parameter budget": f"{setup.budget:,}",
        "state of all envs": f"{state / 2**20:,.1f} MiB",
    }


def _schedule_row(schedule: Schedule | None) -> dict[str, str]:
    """A schedule and its identity, where there is something to do."""
    if schedule is None or not schedule.steps:
        return {}
    return {"schedule": f"{schedule.name}, steps {len(schedule.steps):,}, sha256 {schedule.sha256[:12]}"}
