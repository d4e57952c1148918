"""Whole runs on file systems that lack calls."""

import errno
import fcntl
import os
import stat

import pytest
from support.extras import CSV
from support.small_runs import tiny

from morphogen.config.telemetry_spec import TelemetrySpec
from morphogen.train.train import resume, train_ppo_vectorized

CASES = {  # whether folders can be synced
    "no locks": (errno.ENOLCK, True),
    "no call": (errno.ENOSYS, False),
}


def train_and_extend(out):
    """A run of two rounds, the second of which a resume adds."""
    train_ppo_vectorized(tiny(task="tiny", telemetry=TelemetrySpec(loggers=CSV)), out=out)
    resume(out, rounds=2)
    return out


@pytest.fixture(scope="module")
def ideal(tmp_path_factory):
    return train_and_extend(tmp_path_factory.mktemp("ideal") / "run")


@pytest.mark.parametrize(("code", "syncs"), CASES.values(), ids=CASES)
def test_a_run_ends_and_is_extended_as_anywhere_else(code, syncs, ideal, tmp_path, monkeypatch):
    def flock(file, how):
        raise OSError(code, os.strerror(code))

    def fsync(file):
        if not syncs and stat.S_ISDIR(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(fcntl, "flock", flock)
    monkeypatch.setattr(os, "fsync", fsync)
    found = train_and_extend(tmp_path / "run")
    names, others = (sorted(path.name for path in run.rglob("*")) for run in (ideal, found))
    assert others == names
    assert (found / "policy.safetensors").read_bytes() == (
        ideal / "policy.safetensors"
    ).read_bytes()
