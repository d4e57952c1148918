"""Files of others: regular ones of a bounded size, JSON with bounds, logs that fit their run."""

import errno
import os
import re
import stat

import pytest
from support import generated_logs

from morphogen.cli import main
from morphogen.config import files
from morphogen.config.spec import RunSpec
from morphogen.config.telemetry_spec import TelemetrySpec
from morphogen.errors import ConfigError


def test_a_whole_file_is_read_up_to_its_bound(tmp_path):
    (tmp_path / "a").write_bytes(b"12345")
    assert files.read_bytes(tmp_path / "a", 5) == b"12345"
    with pytest.raises(OSError, match="more than 4 bytes"):
        files.read_bytes(tmp_path / "a", 4)


def test_what_stands_in_the_place_of_a_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path, message in (
        (tmp_path / "pipe", "a pipe or device"),
        (tmp_path, "a directory"),
        (tmp_path.joinpath("/dev/zero"), "a pipe or device"),
        (tmp_path / "a\0b", "invalid file name"),
        (tmp_path / "\ud800", "invalid file name"),
    ):
        with pytest.raises(OSError, match=message):
            files.read_bytes(path)


def test_lines_are_whole_lines(tmp_path):
    (tmp_path / "a").write_bytes(b"one\n\ntwo\ncut")
    assert list(files.read_lines(tmp_path / "a")) == [b"one\n", b"\n", b"two\n"]


def test_a_line_without_end_is_refused_before_it_is_in_memory(tmp_path):
    with (tmp_path / "a").open("wb") as file:
        file.truncate(files.MAX_BYTES + 1)  # a hole takes no room
    with pytest.raises(OSError, match="a line of more than"):
        list(files.read_lines(tmp_path / "a"))


@pytest.mark.parametrize(
    ("text", "message"),
    {
        "[]": "expected an object, got a list",
        '{"a": NaN}': "NaN is not a JSON number",
        '{"a": 1e400}': "1e400 is not a JSON number",
        '{"a": -1e400}': "-1e400 is not a JSON number",
        '{"a":' * 100_000: "nested too deep",
        '{"a":' * 65 + "1" + "}" * 65: "nested deeper than 64",
        '{"a": 1' + "0" * 5000 + "}": "Exceeds the limit",
        '{"a": 1} x': "Extra data",
    }.items(),
)
def test_json_has_bounds(text, message):
    with pytest.raises(ValueError, match=message):
        files.parse_json(text)
    assert files.parse_json('{"a":' * 64 + "1" + "}" * 64)


def test_a_reason_is_one_line_that_a_terminal_can_show():
    assert files.error_line(ValueError("a\x1b[2J\ud800b\nmore")) == "a\\x1b[2J\\ud800b"
    assert files.error_line(KeyError()) == "KeyError"
    assert len(files.error_line(ValueError("x" * 1000))) == 200


STARTED = generated_logs.events(rounds=1, envs=3, epochs=4)[0]


def test_words_that_cannot_be_meant_are_refused_by_their_place(capsys):
    for word_ in ("a\0b", "\udcff", "\x1b[2J", "a\nb", "--envs=--"):
        assert main.main(["train", "--print-config", "--out", word_]) == 2
        assert "morphogen: error: argument 4: expected printable text" in capsys.readouterr().err


def test_a_name_that_no_file_can_have_is_refused(capsys):
    assert main.main(["resume", "x" * 300]) == 2
    assert capsys.readouterr().err.startswith("morphogen: error: ")


@pytest.mark.parametrize("path", ["a\0b", "\ud800", "a\nb", ""])
def test_a_path_in_a_config_is_printable_text(path):
    with pytest.raises(ConfigError, match=r"telemetry\.dir: expected printable text"):
        TelemetrySpec(dir=path)
    with pytest.raises(ConfigError, match="policy_name: expected one of"):
        RunSpec(policy_name=f"file:{path}")


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EACCES])
def test_a_folder_that_cannot_be_synced_is_no_error_and_a_file_is(tmp_path, monkeypatch, number):
    def fsync(handle):
        if stat.S_ISDIR(os.fstat(handle).st_mode) == folders:
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fsync)
    folders = True
    files.write_atomic(tmp_path / "file", b"new")
    folders = False
    with pytest.raises(OSError, match=re.escape(os.strerror(number))):
        files.write_atomic(tmp_path / "file", b"newer")
    assert (tmp_path / "file").read_bytes() == b"new"


def test_a_folder_that_may_be_written_and_not_read_is_not_synced(tmp_path, monkeypatch):
    def refuse(path, flags):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    files.sync_folder(tmp_path)
