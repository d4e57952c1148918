"""Files that lie about their size, take exponential time, or hold numbers and texts that nobody expects."""

import json
import pickle
import re
import struct
import time
import tracemalloc
import zipfile

import pytest
import torch
from support import generated_logs
from support.malicious_pickles import named, number, word
from support.small_runs import cifar_files, tiny

from morphogen.cli.main import main
from morphogen.data import cifar
from morphogen.errors import CheckpointError, DataError
from morphogen.run.train import train_ppo_vectorized
from morphogen.storage.checkpoint_files import load_policy
from morphogen.storage.tensor_trees import load_tree

SLOWEST_S = 2.0
MIB = 2**20


def folded(depth):
    """Operations that leave a tuple of tuples on the stack, whose hash takes 2**depth steps."""
    steps = (b"h" + bytes([i]) + b"h" + bytes([i]) + b"\x86q" + bytes([i + 1]) + b"0" for i in range(depth))
    return b")q\x000" + b"".join(steps) + b"h" + bytes([depth])


BOMBS = {
    "a key": b"}" + folded(32) + b"K\1s",
    "a key among several": b"}(" + b"K\1K\1" + folded(32) + b"K\1u",
    "a key of a dict of the old form": b"(" + folded(32) + b"K\1d",
    "a member of a set": b"\x8f(" + folded(32) + b"\x90",
    "a member of a frozen set": b"(" + folded(32) + b"\x91",
    "a persistent id": folded(32) + b"Q",
    "a text that is encoded again and again": word("x" * 2**16)
    + b"q\x000"
    + (named("_codecs encode") + b"h\x00\x85R") * 400,
    "a memo beyond the file": b"K\1r\xff\xff\xff\x7f",
    "a great many operations": b"N0" * 8_000_000,
    "an array of the system": named("builtins bytearray") + number(2**40) + b"\x85R",
}


class Clock:
    """Time that the processor spent for a body, in seconds, and the most memory that Python took."""

    def __enter__(self):
        tracemalloc.start()
        self._began = time.process_time()
        return self

    def __exit__(self, *raised):
        self.spent_s = time.process_time() - self._began
        self.peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_a_pickle_takes_time_and_memory_by_its_size(tmp_path, bomb):
    path = tmp_path / "data_batch_1"
    path.write_bytes(b"\x80\4" + bomb + b".")
    with Clock() as clock, pytest.raises(DataError, match=re.escape(str(path))):
        cifar.read_python(path)
    assert clock.spent_s < SLOWEST_S * 5  # with the memory traced
    assert clock.peak < 4 * path.stat().st_size + 8 * MIB


@pytest.mark.parametrize("label", [10, 255])
@pytest.mark.parametrize("kind", ["binary", "python"])
def test_labels_out_of_range_are_refused_by_the_file(tmp_path, capsys, label, kind):
    cifar_files(tmp_path)
    path = tmp_path / cifar.BINARY / "data_batch_3.bin"
    if kind == "binary":
        raw = bytearray(path.read_bytes())
        raw[7 * cifar.RECORD] = label
        path.write_bytes(raw)
    else:
        (tmp_path / cifar.BINARY).rename(tmp_path / "old")
        (tmp_path / cifar.PYTHON).mkdir()
        for name in (*cifar.TRAIN, cifar.TEST):
            samples = cifar.read_binary(tmp_path / "old" / f"{name}.bin")
            labels = [label if name == "data_batch_3" else int(each) for each in samples.labels]
            batch = {b"data": samples.inputs.flatten(1).numpy().copy(), b"labels": labels}
            (tmp_path / cifar.PYTHON / name).write_bytes(pickle.dumps(batch, protocol=2))
        path = tmp_path / cifar.PYTHON / "data_batch_3"
    words = ["train", "--task", "cifar_baseline", "--data-dir", str(tmp_path), "--out", str(tmp_path / "run")]
    assert main(words) == 3
    assert f"{path}: labels: expected 0 .. 9, got {label}" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


# --- tensors ----------------------------------------------------------------------------------------------------------


def overlapping(path, entries, size):
    """An archive of the old format whose entries all have the same bytes."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data/0", bytes(size))
        first = archive.infolist()[0]
        for number_ in range(1, entries):
            again = zipfile.ZipInfo(f"data/{number_}")
            again.file_size = again.compress_size = size
            again.CRC, again.header_offset = first.CRC, 0
            archive.filelist.append(again)
            archive.NameToInfo[again.filename] = again


@pytest.mark.parametrize("make", [lambda path: overlapping(path, 400, MIB), lambda path: torch.save({"a": 1}, path)])
def test_a_policy_of_an_old_format_is_refused_in_one_sentence_before_it_is_read(tmp_path, capsys, make):
    run = generated_logs.write(tmp_path / "run", rounds=1, envs=1, epochs=2)
    make(run / "policy.pt")
    with Clock() as clock, pytest.raises(CheckpointError, match="expected a safetensors file, got a file of"):
        load_policy(run)
    assert clock.spent_s < SLOWEST_S
    assert clock.peak < MIB


HEADERS = {
    "two tensors of the same bytes": {"a": [0, 24], "b": [0, 24]},
    "a tensor beyond the end": {"a": [0, 2**40]},
    "a hole": {"a": [8, 24]},
    "a tensor that ends before it begins": {"a": [24, 0]},
}


@pytest.mark.parametrize("spans", HEADERS.values(), ids=HEADERS)
def test_tensors_fill_their_file_exactly(tmp_path, spans):
    header = {name: {"dtype": "F32", "shape": [6], "data_offsets": span} for name, span in spans.items()}
    tree = {name: {"$tensor": name} for name in spans}
    text = json.dumps({**header, "__metadata__": {"tree": json.dumps(tree)}}).encode()
    path = tmp_path / "envs.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(24))
    with Clock() as clock, pytest.raises(CheckpointError, match=r"envs\.safetensors cannot be read: "):
        load_tree(path, label="checkpoint file")
    assert clock.spent_s < SLOWEST_S
    assert clock.peak < MIB


# --- numbers and texts of events --------------------------------------------------------------------------------------

NUMBERS = {
    '"round":1,': '"round":1' + "0" * 400 + ",",
    '"run_s":': '"run_s":NaN,"run_s":',
    '"epoch":0,': '"epoch":1e999,',
    '"env":0,': '"env":-1,',
    '"seq":': '"seq":Infinity,"seq":',
}


@pytest.mark.parametrize("number_", NUMBERS)
@pytest.mark.parametrize("words", ["inspect {}", "watch --once {}", "report {}"])
def test_a_number_that_no_run_writes_ends_in_one_line(tmp_path, capsys, number_, words):
    run = generated_logs.write(tmp_path / "run", rounds=2, envs=2, epochs=3)
    path = run / "events.jsonl"
    text = path.read_text()
    assert number_ in text
    path.write_text(text.replace(number_, NUMBERS[number_]))
    assert main(words.format(run).split()) in (0, 3)
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    assert len(said.err.splitlines()) <= 1


def test_a_run_without_a_known_wall_time_is_inspected(tmp_path, capsys):
    run = generated_logs.write(tmp_path / "run", rounds=1, envs=1, epochs=2)
    path = run / "events.jsonl"
    path.write_text(re.sub('"run_s":[0-9.e+-]+', '"run_s":null', path.read_text()))
    assert main(["inspect", str(run)]) == 0
    assert re.search(r"^wall time +not known$", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.parametrize("value", ["1e10", "1e308", "86401"])
def test_a_patience_beyond_a_day_is_refused(tmp_path, capsys, value):
    words = [
        "train",
        "--preset",
        "smoke",
        "--set",
        f"telemetry.close_timeout_s={value}",
        "--out",
        str(tmp_path / "run"),
    ]
    assert main(words) == 2
    assert "telemetry.close_timeout_s: expected" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_the_longest_patience_is_accepted(tmp_path):
    spec = tiny(rounds=1, telemetry={"close_timeout_s": 86_400})
    assert not train_ppo_vectorized(spec, out=tmp_path / "run").stopped
