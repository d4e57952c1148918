"""Event logs of runs that never were: written from the dataclasses, with lives of `lives`, numbers
from a dice.
"""

import json
import random
from collections import Counter
from itertools import combinations
from pathlib import Path

from support.random_records import COMPONENTS, SLOTS, live
from support.seed_tallies import tallies_of
from support.small_runs import plain

from morphogen.config.config_files import dump_config
from morphogen.config.host import seed_macs
from morphogen.config.spec import find_host, resolve
from morphogen.log.events import Envelope, tidy
from morphogen.log.jsonl import encode
from morphogen.log.kinds.epoch import (
    AblationsMeasured,
    EpisodeCompleted,
    EpochCompleted,
    RewardsPaid,
    RolledBack,
    SeedFossilized,
    SeedGerminated,
    SeedPruned,
    SlotsMeasured,
    StageChanged,
)
from morphogen.log.kinds.ppo import PpoUpdated
from morphogen.log.kinds.round import (
    ActionCounts,
    AnomalyDetected,
    BatchSummary,
    BlueprintScores,
    HiddenHealth,
    MaskHitRates,
    ObservationStats,
    PhaseProfile,
    RewardSummary,
    Throughput,
)
from morphogen.log.kinds.run import Evaluated, HeldOutPlayed, RunCompleted, RunStarted
from morphogen.log.scores import scoreboard
from morphogen.vocab.action import Op
from morphogen.vocab.blueprint import CNN_BLUEPRINTS, CNN_KINDS, Blueprint, code_labels
from morphogen.vocab.stage import Algorithm, Stage

INSTANCE = ("width", "data_share", "label_noise", "classes", "reach", "param_price")
HEADS = ("op", "slot", "blueprint", "style", "tempo", "alpha_target", "alpha_speed", "alpha_curve")
OPS = [op.name for op in Op]
REASON = {"action": "action", "tick": "ramp", "govern": "governor"}
SIZES = {Blueprint(code).label: 20 * code for code in range(1, 8)}  # parameters
POLICIES = ("wait", "random", "heuristic", "ppo")
Events = list[Envelope]


def spec_of(rounds, envs, epochs):
    return resolve(plain(rounds=rounds, envs=envs, episode_length=epochs, final_episodes=envs))


def events(rounds=3, envs=4, epochs=12, *, seed=0, ended=True) -> Events:
    """All events of a run at level debug, the last round included only where it ended."""
    dice = random.Random(seed)
    found = [Envelope(started(spec_of(rounds, envs, epochs))), *_plays(0)]
    for round in range(rounds):
        found += _round(dice, round, live(seed * 1000 + round, envs, epochs), epochs)
        scores = scoreboard(tallies_of(found), found[0].data.macs)
        found.append(Envelope(BlueprintScores(tidy(scores)), round=round))
        found += _plays(round + 1)
    if ended:
        found += [Envelope(_evaluated(dice, envs)), Envelope(_completed(rounds))]
    return found


def write(path: Path, found: Events | None = None, *, result=True, **sizes) -> Path:
    """A run directory with these events."""
    found = events(**sizes) if found is None else found
    start = next(event.data for event in found if isinstance(event.data, RunStarted))
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(start.config))
    status = "completed" if isinstance(found[-1].data, RunCompleted) else "running"
    manifest = {
        "status": status,
        "versions": {"python": "3.11.2", "torch": "2.13.0"},
        "last_checkpoint": None,
    }
    (path / "manifest.json").write_text(json.dumps(manifest))
    if result:
        (path / "result.json").write_text(json.dumps(_result(start.envs)))
        (path / "evaluation.json").write_text(json.dumps(EVALUATION))
    lines = [encode(event, seq=i, time=float(i)) for i, event in enumerate(found)]
    (path / "events.jsonl").write_text("".join(lines))
    return path


def macs(host):
    places = host.pick_slots(SLOTS)
    seeds = {b.label: {slot.name: seed_macs(b, slot) for slot in places} for b in CNN_BLUEPRINTS}
    return {"host": host.macs(), "seeds": seeds}


def started(spec) -> RunStarted:
    return RunStarted(
        run_id="0123456789ab",
        command="morphogen train",
        task=spec.task,
        preset=None,
        config=json.loads(dump_config(spec)),
        config_sha256="0" * 64,
        data_sha256="1" * 64,
        data_placement="resident",
        seed=spec.seed,
        envs=spec.envs,
        slots=SLOTS,
        blueprints=code_labels(CNN_KINDS),
        macs=macs(find_host(spec)),
        rounds=spec.rounds,
        epochs=spec.episode_length,
        minibatches=spec.data.minibatches,
        batch=spec.data.batch,
        world=1,
        devices=("cpu",),
        precision="float32",
        compile="off",
        host_params=438,
        obs_dim=100,
        policy_params=20_000,
        versions={"python": "3.11.2"},
    )


def _plays(rounds) -> Events:
    """Plays of the learning curve on two instances: the policy gets better, its rivals play after
    the first round.
    """
    rivals = {"wait": (0.6, 0.4), "heuristic": (0.65, 0.4)} if rounds == 1 else {}
    plays = [HeldOutPlayed(name, 0, values) for name, values in rivals.items()]
    return [
        Envelope(play) for play in (*plays, HeldOutPlayed("ppo", rounds, (0.6 + 0.1 * rounds, 0.5)))
    ]


def _evaluated(dice, episodes) -> Evaluated:
    names = ("network_value", "committed_accuracy", "params_ratio", "success_share", "stability")
    return Evaluated(
        episodes, "validation", *({"mean": 0.8, "low": 0.7, "high": 0.9} for _ in names)
    )


def _completed(rounds) -> RunCompleted:
    return RunCompleted(
        status="completed",
        rounds_done=rounds,
        best_round=0,
        best_accuracy=70.0,
        error=None,
        run_s=754.0,
    )


def _result(envs):
    dice = random.Random(9)
    policies = {}
    for i, name in enumerate(POLICIES):
        grown = [dice.random() * i / 4 for _ in range(envs)]
        policies[name] = {
            "network_value": [0.7 + 0.1 * one for one in grown],
            "committed_accuracy": [70 + 15 * one for one in grown],
            "params_ratio": [1 + one for one in grown],
            "success_share": [0.0] * envs,
            "stability": [0.9] * envs,
            "params": [438] * envs,
            "rollbacks": [0] * envs,
        }
    return {"split": "validation", "episodes": envs, "policies": policies}


def _ends(value, room):
    return {"value": value, "low": value - room, "high": value + room}


EVALUATION = {
    "episodes": 64,
    "statistics": {
        "trained": {
            "mean": _ends(0.7, 0.03),
            "iqm": _ends(0.72, 0.04),
            "difference": None,
            "improvement": None,
        },
        "wait": {
            **{"mean": _ends(0.65, 0.03), "iqm": _ends(0.66, 0.04)},
            **{"difference": _ends(0.05, 0.02), "improvement": _ends(0.8, 0.1)},
        },
    },
    "profiles": {
        "tau": [0.5, 0.6, 0.7],
        "arms": {
            "trained": {"value": [1.0, 0.8, 0.5], "low": [1.0, 0.7, 0.4], "high": [1.0, 0.9, 0.6]},
            "wait": {"value": [1.0, 0.5, 0.1], "low": [1.0, 0.4, 0.0], "high": [1.0, 0.6, 0.2]},
        },
    },
}


def _round(dice, round, history, epochs) -> Events:
    there, records = history
    found: Events = []
    for epoch, record in enumerate(records):
        for env, one in enumerate(there):
            found += _moves(one, env, len(there), (round, epoch))
        found += _epoch(dice, (round, epoch), record, last=epoch == epochs - 1)
    episodes = [_episode(dice, there[env], records, env) for env in range(len(there))]
    found += [
        _about(data, (round, epochs - 1), env, len(there)) for env, data in enumerate(episodes)
    ]
    return found + [Envelope(data, round=round) for data in _totals(dice, round, episodes, records)]


def _about(data, when, env, envs, slot=None) -> Envelope:
    round, epoch = when
    return Envelope(data, round=round, epoch=epoch, env=env, episode=round * envs + env, slot=slot)


def _moves(one, env, envs, when) -> Events:
    found = []
    for epoch, s, cause, here, to, age, count, kind, gain, worth in one.log:
        if epoch != when[1]:
            continue
        name = None if kind < 0 else Blueprint(kind).label
        moved = StageChanged(here.name, to.name, cause, name, 0.5, age, count)
        found.append(_about(moved, when, env, envs, SLOTS[s]))
        if to is Stage.GERMINATED:
            name = _born(one, s, epoch)
        if (data := _meaning(to, cause, (name, age, worth, gain), one)) is not None:
            found.append(_about(data, when, env, envs, SLOTS[s]))
    if when[1] in one.rollbacks:
        found.append(_about(RolledBack("chance", 3.0, 2.5, 1, 1.0, 1, -1), when, env, envs))
    return found


def _born(one, slot, epoch):
    """The blueprint of the seed that was germinated there: as in the next move, or of what is
    there at the end.
    """
    later = [
        entry[7] for entry in one.log if entry[1] == slot and entry[0] >= epoch and entry[7] >= 0
    ]
    return Blueprint(later[0] if later else one.slots[slot].blueprint).label


def _meaning(to, cause, reported, one):
    name, age, worth, gain = reported
    if to is Stage.GERMINATED:
        return SeedGerminated(name, SIZES[name], Algorithm.ADD.name, 5, 1.0, one.before)
    if to is Stage.FOSSILIZED:
        return SeedFossilized(
            name, SIZES[name], age, worth, None if worth is None else worth / 2, gain
        )
    return (
        SeedPruned(name, SIZES[name], age, REASON[cause], worth, gain)
        if to is Stage.PRUNED
        else None
    )


def _epoch(dice, when, record, *, last) -> Events:
    round, epoch = when
    envs = len(record["reward"])
    some = [round_(dice.uniform(0.5, 1)) for _ in range(envs)]
    stages = tuple(tuple(Stage(int(code)).name for code in row) for row in record["stage"])
    table = tuple(tuple(dice.uniform(0, 1) for _ in SLOTS) for _ in range(envs))
    flags = tuple((False, None, dice.random() < 0.1) for _ in range(envs))
    whole = tuple((1, 2, 3) for _ in range(envs))
    found = [
        EpochCompleted(
            *(
                some,
                record["val_acc"],
                some,
                record["val_acc"],
                record["val_acc"] - 5,
                record["reward"],
                some,
                some,
            ),
            skipped=[int(dice.random() < 0.05) for _ in range(envs)],
            forwards=[4] * envs,
            op_effective=[Op(int(op)).name for op in record["op_effective"]],
            success=[dice.random() < 0.9 for _ in range(envs)],
            stage=stages,
            alpha=record["alpha"],
            contribution=table,
        ),
        SlotsMeasured(table, table, table, flags, flags, table, table, whole, whole),
        RewardsPaid(
            COMPONENTS, record["reward"], record["components"], record["components"], table
        ),
    ]
    found += [_ablated(dice, record)] if last else []
    return [Envelope(data, round=round, epoch=epoch) for data in found]


def round_(value):
    return round(value, 4)


def _ablated(dice, record) -> AblationsMeasured:
    """Games of three players whose worths and pairwise interactions are known."""
    rows = [_game(dice, float(final)) for final in record["val_acc"]]
    columns = zip(*rows, strict=True)
    return AblationsMeasured(*(tuple(column) for column in columns))


def _game(dice, final):
    alone = [dice.choice((0.0, dice.uniform(-2, 8))) for _ in SLOTS]
    pairs = {pair: dice.uniform(-1, 1) for pair in combinations(range(len(SLOTS)), 2)}
    shapley = [
        worth + sum(extra for pair, extra in pairs.items() if i in pair) / 2
        for i, worth in enumerate(alone)
    ]
    host = final - sum(shapley)
    on = [[bits >> i & 1 for i in range(len(SLOTS))] for bits in range(2 ** len(SLOTS))]
    table = [
        host
        + sum(w for w, one in zip(alone, bits, strict=True) if one)
        + sum(e for (i, j), e in pairs.items() if bits[i] and bits[j])
        for bits in on
    ]
    together = [sum(extra for pair, extra in pairs.items() if i in pair) for i in range(len(SLOTS))]
    return tuple(table), True, host, tuple(shapley), tuple(together), tuple(together)


def _episode(dice, one, records, env) -> EpisodeCompleted:
    final, size = float(records[-1]["val_acc"][env]), dice.uniform(1.0, 2.2)
    seeds = [(name, slot) for name, slot in zip(SLOTS, one.slots, strict=True) if slot.occupied]
    moved = Counter(entry[4] for entry in one.log)
    ops = Counter(Op(int(record["op_effective"][env])).name for record in records)
    paid = [
        sum(float(record["components"][env][c]) for record in records)
        for c in range(len(COMPONENTS))
    ]
    return EpisodeCompleted(
        accuracy=final,
        committed_accuracy=final - 5,
        initial_accuracy=10.0,
        best_accuracy=80.0,
        loss=1.25,
        success=final > 75,
        stability=dice.uniform(0.3, 1),
        reward=sum(paid),
        discounted_return=sum(paid) / 2,
        network_value=final / 100,
        components=dict(zip(COMPONENTS, paid, strict=True)),
        slot_rewards=dict.fromkeys(SLOTS, sum(paid) / 4),
        unmeasured_steps=1,
        detectors={"attribution_ratio": 0, "ransomware": 1},
        params=round(438 * size),
        params_ratio=size,
        germinated=moved[Stage.GERMINATED],
        fossilized=moved[Stage.FOSSILIZED],
        contributing=0,
        pruned=moved[Stage.PRUNED],
        live=sum(slot.stage is not Stage.FOSSILIZED for _, slot in seeds),
        rollbacks=len(one.rollbacks),
        ops={name: ops[name] for name in OPS},
        instance={
            name: dice.choice((0.5, 0.75, 1.0)) if name == "width" else dice.random()
            for name in INSTANCE
        },
        topology=tuple(
            {
                "slot": name,
                "blueprint": Blueprint(slot.blueprint).label,
                "stage": slot.stage.name,
                "alpha": slot.alpha,
                "contribution": slot.contribution,
            }
            for name, slot in seeds
        ),
    )


def _totals(dice, round, episodes, records):
    """The events at the end of a round."""
    steps = len(episodes) * len(records)
    taken = Counter(Op(int(op)).name for record in records for op in record["op_effective"])
    done = {name: taken[name] for name in OPS}
    yield PpoUpdated(
        update_s=2.5,
        policy_loss=-dice.random() / 50,
        value_loss=1 / (round + 1),
        entropy=3 - round / 10,
        entropy_head={head: max(0.1, dice.uniform(0.8, 1) - round / 20) for head in HEADS},
        kl=dice.uniform(0.005, 0.05),
        clip_share=dice.random() / 5,
        explained_variance=None if round == 1 else dice.random(),
        gradient_norm=dice.uniform(0.5, 2),
        behaviour_gap=1e-6,
        learning_rate=3e-4,
        steps_done=12,
        steps_skipped=0,
        stopped_by_kl=False,
    )
    yield ActionCounts(
        sampled=done,
        effective=done,
        succeeded={name: count // 2 for name, count in done.items()},
        heads={"slot": dict.fromkeys(SLOTS, 3)},
        outcomes={"DONE": steps, "GATE_FAILED": 5},
        reasons={"CONTRIBUTION_LOW": 1, "TOO_EARLY": 4, "BUSY": 0},
        forced=3,
        missed=0,
    )
    yield MaskHitRates(
        legal_share={name: dice.random() for name in OPS},
        choices_mean={head: dice.uniform(1, 6) for head in HEADS},
        single_share={head: dice.random() for head in HEADS},
    )
    spread = {"mean": 0.1, "std": 0.2, "min": -1.0, "max": 1.0}
    parts = {name: {**spread, "sum": dice.uniform(-0.3, 0.8)} for name in COMPONENTS}
    yield RewardSummary(parts, {**spread, "sum": sum(part["sum"] for part in parts.values())})
    yield Throughput(dice.uniform(20, 30), 1000.0, 0.01, 0.2, 5.0, 1.0, 0.0)
    spent = {
        name: dice.uniform(0.1, 2)
        for name in ("head", "data", "train", "validate", "tail", "update")
    }
    yield PhaseProfile(
        {
            name: {"wall_s": one, "host_cpu_s": one, "device_s": None, "count": 3}
            for name, one in spent.items()
        }
    )
    yield ObservationStats(
        0.0, 0.1, 1.0, 0.0, 0.5, 0.2, 0.4, 0.02, 0.001, dice.random() / 100, 0.1 * round
    )
    yield HiddenHealth(
        *(
            [dice.uniform(0.1, 0.4) for _ in range(4)]
            + [0]
            + [dice.uniform(0.2, 1) for _ in range(4)]
            + [0]
        )
    )
    if dice.random() < 0.4:
        yield AnomalyDetected("kl_spike", 0.2, 0.1, None, 1)
    if dice.random() < 0.4:
        yield AnomalyDetected("entropy_collapse", 0.05, 0.08, "blueprint", 3)
    yield _summary(round, episodes)


def _summary(round, episodes) -> BatchSummary:
    accuracy = [one.accuracy for one in episodes]
    count = len(episodes)
    means = {
        name: sum(getattr(one, name) for one in episodes) / count
        for name in ("network_value", "params_ratio", "stability")
    }
    sums = {
        name: sum(getattr(one, name) for one in episodes)
        for name in ("germinated", "fossilized", "contributing", "pruned", "live", "rollbacks")
    }
    return BatchSummary(
        round=round,
        episodes_completed=count,
        accuracy_mean=sum(accuracy) / count,
        accuracy_std=1.0,
        accuracy_min=min(accuracy),
        accuracy_max=max(accuracy),
        committed_mean=sum(one.committed_accuracy for one in episodes) / count,
        loss_mean=1.0,
        rolling_accuracy=sum(accuracy) / count,
        reward_mean=sum(one.reward for one in episodes) / count,
        reward_std=0.1,
        return_mean=sum(one.discounted_return for one in episodes) / count,
        **{f"{name}_mean": value for name, value in means.items()},
        **sums,
        success_share=sum(one.success for one in episodes) / count,
        env_accuracy=accuracy,
        env_committed=[one.committed_accuracy for one in episodes],
        env_reward=[one.reward for one in episodes],
        updated=True,
        seconds=12.5,
    )
