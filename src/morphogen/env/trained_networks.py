"""Trained networks: the task kind whose envs train hosts and seeds on samples, the default."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from morphogen.config.spec import RunSpec
from morphogen.data.feed import Feed
from morphogen.env.capture import Capture
from morphogen.env.environment import Environment
from morphogen.env.phases import ActPhase, init_new_seeds
from morphogen.env.pieces import FLOAT_BYTES, cut, join, split_envs
from morphogen.env.setup import Setup
from morphogen.env.task_kind import TaskKind
from morphogen.hosts.net import Net
from morphogen.hosts.plan import EpochPlan, Plan
from morphogen.rules.attribution import configuration_count
from morphogen.state.env import EnvState
from morphogen.state.measure import TrainMetrics, Validation
from morphogen.state.tree_ops import replace
from morphogen.steps.train import TRAINED, TrainState, finish_epoch, start_epoch, train_minibatch
from morphogen.steps.validate_step import validate

# Copies of the features of a slot that live at the peak, measured
# (`tests/unit/env/test_pieces.py`).
_INPUTS = 2.0
_SEED = 6.5  # per sample of a minibatch: stored for the gradient, with its own copies
_VALIDATION = 8.0  # per row of the coalition tree, of the slot where rows times features are most


class TrainedNetworks(TaskKind):
    """Hosts and seeds that train on minibatches, and are validated on samples."""

    def activation_bytes(self, spec: RunSpec, net: Net, samples: int) -> int:
        """Return the bytes of one env with the largest blueprint in every slot."""
        stored, held = net.host.activations()
        rows = widest = 0
        enabled = set(net.names)
        most = configuration_count(len(net.slots), spec.attribution.permutation_pairs)
        most = min(most, 2**spec.max_seeds) if spec.max_seeds else most
        for slot in net.host.all_slots:
            size = slot.channels * math.prod(slot.size)
            grows = slot.name in enabled
            rows = min(max(1, rows) * (2 if grows else 1), most)
            widest = max(widest, rows * _VALIDATION * size)
            stored += _SEED * grows * size
        training = spec.data.batch * (stored + _INPUTS * math.prod(net.host.input_shape))
        return int(
            FLOAT_BYTES * max(training, min(samples, net.host.chunk) * max(widest, rows * held))
        )

    def train(
        self, env: Environment, act: ActPhase, plan: EpochPlan
    ) -> tuple[EnvState, TrainMetrics]:
        """Initialise new seeds, then train hosts and seeds, piece after piece."""
        setup = env.setup
        mark = env.timer.mark
        ready = init_new_seeds(act.ticked, act.born, env.keys, plan, setup=setup)
        parts = [
            train_piece(
                cut(ready, rows), piece, feed=env.feed, setup=setup, capture=env.capture, mark=mark
            )
            for rows, piece in _pieces(env, plan)
        ]
        states, metrics = zip(*parts, strict=True)
        trained = {name: join([getattr(state, name) for state in states]) for name in TRAINED}
        return replace(ready, **trained), join(metrics)

    def validate(
        self, env: Environment, state: EnvState, requested: tuple[Tensor, Tensor], plan: EpochPlan
    ) -> Validation:
        """Evaluate coalitions on the validation split, piece after piece."""
        setup = env.setup
        coalition, evaluated = requested
        return join(
            [
                validate(
                    cut(state, rows),
                    setup.dataset.validation,
                    cut(coalition, rows),
                    cut(evaluated, rows),
                    piece,
                    net=setup.net,
                    counted=setup.dataset.most_counted(setup.most_classes),
                    show=setup.process.show,
                    repeat=env.capture.repeat,
                )
                for rows, piece in _pieces(env, plan)
            ]
        )


def _pieces(env: Environment, plan: EpochPlan) -> list[tuple[slice, Plan]]:
    """Pair the envs of each piece with its plan."""
    return list(zip(split_envs(env.envs, env.setup.piece_envs), plan.pieces, strict=True))


def train_piece(
    state: EnvState,
    plan: Plan,
    *,
    feed: Feed,
    setup: Setup,
    capture: Capture,
    mark: Callable[[str], None],
) -> tuple[EnvState, TrainMetrics]:
    """Train some envs on the minibatches of the epoch.  state [n]."""
    spec = setup.spec
    net = setup.net

    def fetch() -> None:
        mark("data")
        feed.fetch()
        mark("train")

    def train_next(carry: tuple[TrainState, Tensor]) -> tuple[TrainState, Tensor]:
        progress, minibatch = carry
        batch = feed.batch(draws, minibatch)
        after, _ = train_minibatch(
            progress, batch, plan, net=net, spec=spec.host, lifecycle=spec.lifecycle
        )
        return after, minibatch + 1

    mark("data")
    draws = feed.epoch(state)
    mark("train")
    start = start_epoch(state, plan, net=net)
    first = torch.zeros(1, dtype=torch.int64, device=state.key.device)
    progress, _ = capture.repeat(train_next, (start, first), spec.data.minibatches, fetch)
    return finish_epoch(state, progress, plan, net=net)


NETWORKS = TrainedNetworks()
