"""A run on a disk that fills up: saved files stay, it says so, and continues."""

import shlex
import subprocess
import sys

import pytest
from support.run_comparison import events
from support.subprocess_env import OURS

from morphogen.config.config_files import parse_config
from morphogen.train import checkpoint_store
from morphogen.train.train import resume, train_ppo_vectorized

ROUNDS, SIZE = 4, "900k"  # room for two checkpoints, and not for a third
CONFIG = """{"preset": "smoke", "rounds": 4, "episode_length": 2, "final_episodes": 1,
"ppo": {"epochs": 1, "minibatches": 1}, "engine": {"threads": 1, "devices": ["cpu"]},
"checkpoint": {"every_rounds": 1, "keep": 9}}"""
RUN = """
{python} -m morphogen train --config {config} --out {disk}/run --quiet
code=$?
cp -r {disk}/run {copy}
exit $code
"""


MOUNTED = 'mount -t tmpfs -o size="$2" tmpfs "$1" && shift 2 && exec "$@"'


def on_disk(folder, *words):
    """Run a command that sees a small disk in a folder, which is gone with it."""
    folder.mkdir()
    mount = ["unshare", "-rm", "sh", "-c", MOUNTED, "sh", str(folder), SIZE]
    return subprocess.run([*mount, *words], capture_output=True, text=True, env=OURS)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The run on a disk with room."""
    place = tmp_path_factory.mktemp("alone") / "run"
    train_ppo_vectorized(parse_config(CONFIG), out=place)
    return place


def test_saved_checkpoints_stay_and_the_run_goes_on(alone, tmp_path):
    if (probe := on_disk(tmp_path / "probe", "true")).returncode:
        pytest.skip(f"no small disk can be made here: {probe.stderr.strip()}")
    (tmp_path / "config.json").write_text(CONFIG)
    disk, copy = tmp_path / "disk", tmp_path / "copy"
    places = {
        "python": sys.executable,
        "config": tmp_path / "config.json",
        "disk": disk,
        "copy": copy,
    }
    words = RUN.format(**{name: shlex.quote(str(place)) for name, place in places.items()})
    done = on_disk(disk, "sh", "-c", words)
    assert done.returncode == 4, done.stderr
    failed = [line for line in done.stderr.splitlines() if "CheckpointFailed" in line]
    assert len(failed) >= ROUNDS - 2
    assert all(
        line.endswith("No space left on device") for line in [*failed, done.stderr.splitlines()[-1]]
    )
    saved = [checkpoint_store.checkpoint_name(2, 0), checkpoint_store.checkpoint_name(1, 0)]
    assert [path.name for path in checkpoint_store.list_checkpoints(copy / "checkpoints")] == saved
    assert all(checkpoint_store.find_damage(copy / "checkpoints" / name) is None for name in saved)
    assert not list((copy / "checkpoints").glob(".*"))
    resume(copy)
    assert (copy / "result.json").read_bytes() == (alone / "result.json").read_bytes()
    assert [
        one["data"]["checkpoint"] for one in events(copy) if one["event"] == "RunResumed"
    ] == saved[:1]
