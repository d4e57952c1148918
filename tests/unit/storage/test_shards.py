"""Shards of a checkpoint: whatever number of ranks saved it, any other number that divides the envs loads it."""

import errno

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support import run_comparison
from support.thread_ranks import run_ranks

from morphogen.device.collectives import Collectives
from morphogen.errors import CheckpointError
from morphogen.storage import checkpoint_store, files
from morphogen.storage.checkpoint_files import load_checkpoint, read_part, save_checkpoint
from morphogen.storage.shards import join_envs, overlapping_shards, take_envs
from morphogen.storage.tensor_trees import memory_order

DIVISORS = st.sampled_from([1, 2, 3, 4, 6, 12])
ENVS = 12


def tree_of(envs=ENVS, epochs=3):
    """Every number is of one env and epoch; two leaves have their axes in another order in memory."""
    number = torch.arange(envs)
    images = (number.view(-1, 1, 1, 1) * 100 + torch.arange(2 * 3 * 5).view(1, 2, 3, 5)).float()
    later = (torch.arange(epochs).view(-1, 1) * 1000 + number).double()
    return {
        "state": {
            "host": {"x": images.contiguous(memory_format=torch.channels_last)},
            "turned": images[:, 0].transpose(1, 2).contiguous().transpose(1, 2),
            "key": number.clone(),
        },
        "segment": number % 2 == 0,
        "rollout": {"masks": {"op": later.unsqueeze(-1).expand(-1, -1, 4).clone()}, "reward": later},
        "columns": {"val_acc": later + 0.5},
    }


def equal(one, other):
    return not list(run_comparison.tree_differences(one, other, ""))


def part(tree, rank, ranks):
    size = ENVS // ranks
    return take_envs(tree, range(rank * size, (rank + 1) * size))


def save(folder, collectives, *, round=1, **more):
    envs = part(tree_of(), collectives.rank, collectives.ranks)
    shared = {"learner": {"w": torch.tensor([1.5])}}
    return save_checkpoint(
        folder, round=round, epoch=0, envs=envs, shared=shared, facts={}, collectives=collectives, **more
    )


@given(ranks=DIVISORS)
def test_a_rank_has_its_envs_in_every_leaf(ranks):
    for rank in range(ranks):
        own, tree = slice(rank * ENVS // ranks, (rank + 1) * ENVS // ranks), tree_of()
        taken = part(tree, rank, ranks)
        assert taken["state"]["key"].tolist() == list(range(ENVS))[own]
        assert taken["rollout"]["reward"].equal(tree["rollout"]["reward"][:, own])
        assert taken["columns"]["val_acc"].equal(tree["columns"]["val_acc"][:, own])
        assert taken["state"]["host"]["x"].equal(tree["state"]["host"]["x"][own])


@given(ranks=DIVISORS)
def test_the_parts_of_all_ranks_are_the_whole_and_lie_in_memory_as_it_does(ranks):
    joined = join_envs([part(tree_of(), rank, ranks) for rank in range(ranks)])
    assert equal(joined, tree_of())
    assert memory_order(joined["state"]["host"]["x"]) == [0, 2, 3, 1]
    assert memory_order(joined["state"]["turned"]) == [0, 2, 1]


@given(saved=st.integers(1, 40), loaded=st.integers(1, 40))
def test_every_rank_reads_the_shards_with_its_envs_and_no_others(saved, loaded):
    envs = saved * loaded
    for rank in range(loaded):
        own = range(rank * saved, (rank + 1) * saved)  # of so many envs that both numbers of ranks divide them
        shards = {env // (envs // saved) for env in own}
        assert [*overlapping_shards(saved, rank, loaded)] == sorted(shards)


@given(saved=DIVISORS, loaded=DIVISORS)
def test_a_checkpoint_of_some_ranks_is_loaded_by_any_other_number(tmp_path_factory, saved, loaded):
    folder = tmp_path_factory.getbasetemp() / f"shards-{saved}"
    paths = run_ranks(saved, lambda group: save(folder, group))
    assert paths == [folder / checkpoint_store.checkpoint_name(1, 0)] * saved
    assert [path.name for path in folder.iterdir()] == [paths[0].name]
    assert checkpoint_store.read_manifest(paths[0])["world"] == saved
    assert equal(load_checkpoint(paths[0])["envs"], tree_of())
    for rank in range(loaded):
        own = read_part(paths[0], rank, loaded)
        assert equal(own["envs"], part(tree_of(), rank, loaded))
        assert own["shared"]["learner"]["w"].tolist() == [1.5]


def test_ranks_that_do_not_divide_the_envs_are_refused(tmp_path):
    path = save(tmp_path, Collectives())
    with pytest.raises(CheckpointError, match="has 12 envs: expected a multiple of 5 ranks"):
        read_part(path, 0, 5)


def test_a_checkpoint_without_envs_is_loaded_by_any_number_of_ranks(tmp_path):
    path = save_checkpoint(tmp_path, round=0, epoch=0, envs={"state": {}}, shared={}, facts={})
    assert read_part(path, 2, 3)["envs"] == {"state": {}}


def test_shards_that_differ_in_their_leaves_are_refused():
    one, other = part(tree_of(), 0, 2), part(tree_of(), 1, 2)
    del other["rollout"]["masks"]
    with pytest.raises(CheckpointError, match="the shards of the envs differ: expected the entries masks, reward"):
        join_envs([one, other])


@pytest.fixture
def saved(tmp_path):
    """A checkpoint of three ranks, and an older one."""
    return [run_ranks(3, lambda group, round=round: save(tmp_path, group, round=round))[0] for round in (1, 2)]


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_shard_that_is_missing_or_damaged_damages_the_checkpoint(saved, rank):
    name = checkpoint_store.shard_name(rank)
    raw = (saved[1] / name).read_bytes()
    (saved[1] / name).write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    assert checkpoint_store.find_damage(saved[1]) == f"is damaged: sha256 of {name} differs"
    (saved[1] / name).unlink()
    assert checkpoint_store.find_damage(saved[1]) == f"lacks {name}"
    assert checkpoint_store.find_damage(saved[0]) is None


def full_disk(monkeypatch, *names):
    """Let writes of these files fail."""
    real = files.write_new

    def write(path, data):
        if path.name in names:
            path.write_bytes(data[:10])
            raise OSError(errno.ENOSPC, "No space left on device")
        real(path, data)

    monkeypatch.setattr(files, "write_new", write)


@pytest.mark.parametrize(
    ("names", "where"),
    [
        ([checkpoint_store.shard_name(1)], "rank 1: "),
        ([checkpoint_store.shard_name(0), checkpoint_store.shard_name(2)], "ranks 0, 2: "),
        ([checkpoint_store.shard_name(rank) for rank in range(3)], ""),
        ([checkpoint_store.SHARED], ""),
        ([checkpoint_store.MANIFEST], ""),
    ],
)
def test_a_disk_that_is_full_on_one_rank_fails_the_save_on_all_with_one_message(saved, monkeypatch, names, where):
    folder = saved[0].parent
    with monkeypatch.context() as patch:
        full_disk(patch, *names)
        errors = run_ranks(3, lambda group: save(folder, group, round=3))
    assert [type(error) for error in errors] == [CheckpointError] * 3
    final = folder / checkpoint_store.checkpoint_name(3, 0)
    wanted = f"checkpoint {final} cannot be written: {where}No space left on device"
    assert {str(error) for error in errors} == {wanted}
    assert sorted(folder.iterdir()) == saved
    assert all(checkpoint_store.find_damage(path) is None for path in saved)
    assert run_ranks(3, lambda group: save(folder, group, round=3, keep=1)) == [final] * 3
    assert [*folder.iterdir()] == [final]
