"""Pure steps of an epoch: (state, inputs) -> (state, outputs), without I/O, draws, or waits for the
device.

For research code that composes its own loop.  In the order of an epoch:

    reset_step      fresh envs; `init_seeds`: parameters of germinated seeds
    apply           `apply_action`: the effect of an action on the slots, GERMINATE and PRUNE
                    included
    tick_step       automatic changes: cooling, alpha ramps, automatic gates
    train           `start_epoch`, `train_minibatch`, `finish_epoch`
    validate_step   loss and accuracy under every coalition
    govern_step     anomalies, rollback to the last healthy snapshot
    score_step      `attribute`: contributions from these accuracies; the reward and its inputs, the
                    end of the epoch
    observe_step    state -> observation of the next epoch; masks are in `rules.legality`

Every step traces with `torch.compile(fullgraph=True)`, runs on the meta device, and never writes to
its input; `morphogen.testing.laws.check_step` checks these promises for any step. Loads torch.
"""

from morphogen.steps.apply import apply_action
from morphogen.steps.govern_step import first_snapshot, govern
from morphogen.steps.observe_step import StateFacts, observe, state_facts
from morphogen.steps.reset_step import init_seeds, new_seed_rows, reset
from morphogen.steps.score_step import ScoreInputs, attribute, score
from morphogen.steps.tick_step import tick
from morphogen.steps.train import TrainState, finish_epoch, start_epoch, train_minibatch
from morphogen.steps.validate_step import validate

__all__ = [
    "ScoreInputs",
    "StateFacts",
    "TrainState",
    "apply_action",
    "attribute",
    "finish_epoch",
    "first_snapshot",
    "govern",
    "init_seeds",
    "new_seed_rows",
    "observe",
    "reset",
    "score",
    "start_epoch",
    "state_facts",
    "tick",
    "train_minibatch",
    "validate",
]
