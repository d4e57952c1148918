"""Moves from stage to stage: the legal ones, what they write, and nothing else."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from morphogen.rules.stages import transition
from morphogen.testing.builders.scenes import SLOT_LEAVES
from morphogen.testing.strategies import slot_states
from morphogen.vocab.stage import TRANSITIONS, Stage

S = Stage
# The table of moves, typed over.
MOVES = {
    S.DORMANT: {S.GERMINATED},
    S.GERMINATED: {S.TRAINING, S.PRUNED},
    S.TRAINING: {S.BLENDING, S.PRUNED},
    S.BLENDING: {S.HOLDING, S.PRUNED},
    S.HOLDING: {S.FOSSILIZED, S.BLENDING, S.PRUNED},
    S.FOSSILIZED: set(),
    S.PRUNED: {S.EMBARGOED},
    S.EMBARGOED: {S.RESETTING},
    S.RESETTING: {S.DORMANT},
}
MARKS = (
    "stage",
    "previous_stage",
    "epochs_in_stage",
    "previous_epochs_in_stage",
    "accuracy_at_stage_start",
)


def test_the_matrix_of_moves_is_the_table():
    for here in Stage:
        assert {to for to in Stage if to in TRANSITIONS[here]} == MOVES.get(here, set())


@given(slot_states(), st.integers(-2, 12), st.data())
def test_a_move_succeeds_iff_it_is_legal_and_asked_for_and_an_illegal_one_changes_nothing(
    slots, to, data
):
    shape = slots.stage.shape
    flags = st.lists(st.booleans(), min_size=slots.stage.numel(), max_size=slots.stage.numel())
    where = torch.tensor(data.draw(flags)).view(shape)
    accuracy = torch.linspace(20, 80, shape[0])
    after = transition(slots, where, torch.full(shape, to), accuracy)
    for e in range(shape[0]):
        for s in range(shape[1]):
            was, now = (
                {name: getattr(part, name)[e, s].item() for name in SLOT_LEAVES}
                for part in (slots, after)
            )
            if not where[e, s] or to not in MOVES[S(was["stage"])]:
                assert now == was
                continue
            occupied = to in (S.GERMINATED, S.TRAINING, S.BLENDING, S.HOLDING, S.FOSSILIZED)
            start = accuracy[e].item() if occupied else was["accuracy_at_stage_start"]
            assert [now[name] for name in MARKS] == [
                to,
                was["stage"],
                0,
                was["epochs_in_stage"],
                start,
            ]
            assert all(now[name] == was[name] for name in SLOT_LEAVES if name not in MARKS)
