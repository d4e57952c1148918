"""The kind of event of the scoreboard."""

from typing_extensions import TypedDict

from morphogen.log.events import Count, Positive, Real, RoundEvent


class BlueprintScore(TypedDict):
    """Outcomes of the seeds of a blueprint, over the run so far; None without a measured seed."""

    germinated: Count
    fossilized: Count
    pruned: dict[str, Count]  # reason ->
    alive: Count  # at the end of an episode, neither fossilized nor pruned
    rolled_back: Count
    age_fossilized: Positive  # epochs, means
    age_pruned: Positive
    contribution_mean: Real  # points, at fossilization
    contribution_error: Positive  # standard error of the mean
    shapley_mean: Real
    shapley_error: Positive
    accuracy_change: Real  # points since germination
    params: Positive  # mean
    macs_share: Positive  # per sample, of the host's
    contribution_per_1000_params: Real
    churn: Positive  # pruned over germinated


class BlueprintScores(RoundEvent):
    """The scoreboard of blueprints after a round."""

    scores: dict[str, BlueprintScore]
