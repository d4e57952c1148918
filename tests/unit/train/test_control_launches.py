"""Launches of the steps of an epoch that are not training: on a device each costs what hundreds of
envs do.
"""

import traceback
from itertools import pairwise
from unittest import mock

import pytest
import torch
from support.launch_count import CountLaunches
from support.small_runs import tiny_setup

from morphogen.config.groups import DataSpec, RewardSpec
from morphogen.config.instance_spec import InstanceSpec
from morphogen.config.parts import RULES
from morphogen.rules.rewards.example_inputs import example_steps
from morphogen.rules.rewards.table import build_rule
from morphogen.state import rng
from morphogen.state.tree_ops import choose, constant_table, is_finite
from morphogen.testing.builders.reward_inputs import play_rule
from morphogen.train.loop import Hooks, Parts, Scheduler


class FillWatch(CountLaunches):
    """Record the lines that fill a tensor for a number, other than in training and validation."""

    def __init__(self):
        super().__init__()
        self.lines = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket.__name__ == "scalar_tensor":
            stack = traceback.extract_stack()
            lines = [
                f"{line.filename}:{line.lineno}" for line in stack if "/morphogen/" in line.filename
            ]
            if not any("trained_networks" in line for line in lines):
                self.lines.add(lines[-1])
        return super().__torch_dispatch__(func, types, args, kwargs)


def watch_epochs(**fields):
    """A watch over the epochs of a round; tables are built in an earlier round."""
    scheduler, watch = (
        Scheduler(tiny_setup(task="tiny", rounds=2, episode_length=3, **fields)),
        FillWatch(),
    )
    scheduler.run_round()
    run_epoch = scheduler.run_epoch

    def run_watched(*args):
        with watch:
            return run_epoch(*args)

    with mock.patch.object(scheduler, "run_epoch", run_watched):
        scheduler.run_round()
    return watch


@pytest.mark.parametrize("policy", ["ppo", "heuristic"])
def test_no_step_of_an_epoch_fills_a_tensor_for_a_number(policy):
    watch = watch_epochs(policy_name=policy)
    assert watch.count > 1000, "epochs were watched"
    assert not watch.lines


@pytest.mark.parametrize("name", list(RULES))
def test_no_reward_rule_fills_a_tensor_for_a_number(name):
    rule = build_rule(RewardSpec(rule=name), param_budget=1000, episode_length=4, gamma=0.99)
    steps = example_steps()
    play_rule(rule, steps)  # builds tables
    with FillWatch() as watch:
        play_rule(rule, steps)
    assert watch.count > 0
    assert not watch.lines


def test_an_epoch_draws_once_for_actions_once_for_data_and_once_for_new_seeds():
    """A draw is 60 launches, however many numbers it gives."""
    data, counts = DataSpec(batch=64, minibatches=8, val_samples=32), []
    spec = tiny_setup(data=data, instance=InstanceSpec(label_noise=(0.4, 0.4)), episode_length=5)
    with mock.patch.object(rng, "philox", wraps=rng.philox) as draw:
        hooks = Hooks(on_epoch=lambda *_: counts.append(draw.call_count))
        Scheduler(spec, Parts(hooks=hooks)).run_round()
    epochs = [after - before for before, after in pairwise(counts)]
    assert set(epochs) <= {2, 3}
    assert 3 in epochs, "a seed was germinated"


MASK = torch.tensor([True, False])


@pytest.mark.parametrize(
    ("sides", "expected"),
    [
        ((torch.tensor([1.0, torch.nan]), 0.0), torch.tensor([1.0, 0.0])),
        ((-torch.inf, torch.tensor([1.0, torch.nan])), torch.tensor([-torch.inf, torch.nan])),
        ((torch.tensor([[3], [4]]), -1), torch.tensor([[3, -1], [4, -1]])),
        ((1, 2), torch.tensor([1, 2])),
        (
            (torch.tensor(0.5, dtype=torch.float64), 0.1),
            torch.tensor([0.5, 0.1], dtype=torch.float64),
        ),
    ],
    ids=["no", "yes", "integers", "two numbers", "double"],
)
def test_a_choice_between_numbers_takes_one_launch(sides, expected):
    choose(MASK, *sides)  # builds the tables
    with CountLaunches() as counter:
        result = choose(MASK, *sides)
    assert counter.count == 1
    torch.testing.assert_close(result, expected, rtol=0, atol=0, equal_nan=True)


def test_a_table_that_is_built_inside_of_a_gradient_serves_after_it():
    number = 0.123456789  # of no other table

    def total(x):
        return choose(x > 0, x, number).sum()

    x = torch.tensor([1.0, -1.0])
    assert torch.func.grad(total)(x).tolist() == [1.0, 0.0]
    table = constant_table(number, torch.float32, x.device)
    assert not torch._C._functorch.is_functorch_wrapped_tensor(table)


def test_a_mask_of_finite_numbers_takes_two_launches():
    numbers = torch.tensor(
        [0.0, -3.0, torch.finfo(torch.float32).max, torch.inf, -torch.inf, torch.nan]
    )
    with CountLaunches() as launches:
        finite = is_finite(numbers)
    assert finite.tolist() == [True, True, True, False, False, False]
    assert launches.count == 2
