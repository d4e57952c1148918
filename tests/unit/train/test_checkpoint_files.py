"""Checkpoints and policy files: what is saved comes back bit for bit, what is damaged is refused by
name.
"""

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tensordict import TensorDict

from morphogen.config import files
from morphogen.errors import CheckpointError
from morphogen.policy.policy_files import load_policy, save_policy
from morphogen.state import rng, schema
from morphogen.state.tensor_trees import restore_tree, save_tree, to_nested_dict
from morphogen.train import checkpoint_store
from morphogen.train.checkpoint_files import load_checkpoint, save_checkpoint

SIZES = schema.Sizes(
    envs=2, slots=("r0c0", "r1c0"), host_params=5, seed_params=(3, 4), window=6, classes=10, table=7
)


def state(seed=0):
    """A state whose every leaf has values of its own."""
    key = rng.env_keys(seed, 0, 2)
    empty = schema.empty_state(SIZES, key, TensorDict({"phi": torch.zeros(2)}, batch_size=[2]))
    count = iter(range(1000))
    told_apart = empty.apply(
        lambda leaf: (torch.arange(leaf.numel()).view(leaf.shape) % 2 + next(count)).to(leaf.dtype)
    )
    assert told_apart is not None
    return told_apart


STATE = state()
SHARED = {"policy": {"w": torch.tensor([0.1, -2.0, 3.5])}, "rounds": 2, "name": "x"}


def save(folder, *, envs=STATE, shared=SHARED, round=1, epoch=0):
    return save_checkpoint(
        folder, round=round, epoch=epoch, envs=envs, shared=shared, facts={"config_sha256": "c"}
    )


def equal(first, second):
    if isinstance(first, dict):
        return set(first) == set(second) and all(equal(first[key], second[key]) for key in first)
    if isinstance(first, torch.Tensor):
        return first.dtype == second.dtype and torch.equal(first, second)
    return first == second


def names(path):
    return sorted(entry.name for entry in path.iterdir())


def test_what_was_saved_comes_back_bit_for_bit(tmp_path):
    found = load_checkpoint(save(tmp_path))
    assert equal(found["envs"], to_nested_dict(STATE))
    assert equal(found["shared"], SHARED)
    assert {
        key: found["manifest"][key] for key in ("format", "round", "epoch", "config_sha256")
    } == {
        "format": 8,
        "round": 1,
        "epoch": 0,
        "config_sha256": "c",
    }


def test_a_checkpoint_is_named_by_its_position_and_holds_three_files(tmp_path):
    path = save(tmp_path / "checkpoints", round=12, epoch=3)
    assert path == tmp_path / "checkpoints" / "round-000012-epoch-0003"
    assert names(path) == ["envs.rank0.safetensors", "manifest.json", "shared.safetensors"]
    assert names(path.parent) == [path.name]


def test_a_state_is_restored_into_its_own_types(tmp_path):
    found = restore_tree(load_checkpoint(save(tmp_path))["envs"], state(seed=5), "envs")
    schema.check_state(found, SIZES)
    assert type(found) is type(STATE)
    assert type(found.governor.slots) is type(STATE.governor.slots)
    assert equal(to_nested_dict(found), to_nested_dict(STATE))


def test_saving_what_was_loaded_gives_equal_files(tmp_path):
    first = load_checkpoint(save(tmp_path / "a"))
    second = load_checkpoint(save(tmp_path / "b", envs=first["envs"], shared=first["shared"]))
    assert equal(first["envs"], second["envs"])
    assert equal(first["shared"], second["shared"])


def test_saved_tensors_do_not_share_memory_with_the_run():
    copy = to_nested_dict({"a": STATE.host})
    assert copy["a"]["params"].data_ptr() != STATE.host.params.data_ptr()


def without(tree, path):
    first, _, rest = path.partition(".")
    if not rest:
        return {key: value for key, value in tree.items() if key != first}
    return {**tree, first: without(tree[first], rest)}


def having(tree, path, value):
    first, _, rest = path.partition(".")
    return {**tree, first: having(tree[first], rest, value) if rest else value}


@pytest.mark.parametrize(
    "leaf", ["host.params", "slots.alpha", "governor.seeds.r1c0.momentum", "ledger.phi", "key"]
)
def test_a_wrong_leaf_is_refused_by_name(leaf):
    tree = to_nested_dict(STATE)
    damages = {
        " is missing": without(tree, leaf),
        " is unknown": having(tree, leaf + "x", torch.zeros(2)),
        r": expected .*, got float32 \[2, 99\]": having(tree, leaf, torch.zeros(2, 99)),
        ": expected .*, got float16": having(tree, leaf, torch.zeros(2, dtype=torch.float16)),
        ": expected .*, got int": having(tree, leaf, 3),
    }
    for message, damaged in damages.items():
        with pytest.raises(CheckpointError, match=rf"envs\.{leaf}x?{message}"):
            restore_tree(damaged, STATE, "envs")


@given(
    where=st.floats(0, 0.999),
    bit=st.integers(0, 7),
    file=st.sampled_from([checkpoint_store.ENVS, checkpoint_store.SHARED]),
)
def test_a_flipped_bit_is_found(tmp_path_factory, where, bit, file):
    folder = tmp_path_factory.getbasetemp() / "bits"
    path = folder / checkpoint_store.checkpoint_name(1, 0)
    if not path.exists():
        save(folder)
    whole = (path / file).read_bytes()
    raw = bytearray(whole)
    raw[int(where * len(raw))] ^= 1 << bit
    (path / file).write_bytes(raw)
    try:
        with pytest.raises(CheckpointError, match=f"is damaged: sha256 of {file} differs"):
            load_checkpoint(path)
    finally:
        (path / file).write_bytes(whole)


def break_manifest(path, *, sealed=False, **fields):
    """Change a manifest; `sealed`: as whoever writes it on purpose."""
    manifest = {**json.loads((path / "manifest.json").read_bytes()), **fields}
    if sealed:
        del manifest["seal"]
        manifest["seal"] = checkpoint_store.manifest_sha256(manifest)
    (path / "manifest.json").write_text(json.dumps(manifest))


def cut(path):
    (path / "shared.safetensors").write_bytes((path / "shared.safetensors").read_bytes()[:-1])


DAMAGES = {
    "has no readable manifest.json": lambda path: (path / "manifest.json").unlink(),
    "has a damaged manifest.json": lambda path: (path / "manifest.json").write_text("{"),
    "has a damaged manifest": lambda path: (path / "manifest.json").write_text("[]"),
    "lacks envs.rank0.safetensors": lambda path: (path / "envs.rank0.safetensors").unlink(),
    r"is damaged: shared.safetensors has \d+ bytes": cut,
    "has format 3: expected format 8": lambda path: break_manifest(path, format=3),
    "its sha256 differs from its seal": lambda path: break_manifest(path, epoch=1),
    "has an invalid manifest.json: expected": lambda path: break_manifest(
        path, sealed=True, files={}
    ),
}


@pytest.mark.parametrize(("message", "damage"), DAMAGES.items(), ids=DAMAGES.keys())
def test_a_damaged_checkpoint_is_refused_with_the_reason(tmp_path, message, damage):
    path = save(tmp_path)
    damage(path)
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint(path)


@pytest.mark.parametrize(("message", "damage"), DAMAGES.items(), ids=DAMAGES.keys())
def test_a_damaged_checkpoint_is_replaced_by_the_next_save(tmp_path, message, damage):
    path = save(tmp_path)
    damage(path)
    assert save(tmp_path) == path
    assert equal(load_checkpoint(path)["envs"], to_nested_dict(STATE))
    assert names(tmp_path) == [path.name]


def test_a_whole_checkpoint_of_the_position_is_left_alone(tmp_path):
    path = save(tmp_path)
    before = (path / "manifest.json").stat().st_mtime_ns
    save(tmp_path, shared={})
    assert (path / "manifest.json").stat().st_mtime_ns == before
    assert equal(load_checkpoint(path)["shared"], SHARED)


@given(
    scores=st.lists(st.none() | st.floats(0, 100), min_size=1, max_size=6), keep=st.integers(1, 4)
)
def test_the_newest_ones_and_the_best_one_stay(tmp_path_factory, scores, keep):
    folder = tmp_path_factory.mktemp("kept")
    for round, score in enumerate(scores):
        facts = {"score": score}
        save_checkpoint(folder, round=round, epoch=0, envs={}, shared={}, facts=facts, keep=keep)
    known = [score for score in scores if score is not None]
    newest = {checkpoint_store.checkpoint_name(round, 0) for round in range(len(scores))[-keep:]}
    assert newest <= set(names(folder))
    assert len(names(folder)) <= keep + 1
    kept = [checkpoint_store.read_manifest(folder / name)["score"] for name in names(folder)]
    assert max((one for one in kept if one is not None), default=None) == max(known, default=None)
    assert all(checkpoint_store.find_damage(folder / name) is None for name in names(folder))


class Killed(BaseException):
    """The process ends here."""


def calls_until_done(monkeypatch, act, stop):
    """Run `act`, killed at file operation number `stop`; True if it came to its end before."""
    done = 0

    def counted(real):
        def call(*args, **kwargs):
            nonlocal done
            done += 1
            if done == stop:
                raise Killed
            return real(*args, **kwargs)

        return call

    path = type(files.Path())
    with monkeypatch.context() as patch:
        for name in ("mkdir", "rename"):
            patch.setattr(path, name, counted(getattr(path, name)))
        patch.setattr(files, "sync_folder", counted(files.sync_folder))
        for name in ("open", "fsync"):
            patch.setattr(files.os, name, counted(getattr(files.os, name)))
        try:
            act()
        except Killed:
            return False
    return True


def test_difference_18_a_kill_at_any_file_operation_leaves_the_checkpoint_before_loadable(
    tmp_path, monkeypatch
):
    before = save(tmp_path, round=1)
    stop, done = 0, False
    while not done:
        stop += 1
        done = calls_until_done(monkeypatch, lambda: save(tmp_path, round=2), stop)
        assert equal(load_checkpoint(before)["envs"], to_nested_dict(STATE))
        found = [name for name in names(tmp_path) if name.startswith("round-")]
        assert all(equal(load_checkpoint(tmp_path / name)["shared"], SHARED) for name in found)
    assert stop > 8
    save(tmp_path, round=3)
    assert names(tmp_path) == [checkpoint_store.checkpoint_name(round, 0) for round in (1, 2, 3)]


def test_a_place_that_cannot_be_written_is_a_checkpoint_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="cannot be written"):
        save(tmp_path / "file")
    with pytest.raises(CheckpointError, match="cannot be written"):
        save_policy(
            tmp_path / "no" / "policy.safetensors", params={}, normalisers={}, config="{}", facts={}
        )


PARAMS = {"trunk": {"weight": torch.ones(2, 3)}, "head": torch.zeros(4)}
NORMALISERS = TensorDict(
    {"mean": torch.zeros(5, dtype=torch.float64), "count": torch.tensor(3)}, batch_size=[]
)


def policy(tmp_path):
    path = tmp_path / "policy.safetensors"
    save_policy(
        path,
        params=PARAMS,
        normalisers=NORMALISERS,
        config='{"task": "digits"}',
        facts={"round": 4},
    )
    return path


def test_a_policy_comes_back_with_normalisers_and_config(tmp_path):
    found = load_policy(policy(tmp_path), params=PARAMS, normalisers=NORMALISERS)
    assert equal(found["params"], PARAMS)
    assert equal(found["normalisers"], to_nested_dict(NORMALISERS))
    assert found["config"] == '{"task": "digits"}'
    assert found["facts"] == {"round": 4}
    assert names(tmp_path) == ["policy.safetensors"]
    for path in (tmp_path, str(tmp_path), str(tmp_path / "policy.safetensors")):
        assert equal(load_policy(path)["params"], PARAMS)


def test_a_checkpoint_is_loaded_by_the_text_of_its_path(tmp_path):
    path = save(tmp_path)
    assert equal(load_checkpoint(str(path))["shared"], load_checkpoint(path)["shared"])


def test_a_policy_of_another_shape_is_refused_by_leaf(tmp_path):
    other = {"trunk": {"weight": torch.ones(2, 4)}, "head": torch.zeros(4)}
    with pytest.raises(
        CheckpointError,
        match=r"params.trunk.weight: expected float32 \[2, 4\], got float32 \[2, 3\]",
    ):
        load_policy(policy(tmp_path), params=other)
    with pytest.raises(CheckpointError, match=r"normalisers.mean is unknown"):
        load_policy(policy(tmp_path), normalisers={"count": torch.tensor(0)})


def test_files_that_are_no_policy_are_refused(tmp_path):
    path = policy(tmp_path)
    (tmp_path / "cut").write_bytes(path.read_bytes()[:50])
    (tmp_path / "text").write_text("hello")
    torch.save({"format": 3}, tmp_path / "older")
    save_tree([1, 2], tmp_path / "list")
    save_tree({**load_policy(path), "format": 9}, tmp_path / "newer")
    save_tree({**load_policy(path), "params": 3}, tmp_path / "odd")
    reasons = {
        "absent": "is missing",
        "cut": "cannot be read",
        "text": "cannot be read",
        "older": "cannot be read: expected a safetensors file",
        "list": "is not a policy file",
        "newer": "expected format 5, got 9",
        "odd": "params: expected a dict, got a int",
    }
    for name, reason in reasons.items():
        with pytest.raises(CheckpointError, match=rf"{name}:? {reason}"):
            load_policy(tmp_path / name)


def test_the_policy_of_an_older_run_is_refused_in_one_sentence(tmp_path):
    torch.save({"format": 3}, tmp_path / "policy.pt")
    with pytest.raises(CheckpointError, match=r"policy\.pt cannot be read: .* older format$"):
        load_policy(tmp_path)
