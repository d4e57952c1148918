"""A run of two processes, with a full disk for a while, which one process continues: the files of
one process.
"""

import errno

import pytest
from support.small_runs import tiny

import morphogen as mg
from morphogen.config import files
from morphogen.config.execution_spec import CheckpointSpec
from morphogen.log.record_files import list_records
from morphogen.train import checkpoint_store
from tests.extras.ranks import rank_jobs
from tests.extras.ranks.rank_runs import differences

FULL = checkpoint_store.checkpoint_name(1, 0)  # checkpoint that cannot be written


def begin(exchange, spec, out):
    """Run up to the third epoch of the second round; the checkpoint before cannot be written."""
    epochs, write = [], files.write_new

    def write_new(path, data):
        if path.name == "state.safetensors" and FULL in str(path):
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, data)

    files.write_new = write_new
    hooks = mg.Hooks(
        on_epoch=lambda round, epoch: epochs.append(epoch), should_stop=lambda: len(epochs) == 8
    )
    parts = mg.Parts(hooks=hooks)
    return mg.train_ppo_vectorized(spec, out=out, exchange=exchange, parts=parts).stopped


@pytest.mark.slow
def test_what_two_processes_began_one_process_ends_with_the_files_of_a_run_that_it_did_alone(
    tmp_path,
):
    saving = CheckpointSpec(every_rounds=1, keep=9)
    spec = tiny(rounds=2, envs=8, final_episodes=2, checkpoint=saving)
    mg.train_ppo_vectorized(spec, out=tmp_path / "alone")
    assert rank_jobs.run_ranks(begin, spec, tmp_path / "run", ranks=2) == [True, True]
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == [
        checkpoint_store.checkpoint_name(1, 2)
    ]
    failed = [event.data.error for event in mg.events(tmp_path / "run", kinds={"CheckpointFailed"})]
    path = tmp_path / "run" / "checkpoints" / FULL
    assert failed == [f"checkpoint {path} cannot be written: No space left on device"]
    assert not mg.resume(tmp_path / "run").stopped
    assert [*map(len, list_records(tmp_path / "run").values())] == [1, 1]
    assert not [*differences(tmp_path / "alone", tmp_path / "run")]
