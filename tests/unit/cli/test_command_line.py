"""The command line: every flag and its rank, exit codes, help, and what is never loaded or
written.
"""

import importlib.util
import json
import os
import shlex
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest
from support.extras import has_extra, needs_extra, rows_of_extra

from morphogen.cli import command_table, main, process, setting_flags, train
from morphogen.cli.launcher import Launcher
from morphogen.config.config_files import dump_config
from morphogen.config.spec import RunSpec, resolve
from morphogen.config.task import DEFAULT_PRESET
from morphogen.errors import (
    CheckpointError,
    ConfigError,
    DataError,
    DeviceError,
    RankError,
    ScheduleError,
    TrainingDiverged,
)
from morphogen.log.writer import Losses

# flag with its words | field | value; written out by hand
FLAG_TABLE = """
--preset smoke | preset | "smoke"
--task digits_impaired | task | "digits_impaired"
--slots r1c0 r0c0 | slots | ["r0c0", "r1c0"]
--max-seeds 2 | max_seeds | 2
--instances single | instances | "single"
--data-dir /some/where | data.dir | "/some/where"
--no-augment | data.augment | false
--rounds 7 | rounds | 7
--envs 12 | envs | 12
--episode-length 9 | episode_length | 9
--minibatches 3 | data.minibatches | 3
--batch 5 | data.batch | 5
--final-episodes 0 | final_episodes | 0
--seed 11 | seed | 11
--reward sparse | reward.rule | "sparse"
--ppo-epochs 6 | ppo.epochs | 6
--lr 3e-4 | ppo.lr | 0.0003
--host-optimizer adamw | host.optimizer | "adamw"
--host-schedule cosine | host.schedule | "cosine"
--freeze block0.* head.bias | host.freeze | ["block0.*", "head.bias"]
--entropy-anneal-rounds 8 | ppo.entropy_anneal_rounds | 8
--value-warmup-rounds 4 | ppo.value_warmup_rounds | 4
--device cpu | engine.devices | ["cpu"]
--compile default | engine.compile | "default"
--capture off | engine.capture | "off"
--placement streamed | data.placement | "streamed"
--ranks 4 | engine.ranks | 4
--threads 1 | engine.threads | 1
--no-phase-profile | engine.phase_profile | false
--no-deterministic | engine.deterministic | false
--tf32 | engine.tf32 | true
--amp bfloat16 | engine.amp | "bfloat16"
--telemetry-level off | telemetry.level | "off"
--telemetry-dir /some/where | telemetry.dir | "/some/where"
--checkpoint-every 4 | checkpoint.every_rounds | 4
--keep 2 | checkpoint.keep | 2
"""
LOGGER_FLAGS = """
--logger tensorboard csv | telemetry.loggers | ["csv", "tensorboard"]
--wandb-project p | telemetry.wandb.project | "p"
--wandb-entity e | telemetry.wandb.entity | "e"
--wandb-group g | telemetry.wandb.group | "g"
--wandb-name n | telemetry.wandb.name | "n"
--wandb-tags b a | telemetry.wandb.tags | ["b", "a"]
--wandb-mode offline | telemetry.wandb.mode | "offline"
"""


def read_flags(table):
    """The rows of a table: flag, words, field, value."""
    for line in table.strip().splitlines():
        words, path, value = line.split(" | ")
        flag, *rest = words.split()
        yield flag, rest, path, json.loads(value)


FLAGS = [*read_flags(FLAG_TABLE), *(read_flags(LOGGER_FLAGS) if has_extra("loggers") else ())]
if has_extra("export"):
    FLAGS += read_flags('--keep-networks all | evaluation.keep.networks | "all"')
each_flag = pytest.mark.parametrize(
    ("flag", "words", "path", "value"), FLAGS, ids=[row[0] for row in FLAGS]
)


def spec_of(*words):
    args = main.parse_args(["train", *words], "0")
    return setting_flags.spec_from_args(args, overrides=train.choose_policy(args))


def config_of(*words):
    return json.loads(dump_config(resolve(spec_of(*words))))


def at(config, path):
    for name in path.split("."):
        config = config[name]
    return config


def nested(path, value):
    for name in reversed(path.split(".")):
        value = {name: value}
    return value


def test_every_flag_of_the_table_is_tried_here():
    tried = {flag: path for flag, _, path, _ in FLAGS}
    # without the loggers of extras no name can follow it
    tried["--logger"] = "telemetry.loggers"
    assert {flag.name: flag.path for flag in setting_flags.FLAGS} == tried


@each_flag
def test_a_flag_sets_its_field(flag, words, path, value):
    spec = spec_of(flag, *words)
    assert at(json.loads(dump_config(resolve(spec))), path) == value
    if path not in ("task", "preset"):  # the default preset is no longer taken
        assert resolve(spec) == resolve(spec_of("--set", f"{path}={json.dumps(value)}"))


@pytest.mark.parametrize(
    ("flag", "path", "low", "value"),
    [
        (["--slots", "r1c0"], "slots", ["r0c1"], ["r1c0"]),
        (["--no-augment"], "data.augment", True, False),
        (["--lr", "3e-4"], "ppo.lr", 1.0, 3e-4),
    ],
)
def test_a_given_flag_wins_over_the_file_and_an_absent_one_does_not(
    tmp_path, flag, path, low, value
):
    file = tmp_path / "config.json"
    file.write_text(json.dumps(nested(path, low)))
    assert at(config_of("--config", str(file)), path) == low
    assert at(config_of("--config", str(file), *flag), path) == value


def test_any_field_can_be_set_and_the_last_word_counts():
    spec = spec_of(
        "--set",
        "ppo.clip=0.3",
        "--set",
        'policy.floor={"op": 0}',
        "--set",
        "ppo.clip=0.1",
        "--set",
        "rounds=3",
    )
    assert (spec.ppo.clip, spec.policy.floor[0], spec.policy.floor[1], spec.rounds) == (
        0.1,
        0.0,
        spec_of().policy.floor[1],
        3,
    )
    assert spec_of("--set", "rounds=3", "--rounds", "4").rounds == 4


def test_a_bare_train_is_the_default_preset_trained_by_ppo():
    assert spec_of() == RunSpec(preset=DEFAULT_PRESET)
    assert spec_of("--task", "digits_impaired") == RunSpec(task="digits_impaired")
    assert spec_of("--task", "digits") == RunSpec(task="digits")


def test_who_decides_is_said_by_word_flag_or_file(tmp_path):
    file = tmp_path / "config.json"
    file.write_text('{"policy_name": "random"}')
    assert spec_of("heuristic").policy_name == "heuristic"
    assert spec_of("heuristic", "--policy", "wait").policy_name == "wait"
    assert spec_of("--config", str(file)).policy_name == "random"
    assert spec_of("ppo", "--config", str(file)).policy_name == "ppo"


def test_the_config_of_a_run_gives_the_same_run_again(tmp_path):
    spec = resolve(
        spec_of(
            "heuristic", "--preset", "smoke", "--slots", "r1c0", "--set", "instance.classes=[3, 5]"
        )
    )
    file = tmp_path / "config.json"
    file.write_text(dump_config(spec))
    assert spec_of("--config", str(file)) == spec
    for encoding in ("utf-8-sig", "utf-16"):
        file.write_text(dump_config(spec), encoding=encoding)
        assert spec_of("--config", str(file)) == spec


@pytest.fixture
def started(monkeypatch):
    """Arguments that a run was started with; `raises` makes it fail."""
    calls = SimpleNamespace(spec=None, keywords=None, raises=None, losses=Losses())

    def train(spec, **keywords):
        calls.spec, calls.keywords = spec, keywords
        if calls.raises is not None:
            raise calls.raises
        return SimpleNamespace(losses=calls.losses, stopped=False)

    real = importlib.import_module
    fake = SimpleNamespace(train_ppo_vectorized=train)
    monkeypatch.setattr(
        "morphogen.cli.train.import_module",
        lambda name: fake if name == "morphogen.train.train" else real(name),
    )
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr("morphogen.cli.train.find_launcher", Launcher)  # one process
    return calls


def test_a_command_starts_the_resolved_run_with_directory_console_and_its_own_words(
    started, tmp_path
):
    out = tmp_path / "run"
    assert main.main(["train", "--preset", "smoke", "--out", str(out)]) == 0
    assert started.spec == resolve(spec_of("--preset", "smoke"))
    assert started.keywords["out"] == out
    assert started.keywords["command"] == f"morphogen train --preset smoke --out {out}"
    assert not out.exists()


def test_without_out_a_run_gets_a_directory_of_its_own(started, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main.main(["train", "--task", "digits_impaired"]) == 0
    out = started.keywords["out"]
    assert out.parent.name == "runs"
    assert "digits_impaired" in out.name
    assert list(tmp_path.iterdir()) == []


EXITS = [
    (ConfigError("rounds: expected an integer >= 1, got 0"), 2),
    (DeviceError("engine.devices is cuda:9"), 2),
    (ScheduleError("step 3 is illegal"), 2),
    (DataError("data/x is missing"), 3),
    (CheckpointError("policy.safetensors is damaged"), 4),
    (TrainingDiverged("3 rounds without a step"), 5),
    (RankError("rank 2 of 4 ended"), 8),
]


@pytest.mark.parametrize(("error", "code"), EXITS, ids=[type(error).__name__ for error, _ in EXITS])
def test_each_error_has_its_exit_code_and_one_line_without_traceback(
    started, tmp_path, capsys, error, code
):
    started.raises = error
    assert main.main(["train", "--out", str(tmp_path / "run")]) == code
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"morphogen: error: {error}")


@pytest.mark.parametrize(("incomplete", "code"), [(True, 6), (False, 0)])
def test_a_run_whose_event_file_lacks_lines_ends_with_6_and_every_loss_is_told(
    started, tmp_path, capsys, incomplete, code
):
    started.losses = Losses({"csv": "no network", "events.jsonl": "disk full"}, incomplete)
    assert main.main(["train", "--out", str(tmp_path / "run")]) == code
    assert capsys.readouterr().err.splitlines() == [
        "morphogen: note: csv failed: no network",
        "morphogen: note: events.jsonl failed: disk full",
    ]


@needs_extra("loggers")
@pytest.mark.parametrize("name", ["tensorboard", "wandb", "mlflow"])
def test_a_logger_without_its_package_is_refused_before_anything_loads(
    started, tmp_path, monkeypatch, capsys, name
):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert main.main(["train", "--logger", "csv", name, "--out", str(tmp_path / "run")]) == 2
    assert f'pip install "morphogen[{name}]"' in capsys.readouterr().err
    assert started.spec is None


def test_an_unexpected_error_keeps_its_traceback(started, tmp_path):
    started.raises = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        main.main(["train", "--out", str(tmp_path / "run")])


def test_interruption_ends_with_130(started, tmp_path, capsys):
    started.raises = KeyboardInterrupt()
    assert main.main(["train", "--out", str(tmp_path / "run")]) == 130
    assert capsys.readouterr().err == "morphogen: stopped\n"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_with_its_code(monkeypatch, number, code):
    handlers = {}
    monkeypatch.setattr("signal.signal", handlers.__setitem__)
    monkeypatch.setattr("signal.getsignal", lambda number: signal.SIG_DFL)
    process.exit_on_signals()
    with pytest.raises(SystemExit) as caught:
        handlers[number](number, None)
    assert caught.value.code == code


def test_an_ignored_hangup_stays_ignored(monkeypatch):
    handlers = {}
    monkeypatch.setattr("signal.signal", handlers.__setitem__)
    monkeypatch.setattr("signal.getsignal", lambda number: signal.SIG_IGN)
    process.exit_on_signals()
    assert not handlers


# command line | part of the error
WRONG_TABLE = """
fly | fly
train walk | walk
train --rounds | --rounds
train --round 3 | --round
train --rounds many | rounds: expected a valid integer, got "many"
train --rounds 2.0 | rounds: expected a valid integer, got 2.0
train --lr nan | ppo.lr: expected a finite number, got NaN
train --task mnist | task: expected one of digits
train --preset big | preset: expected one of digits
train --slots r9c9 | slots: expected distinct names out of r0c0, r1c0, r0c1
train --device tpu | engine.devices: expected auto, cpu, cuda or cuda:0 .. cuda:99, got ["tpu"]
train --policy wait | --policy: expected `morphogen train heuristic --policy NAME`, got ppo and
train heuristic --policy ppo | --policy: expected one of wait, random, heuristic
train --config nowhere.json | --config: expected a readable file, got nowhere.json: No such file
train --config . | --config: expected a readable file, got .
train --reward gold | reward.rule: expected one of sparse, delta, value, rent, loss, anytime
resume x y | unrecognized arguments: y
train --taks digits | --taks digits (did you mean --task?) (see morphogen train --help)
resume | the following arguments are required: RUN_DIR
resume /dev/null | /dev/null is not a run directory: config.json not found
train --set rounds | --set: expected KEY=VALUE, as in --set ppo.clip=0.1, got "rounds"
train --set ppo.clap=1 | ppo.clap: expected one of epochs, minibatches, lr
"""
WRONG = [line.split(" | ") for line in WRONG_TABLE.strip().splitlines()]


# command line with a word that is almost right | the name that is meant
CLOSE_TABLE = """
trian | train
train ppoo | ppo
train --prest smoke | --preset
train --preset Smok | smoke
train --task digitz | digits
train --reward dleta | delta
train --compile defualt | default
train --set ppo.clap=1 | clip
train --set 'blueprints=["norm", "conv_lite"]' | conv_light
train --set policy.network=lstn | lstm
train heuristic --policy heuristik | heuristic
"""
CLOSE = [line.split(" | ") for line in CLOSE_TABLE.strip().splitlines()]


@pytest.mark.parametrize(("words", "meant"), CLOSE)
def test_a_word_that_is_almost_right_is_refused_with_the_name_that_is_meant(words, meant, capsys):
    assert main.main(shlex.split(words)) == 2
    assert f"(did you mean {meant}?)" in capsys.readouterr().err


@pytest.mark.parametrize(("words", "said"), WRONG)
def test_wrong_usage_is_refused_with_code_2_and_says_what_is_wanted(
    tmp_path, monkeypatch, capsys, words, said
):
    monkeypatch.chdir(tmp_path)
    assert main.main(shlex.split(words)) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert said in shown.err
    assert all(line.startswith("morphogen: error: ") for line in shown.err.splitlines())
    assert list(tmp_path.iterdir()) == []


def test_all_faults_of_a_command_are_told_at_once(tmp_path, capsys):
    file = tmp_path / "config.json"
    file.write_text('{"envs": 0, "epochs": 3}')
    assert main.main(["train", "--config", str(file), "--rounds", "x", "--set", "ppo.clip=7"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[2] for line in lines] == ["rounds:", "envs:", "ppo.clip:", "epochs:"]


def test_threads_are_set_before_torch_would_read_them(started, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "environ", dict(os.environ))
    assert main.main(["train", "--threads", "3", "--out", str(tmp_path / "run")]) == 0
    assert os.environ["OMP_NUM_THREADS"] == os.environ["MKL_NUM_THREADS"] == "3"


def test_print_config_shows_the_complete_config_on_stdout(capsys):
    assert main.main(["train", "--preset", "smoke", "--print-config"]) == 0
    shown = capsys.readouterr()
    assert shown.out == dump_config(resolve(spec_of("--preset", "smoke")))
    assert shown.err == ""


@pytest.mark.filterwarnings("always:no seed can be kept")
def test_a_run_that_can_keep_no_seed_is_noted(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main.main(["train", "--task", "tiny", "--set", "episode_length=2", "--dry-run"]) == 0
    assert "note: no seed can be kept in 2 epochs: raise episode_length" in capsys.readouterr().err
    assert main.main(["train", "--task", "tiny", "--dry-run"]) == 0
    assert capsys.readouterr().err == ""


def test_a_dry_run_opens_everything_says_sizes_and_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    assert main.main(["train", "--preset", "smoke", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "2 rounds of 8 epochs with 4 envs" in shown
    assert "1,197 train, 64 validation, 300 test samples" in shown
    assert "438 parameters" in shown
    assert list(tmp_path.iterdir()) == []


ALONE = ["--ranks", "1"]
NO_DATA = ["--task", "cifar_baseline", "--data-dir", "none"]
REFUSED = {
    "an imitated policy without its slots": (
        [*ALONE, "--set", 'heuristic.slots=["r1c1"]', "--set", "final_episodes=0"],
        2,
        "heuristic.slots: expected names out of r0c0, r0c1, r1c0, got ['r1c1']",
    ),
    "a rival without its slots": (
        [*ALONE, "--set", 'heuristic.slots=["r1c1"]', "--set", "ppo.imitation_rounds=0"],
        2,
        "heuristic.slots: expected names out of r0c0, r0c1, r1c0, got ['r1c1']",
    ),
    **rows_of_extra(
        "schedules",
        lambda: {
            "a schedule without a file": (
                [*ALONE, "--set", 'policy_name="schedule:none.json"'],
                2,
                "policy_name: expected a readable file of UTF-8 text, got schedule:none.json",
            )
        },
    ),
    "a directory in use": (
        [*ALONE, "--out", "used"],
        2,
        "out: expected a new or empty directory, got used",
    ),
    "events of another run": (
        [*ALONE, "--telemetry-dir", "used"],
        2,
        "used/events.jsonl, which exists",
    ),
    **rows_of_extra("cifar", lambda: {"data that is not there": ([*ALONE, *NO_DATA], 3, "none")}),
}


@pytest.mark.parametrize("form", REFUSED)
@pytest.mark.parametrize("dry", [True, False])
def test_a_dry_run_refuses_what_a_run_refuses_and_both_write_nothing(
    tmp_path, monkeypatch, capsys, form, dry
):
    words, code, said = REFUSED[form]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "events.jsonl").touch()
    assert main.main(["train", "--preset", "smoke", *words, *["--dry-run"] * dry]) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert said in shown.err
    assert [path.name for path in tmp_path.iterdir()] == ["used"]


def test_a_device_that_is_not_there_ends_with_2(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    assert main.main(["train", "--device", "cuda:99"]) == 2
    assert "cuda:99" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def fresh(*words, cwd, then=""):
    """A command in a fresh interpreter that tells afterwards which heavy packages are loaded."""
    code = (
        "import sys\nfrom morphogen.cli import main as cli\n"
        f"try:\n    code = cli.main({list(words)!r})\nexcept SystemExit as end:\n    code = "
        "end.code\n"
        "heavy = {'torch', 'tensordict', 'torchrl', 'numpy', 'rich', 'matplotlib'} & "
        "set(sys.modules)\n"
        "print('END', code, sorted(heavy))"
    )
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=60,
        check=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--help"], 0),
        (["--version"], 0),
        *[(["completion", "bash"], 0)] * has_extra("completion"),
        *[(["data", "no_task"], 2)] * has_extra("catalogue"),
        *[(["config", "ppo.clip", "--preset", "smoke"], 0)] * has_extra("catalogue"),
        (["train", "--print-config"], 0),
        (["train", "--out", "/dev/null"], 2),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else None,
)
def test_help_and_refusals_load_nothing_heavy_and_write_nothing(tmp_path, words, code):
    done = fresh(*words, cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == f"END {code} []"
    assert list(tmp_path.iterdir()) == []


def shown_help(capsys, *words):
    with pytest.raises(SystemExit) as caught:
        main.main([*words, "--help"])
    assert caught.value.code == 0
    return " ".join(capsys.readouterr().out.split())


def test_help_of_train_explains_every_flag_baseline_and_exit_code(capsys):
    text = shown_help(capsys, "train")
    for flag in setting_flags.FLAGS:
        assert f"{flag.name} " in text
    for word in ("wait", "random", "heuristic", "exit codes", "examples"):
        assert word in text


def test_version_is_the_one_of_the_installed_package(capsys):
    with pytest.raises(SystemExit):
        main.main(["--version"])
    assert capsys.readouterr().out == "morphogen 0.1.0\n"


def test_a_reader_that_leaves_early_is_no_error(tmp_path):
    command = f"set -o pipefail; {sys.executable} -m morphogen train --print-config | true"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, cwd=tmp_path, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("available", [True, False])
def test_missing_kernels_are_reported_in_one_line(
    started, tmp_path, monkeypatch, capsys, available
):
    monkeypatch.setattr("morphogen.kernels.AVAILABLE", available)
    assert main.main(["train", "--out", str(tmp_path / "run")]) == 0
    lines = [
        line for line in capsys.readouterr().err.splitlines() if line.startswith("morphogen: note:")
    ]
    assert len(lines) == (not available)
    assert all("compiled kernels are missing, plain torch is slower" in line for line in lines)


@pytest.mark.parametrize("load", [lambda: 1 / 0, lambda: json], ids=["raises", "no command"])
def test_a_faulty_package_stops_no_command(load, monkeypatch):
    points = [SimpleNamespace(name="theirs", load=load)]
    monkeypatch.setattr(command_table.metadata, "entry_points", lambda group: points)
    assert set(command_table.list_commands()) == set(command_table.COMMANDS)
