"""The plan: sizes for the host, index lists on the device, the validation tree."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from support import small_states

from morphogen.hosts import plan as plans
from morphogen.hosts import sites
from morphogen.hosts.net import Net

NET = small_states.net()
ENVS = 5


@st.composite
def slots(draw):
    """Slots of a few envs: stage, blueprint, algorithm, alpha."""
    rows = st.lists(
        st.lists(st.integers(0, 9), min_size=3, max_size=3), min_size=ENVS, max_size=ENVS
    )
    stage = torch.tensor(draw(rows)).clamp(min=1)
    blueprint = torch.tensor(draw(rows)).clamp(1, 7)
    algorithm = torch.tensor(draw(rows)) % 3 + 1
    alpha = torch.tensor(draw(rows)) / 9
    occupied = (stage >= 2) & (stage <= 6)
    empty = small_states.fresh(NET, ENVS).slots
    return empty.replace(
        stage=stage,
        blueprint=torch.where(occupied, blueprint, -1),
        algorithm=torch.where(occupied, algorithm, 0),
        alpha=torch.where((stage >= 4) & (stage <= 6), alpha, 0.0),
    )


def _state(own):
    return small_states.fresh(NET, ENVS).replace(slots=own)


@given(slots())
def test_training_groups_hold_exactly_the_envs_that_run_a_blueprint(own):
    plan = small_states.plan(_state(own), NET)
    result = sites.training_indices(own, plan)
    for s, (slot_plan, slot_index) in enumerate(zip(plan.train, result, strict=True)):
        assert (slot_index is None) == (not slot_plan.groups)
        if slot_index is None:
            continue
        rows = torch.stack((own.stage, own.blueprint, own.algorithm), -1)[:, s].tolist()
        seeds = [row for row in enumerate(rows) if row[1][0] in (3, 4, 5, 6)]
        for owners, group in zip(slot_index.owners, slot_plan.groups, strict=False):
            members = [(e, way) for e, (_, code, way) in seeds if code == group.blueprint]
            multiplied = [e for e, way in members if way == 2]
            added = [e for e, way in members if way != 2]
            assert owners.tolist() == added + multiplied
            assert (group.size, group.multiplied) == (len(added + multiplied), len(multiplied))
        gated = [e for e, (stage, _, way) in seeds if stage > 3 and way == 3]
        assert slot_index.owners[-1].tolist() == gated
        assert slot_index.seeds.rows[slot_index.seeds.gates].tolist() == gated


@given(slots(), st.lists(st.booleans(), min_size=3 * ENVS, max_size=3 * ENVS))
def test_births_are_counted_per_slot_and_list_their_envs(own, born):
    born = torch.tensor(born).view(ENVS, 3)
    plan = small_states.plan(_state(own), NET, born)
    rows = small_states.new_seed_rows(born, plan)
    assert [r.tolist() for r in rows] == [[e for e in range(ENVS) if born[e, s]] for s in range(3)]


@given(slots())
def test_the_tree_has_one_row_per_distinct_prefix(own):
    coalition, evaluated = small_states.every(_state(own), NET)
    plan = small_states.plan(_state(own), NET)
    order = [0, 2, 1]  # r0c0, r1c0, r0c1
    assert NET.execution == (0, 2, 1)
    for level in range(1, 4):
        before = order[:level]
        prefixes = {
            (e, tuple(int(coalition[e, k]) >> s & 1 for s in before))
            for e in range(ENVS)
            for k in range(8)
            if evaluated[e, k]
        }
        assert plan.rows[level - 1] == len(prefixes)


def test_a_plan_is_read_from_one_buffer_of_small_integers():
    state = small_states.mixed(NET, 9)
    born = torch.zeros_like(state.slots.stage, dtype=torch.bool)
    numbers = plans.plan_counts(state.slots, *small_states.every(state, NET), born, net=NET)
    assert numbers.dtype == torch.int32
    assert numbers.shape == (54 * 3,)


def test_slots_are_in_slot_order_and_executed_in_host_order():
    host = small_states.cnn_host(2, 3, 1, 3, 3, 16, 10)
    net = Net(host, host.pick_slots(("r1c0", "r0c2", "r0c0", "r1c2")))
    assert net.names == ("r0c0", "r0c2", "r1c0", "r1c2")
    assert [net.names[s] for s in net.execution] == ["r0c0", "r1c0", "r0c2", "r1c2"]
