"""Determinism and TF32: set for a CUDA device alone, by the setup of a run."""

import os

import pytest
import torch

from morphogen.config.execution_spec import EngineSpec
from morphogen.config.spec import RunSpec
from morphogen.device.determinism import CUBLAS_WORKSPACE, set_determinism
from morphogen.env import setup as setups

CUDA, CPU = torch.device("cuda:0"), torch.device("cpu")


def settings():
    backends = torch.backends
    precision = backends.cuda.matmul.allow_tf32, backends.cudnn.allow_tf32
    cudnn = backends.cudnn.deterministic, backends.cudnn.benchmark
    return torch.are_deterministic_algorithms_enabled(), *cudnn, *precision


@pytest.fixture(autouse=True)
def restored(monkeypatch):
    monkeypatch.delenv(CUBLAS_WORKSPACE, raising=False)
    before, fill = settings(), torch.utils.deterministic.fill_uninitialized_memory
    yield
    torch.use_deterministic_algorithms(before[0])
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = before[1:3]
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before[3:]
    torch.utils.deterministic.fill_uninitialized_memory = fill
    os.environ.pop(CUBLAS_WORKSPACE, None)


def test_by_default_a_gpu_repeats_its_results_in_full_float32():
    spec = EngineSpec()
    set_determinism(CUDA, deterministic=spec.deterministic, tf32=spec.tf32)
    assert settings() == (True, True, False, False, False)
    assert os.environ[CUBLAS_WORKSPACE] == ":4096:8"


def test_determinism_and_tf32_are_set_apart():
    set_determinism(CUDA, deterministic=False, tf32=True)
    assert settings() == (False, False, False, True, True)
    assert CUBLAS_WORKSPACE not in os.environ
    set_determinism(CUDA, deterministic=True, tf32=True)
    assert settings() == (True, True, False, True, True)


def test_a_workspace_that_the_user_chose_stays(monkeypatch):
    monkeypatch.setenv(CUBLAS_WORKSPACE, ":16:8")
    set_determinism(CUDA, deterministic=True, tf32=False)
    assert os.environ[CUBLAS_WORKSPACE] == ":16:8"


def test_a_cpu_keeps_its_settings():
    before = settings()
    set_determinism(CPU, deterministic=True, tf32=True)
    assert settings() == before
    assert CUBLAS_WORKSPACE not in os.environ


@pytest.mark.parametrize("device", [CPU, CUDA], ids=str)
def test_a_setup_prepares_the_process_for_its_device(device, monkeypatch):
    """For commands and users of the library alike: memory is kept on a CPU, operators are chosen on
    a GPU.
    """
    calls = []

    class DataOpens(Exception):
        """The preparation is done before."""

    def open_dataset(*_):
        raise DataOpens

    monkeypatch.setattr(setups, "keep_freed_memory", lambda: calls.append("memory"))
    monkeypatch.setattr(
        setups, "set_determinism", lambda device, **chosen: calls.append((device.type, chosen))
    )
    monkeypatch.setattr(setups, "own_device", lambda *_: device)
    monkeypatch.setattr(setups, "open_dataset", open_dataset)
    with pytest.raises(DataOpens):
        setups.build_setup(RunSpec(task="tiny", engine=EngineSpec(tf32=True)))
    chosen = (device.type, {"deterministic": True, "tf32": True})
    assert calls == [chosen, *(["memory"] if device == CPU else [])]
