"""Mathematics of the lifecycle: tensors or parts of the state in, tensors out; a rule never returns
a complete state.

For readers who ask "when is an action legal?" or "how is a reward computed?".  Entry points:

    legality       `legal`: the one definition of legal ops per slot, PRUNE included; `action_masks`
                   for the policy
    decoding       integers of the policy -> `ActionSpec`
    gates          conditions for a slot to advance: TRAIN, BLEND, HOLD, FOSSILIZE
    stages         sets of stages as masks, ramps of alpha, moves from stage to stage and the fields
                   that each writes
    attribution    coalitions to evaluate; contributions, interactions, detectors; `shapley_values`:
                   exact ones
    features       features of the observation; `signals`: histories, plateau, stability
    health         gradient statistics, and losses that the governor judges
    rewards        reward rules: `table.rule_from_function` makes one of a function
                   (`config.parts.RULES` registers it), `own` holds the rules of the
                   package

Masks are bool, True means allowed.  Nothing draws, reads a clock or asks the host.
Loads torch.
"""

from morphogen.rules.attribution import coalitions, players
from morphogen.rules.counts import parameter_price, seed_params
from morphogen.rules.decoding import decode
from morphogen.rules.gates import check_gate
from morphogen.rules.legality import (
    action_count,
    action_masks,
    conditions,
    legal,
    narrow_masks,
    restrict_masks,
)
from morphogen.rules.rewards.example_inputs import make_reward_inputs
from morphogen.rules.rewards.own import epoch_value, network_value, parameter_cost
from morphogen.rules.rewards.protocol import Rule, Terms
from morphogen.rules.rewards.table import (
    FunctionRule,
    build_rule,
    describe_rule,
    rule_from_function,
)
from morphogen.rules.shapley_values import interactions, shapley
from morphogen.rules.signals import update_signals
from morphogen.rules.stages import active, blended, occupied

__all__ = [
    "FunctionRule",
    "Rule",
    "Terms",
    "action_count",
    "action_masks",
    "active",
    "blended",
    "build_rule",
    "check_gate",
    "coalitions",
    "conditions",
    "decode",
    "describe_rule",
    "epoch_value",
    "interactions",
    "legal",
    "make_reward_inputs",
    "narrow_masks",
    "network_value",
    "occupied",
    "parameter_cost",
    "parameter_price",
    "players",
    "restrict_masks",
    "rule_from_function",
    "seed_params",
    "shapley",
    "update_signals",
]
