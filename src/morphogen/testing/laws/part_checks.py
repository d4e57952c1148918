"""Checks of parts from outside against their laws, and of environments with such parts."""

from collections.abc import Callable
from pathlib import Path

from hypothesis import strategies as st

from morphogen.config.host import Host
from morphogen.config.parts import RULES
from morphogen.config.registry import error_line, is_ours
from morphogen.data.dataset import deal_samples
from morphogen.data.splits import StoredSplits, check_labels, fingerprint
from morphogen.env import actions
from morphogen.env.environment import Environment
from morphogen.errors import DataError
from morphogen.hosts.seed_module import SeedModule
from morphogen.policy.policy import NetworkPolicy
from morphogen.policy.policy_network import LstmNetwork, PolicyNetwork
from morphogen.ppo.learner import Learner
from morphogen.testing.laws.check import check_reward
from morphogen.testing.laws.learning_laws import (
    LEARNER_LAWS,
    NETWORK_LAWS,
    Lesson,
)
from morphogen.testing.laws.part_laws import (
    BLUEPRINT_LAWS,
    HOST_LAWS,
    RowPart,
    blueprint_rows,
    host_rows,
)
from morphogen.testing.laws.search import BrokenLaw, check_laws, name_part
from morphogen.vocab.slot import SlotSpec


def check_blueprint(
    module: SeedModule, *, channels: int = 8, size: tuple[int, ...] = (4, 4)
) -> None:
    """Check a blueprint: identity at birth, gradients within three steps, rows apart, one graph,
    and more.

    Args:
        module: the blueprint.
        channels, size: of the features of the slot; size () for features without axes between
        samples and networks.

    Raises: BrokenLaw for the first violation.

    Example:
        >>> import morphogen as mg
        >>> from morphogen.testing import laws
        >>> class Copy(mg.SeedModule):
        ...     name = "copy"
        ...
        ...     def leaves(self, channels):
        ...         return (mg.ParamLeaf("scale", (1,), fill=1.0),)
        ...
        ...     def delta(self, params, x):
        ...         return params["scale"] * x
        >>> try:
        ...     laws.check_blueprint(Copy())
        ... except laws.BrokenLaw as error:
        ...     print(error.law)
        is_identity
    """
    slot = SlotSpec("r0c0", channels, size)
    _check_rows(name_part(module), BLUEPRINT_LAWS, lambda: blueprint_rows(module, slot))


def check_host(host: Host) -> None:
    """Check a host: declared slots and parameters, rows apart, gradients within three steps, one
    graph, and more.

    Raises: BrokenLaw for the first violation.

    Example:
        >>> import morphogen as mg
        >>> from morphogen.testing import laws
        >>> class Miscounted(mg.CnnSpec):
        ...     def params(self, width=1.0, classes=None):
        ...         return 100
        >>> try:
        ...     laws.check_host(
        ...         Miscounted(
        ...             base=4, blocks=2, kernel=3, pools=1, channels_in=1, size=8, classes=10
        ...         )
        ...     )
        ... except laws.BrokenLaw as error:
        ...     print(error.sentence)
        Miscounted has 438 parameters, declares 100
    """
    _check_rows(type(host).__name__, HOST_LAWS, lambda: host_rows(host))


def _check_rows(
    name: str, laws: dict[str, Callable[[RowPart], str]], build: Callable[[], RowPart]
) -> None:
    try:
        part = build()
    except Exception as error:
        raise BrokenLaw("can_be_built", f"{name} raises {error_line(error)}") from error
    check_laws(name, laws, st.just(part), count=1)


def check_network(network: PolicyNetwork) -> None:
    """Check a policy network: scoring equals acting, any number of slots, envs apart, one graph,
    and more.

    Raises: BrokenLaw for the first violation.

    Example:
        >>> import morphogen as mg
        >>> from morphogen.testing import laws
        >>> class Double(mg.LstmNetwork):
        ...     def init(self, key):
        ...         return {name: leaf.double() for name, leaf in super().init(key).items()}
        >>> try:
        ...     laws.check_network(Double(hidden=8))
        ... except laws.BrokenLaw as error:
        ...     print(error.sentence)
        Double parameters: expected torch.float32, got torch.float64 for embed.weight
    """
    policy = NetworkPolicy(network)
    check_laws(type(network).__name__, NETWORK_LAWS, st.just(policy), count=1)


def check_learner(learner: Learner, network: PolicyNetwork | None = None) -> None:
    """Check a learner: it writes to nothing, repeats itself, keeps the form of its state, survives
    NaN, and moves.

    Args:
        learner: the learner.
        network: of the policy that it trains; None: a small `LstmNetwork`.

    Raises: BrokenLaw for the first violation.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> from morphogen.testing import laws
        >>> class Verbose(mg.PpoLearner):
        ...     def update(self, state, rollout, *, policy, round):
        ...         return state, {"policy_loss": torch.zeros(3)}
        >>> try:
        ...     laws.check_learner(Verbose(), mg.LstmNetwork(hidden=8))
        ... except laws.BrokenLaw as error:
        ...     print(error.sentence)
        ppo metrics: expected 0-d tensors, got tensor([0., 0., 0.]) for policy_loss
    """
    policy = NetworkPolicy(LstmNetwork(hidden=16) if network is None else network)
    check_laws(name_part(learner), LEARNER_LAWS, st.just(Lesson(learner, policy)), count=1)


def check_environment(env: Environment) -> None:
    """Check the parts of an environment that come from outside, and that an epoch of it stays
    finite.

    Args:
        env: of `make`; it is reset, and waits for an epoch.

    Raises: BrokenLaw for the first violation of a law of its host, its blueprints or its reward
    rule.

    Example:
        >>> import morphogen as mg
        >>> from morphogen.testing import laws
        >>> laws.check_environment(mg.make("digits", envs=2))
    """
    if not is_ours(env.net.host):
        check_host(env.net.host)
    for module in env.net.modules.values():
        if not is_ours(module):
            for size, channels in dict.fromkeys(
                (slot.size, slot.channels) for slot in env.net.slots
            ):
                check_blueprint(module, channels=channels, size=size)
    if env.spec.reward.rule not in RULES.builtin():
        check_reward(env.rule)
    after, step = env.step(env.reset()[0], actions.wait(env))
    for name, leaf in {"host.params": after.host.params, "reward": step.reward}.items():
        if not leaf.isfinite().all():
            raise BrokenLaw("stays_finite", f"{name}: expected finite numbers after an epoch")


def check_dataset(
    dataset: Callable[[Path], StoredSplits], host: Host, *, folder: Path = Path("data")
) -> None:
    """Check a data set for a host: splits of its shape and classes, equal when they are read again.

    Args:
        dataset: function (folder) -> Splits, or other stored samples.
        folder: of data files.

    Raises: BrokenLaw for the first violation.

    Example:
        >>> import morphogen as mg
        >>> from morphogen.testing import laws
        >>> laws.check_dataset(mg.DATASETS["digits"], mg.TASKS["digits"].host)
    """
    name = name_part(dataset)
    try:
        stored = dataset(folder)
    except Exception as error:
        raise BrokenLaw("can_be_read", f"{name} raises {error_line(error)}") from error
    try:
        splits = deal_samples(stored, host, name)
        if host.labelled:
            check_labels(splits, host, name)
    except DataError as error:
        raise BrokenLaw("fits_host", str(error)) from None
    if fingerprint(splits) != fingerprint(deal_samples(dataset(folder), host, name)):
        raise BrokenLaw("repeats_itself", f"{name} gives other samples the second time")
