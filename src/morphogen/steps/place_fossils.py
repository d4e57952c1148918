"""place_fossils: seeds fossilized from the start, without the epochs of a lifecycle."""

from torch import Tensor

from morphogen.state.env import EnvState
from morphogen.state.tree_ops import masked_update, replace
from morphogen.vocab.blueprint import EMPTY
from morphogen.vocab.stage import Stage


def place_fossils(state: EnvState, blueprint: Tensor, algorithm: Tensor) -> EnvState:
    """Place unmeasured fossils at alpha 1 in empty slots.

    Shapes: state [E]; blueprint int64 [E, S], -1 = unchanged; algorithm int64 [E, S] (`Algorithm`) -> EnvState [E].
    Promise: nothing but the named slots changes.  `steps.init_seeds` draws their parameters.
    """
    where = blueprint > EMPTY
    slots = masked_update(
        state.slots,
        where,
        stage=int(Stage.FOSSILIZED),
        previous_stage=int(Stage.HOLDING),
        epochs_in_stage=1,
        previous_epochs_in_stage=1,
        age=1,
        blueprint=blueprint,
        algorithm=algorithm,
        blend_target=1.0,
        alpha=1.0,
        alpha_start=1.0,
        alpha_target=1.0,
    )
    return replace(state, slots=slots)
