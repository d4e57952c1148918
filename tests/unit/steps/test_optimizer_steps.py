"""Optimisers, schedules and frozen parameters in an epoch of training."""

from dataclasses import replace

import pytest
import torch
from support import small_states
from support.small_states import SPEC

import morphogen as mg
from morphogen.errors import ConfigError
from morphogen.hosts.optim import OPTIMIZERS
from morphogen.hosts.schedule import RateSchedule
from morphogen.state.tree_ops import get_leaf
from morphogen.steps.reset_step import init_seeds
from morphogen.steps.train import finish_epoch, start_epoch, train_minibatch
from morphogen.testing.builders.tree_equality import leaves, trees_equal

NET = small_states.net()
ADAMW = replace(NET, optimizer=OPTIMIZERS["adamw"])


def epoch(state, net, *, batches=2, spec=SPEC, broken=()):
    """One epoch -> state, metrics, minibatches.  broken: (minibatch, env) whose images are NaN."""
    plan = small_states.plan(state, net)
    progress, seen = start_epoch(state, plan, net=net), []
    for m in range(batches):
        batch = small_states.batch(net, len(state), seed=m)
        for where, env in broken:
            if where == m:
                batch.inputs[env] = torch.nan
        progress, stats = train_minibatch(
            progress, batch, plan, net=net, spec=spec, lifecycle=small_states.LIFECYCLE
        )
        seen.append(stats)
    return *finish_epoch(state, progress, plan, net=net), seen


def test_the_state_of_sgd_holds_nothing_that_adamw_needs():
    assert [*small_states.fresh(NET, 2).host.adaptive.keys()] == []
    ours, theirs = (leaves(small_states.fresh(net, 2)) for net in (ADAMW, NET))
    slots = [f"seeds.{name}" for name in NET.names]
    added = {f"{part}.{leaf}" for part in ("host.adaptive", *slots) for leaf in ("square", "steps")}
    assert ours.keys() - theirs.keys() == added | {f"governor.{name}" for name in added}


def test_a_step_that_is_not_finite_counts_for_nothing():
    """A broken minibatch leaves moments and counts of its env, and no trace in the others."""
    state = small_states.mixed(ADAMW, 6)
    state, _, _ = epoch(state, ADAMW)
    once, _, _ = epoch(state, ADAMW, batches=1)
    twice, metrics, _ = epoch(state, ADAMW, batches=2, broken=[(1, 4)])
    assert metrics.skipped.tolist() == [0, 0, 0, 0, 1, 0]
    runs = (state.slots.stage >= 3) & (state.slots.stage <= 6)
    found, short = leaves(twice), leaves(once)
    for name in found:
        if name.startswith(("host.", "seeds.")):
            assert torch.equal(found[name][4], short[name][4]), name
    steps = get_leaf(twice.host.adaptive, "steps").flatten()
    assert steps.tolist() == [4, 4, 4, 4, 3, 4]
    for s, slot in enumerate(ADAMW.names):
        counts = twice.seeds[slot, "steps"].flatten()
        assert torch.equal(counts, runs[:, s] * steps)


def test_a_broken_seed_in_training_takes_no_step_and_its_host_does():
    state = small_states.all_kinds(ADAMW)
    env = int((state.slots.stage[:, 0] == 3).nonzero()[0])
    state.seeds["r0c0"]["params"][env, 0] = torch.nan
    after, _, _ = epoch(state, ADAMW)
    assert after.host.adaptive["steps"].eq(2).all()
    assert after.seeds["r0c0", "steps"][env] == 0
    assert not after.seeds["r0c0", "square"][env].any()
    assert after.seeds["r0c0", "steps"].sum() == 2 * (len(state) - 1)


def test_a_new_seed_starts_with_a_state_of_its_own():
    """Only its slot, and only in its env."""
    state, _, _ = epoch(small_states.mixed(ADAMW, 4, seed=2), ADAMW)
    env = int((state.slots.stage[:, 0] > 2).nonzero()[0])
    rows = (torch.tensor([env]), *[torch.tensor([], dtype=torch.int64)] * 2)
    noise = tuple(
        torch.full((len(row), size), 0.7) for row, size in zip(rows, ADAMW.seed_sizes, strict=True)
    )
    born = init_seeds(state, rows, noise, net=ADAMW)
    others = torch.arange(4) != env
    for leaf in ("momentum", "square", "steps"):
        before, after = state.seeds["r0c0", leaf], born.seeds["r0c0", leaf]
        assert before[env].any()
        assert not after[env].any()
        assert torch.equal(after[others], before[others])
    assert trees_equal(born.seeds["r0c1"], state.seeds["r0c1"])
    assert trees_equal(born.host, state.host)


def test_every_env_has_the_rate_of_its_own_clock():
    """Envs at different epochs against envs with a constant rate that is as high."""
    schedule = RateSchedule(minibatches=2, epochs=4, warmup=3)
    state = small_states.mixed(NET, 4)
    clock = state.clock.replace(epoch=torch.tensor([0, 1, 2, 3]))
    moved, _, _ = epoch(state.replace(clock=clock), replace(NET, schedule=schedule), batches=1)
    for env, done in enumerate((0, 2, 4, 6)):
        rise, fall = (done + 1) / 4, 0.5 + 0.5 * torch.cos(torch.tensor((done - 3) * torch.pi / 5))
        factor = rise if done < 3 else float(fall)
        spec = replace(SPEC, lr=SPEC.lr * factor, seed_lr=SPEC.seed_lr * factor)
        constant, _, _ = epoch(state, NET, batches=1, spec=spec)
        for name, leaf in leaves(constant).items():
            if name.startswith(("host.", "seeds.")):
                torch.testing.assert_close(leaves(moved)[name][env], leaf[env])


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_frozen_parameters_stay_and_have_no_share_in_the_norm(optimizer):
    net = replace(NET, optimizer=OPTIMIZERS[optimizer])
    part = replace(net, freeze=("block0.*", "head.bias"))
    unclipped = replace(SPEC, max_grad_norm=None)
    state = small_states.mixed(net, 5)
    after, _, seen = epoch(state, part, batches=1, spec=unclipped)
    whole, _, _ = epoch(state, net, batches=1, spec=replace(unclipped, weight_decay=0))
    split = net.host_layout.split
    old, new = split(state.host.params), split(after.host.params)
    moments = [split(after.host.momentum)]
    moments += [split(after.host.adaptive["square"])] if optimizer == "adamw" else []
    for name in old:
        kept = name.startswith("block0.") or name == "head.bias"
        assert old[name].equal(new[name]) == kept
        assert all(bool(leaf[name].any()) != kept for leaf in moments)
    pushed = split(whole.host.momentum)  # of a first step: the gradient, scaled
    pushed = [pushed[name].flatten(1) for name in old if name not in part.frozen]
    norm = torch.cat(pushed, dim=-1).norm(dim=-1) / (0.1 if optimizer == "adamw" else 1)
    torch.testing.assert_close(seen[0].norm, norm)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_with_all_frozen_only_seeds_train_and_gates_have_no_gradient_to_compare(optimizer):
    net = replace(NET, optimizer=OPTIMIZERS[optimizer], freeze=("*",))
    state = small_states.all_kinds(net)
    after, metrics, _ = epoch(state, net)
    assert torch.equal(after.host.params, state.host.params)
    assert not after.host.momentum.any()
    assert not metrics.host_gradient_norm.any()
    assert not metrics.skipped.any()
    for name in net.names:
        moved = after.seeds[name, "params"] != state.seeds[name, "params"]
        assert moved.any(-1).all()
    assert after.slots.gradient_ratio.eq(1).all()


def test_the_gradient_ratio_counts_the_parameters_that_train():
    part = replace(NET, freeze=("head.*",))
    state = small_states.all_kinds(NET)
    after, metrics, _ = epoch(state, part, batches=1)
    count = sum(leaf.size for leaf in NET.host_layout.leaves if not leaf.name.startswith("head"))
    host = metrics.host_gradient_norm / count**0.5
    sizes = torch.tensor(NET.counts[0])[state.slots.blueprint[:, 0]] + NET.gate_counts[0]
    gated = state.slots.algorithm[:, 0] == 3
    ungated = sizes - NET.gate_counts[0]
    seed = after.slots.gradient_norm[:, 0] / torch.where(gated, sizes, ungated).sqrt()
    torch.testing.assert_close(after.slots.gradient_ratio[:, 0], seed / host, rtol=1e-4, atol=1e-5)


def test_a_pattern_without_a_parameter_is_refused_with_the_names():
    wanted = r"host\.freeze: expected patterns of the names block0\.conv\.weight, .*, head\.bias, got \"tail\*\""
    with pytest.raises(ConfigError, match=wanted) as caught:
        mg.make("tiny", envs=1, host={"freeze": ["head.*", "tail*"]})
    assert "\n" not in str(caught.value)


def test_a_momentum_is_refused_with_adamw():
    with pytest.raises(ConfigError, match=r"host\.momentum: expected 0\.9 .*adamw, got 0\.5"):
        mg.HostSpec(optimizer="adamw", momentum=0.5)
