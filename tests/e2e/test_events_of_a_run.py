"""A whole run, and how often it has each kind of event."""

import itertools
from collections import Counter

import pytest
from support.extras import has_extra, needs_extra
from support.small_runs import events_by_round, tiny

from morphogen.log.run_log import events
from morphogen.train.train import train_ppo_vectorized
from morphogen.vocab.action import Op
from morphogen.vocab.stage import TRANSITIONS, Stage

ROUND = ("RoundCompleted", "Throughput", "PhaseProfile")
if has_extra("statistics"):
    ROUND += ("ActionCounts", "MaskHitRates", "RewardSummary", "ObservationStats")
if has_extra("scoreboard"):
    ROUND += ("BlueprintScores",)
HIDDEN = ("HiddenHealth",) if has_extra("statistics") else ()
ONCE = ("RunStarted", "CheckpointSaved", "Evaluated", "RunCompleted")
EPOCH = ("EpochCompleted", "AblationsMeasured")
if has_extra("details"):
    EPOCH += ("ActionsTaken", "SlotsMeasured", "RewardsPaid")
LIFE = {
    "SeedGerminated",
    "StageChanged",
    "GateEvaluated",
    "SeedFossilized",
    "SeedPruned",
    "TopologyRecorded",
}
LIFE |= {"AttributionMissing", "SnapshotTaken"}
LIFE |= {"RolledBack", "AnomalySeen", "HostStabilized", "TrendDetected", "PerformanceDropped"}


def run(tmp_path, **fields):
    """The events of a run, as its files hold them."""
    train_ppo_vectorized(tiny(**fields), out=tmp_path / "run")
    return list(events(tmp_path / "run"))


@pytest.mark.parametrize(
    ("policy", "learned", "rounds", "envs", "epochs"),
    [("ppo", ("PpoUpdated", *HIDDEN), 2, 4, 3), ("random", (), 1, 1, 5)],
)
def test_every_kind_is_told_as_often_as_it_happens(policy, learned, rounds, envs, epochs, tmp_path):
    shape = {"rounds": rounds, "envs": envs, "episode_length": epochs, "final_episodes": envs}
    found = Counter(event.name for event in run(tmp_path, policy_name=policy, **shape))
    assert {name: count for name, count in found.items() if name not in LIFE} == {
        **dict.fromkeys(ONCE, 1),
        **dict.fromkeys((*ROUND, *learned), rounds),
        **dict.fromkeys(EPOCH, rounds * epochs),
        "EpisodeCompleted": rounds * envs,
    }


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    """The events of some rounds of a random policy with many envs."""
    return run(
        tmp_path_factory.mktemp("run"), policy_name="random", rounds=2, envs=16, episode_length=12
    )


def test_what_is_told_in_two_ways_agrees(reported):
    kinds = Counter(event.name for event in reported)
    ends = [event.data for event in reported if event.name == "EpisodeCompleted"]
    moves = Counter(event.data.to for event in reported if event.name == "StageChanged")
    for kind, stage, total in (
        ("SeedGerminated", "GERMINATED", "germinated"),
        ("SeedFossilized", "FOSSILIZED", "fossilized"),
        ("SeedPruned", "PRUNED", "pruned"),
    ):
        assert kinds[kind] == moves[stage] == sum(getattr(one, total) for one in ends)
    assert moves["GERMINATED"] > 10


@needs_extra("statistics")
def test_statistics_of_a_round_agree_with_its_episodes(reported):
    for round, one in enumerate(events_by_round(reported)):
        mine = [
            event.data
            for event in reported
            if event.round == round and event.name == "EpisodeCompleted"
        ]
        for op in Op:
            assert one["ActionCounts"].effective[op.name] == sum(end.ops[op.name] for end in mine)
        assert one["RewardSummary"].total["sum"] == pytest.approx(
            one["RoundCompleted"].reward_mean, rel=1e-5
        )
        assert one["RewardSummary"].components.keys() == mine[0].components.keys()
        assert sum(one["ActionCounts"].outcomes.values()) == 16 * 12
        assert one["MaskHitRates"].legal_share["WAIT"] == 1.0


def test_the_stages_of_every_epoch_are_those_that_the_moves_lead_to(reported):
    now = {}
    for _, group in itertools.groupby(reported, key=lambda event: (event.round, event.epoch)):
        events = list(group)
        for event in (one for one in events if one.name == "StageChanged"):
            at = (event.round, event.env, event.slot)
            assert now.get(at, "DORMANT") == event.data.from_
            assert (
                Stage[event.data.to] in TRANSITIONS[Stage[event.data.from_]]
                or event.data.cause == "govern"
            )
            now[at] = event.data.to
        for event in (one for one in events if one.name == "EpochCompleted"):
            for env, row in enumerate(event.data.stage):
                names = zip(("r0c0", "r0c1", "r1c0"), row, strict=True)
                assert all(
                    now.get((event.round, env, slot), "DORMANT") == stage for slot, stage in names
                )
