"""plant: seeds that are kept from the start, where a lifecycle would have taken epochs to come to."""

from torch import Tensor

from morphogen.state.env import EnvState
from morphogen.state.tree_ops import masked_update, replace
from morphogen.vocab.blueprint import EMPTY
from morphogen.vocab.stage import Stage


def place_fossils(state: EnvState, blueprint: Tensor, algorithm: Tensor) -> EnvState:
    """Fossils at alpha 1 in empty slots, of which nothing has been measured yet.

    Shapes: state [E]; blueprint int64 [E, S], -1 = left alone; algorithm int64 [E, S] (`Algorithm`) -> EnvState [E].
    Promise: nothing but the named slots changes.  They get their parameters later (`steps.sow`).
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
