"""Pieces: envs give the same bits in pieces as at once, in bounded memory; a run that cannot fit is
refused.
"""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.extras import needs_extra
from support.small_runs import cifar_files, tiny, tiny_setup

from morphogen import kernels
from morphogen.cli.main import main
from morphogen.config.execution_spec import EngineSpec
from morphogen.env import actions, setup
from morphogen.env.environment import open_environment
from morphogen.env.pieces import piece_size, split_envs
from morphogen.errors import DeviceError
from morphogen.testing.builders.tree_equality import leaves
from morphogen.vocab.stage import Stage

MIB = 2**20
by_kernels = pytest.mark.skipif(
    not (kernels.AVAILABLE and kernels.CAN_CONVOLVE),
    reason="plain products may differ in the last bits",
)


def same_bits(before, after):
    return torch.equal(before.nan_to_num(), after.nan_to_num())


def states(built, piece_envs):
    """States of random actions before each epoch and after the last one."""
    env = open_environment(replace(built, piece_envs=piece_envs))
    state, seen = env.reset()
    history = [state]
    for _ in range(6):
        state, step = env.step(state, actions.random(env, state, seen))
        history, seen = [*history, state], step.inputs
    return history


@by_kernels
@pytest.mark.parametrize(
    ("task", "envs", "sizes", "placement", "norm"),
    [
        ("digits", 9, (2, 4), "resident", "batch"),
        pytest.param("digits", 9, (2, 4), "streamed", "group", marks=needs_extra("streaming")),
        pytest.param(
            "cifar_baseline",
            5,
            (2,),
            "streamed",
            "batch",
            marks=[needs_extra("cifar"), needs_extra("streaming")],
        ),
    ],
)
def test_every_env_has_the_same_bits_in_pieces_of_any_size(
    tmp_path, task, envs, sizes, placement, norm
):
    cifar_files(tmp_path)
    spec = tiny(task=task, envs=envs, max_seeds=0, host={"norm": norm})
    data = {"placement": placement, "dir": str(tmp_path), "val_samples": 20}
    built = setup.build_setup(spec.with_settings(data=data))
    whole = states(built, envs)
    assert (whole[-1].slots.stage >= int(Stage.TRAINING)).any()
    for size in sizes:
        for before, after in zip(map(leaves, whole), map(leaves, states(built, size)), strict=True):
            assert [name for name in before if not same_bits(before[name], after[name])] == []


@given(envs=st.integers(1, 300), size=st.integers(2, 300))
def test_pieces_hold_every_env_once_in_order_and_none_alone(envs, size):
    pieces = split_envs(envs, size)
    assert [env for rows in pieces for env in range(rows.start, rows.stop)] == list(range(envs))
    assert envs == 1 or all(2 <= rows.stop - rows.start <= size + 1 for rows in pieces)


@given(low=st.floats(1, 1e5), more=st.floats(1, 100))
def test_a_larger_budget_never_makes_more_pieces(low, more):
    built = tiny_setup()
    budgets = [
        replace(built.spec, engine=EngineSpec(activation_mib=mib)) for mib in (low, low * more)
    ]
    needed = built.kind.activation_bytes(built.spec, built.net, 1_000)
    small, large = (piece_size(spec, needed, built.device) for spec in budgets)
    assert 2 <= small <= large
    assert small == 2 or small * needed <= low * MIB


def test_a_gpu_takes_more_envs_at_once_unless_a_setting_says_otherwise():
    built = tiny_setup()
    own = replace(built.spec, engine=EngineSpec(activation_mib=64.0))
    cpu, gpu = (torch.device(kind) for kind in ("cpu", "cuda"))
    needed = built.kind.activation_bytes(built.spec, built.net, 1_000)
    assert piece_size(built.spec, needed, gpu) > 4 * piece_size(built.spec, needed, cpu)
    assert piece_size(own, needed, gpu) == piece_size(own, needed, cpu)


def test_a_run_that_cannot_fit_says_so_before_it_starts(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(setup, "reachable_memory", lambda: 8 * MIB)
    text = (
        r"^envs: 4,096 need [\d.]+ GiB on cpu \(state [\d.]+, activations [\d.]+\), at most "
        r"0\.0 GiB"
    )
    with pytest.raises(DeviceError, match=text):
        tiny_setup(envs=4_096)
    words = ["--device", "cpu", "--ranks", "1", "--out", str(tmp_path / "run")]
    assert main(["train", "ppo", *words]) == 2
    assert "engine.activation_mib" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("bound", [None, 2**60])
def test_a_run_that_fits_or_an_unknown_memory_is_no_fault(monkeypatch, bound):
    monkeypatch.setattr(setup, "reachable_memory", lambda: bound)
    assert tiny_setup(envs=4_096).spec.envs == 4_096
