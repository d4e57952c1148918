"""Every kind of input that is fuzzed: how it is made, where it is put, what reads it, what a
refusal has to name.
"""

import contextlib
import io
import json
import os
import re
import signal
from functools import partial
from importlib import import_module
from itertools import chain
from unittest import mock

import numpy as np
import torch
from hypothesis import strategies as st
from support import generated_logs
from support.corrupted_files import ODD, PLACES, damaged, edited, jsons, lines, put
from support.extras import has_extra, rows_of_extra
from support.made_up_checkpoints import made_up

from morphogen.cli import main, setting_flags, train
from morphogen.config.config_files import dump_config, parse_config
from morphogen.config.fields import fields_of
from morphogen.config.spec import RunSpec, resolve
from morphogen.log import run_directory
from morphogen.log.console import Console
from morphogen.state.tensor_trees import load_tree, save_tree
from morphogen.train import checkpoint_store
from morphogen.train.checkpoint import load_checkpoint

CPU = torch.device("cpu")


def import_plots():
    """The plots of the page with pictures, where it can be made."""
    if not has_extra("pictures"):
        return ()
    return import_module("morphogen.extras.pictures.page").import_plots()


SPEC = resolve(RunSpec())
CONFIG = dump_config(SPEC)


def segments(spec):
    """Every name in a config."""
    for name, info in fields_of(spec).items():
        yield name
        yield from segments(info.annotation) if hasattr(info.annotation, "PATH") else ()


FIELDS = tuple(dict.fromkeys(segments(RunSpec)))


class Config:
    """Config files, with `--set`."""

    def __init__(self, folder):
        folder.mkdir()
        self.path = folder / "config.json"

    def inputs(self):
        fields = st.sampled_from(
            [*FIELDS, "ppo.clip", "host.lr", "telemetry.limits.kl_spike", "instance.classes", "a"]
        )
        settings = st.tuples(fields, st.sampled_from(ODD) | st.text(max_size=8)).map("=".join)
        return st.tuples(
            jsons(CONFIG), st.just([]) | st.lists(settings | st.text(max_size=8), max_size=2)
        )

    def put(self, value):
        put(self.path, value[0])

    def read(self, value):
        words = ["train", f"--config={self.path}", *(f"--set={text}" for text in value[1])]
        args = main.parse_args(words, "0")
        spec = resolve(setting_flags.spec_from_args(args, overrides=train.choose_policy(args)))
        assert parse_config(dump_config(spec)) == spec

    def names(self, value):
        return str(self.path), "--set", "argument", *FIELDS


WORDS = """digits cifar_baseline ppo heuristic wait schedule:x r0c0 csv cpu cuda:9 smoke rounds=1 envs=1,2
ppo.clip=0.1 off 0 1 8 3e-4 -5 1e999 é inspect resume --help --"""


class Commands:
    """Command lines that train nothing: dry, or refused."""

    CODES = (0, 2, 3, 4)

    def __init__(self, folder):
        self.run = generated_logs.write(folder / "run", rounds=1, envs=2, epochs=3)
        self.file = folder / "file"
        self.file.write_text("{}")
        self.words = [
            str(self.run),
            str(self.file),
            str(folder),
            str(folder / "none"),
            *WORDS.split(),
            "\udcff",
            "a\0b",
        ]

    def inputs(self):
        flags = [flag.name for flag in setting_flags.FLAGS]
        flags += [
            "--policy",
            "--config",
            "--set",
            "--grid",
            "--quiet",
            "--print-config",
            "--checkpoint-every",
            "-h",
            "-x",
        ]
        word = (
            st.sampled_from(self.words)
            | st.sampled_from(self.words)
            | st.sampled_from(ODD)
            | st.text(max_size=6)
        )
        pair = st.tuples(st.sampled_from(flags), word).map(list)
        joined = st.tuples(st.sampled_from(flags), word).map(lambda two: ["=".join(two)])
        rest = st.lists(pair | pair | joined | word.map(lambda one: [one]), max_size=5).map(
            lambda some: [*chain(*some)]
        )
        first = st.sampled_from(
            [
                *([["train", "--print-config"]] * 4),
                ["train", "heuristic", "--print-config"],
                ["train", "--dry-run", "--envs", "0"],
                ["bench", "--json", str(self.file)],
                ["report", "--out", str(self.file)],
                ["inspect"],
                ["inspect", str(self.run)],
                ["watch", "--once"],
                ["watch", "--once", str(self.run)],
                ["resume"],
                [],
            ]
        )
        return st.tuples(first, rest).map(lambda two: [*two[0], *two[1]]) | st.lists(
            word, max_size=3
        )

    def put(self, value):
        pass

    def read(self, value):
        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
        err.reconfigure(errors="backslashreplace")
        started = AssertionError("something was started")
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            mock.patch("morphogen.train.train.train_ppo_vectorized", side_effect=started),
            mock.patch("morphogen.train.train.resume", side_effect=started),
            mock.patch.dict(os.environ),
            kept_signal(signal.SIGTERM),
        ):
            code = exit_code(value)
        said = err.buffer.getvalue().decode()
        assert code in self.CODES, f"exit code {code}"
        assert "Traceback" not in said, said
        assert (code == 0) == (not re.search("^morphogen: error: .", said, re.MULTILINE)), said
        assert code == 0 or all(line.startswith("morphogen: ") for line in said.splitlines()), said
        return "refused" if code else "accepted"

    def names(self, value):
        return ()


def exit_code(words):
    try:
        return main.main(words)
    except SystemExit as end:  # --help and --version
        return end.code or 0


@contextlib.contextmanager
def kept_signal(number):
    before = signal.getsignal(number)
    try:
        yield
    finally:
        signal.signal(number, before)


class Manifests:
    """Checkpoints with a damaged manifest."""

    def __init__(self, folder):
        facts = {"config_sha256": "0" * 64, "versions": {"torch": "2.13.0"}}
        self.path = made_up(**facts).save(folder / "checkpoints")
        self.manifest = self.path / checkpoint_store.MANIFEST
        self.whole = self.manifest.read_text()

    def inputs(self):
        return jsons(self.whole)

    def put(self, value):
        put(self.manifest, value)

    def read(self, value):
        readers = [load_checkpoint]
        if has_extra("inspection"):
            readers.insert(0, inspected("inspect_run").inspect_path)
        errors = [outcome(partial(read, self.path)) for read in readers]
        for error in filter(None, errors):
            raise error

    def names(self, value):
        return (str(self.path),)


def inspected(module):
    """A module of the extra that reads a run."""
    return import_module(f"morphogen.extras.inspection.{module}")


def outcome(act):
    """The error of ours that something ends with."""
    try:
        act()
    except (ValueError, RuntimeError) as error:
        return error
    return None


class TensorFiles:
    """Files of trees of tensors: damaged ones, and ones whose header lies."""

    def __init__(self, folder):
        folder.mkdir()
        self.path = folder / "envs.safetensors"
        tree = {
            "a": torch.arange(6).view(2, 3),
            "b": {"c": torch.zeros(2), "d": [1, 2.5, None, True, "x", (1, 2)]},
        }
        save_tree(tree, self.path)
        self.whole = self.path.read_bytes()
        self.begin = 8 + int.from_bytes(self.whole[:8], "little")  # of the tensors
        self.header = self.whole[8 : self.begin].decode()
        self.tree = json.loads(self.header)["__metadata__"]["tree"]

    def inputs(self):
        headers = edited(self.header) | edited(self.tree).map(self.with_tree)
        files = headers.map(
            lambda header: len(header).to_bytes(8, "little") + header + self.whole[self.begin :]
        )
        return (
            damaged(self.whole) | files | files.flatmap(damaged) | st.binary(max_size=64) | PLACES
        )

    def with_tree(self, tree):
        metadata = {"tree": tree.decode("utf-8", "replace")}
        return json.dumps({**json.loads(self.header), "__metadata__": metadata}).encode()

    def put(self, value):
        put(self.path, value)

    def read(self, value):
        found = load_tree(self.path, label="checkpoint file")
        assert size(found) <= len(value)

    def names(self, value):
        return (str(self.path),)


def size(tree):
    """Bytes of tensors in a tree that consists of what it may consist of."""
    if isinstance(tree, torch.Tensor):
        return tree.nbytes
    if type(tree) in (dict, list, tuple):
        return sum(map(size, tree.values() if isinstance(tree, dict) else tree))
    assert tree is None or type(tree) in (bool, int, float, str)
    return 0


class Runs:
    """Run directories: each of their JSON files, and the event file."""

    FILES = (run_directory.CONFIG, run_directory.MANIFEST)

    def __init__(self, folder):
        self.path = generated_logs.write(folder / "run", rounds=2, envs=2, epochs=3)
        self.whole = {
            name: (self.path / name).read_text() for name in (*self.FILES, run_directory.EVENTS)
        }
        self.last = run_directory.EVENTS  # the file that is not whole

    def inputs(self):
        return st.sampled_from(self.FILES).flatmap(
            lambda name: st.tuples(st.just(name), jsons(self.whole[name]))
        )

    def put(self, value):
        put(self.path / self.last, self.whole[self.last].encode())
        put(self.path / value[0], value[1])
        self.last = value[0]

    def read(self, value):
        readers = {"inspection": self.inspected, "watch": self.watched}
        errors = [outcome(read) for extra, read in readers.items() if has_extra(extra)]
        for error in filter(None, errors):
            raise error

    def inspected(self):
        run = inspected("inspect_run")
        log = inspected("run_reader").read_run(self.path)
        views = inspected("views").build_views(log.tables)
        facts, tables = run.inspect_path(self.path)
        shown = io.TextIOWrapper(io.BytesIO(), "utf-8")
        print(*facts.items(), run.overview(log), views, sep="\n", file=shown)
        for title, rows in tables.items():
            Console(out=shown).print_table(rows, title=title)
        for plot in import_plots():
            list(map(str, plot.rows(log)))

    def watched(self):
        table = import_module("morphogen.extras.watch.rounds_table")
        table.watch(self.path, once=True, out=io.TextIOWrapper(io.BytesIO(), "utf-8"))

    def names(self, value):
        return (str(self.path),)


class Events(Runs):
    """Event files."""

    def inputs(self):
        whole = self.whole[run_directory.EVENTS]
        files = lines(whole)
        odd = damaged(whole.encode()) | st.binary(max_size=80) | PLACES
        return st.tuples(st.just(run_directory.EVENTS), st.one_of(files, files, files, files, odd))


class Schedules:
    """Schedule files."""

    def __init__(self, folder):
        folder.mkdir()
        self.path = folder / "schedule.json"
        schedules = import_module("morphogen.extras.schedules.action_schedule")
        self.control = import_module("morphogen.extras.schedules.schedule_control")
        self.spec = resolve(RunSpec(episode_length=18))  # as long as the schedule
        schedule = schedules.build_builtin("full_cycle", self.spec)
        self.whole = schedules.dump_schedule(schedule, self.spec)

    def inputs(self):
        return jsons(self.whole)

    def put(self, value):
        put(self.path, value)

    def read(self, value):
        self.control.load_policy(str(self.path), self.spec, None).control(CPU)

    def names(self, value):
        return (str(self.path),)


class Datasets:
    """Binary files of CIFAR."""

    def __init__(self, folder):
        folder.mkdir()
        self.path = folder / "batch"
        self.reader = import_module("morphogen.extras.cifar.files")
        pixels = np.arange(2 * self.reader.PIXELS, dtype=np.uint8).reshape(2, -1)
        self.whole = b"".join(
            bytes([label]) + row.tobytes() for label, row in zip((3, 9), pixels, strict=True)
        )

    def inputs(self):
        record = st.binary(min_size=1, max_size=1).map(lambda one: one * self.reader.RECORD)
        return damaged(self.whole) | PLACES | st.lists(record, max_size=3).map(b"".join)

    def put(self, value):
        put(self.path, value)

    def read(self, value):
        samples = self.reader.read_binary(self.path)
        assert samples.inputs.shape[1:] == self.reader.SHAPE
        assert len(samples.inputs) == len(samples.labels) == len(samples.labels.clamp(0, 9))

    def names(self, value):
        return (str(self.path),)


KINDS = {
    "config": Config,
    "commands": Commands,
    "manifests": Manifests,
    "tensorfiles": TensorFiles,
    **rows_of_extra("inspection", lambda: {"events": Events, "runs": Runs}),
    **rows_of_extra("schedules", lambda: {"schedules": Schedules}),
    **rows_of_extra("cifar", lambda: {"datasets": Datasets}),
}
