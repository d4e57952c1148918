"""`host.weights`: hosts start from parameters in files."""

import pickle

import pytest
import torch
from safetensors.torch import save_file
from support.module_nets import Skips

import morphogen as mg
from morphogen.errors import ConfigError


def leaves_of(env, row):
    parts = env.net.host_layout.leaf_parts(row)
    return {leaf.name: part.reshape(leaf.shape).clone() for leaf, part in parts}


@pytest.fixture
def files(tmp_path):
    """Two files of parameters of the host of `tiny`, and their rows."""
    env = mg.make("tiny", envs=2, seed=5)
    rows = env.reset()[0].host.params
    paths = tmp_path / "one.safetensors", tmp_path / "two.pt"
    save_file(leaves_of(env, rows[0]), paths[0])
    torch.save(leaves_of(env, rows[1]), paths[1])
    return [str(path) for path in paths], rows


def test_envs_start_from_the_files_in_turn_in_every_episode(files):
    names, rows = files
    env = mg.make("tiny", envs=3, seed=0, host={"weights": names})
    state, _ = env.reset()
    assert state.host.params.equal(rows[[0, 1, 0]])
    after, _ = env.step(state, mg.actions.wait(env))
    assert not after.host.params.equal(state.host.params)
    again, _ = env.restart(after, torch.tensor([True, True, False]))
    assert again.host.params[:2].equal(rows)
    assert again.host.params[2].equal(after.host.params[2])


def test_an_env_starts_from_the_file_of_its_number_in_any_shard(files):
    names, rows = files
    env = mg.make("tiny", envs=2, seed=0, first=1, host={"weights": names})
    assert env.reset()[0].host.params.equal(rows[[1, 0]])


def test_a_run_knows_its_files_by_their_contents(files):
    names, _ = files
    setups = [
        mg.make("tiny", envs=2, host={"weights": given}).setup for given in (names, names[:1], [])
    ]
    assert len({setup.dataset.fingerprint for setup in setups}) == 3


def test_entries_that_do_not_train_are_left_out(tmp_path):
    module = Skips()
    save_file(module.state_dict(), tmp_path / "skips.safetensors")
    host = mg.host_from_module(Skips, example=torch.zeros(2, 6, 6))
    net = mg.Net(host, host.all_slots, weights=(str(tmp_path / "skips.safetensors"),))
    assert net.start[0].equal(torch.cat([x.detach().flatten() for x in module.parameters()])[None])


def write(path, change):
    env = mg.make("tiny", envs=1, seed=5)
    leaves = leaves_of(env, env.reset()[0].host.params[0])
    change(leaves)
    save_file(leaves, path)


CHANGES = {
    "missing: head.bias": lambda leaves: leaves.pop("head.bias"),
    "extra: tail": lambda leaves: leaves.update(tail=torch.zeros(1)),
    r"of another shape: head.bias \[3\] in place of \[10\]": lambda leaves: leaves.update(
        {"head.bias": torch.zeros(3)}
    ),
    "expected finite numbers": lambda leaves: leaves["head.bias"].fill_(torch.nan),
}


@pytest.mark.parametrize("words", CHANGES)
def test_a_wrong_file_is_refused_in_one_line(tmp_path, words):
    path = tmp_path / "wrong.safetensors"
    write(path, CHANGES[words])
    with pytest.raises(ConfigError, match=words) as caught:
        mg.make("tiny", envs=1, host={"weights": [str(path)]})
    assert "\n" not in str(caught.value)


def test_a_file_with_code_or_without_tensors_is_refused(tmp_path):
    paths = {
        name: tmp_path / name for name in ("code.pt", "list.pt", "torn.safetensors", "none.pt")
    }
    paths["code.pt"].write_bytes(pickle.dumps({"head.bias": print}))
    torch.save([1, 2], paths["list.pt"])
    paths["torn.safetensors"].write_bytes(b"12345")
    for path in paths.values():
        with pytest.raises(ConfigError, match=r"host\.weights: .*expected") as caught:
            mg.make("tiny", envs=1, host={"weights": [str(path)]})
        assert "\n" not in str(caught.value)
