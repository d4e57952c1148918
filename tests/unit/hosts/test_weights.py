"""`host.weights`: envs start from networks in files, with their seeds."""

import json
import pickle

import pytest
import torch
from safetensors.torch import save_file

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


def seed_entries(env, slot, blueprint, gated=False):
    """Entries of a seed, by names of their own, and its description."""
    s = env.net.names.index(slot)
    layout, gate = env.net.layouts(s, (blueprint,))
    leaves = [*layout.leaves, *(gate.leaves if gated else ())]
    tensors = {
        f"slots.{slot}.{k}": torch.arange(leaf.size).view(leaf.shape) / 64.0 + k
        for k, leaf in enumerate(leaves)
    }
    form = {"blueprint": blueprint.label, "algorithm": "GATE" if gated else "ADD", "alpha": 0.75}
    return tensors, {**form, "entries": [*tensors]}


def write_grown(path, env, seeds, change=lambda tensors, slots: None):
    """A file of a host with seeds."""
    tensors = leaves_of(env, env.reset()[0].host.params[0])
    slots = {}
    for slot, (entries, form) in seeds.items():
        tensors |= {**entries, f"slots.{slot}.alpha": torch.tensor(form["alpha"])}
        slots[slot] = form
    tensors["normalisation.gain"] = torch.ones(1)
    change(tensors, slots)
    save_file(tensors, path, {"network": json.dumps({"slots": slots, "arm": "mine"})})
    return str(path)


@pytest.fixture
def grown_file(tmp_path):
    env = mg.make("tiny", envs=1, seed=5)
    seeds = {
        "r0c0": seed_entries(env, "r0c0", mg.Blueprint.CONV_SMALL),
        "r1c0": seed_entries(env, "r1c0", mg.Blueprint.NORM, gated=True),
    }
    return write_grown(tmp_path / "grown.safetensors", env, seeds), seeds


def test_seeds_of_a_file_are_kept_for_good_in_every_episode(grown_file, files):
    names, rows = files
    path, seeds = grown_file
    env = mg.make("tiny", envs=3, seed=0, host={"weights": [path, names[1]]}, max_seeds=0)
    state, inputs = env.reset()
    kept = int(mg.Stage.FOSSILIZED)
    assert state.slots.stage.tolist() == [[kept, kept], [1, 1], [kept, kept]]
    assert state.slots.alpha.tolist() == [[0.75, 0.75], [0, 0], [0.75, 0.75]]
    assert state.slots.blueprint.tolist() == [[6, 3], [-1, -1], [6, 3]]
    assert state.slots.algorithm.tolist() == [[1, 3], [0, 0], [1, 3]]
    assert state.host.params[1].equal(rows[1])
    body = torch.cat([x.flatten() for x in seeds["r0c0"][0].values()])
    assert state.seeds["r0c0", "params"][0, : len(body)].equal(body)
    assert not state.seeds["r0c0", "params"][0, len(body) :].any()
    assert not inputs.masks.op[0, mg.Op.GERMINATE]
    assert inputs.masks.op[1, mg.Op.GERMINATE]
    after, step = env.step(state, mg.actions.wait(env))
    sizes = [sum(x.numel() for x in seeds[slot][0].values()) for slot in ("r0c0", "r1c0")]
    assert step.seed_params.tolist() == [sizes, [0, 0], sizes]
    assert not after.seeds["r1c0", "params"].equal(state.seeds["r1c0", "params"])
    again, _ = env.restart(after, torch.tensor([True, True, False]))
    for name in ("r0c0", "r1c0"):
        assert again.seeds[name, "params"][:2].equal(state.seeds[name, "params"][:2])
        assert again.seeds[name, "params"][2].equal(after.seeds[name, "params"][2])
    assert again.signals.val_acc[:2].equal(state.signals.val_acc[:2])


def test_the_price_counts_the_seeds_of_a_file(grown_file, files):
    path, seeds = grown_file
    priced = {"instance": {"param_price": [0.5, 0.5]}, "reward": {"rule": "value"}}
    env = mg.make("tiny", envs=2, seed=0, host={"weights": [path, files[0][0]]}, **priced)
    _, step = env.step(env.reset()[0], mg.actions.wait(env))
    count = sum(x.numel() for tensors, _ in seeds.values() for x in tensors.values())
    cost = step.measured.committed_acc / 100 - step.score.network_value
    assert cost.tolist() == pytest.approx([0.5 * count / env.setup.budget, 0.0], abs=1e-6)


def test_a_reset_with_seeds_reads_its_plan_once(grown_file):
    env = mg.make("tiny", envs=2, seed=0, host={"weights": [grown_file[0]]})
    env.reset()
    assert env.ledger["plan"] == 1
    bare = mg.make("tiny", envs=2, seed=0)
    bare.reset()
    assert bare.ledger["plan"] == 0


def rename(slots, name):
    slots[name] = slots.pop("r0c0")


def of_kind(slots, **form):
    slots["r0c0"].update(form)


GROWN_CHANGES = {
    r"expected seeds of .*norm.* in r0c0, r1c0, got 'conv_small' in 'r9c9'": (
        lambda tensors, slots: rename(slots, "r9c9")
    ),
    r"expected seeds of conv_light, .*, got 'mlp' in 'r0c0'": (
        lambda tensors, slots: of_kind(slots, blueprint="mlp")
    ),
    r"missing: slots\.r0c0\.0": lambda tensors, slots: tensors.pop("slots.r0c0.0"),
    r"missing: scale; extra: slots\.r0c0\.2": (
        lambda tensors, slots: slots["r0c0"]["entries"].pop()
    ),
    r"extra: slots\.r0c0\.9": (
        lambda tensors, slots: tensors.update({"slots.r0c0.9": torch.zeros(1)})
    ),
    r"of another shape: slots\.r0c0\.1 \[1\] in place of \[4\]": (
        lambda tensors, slots: tensors.update({"slots.r0c0.1": torch.zeros(1)})
    ),
    r"expected finite numbers": lambda tensors, slots: tensors["slots.r1c0.0"].fill_(torch.inf),
    r"without code, got ValidationError": lambda tensors, slots: of_kind(slots, alpha=2.0),
    r"got ValidationError": lambda tensors, slots: of_kind(slots, algorithm="MIX"),
}


@pytest.mark.parametrize("words", GROWN_CHANGES)
def test_a_wrong_seed_is_refused_in_one_line(tmp_path, words):
    env = mg.make("tiny", envs=1, seed=5)
    seeds = {
        "r0c0": seed_entries(env, "r0c0", mg.Blueprint.CONV_SMALL),
        "r1c0": seed_entries(env, "r1c0", mg.Blueprint.NORM, gated=True),
    }
    path = write_grown(tmp_path / "wrong.safetensors", env, seeds, GROWN_CHANGES[words])
    with pytest.raises(ConfigError, match=words) as caught:
        mg.make("tiny", envs=1, host={"weights": [path]})
    assert "\n" not in str(caught.value)


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
