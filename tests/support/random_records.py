"""Random lives of envs, written out one slot at a time: the records that telemetry reads, and what
really happened.
"""

import random
from dataclasses import dataclass, field

import numpy as np

from morphogen.log.derive import derive_events
from morphogen.log.round_record import RoundRecord, RunFacts, slot_history
from morphogen.log.round_summary import episode_ends
from morphogen.vocab.action import RELEVANT, VALUE_NAMES, Head, Op
from morphogen.vocab.blueprint import CNN_KINDS, code_labels
from morphogen.vocab.objective import DELIVERED
from morphogen.vocab.stage import Algorithm, Fault, Panic, Stage

SLOTS = ("r0c0", "r0c1", "r1c0")
COMPONENTS = ("value", "shaping", "rent", "op_cost", "governor")
S = Stage
UP = {
    S.GERMINATED: S.TRAINING,
    S.TRAINING: S.BLENDING,
    S.BLENDING: S.HOLDING,
    S.HOLDING: S.FOSSILIZED,
}
ASKED = {S.TRAINING: 1, S.BLENDING: 2, S.HOLDING: 3, S.FOSSILIZED: 5}
COOLS = {S.PRUNED: (1, S.EMBARGOED), S.EMBARGOED: (2, S.RESETTING), S.RESETTING: (1, S.DORMANT)}
BLENDED = (S.BLENDING, S.HOLDING, S.FOSSILIZED)


def facts(envs, epochs):
    return RunFacts(
        task="digits",
        slots=SLOTS,
        components=COMPONENTS,
        epochs=epochs,
        success_accuracy=60.0,
        gamma=0.9,
        envs=envs,
        samples=8,
        blueprints=code_labels(CNN_KINDS),
        objective=DELIVERED,
        host={"base": 4},
    )


@dataclass
class Slot:
    """Content of a slot."""

    stage: Stage = S.DORMANT
    age: int = 0
    epochs: int = 0
    blueprint: int = -1
    alpha: float = 0.0
    params: int = 0
    born_at: float = 0.0
    contribution: float | None = None
    closed: float | None = None  # contribution as of the last epoch closed

    @property
    def occupied(self):
        return self.stage in (S.GERMINATED, *UP.values())


@dataclass
class Env:
    """One env.

    `log` holds (epoch, slot, cause, from, to, age, epochs in stage, blueprint, gain, contribution)
    of every move; gain = accuracy before this epoch minus accuracy before germination.
    """

    dice: random.Random
    slots: list[Slot] = field(default_factory=lambda: [Slot() for _ in SLOTS])
    accuracy: float = 50.0
    before: float = 50.0  # accuracy before this epoch
    log: list[tuple] = field(default_factory=list)
    gates: list[tuple] = field(default_factory=list)
    rollbacks: list[int] = field(default_factory=list)

    def move(self, epoch, name, cause, to):
        slot = self.slots[name]
        reported = -1 if slot.stage is S.DORMANT else slot.blueprint
        self.log.append(
            (
                epoch,
                name,
                cause,
                slot.stage,
                to,
                slot.age,
                slot.epochs,
                reported,
                self.before - slot.born_at,
                slot.closed,
            )
        )
        slot.stage, slot.epochs = to, 0
        if to is S.PRUNED:
            slot.alpha, slot.contribution, slot.closed, slot.params = 0.0, None, None, 0
        if to is S.DORMANT:
            self.slots[name] = Slot()

    def act(self, epoch, row):
        """One action: returns its op."""
        name = self.dice.randrange(len(SLOTS))
        slot = self.slots[name]
        if slot.stage is S.DORMANT and self.dice.random() < 0.6:
            self.move(epoch, name, "action", S.GERMINATED)
            slot.blueprint, slot.params, slot.born_at = (
                self.dice.randint(1, 7),
                self.dice.randint(1, 99),
                self.accuracy,
            )
            return Op.GERMINATE
        if slot.stage in UP and self.dice.random() < 0.15:
            self.move(epoch, name, "action", S.PRUNED)
            return Op.PRUNE
        if slot.stage in UP:
            return self.ask(epoch, name, row)
        return Op.WAIT

    def ask(self, epoch, name, row):
        """A gate, passed or not."""
        to = UP[self.slots[name].stage]
        passed = self.dice.random() < 0.8
        row["gate"][name], row["gate_passed"][name] = ASKED[to], passed
        row["gate_failed"][name] = 0 if passed else 0b100
        self.gates.append((epoch, name, to, passed))
        if passed:
            self.move(epoch, name, "action", to)
            self.slots[name].alpha = 1.0 if to in BLENDED else 0.0
        return Op.FOSSILIZE if to is S.FOSSILIZED else Op.ADVANCE

    def tick(self, epoch):
        for name, slot in enumerate(self.slots):
            wait, to = COOLS.get(slot.stage, (0, None))
            if to is not None and slot.epochs >= wait:
                self.move(epoch, name, "tick", to)
            elif slot.stage is S.BLENDING and slot.epochs and self.dice.random() < 0.1:
                self.move(epoch, name, "tick", S.PRUNED)

    def govern(self, epoch):
        """A rollback prunes what is occupied; now and then a young fossil too."""
        if self.dice.random() > 0.05:
            return False
        self.rollbacks.append(epoch)
        for name, slot in enumerate(self.slots):
            if slot.stage in UP or (slot.stage is S.FOSSILIZED and slot.epochs == 0):
                self.move(epoch, name, "govern", S.PRUNED)
        return True

    def close(self):
        for slot in self.slots:
            slot.epochs += slot.stage is not S.DORMANT
            slot.age += slot.occupied
            slot.closed = slot.contribution

    def stages(self):
        return [int(slot.stage) for slot in self.slots]

    def epoch(self, t):
        """The row of this env in the record of epoch t."""
        row = {name: [0] * len(SLOTS) for name in ("gate", "gate_failed")}
        row["gate_passed"] = [False] * len(SLOTS)
        self.before = self.accuracy
        row |= {"acc_before": self.accuracy, "stage_before": self.stages()}
        row["op_effective"] = int(self.act(t, row))
        row["stage_acted"], row["blueprint"] = (
            self.stages(),
            [slot.blueprint for slot in self.slots],
        )
        self.tick(t)
        row["stage_ticked"], row["params"] = self.stages(), [slot.params for slot in self.slots]
        row["age"], row["epochs_in_stage"] = (
            [getattr(slot, n) for slot in self.slots] for n in ("age", "epochs")
        )
        self.accuracy = row["val_acc"] = round(self.dice.uniform(40, 80), 3)
        self.measure()
        row["contribution"] = [slot.contribution or 0.0 for slot in self.slots]
        row["shapley"] = [(slot.contribution or 0.0) / 2 for slot in self.slots]
        row["contribution_valid"] = [slot.contribution is not None for slot in self.slots]
        row["rolled_back"] = self.govern(t)
        row["stage"], row["alpha"] = self.stages(), [slot.alpha for slot in self.slots]
        self.close()
        return {
            **row,
            **self.chosen(row["op_effective"]),
            **self.worth(row),
            **self.pay(t, row["rolled_back"]),
        }

    def measure(self):
        for slot in self.slots:
            slot.contribution = (
                round(self.dice.uniform(-2, 4), 3) if slot.stage in BLENDED else None
            )

    def chosen(self, op):
        """The action behind an op, which is now and then vetoed, and what it was chosen from."""
        vetoed = self.dice.random() < 0.1
        legal = [True, *(self.dice.random() < 0.5 for _ in list(Op)[1:])]
        used = [head == 0 or RELEVANT[op][head] for head in range(8)]
        return {
            "action": [op, *(self.dice.randrange(3) for _ in range(7))],
            "success": not vetoed,
            "outcome": 2 if vetoed else 0,
            "reason": 23 if vetoed else 0,
            "forced": self.dice.random() < 0.2,
            "missed": self.dice.random() < 0.05,
            "op_legal": legal,
            "op_prob": [round(self.dice.random(), 3) for _ in Op],
            **self.masks([self.dice.randint(1, 3) if one else 2 for one in used]),
            **{name: [-0.5 if one else 0.0 for one in used] for name in ("log_prob", "entropy")},
            "value": 0.25,
        }

    def masks(self, steps):
        """Legal values of the heads but the op: one in so many of each head."""
        masks = {
            f"{h.label}_legal": [i % steps[h] == 0 for i, _ in enumerate(VALUE_NAMES[h])]
            for h in list(Head)[2:]
        }
        return {
            "slot_legal": [[(i + op) % steps[1] == 0 for i, _ in enumerate(SLOTS)] for op in Op],
            **masks,
        }

    def worth(self, row):
        """Measurements of training and seeds, empty at random."""
        exact, trained = self.dice.random() < 0.8, self.dice.random() < 0.9
        graded = [slot.stage in BLENDED for slot in self.slots]
        numbers = {
            "gradient_norm": 0.5,
            "gradient_health": 1.0,
            "gradient_ratio": 0.75,
            "velocity": 0.1,
            "interaction_sum": -0.5,
            "boost_received": 0.25,
        }
        return {
            **{name: [value * one for one in graded] for name, value in numbers.items()},
            **{f"{name}_valid": graded for name in ("gradient", "gradient_ratio", "velocity")},
            "interaction_valid": [exact and one for one in row["contribution_valid"]],
            "vanishing": [False] * len(SLOTS),
            "exploding": graded,
            "train_valid": trained,
            **dict.fromkeys(("train_loss", "train_acc", "host_gradient_norm"), 0.5 * trained),
            "skipped": 0 if trained else 2,
            "forwards": 4,
            "exact": exact,
            "measured": True,
            "acc_table": [value * exact for value in (*range(0, 70, 10), self.accuracy)],
            "host_acc": self.accuracy - sum(row["shapley"]),
            "committed_acc": self.accuracy - 5,
        }

    def pay(self, t, rolled_back):
        components = [
            0.0,
            round(self.dice.uniform(-1, 1), 3),
            0.0,
            0.0,
            -1.0 if rolled_back else 0.0,
        ]
        return {
            "components": components,
            "reward": sum(components),
            "network_value": self.accuracy / 100,
            "unmeasured": self.dice.random() < 0.1,
            "potential_by_slot": [0.1 * (slot.contribution or 0.0) for slot in self.slots],
            "detector_ratio": [5.0] * len(SLOTS),
            "detectors": [[self.dice.random() < 0.1, False] for _ in SLOTS],
            "panic": int(Panic.CHANCE) if rolled_back else 0,
            "panic_streak": int(rolled_back),
            "anomaly": int(Panic.CHANCE) if rolled_back else 0,
            "fault": int(Fault.ROLLED_BACK) if rolled_back else 0,
            "snapshot_taken": False,
            "loss_limit": 4.0,
            "snapshot_epoch": -1,
            "seeds_pruned": sum(entry[0] == t and entry[2] == "govern" for entry in self.log),
            "val_loss": 1.25,
            "final_acc": self.accuracy,
            "final_committed": self.accuracy - 5,
            "final_loss": 1.25,
            "best_acc": 80.0,
            "regime": t // 9,
            "view_code": t // 9 % 5,
            "classes": 8,
            "stabilized": t > 6,
            "stable_epochs": 3,
            "host_params": 400,
            "algorithm": [int(Algorithm.ADD)] * len(SLOTS),
            "tempo": [5] * len(SLOTS),
            "blend_target": [0.7] * len(SLOTS),
            "instance": [1.0, 0.5, 0.1, 8.0, 1.0, 0.1],
        }


def stacked(rows):
    """Rows of the envs as one record."""
    return {name: np.asarray([row[name] for row in rows]) for name in rows[0]}


def live(seed, envs, epochs):
    """Envs after some epochs, and their records."""
    there = [Env(random.Random(f"{seed}-{env}")) for env in range(envs)]
    return there, [stacked([env.epoch(t) for env in there]) for t in range(epochs)]


def columns_of(records):
    """Records of the epochs of a round as columns."""
    return {name: np.stack([record[name] for record in records]) for name in records[0]}


def round_record(records, known, *, round=0):
    """The record of a round."""
    columns = columns_of(records)
    ends = episode_ends(columns, slot_history(columns), known)
    return RoundRecord(known, round, columns, ends)


def events_of(records, known, **more):
    """The events of a round."""
    return list(derive_events(round_record(records, known, **more)))


def epochs_run(seed, envs, epochs):
    """Records of the epochs of a round, and constants of the run."""
    return live(seed, envs, epochs)[1], facts(envs, epochs)
