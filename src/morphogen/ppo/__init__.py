"""Training of a policy: PPO on one rollout, and the numbers that describe an update.

For readers who ask "how is the policy trained?".  Entry points:

    learner             `Learner`, the protocol of everything that trains a policy
    exchange            `Exchange`, the bridge to processes that hold other envs of the run
    update              `PpoLearner`; `update_ppo`: epochs over env minibatches; steps that are not
                        finite are skipped
    ppo_state           policy, optimiser and running scale of returns; `init_ppo`
    minibatch           gradient and step of a minibatch, the loop over all of them
    loss                the formula of PPO: clipped ratio, value, entropy
    minibatch_loss      the loss, or imitation in its place, with the predicted contribution and the
                        metrics
    row_weights         rows over which the terms are means, on all processes
    coefficients        learning rate, entropy and value coefficients of a round
    advantage           generalised advantage estimation, mean of a group, standardisation
    prepare             rollout -> tensors of the update, rescaling of the critic
    moments             moments of rows, and their merging over parts of a rollout; statistics of
                        observations
    metrics             numbers that are reported of an update
    gradient_stats      numbers that are reported of a gradient

Everything is a pure function of tensors; the learner is one tree of tensors.  An update calls its
`Exchange` in `prepare`, `row_weights`, `minibatch` and `update`.
Loads torch.
"""

from morphogen.ppo.advantage import discounted_sum, gae, standardise, subtract_group_mean
from morphogen.ppo.coefficients import Coefficients, coefficients_at
from morphogen.ppo.exchange import Exchange
from morphogen.ppo.learner import Learner, Round
from morphogen.ppo.loss import PpoLoss, ppo_loss
from morphogen.ppo.moments import update_observation_stats
from morphogen.ppo.ppo_state import PpoState, init_ppo
from morphogen.ppo.row_weights import RowWeights, row_weights
from morphogen.ppo.update import PpoLearner, minibatch_indices, update_ppo

__all__ = [
    "Coefficients",
    "Exchange",
    "Learner",
    "PpoLearner",
    "PpoLoss",
    "PpoState",
    "Round",
    "RowWeights",
    "coefficients_at",
    "discounted_sum",
    "gae",
    "init_ppo",
    "minibatch_indices",
    "ppo_loss",
    "row_weights",
    "standardise",
    "subtract_group_mean",
    "update_observation_stats",
    "update_ppo",
]
