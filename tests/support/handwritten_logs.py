"""Made-up logs of runs: a few events each, written out by hand."""

from dataclasses import replace

from support import generated_logs

from morphogen.log.events import Envelope
from morphogen.log.jsonl import encode
from morphogen.log.kinds.epoch import (
    EpisodeCompleted,
    EpochCompleted,
    RegimeBegan,
    RolledBack,
    SeedFossilized,
    SeedGerminated,
    StageChanged,
)
from morphogen.log.kinds.ppo import PpoUpdated
from morphogen.log.kinds.round import ActionCounts, AnomalyDetected, BatchSummary
from morphogen.log.kinds.run import CheckpointSaved, Evaluated, RunCompleted

SLOTS = ("r0c0", "r0c1")


def saved(number, path="checkpoints/last"):
    return Envelope(CheckpointSaved(path=path, kind="final", size_bytes=number, save_s=0.0))


def started(envs=3, epochs=4, rounds=2, slots=SLOTS, regime=None, **telemetry):
    config = {"policy_name": "ppo", "telemetry": telemetry, "regime": regime or {}}
    return Envelope(
        replace(
            generated_logs.started(generated_logs.spec_of(rounds, envs, epochs)),
            config=config,
            seed=7,
            slots=slots,
        )
    )


def about(data, round, epoch, env, slot=None, envs=3):
    return Envelope(data, round=round, epoch=epoch, env=env, episode=round * envs + env, slot=slot)


def moved(before, to, round=0, epoch=0, env=0, slot="r0c0", cause="action", blueprint="norm"):
    data = StageChanged(
        from_=before, to=to, cause=cause, blueprint=blueprint, alpha=0.0, age=0, epochs_in_stage=0
    )
    return about(data, round, epoch, env, slot)


def germinated(round=0, epoch=0, env=0, slot="r0c0", blueprint="norm"):
    seed = SeedGerminated(
        blueprint=blueprint, params=1234, algorithm="ADD", tempo=3, alpha_target=1.0, accuracy=50.0
    )
    return [
        moved("DORMANT", "GERMINATED", round, epoch, env, slot, blueprint=None),
        about(seed, round, epoch, env, slot),
    ]


def fossilized(round=0, epoch=3, env=0, slot="r0c0"):
    seed = SeedFossilized(
        blueprint="norm", params=1234, age=3, contribution=2.5, shapley=1.0, accuracy_change=4.0
    )
    return [
        moved("HOLDING", "FOSSILIZED", round, epoch, env, slot),
        about(seed, round, epoch, env, slot),
    ]


def epoch(round, epoch, envs=3, slots=SLOTS, **fields):
    """An epoch of all envs: accuracy 50 plus the epoch, plus a tenth of the env."""
    row, table = (None,) * envs, ((None,) * len(slots),) * envs
    data = EpochCompleted(
        **{
            "train_loss": row,
            "train_acc": row,
            "val_loss": row,
            "val_acc": tuple(50.0 + epoch + env / 10 for env in range(envs)),
            "committed_acc": row,
            "reward": (0.25,) * envs,
            "host_gradient_norm": row,
            "params_ratio": (1.5,) * envs,
            "skipped": (0,) * envs,
            "forwards": (1,) * envs,
            "op_effective": ("WAIT",) * envs,
            "success": (True,) * envs,
            "stage": (("DORMANT",) * len(slots),) * envs,
            "alpha": table,
            "contribution": table,
            **fields,
        }
    )
    return Envelope(data, round=round, epoch=epoch)


def episode(round, env, accuracy=60.0, epoch=3):
    data = EpisodeCompleted(
        accuracy=accuracy,
        committed_accuracy=accuracy - 5,
        initial_accuracy=10.0,
        best_accuracy=accuracy,
        loss=1.0,
        success=False,
        stability=0.5,
        reward=0.75,
        discounted_return=0.7,
        network_value=0.6,
        components={},
        slot_rewards={},
        unmeasured_steps=0,
        detectors={},
        params=600,
        params_ratio=1.25,
        germinated=0,
        fossilized=0,
        contributing=0,
        pruned=0,
        live=0,
        rollbacks=0,
        ops={"WAIT": 4},
        instance={},
        topology=(),
    )
    return about(data, round, epoch, env)


def summary(round, accuracy=60.0, seconds=10.0, anomalies=()):
    spread = ("accuracy_std", "accuracy_min", "accuracy_max", "reward_mean", "reward_std")
    numbers = dict.fromkeys((*spread, "loss_mean", "rolling_accuracy"), 1.0)
    counts = dict.fromkeys(
        ("germinated", "fossilized", "contributing", "pruned", "live", "rollbacks"), 0
    )
    data = BatchSummary(
        round=round,
        episodes_completed=3,
        accuracy_mean=accuracy,
        committed_mean=accuracy - 5,
        return_mean=0.5,
        network_value_mean=0.625,
        params_ratio_mean=1.25,
        stability_mean=0.5,
        success_share=0.0,
        env_accuracy=(),
        env_committed=(),
        env_reward=(),
        updated=True,
        anomalies=anomalies,
        seconds=seconds,
        env_epochs_per_s=1234.0,
        **numbers,
        **counts,
    )
    return Envelope(data, round=round)


def updated(round, kl=0.01, update_s=2.0):
    return Envelope(
        PpoUpdated(kl=kl, entropy=1.5, value_loss=0.125, update_s=update_s), round=round
    )


def acted(round):
    ops = {"WAIT": 9, "GERMINATE": 3, "PRUNE": 0}
    data = ActionCounts(
        sampled=ops,
        effective={"WAIT": 10, "GERMINATE": 2},
        succeeded={"WAIT": 9, "GERMINATE": 2},
        heads={},
        outcomes={},
        reasons={},
        forced=0,
        missed=0,
    )
    return Envelope(data, round=round)


def anomaly(round, kind="kl_spike", severity="warning", value=0.2):
    data = AnomalyDetected(kind=kind, value=value, limit=0.1, subject=None, streak=1)
    return Envelope(data, round=round, severity=severity)


def rolled_back(round=0, epoch=1, env=1):
    data = RolledBack(
        reason="chance",
        loss=9.0,
        loss_limit=4.0,
        streak=1,
        penalty=1.0,
        seeds_pruned=2,
        snapshot_epoch=-1,
    )
    return about(data, round, epoch, env)


def regime_began(round=0, epoch=1, env=0, *, regime=1, view="plain"):
    return about(
        RegimeBegan(regime=regime, view=view, classes=10, accuracy=50.0), round, epoch, env
    )


def evaluated():
    interval = {"mean": 0.7, "low": 0.6, "high": 0.8}
    data = Evaluated(
        episodes=64,
        split="validation",
        network_value=interval,
        committed_accuracy=interval,
        params_ratio=interval,
        success_share=interval,
        stability=interval,
    )
    return Envelope(data)


def ended(status="completed", error=None, rounds=2):
    return Envelope(
        RunCompleted(
            status=status,
            rounds_done=rounds,
            best_round=1,
            best_accuracy=56.0,
            error=error,
            run_s=65.0,
        )
    )


def whole(rounds=2, epochs=4, envs=3, **telemetry):
    """A run from its first to its last event: one seed is germinated and kept in env 0 of each
    round.
    """
    found = [started(envs, epochs, rounds, **telemetry)]
    for round in range(rounds):
        for t in range(epochs):
            found += germinated(round) if t == 0 else []
            found += [moved("GERMINATED", "TRAINING", round, t)] if t == 1 else []
            found.append(epoch(round, t, envs))
        found += [episode(round, env) for env in range(envs)]
        found += [updated(round), summary(round, 60.0 + round), acted(round)]
    return [*found, anomaly(rounds - 1), saved(5), evaluated(), ended(rounds=rounds)]


def written(path, events, first=0):
    """The events appended to a file."""
    with path.open("ab") as file:
        file.writelines(
            encode(event, seq=first + i, time=0.0).encode() for i, event in enumerate(events)
        )
