"""Ticks of slots, and whole lives through actions and ticks."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.made_up_rollouts import observation
from support.manual_gates import by_hand
from support.profiles import one_in
from support.slot_invariants import broken_invariants
from support.small_states import advance_counters

from morphogen.config.groups import LifecycleSpec
from morphogen.policy.baselines import RandomPolicy
from morphogen.policy.distribution import noise_lanes
from morphogen.rules.decoding import decode
from morphogen.rules.gates import check_gate
from morphogen.rules.legality import action_masks, legal
from morphogen.steps.apply import apply_action
from morphogen.steps.tick_step import tick
from morphogen.testing.builders.scenes import (
    SLOT_LEAVES,
    make_limits,
    make_seed_rows,
    make_slot,
    make_slots,
    make_state,
)
from morphogen.testing.builders.tree_equality import differing_leaves
from morphogen.testing.strategies import slot_states
from morphogen.vocab.action import Op, Outcome
from morphogen.vocab.stage import TRANSITIONS, AlphaMode, Gate, Removal, Stage

S = Stage
PLAIN = by_hand()
AUTO = by_hand(auto_forward=("TRAIN", "BLEND", "HOLD"))
MEASURED = {
    "gradient_valid": True,
    "gradient_health": 1.0,
    "contribution_valid": True,
    "contribution": 2.0,
}


def step(world, heads, spec=PLAIN, **knobs):
    """One epoch without training: decode, apply, tick, a healthy measurement of running seeds,
    close.
    """
    decoded = decode(
        heads, world.slots, make_limits(world.slots, auto_forward=spec.auto_forward, **knobs)
    )
    world, outcome = apply_action(world, decoded, lifecycle=spec)
    world, report = tick(world, lifecycle=spec)
    stage = world.slots.stage
    runs = (stage >= S.TRAINING) & (stage <= S.FOSSILIZED)
    blended = runs & (stage != S.TRAINING)
    seen = {
        name: torch.where(
            runs if name.startswith("gradient") else blended,
            torch.as_tensor(value),
            getattr(world.slots, name),
        )
        for name, value in MEASURED.items()
    }
    return world.replace(slots=advance_counters(world.slots.replace(**seen))), outcome, report


def action(op, slot=0, blueprint=3, tempo=1, target=2, speed=0):
    return torch.tensor([[int(op), slot, blueprint, 0, tempo, target, speed, 0]])


def life(world, script, epochs, spec=PLAIN):
    """Stage, alpha and outcome after each epoch; the script says what is done when, else WAIT."""
    seen = []
    for epoch in range(epochs):
        world, outcome, _ = step(world, script.get(epoch, action(Op.WAIT)), spec)
        seen.append(
            (S(world.slots.stage.item()), world.slots.alpha.item(), Outcome(outcome.outcome.item()))
        )
    return seen, world


def test_the_fastest_life_reaches_each_stage_in_the_stated_epoch():
    script = {
        0: action(Op.GERMINATE),
        17: action(Op.FOSSILIZE),
        **{t: action(Op.ADVANCE) for t in (1, 11, 16)},
    }
    seen, _ = life(make_state(make_slot()), script, 18)
    expected = [S.GERMINATED] + [S.TRAINING] * 10 + [S.BLENDING] * 5 + [S.HOLDING] + [S.FOSSILIZED]
    assert [stage for stage, _, _ in seen] == expected
    assert [alpha for _, alpha, _ in seen[11:16]] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert all(outcome is Outcome.EXECUTED for _, _, outcome in seen)


def test_difference_15_a_policy_that_only_sees_masks_reaches_every_stage():
    """Take any legal move forward: no stage is a dead end."""
    world, seen = make_state(make_slot()), set()
    for _ in range(40):
        masks = action_masks(world.slots, make_limits(world.slots))
        op = next(
            (op for op in (Op.GERMINATE, Op.FOSSILIZE, Op.ADVANCE) if masks.op[0, op]), Op.WAIT
        )
        world, _, _ = step(world, action(op))
        seen.add(world.slots.stage.item())
    assert seen == {S.GERMINATED, S.TRAINING, S.BLENDING, S.HOLDING, S.FOSSILIZED}


def removed(path):
    """A slot whose seed leaves in the next step, the action that does it, and who is said to have
    done it.
    """
    if path == "prune":
        return make_slot(stage=S.TRAINING, epochs_in_stage=6, age=7, blueprint=3), action(Op.PRUNE)
    ramp = {
        "alpha": 0.1,
        "alpha_start": 1.0,
        "alpha_target": 0.0,
        "alpha_mode": AlphaMode.DOWN,
        "alpha_curve": 1,
    }
    fading = make_slot(
        stage=S.BLENDING, epochs_in_stage=6, age=9, blueprint=3, alpha_steps=3, alpha_done=2, **ramp
    )
    return fading, action(Op.WAIT)


@pytest.mark.parametrize("path", ["prune", "ramp"])
@pytest.mark.parametrize("embargo", [1, 2, 5])
def test_difference_16_an_embargo_lasts_exactly_as_long_as_configured(path, embargo):
    """However the seed was removed: n observations show EMBARGOED, GERMINATE is legal n + 3 steps
    after the removal.
    """
    slots, heads = removed(path)
    spec = by_hand(embargo_epochs=embargo)
    world, _, report = step(make_state(slots), heads, spec)
    assert report.removal.item() == (Removal.RAMP if path == "ramp" else Removal.NONE)
    shown = [(S(world.slots.stage.item()), world.slots.epochs_in_stage.item())]
    germinate = [legal(world.slots, make_limits(world.slots))[0, Op.GERMINATE, 0].item()]
    for _ in range(embargo + 2):
        world, _, _ = step(world, action(Op.WAIT), spec)
        shown.append((S(world.slots.stage.item()), world.slots.epochs_in_stage.item()))
        germinate.append(legal(world.slots, make_limits(world.slots))[0, Op.GERMINATE, 0].item())
    cooling = [(S.EMBARGOED, i + 1) for i in range(embargo)]
    assert shown == [(S.PRUNED, 1), *cooling, (S.RESETTING, 1), (S.DORMANT, 0)]
    # so the action of step t + n + 3 is the first
    assert germinate == [False] * (embargo + 2) + [True]
    assert differing_leaves(world.slots, make_slot()) == set()


@pytest.mark.parametrize(("speed", "ticks"), [(1, 3), (2, 5), (3, 8)])
def test_a_held_seed_fades_out_frozen_and_leaves_at_alpha_0(speed, ticks):
    held = {
        "stage": S.HOLDING,
        "epochs_in_stage": 2,
        "age": 30,
        "blueprint": 3,
        "alpha": 1.0,
        "alpha_target": 1.0,
    }
    world, _, report = step(make_state(make_slot(**held)), action(Op.PRUNE, speed=speed))
    for _ in range(ticks - 1):
        assert (world.slots.stage.item(), world.slots.alpha_mode.item()) == (
            S.BLENDING,
            AlphaMode.DOWN,
        )
        assert 0 < world.slots.alpha.item() < 1
        assert report.removal.item() == Removal.NONE
        world, _, report = step(world, action(Op.WAIT))
    assert (world.slots.stage.item(), world.slots.alpha.item()) == (S.PRUNED, 0.0)
    assert report.removal.item() == Removal.RAMP


@given(
    slot_states(),
    st.sampled_from([PLAIN, AUTO, by_hand(permissive_gates=False, auto_forward=("BLEND", "HOLD"))]),
    st.sampled_from([0, 1, 1000]),
    st.sampled_from([-100.0, 0.0, 100.0]),
)
def test_a_tick_makes_at_most_one_legal_move_and_never_touches_held_seeds_and_fossils(
    slots, spec, longer, worth
):
    slots = slots.replace(
        epochs_in_stage=slots.epochs_in_stage + longer,
        age=slots.age + longer,
        contribution=slots.contribution + worth,
    )
    after, _ = tick(make_state(slots), lifecycle=spec)
    for was, now in zip(
        slots.stage.flatten().tolist(), after.slots.stage.flatten().tolist(), strict=True
    ):
        assert was == now or now in TRANSITIONS[was]
    still = (slots.stage == S.HOLDING) | (slots.stage == S.FOSSILIZED)
    for name in SLOT_LEAVES:
        assert torch.equal(getattr(after.slots, name)[still], getattr(slots, name)[still])


@given(slot_states(stages=(S.GERMINATED, S.TRAINING, S.BLENDING)))
def test_without_auto_forward_only_a_fading_seed_moves(slots):
    after, report = tick(make_state(slots), lifecycle=PLAIN)
    fading = slots.alpha_mode == AlphaMode.DOWN
    assert torch.equal(after.slots.stage[~fading], slots.stage[~fading])
    assert (after.slots.stage[fading] != S.HOLDING).all()
    assert not report.gate.any()
    assert torch.equal(report.removal == Removal.RAMP, after.slots.stage == S.PRUNED)


@given(slot_states(), st.sets(st.sampled_from(("TRAIN", "BLEND", "HOLD"))), st.booleans())
def test_auto_forward_moves_a_slot_iff_an_advance_would_pass(slots, gates, permissive):
    spec = by_hand(auto_forward=tuple(sorted(gates)), permissive_gates=permissive)
    world = make_state(slots)
    after, report = tick(world, lifecycle=spec)
    # HOLD is asked after the ramp's tick
    ramped, _ = tick(world, lifecycle=by_hand(permissive_gates=permissive))
    to = {
        "TRAIN": (S.GERMINATED, S.TRAINING),
        "BLEND": (S.TRAINING, S.BLENDING),
        "HOLD": (S.BLENDING, S.HOLDING),
    }
    for name, (here, there) in to.items():
        asked = ramped.slots if name == "HOLD" else slots
        passes, _ = check_gate(
            asked, world.signals.val_acc, torch.full_like(slots.stage, there), spec=spec
        )
        moves = (slots.stage == here) & (asked.stage == here) & passes & (name in gates)
        assert torch.equal(report.gate == Gate[name], moves)
        assert torch.equal((slots.stage == here) & (after.slots.stage == there), moves)


def test_auto_forward_makes_one_move_in_a_tick():
    ready = {"stage": S.TRAINING, "epochs_in_stage": 10, "age": 12, "blueprint": 3, **MEASURED}
    world = make_state(make_slot(**ready, tempo=1, blend_target=1.0))
    after, _ = tick(world, lifecycle=AUTO)
    assert (after.slots.stage.item(), after.slots.alpha.item()) == (S.BLENDING, 1.0)


def test_auto_forward_does_nothing_on_an_accuracy_that_was_not_measured():
    world = make_state(make_slot(stage=S.GERMINATED, epochs_in_stage=1, age=1), measured=False)
    after, report = tick(world, lifecycle=AUTO)
    assert (after.slots.stage.item(), report.gate.item()) == (S.GERMINATED, Gate.NONE)


@given(slot_states())
def test_a_slot_without_a_seed_has_no_parameters_and_the_others_keep_theirs(slots):
    names = [f"r0c{i}" for i in range(slots.stage.shape[1])]
    world = make_state(slots)
    for i, name in enumerate(names):  # leftovers everywhere, not a number in one of them
        rows = make_seed_rows(len(slots), 1.0 + i)
        rows["params"][0, 0] = float("nan")
        world.seeds.set_(name, rows)
    after, _ = tick(world, lifecycle=PLAIN)
    for s, name in enumerate(names):
        occupied = (after.slots.stage[:, s] >= S.GERMINATED) & (
            after.slots.stage[:, s] <= S.FOSSILIZED
        )
        for key in ("params", "momentum"):
            assert not after.seeds[name, key][~occupied].any()
            assert torch.equal(
                after.seeds[name, key][occupied].nan_to_num(7),
                world.seeds[name, key][occupied].nan_to_num(7),
            )


RANDOM = RandomPolicy()


def random_life(seed: int, epochs: int, spec: LifecycleSpec, *, prune: bool, stray: float = 0.2):
    """Six envs of two slots under random actions, legal ones but for strays: yields before, after,
    outcome.
    """
    world, lanes = make_state(make_slots([[{}, {}]] * 6)), torch.Generator().manual_seed(seed)
    params, hidden, seen = (
        RANDOM.init(torch.zeros(3)),
        RANDOM.initial_hidden(6),
        observation(6, slots=2),
    )
    knobs = {"min_prune_age": spec.min_prune_age, "disabled_ops": () if prune else ("PRUNE",)}
    for _ in range(epochs):
        masks = action_masks(
            world.slots, make_limits(world.slots, auto_forward=spec.auto_forward, **knobs)
        )
        gumbel = -(
            -torch.rand(6, noise_lanes(2), generator=lanes).clamp(1e-6, 1 - 1e-6).log()
        ).log()
        heads = RANDOM.act(params, seen, masks, hidden, gumbel).action
        any_heads = torch.randint(-1, 7, heads.shape, generator=lanes)
        heads = torch.where(torch.rand(6, 1, generator=lanes) < stray, any_heads, heads)
        before = world
        world, outcome, _ = step(world, heads, spec, **knobs)
        yield before, world, outcome


lifecycles = st.builds(
    LifecycleSpec,
    embargo_epochs=st.integers(1, 3),
    min_training_epochs=st.integers(0, 2),
    min_prune_age=st.integers(0, 4),
    auto_forward=st.sets(st.sampled_from(("TRAIN", "BLEND", "HOLD"))).map(
        lambda names: tuple(sorted(names))
    ),
)


@pytest.mark.slow
@settings(max_examples=one_in(8))  # each example is 180 env-epochs
@given(st.integers(0, 10**6), lifecycles, st.booleans())
def test_random_lives_keep_every_slot_in_order_and_wait_out_every_cooldown(seed, spec, prune):
    born = torch.full((6, 2), -1000)
    for t, (before, after, outcome) in enumerate(random_life(seed, 30, spec, prune=prune)):
        assert broken_invariants(after.slots) == []
        fossils = before.slots.stage == S.FOSSILIZED
        assert (after.slots.stage[fossils] == S.FOSSILIZED).all()
        grown = outcome.target & (
            outcome.executed & (outcome.effective_op == Op.GERMINATE)
        ).unsqueeze(-1)
        assert (t - born[grown] >= spec.min_prune_age + spec.embargo_epochs + 3).all()
        born = torch.where(grown, t, born)
