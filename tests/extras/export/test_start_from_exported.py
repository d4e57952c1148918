"""Round trips: an exported network in a file, from which an env starts."""

import dataclasses

import pytest
import torch
from support import small_states

from morphogen.errors import ConfigError
from morphogen.extras.export.exported import build_plain
from morphogen.extras.export.network_files import save_network
from morphogen.hosts.net import Net
from morphogen.steps.reset_step import reset
from morphogen.steps.validate_step import validate
from morphogen.vocab.stage import Stage
from tests.extras.export.test_export import NETS, grown, labelled, scores


def files_of(net, state, folder, seeds):
    """A file of each env, and the plain networks."""
    made = [build_plain(net, state, i, seeds=seeds).eval() for i in range(state.batch_size[0])]
    paths = [folder / f"{i}.safetensors" for i in range(len(made))]
    for module, path in zip(made, paths, strict=True):
        save_network(module, torch.zeros(0), path)
    return made, tuple(str(path) for path in paths)


def restarted(net, state):
    """Envs at their reset in the instances of others."""
    noise = torch.rand(len(state.key), net.host_size, generator=torch.Generator().manual_seed(1))
    start = {"episode": state.clock.episode, "ledger": state.ledger, "net": net, "window": 4}
    return reset(state.key, state.instance, noise, **start)


@pytest.mark.parametrize(
    ("name", "seeds"), [*((name, "all") for name in NETS), ("cnn", "delivered")]
)
def test_an_env_that_starts_from_an_exported_network_scores_like_it(name, seeds, tmp_path):
    net = NETS[name]()
    state = grown(net)
    made, paths = files_of(net, state, tmp_path, seeds)
    again = dataclasses.replace(net, weights=paths)
    start = restarted(again, state)
    split, inputs, labels = labelled(net)
    asked = small_states.every(start, net)
    measured = validate(start, split, *asked, small_states.plan(start, net), net=again)
    for i, module in enumerate(made):
        loss, accuracy = scores(module, inputs, labels)
        assert loss == pytest.approx(float(measured.loss[i]), rel=1e-4, abs=1e-5)
        assert accuracy == pytest.approx(float(measured.accuracy[i, 0]), abs=1e-3)


@pytest.mark.parametrize("name", NETS)
def test_the_seeds_of_a_file_are_kept_for_good_with_their_alpha_and_parameters(name, tmp_path):
    net = NETS[name]()
    state = grown(net)
    _, paths = files_of(net, state, tmp_path, "all")
    start = restarted(dataclasses.replace(net, weights=paths), state)
    assert start.slots.stage.eq(int(Stage.FOSSILIZED)).all()
    for leaf in ("blueprint", "algorithm", "alpha"):
        assert getattr(start.slots, leaf).equal(getattr(state.slots, leaf)), leaf
    for s, slot in enumerate(net.slots):
        before, after = state.seeds[slot.name, "params"], start.seeds[slot.name, "params"]
        for i in range(len(before)):
            body = net.counts[s][int(state.slots.blueprint[i, s])]
            assert after[i, :body].equal(before[i, :body])
            gate = slice(len(after[i]) - net.gate_counts[s], None)
            is_gated = int(state.slots.algorithm[i, s]) == 3
            assert after[i, gate].equal(before[i, gate] * is_gated)


def test_a_network_of_another_net_is_refused_in_one_line(tmp_path):
    net = small_states.net()
    state = grown(net)
    _, paths = files_of(net, state, tmp_path, "all")
    first = Net(net.host, net.slots[:1])
    with pytest.raises(ConfigError, match=r"expected seeds of .* in r0c0, got '\w+' in 'r\dc\d'"):
        dataclasses.replace(first, weights=paths[:1])
