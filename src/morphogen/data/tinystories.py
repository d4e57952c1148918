"""Reader of the TinyStories files, texts or tokens.  Files are memory-mapped; nothing is downloaded."""

import mmap
import os
import warnings
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from morphogen.data.data_files import FileData, FileForm, FileSource
from morphogen.data.token_text import CHUNK, LEAST_TOKENS, TextSplits, TokenText
from morphogen.errors import DataError
from morphogen.storage.files import error_line, open_regular, parse_json, read_bytes
from morphogen.vocab.text import format_value

SEPARATOR = b"<|endoftext|>"  # between stories
SEPARATOR_TOKEN = 256  # of texts: tokens 0 .. 255 are bytes
LEAST_STORIES = 2  # of a file
MOST_TOKENS = 2**16  # ids of a vocabulary that a file of uint16 can hold
_STORIES = f"at least {LEAST_STORIES} stories, separated by {SEPARATOR.decode()}"
_TEXT_FORMS = tuple(
    FileForm(name, (f"{prefix}-train.txt", f"{prefix}-valid.txt"), f"text: {_STORIES}")
    for name, prefix in (("text", "TinyStories"), ("text of GPT-4", "TinyStoriesV2-GPT4"))
)
_TOKEN_FORM = FileForm(
    "tokens",
    ("train.bin", "val.bin", "meta.json"),
    f"tokens in uint16, at least {LEAST_STORIES} stories with eos between them; meta.json: vocab_size, eos",
)
FILES = FileSource("the TinyStories texts, or token files made of them", (*_TEXT_FORMS, _TOKEN_FORM))


def read_tinystories(folder: Path) -> TextSplits:
    """Return training, and the halves of the validation file as validation and test; texts are preferred.

    Files are memory-mapped: tokens are read on access, but for one pass that finds the stories.
    Raises: DataError if a file is missing or damaged.
    """
    form = FILES.choose_form(folder)
    paths = [folder / path for path in form.paths]
    vocabulary, separator = read_meta(paths[2]) if form is _TOKEN_FORM else (SEPARATOR_TOKEN + 1, SEPARATOR_TOKEN)
    if form is _TOKEN_FORM:
        train, held_out = (read_tokens(path, vocabulary, separator) for path in paths[:2])
    else:
        train, held_out = (read_text(path) for path in paths)
    stories = len(held_out.starts)
    parts = held_out.part(0, stories // 2), held_out.part(stories // 2, stories)
    return TextSplits(train, *parts, vocabulary=vocabulary, separator=separator)


def read_text(path: Path) -> TokenText:
    """Return the bytes of a text, and its stories without the white space around them."""
    with _data_errors(path), open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if not size:
            raise DataError(f"{path}: expected {_STORIES}, got an empty file")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            bounds = np.frombuffer(_find_stories(content), dtype=np.int64).reshape(-1, 2)
    return _build_text(path, _map_file(path, np.uint8), bounds)


def _find_stories(content: mmap.mmap) -> "array[int]":
    """Return start and end of every story of at least two bytes, one after the other."""
    bounds, position = array("q"), 0
    while position <= len(content):
        found = content.find(SEPARATOR, position)
        end = found if found >= 0 else len(content)
        story = content[position:end]
        start = position + len(story) - len(story.lstrip())
        stop = start + len(story.strip())
        if stop - start >= LEAST_TOKENS:
            bounds.extend((start, stop))
        position = end + len(SEPARATOR)
    return bounds


def read_meta(path: Path) -> tuple[int, int]:
    """Return vocabulary and separator of token files: `vocab_size` and `eos` of a JSON object."""
    with _data_errors(path):
        raw = read_bytes(path)
    try:
        meta = parse_json(raw)
    except ValueError as error:
        raise DataError(f"{path}: {error_line(error)}") from error
    size, eos = meta.get("vocab_size"), meta.get("eos")
    if type(size) is not int or not 2 <= size <= MOST_TOKENS:
        raise DataError(f"{path}: vocab_size: expected an integer in 2 .. {MOST_TOKENS}, got {format_value(size)}")
    if type(eos) is not int or not 0 <= eos < size:
        raise DataError(f"{path}: eos: expected an integer in 0 .. {size - 1}, got {format_value(eos)}")
    return size, eos


def read_tokens(path: Path, vocabulary: int, separator: int) -> TokenText:
    """Return the tokens of a file of uint16, and its stories, which the separator ends."""
    with _data_errors(path), open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
    if not size or size % 2:
        raise DataError(f"{path}: expected tokens of 2 bytes each, got {size} bytes")
    tokens, cuts = _map_file(path, np.uint16), [np.array([-1])]
    for first in range(0, len(tokens), CHUNK):
        part = tokens[first : first + CHUNK]
        if (highest := int(part.max())) >= vocabulary:
            raise DataError(
                f"{path}: expected tokens in 0 .. {vocabulary - 1}, the vocab_size of meta.json, got {highest}"
            )
        cuts.append(np.flatnonzero(part == separator) + first)
    places = np.concatenate([*cuts, [len(tokens)]])
    bounds = np.stack([places[:-1] + 1, places[1:]], axis=1)
    return _build_text(path, tokens.view(np.int16), bounds[bounds[:, 1] - bounds[:, 0] >= LEAST_TOKENS])


def _map_file(path: Path, dtype: Any) -> np.ndarray:
    """Map a file for reading alone: the pages of a writable map count as memory, which a file may be larger than."""
    with _data_errors(path):
        return np.memmap(path, dtype=dtype, mode="r")


def _build_text(path: Path, tokens: np.ndarray, bounds: np.ndarray) -> TokenText:
    if len(bounds) < LEAST_STORIES:
        raise DataError(
            f"{path}: expected at least {LEAST_STORIES} stories of {LEAST_TOKENS} tokens, got {len(bounds)}"
        )
    starts, ends = (torch.from_numpy(column.copy()) for column in bounds.T)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")  # nothing writes to it
        return TokenText(torch.from_numpy(tokens), starts, ends)


@contextmanager
def _data_errors(path: Path) -> Iterator[None]:
    """Turn errors of opening and reading a file into a DataError."""
    try:
        yield
    except FileNotFoundError:
        raise FILES.describe_missing(path, path.parent) from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error_line(error)}") from error


TINYSTORIES = FileData("tinystories", read_tinystories, FILES)
