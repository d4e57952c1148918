"""The fake device: what it finds, and that whole lives of runs have nothing to find."""

import pytest
import torch
from support.extras import has_extra
from support.fake_device import DEVICE, Rehearsal, fake_tensors, fault_of, rehearse
from support.fake_runs import expected_counts, play_life, spec_of, strays
from support.small_runs import tiny

from morphogen.device.transfers import Transfers
from morphogen.train.loop import Hooks, Parts, Scheduler


def copy_unpinned(x):
    """A transfer whose buffer on the host is ordinary memory."""
    transfers = Transfers(x.device, lambda: 0.0)
    buffer = transfers.prefetch_buffers((3,), torch.uint8, 1)[0]
    buffer.host_bytes = torch.empty(3, dtype=torch.uint8)
    transfers.fill(buffer, lambda _: None)


def gather_gradient(x):
    index = torch.zeros(4, 1, dtype=torch.int64, device=x.device)
    torch.func.grad(lambda y: y.gather(1, index).sum())(x)


PLANTED = {
    "an index on the host": lambda x: x[torch.arange(2)],
    "a range on the default device": lambda x: x + torch.arange(3),
    "a scalar on the default device": lambda x: x * torch.tensor(2.0),
    "a value": lambda x: x.sum().item(),
    "the truth of a tensor": lambda x: bool(x.sum() > 0),
    "a number of a tensor": lambda x: float(x.sum()),
    "a list": lambda x: x.tolist(),
    "a copy to the host": lambda x: x.cpu(),
    "an array": lambda x: x.numpy(),
    "a mask as index": lambda x: x[x > 0],
    "the number of true entries": lambda x: x.nonzero(),
    "a constant from the host": lambda x: x + torch.tensor([1.0, 2.0, 3.0], device=x.device),
    "a write into the host": lambda x: torch.empty(4, 3).copy_(x),
    "equality of tensors": lambda x: torch.equal(x, x),
    "a transfer of memory that is not pinned": copy_unpinned,
    "an addition in any order": lambda x: x.index_add(
        0, torch.zeros(4, dtype=torch.int64, device=x.device), x
    ),
    "a running sum of fractions": lambda x: x.cumsum(0),
    "the gradient of gather": gather_gradient,
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_found(name):
    found = Rehearsal()
    with fake_tensors(found, []):
        x = torch.empty(4, 3, device=DEVICE)
        try:
            PLANTED[name](x)
        except Exception as error:
            found.faults.append(fault_of(error))
    assert found.faults, name
    assert "test_fake_device.py" in found.faults[0].location


def test_ordinary_work_of_a_device_has_no_fault():
    found = Rehearsal()
    with fake_tensors(found, []):
        x = torch.empty(4, 3, device=DEVICE)
        rows = torch.arange(2, device=x.device)
        x[rows].exp().sum(-1).long().cumsum(0)
        torch.func.grad(lambda y: (y @ y.mT).sum())(x)
    assert not found.faults
    assert found.operators["mm"] == 3


@pytest.mark.slow
def test_a_read_in_a_hook_is_found_in_a_run_with_its_line():
    def play(setup):
        def read(*_):
            assert scheduler.carry is not None
            scheduler.carry.state.host.params.sum().item()

        scheduler = Scheduler(setup, Parts(hooks=Hooks(on_epoch=read)))
        scheduler.run()

    found = rehearse(play, tiny(task="tiny", envs=2, episode_length=2, policy_name="wait"))
    assert len(found.faults) == 1
    assert "test_fake_device.py" in found.faults[0].location
    assert found.crossings["plan"] == 1, "the first epoch came to its end"


@pytest.mark.slow
def test_a_life_of_a_run_has_no_fault_and_crosses_as_the_fence_table_says(tmp_path):
    """Rounds, save, resume and evaluation; the tool `rehearse` plays all tasks, levels, placements
    and precisions.
    """
    placement = "streamed" if has_extra("streaming") else "resident"
    spec = spec_of("digits_impaired", "normal", placement, "float16", tmp_path)
    found = rehearse(play_life, spec)
    assert found.faults == []
    assert found.crossings == found.ledger == expected_counts(spec)
    assert not strays(found.result)
    # hosts, seeds
    trained = found.operators["nll_loss_backward"] and found.operators["segment_reduce"]
    assert trained
