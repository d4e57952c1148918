"""Worlds that change within an episode: training, validation and sizes follow the regime of each
env at each epoch.
"""

import pytest
import torch
from support.extras import needs_extra
from support.world_checks import changed_worlds, shown_parameters

import morphogen as mg
from morphogen.env.environment import Environment
from morphogen.errors import ConfigError
from morphogen.extras.regimes.image_view import View
from morphogen.extras.regimes.image_views import show_views

VIEWS = {"plain": 1, "inverted": 1, "turned": 1, "half": 1, "noisy": 1}
SMALL = {
    "data": {"batch": 8, "minibatches": 2, "val_samples": 30},
    "episode_length": 6,
    "max_seeds": 0,
}
HIDDEN = {"observe": {"instance": ["param_price"]}}
CLASSES = {"instance": {"classes": (10, 10)}, **HIDDEN}


def make(envs=4, seed=0, **settings):
    regime = {"hazard": 0.5, "least": 1, "views": VIEWS} | settings.pop("regime", {})
    return mg.make("digits", envs=envs, seed=seed, regime=regime, **SMALL, **settings)


@pytest.mark.slow
def test_the_world_is_the_same_whatever_is_done_in_it_whoever_plays_beside_and_for_siblings():
    assert not changed_worlds(make(6, regime={"classes": (3, 9)}, **CLASSES))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "found"),
    [
        (lambda env, regime: regime + env.envs % 2, "of the last env alone"),
        (lambda env, regime: regime + (env.keys[:, 1] != env.tasks[:, 1]), "in sibling worlds"),
    ],
    ids=["by the number of envs", "by the sibling"],
)
def test_a_world_that_depends_on_what_is_around_it_is_found(monkeypatch, broken, found):
    draw = Environment._draw_instance

    def drawn(env, episode, epoch):
        instance = draw(env, episode, epoch)
        return instance.replace(regime=broken(env, instance.regime))

    monkeypatch.setattr(Environment, "_draw_instance", drawn)
    faults = changed_worlds(make(4))
    assert faults
    assert all(fault.startswith("regime ") and fault.endswith(found) for fault in faults)


@pytest.mark.slow
def test_a_world_that_depends_on_what_is_done_in_it_is_found(monkeypatch):
    step = Environment.step

    def stepped(env, state, action, **options):
        after, out = step(env, state, action, **options)
        grown = (after.slots.blueprint >= 0).any(-1)
        return after.replace(
            instance=after.instance.replace(regime=after.instance.regime + grown)
        ), out

    monkeypatch.setattr(Environment, "step", stepped)
    assert {fault.split(maxsplit=2)[2] for fault in changed_worlds(make(4))} == {
        "after random actions"
    }


def test_the_state_is_in_the_regime_of_the_epoch_that_comes_next():
    env = make(8)
    state, _ = env.reset(3)
    assert not state.instance.regime.any()
    for _ in range(3):
        state, _ = env.step(state, mg.actions.wait(env))
    restarted, _ = env.restart(state, torch.ones(8, dtype=torch.bool))
    assert not restarted.instance.regime.any()
    assert (restarted.clock.episode == state.clock.episode + 1).all()


def test_a_batch_is_that_of_a_world_without_regimes_in_the_view_of_each_env():
    regimed = make(8)
    plain = mg.make("digits", envs=8, seed=0, **SMALL)
    state, _ = regimed.reset()
    assert len(state.instance.view_code.unique()) > 2
    found, stored = (env.feed.epoch(state) for env in (regimed, plain))
    batch, other = (
        env.feed.batch(draws, torch.tensor([1]))
        for env, draws in ((regimed, found), (plain, stored))
    )
    view = state.instance.view_code
    expected = show_views(other.inputs, view, found.index[1], views=tuple(View), noise=1.0)
    assert torch.equal(batch.inputs, expected)
    assert torch.equal(batch.labels, other.labels)


def test_validation_sees_the_view_of_each_env():
    env = make(5)
    state, _ = env.reset()
    split = env.setup.dataset.validation
    options = {"net": env.net, "show": env.setup.process.show}
    request = mg.rules.coalitions(state.slots, torch.zeros(5, 1, len(env.net.slots)), pairs=1)
    plan = mg.hosts.empty_plan(5, env.net)
    together = mg.steps.validate(state, split, *request, plan, **options)
    for view in View:
        images = split.inputs if view is View.PLAIN else shown_alone(split.inputs, view)
        alone = mg.steps.validate(state, split.replace(inputs=images), *request, plan, net=env.net)
        rows = state.instance.view_code == int(view)
        assert torch.allclose(together.loss[rows], alone.loss[rows], rtol=1e-5)


def test_validation_passes_the_samples_of_the_classes_of_each_env_alone(monkeypatch):
    env = make(4, regime={"classes": (2, 3), "hazard": 1.0}, **CLASSES)
    shown = []

    def kept(images, view, sample):
        shown.append(images)
        return images

    state, _ = env.reset()
    monkeypatch.setattr(env.setup.process, "show", kept)
    env.step(state, mg.actions.wait(env))
    split = env.setup.dataset.validation
    largest = split.labels.bincount().sort(descending=True).values[:3].sum()
    assert sum(images.shape[1] for images in shown) == largest < len(split.labels)
    for row, labels in zip(torch.cat(shown, dim=1), state.instance.class_of, strict=True):
        own = split.inputs[labels[split.labels] >= 0]
        assert torch.equal(row, torch.cat([own] * len(row))[: len(row)])


def shown_alone(images, view):
    sample = torch.arange(len(images))
    return show_views(images, torch.tensor([int(view)]), sample, views=(view,), noise=1.0)[0]


def test_sizes_follow_the_classes_of_the_regime():
    env = make(6, regime={"classes": (2, 10), "hazard": 1.0}, **CLASSES)
    state, seen = env.reset()
    for _ in range(3):
        before = state
        state, step = env.step(state, mg.actions.wait(env))
        seen = step.inputs
        expected = env.net.networks.params_in_use(before.instance)
        assert torch.equal(step.host_params, expected)
    assert seen.facts is not None
    assert torch.equal(seen.facts.host_params, env.net.networks.params_in_use(state.instance))


@pytest.mark.slow
def test_noisy_regimes_may_have_another_number_of_classes_and_the_others_stay_as_they_are():
    plain = {"classes": (3, 9), "hazard": 1.0}
    own = {**plain, "noisy_classes": (2, 2)}
    assert not changed_worlds(make(6, regime=own, **CLASSES))
    usual, other = (
        make(64, regime=regime, **CLASSES).reset()[0].instance for regime in (plain, own)
    )
    noisy = other.view_code == int(View.NOISY)
    assert 0 < noisy.sum() < 64
    assert torch.equal(usual.view_code, other.view_code)
    assert torch.equal(usual.class_of[~noisy], other.class_of[~noisy])
    assert (other.class_of[noisy] >= 0).sum(-1).unique().tolist() == [2]
    assert (other.classes == (other.class_of >= 0).sum(-1)).all()


def test_the_regime_is_never_observed():
    assert not shown_parameters(make(3, **HIDDEN))
    assert not shown_parameters(make(3, seed=1, regime={"classes": (2, 10)}, **CLASSES))


WHERE_CLASSES = (
    "regime.classes: expected null, or at most 10 where instance.classes is [10, 10] and "
    "observe.instance does not name classes"
)
WHERE_NOISY = (
    "regime.noisy_classes: expected null, or at most 10 with regime.classes and regime.views.noisy"
)


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        (
            {"regime": {"classes": (3, 9)}},
            f"{WHERE_CLASSES}, got [3, 9]",
        ),
        (
            {"regime": {"classes": (3, 12)}, **CLASSES},
            f"{WHERE_CLASSES}, got [3, 12]",
        ),
        (
            {"regime": {"classes": (3, 9)}, "instance": {"classes": (10, 10)}},
            f"{WHERE_CLASSES}, got [3, 9]",
        ),
        (
            {"regime": {"classes": (3, 9), "noisy_classes": (3, 12), "views": VIEWS}, **CLASSES},
            f"{WHERE_NOISY}, got [3, 12]",
        ),
        (
            {"regime": {"noisy_classes": (2, 2), "views": VIEWS}, **CLASSES},
            f"{WHERE_NOISY}, got [2, 2]",
        ),
        (
            {"regime": {"classes": (3, 9), "noisy_classes": (2, 2)}, **CLASSES},
            f"{WHERE_NOISY}, got [2, 2]",
        ),
        (
            {"regime": {"hazard": 1.5}},
            "regime.hazard: expected a number less than or equal to 1, got 1.5",
        ),
    ],
)
def test_settings_that_do_not_fit_are_named(settings, fault):
    with pytest.raises(ConfigError) as caught:
        mg.make("digits", envs=2, **settings)
    assert fault in str(caught.value)


@needs_extra("text")
def test_a_task_of_text_has_no_views():
    with pytest.raises(
        ConfigError, match=r"regime\.views: expected plain alone with samples that are no images"
    ):
        mg.RunSpec(task="pydoc", regime={"views": {"half": 1}})
