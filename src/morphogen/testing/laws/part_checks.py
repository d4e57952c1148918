"""Checks of parts from outside against their laws, and of environments against the promises about
their worlds and observations.
"""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, cast

from hypothesis import strategies as st

from morphogen.config.host import Host
from morphogen.config.instance_spec import INSTANCE_PARAMETERS
from morphogen.config.parts import RULES
from morphogen.config.registry import error_line, is_ours
from morphogen.data.dataset import deal_samples
from morphogen.data.splits import StoredSplits, fingerprint
from morphogen.env import actions
from morphogen.env.environment import Environment, open_environment
from morphogen.env.phases import PolicyInputs
from morphogen.errors import ConfigError, DataError
from morphogen.hosts.seed_module import SeedModule
from morphogen.policy.policy import NetworkPolicy
from morphogen.policy.policy_network import LstmNetwork, PolicyNetwork
from morphogen.ppo.learner import Learner
from morphogen.state import rng
from morphogen.state.env import EnvState, Instance
from morphogen.state.schema import INSTANCE
from morphogen.state.tree_ops import replace
from morphogen.testing.builders.tree_equality import differing_leaves
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
from morphogen.vocab.observation import INSTANCE_SOURCES
from morphogen.vocab.slot import SlotSpec

_EPOCHS = 2  # of random actions before the envs are observed


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


def check_observation(env: Environment, hidden: Collection[str] | None = None) -> None:
    """Check that envs which differ only in hidden parameters, or in the rest of their instances,
    look alike, bit for bit.

    Args:
        env: of `make`; it is reset, and grows for two epochs under random actions.
        hidden: names of the parameters; None: those that `observe.instance` of the env does not
        name.

    Raises: BrokenLaw for the first difference in features or masks, ConfigError for an unknown
    name.

    Example:
        >>> import morphogen as mg
        >>> from morphogen.testing import laws
        >>> env = mg.make("tiny", envs=4, seed=0, observe={"instance": ["param_price"]})
        >>> laws.check_observation(env)
        >>> try:
        ...     laws.check_observation(env, hidden=["param_price"])
        ... except laws.BrokenLaw as error:
        ...     print(error.sentence)
        the observation shows param_price, in observation.instance
    """
    names = tuple(name for name in INSTANCE_PARAMETERS if name not in env.spec.observe.instance)
    names = names if hidden is None else tuple(hidden)
    if unknown := [name for name in names if name not in INSTANCE_PARAMETERS]:
        raise ConfigError(
            f"hidden: expected names out of {', '.join(INSTANCE_PARAMETERS)}, got {unknown[0]!r}"
        )
    state, inputs = env.reset()
    for _ in range(_EPOCHS):
        state, step = env.step(state, actions.random(env, state, inputs))
        inputs = step.inputs
    derived = {
        name: [leaf for leaf, sources in INSTANCE_SOURCES.items() if name in sources]
        for name in names
    }
    worlds = [leaf.name for leaf in INSTANCE if leaf.name not in INSTANCE_SOURCES]
    for name, leaves in {**derived, "the world": worlds}.items():
        other = env.observe(_with_other(state, leaves))
        if places := differing_leaves(inputs._replace(facts=None), other._replace(facts=None)):
            raise BrokenLaw("hides_unobserved", f"the observation shows {name}, in {min(places)}")


def check_worlds(env: Environment) -> None:
    """Check that worlds are the same whatever is done in them, alone and in sibling worlds, bit for
    bit.

    Args:
        env: of `make`; an episode of it is played with WAIT, one with random actions, one by its
            last env alone, and one by siblings.

    Raises: BrokenLaw for the first difference in an instance.

    Example:
        >>> import morphogen as mg
        >>> from morphogen.testing import laws
        >>> laws.check_worlds(mg.make("digits", envs=2, episode_length=3, data={"minibatches": 1}))
    """
    keys, tasks, _ = env.host_keys
    expected = _instances(env, _wait)
    _check_same_worlds(expected, _instances(env, actions.random), "after random actions")
    with open_environment(
        env.setup, envs=rng.sibling_keys(keys, 1), tasks=tasks, split=env.split
    ) as siblings:
        _check_same_worlds(expected, _instances(siblings, _wait), "in sibling worlds")
    with open_environment(env.setup, envs=keys[-1:], tasks=tasks[-1:], split=env.split) as last:
        _check_same_worlds(
            [cast(Instance, instance[-1:]) for instance in expected],
            _instances(last, _wait),
            "of the last env alone",
        )


def _wait(env: Environment, state: EnvState, inputs: PolicyInputs) -> Any:
    return actions.wait(env)


def _instances(
    env: Environment, choose: Callable[[Environment, EnvState, PolicyInputs], Any]
) -> list[Instance]:
    """Instances of all epochs of an episode, the last one after its end."""
    state, inputs = env.reset()
    found = [state.instance]
    for _ in range(env.horizon):
        state, step = env.step(state, choose(env, state, inputs))
        inputs = step.inputs
        found.append(state.instance)
    return found


def _check_same_worlds(expected: list[Instance], found: list[Instance], label: str) -> None:
    for epoch, (one, other) in enumerate(zip(expected, found, strict=True)):
        for name in sorted(differing_leaves(one, other)):
            raise BrokenLaw(
                "same_world", f"instance.{name} of epoch {epoch} is another one {label}"
            )


def _with_other(state: EnvState, leaves: Collection[str]) -> EnvState:
    """The envs with other values of some leaves of the instance."""
    values = {name: getattr(state.instance, name) for name in leaves}
    others = {
        name: 0.5 * value + 0.01 if value.is_floating_point() else value + 1
        for name, value in values.items()
    }
    return replace(state, instance=replace(state.instance, **others))


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
    except DataError as error:
        raise BrokenLaw("fits_host", str(error)) from None
    if fingerprint(splits) != fingerprint(deal_samples(dataset(folder), host, name)):
        raise BrokenLaw("repeats_itself", f"{name} gives other samples the second time")
