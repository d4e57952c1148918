"""Promises about the worlds of an environment, and what its observations show of them."""

from morphogen.config.instance_spec import INSTANCE_PARAMETERS
from morphogen.env import actions
from morphogen.env.environment import open_environment
from morphogen.state import rng
from morphogen.state.schema import INSTANCE
from morphogen.state.tree_ops import replace
from morphogen.testing.builders.tree_equality import differing_leaves
from morphogen.vocab.observation import INSTANCE_SOURCES

EPOCHS = 2  # of random actions before the envs are observed


def shown_parameters(env, hidden=None) -> dict[str, set[str]]:
    """Places where envs look different which differ in one parameter alone, or in the rest of
    their instances.

    hidden: names of the parameters; None: those that `observe.instance` does not name.
    """
    state, inputs = env.reset()
    for _ in range(EPOCHS):
        state, step = env.step(state, actions.random(env, state, inputs))
        inputs = step.inputs
    if hidden is None:
        hidden = [name for name in INSTANCE_PARAMETERS if name not in env.spec.observe.instance]
    groups = {name: [k for k, of in INSTANCE_SOURCES.items() if name in of] for name in hidden}
    groups["the world"] = [leaf.name for leaf in INSTANCE if leaf.name not in INSTANCE_SOURCES]
    found = {}
    for name, leaves in groups.items():
        seen = env.observe(with_other(state, leaves))
        found[name] = differing_leaves(inputs._replace(facts=None), seen._replace(facts=None))
    return {name: places for name, places in found.items() if places}


def with_other(state, leaves):
    """The envs with other values of some leaves of the instance."""
    values = {name: getattr(state.instance, name) for name in leaves}
    others = {name: x / 2 + 0.01 if x.is_floating_point() else x + 1 for name, x in values.items()}
    return replace(state, instance=replace(state.instance, **others))


def changed_worlds(env) -> list[str]:
    """Leaves of worlds that depend on what is done in them, on sibling worlds, or on other envs."""
    keys, tasks, _ = env.host_keys
    expected = instances(env)

    def changed(found, expected, label):
        pairs = enumerate(zip(expected, found, strict=True))
        return [f"{x} {t} {label}" for t, pair in pairs for x in sorted(differing_leaves(*pair))]

    faults = changed(instances(env, actions.random), expected, "after random actions")
    others = {
        "in sibling worlds": ({"envs": rng.sibling_keys(keys, 1), "tasks": tasks}, expected),
        "of the last env alone": (
            {"envs": keys[-1:], "tasks": tasks[-1:]},
            [instance[-1:] for instance in expected],
        ),
    }
    for label, (choice, wanted) in others.items():
        with open_environment(env.setup, split=env.split, **choice) as other:
            faults += changed(instances(other), wanted, label)
    return faults


def instances(env, choose=lambda env, state, inputs: actions.wait(env)):
    """Instances of all epochs of an episode, the last one after its end."""
    state, inputs = env.reset()
    found = [state.instance]
    for _ in range(env.horizon):
        state, step = env.step(state, choose(env, state, inputs))
        inputs = step.inputs
        found.append(state.instance)
    return found
