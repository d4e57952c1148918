"""Rules that derive the details of epochs from the record of a round."""

import hashlib
import json
from operator import itemgetter

import numpy as np

from morphogen.extras.details import detail_kinds as kinds
from morphogen.log.codec import Array
from morphogen.log.derive import (
    DETAILS,
    NO_VALUE,
    ONE_ENV,
    EventRule,
    Places,
    Row,
    by_code,
    panic_names,
    seeds_of_envs,
)
from morphogen.log.events import Json, tidy
from morphogen.log.round_record import Columns, in_stages
from morphogen.log.round_summary import legal_choices, used_heads
from morphogen.vocab.action import VALUE_NAMES, Head, Op
from morphogen.vocab.stage import BLENDED, OCCUPIED, Check, Fault, Gate, Panic, Stage

MAX_OTHERS = 2  # ops that are reported besides the chosen one


def _has_gate(columns: Columns) -> Array:
    return columns["gate"] != Gate.NONE


def _gate_fields(places: Places) -> Row:
    return {"failed": by_code(_failed_checks, places["gate_failed"])}


def _failed_checks(bits: int) -> tuple[str, ...]:
    return tuple(check.name.lower() for check in Check if bits >> check & 1)


def _is_wrong(columns: Columns) -> Array:
    """Return whether an env has a fault and was not rolled back."""
    is_odd = (columns["anomaly"] != Panic.NONE) | (columns["fault"] != Fault.NONE)
    return is_odd & ~columns["rolled_back"]


def _anomaly_fields(places: Places) -> Row:
    return {
        "sign": panic_names(places["anomaly"]),
        "faults": by_code(_fault_names, places["fault"]),
    }


def _fault_names(bits: int) -> tuple[str, ...]:
    return tuple(str(fault.name).lower() for fault in Fault(bits))


def _is_settled(columns: Columns) -> Array:
    """Return whether the loss of a host is stable for the first time."""
    stable = columns["stabilized"]
    return stable & (np.cumsum(stable, axis=0) == 1)


def _is_grown(columns: Columns) -> Array:
    return columns["is_last"] & (columns["stage"] == Stage.FOSSILIZED).any(axis=-1)


def _topology_fields(places: Places) -> Row:
    """The manifest of the fossils of an env, and the hash of it."""
    head = {"task": places.facts.task, "host": places.facts.host}
    fossils = seeds_of_envs(places, (Stage.FOSSILIZED,), ("algorithm", "tempo", "params"))
    manifests = [tidy({**head, "slots": slots}) for slots in fossils]
    return {"sha256": [_manifest_hash(each) for each in manifests], "manifest": manifests}


def _manifest_hash(manifest: Json) -> str:
    """Sha256 of a manifest as canonical JSON: sorted keys, no spaces."""
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _action_fields(places: Places) -> Row:
    """Chosen actions, and the most likely legal ops besides, the likeliest first."""
    action = places["action"]
    used = used_heads(action[..., Head.OP])
    names = {**VALUE_NAMES, Head.SLOT: places.facts.slots, Head.BLUEPRINT: places.facts.blueprints}
    chosen = {
        head.label: _choice_names(action[..., head], names[head], used[..., head]) for head in Head
    }
    return {
        **chosen,
        "choices": legal_choices(places.columns)[places.index],
        "others": _others(places),
    }


def _choice_names(values: Array, names: tuple[str, ...], used: Array) -> Array:
    """Return the name of the value that each env chose with a head; None where it uses none."""
    known = used & (values >= 0) & (values < len(names))
    return np.array([*names, None], dtype=object)[np.where(known, values, -1)]


def _others(places: Places) -> list[list[list[str]]]:
    free = places["op_legal"] & (np.arange(len(Op)) != places["action"][..., :1])
    cost = np.where(free, -places["op_prob"], np.inf)
    likely = np.argsort(cost, axis=-1, kind="stable")[..., :MAX_OTHERS]
    is_free = np.take_along_axis(free, likely, axis=-1)
    return [
        [[Op(op).name for op in ops[legal]] for ops, legal in zip(*rows, strict=True)]
        for rows in zip(likely, is_free, strict=True)
    ]


def _missing(columns: Columns) -> Array:
    """Seeds without a fresh exact contribution."""
    fresh = columns["contribution_valid"] & columns["interaction_valid"]
    return in_stages(columns["stage"], OCCUPIED) & ~fresh


def _has_missing(columns: Columns) -> Array:
    return np.asarray(_missing(columns).any(axis=(1, 2)))


def _missing_fields(places: Places) -> Row:
    """Reasons; `not_exact`: fresh, but its interactions were not measured."""
    player = in_stages(places["stage_ticked"], BLENDED) & (places["alpha"] > 0)
    skipped = player & ~places["measured"][..., None]
    reason = np.where(skipped, "skipped", "no_player").astype(object)
    fresh = places["contribution_valid"]
    reason = np.where(fresh & ~places["interaction_valid"], "not_exact", reason)
    return {"reason": np.where(_missing(places.columns)[places.index], reason, NO_VALUE)}


def _slot_fields(places: Places) -> Row:
    return {name: places[f"after.{name}"] for name in ("age", "epochs_in_stage")}


def _reward_fields(places: Places) -> Row:
    totals = np.cumsum(places.columns["components"], axis=0, dtype=np.float64)
    return {"names": places.facts.components, "totals": totals[places.index]}


def _snapshot_fields(places: Places) -> Row:
    return {"fossils": (places["stage"] == Stage.FOSSILIZED).sum(axis=-1)}


RULES = (
    EventRule(kinds.GateEvaluated, (ONE_ENV, 0), _has_gate, _gate_fields),
    EventRule(kinds.AnomalySeen, (ONE_ENV, 5), _is_wrong, _anomaly_fields),
    EventRule(kinds.HostStabilized, (ONE_ENV, 7), _is_settled),
    EventRule(kinds.TopologyRecorded, (ONE_ENV, 9), _is_grown, _topology_fields),
    EventRule(kinds.ActionsTaken, (DETAILS, 0), fields=_action_fields),
    EventRule(kinds.SlotsMeasured, (DETAILS, 2), fields=_slot_fields),
    EventRule(kinds.AttributionMissing, (DETAILS, 3), _has_missing, _missing_fields),
    EventRule(kinds.RewardsPaid, (DETAILS, 4), fields=_reward_fields),
    EventRule(kinds.SnapshotTaken, (DETAILS, 6), itemgetter("snapshot_taken"), _snapshot_fields),
)
