"""A run of two processes that exchange gradients: the run of one process, up to rounding."""

import pytest
import torch

import morphogen as mg
from tests.extras.ranks import rank_jobs

FIELDS = {
    "preset": "tiny",
    "episode_length": 6,
    "rounds": 2,
    "envs": 8,
    "seed": 4,
    "ppo": {"minibatches": 2},
}


def learn(exchange):
    """Values of the rounds, calls and bytes of the exchanges, and the network of a rank."""
    spec = mg.RunSpec(**FIELDS, engine={"reduce": "allreduce"})
    scheduler = mg.Scheduler(mg.build_setup(mg.resolve(spec), exchange))
    values = [summary.network_value_mean for summary in scheduler.run()]
    ledger = {name: list(entry) for name, entry in exchange.ledger.items() if entry.calls}
    net = torch.cat([leaf.flatten() for leaf in scheduler.params["net"].values()])
    return {"values": values, "ledger": ledger, "net": net.tolist()}


@pytest.mark.slow
def test_two_processes_that_exchange_gradients_learn_what_one_process_learns():
    first, second = rank_jobs.run_ranks(learn, ranks=2)
    alone = mg.Scheduler(mg.build_setup(mg.resolve(mg.RunSpec(**FIELDS))))
    values = [summary.network_value_mean for summary in alone.run()]
    net = torch.cat([leaf.flatten() for leaf in alone.params["net"].values()])
    assert first["net"] == second["net"]
    assert first["values"] == second["values"] == pytest.approx(values, rel=1e-4)
    assert first["net"] == pytest.approx(net.tolist(), rel=1e-3, abs=1e-5)
    ledger = first["ledger"]
    assert "rollout" not in ledger  # the rows stay where they are
    steps = 2 * 2 * alone.setup.spec.ppo.epochs  # rounds, minibatches, PPO epochs
    sums = 7 + 3 * 8  # losses and shares, and three numbers of each head
    counts = 3 + 8  # rows that are free, known or measured, and the free ones of each head
    assert ledger["gradient"] == [2 * steps, 4 * steps * (len(net) + sums + counts)]
    assert ledger["metrics"] == [2, 3 * 8 * steps]  # three extremes, float64
    assert ledger["moments"][0] == 2 * 9
