"""The rules of the heuristic: which seed at which price, moved on, kept for its worth, pruned after
patience.
"""

from dataclasses import replace

import pytest
import torch
from support.observed_scenes import BUDGET, LENGTH, decide, net_of, stand_still

from morphogen.config.fields import to_settings
from morphogen.config.heuristic_spec import HeuristicSpec
from morphogen.config.spec import RunSpec, build_limits, resolve
from morphogen.config.task import TASKS
from morphogen.errors import ConfigError
from morphogen.policy.heuristic import HeuristicPolicy, build_heuristic
from morphogen.testing.builders.scenes import make_slots, make_state
from morphogen.vocab.action import Op
from morphogen.vocab.blueprint import Blueprint

ORDER = (int(Blueprint.CONV_HEAVY), int(Blueprint.CONV_LIGHT), int(Blueprint.NORM))


def rules_of(
    slots: int = 1, *, keeps: bool = True, length: int = LENGTH, **thresholds
) -> HeuristicPolicy:
    return HeuristicPolicy(
        ORDER, net_of(slots).counts, BUDGET, length, HeuristicSpec(**thresholds), keeps=keeps
    )


HELD = {"blueprint": int(Blueprint.CONV_HEAVY), "algorithm": 1, "age": 12, "stage": 5, "alpha": 1.0}


def priced(whole, price: float):
    prices = torch.full_like(whole.instance.param_price, price)
    return whole.replace(instance=whole.instance.replace(param_price=prices))


def free(*rows):
    """One env a row of slots, whose parameters cost nothing."""
    return priced(make_state(make_slots(list(rows))), 0.0)


def grows(whole, **thresholds) -> bool:
    policy = rules_of(whole.slots.stage.shape[1], **thresholds)
    return bool(decide(policy, whole).action[0, 0] == Op.GERMINATE)


def wish(*, weak: int = 0, keeps: bool = True, **row) -> str:
    """Op for one seed that costs nothing."""
    policy = rules_of(keeps=keeps)
    whole = free([{"blueprint": 1, "algorithm": 1, "age": 12, **row}])
    hidden = policy.initial_hidden(1)
    hidden["weak"][0, 0] = weak
    return Op(int(decide(policy, whole, hidden=hidden).action[0, 0])).name


def test_it_knows_what_to_do_in_every_stage():
    assert wish(stage=2, epochs_in_stage=1) == "ADVANCE"
    assert wish(stage=3, epochs_in_stage=9) == "WAIT"
    assert wish(stage=3, epochs_in_stage=10) == "ADVANCE"
    assert wish(stage=3, epochs_in_stage=20) == "PRUNE"  # stuck
    assert wish(stage=4, epochs_in_stage=6, alpha=1.0, alpha_target=1.0) == "ADVANCE"
    assert wish(stage=4, epochs_in_stage=6, alpha=0.5, alpha_mode=1, alpha_target=1.0) == "WAIT"
    held = {"stage": 5, "alpha": 1.0, "epochs_in_stage": 9}
    assert wish(**held, contribution_valid=False, weak=4) == "WAIT"
    assert wish(**held, contribution_valid=True, contribution=0.5) == "FOSSILIZE"
    assert wish(**held, contribution_valid=True, contribution=0.5, keeps=False) == "WAIT"
    assert wish(**held, contribution_valid=True, contribution=0.4, weak=3) == "WAIT"
    # the fifth in a row
    assert wish(**held, contribution_valid=True, contribution=0.4, weak=4) == "PRUNE"
    assert wish(stage=6, alpha=1.0, epochs_in_stage=50) == "WAIT"


def test_a_price_counts_against_the_worth_of_a_seed():
    whole = make_state(make_slots([[{**HELD, "contribution": 3.0, "contribution_valid": True}]]))
    share = net_of(1).counts[0][Blueprint.CONV_HEAVY] / BUDGET
    for points, op in ((2.0, Op.FOSSILIZE), (3.0, Op.WAIT)):  # of price
        assert decide(rules_of(), priced(whole, points / 100 / share)).action[0, 0] == op


def test_it_takes_fossilize_before_prune_before_advance_and_then_the_lowest_slot():
    base = {"blueprint": 1, "algorithm": 1, "age": 12, "alpha": 1.0, "contribution_valid": True}
    keep, drop = (
        {**base, "stage": 5, "contribution": 3.0},
        {**base, "stage": 5, "contribution": -1.0},
    )
    move = {**base, "stage": 2, "alpha": 0.0}
    for row, expected in (
        ([move, drop, keep], (4, 2)),
        ([move, drop, drop], (3, 1)),
        ([move, {}, {}], (5, 0)),
        ([keep, drop, keep], (4, 0)),
    ):
        assert tuple(decide(rules_of(3, patience=1), free(row)).action[0, :2].tolist()) == expected


def test_a_seed_is_germinated_on_a_plateau_or_after_a_fall_and_not_before_its_first_epoch():
    empty = free([{}, {}])
    assert grows(stand_still(empty, epoch=5, plateau=3))
    assert not grows(stand_still(empty, epoch=4, plateau=3))
    assert not grows(stand_still(empty, epoch=5, plateau=2))
    assert grows(stand_still(empty, epoch=0, plateau=0), first_epoch=0, min_plateau=0)
    fallen = stand_still(empty, plateau=0)
    numbers = {"acc_history": torch.full((1, 5), 50.0), "best_acc": torch.tensor([60.0])}
    known = torch.ones(1, 5, dtype=torch.bool)
    fallen = fallen.replace(signals=fallen.signals.replace(**numbers, history_valid=known))
    assert grows(fallen, min_fall=9.9)
    assert not grows(fallen, min_fall=10.1)
    assert not grows(fallen)


@pytest.mark.parametrize("loss", [0.3, 2.0])
def test_a_host_that_does_well_gets_no_seed(loss):
    scene = stand_still(free([{}, {}]))
    measured = {"train_loss": torch.tensor([loss]), "train_measured": torch.tensor([True])}
    scene = scene.replace(signals=scene.signals.replace(**measured))
    limits = None, 0.999 * loss, 1.001 * loss
    assert [grows(scene, min_loss=limit) for limit in limits] == [True, True, False]


def test_no_seed_is_germinated_beside_as_many_as_its_limit():
    beside = stand_still(free([HELD, {}]))
    assert [grows(beside, max_seeds=n) for n in (0, 1, 2)] == [True, False, True]
    assert grows(stand_still(free([{}, {}])), max_seeds=1)


def test_the_first_blueprint_that_is_cheap_enough_is_taken_with_what_lives_already():
    counts = net_of(2).counts[0]
    whole = stand_still(make_state(make_slots([[{}, {}]])))
    for kind in ORDER:
        price = 0.1 * BUDGET / counts[kind]  # at which this one costs .1
        action = decide(rules_of(2), priced(whole, 0.999 * price)).action[0]
        assert action.tolist()[:3] == [int(Op.GERMINATE), 0, kind]
    # even the least is too dear
    assert decide(rules_of(2), priced(whole, 1.1 * price)).action[0, 0] == Op.WAIT
    # at which one more alone would be cheap enough
    price = 0.09 * BUDGET / net_of(2).counts[1][Blueprint.CONV_HEAVY]
    whole = stand_still(make_state(make_slots([[HELD, {}]])))
    beside = decide(rules_of(2), priced(whole, price)).action[0]
    assert beside[0] == Op.GERMINATE
    assert beside[1] == 1
    assert beside[2] != Blueprint.CONV_HEAVY


def test_blueprints_are_those_of_the_run_the_largest_first_or_those_that_are_named():
    spec = resolve(RunSpec(task="digits", blueprints=("norm", "conv_heavy", "depthwise")))

    def labels(spec):
        rules = build_heuristic(spec, build_limits(spec))
        return [Blueprint(code).label for code in rules.rotation]

    assert labels(spec) == ["conv_heavy", "depthwise", "norm"]
    for names in (("norm", "conv_light", "depthwise"), ("depthwise", "norm")):
        named = spec.with_settings(heuristic={"blueprints": names})
        assert labels(named) == [name for name in names if name != "conv_light"]
    foreign = spec.with_settings(heuristic={"blueprints": ("bottleneck",)})
    with pytest.raises(
        ConfigError, match=r"heuristic\.blueprints: expected at least one of norm, depthwise, conv"
    ):
        build_heuristic(foreign, build_limits(foreign))


def test_slots_are_those_that_are_named_in_their_order_else_all():
    spec = resolve(
        RunSpec(task="digits", heuristic={"first_epoch": 0, "min_plateau": 0, "max_seeds": 0})
    )
    whole, beside = (stand_still(free([{}, row, {}])) for row in ({}, HELD))
    for named, first, second in (((), 0, 0), (("r1c0",), 2, 2), (("r0c1", "r0c0"), 1, 0)):
        own = spec.with_settings(heuristic={**to_settings(spec.heuristic), "slots": named})
        rules = build_heuristic(own, build_limits(own))
        assert decide(rules, whole).action[0, :2].tolist() == [int(Op.GERMINATE), first]
        assert decide(rules, beside).action[0, :2].tolist() == [int(Op.GERMINATE), second]
    foreign = spec.with_settings(heuristic={"slots": ("r0c0", "r9c0")})
    with pytest.raises(
        ConfigError, match=r"heuristic\.slots: expected names out of r0c0, r0c1, r1c0, got .*r9c0"
    ):
        build_heuristic(foreign, build_limits(foreign))


def test_what_is_in_use_is_not_fossilized_where_every_epoch_counts():
    for objective, keeps in (("delivered", True), ("anytime", False)):
        spec = resolve(
            RunSpec(task=replace(TASKS["digits"], name=f"digits-{objective}", objective=objective))
        )
        assert build_heuristic(spec, build_limits(spec)).keeps == keeps
