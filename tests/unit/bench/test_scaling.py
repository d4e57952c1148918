"""The cost of a round over ranks: collectives against a simulation of their steps, and the shape of the model."""

import json
import math

import pytest

from bench.studies import scaling

NET = scaling.Network("made up", gbit_s=8, latency_s=0.25)  # 1e9 bytes a second
PARTS = {
    "epoch_s": {str(n): 0.01 + 0.002 * n for n in scaling.SIZES},
    "update_start_s": 0.5,
    "update_per_env_s": 0.01,
    "epochs": 16,
    "ppo_steps": 32,
    "bytes": {"rollout": 1_000, "record": 500, "state": 100_000},
    "policy_bytes": 400_000,
}


def ring_seconds(ranks, size):
    """Every rank passes on the part that it got last until all of them hold all parts."""
    held = [{rank} for rank in range(ranks)]
    last, seconds = list(range(ranks)), 0.0
    while any(len(parts) < ranks for parts in held):
        last = [last[rank - 1] for rank in range(ranks)]
        for rank, part in enumerate(last):
            held[rank].add(part)
        seconds += NET.latency_s + size / ranks / 1e9
    return seconds


def tree_seconds(ranks, size):
    """Pairs at doubling distances exchange all that they hold."""
    held, distance, seconds = [{rank} for rank in range(ranks)], 1, 0.0
    while distance < ranks:
        most = max(map(len, held))
        held = [parts | held[rank ^ distance] for rank, parts in enumerate(held)]
        seconds += NET.latency_s + most * size / ranks / 1e9
        distance *= 2
    assert all(len(parts) == ranks for parts in held)
    return seconds


@pytest.mark.parametrize("ranks", [1, 2, 4, 8, 64])
def test_a_gather_takes_the_steps_of_its_algorithm(ranks):
    assert NET.all_gather(ranks, 3e9, tree=False) == pytest.approx(ring_seconds(ranks, 3e9))
    assert NET.all_gather(ranks, 3e9, tree=True) == pytest.approx(tree_seconds(ranks, 3e9))


def test_one_rank_exchanges_nothing():
    row = scaling.model_round(PARTS, 1, 64)
    assert {value for name, value in row.items() if name.startswith(("gather", "allreduce_"))} == {0.0}


def test_more_ranks_shorten_the_rollout_and_not_the_update():
    rows = [scaling.model_round(PARTS, ranks, 4_096) for ranks in (1, 4, 16, 64)]
    rollouts = [row["rollout_s"] for row in rows]
    assert rollouts == sorted(rollouts, reverse=True)
    assert len({row["update_s"] for row in rows}) == 1
    shared = [row["update_allreduce_s"] for row in rows]
    assert shared == sorted(shared, reverse=True)


def test_the_update_equals_the_rollout_at_the_breaking_point():
    parts = {**PARTS, "update_start_s": 0.0, "epoch_s": {n: 0.002 * n for n in scaling.SIZES}}
    ranks = scaling.breaking_points(parts)["ranks_of_equal_update"]
    row = scaling.model_round(parts, ranks, 1e6)
    assert row["update_s"] == pytest.approx(row["rollout_s"])


def test_the_table_is_the_one_of_the_file(tmp_path, monkeypatch, capsys):
    rounds = [scaling.model_round(PARTS, ranks, 1_024) for ranks in (1, 64)]
    file = tmp_path / "scaling.json"
    file.write_text(json.dumps({"rounds": rounds}))
    monkeypatch.setattr("sys.argv", ["scaling", "--table", "--json", str(file)])
    scaling.main()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + len(rounds)
    assert lines[-1].startswith("| 64 | 1,024 | ")
    assert math.isclose(float(lines[-1].split(" | ")[2]), rounds[1]["rollout_s"], rel_tol=0.01)
