"""A save that does not come to its end, killed or out of room: what was saved before is there, and
so is the rest.
"""

import contextlib
from functools import partial
from itertools import count

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support import killed_processes, profiles
from support.made_up_checkpoints import made_up

from morphogen.errors import CheckpointError
from morphogen.policy.policy_files import save_policy
from morphogen.train import checkpoint_store
from morphogen.train.checkpoint import load_checkpoint


def save(folder, round, **more):
    """A checkpoint whose every number is its round."""
    carry = {
        "weights": torch.full((3000,), float(round)),
        "deep": {"count": torch.tensor([round])},
    }
    return made_up(round, carry=carry, score=None).save(folder, **more)


def loading(folder):
    """The rounds of the checkpoints that load, newest first; each has to be right."""
    found = []
    for path in sorted(folder.glob("round-*"), reverse=True):
        with contextlib.suppress(CheckpointError):
            found.append(right(path))
    return found


def right(path):
    found = load_checkpoint(path)
    round, _ = found.position
    assert path.name == checkpoint_store.checkpoint_name(round, 0)
    assert torch.equal(found.carry["weights"], torch.full((3000,), float(round)))
    assert found.carry["deep"]["count"].tolist() == [round]
    return round


def saves_again(folder):
    """The next save is the only one that is kept, and clears up after the others."""
    save(folder, 3, keep=1)
    assert loading(folder) == [3]
    assert not list(folder.glob(".*"))


def beside_an_older_one(folder):
    save(folder, 1)


def among_leftovers(folder):
    """A damaged checkpoint, and folders of processes that died."""
    save(folder, 1)
    (save(folder, 2) / checkpoint_store.STATE).write_bytes(b"")
    for name in (
        f".tmp-round-000002-epoch-0000-{16 * '1'}",
        f".trash-round-000000-epoch-0000-{16 * '1'}",
    ):
        (folder / name).mkdir()
        (folder / name / checkpoint_store.STATE).write_bytes(b"half")


def ends(tmp_path, scene, then):
    """For every file operation of a save: how it ended where `then` came before it, and what is
    newest.
    """
    for number in count(1):
        folder = tmp_path / str(number)
        scene(folder)
        code = killed_processes.forked(
            killed_processes.at_operation(number, then, partial(save, folder, 2, keep=1))
        )
        yield code, loading(folder)[0]
        saves_again(folder)
        if code == killed_processes.DONE and number > 40:
            return


SCENES = (beside_an_older_one, among_leftovers)


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_a_kill_between_any_two_file_operations_leaves_the_old_checkpoint_or_the_new_one(
    tmp_path, scene
):
    found = list(ends(tmp_path, scene, killed_processes.die))
    codes, rounds = zip(*found, strict=True)
    killed = codes.index(killed_processes.DONE)
    assert killed > 15
    assert set(codes[:killed]) == {killed_processes.DEAD}
    assert set(codes[killed:]) == {killed_processes.DONE}
    assert sorted(rounds) == list(rounds), "the new one was there already, and is gone again"
    assert set(rounds[:killed]) == {1, 2}
    assert set(rounds[killed:]) == {2}


def test_a_disk_that_is_full_at_any_file_operation_refuses_the_save_and_spoils_nothing(tmp_path):
    found = list(ends(tmp_path, among_leftovers, killed_processes.refuse))
    codes, rounds = zip(*found, strict=True)
    assert set(codes) == {killed_processes.DONE, killed_processes.REFUSED}
    assert set(rounds) == {1, 2}
    assert all(round == 2 for code, round in found if code == killed_processes.DONE)


@settings(max_examples=profiles.one_in(4))
@given(where=st.floats(0, 1), dies=st.booleans())
def test_a_save_that_ends_inside_a_file_leaves_the_one_before(tmp_path_factory, where, dies):
    folder = tmp_path_factory.mktemp("cut")
    whole = save(folder, 1) / checkpoint_store.STATE
    room = int(where * (whole.stat().st_size - 1))
    code = killed_processes.forked(
        killed_processes.at_byte(room, partial(save, folder, 2), dies=dies)
    )
    assert code == (killed_processes.CUT if dies else killed_processes.REFUSED)
    assert loading(folder) == [1]
    assert dies or not list(folder.glob(".*")), "what is half written takes room that is wanted"
    saves_again(folder)


def test_a_policy_file_that_cannot_be_written_whole_leaves_the_one_before(tmp_path):
    path = tmp_path / "policy.safetensors"
    save_policy(path, params={"w": torch.ones(3000)}, normalisers={}, config="{}", facts={})
    before = path.read_bytes()
    again = partial(
        save_policy, path, params={"w": torch.zeros(3000)}, normalisers={}, config="{}", facts={}
    )
    for room in range(0, len(before), 1000):
        assert (
            killed_processes.forked(killed_processes.at_byte(room, again, dies=False))
            == killed_processes.REFUSED
        )
        assert path.read_bytes() == before
        assert [entry.name for entry in tmp_path.iterdir()] == ["policy.safetensors"]
