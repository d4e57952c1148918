"""Text of the documentation that comes with the running Python (`pydoc_data.topics`): a small
language task.
"""

import hashlib
from importlib import import_module
from pathlib import Path

import numpy as np
import torch

from morphogen.data.data_files import FileData, FileSource
from morphogen.errors import DataError
from morphogen.extras.text.token_text import TextSplits, TokenText

MODULE = "pydoc_data.topics"
DOCUMENT = 1024  # characters of a document; the tail of the text is dropped
VOCABULARY = 97
NEWLINE = 0
OTHER = 96


def encode_characters(text: str) -> torch.Tensor:
    """Return the tokens of a text, uint8 [n]: newline 0, printable ASCII 1 .. 95, all else 96."""
    codes = np.frombuffer(text.encode("utf-32-le", errors="surrogatepass"), dtype=np.uint32)
    table = np.full(128, OTHER, dtype=np.uint8)
    table[32:127] = np.arange(1, 96)
    table[ord("\n")] = NEWLINE
    return torch.from_numpy(table[np.minimum(codes, 127)])  # 127 is no printable character


def split_characters(text: str) -> TextSplits:
    """Return training, validation and test of a text: documents of 1,024 characters by their number
    mod 10.
    """
    tokens = encode_characters(text)
    documents = tokens[: len(tokens) // DOCUMENT * DOCUMENT].view(-1, DOCUMENT)
    place = torch.arange(len(documents), device="cpu") % 10
    source = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
    splits: list[TokenText] = []
    for chosen in (documents[place < 8], documents[place == 8], documents[place == 9]):
        starts = torch.arange(len(chosen), device="cpu") * DOCUMENT
        splits.append(TokenText(chosen.flatten(), starts, starts + DOCUMENT, source))
    return TextSplits(*splits, vocabulary=VOCABULARY, separator=NEWLINE)


def read_pydoc(folder: Path) -> TextSplits:
    """Return the splits of the documentation; the folder of data files has no effect.

    Raises: DataError if this Python has no documentation.
    """
    del folder
    try:
        topics: dict[str, str] = import_module(MODULE).topics
    except (ImportError, AttributeError) as error:
        raise DataError(
            f"{MODULE} is missing; install the standard library of this Python in full"
        ) from error
    return split_characters("\n\n".join(topics[name] for name in sorted(topics)))


PYDOC = FileData("pydoc", read_pydoc, FileSource(f"documentation of the running Python, {MODULE}"))
