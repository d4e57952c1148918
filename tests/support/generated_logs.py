"""Event logs of runs that never were: events of random records, and numbers from a dice."""

import json
import random
from dataclasses import fields, replace
from pathlib import Path

from support.random_records import SLOTS, facts, live, round_record
from support.small_runs import plain

from morphogen.config.config_files import dump_config
from morphogen.config.host import seed_macs
from morphogen.config.spec import find_host, resolve
from morphogen.config.telemetry_spec import TelemetrySpec
from morphogen.log.derive import derive_events
from morphogen.log.events import Envelope
from morphogen.log.jsonl import encode, event_kinds
from morphogen.log.kinds.ppo import PpoUpdated
from morphogen.log.kinds.round import (
    AnomalyDetected,
)
from morphogen.log.kinds.run import Evaluated, HeldOutPlayed, RunCompleted, RunStarted
from morphogen.log.monitors import FinishedRound, RunPlan, build_monitors
from morphogen.log.round_summary import RoundCosts, summarise, throughput_events
from morphogen.vocab.action import HEADS
from morphogen.vocab.blueprint import CNN_BLUEPRINTS, CNN_KINDS, code_labels

Events = list[Envelope]


def spec_of(rounds, envs, epochs):
    return resolve(plain(rounds=rounds, envs=envs, episode_length=epochs, final_episodes=envs))


def events(rounds=3, envs=4, epochs=12, *, seed=0, ended=True) -> Events:
    """All events of a run, the last round included only where it ended."""
    dice = random.Random(seed)
    found = [Envelope(started(spec_of(rounds, envs, epochs))), *_plays(0)]
    known = facts(envs, epochs)
    monitors = build_monitors(RunPlan(known, TelemetrySpec(), rounds, found[0].data.macs))
    monitors.pop("alarms", None)
    for round in range(rounds):
        record = round_record(live(seed * 1000 + round, envs, epochs)[1], known, round=round)
        found += _round(dice, record)
        metrics = _metrics(dice)
        summary = next(event.data for event in found if event.name == "RoundCompleted")
        for monitor in monitors.values():
            found += monitor.end_round(FinishedRound(record, summary, (), metrics))
        found += _plays(round + 1)
    if ended:
        found += [Envelope(_evaluated(dice, envs)), Envelope(_completed(rounds))]
    return found


def write(path: Path, found: Events | None = None, **sizes) -> Path:
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


def _round(dice, record) -> Events:
    known, round = record.facts, record.round
    steps = record.envs * record.epochs
    costs = RoundCosts(dice.uniform(3, 5), steps, 1.0, 0.1, phases=_phases(dice))
    alarms = [
        anomaly(round, kind) for kind in ("kl_spike", "entropy_collapse") if dice.random() < 0.4
    ]
    kinds = [alarm.data.kind for alarm in alarms]
    summary, _ = summarise(record.ends, (), round=round, updated=True, costs=costs)
    found = (
        _updated(dice, round),
        *throughput_events(costs, samples=known.samples),
        replace(summary, anomalies=tuple(kinds)),
    )
    about = (Envelope(event, round=round) for event in found)
    return [*derive_events(record), *alarms, *about]


def anomaly(round, kind="kl_spike", severity="warning") -> Envelope:
    data = AnomalyDetected(kind=kind, value=0.2, limit=0.1, subject=None, streak=1)
    return Envelope(data, round=round, severity=severity)


def _phases(dice):
    spent = ("head", "data", "train", "validate", "tail", "update")
    rest = {"host_cpu_s": 0.5, "device_s": None, "count": 3}
    return {name: {"wall_s": dice.uniform(0.1, 2), **rest} for name in spent}


def _metrics(dice):
    """The numbers of the transfer `update` that are about observations and the memory."""
    groups = {"observation": "ObservationStats", "hidden": "HiddenHealth"}
    return {
        f"{group}.{field.name}": 0 if field.name.endswith("nonfinite") else dice.random()
        for group, name in groups.items()
        if name in event_kinds()
        for field in fields(event_kinds()[name])
    }


def _updated(dice, round) -> PpoUpdated:
    return PpoUpdated(
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
