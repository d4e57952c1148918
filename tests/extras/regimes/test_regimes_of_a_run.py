"""Regimes in a whole run: the header, the events of each level, and the report."""

import numpy as np
import pytest
import torch
from support.small_runs import tiny

from morphogen import train_ppo_vectorized
from morphogen.data.instances import draw_instances
from morphogen.env.setup import build_setup, describe_run
from morphogen.extras.regimes.image_view import View
from morphogen.extras.regimes.regime_spec import RegimeSpec
from morphogen.log.run_log import events
from morphogen.state import rng
from morphogen.vocab.purpose import Purpose

REGIME = RegimeSpec(hazard=0.4, least=2, views={"inverted": 1, "half": 1})
RUN = {"rounds": 2, "envs": 3, "episode_length": 6, "regime": REGIME}


def expected_regimes(spec):
    """Regimes that begin within each episode: (round, env, epoch) -> (number, view, classes)."""
    setup, found = build_setup(spec), {}
    key = rng.env_keys(spec.seed, 0, spec.envs)
    for round in range(spec.rounds):
        at = torch.full((spec.envs,), round)
        draw = {"spec": setup.spec, "labels": setup.dataset.labels, "purpose": Purpose.INSTANCE}
        rows = [
            draw_instances(key, at, torch.full_like(at, epoch), **draw)
            for epoch in range(spec.episode_length)
        ]
        number = np.stack([row.regime.numpy() for row in rows])
        for epoch, env in np.argwhere(np.diff(number, axis=0, prepend=0) > 0):
            row = rows[epoch]
            view = View(int(row.view_code[env])).label
            found[round, int(env), int(epoch)] = (int(row.regime[env]), view, int(row.classes[env]))
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("regimes") / "run"
    train_ppo_vectorized(tiny(**RUN), out=folder)
    return folder


@pytest.mark.slow
def test_every_regime_that_begins_in_an_episode_has_an_event(run):
    found = {
        (event.round, event.env, event.epoch): (
            event.data.regime,
            event.data.view,
            event.data.classes,
        )
        for event in events(run)
        if event.name == "RegimeBegan"
    }
    assert found == expected_regimes(tiny(**RUN))


def test_the_report_marks_the_regimes(run):
    page = pytest.importorskip("morphogen.extras.pictures.page")
    plots = pytest.importorskip("morphogen.extras.pictures.plots")
    rows = plots.lifecycle_rows(page.read_run(run))
    marked = {
        (row["round"] - 1, row["env"], row["start"]) for row in rows if row["stage"] == "regime"
    }
    shown = {row["round"] - 1 for row in rows}
    assert marked == {place for place in expected_regimes(tiny(**RUN)) if place[0] in shown}
    assert marked


def test_the_header_of_a_run_describes_its_regimes():
    text = describe_run(build_setup(tiny(**RUN)))["regime"]
    assert text.startswith("RegimeSpec(hazard=0.4, least=2, views=ViewWeights(plain=1, inverted=1")
    assert "regime" not in describe_run(build_setup(tiny()))
