"""Training an epoch: who is updated, who is not, and what a broken neighbour may do."""

import pytest
import torch
from support import small_states

from morphogen.hosts.cnn_seeds import CONV_LIGHT
from morphogen.hosts.seed_module import gate_layout, seed_layout
from morphogen.rules.counts import seed_params
from morphogen.state.schema import SLOTS
from morphogen.steps.train import finish_epoch, start_epoch, train_minibatch

NET = small_states.net()
STAGES = {"training": 3, "blending": 4, "holding": 5, "fossilized": 6}


def epoch(state, net=NET, *, batches=2, spec=small_states.SPEC, seed=0):
    """One epoch -> state, metrics, minibatches."""
    plan = small_states.plan(state, net)
    progress, seen = start_epoch(state, plan, net=net), []
    for m in range(batches):
        batch = small_states.batch(net, state.batch_size[0], seed=seed + m)
        batch = batch.replace(inputs=batch.inputs.to(state.host.params.dtype))
        progress, one = train_minibatch(
            progress, batch, plan, net=net, spec=spec, lifecycle=small_states.LIFECYCLE
        )
        seen.append(one)
    return *finish_epoch(state, progress, plan, net=net), seen


def one_slot(stage, blueprint, algorithm, alpha, envs=1, slot=0):
    """Envs with a single seed, moved away from birth."""
    here = torch.arange(3).expand(envs, 3) == slot
    own = [
        torch.where(here, value, empty)
        for value, empty in ((stage, 1), (blueprint, -1), (algorithm, 0))
    ]
    return small_states.nudge(
        small_states.grow(small_states.fresh(NET, envs), NET, *own, torch.where(here, alpha, 0.0)),
        NET,
    )


def poison(state, slot, env, at=0):
    """The same state with one parameter of a seed not a number."""
    out = state.clone()
    out.seeds[NET.names[slot]]["params"][env, at] = torch.nan
    return out


def test_nothing_is_measured_of_gradients_where_nothing_runs_whatever_ran_before():
    grown, _, _ = epoch(small_states.mixed(NET, 8))
    names = [
        *(leaf.name for leaf in SLOTS if leaf.name.startswith("gradient_")),
        "vanishing",
        "exploding",
    ]
    assert grown.slots.gradient_valid.any()
    left = grown.slots.replace(
        stage=torch.ones_like(grown.slots.stage), skip_streak=torch.ones_like(grown.slots.stage)
    )
    after, metrics, _ = epoch(grown.replace(slots=left))
    assert not any(getattr(after.slots, name).any() for name in names)
    assert after.slots.skip_streak.all()
    assert not metrics.seed_skipped.any()
    assert torch.equal(after.seeds[NET.names[0], "params"], grown.seeds[NET.names[0], "params"])


@pytest.mark.parametrize("algorithm", [1, 2, 3])
def test_difference_05_a_broken_incubating_seed_changes_no_bit_of_anything_else(algorithm):
    """Property 7 and 8: host value and gradients, momentum, other slots, other envs."""
    state = small_states.mixed(NET, 6, seed=4)
    stage = state.slots.stage.clone()
    stage[2, 0] = 3
    own = {
        "stage": stage,
        "blueprint": state.slots.blueprint.clone(),
        "algorithm": state.slots.algorithm.clone(),
    }
    own["blueprint"][2, 0], own["algorithm"][2, 0] = 5, algorithm
    state = state.replace(slots=state.slots.replace(**own))
    for at in (0, 100, 127):  # 127: a bias, whose own gradient stays finite
        clean, _, _ = epoch(state, batches=3)
        broken, metrics, seen = epoch(poison(state, 0, 2, at), batches=3)
        assert (clean.host == broken.host).all()
        others = torch.arange(6) != 2
        for leaf in ("params", "momentum"):
            for name in NET.names[1:]:
                assert torch.equal(clean.seeds[name, leaf], broken.seeds[name, leaf])
            assert torch.equal(
                clean.seeds["r0c0", leaf][others], broken.seeds["r0c0", leaf][others]
            )
        assert all(bool(one.finite.all()) for one in seen)
        before = poison(state, 0, 2, at).seeds["r0c0", "params"][2]
        assert torch.equal(
            broken.seeds["r0c0", "params"][2].nan_to_num(9.0), before.nan_to_num(9.0)
        )
        assert broken.slots.skip_streak[2].tolist() == [3, 0, 0]
        assert metrics.seed_skipped.tolist() == [e == 2 for e in range(6)]
        assert bool(broken.slots.exploding[2, 0])
        assert float(broken.slots.gradient_health[2, 0]) == 0.0
        assert not bool(broken.slots.gradient_ratio_valid[2, 0])
        assert torch.isfinite(broken.slots.gradient_norm).all()


def test_a_host_with_an_incubating_seed_trains_bit_for_bit_like_one_without():
    state = one_slot(3, 7, 1, 0.0, envs=3)
    bare, _, _ = epoch(small_states.fresh(NET, 3))
    grown, _, _ = epoch(state)
    assert torch.equal(bare.host.params, grown.host.params)
    assert not torch.equal(state.seeds["r0c0", "params"], grown.seeds["r0c0", "params"])


def test_a_broken_blended_seed_stops_its_own_env_and_no_other():
    state = one_slot(4, 1, 1, 0.5, envs=3)
    after, metrics, _ = epoch(poison(state, 0, 1))
    clean, _, _ = epoch(state)
    assert metrics.skipped.tolist() == [0, 2, 0]
    assert metrics.valid.tolist() == [True, False, True]
    assert metrics.loss[1] == 0
    assert torch.equal(after.host.params[1], state.host.params[1])
    assert torch.equal(after.host.params[::2], clean.host.params[::2])
    assert torch.equal(after.seeds["r0c0", "params"][::2], clean.seeds["r0c0", "params"][::2])
    assert after.signals.train_measured.tolist() == [True, False, True]


def test_a_streak_ends_with_a_finite_step():
    state = one_slot(3, 1, 1, 0.0)
    state = state.replace(slots=state.slots.replace(skip_streak=torch.full((1, 3), 5)))
    after, _, _ = epoch(state)
    assert after.slots.skip_streak.tolist() == [[0, 5, 5]]


def test_a_frozen_seed_stays_bit_for_bit_and_is_not_measured():
    """Property 20."""
    state = one_slot(4, 7, 3, 0.5, envs=2)
    mode = torch.tensor([[2, 0, 0], [1, 0, 0]])
    state = state.replace(slots=state.slots.replace(alpha_mode=mode))
    state.seeds["r0c0"]["momentum"] = torch.where(state.seeds["r0c0", "params"] != 0, 0.1, 0.0)
    after, _, _ = epoch(state)
    for leaf in ("params", "momentum"):
        same = (after.seeds["r0c0", leaf] == state.seeds["r0c0", leaf]).all(-1)
        assert same.tolist() == [True, False]
    assert after.slots.gradient_valid[:, 0].tolist() == [False, True]
    assert after.slots.gradient_norm[0, 0] == 0
    assert not torch.equal(after.host.params[0], state.host.params[0])


@pytest.mark.parametrize("stage", STAGES.values(), ids=STAGES)
def test_difference_04_the_gate_learns_from_blending_on_and_not_before(stage):
    state = one_slot(stage, 1, 3, 0.0 if stage == 3 else 0.7)
    after, _, _ = epoch(state)
    gate = NET.gate_counts[0]
    moved = (after.seeds["r0c0", "params"] != state.seeds["r0c0", "params"])[0, -gate:]
    assert bool(moved.any()) == (stage != 3)
    leaves = gate_layout(4).leaf_parts(moved.unsqueeze(0))
    assert all(bool(part.any()) == (stage != 3) for _, part in leaves)


def test_difference_01_a_seed_at_alpha_one_leaves_gradient_to_everything_upstream():
    """Property 5: block 0 and an incubating seed in front of a full ADD seed learn, as if its delta
    were constant.
    """
    stage, ones = torch.tensor([[3, 1, 6]]), torch.ones(1, 3, dtype=torch.int64)
    blueprint = torch.tensor([[1, -1, 7]])
    alpha = torch.tensor([[0.0, 0.0, 1.0]])
    grown = small_states.grow(small_states.fresh(NET, 1), NET, stage, blueprint, ones, alpha)
    state = small_states.nudge(grown, NET)
    after, _, _ = epoch(state, batches=1)
    host = NET.host_layout
    push = host.split(after.host.momentum - small_states.SPEC.weight_decay * state.host.params)
    assert push["block0.conv.weight"].abs().max() > 1e-4
    assert after.seeds["r0c0", "momentum"].abs().max() > 1e-5


@pytest.mark.parametrize("factor", [1e6, 1e-6])
def test_the_scale_of_one_seeds_gradient_changes_no_other_update(factor):
    """Property 21: host and every seed are clipped on their own."""
    stage = torch.tensor([[3, 3, 3]])
    ones, zero = torch.ones(1, 3, dtype=torch.int64), torch.zeros(1, 3)
    state = small_states.nudge(
        small_states.grow(small_states.fresh(NET, 1), NET, stage, ones, ones, zero), NET
    )
    scaled = state.clone()
    scaled.seeds["r0c1"]["params"][:, -NET.gate_counts[1] - 1 :] *= 1.0
    first = seed_layout(CONV_LIGHT, 8)
    scaled.seeds["r0c1"]["params"][:, first.size - 8 : first.size] *= factor  # the last scale
    one, other = epoch(state)[0], epoch(scaled)[0]
    assert torch.equal(one.host.params, other.host.params)
    assert torch.equal(one.seeds["r0c0", "params"], other.seeds["r0c0", "params"])
    assert torch.equal(one.seeds["r1c0", "params"], other.seeds["r1c0", "params"])


def test_everything_outside_a_seeds_leaves_stays_zero():
    """Property 24."""
    state = small_states.mixed(NET, 10, seed=3)
    for _ in range(2):
        state, _, _ = epoch(state)
    for s, name in enumerate(NET.names):
        own = NET.counts[s]
        for e in range(10):
            row = state.seeds[name, "params"][e]
            count = own[int(state.slots.blueprint[e, s])] if int(state.slots.stage[e, s]) > 1 else 0
            assert not row[count : len(row) - NET.gate_counts[s]].any()
            assert bool(row.any()) == (count > 0)


def test_gradient_leaves_are_measured_where_a_seed_runs_and_nowhere_else():
    state = small_states.mixed(NET, 10, seed=1)
    after, metrics, seen = epoch(state)
    runs = (state.slots.stage >= 3) & (state.slots.stage <= 6)
    assert torch.equal(after.slots.gradient_valid, runs)
    assert torch.equal(after.slots.gradient_norm > 0, runs)
    assert torch.equal(after.slots.gradient_ratio_valid, runs)
    norms = torch.stack([one.norm for one in seen])
    torch.testing.assert_close(metrics.host_gradient_norm, norms.square().mean(0).sqrt())
    torch.testing.assert_close(metrics.loss, torch.stack([one.loss for one in seen]).mean(0))
    own, host = (
        seed_params(state.slots, NET.counts, NET.gate_counts),
        NET.networks.params_in_use(state.instance),
    )
    wanted = (after.slots.gradient_norm / own.clamp(min=1).sqrt()) / (
        metrics.host_gradient_norm / host.sqrt() + 1e-8
    ).unsqueeze(-1)
    torch.testing.assert_close(after.slots.gradient_ratio, torch.where(runs, wanted, 0.0))


def test_a_seeds_norm_is_that_of_its_gradient_with_the_gate():
    """Against momentum after one unclipped step from velocity 0."""
    state = small_states.mixed(NET, 9, seed=6)
    after, _, _ = epoch(
        state, batches=1, spec=small_states.HostSpec(lr=0.01, seed_lr=0.01, max_grad_norm=None)
    )
    for s, name in enumerate(NET.names):
        torch.testing.assert_close(
            after.slots.gradient_norm[:, s], after.seeds[name, "momentum"].norm(dim=-1)
        )
