"""score: the reward of the step, after everything that followed from its action was measured; then the epoch closes."""

import torch
from tensordict import TensorDict
from torch import Tensor

from morphogen.rules.counts import seed_params
from morphogen.rules.detectors import detect
from morphogen.rules.rewards.own import network_value, parameter_cost
from morphogen.rules.rewards.table import Rule
from morphogen.rules.stages import occupied
from morphogen.state.decision import ActionOutcome
from morphogen.state.env import EnvState
from morphogen.state.measure import Attribution, GovernorReport, RewardInputs, Score, Validation
from morphogen.vocab.stage import Stage


def score(
    state: EnvState,
    outcome: ActionOutcome,
    attribution: Attribution,
    report: GovernorReport,
    validation: Validation,
    *,
    rule: Rule,
    net_counts: tuple[tuple[int, ...], ...],
    gate_counts: tuple[int, ...],
    param_budget: int,
    target_loss: float,
    episode_length: int,
) -> tuple[EnvState, Score]:
    """Pay the step and close the epoch.  The state is the one that the governor left.

    Shapes: all [E]; net_counts [S][13] and gate_counts [S], parameters per slot -> (state, Score [E]).
    Promise: of the state only the ledger, the counters of slots and the clock change.
    """
    params = seed_params(state.slots, net_counts, gate_counts)
    facts = {"params": params, "target_loss": target_loss, "episode_length": episode_length}
    inputs = reward_inputs(state, outcome, attribution, report, validation, **facts)
    paid, ledger = _paid(inputs, state.ledger, rule)
    split = rule.slot_scale * attribution.shapley
    found = detect(state.slots, attribution.uncommitted_improvement)
    scored = Score(
        **paid,
        network_value=network_value(inputs, param_budget=param_budget),
        param_cost=parameter_cost(inputs, param_budget=param_budget),
        potential_by_slot=torch.where(paid["unmeasured"].unsqueeze(-1), 0.0, split),
        detectors=found.fired,
        detector_ratio=found.ratio,
        fossil_params=inputs.fossil_params,
        live_params=inputs.live_params,
        batch_size=state.batch_size,
        device=state.device,
    )
    return close(state.replace(ledger=ledger)), scored


def reward_inputs(
    state: EnvState,
    outcome: ActionOutcome,
    attribution: Attribution,
    report: GovernorReport,
    validation: Validation,
    *,
    params: Tensor,
    target_loss: float,
    episode_length: int,
) -> RewardInputs:
    """What a rule sees.  All [E]; params int64 [E, S], 0 without a seed -> RewardInputs [E].

    A rolled-back env is what its snapshot was: its committed accuracy is the one remembered there, and improvement and
    loss of the failed epoch count as not measured.
    """
    fossil = state.slots.stage == int(Stage.FOSSILIZED)
    kept = ~report.rolled_back
    committed = torch.where(kept, attribution.committed_acc, state.signals.committed_acc)
    clean, sane = kept & attribution.measured, kept & validation.loss.isfinite()
    return RewardInputs(
        horizon=state.clock.epoch + 1 >= episode_length,
        rolled_back=report.rolled_back,
        op=outcome.effective_op,
        op_executed=outcome.executed,
        committed_acc=torch.where(committed.isfinite(), committed, 0.0),
        committed_valid=committed.isfinite(),
        clean_improvement=torch.where(clean, attribution.clean_improvement, 0.0),
        clean_valid=clean,
        val_loss=torch.where(sane, validation.loss, 0.0),
        loss_valid=sane,
        fossil_params=torch.where(fossil, params, 0).sum(-1),
        live_params=params.sum(-1),
        param_price=state.instance.param_price,
        baseline_loss=state.instance.baseline_loss,
        target_loss=torch.full_like(validation.loss, target_loss),
        batch_size=state.batch_size,
        device=state.device,
    )


def close(state: EnvState) -> EnvState:
    """The epoch is over: one more epoch in its stage for every slot that is not empty, in its life for every seed."""
    stage = state.slots.stage
    epochs = state.slots.epochs_in_stage + (stage != int(Stage.DORMANT)).to(torch.int64)
    age = state.slots.age + occupied(stage).to(torch.int64)
    slots = state.slots.replace(epochs_in_stage=epochs, age=age)
    return state.replace(slots=slots, clock=state.clock.replace(epoch=state.clock.epoch + 1))


def _paid(inputs: RewardInputs, ledger: TensorDict, rule: Rule) -> tuple[dict[str, Tensor], TensorDict]:
    """What the rule makes of the inputs, as leaves of a score, and the next ledger."""
    potential, measured = rule.potential(inputs, ledger)
    reward, parts, ledger = rule(inputs, ledger)
    leaves = {
        "reward": reward,
        "components": torch.stack([parts[name] for name in rule.components], dim=-1),
        "terminated": inputs.horizon | inputs.rolled_back,
        "potential": potential,
        "unmeasured": ~measured,
    }
    return leaves, ledger
