"""Reader of the TinyStories files, texts or tokens.  Files are memory-mapped; nothing is
downloaded.
"""

import codecs
import mmap
import os
import re
import warnings
from array import array
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import BaseModel, Field, ValidationError

from morphogen.config.fields import CONFIG, list_faults
from morphogen.config.files import error_line, open_regular, parse_json, read_text
from morphogen.data.data_files import FileData, FileForm, FileSource
from morphogen.errors import DataError
from morphogen.extras.text.token_text import (
    CHUNK,
    LEAST_TOKENS,
    TextSplits,
    TokenText,
)

SEPARATOR = b"<|endoftext|>"  # between stories
SEPARATOR_TOKEN = 256  # of texts: tokens 0 .. 255 are bytes
LEAST_STORIES = 2  # of a file
MOST_TOKENS = 2**31 - 1  # of a vocabulary
_STORIES = f"at least {LEAST_STORIES} stories, separated by {SEPARATOR.decode()}"
_TEXT_FORMS = tuple(
    FileForm(name, (f"{prefix}-train.txt", f"{prefix}-valid.txt"))
    for name, prefix in (("text", "TinyStories"), ("text of GPT-4", "TinyStoriesV2-GPT4"))
)
# tokens in uint16, stories with eos between them; meta.json: vocab_size, eos, and dtype if it is
# uint32
_TOKEN_FORM = FileForm("tokens", ("train.bin", "val.bin", "meta.json"))
FILES = FileSource(
    "the TinyStories texts, or token files made of them", (*_TEXT_FORMS, _TOKEN_FORM)
)


class Meta(BaseModel):
    """Description of token files, in meta.json."""

    model_config = CONFIG

    vocab_size: Annotated[int, Field(ge=2, le=MOST_TOKENS)]
    eos: Annotated[int, Field(ge=0, le=MOST_TOKENS - 1)]  # ends a story
    dtype: Literal["uint16", "<u2", "uint32", "<u4"] = "uint16"

    @property
    def stored(self) -> np.dtype[Any]:
        """Type of the tokens of a file, in little-endian order."""
        return np.dtype(self.dtype).newbyteorder("<")


def read_tinystories(folder: Path) -> TextSplits:
    """Return training, and the halves of the validation file as validation and test; texts are
    preferred.

    Files are memory-mapped: tokens are read on access, but for one pass that finds the stories.
    Raises: DataError if a file is missing or damaged.
    """
    form = FILES.choose_form(folder)
    paths = [folder / path for path in form.paths]
    if form is _TOKEN_FORM:
        meta = read_meta(paths[2])
        vocabulary = meta.vocab_size
        separator = meta.eos
        train, held_out = (read_tokens(path, meta) for path in paths[:2])
    else:
        vocabulary = SEPARATOR_TOKEN + 1
        separator = SEPARATOR_TOKEN
        train, held_out = (read_stories(path) for path in paths)
    stories = len(held_out.starts)
    parts = held_out.part(0, stories // 2), held_out.part(stories // 2, stories)
    return TextSplits(train, *parts, vocabulary=vocabulary, separator=separator)


def read_stories(path: Path) -> TokenText:
    """Return the bytes of a text, and its stories without the white space around them."""
    content = _map_file(path)
    if not content:
        raise DataError(f"{path}: expected {_STORIES}, got an empty file")
    bounds = np.frombuffer(_find_stories(content), dtype=np.int64).reshape(-1, 2)
    return _build_text(path, np.frombuffer(content, dtype=np.uint8), bounds)


def _find_stories(content: mmap.mmap | bytes) -> "array[int]":
    """Return start and end of every story of at least two bytes, one after the other."""
    bounds = array("q")
    start = len(codecs.BOM_UTF8) if content[:3] == codecs.BOM_UTF8 else 0
    separators = re.finditer(re.escape(SEPARATOR), content)
    for end in chain((match.start() for match in separators), [len(content)]):
        story = content[start:end].rstrip()
        first = start + len(story) - len(story.lstrip())
        if start + len(story) - first >= LEAST_TOKENS:
            bounds.extend((first, start + len(story)))
        start = end + len(SEPARATOR)
    return bounds


def read_meta(path: Path) -> Meta:
    """Return the description of token files, a JSON object."""
    with FILES.reading(path, path.parent):
        text = read_text(path)
    try:
        settings = parse_json(text)
    except ValueError as error:
        raise DataError(f"{path}: {error_line(error)}") from error
    try:
        meta = Meta.model_validate(settings)
    except ValidationError as error:
        raise DataError(f"{path}: {'; '.join(list_faults(error, Meta))}") from None
    most = min(MOST_TOKENS, 2 ** (8 * meta.stored.itemsize))
    if meta.vocab_size > most:
        got = f"{meta.vocab_size}: write wider tokens, and dtype uint32"
        raise DataError(
            f"{path}: vocab_size: expected an integer in 2 .. {most} with tokens in "
            f"{meta.dtype}, got {got}"
        )
    if meta.eos >= meta.vocab_size:
        raise DataError(
            f"{path}: eos: expected an integer in 0 .. {meta.vocab_size - 1}, got {meta.eos}"
        )
    return meta


def read_tokens(path: Path, meta: Meta) -> TokenText:
    """Return the tokens of a file, and its stories, which the separator ends."""
    dtype = meta.stored
    content = _map_file(path)
    if not content or len(content) % dtype.itemsize:
        wanted = f"tokens of {dtype.itemsize} bytes each ({meta.dtype})"
        raise DataError(
            f"{path}: expected {wanted}, got {len(content)} bytes: name their dtype in meta.json"
        )
    tokens = np.frombuffer(content, dtype)
    cuts = [np.array([-1])]
    for first in range(0, len(tokens), CHUNK):
        part = tokens[first : first + CHUNK]
        cuts.append(np.flatnonzero(part == meta.eos) + first)
    places = np.concatenate([*cuts, [len(tokens)]])
    bounds = np.stack([places[:-1] + 1, places[1:]], axis=1)
    return _build_text(
        path,
        tokens.view(f"<i{dtype.itemsize}"),  # a tensor has the same bits as signed integers
        bounds[bounds[:, 1] - bounds[:, 0] >= LEAST_TOKENS],
    )


def _map_file(path: Path) -> mmap.mmap | bytes:
    """Map a file for reading alone: the pages of a writable map count as memory, which a file may
    be larger than.
    """
    with FILES.reading(path, path.parent), open_regular(path) as file:
        if not os.fstat(file.fileno()).st_size:
            return b""  # cannot be mapped
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _build_text(path: Path, tokens: np.ndarray, bounds: np.ndarray) -> TokenText:
    if len(bounds) < LEAST_STORIES:
        raise DataError(
            f"{path}: expected at least {LEAST_STORIES} stories of {LEAST_TOKENS} tokens, "
            f"got {len(bounds)}"
        )
    starts, ends = (torch.from_numpy(column.copy()) for column in bounds.T)
    with warnings.catch_warnings():
        # nothing writes to it
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return TokenText(torch.from_numpy(tokens), starts, ends)


TINYSTORIES = FileData("tinystories", read_tinystories, FILES)
