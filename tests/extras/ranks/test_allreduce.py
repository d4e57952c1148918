"""A run of two processes that exchange gradients: the run of one process, up to rounding."""

import json

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
RANK = """
import json, os, sys
import torch
torch.set_num_threads(1)
import morphogen as mg
from morphogen.extras.ranks.process_group import join_ranks

exchange = join_ranks(torch.device("cpu"), timeout_s=30)
spec = mg.RunSpec(**json.loads(sys.argv[1]), engine={"reduce": "allreduce"})
scheduler = mg.Scheduler(mg.build_setup(mg.resolve(spec), exchange))
values = [summary.network_value_mean for summary in scheduler.run()]
ledger = {name: list(entry) for name, entry in exchange.ledger.items() if entry.calls}
net = torch.cat([leaf.flatten() for leaf in scheduler.params["net"].values()])
print(json.dumps({"values": values, "ledger": ledger, "net": net.tolist()}), flush=True)
exchange.close()
os._exit(0)
"""


def run_on(ranks: int) -> list[dict]:
    """Run the script on so many ranks and return what each printed."""
    return [
        json.loads(output) for output in rank_jobs.run_script(RANK, json.dumps(FIELDS), ranks=ranks)
    ]


@pytest.mark.slow
def test_two_processes_that_exchange_gradients_learn_what_one_process_learns():
    first, second = run_on(2)
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
