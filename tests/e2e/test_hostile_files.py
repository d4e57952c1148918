"""Files that lie about their size, take exponential time, or hold numbers and texts that nobody
expects.
"""

import json
import struct
import time
import tracemalloc
from itertools import product

import pytest
import torch
from support import generated_logs

from morphogen.cli.main import main
from morphogen.errors import CheckpointError
from morphogen.policy.policy_files import load_policy
from morphogen.state.tensor_trees import load_tree

SLOWEST_S = 2.0
MIB = 2**20


class Clock:
    """Time that the processor spent for a body, in seconds, and the most memory that Python
    took.
    """

    def __enter__(self):
        tracemalloc.start()
        self._began = time.process_time()
        return self

    def __exit__(self, *raised):
        self.spent_s = time.process_time() - self._began
        self.peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()


# --- tensors
#
# ----------------------------------------------------------------------------


def test_a_policy_of_an_old_format_is_refused_in_one_sentence_before_it_is_read(tmp_path):
    run = generated_logs.write(tmp_path / "run", rounds=1, envs=1, epochs=2)
    torch.save({"a": torch.zeros(MIB)}, run / "policy.pt")
    with (
        Clock() as clock,
        pytest.raises(CheckpointError, match="expected a safetensors file, got a file of"),
    ):
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
    header = {
        name: {"dtype": "F32", "shape": [6], "data_offsets": span} for name, span in spans.items()
    }
    tree = {name: {"$tensor": name} for name in spans}
    text = json.dumps({**header, "__metadata__": {"tree": json.dumps(tree)}}).encode()
    path = tmp_path / "envs.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(24))
    with (
        Clock() as clock,
        pytest.raises(CheckpointError, match=r"envs\.safetensors cannot be read: "),
    ):
        load_tree(path, label="checkpoint file")
    assert clock.spent_s < SLOWEST_S
    assert clock.peak < MIB


# --- numbers and texts of events
# ----------------------------------------------------------------------------

NUMBERS = {
    '"round":1,': '"round":1' + "0" * 400 + ",",
    '"run_s":': '"run_s":NaN,"run_s":',
    '"epoch":0,': '"epoch":1e999,',
    '"env":0,': '"env":-1,',
    '"seq":': '"seq":Infinity,"seq":',
}


@pytest.mark.parametrize(
    ("words", "number_"),
    [*product(("inspect {}", "watch --once {}"), NUMBERS), ("report {}", '"run_s":')],
)
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
