"""Training and validation in bfloat16 and float16, and the loss scale of every env."""

import copy
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support import small_states
from support.extras import rows_of_extra

from bench.harness.minimal import Env
from bench.harness.module_loop import build_module_twin
from bench.harness.plain_modules import host_parameters
from morphogen.hosts.optim import OPTIMIZERS
from morphogen.hosts.precision import FULL, Precision
from morphogen.state.tree_ops import get_leaf
from morphogen.steps.train import finish_epoch, start_epoch, train_minibatch
from morphogen.steps.validate_step import validate
from morphogen.testing.builders.tree_equality import trees_equal

NET = small_states.net()
NETS = {"cnn": NET, **rows_of_extra("text", lambda: {"transformer": small_states.token_net()})}
BFLOAT16, FLOAT16 = Precision(torch.bfloat16), Precision(torch.float16, scaled=True)
SCALED = Precision(scaled=True)  # float32 under a loss scale: fast, and exact
LOW = pytest.mark.parametrize("precision", [BFLOAT16, FLOAT16], ids=["bfloat16", "float16"])
KNOBS = {"spec": small_states.SPEC, "lifecycle": small_states.LIFECYCLE}
START = 65_536.0


def scaled_by(state, scale, good=0):
    """The state with these loss scales; a number for all envs or one each."""
    like = state.scaling
    scale = torch.as_tensor(scale, dtype=torch.float32).expand_as(like.loss_scale).clone()
    return state.replace(
        scaling=like.replace(loss_scale=scale, good_minibatches=torch.full_like(scale, good).long())
    )


def train(state, precision, *, batches=2, broken=(), net=NET):
    """One epoch -> state, metrics, minibatches.  broken: bool [batches][E], inputs of an env are
    infinite.
    """
    net = replace(net, precision=precision)
    plan = small_states.plan(state, net)
    progress, seen = start_epoch(state, plan, net=net), []
    for m in range(batches):
        batch = small_states.batch(net, state.batch_size[0], seed=m)
        if broken:
            bad = torch.tensor(broken[m])[:, None, None, None, None]
            batch = batch.replace(inputs=torch.where(bad, torch.inf, batch.inputs))
        progress, stats = train_minibatch(progress, batch, plan, net=net, **KNOBS)
        seen.append(stats)
    return *finish_epoch(state, progress, plan, net=net), seen


def trained_leaves(state, env=slice(None)):
    parts = [state.host.to_tensordict(), *(state.seeds[name] for name in NET.names)]
    return torch.cat(
        [part[leaf][env].flatten() for part in parts for leaf in ("params", "momentum")]
    )


def broken_incubating_seed(envs=2):
    """Envs with a seed in TRAINING; in env 0 it holds a parameter that is no number."""
    here = torch.arange(3).expand(envs, 3) == 0
    fields = [torch.where(here, value, empty) for value, empty in ((3, 1), (5, -1), (1, 0))]
    state = small_states.grow(small_states.fresh(NET, envs), NET, *fields, torch.zeros(envs, 3))
    state.seeds["r0c0"]["params"][0, 0] = torch.nan
    return state


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(*[st.booleans()] * 3), min_size=1, max_size=6), st.integers(0, 24))
def test_every_overflow_halves_the_scale_of_its_env_alone(broken, power):
    after, metrics, _ = train(
        scaled_by(small_states.fresh(NET, 3), 2.0**power),
        SCALED,
        batches=len(broken),
        broken=broken,
    )
    missed = [sum(env) for env in zip(*broken, strict=True)]
    assert metrics.skipped.tolist() == missed
    assert after.scaling.loss_scale.tolist() == [
        max(1.0, 2.0 ** (power - count)) for count in missed
    ]


@pytest.mark.parametrize(("scale", "doubled"), [(1.0, 2.0), (START, 2 * START), (2.0**24, 2.0**24)])
def test_two_thousand_good_minibatches_double_the_scale(scale, doubled):
    early, *_ = train(scaled_by(small_states.fresh(NET, 2), scale, good=1_997), SCALED, batches=2)
    assert early.scaling.loss_scale.tolist() == [scale] * 2
    late, *_ = train(early, SCALED, batches=1)
    assert (late.scaling.loss_scale.tolist(), late.scaling.good_minibatches.tolist()) == (
        [doubled] * 2,
        [0, 0],
    )


def test_a_seed_that_stays_broken_in_training_lowers_the_scale_eight_times():
    state = broken_incubating_seed()
    for _ in range(3):
        state, metrics, _ = train(state, SCALED, batches=6)
        assert not metrics.skipped.any()  # the host trains
    assert state.scaling.loss_scale.tolist() == [START / 256, START]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("power", [0, 1, 16, 24])
def test_a_scale_changes_no_bit_of_a_result_in_float32(power, optimizer):
    net = replace(NET, optimizer=OPTIMIZERS[optimizer])
    state = small_states.mixed(net, 6, seed=3)
    plain, metrics, _ = train(state, FULL, net=net)
    scaled, scaled_metrics, _ = train(scaled_by(state, 2.0**power), SCALED, net=net)
    assert trees_equal(plain.slots, scaled.slots)
    assert trees_equal(plain.host, scaled.host)
    assert trees_equal(plain.seeds, scaled.seeds)
    assert (metrics == scaled_metrics).all()


def test_an_overflow_counts_for_no_step_of_adamw():
    net = replace(NET, optimizer=OPTIMIZERS["adamw"])
    state = small_states.fresh(net, 3)
    broken = [(True, False, False), (False, False, True)]
    after, _, _ = train(state, SCALED, batches=2, broken=broken, net=net)
    assert get_leaf(after.host.adaptive, "steps").flatten().tolist() == [1, 2, 1]
    assert get_leaf(after.host.adaptive, "square").isfinite().all()
    assert after.scaling.loss_scale.tolist() == [START / 2, START, START / 2]


@pytest.mark.parametrize("precision", [FULL, BFLOAT16], ids=["float32", "bfloat16"])
def test_without_scaling_nothing_reads_or_changes_the_scale(precision):
    state = small_states.mixed(NET, 4)
    one, _, _ = train(state, precision)
    other, _, _ = train(scaled_by(state, torch.nan, good=1_999), precision)
    assert trained_leaves(one).equal(trained_leaves(other))
    assert one.scaling.loss_scale.tolist() == [START] * 4
    assert other.scaling.loss_scale.isnan().all()
    assert other.scaling.good_minibatches.tolist() == [1_999] * 4


def test_an_overflow_changes_no_parameter_and_no_other_env():
    state = small_states.mixed(NET, 4, seed=1)
    calm, calm_metrics, _ = train(scaled_by(state, 256.0), FLOAT16)
    after, metrics, stats = train(scaled_by(state, [2.0**24, 256.0, 256.0, 256.0]), FLOAT16)
    assert not calm_metrics.skipped.any()
    assert torch.stack([row.loss for row in stats]).isfinite().all()
    assert metrics.skipped.tolist() == metrics.overflowed.tolist() == [2, 0, 0, 0]
    assert after.scaling.loss_scale.tolist() == [2.0**22, 256.0, 256.0, 256.0]
    assert trained_leaves(after, 0).equal(trained_leaves(state, 0))
    assert trained_leaves(after, slice(1, None)).equal(trained_leaves(calm, slice(1, None)))


def test_a_step_that_no_lower_scale_would_mend_is_no_overflow():
    state = scaled_by(small_states.fresh(NET, 2), 4.0)
    _, metrics, _ = train(state, SCALED, broken=[(True, False)] * 2)  # the loss itself is no number
    assert (metrics.skipped.tolist(), metrics.overflowed.tolist()) == ([2, 0], [0, 0])


@LOW
def test_states_and_measurements_stay_in_float32(precision):
    state = small_states.mixed(NET, 6)
    net, split = replace(NET, precision=precision), small_states.split(NET)
    after, metrics, _ = train(state, precision)
    requested = small_states.every(after, net)
    measured = validate(after, split, *requested, small_states.plan(after, net), net=net)
    for before, now in zip(state.values(True, True), after.values(True, True), strict=True):
        assert before.dtype == now.dtype
    for part in (metrics, measured):
        assert {leaf.dtype for leaf in part.values() if leaf.is_floating_point()} == {torch.float32}
    assert measured.loss.isfinite().all()


def low_step(env, inputs, labels, dtype):
    """Step of a module whose pass runs on copies in another dtype; statistics as torch takes
    them.
    """
    low = copy.deepcopy(env.host).to(dtype)
    logits = low(inputs.to(dtype) if inputs.is_floating_point() else inputs).float()
    loss = env.host.loss(logits, labels)
    pairs = [*zip(env.host.parameters(), low.parameters(), strict=True)]
    grads = torch.autograd.grad(loss, [copied for _, copied in pairs], allow_unused=True)
    for (master, _), grad in zip(pairs, grads, strict=True):
        master.grad = None if grad is None else grad.float()
    for group in env.optimiser.param_groups:
        torch.nn.utils.clip_grad_norm_(group["params"], 1.0)
    env.optimiser.step()
    return loss.detach()


@LOW
@pytest.mark.parametrize("net", NETS.values(), ids=NETS)
def test_training_is_that_of_plain_modules_under_the_same_casts(precision, net):
    state = small_states.mixed(net, 6, seed=5)
    low, _, stats = train(scaled_by(state, 1.0), precision, net=net)
    exact, _, _ = train(state, FULL, net=net)
    for e in range(6):
        env = Env(build_module_twin(state, net, e), small_states.SPEC.lr, small_states.SPEC.seed_lr)
        env.collect_parameters()
        for m, row in enumerate(stats):
            batch = small_states.batch(net, 6, seed=m)
            loss = low_step(env, batch.inputs[e], batch.labels[e], precision.dtype)
            torch.testing.assert_close(row.loss[e], loss, rtol=0.02, atol=0.02)
        moved = torch.cat([leaf.detach().flatten() for leaf in host_parameters(env.host)])
        way, error = (moved - state.host.params[e]).norm(), (moved - low.host.params[e]).norm()
        assert error < 0.1 * way
        assert (low.host.params[e] - exact.host.params[e]).norm() < 0.15 * way
