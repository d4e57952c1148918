"""The networks that a run keeps, and the command that exports them."""

import errno
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import morphogen as mg
from morphogen.cli.main import main
from morphogen.config import files
from morphogen.errors import DataError
from morphogen.extras.export.kept_files import list_networks
from morphogen.extras.export.kept_networks import choose, load_network
from morphogen.extras.inspection.inspect_run import inspect_path
from morphogen.log.console import Console
from morphogen.state import rng

EPISODES = 6
FIELDS = {
    "preset": "tiny",
    "rounds": 1,
    "envs": 4,
    "final_episodes": EPISODES,
    "episode_length": 6,
    "data": {"batch": 8, "minibatches": 2, "val_samples": 40},
    "policy_name": "heuristic",
    "heuristic": {"first_epoch": 0, "min_plateau": 0, "max_cost": 1.0, "min_worth": -100.0},
    "telemetry": {"level": "normal"},
}
ARMS = ("wait", "random", "trained")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "run"
    torch.manual_seed(3)
    before = torch.get_rng_state()
    with (path.parent / "printed").open("w") as printed:
        mg.train_ppo_vectorized(**FIELDS, out=path, console=Console(quiet=True, out=printed))
    # layers of torch draw their first values from this generator
    assert torch.get_rng_state().equal(before)
    return path


def results_of(run):
    policies = json.loads((run / "result.json").read_text())["policies"]
    return {name if name in ARMS else "trained": columns for name, columns in policies.items()}


def rows_of(run):
    return {(row["arm"], row["pick"]): row for row in list_networks(run)}


@pytest.mark.slow
def test_the_best_and_the_median_of_each_arm_are_kept(run):
    rows = rows_of(run)
    assert {arm for arm, _ in rows} == set(results_of(run))
    assert {pick for _, pick in rows} == {"best", "median"}
    for (arm, pick), row in rows.items():
        columns = results_of(run)[arm]
        values = columns["network_value"]
        found = values[row["env"]]
        assert found == pytest.approx(row["value"])
        better = sum(value > found for value in values)
        worse = sum(value < found for value in values)
        assert better == 0 if pick == "best" else max(better, worse) <= EPISODES // 2
        assert row["score"] == pytest.approx(columns["committed_accuracy"][row["env"]])
        assert row["parameters"] == columns["params"][row["env"]]


def start_of(run, row):
    """The env of a kept network in its own instance, at a reset that starts from the file."""
    spec = mg.parse_config((run / "config.json").read_text())
    episode, number = divmod(row["env"], spec.envs)
    keys = rng.env_keys(spec.seed, number, 1)
    weights = {"weights": [str(run / row["file"])]}
    env = mg.make(spec, keys=keys, instances="held-out", host=weights)
    return env, env.reset(episode)[0]


def test_the_summary_names_the_best_network_and_the_command_that_exports_it(run):
    best = rows_of(run)["trained", "best"]
    size = f"{best['parameters']:,} parameters, accuracy {best['score']:.1f} %"
    assert f"""
best network of heuristic: {run}/{best["file"]}: {size}, value {best["value"]:.3f}
take it home: morphogen export {run} --out grown.pt2
""" in (run.parent / "printed").read_text()


def test_a_kept_network_scores_like_its_env_and_so_does_an_env_that_starts_from_it(run):
    grown = 0
    for row in list_networks(run):
        env, state = start_of(run, row)
        assert float(state.signals.val_acc[0]) == pytest.approx(row["score"], abs=1e-3)
        assert float(state.signals.committed_acc[0]) == pytest.approx(row["score"], abs=1e-3)
        module, _, _ = load_network(run / row["file"])
        validation = env.setup.dataset.validation
        gain, offset = (module.get_buffer(f"normalisation.{name}") for name in ("gain", "offset"))
        stored = (validation.inputs - offset) / gain
        labels = state.instance.class_of[0][validation.labels]
        with torch.no_grad():
            right = (module(stored).argmax(-1) == labels)[labels >= 0]
        assert float(right.double().mean()) * 100 == pytest.approx(row["score"], abs=1e-3)
        grown += len(module.slots)
    assert grown


@pytest.mark.slow
def test_all_networks_are_kept_if_asked_for(run, tmp_path):
    out = tmp_path / "run"
    mg.train_ppo_vectorized(**FIELDS, out=out, evaluation={"keep": {"networks": "all"}})
    rows = rows_of(out)
    for arm in results_of(out):
        picks = [pick for name, pick in rows if name == arm]
        assert len(picks) == EPISODES
        assert sorted(rows[arm, pick]["env"] for pick in picks) == [*range(EPISODES)]
    for name in ("trained-best", "wait-median"):
        kept = [load_file(path / "networks" / f"{name}.safetensors") for path in (run, out)]
        assert kept[0].keys() == kept[1].keys()
        assert all(value.equal(kept[1][key]) for key, value in kept[0].items())


@pytest.mark.slow
def test_a_run_that_is_killed_while_it_evaluates_keeps_the_same_files(run, tmp_path, monkeypatch):
    out = tmp_path / "run"
    write = files.write_atomic
    written = []

    def write_two(path, data):
        if path.suffix == ".safetensors" and path.parent.name == "networks":
            written.append(path)
            if len(written) > 2:
                raise KeyboardInterrupt
        write(path, data)

    with monkeypatch.context() as patch:
        patch.setattr(files, "write_atomic", write_two)
        with pytest.raises(KeyboardInterrupt):
            mg.train_ppo_vectorized(**FIELDS, out=out)
    assert len(list_networks(out)) == 2
    (out / "networks" / ".tmp-torn").write_bytes(b"1")
    mg.resume(out)
    names = sorted(path.name for path in (run / "networks").iterdir())
    assert sorted(path.name for path in (out / "networks").iterdir()) == names
    for name in names:
        kept = [(path / "networks" / name).read_bytes() for path in (run, out)]
        assert kept[0] == kept[1]


def failures(run):
    return [event.data.error for event in mg.events(run, kinds={"NetworksFailed"})]


@pytest.mark.slow
def test_a_full_disk_costs_the_networks_and_a_line(tmp_path, monkeypatch):
    out = tmp_path / "run"
    write = files.write_atomic

    def write_no_network(path, data):
        if path.parent.name == "networks":
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, data)

    monkeypatch.setattr(files, "write_atomic", write_no_network)
    result = mg.train_ppo_vectorized(**FIELDS, out=out)
    assert len(result.results) == len(ARMS)
    assert set(results_of(out)) == set(ARMS)
    assert failures(out) == [f"{out} cannot be written: No space left on device"]
    assert json.loads((out / "manifest.json").read_text())["status"] == "completed"


@pytest.mark.slow
def test_a_host_without_a_plain_form_keeps_nothing_and_says_so(tmp_path, monkeypatch):
    out = tmp_path / "run"
    monkeypatch.setattr("morphogen.extras.export.exported.extra_parts", lambda group: {})
    mg.train_ppo_vectorized(**FIELDS, out=out)
    [line] = failures(out)
    assert "host CnnSpec: expected a method plain" in line
    assert set(results_of(out)) == set(ARMS)
    assert list_networks(out) == []


def test_a_diverged_network_is_never_the_best():
    class Result:
        network_value = torch.tensor([float("nan"), 0.1, 0.3, 0.3, 0.2]).numpy()
        params = torch.tensor([1, 1, 9, 5, 1]).numpy()

    assert choose(Result(), "best") == {"best": 3, "median": 4}
    assert choose(Result(), "all") == {"best": 3, "median": 4, "0000": 0, "0001": 1, "0002": 2}


def test_inspect_lists_the_networks_of_a_run(run, capsys):
    rows = inspect_path(run).tables["networks"]
    assert len(rows) == 6
    assert {"arm", "pick", "env", "parameters", "score", "value", "file"} == set(rows[0])
    assert all((run / row["file"]).is_file() for row in rows)
    assert main(["inspect", str(run)]) == 0
    assert "networks/trained-best.safetensors" in capsys.readouterr().out


def test_a_damaged_network_is_named(run, tmp_path):
    (tmp_path / "networks").mkdir()
    (tmp_path / "networks" / "trained-best.safetensors").write_bytes(b"12345")
    with pytest.raises(DataError, match=r"trained-best\.safetensors: expected a network of a run"):
        list_networks(tmp_path)


BLOCKED = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "morphogen":
            raise ImportError("blocked")
sys.meta_path.insert(0, Block())
"""


def exported(capsys, run, out, *words):
    """The lines that `morphogen export` prints to load a file."""
    assert main(["export", str(run), *words, "--out", str(out)]) == 0
    first, second, *lines = capsys.readouterr().out.splitlines()
    assert second == f"{out}, loaded by"
    assert len(lines) == 3
    return first, lines


def outputs_of(lines, folder, samples):
    """Outputs of the network that these lines load, in a process that cannot import morphogen."""
    torch.save(samples, folder / "samples.pt")
    program = [*lines[:2], f"samples = torch.load({str(folder / 'samples.pt')!r})", lines[-1]]
    program += ["outputs = net(samples)"]
    program += [f"torch.save(outputs.detach(), {str(folder / 'outputs.pt')!r})"]
    code = "\n".join([BLOCKED, "import torch", *program])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    return torch.load(folder / "outputs.pt")


@pytest.mark.slow
def test_three_lines_load_an_exported_network_without_morphogen(run, tmp_path, capsys):
    row = max(list_networks(run), key=lambda row: row["parameters"])
    words = ("--arm", row["arm"], "--pick", row["pick"])
    first, lines = exported(capsys, run, tmp_path / "grown.pt2", *words)
    assert f"{row['parameters']:,} parameters, score {row['score']:.2f} %" in first
    module, samples, _ = load_network(run / row["file"])
    samples = torch.cat((samples, samples[:1]))
    found = outputs_of(lines, tmp_path, samples)
    torch.testing.assert_close(found, module(samples).detach(), rtol=1e-5, atol=1e-5)


def test_parameters_are_written_as_the_run_keeps_them(run, tmp_path, capsys):
    out = tmp_path / "mine.safetensors"
    _, lines = exported(capsys, run, out, "--arm", "heuristic", "--pick", "median")
    assert out.read_bytes() == (run / "networks" / "trained-median.safetensors").read_bytes()
    scope = {}
    exec("\n".join(lines[:2]), scope)
    assert scope["parameters"].keys() == load_file(out).keys()
    assert str(out.name) in lines[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere", "--out", "a.pt2"], "nowhere is not a run directory"),
        (["RUN", "--arm", "tamed", "--out", "a.pt2"], '--arm: expected one of random, trained, wait'),
        (["RUN", "--pick", "worst", "--out", "a.pt2"], "--pick: expected best, median or the number"),
        (["RUN", "--out", "taken.pt2"], "--out: expected a new file, got"),
        (["RUN", "--out", "a.bin"], "--out: expected a name that ends in .safetensors, .pt2, .onnx"),
        (["RUN", "--format", "onnx", "--out", "a.bin"], 'pip install "morphogen[onnx]"'),
        (["RUN"], "the following arguments are required: --out"),
    ],
)  # fmt: skip
def test_export_refuses_bad_words_in_one_line(run, tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    Path("taken.pt2").write_text("")
    assert main(["export", *(str(run) if word == "RUN" else word for word in words)]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert message in line
    assert sorted(path.name for path in tmp_path.iterdir()) == ["taken.pt2"]


@pytest.mark.slow
def test_a_run_without_networks_names_the_setting(tmp_path, capsys):
    out = tmp_path / "run"
    words = ["train", "heuristic", "--preset", "tiny", "--rounds", "1", "--envs", "2", "--quiet"]
    assert main([*words, "--keep-networks", "none", "--out", str(out)]) == 0
    assert not (out / "networks").exists()
    capsys.readouterr()
    assert main(["export", str(out), "--out", str(tmp_path / "a.pt2")]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "--keep-networks best or all (evaluation.keep.networks)" in line


@pytest.mark.slow
def test_a_network_of_a_module_is_kept_under_the_names_of_the_module(tmp_path):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem, self.grow, self.head = nn.Conv2d(1, 4, 3), mg.Slot(), nn.Linear(4, 10)

        def forward(self, x):
            return self.head(self.grow(torch.relu(self.stem(x))).mean((2, 3)))

    host = mg.host_from_module(Net, example=torch.zeros(1, 8, 8))
    task = mg.TaskSpec(name="kept_net", dataset="digits", host=host)
    fields = {name: value for name, value in FIELDS.items() if name != "preset"}
    run = tmp_path / "run"
    mg.train_ppo_vectorized(task=task, **fields, out=run)
    for row in list_networks(run):
        _, state = start_of(run, row)
        assert float(state.signals.val_acc[0]) == pytest.approx(row["score"], abs=1e-3)
        own = {name for name in load_file(run / row["file"]) if not name.startswith("slots.")}
        assert own - {"normalisation.gain", "normalisation.offset"} == set(Net().state_dict())
