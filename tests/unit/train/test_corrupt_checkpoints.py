"""Whatever becomes of the files of a checkpoint: it gives the numbers that were saved, or it is
refused by name.
"""

import errno
import os
import shutil

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support import profiles, run_comparison

from morphogen.config import files
from morphogen.errors import CheckpointError
from morphogen.state.tensor_trees import load_tree
from morphogen.train.checkpoint_files import load_checkpoint, save_checkpoint
from morphogen.train.checkpoint_store import ENVS, MANIFEST, SHARED

FILES = (ENVS, SHARED, MANIFEST)


def save(folder, round):
    """A checkpoint whose numbers no other one has."""
    draw = torch.Generator().manual_seed(round)
    envs = {
        "state": {"weights": torch.randn(4, 50, generator=draw), "count": torch.tensor([round, 7])}
    }
    shared = {
        "learner": {"step": torch.tensor(round)},
        "best": 0.5 / round,
        "name": f"round {round}",
    }
    facts = {"run_id": "r", "config": {"rounds": 9}, "score": 1.5 * round, "best": None}
    return save_checkpoint(folder, round=round, epoch=0, envs=envs, shared=shared, facts=facts)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Two checkpoints of one run, and what the second one holds."""
    folder = tmp_path_factory.mktemp("saved")
    return [(path, load_checkpoint(path)) for path in (save(folder, 1), save(folder, 2))]


@pytest.fixture
def spoiled(saved, tmp_path):
    """The second one, to be spoiled."""
    path = tmp_path / saved[1][0].name
    shutil.copytree(saved[1][0], path)
    return path


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


def equal(found, wanted):
    return not list(run_comparison.tree_differences(found, wanted, ""))


def judged(path, wanted, names):
    """Return whether the file is refused by name; otherwise check its numbers."""
    refusal = None
    try:
        assert equal(load_checkpoint(path), wanted)
    except CheckpointError as error:
        refusal = str(error)
    assert refusal is None or (str(path) in refusal and any(name in refusal for name in names)), (
        refusal
    )
    return refusal is not None


@each_damage
@pytest.mark.parametrize("file", FILES)
@settings(max_examples=profiles.one_in(3))
@given(where=st.floats(0, 1), bit=st.integers(0, 7))
def test_a_damaged_file_is_refused_by_name_or_was_not_needed(
    tmp_path_factory, saved, damage, file, where, bit
):
    path = tmp_path_factory.mktemp("spoiled") / saved[1][0].name
    shutil.copytree(saved[1][0], path)
    damage(path / file, where, bit)
    refused = judged(path, saved[1][1], [file, "has format"])
    assert refused or file == MANIFEST, "a file was read that is not the one that was written"


@pytest.mark.parametrize("file", FILES)
def test_a_file_of_another_checkpoint_is_refused(saved, spoiled, file):
    shutil.copyfile(saved[0][0] / file, spoiled / file)
    assert judged(spoiled, saved[1][1], FILES)


@pytest.mark.parametrize(("one", "other"), [(ENVS, SHARED), (ENVS, MANIFEST), (SHARED, MANIFEST)])
def test_files_that_changed_places_are_refused(saved, spoiled, one, other):
    (spoiled / one).rename(spoiled / "between")
    (spoiled / other).rename(spoiled / one)
    (spoiled / "between").rename(spoiled / other)
    assert judged(spoiled, saved[1][1], [one, other])


def test_a_manifest_that_was_written_by_hand_is_refused(saved, spoiled):
    text = (spoiled / MANIFEST).read_text()
    assert '"round": 2' in text
    (spoiled / MANIFEST).write_text(text.replace('"round": 2', '"round": 1'))
    assert judged(spoiled, saved[1][1], [MANIFEST])


def test_a_file_more_does_not_matter(saved, spoiled):
    (spoiled / "notes.txt").write_text("mine")
    assert not judged(spoiled, saved[1][1], [])


@each_damage
@pytest.mark.parametrize("file", FILES)
def test_what_is_damaged_is_written_anew_by_the_next_save_there(saved, spoiled, damage, file):
    damage(spoiled / file, 0.5, 1)
    path = save(spoiled.parent, 2)
    assert path == spoiled
    assert equal(load_checkpoint(path), saved[1][1])
    assert [entry.name for entry in spoiled.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("file", [ENVS, SHARED])
def test_a_file_that_the_disk_does_not_give_back_is_refused_by_name(
    saved, spoiled, monkeypatch, file
):
    def read(path):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    whole = files.sha256
    monkeypatch.setattr(files, "sha256", lambda path: (read if path.name == file else whole)(path))
    assert judged(spoiled, saved[1][1], [f"has no readable {file}: Input/output error"])


def test_without_the_hashes_a_flipped_bit_would_be_read_as_if_it_were_right(saved, spoiled):
    raw, numbers = (
        (spoiled / ENVS).read_bytes(),
        saved[1][1]["envs"]["state"]["weights"].numpy().tobytes(),
    )
    assert raw.count(numbers) == 1
    (spoiled / ENVS).write_bytes(raw.replace(numbers, numbers[:-1] + bytes([numbers[-1] ^ 1])))
    assert not equal(load_tree(spoiled / ENVS, label="file"), saved[1][1]["envs"])
    assert judged(spoiled, saved[1][1], [ENVS])
