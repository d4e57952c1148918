"""Schedules of learning rates against `torch.optim.lr_scheduler`."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.optim import lr_scheduler

import morphogen as mg
from morphogen.hosts.schedule import RateSchedule, build_schedule


def torch_rates(schedule):
    """Rates of all minibatches of an episode, by the schedulers of torch."""
    total = schedule.minibatches * schedule.epochs
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0)
    warm = schedule.warmup
    course = lr_scheduler.CosineAnnealingLR(optimiser, T_max=total - warm)
    if warm:
        rise = lr_scheduler.LinearLR(optimiser, start_factor=1 / (warm + 1), total_iters=warm)
        course = lr_scheduler.SequentialLR(optimiser, [rise, course], milestones=[warm])
    found = []
    for _ in range(total):
        found.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        course.step()
    return found


@given(st.integers(1, 7), st.integers(1, 6), st.floats(0, 0.99))
@pytest.mark.filterwarnings("ignore:The epoch parameter")  # of torch, inside of SequentialLR
def test_a_schedule_equals_the_schedulers_of_torch(minibatches, epochs, share):
    spec = mg.HostSpec(schedule="warmup_cosine", warmup_share=share)
    schedule = build_schedule(spec, minibatches, epochs)
    assert schedule is not None
    done = torch.arange(minibatches * epochs)
    rates = schedule.factor(done // minibatches, done % minibatches, torch.zeros(1).double())
    expected = torch.tensor(torch_rates(schedule), dtype=torch.float64)
    torch.testing.assert_close(rates, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({"schedule": "cosine"}, RateSchedule(4, 5, 0)),
        ({"schedule": "warmup_cosine"}, RateSchedule(4, 5, 2)),
        ({"schedule": "warmup_cosine", "warmup_share": 0.99}, RateSchedule(4, 5, 19)),
    ],
)
def test_the_warm_up_is_a_share_of_the_episode(fields, expected):
    assert build_schedule(mg.HostSpec(**fields), 4, 5) == expected
