"""The benchmarks measure what they say: compared forms compute the same, counts are right, tables are whole."""

import functools
import gc
import json
import os
import subprocess
import sys
import weakref
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from support.extras import needs_extra

from bench.harness import chart
from bench.harness.bench_scenes import TOKENS, build_scene
from bench.harness.module_loop import LAYOUTS, ModuleLoop
from bench.harness.timing import Bench, bench_facts, format_measures, machine_line, ratio_measure
from bench.speed import (
    checkpoint,
    compiled,
    cuda,
    data,
    launches,
    memory,
    policy,
    record,
    rollout,
    roofline,
    rules,
    summary,
    telemetry,
)
from bench.speed.epoch import build_epoch
from morphogen.cli.bench import Measure, median_measure, write_measures
from morphogen.config.execution_spec import EngineSpec
from morphogen.config.groups import DataSpec
from morphogen.engine.compile import CompiledUnits
from morphogen.kernels import CAN_CONVOLVE
from morphogen.steps.train import start_epoch
from morphogen.testing.builders.tree_equality import leaves

ROOT = Path(__file__).parents[3]
KEYS = {"name", "value", "spread", "runs", "unit"}
WANTED = {  # rows that are promised; of training for two envs
    *("train_digits_e2_eager", "train_digits_e8_per_env", "train_cifar_e1_eager", "train_cifar_e2_eager"),
    *("train_digits_e2_none_eager", "train_digits_e2_light_eager", "train_digits_e1_eager"),
    "train_digits_e2_eager_one_thread",
    *("validate_8_over_1", "control_share", "record_share", "empty_slots", "roofline_digits", "roofline_cifar"),
    *("ceiling_digits", "ceiling_cifar", "ceiling_tokens_e1", "ceiling_tokens_e2"),
    *("train_tokens_e1_eager", "train_tokens_e2_eager", "roofline_tokens_e1", "roofline_tokens_e2"),
}
COMPILED = EngineSpec(compile="default")


@pytest.fixture
def quick():
    return Bench(runs=1)


def test_the_loop_trains_what_the_stacked_form_trains():
    ours = build_scene("digits", 7, "mixed", minibatches=3).to(torch.float64)
    pairs = zip(ours.state.slots.blueprint.flatten(), ours.state.slots.algorithm.flatten(), strict=True)
    held = {(int(b), int(a)) for b, a in pairs}
    assert held == {(b, a) for b in range(1, 8) for a in (1, 2, 3)}
    stacked = ours.train()
    for layout in LAYOUTS:
        loop = ModuleLoop(ours, layout)
        loop.train()
        torch.testing.assert_close(loop.parameters(), stacked.host.params, rtol=1e-9, atol=1e-10)
    assert (stacked.host.params - ours.state.host.params).abs().max() > 1e-3


@needs_extra("text")
def test_the_loop_trains_the_language_models_of_the_stacked_form():
    ours = build_scene(TOKENS, 7, "mixed", minibatches=2).to(torch.float64)
    loop, after = ModuleLoop(ours), ours.train()
    loop.train()
    torch.testing.assert_close(loop.parameters(), after.host.params, rtol=1e-9, atol=1e-10)
    assert (after.host.params - ours.state.host.params).abs().max() > 1e-3


def test_the_loop_trains_the_epoch_of_a_run_with_its_samples():
    ours = build_epoch("digits", 3, torch.device("cpu"), minibatches=9)  # enough to replay
    loop, after = ModuleLoop(ours.scene), ours.train()
    loop.train(ours.batches("contiguous"))
    torch.testing.assert_close(loop.parameters(), after.host.params, rtol=2e-3, atol=2e-3)
    assert (after.host.params - ours.scene.state.host.params).abs().max() > 2e-2


@pytest.mark.parametrize(("kind", "most", "python"), [("none", 130, 600), ("light", 240, 950), ("mixed", 700, 3_600)])
def test_a_minibatch_without_kernels_takes_few_launches_and_little_python(kind, most, python):
    call = launches.minibatch_call("digits", kind)
    assert launches.count_launches(call) <= most
    assert launches.count_python_calls(call) <= python


@pytest.mark.slow
@needs_extra("cifar")
def test_the_loop_trains_seeds_too():
    ours = build_scene("cifar_baseline", 1, "mixed", minibatches=3).to(torch.float64)
    loop, after = ModuleLoop(ours, "channels_last"), ours.train()
    loop.train()
    for slot in ours.net.slots:
        row, seed = after.seeds[slot.name, "params"][0], loop.learners[0].net.seeds[slot.name]
        moved = torch.cat([leaf.detach().flatten() for leaf in seed.trainable_parameters()])
        torch.testing.assert_close(row[: len(moved)], moved, rtol=1e-9, atol=1e-10)
        assert not torch.equal(row, ours.state.seeds[slot.name, "params"][0])


def test_bare_hosts_train_and_score_like_hosts_with_empty_slots():
    ours = build_scene("digits", 3, "none", minibatches=2)
    bare = ours.without_slots()
    assert bare.state.slots.stage.shape == (3, 0)
    assert torch.equal(bare.train().host.params, ours.train().host.params)
    assert torch.equal(bare.validate().accuracy[:, 0], ours.validate().accuracy[:, 0])


def test_an_epoch_of_a_scene_starts_from_the_same_state_at_every_call():
    ours = build_scene("digits", 2, "kept", minibatches=2)
    assert torch.equal(ours.train().host.params, ours.train().host.params)


def test_a_ratio_is_taken_run_by_run():
    assert ratio_measure("a", [1.0, 4.0, 9.0], [1.0, 2.0, 3.0]) == Measure("a", 2.0, 0.5, 3, "ratio")
    assert median_measure("a", [3.0], "ms") == Measure("a", 3.0, 0.0, 1, "ms")


def test_a_form_is_measured_in_turn_with_the_others():
    called = []
    seconds = Bench(runs=2).time_interleaved({"a": lambda: called.append("a"), "b": lambda: called.append("b")})
    assert called == ["a", "b", "b", "a", "a", "b"]
    assert [len(found) for found in seconds.values()] == [2, 2]


def test_grouped_convolutions_are_counted_by_what_they_do():
    x, weight = torch.ones(5, 6, 8, 8, requires_grad=True), torch.ones(9, 2, 3, 3, requires_grad=True)

    class One:
        def train(self):
            torch.nn.functional.conv2d(x, weight, groups=3, padding=1).sum().backward()

    multiplied = 5 * 9 * 8 * 8 * 2 * 3 * 3
    assert roofline.count_work(One())[0] == 3 * 2 * multiplied


def test_attention_to_earlier_tokens_is_counted_by_what_it_does():
    queries, keys, values = (torch.ones(2, 3, 5, 4, requires_grad=True) for _ in range(3))

    class One:
        def train(self):
            attended = torch.nn.functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
            attended.sum().backward()

    pairs, product = 5 * 6 // 2, 2 * 2 * 3 * 4
    forward, backward = 2 * pairs * product, 5 * pairs * product  # the backward pass computes the scores anew
    assert roofline.count_work(One())[0] == forward + backward


def test_the_ceiling_is_made_of_the_convolutions_of_both_passes():
    ours = build_scene("digits", 2, "none")
    with roofline.CallRecorder(roofline.CONV_OPS) as kernels:
        ours.train()
    names = ("conv", "conv_backward") if CAN_CONVOLVE else ("convolution", "convolution_backward")
    library = "morphogen" if CAN_CONVOLVE else "aten"
    called = [func for func, _, _ in kernels.calls]
    assert {f"{library}.{name}.default": 2 for name in names} == {str(f): called.count(f) for f in called}
    with roofline.CallRecorder(roofline.CONV_OPS) as again:
        kernels.replay()
    assert [func for func, _, _ in again.calls] == called


def test_views_move_no_bytes_and_sums_do():
    x = torch.ones(4, 4)
    with roofline.TrafficCounter() as traffic:
        x.view(16).view(2, 8)
    assert traffic.bytes == 0
    with roofline.TrafficCounter() as traffic:
        torch.add(x, x)
    assert traffic.bytes == 3 * 64


def test_memory_is_what_more_envs_add_to_the_peak(monkeypatch, tmp_path):
    asked, told = [], tmp_path / "status"
    told.write_text("Name:\tpython\nVmHWM:\t    90 kB\nVmRSS:\t    30 kB\n")
    monkeypatch.setattr("morphogen.device.malloc.STATUS", told)
    assert memory.peak_bytes("digits", 1, "cpu") == 60 * 1024
    monkeypatch.setattr(
        memory, "peak_bytes_per_size", lambda bench, task, sizes: asked.append((task, sizes)) or [30, 50, 90]
    )
    rows = {row.name: row.value for row in memory.measures(Bench(), {"tiny": ("digits", 10)})}
    assert asked == [("digits", [10, 20, 40])]
    assert rows == {"memory_tiny_per_env": pytest.approx(2 / 2**20), "memory_tiny_linear": pytest.approx(1.0)}


@pytest.mark.slow
def test_the_summary_has_every_promised_row(quick, monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "measures", lambda bench, sizes: [])
    monkeypatch.setattr(rollout, "EPISODE_EPOCHS", 1)
    monkeypatch.setattr(roofline, "machine_peaks", lambda bench: ([1e9], [1e9]))
    rows = summary.measures(quick, full=False, envs=2)
    assert {row.name for row in rows} >= WANTED
    assert len({row.name for row in rows}) == len(rows)
    assert all(row.value > 0 and row.spread >= 0 for row in rows)
    facts = bench_facts(quick)
    assert machine_line(facts).startswith(f"cpu {facts['cpu']}, cores ")
    write_measures(tmp_path / "new" / "table.json", facts, rows)
    facts = json.loads((tmp_path / "new" / "table.json").read_text())
    assert set(facts) == {"machine", "measures"}
    assert all(set(row) == KEYS for row in facts["measures"])
    assert {"cpu", "cores", "threads", "torch", "tensordict", "torchrl", "python", "checksums"} <= set(facts["machine"])
    assert {"train_digits_e2_eager", "validate_8_over_1", "rollout_e2"} <= set(facts["machine"]["checksums"])
    assert all(row.name in format_measures(rows) for row in rows)


def test_the_inputs_of_a_captured_step_live_as_long_as_the_step(monkeypatch):
    """A graph reads its inputs by address: with a stub for the graph, nothing that was handed in may be freed."""
    inputs = []

    def watched_start(*args, **knobs):
        progress = start_epoch(*args, **knobs)
        inputs.extend(map(weakref.ref, leaves(progress).values()))
        return progress

    stream = SimpleNamespace(wait_stream=lambda _: None)
    stubs = {"Stream": lambda: stream, "current_stream": lambda: stream, "stream": lambda _: nullcontext()}
    stubs |= {"CUDAGraph": lambda: SimpleNamespace(replay=lambda: None), "graph": lambda _: nullcontext()}
    for name, stub in stubs.items():
        monkeypatch.setattr(torch.cuda, name, stub)
    monkeypatch.setattr(cuda, "start_epoch", watched_start)
    captured = cuda.capture_step(build_scene("digits", 7, "mixed"))
    gc.collect()
    assert len(inputs) > 50
    assert all(leaf() is not None for leaf in inputs)
    del captured
    gc.collect()
    assert any(leaf() is None for leaf in inputs)


@pytest.mark.slow
@needs_extra("cifar")
def test_the_table_on_cuda_goes_the_same_way_on_a_cpu(quick, tmp_path):
    rows = cuda.measures(quick, short=True, svg=tmp_path / "epochs.svg")
    names = {row.name for row in rows}
    assert {"train_cifar_e2_eager", "train_cifar_e4_per_env", "rollout_e1", "rollout_e2_control_share"} <= names
    assert {row.name: row.value for row in rows if row.name.startswith("waits")} == {
        "waits_digits_e4": 0,
        "waits_cifar_e4": 0,
    }
    assert (tmp_path / "epochs.svg").read_text().count("<polyline") == 2


def test_compiled_epochs_run_in_graphs(quick, monkeypatch, tmp_path):
    asked = []
    compiler = lambda call, **_: asked.append(call) or call  # noqa: E731
    counted = functools.partial(CompiledUnits, compiler=compiler)
    monkeypatch.setattr("morphogen.engine.scheduler.CompiledUnits", counted)
    data = DataSpec(batch=4, minibatches=1, val_samples=8)
    rows = [*rollout.scan_envs(quick, (2,), data=data), *rollout.scan_envs(quick, (1,), compiled=True, data=data)]
    assert len(asked) == 4  # observe, act, apply, score
    rollout.plot_rates(tmp_path / "epochs.svg", rows, (2,), (1,))
    assert (tmp_path / "epochs.svg").read_text().count("<polyline") == 4


@pytest.mark.slow
@pytest.mark.parametrize("part", [record, policy, data], ids=lambda part: part.__name__)
def test_every_part_has_a_row_and_a_checksum(part, quick):
    assert all(row.value > 0 for row in part.measures(quick, 2))
    assert quick.checksums


@pytest.mark.slow
def test_rounds_at_all_levels_end_with_the_same_hosts(quick):
    rows = telemetry.measures(quick, 2, 2)
    assert [row.name for row in rows] == ["telemetry_normal", "telemetry_debug"]
    assert all(row.value > 0 for row in rows)


@pytest.mark.slow
def test_rounds_that_are_saved_end_with_the_same_hosts(quick):
    rows = checkpoint.measures(quick, 2, 2)
    assert [row.name for row in rows] == [f"checkpoint_{name}" for name in ("round", "save", "load", "per_env")]
    assert all(row.value > 0 for row in rows)


def test_streamed_batches_are_those_of_resident_data(quick):
    data.measures(quick, 2, 3)
    seen = quick.checksums
    assert seen["data_shifted"] == seen["data_shifted_streamed"] != seen["data_plain"] == seen["data_plain_streamed"]


def test_rules_are_paid_alike_however_they_are_called():
    found = rules.build_subjects(11, torch.device("cpu"))
    assert {"masks", "decode", "reward_delta"} <= set(found)
    rule, call = found["reward_sparse"]
    paid = call(rule)
    assert paid.shape == (11,)
    assert torch.isfinite(paid).all()
    assert paid.unique().numel() > 3


def test_curves_stay_inside_the_picture():
    picture = chart.draw_chart("a", "b", [chart.ChartLine("c", [(1, 0.5), (512, 900.0)])])
    points = picture.partition('points="')[2].partition('"')[0]
    xs, ys = zip(*(map(float, point.split(",")) for point in points.split()), strict=True)
    assert min(xs) == chart.MARGIN
    assert max(xs) == chart.WIDTH - chart.MARGIN
    assert chart.MARGIN <= min(ys) < max(ys) <= chart.HEIGHT - chart.MARGIN


@pytest.mark.slow
@pytest.mark.parametrize(("given", "found"), [({}, os.cpu_count()), ({"OMP_NUM_THREADS": "1"}, 1)])
def test_threads_are_pinned_before_torch_is_there(given, found):
    code = "import sys, bench; assert 'torch' not in sys.modules; import torch; print(torch.get_num_threads())"
    named = {"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path), **given}
    told = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=named, capture_output=True, text=True, check=True)
    assert told.stdout.strip() == str(found)


def test_a_compiled_form_that_computes_something_else_is_found():
    whole = {"stage": torch.tensor([1, 2]), "loss": torch.tensor([3.0, -1.0])}
    assert compiled.largest_error({**whole, "loss": torch.tensor([3.0, -1.02])}, whole) == pytest.approx(0.01)
    with pytest.raises(AssertionError, match="stage"):
        compiled.largest_error({**whole, "stage": torch.tensor([1, 3])}, whole)


def test_the_seconds_of_an_epoch_are_those_of_its_units(quick):
    units = CompiledUnits(COMPILED, compiler=lambda function, **_: function)
    units.seconds = {"observe": 1.0, "apply": 2.0, "score": 4.0, "act": 8.0}
    forms = dict.fromkeys(("eager", "compiled"), lambda: torch.ones(1))
    rows = {row.name: row.value for row in compiled.compare(quick, "env.step", forms, units)}
    assert (rows["env.step_compile"], rows["env.step_error"]) == (7.0, 0.0)
    assert [row["step"] for row in compiled.table_rows(compiled.compare(quick, "act", forms, units))] == ["act"]
