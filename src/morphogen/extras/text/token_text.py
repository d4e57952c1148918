"""Texts as tokens: documents, and the windows that are cut from them on demand.

A sample of a language task is a window of `block + 1` tokens inside one document.  Neither windows
nor their starts are
stored: a window is found by its number, from the documents alone, on any device.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from morphogen.config.host import Host
from morphogen.config.task import TaskSpec
from morphogen.data.splits import DerivedInputs, Samples, Splits, StoredSplits, check_tensor
from morphogen.errors import DataError
from morphogen.vocab.text import short_repr

PADDING = -1  # in a window, after the end of a document
MOST_WINDOWS = 2**31 - 1  # that a draw of 32 bits reaches
LEAST_TOKENS = 2  # of a document: shorter ones hold nothing to predict
SPLITS = ("train", "validation", "test")
CHUNK = 2**20  # tokens read at once where all are; even


@short_repr
@dataclass(frozen=True, slots=True)
class TokenText:
    """Tokens of a split, in memory or in a mapped file, and the documents in them.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> text = mg.TokenText(
        ...     torch.arange(9, dtype=torch.uint8), torch.tensor([0, 6]), torch.tensor([5, 9])
        ... )
        >>> text.cut(3, step=1)[torch.tensor([0, 2, 3])].tolist()
        [[0, 1, 2], [2, 3, 4], [6, 7, 8]]
    """

    tokens: Tensor
    """uint8, int16 with the bits of uint16, or int32, [T]."""
    starts: Tensor
    """int64 [D], first token of each document, in ascending order."""
    ends: Tensor
    """int64 [D], token after the last one of each document; a document has at least two."""
    source: str = ""
    """Sha256 of what the tokens were made of; "" = the tokens say all."""

    @property
    def nbytes(self) -> int:
        """Size in memory, in bytes."""
        return self.tokens.nbytes + self.starts.nbytes + self.ends.nbytes

    def part(self, first: int, last: int) -> "TokenText":
        """Return the documents first .. last - 1, and the tokens between the first and the last of
        them.
        """
        starts = self.starts[first:last]
        ends = self.ends[first:last]
        begin, end = (0, 0) if first >= last else (int(starts[0]), int(ends[-1]))
        return replace(
            self, tokens=self.tokens[begin:end], starts=starts - begin, ends=ends - begin
        )

    def cut(self, length: int, step: int) -> "TokenWindows":
        """Return the windows of `length` tokens that begin every `step` tokens of a document, or at
        its start.
        """
        sizes = self.ends - self.starts
        counts = (torch.div(sizes - length, step, rounding_mode="floor") + 1).clamp(min=1)
        before = counts.cumsum(0) - counts
        return TokenWindows(self, before, length, step, int(counts.sum()))


@short_repr
@dataclass(frozen=True, slots=True)
class TokenWindows(DerivedInputs):
    """Windows of a text, numbered in its order; indexing reads them.

    A document that is shorter than a window has one, from its start on, with `PADDING` after its
    end.
    """

    text: TokenText
    before: Tensor  # int64 [D], windows in front of each document
    length: int  # tokens of a window
    step: int  # tokens between the starts of windows
    count: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape (N, length)."""
        return (self.count, self.length)

    @property
    def dtype(self) -> torch.dtype:
        """Type of a token in a window."""
        return torch.int32

    @property
    def nbytes(self) -> int:
        """Size in memory, in bytes."""
        return self.text.nbytes + self.before.nbytes

    def __getitem__(self, index: Tensor) -> Tensor:
        """Return windows by number, by operators of the device alone.  int64 [...] -> int32 [...,
        length].
        """
        text = self.text
        document = torch.searchsorted(self.before, index.contiguous(), right=True) - 1
        start = text.starts[document] + (index - self.before[document]) * self.step
        place = start.unsqueeze(-1) + torch.arange(self.length, device=index.device)
        found = widen(text.tokens[place.clamp(max=text.tokens.shape[0] - 1)])
        return found.masked_fill(place >= text.ends[document].unsqueeze(-1), PADDING)

    def map_tensors(self, change: Callable[[Tensor], Tensor]) -> "TokenWindows":
        """Return windows of the same places in changed tensors."""
        tokens, starts, ends, before = map(
            change, (self.text.tokens, self.text.starts, self.text.ends, self.before)
        )
        return replace(
            self, text=replace(self.text, tokens=tokens, starts=starts, ends=ends), before=before
        )

    def digest(self) -> bytes:
        """Return the sha256 of the tokens and of their documents, whatever the windows."""
        digest = hashlib.sha256(self.text.source.encode())
        for leaf in (self.text.starts, self.text.ends, self.text.tokens):
            for first in range(0, len(leaf), CHUNK):
                digest.update(leaf[first : first + CHUNK].cpu().numpy().tobytes())
        return digest.digest()


@dataclass(frozen=True, slots=True)
class NextToken:
    """Map from windows of a text to tokens and the tokens after them."""

    separator: int  # token that stands for padding

    def prepare(self, samples: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return tokens and next tokens; the stored labels have no effect.

        Shapes: samples int32 [..., n + 1], -1 = padding -> int64 [..., n] both; no target is -1.
        """
        tokens = samples.to(torch.int64)
        inputs = tokens[..., :-1]
        targets = tokens[..., 1:]
        return inputs.masked_fill(inputs < 0, self.separator), targets.contiguous()


def widen(tokens: Tensor) -> Tensor:
    """Return stored tokens as numbers.  uint8, int16 or int32 [...] -> int32 [...]."""
    numbers = tokens.to(torch.int32)
    # the sign of int16 is a bit of a token
    return numbers & 0xFFFF if tokens.dtype == torch.int16 else numbers


@short_repr
@dataclass(frozen=True, slots=True)
class TextSplits(StoredSplits):
    """Three disjoint texts; what the reader of a language task returns in place of `Splits`.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> text = mg.TokenText(
        ...     torch.arange(50, dtype=torch.uint8), torch.tensor([0]), torch.tensor([50])
        ... )
        >>> splits = mg.TextSplits(text, text, text, vocabulary=97, separator=0)
        >>> [
        ...     windows.count for windows in splits.cut(block=9)
        ... ]  # anywhere in training, side by side elsewhere
        [41, 5, 5]
    """

    train: TokenText
    validation: TokenText
    test: TokenText
    vocabulary: int
    """Tokens are below it."""
    separator: int
    """Token that stands for padding, which is never a target."""

    def deal(self, host: Host, name: str) -> Splits:
        """Return the windows of the text as samples.  Raises: DataError for a text that a host
        cannot read.
        """
        check_text(self, host.vocabulary, name)
        windows = self.cut(host.input_shape[0])
        if windows[0].count > MOST_WINDOWS:
            most = (
                f"at most {MOST_WINDOWS:,} places where a window of {host.input_shape[0] + 1} "
                "tokens may start"
            )
            raise DataError(
                f"{name}: train: expected {most}, got {windows[0].count:,}: use a part of the text"
            )
        # the labels, which no text has, take no memory
        label = torch.zeros(1, dtype=torch.int64, device="cpu")
        return Splits(*(Samples(part, label.expand(part.count)) for part in windows))

    def preparation(self, task: TaskSpec) -> NextToken:
        """Return the map from windows to tokens and the tokens after them."""
        del task
        return NextToken(self.separator)

    def cut(self, block: int) -> tuple[TokenWindows, TokenWindows, TokenWindows]:
        """Return the windows of `block` tokens and the token after them: anywhere in training,
        else side by side.
        """
        length = block + 1
        return (
            self.train.cut(length, step=1),
            self.validation.cut(length, step=length),
            self.test.cut(length, step=length),
        )


def check_text(splits: TextSplits, vocabulary: int, name: str) -> None:
    """Raise DataError unless a text has the tokens of a host with a vocabulary (0: one that takes
    none).
    """
    if not vocabulary:
        raise DataError(f"{name}: expected samples of numbers, as the host takes, got a text")
    if splits.vocabulary != vocabulary:
        raise DataError(
            f"{name}: expected a text with a vocabulary of {vocabulary:,}, as the host has, got "
            f"one of {splits.vocabulary:,}: set host.vocabulary to {splits.vocabulary}"
        )
    if not 0 <= splits.separator < vocabulary:
        raise DataError(
            f"{name}: separator: expected a token in 0 .. {vocabulary - 1}, got {splits.separator}"
        )
    for split in SPLITS:
        text: TokenText = getattr(splits, split)
        _check_documents(text, f"{name}: {split}")
        _check_tokens(text.tokens, vocabulary, f"{name}: {split}")
        if _is_spread(text.tokens):
            got = "a text whose every second token is 0, as if its file were of a wider type"
            remedy = (
                'read it as uint32 (token files: "dtype": "uint32" in meta.json), or write its '
                "tokens in that type"
            )
            raise DataError(f"{name}: {split}: expected tokens, got {got}: {remedy}")


def _is_spread(tokens: Tensor) -> bool:
    """Return whether every second token of a text is 0."""
    chunks = torch.split(tokens, CHUNK)
    return not any(part[::2].any() and part[1::2].any() for part in chunks)


def _check_tokens(tokens: Tensor, vocabulary: int, name: str) -> None:
    """Raise DataError for a token that is not below the vocabulary."""
    for first in range(0, len(tokens), CHUNK):
        numbers = widen(tokens[first : first + CHUNK])
        lowest, highest = map(int, numbers.aminmax())
        if lowest < 0 or highest >= vocabulary:
            place = int(((numbers < 0) | (numbers >= vocabulary)).int().argmax())
            raise DataError(
                f"{name}: expected tokens in 0 .. {vocabulary - 1}, the vocabulary, got "
                f"{numbers[place]} at token {first + place}"
            )


def _check_documents(text: TokenText, name: str) -> None:
    for field in ("tokens", "starts", "ends"):
        check_tensor(f"{name}: {field}", getattr(text, field))
    if text.tokens.dtype not in (torch.uint8, torch.int16, torch.int32) or text.tokens.dim() != 1:
        got = f"{text.tokens.dtype} {list(text.tokens.shape)}"
        raise DataError(
            f"{name}: expected tokens [T] in uint8, int16 with the bits of uint16, or "
            f"int32, got {got}"
        )
    starts = text.starts
    ends = text.ends
    counted = 0 < len(starts) == len(ends)
    if starts.is_floating_point() or ends.is_floating_point() or not counted:
        raise DataError(
            f"{name}: expected starts and ends of documents in int64, got {starts.dtype} "
            f"[{len(starts)}] and {ends.dtype} [{len(ends)}]"
        )
    order = torch.stack([starts, ends - LEAST_TOKENS], dim=1).flatten()
    if order[0] < 0 or bool((order.diff() < 0).any()) or ends[-1] > len(text.tokens):
        raise DataError(
            f"{name}: expected documents of at least {LEAST_TOKENS} tokens, in order, "
            f"within {len(text.tokens)} tokens"
        )
