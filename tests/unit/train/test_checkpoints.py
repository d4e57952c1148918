"""Checkpoints on disk: a saved one comes back bit for bit, a damaged one is refused by name."""

import dataclasses
import errno
import json
import os
import shutil

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support import profiles, run_comparison
from support.made_up_checkpoints import made_up

from morphogen.config import files
from morphogen.errors import CheckpointError
from morphogen.train import checkpoint_store
from morphogen.train.checkpoint import load_checkpoint
from morphogen.train.checkpoint_store import MANIFEST, STATE

FILES = (STATE, MANIFEST)


def checkpoint(round=2):
    """A checkpoint whose numbers no other one has."""
    draw = torch.Generator().manual_seed(round)
    carry = {"state": {"x": torch.randn(4, 50, generator=draw), "count": torch.tensor([round, 7])}}
    learner = {"step": torch.tensor(round, dtype=torch.int16)}
    return made_up(round, learner=learner, carry=carry, run_id="r", score=1.5 * round)


def equal(one, other):
    """Return True for two checkpoints of the same bits; sizes and hashes of files aside."""
    trees = [dataclasses.asdict(dataclasses.replace(it, manifest={})) for it in (one, other)]
    wanted = one.manifest.items() & other.manifest.items()
    shared = {"round", "epoch", "run_id", "score"} <= dict(wanted).keys()
    return shared and not list(run_comparison.tree_differences(*trees, ""))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Two checkpoints of one run."""
    folder = tmp_path_factory.mktemp("saved")
    return [checkpoint(round).save(folder) for round in (1, 2)]


@pytest.fixture
def spoiled(saved, tmp_path):
    """The second one, to be spoiled."""
    return shutil.copytree(saved[1], tmp_path / saved[1].name)


def test_a_saved_checkpoint_comes_back_bit_for_bit(saved):
    loaded = load_checkpoint(str(saved[1]))
    assert loaded.position == (2, 0)
    assert equal(loaded, checkpoint())
    assert saved[1].name == checkpoint_store.checkpoint_name(2, 0)
    assert sorted(entry.name for entry in saved[1].iterdir()) == sorted(FILES)


def flip(path, where, bit):
    raw = bytearray(path.read_bytes())
    raw[int(where * (len(raw) - 1))] ^= 1 << bit
    path.write_bytes(raw)


def cut(path, where, _):
    raw = path.read_bytes()
    path.write_bytes(raw[: int(where * (len(raw) - 1))])


def garble(path, where, bit):
    """A block that holds something else."""
    raw = bytearray(path.read_bytes())
    block = slice(int(where * (len(raw) - 1)), int(where * (len(raw) - 1)) + (8 << bit))
    raw[block] = bytes(255 - byte for byte in raw[block])
    path.write_bytes(raw)


def lengthen(path, where, bit):
    raw = path.read_bytes()
    start = int(where * len(raw))
    path.write_bytes(raw[:start] + bytes([bit]) + raw[start:])


def delete(path, *_):
    path.unlink()


def folder_instead(path, *_):
    path.unlink()
    path.mkdir()


def link_to_nothing(path, *_):
    path.unlink()
    path.symlink_to("nothing")


DAMAGES = (flip, cut, garble, lengthen, delete, folder_instead, link_to_nothing)
each_damage = pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)


def refused(path, *reasons):
    """Return True for a checkpoint that is refused by name and reason; others are the second one."""
    reason = None
    try:
        loaded = load_checkpoint(path)
    except CheckpointError as error:
        reason = str(error)
    if reason is None:
        assert equal(loaded, checkpoint())
        return False
    assert str(path) in reason
    assert any(known in reason for known in reasons), reason
    return True


@each_damage
@pytest.mark.parametrize("file", FILES)
@settings(max_examples=profiles.one_in(3))
@given(where=st.floats(0, 1), bit=st.integers(0, 7))
def test_a_damaged_file_is_refused_by_name_or_was_not_needed(
    tmp_path_factory, saved, damage, file, where, bit
):
    path = shutil.copytree(saved[1], tmp_path_factory.mktemp("spoiled") / saved[1].name)
    damage(path / file, where, bit)
    assert refused(path, file, "has format") or file == MANIFEST


@pytest.mark.parametrize("file", FILES)
def test_a_file_of_another_checkpoint_is_refused(saved, spoiled, file):
    shutil.copyfile(saved[0] / file, spoiled / file)
    assert refused(spoiled, *FILES)


def rewrite(path, *, sealed=False, **fields):
    """Change a manifest; `sealed`: like somebody who writes it on purpose."""
    manifest = {**json.loads((path / MANIFEST).read_bytes()), **fields}
    if sealed:
        del manifest["seal"]
        manifest["seal"] = checkpoint_store.manifest_sha256(manifest)
    (path / MANIFEST).write_text(json.dumps(manifest))


REWRITES = {
    "has format 3: expected format 9": {"format": 3},
    "its sha256 differs from its seal": {"epoch": 1},
    "has an invalid manifest.json: expected round, epoch, bytes, sha256": {
        "sealed": True,
        "sha256": None,
    },
}


@pytest.mark.parametrize(("reason", "fields"), REWRITES.items(), ids=REWRITES)
def test_a_manifest_that_was_written_by_hand_is_refused(spoiled, reason, fields):
    rewrite(spoiled, **fields)
    assert refused(spoiled, reason)


@each_damage
@pytest.mark.parametrize("file", FILES)
def test_a_damaged_checkpoint_is_replaced_by_the_next_save(spoiled, damage, file):
    damage(spoiled / file, 0.5, 1)
    assert checkpoint().save(spoiled.parent) == spoiled
    assert not refused(spoiled)
    assert [entry.name for entry in spoiled.parent.iterdir()] == [spoiled.name]


def test_an_undamaged_checkpoint_of_the_position_is_left_alone(spoiled):
    before = (spoiled / MANIFEST).stat().st_mtime_ns
    made_up(2).save(spoiled.parent)
    assert (spoiled / MANIFEST).stat().st_mtime_ns == before
    assert not refused(spoiled)


def test_a_file_that_the_disk_does_not_give_back_is_refused_by_name(spoiled, monkeypatch):
    def read(path):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(files, "sha256", read)
    assert refused(spoiled, f"has no readable {STATE}: Input/output error")


@given(
    scores=st.lists(st.none() | st.floats(0, 100), min_size=1, max_size=6), keep=st.integers(1, 4)
)
def test_the_newest_ones_and_the_best_one_stay(tmp_path_factory, scores, keep):
    folder = tmp_path_factory.mktemp("kept")
    for round, score in enumerate(scores):
        made_up(round, score=score).save(folder, keep=keep)
    names = sorted(entry.name for entry in folder.iterdir())
    newest = {checkpoint_store.checkpoint_name(round, 0) for round in range(len(scores))[-keep:]}
    assert newest <= set(names)
    assert len(names) <= keep + 1
    kept = [checkpoint_store.read_manifest(folder / name)["score"] for name in names]
    known = [score for score in scores if score is not None]
    assert max((one for one in kept if one is not None), default=None) == max(known, default=None)
    assert all(checkpoint_store.find_damage(folder / name) is None for name in names)


def test_a_place_that_cannot_be_written_is_a_checkpoint_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="cannot be written"):
        checkpoint().save(tmp_path / "file")
