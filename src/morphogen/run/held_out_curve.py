"""Learning curve on held-out instances: the policy plays a few of them every N rounds, its rivals play them once."""

from collections.abc import Iterable

from morphogen.config.parts import LEARNERS
from morphogen.config.spec import RunSpec
from morphogen.engine.policies import build_arm
from morphogen.engine.scheduler import Scheduler
from morphogen.evaluation.play import own_arm, play_arm
from morphogen.telemetry.kinds.run import HeldOutPlayed

CURVE_RIVALS = ("wait", "heuristic")  # rivals that the curve is drawn beside


def has_curve(spec: RunSpec) -> bool:
    """Return whether a run draws the curve: its policy learns, for as many rounds as lie between two plays."""
    every = spec.evaluation.every_rounds
    return bool(every) and spec.policy_name in LEARNERS and spec.rounds >= every


def play_curve(scheduler: Scheduler) -> Iterable[HeldOutPlayed]:
    """Play the instances if a play is due after the rounds that are complete; yield an event per play.

    The policy plays before the first round and then every `evaluation.every_rounds`; its rivals play with its first
    play after a round.  A play changes nothing of the run: it has instances, and random numbers, of its own.
    """
    spec, rounds = scheduler.setup.spec, scheduler.round
    every = spec.evaluation.every_rounds
    if not has_curve(spec) or rounds % every:
        return
    rivals = CURVE_RIVALS if rounds == every else ()
    for name in (*rivals, spec.policy_name):
        arm = build_arm(name, scheduler.setup) if name in rivals else own_arm(scheduler)
        result = play_arm(scheduler.setup, scheduler.transfers, arm, name=name, episodes=spec.evaluation.episodes)
        yield HeldOutPlayed.build(
            policy=name, rounds=0 if name in rivals else rounds, network_value=result.network_value
        )
