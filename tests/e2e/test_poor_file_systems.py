"""Whole runs on file systems that lack calls, which a library that is loaded first takes away."""

import errno
import shutil
import subprocess
import sys

import pytest
from support.subprocess_env import OURS

SOURCE = """
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
static int fails(const char *name) {
    if (!getenv(name)) return 0;
    errno = atoi(getenv(name));
    return 1;
}
int flock(int fd, int how) { return fails("FLOCK") ? -1 : syscall(SYS_flock, fd, how); }
int fsync(int fd) {
    struct stat status;
    if (!fstat(fd, &status) && S_ISDIR(status.st_mode) && fails("SYNC_FOLDER")) return -1;
    return syscall(SYS_fsync, fd);
}
"""
CASES = {
    "no locks": {"FLOCK": errno.ENOLCK},
    "no call": {"FLOCK": errno.ENOSYS, "SYNC_FOLDER": errno.EINVAL},
}
COMMAND = (sys.executable, "-m", "morphogen")
TRAIN = (
    "train",
    "--preset",
    "smoke",
    "--rounds",
    "1",
    "--quiet",
    "--set",
    "final_episodes=0",
    "--logger",
    "csv",
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        sys.platform != "linux" or not shutil.which("gcc"), reason="needs gcc and LD_PRELOAD"
    ),
]


def train_and_extend(folder, env):
    """The folder of a run of two rounds, the second of which a resume adds."""
    for words in ((*TRAIN, "--out", "run"), ("resume", "run", "--extend-rounds", "1", "--quiet")):
        done = subprocess.run(
            [*COMMAND, *words], cwd=folder, env=env, capture_output=True, text=True
        )
        assert (done.returncode, done.stderr) == (0, "")
    return folder / "run"


@pytest.fixture(scope="module")
def ideal(tmp_path_factory):
    return train_and_extend(tmp_path_factory.mktemp("ideal"), OURS)


@pytest.mark.parametrize("errors", CASES.values(), ids=CASES)
def test_a_run_ends_and_is_extended_as_anywhere_else(errors, ideal, tmp_path):
    (tmp_path / "poor.c").write_text(SOURCE)
    words = ["gcc", "-shared", "-fPIC", "-o", "poor.so", "poor.c"]
    subprocess.run(words, cwd=tmp_path, check=True)
    poor = {
        **OURS,
        "LD_PRELOAD": str(tmp_path / "poor.so"),
        **{name: str(number) for name, number in errors.items()},
    }
    found = train_and_extend(tmp_path, poor)
    names, others = (sorted(path.name for path in run.rglob("*")) for run in (ideal, found))
    assert others == names
    assert (found / "policy.safetensors").read_bytes() == (
        ideal / "policy.safetensors"
    ).read_bytes()
