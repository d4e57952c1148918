"""Texts as windows of tokens: where windows may lie, what is predicted, splits, and what is
refused.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import morphogen as mg
from morphogen.config.groups import DataSpec
from morphogen.config.task import TASKS
from morphogen.data.dataset import deal_samples, open_dataset
from morphogen.data.splits import fingerprint
from morphogen.errors import ConfigError, DataError
from morphogen.extras.text import token_text
from morphogen.extras.text.pydoc import DOCUMENT, encode_characters, read_pydoc, split_characters
from morphogen.extras.text.token_text import PADDING, NextToken, TextSplits, TokenText, check_text

PYDOC = TASKS["pydoc"]
TEXT = "".join(chr(32 + 7 * i % 95) for i in range(24 * DOCUMENT))


@st.composite
def texts(draw):
    """Documents of 2 .. 12 tokens, with up to 2 tokens of none between them; a token says where it
    lies.
    """
    sizes = draw(st.lists(st.integers(2, 12), min_size=1, max_size=6))
    gaps = draw(st.lists(st.integers(0, 2), min_size=len(sizes), max_size=len(sizes)))
    starts, place = [], 0
    for size, gap in zip(sizes, gaps, strict=True):
        starts.append(place + gap)
        place += gap + size
    starts = torch.tensor(starts)
    return TokenText(torch.arange(place, dtype=torch.uint8), starts, starts + torch.tensor(sizes))


def all_windows(text, length, step):
    windows = text.cut(length, step)
    return windows[torch.arange(windows.count)].tolist()


OWN_TEXTS = {
    "tokens: expected a tensor, got ndarray": {"tokens": np.zeros(9, dtype=np.uint8)},
    "starts: expected a tensor, got list": {"starts": [0]},
    "expected starts and ends of documents in int64, got torch.float32": {"starts": torch.zeros(1)},
    "expected tokens in 0 .. 96, the vocabulary, got 97 at token 3": {
        "tokens": torch.tensor([1, 2, 3, 97, 5])
    },
    "expected tokens in 0 .. 96, the vocabulary, got -1 at token 1": {
        "tokens": torch.tensor([1, -1, 3, 4, 5])
    },
}


@pytest.mark.parametrize("said", OWN_TEXTS)
def test_texts_of_a_reader_from_outside_are_checked(said):
    fields = {
        "tokens": torch.arange(1, 6),
        "starts": torch.tensor([0]),
        "ends": torch.tensor([5]),
    } | OWN_TEXTS[said]
    if isinstance(fields["tokens"], torch.Tensor):
        fields["tokens"] = fields["tokens"].to(torch.int32)
    text = TokenText(**fields)
    with pytest.raises(DataError, match=f"^mine: train: {said}"):
        check_text(TextSplits(text, text, text, vocabulary=97, separator=0), 97, "mine")


@given(text=texts(), length=st.integers(2, 6), whole=st.booleans())
def test_a_window_lies_in_one_document_and_is_padded_only_behind_a_short_one(text, length, whole):
    documents = list(zip(text.starts.tolist(), text.ends.tolist(), strict=True))
    for window in all_windows(text, length, length if whole else 1):
        tokens = [token for token in window if token != PADDING]
        (start, end) = next(bounds for bounds in documents if bounds[0] <= tokens[0] < bounds[1])
        assert tokens == list(range(tokens[0], tokens[0] + len(tokens)))
        assert tokens[-1] < end
        assert window == tokens + [PADDING] * (length - len(tokens))
        assert len(tokens) == length or (tokens[0], len(tokens)) == (start, end - start)


@given(text=texts(), length=st.integers(2, 6))
def test_every_token_can_be_drawn_every_window_once_and_windows_for_scoring_share_none(
    text, length
):
    windows = all_windows(text, length, 1)
    spans = zip(text.starts.tolist(), text.ends.tolist(), strict=True)
    expected = {token for span in spans for token in range(*span)}
    assert {token for window in windows for token in window} - {PADDING} == expected
    assert len({tuple(window) for window in windows}) == len(windows)
    scored = [t for window in all_windows(text, length, length) for t in window if t != PADDING]
    assert scored == sorted(set(scored))


@given(text=texts(), length=st.integers(2, 6), data=st.data())
def test_windows_are_the_same_one_by_one_in_any_shape_and_read_into_a_buffer(text, length, data):
    windows = text.cut(length, 1)
    index = torch.tensor(
        data.draw(st.lists(st.integers(0, windows.count - 1), min_size=4, max_size=4))
    )
    found, out = windows[index], torch.zeros(4, length, dtype=torch.int32)
    windows.read(index, out)
    assert torch.equal(out, found)
    assert torch.equal(windows[index.view(2, 2).T].transpose(0, 1).reshape(4, length), found)
    assert torch.equal(windows.to("cpu")[index], found)


@given(text=texts(), length=st.integers(2, 6))
def test_targets_are_the_tokens_behind_the_inputs_and_never_padding(text, length):
    windows = text.cut(length, 1)
    inputs, targets = NextToken(99).prepare(windows[torch.arange(windows.count)], torch.zeros(1))
    assert inputs.shape == targets.shape == (windows.count, length - 1)
    assert inputs.dtype == targets.dtype == torch.int64
    assert torch.equal(targets[targets >= 0], inputs[targets >= 0] + 1)
    assert bool((targets[inputs == 99] == -1).all())
    assert bool((targets >= 0)[:, 0].all())


def test_tokens_of_two_bytes_reach_beyond_the_largest_int16():
    tokens = torch.tensor([1, 40_000, 65_535]).to(torch.int16)
    text = TokenText(tokens, torch.tensor([0]), torch.tensor([3]))
    assert text.cut(3, 1)[torch.tensor([0])].tolist() == [[1, 40_000, 65_535]]


def test_billions_of_places_need_no_memory(monkeypatch):
    monkeypatch.setattr(token_text, "check_text", lambda *_: None)  # it reads every token
    text = TokenText(
        torch.zeros(1, dtype=torch.uint8).expand(2_000_000_000),
        torch.tensor([0]),
        torch.tensor([2 * 10**9]),
    )
    windows = text.cut(65, 1)
    assert windows.count == 2 * 10**9 - 64
    assert windows[torch.tensor([0, windows.count - 1])].shape == (2, 65)
    small = split_characters(TEXT).train
    stored = TextSplits(text, small, small, vocabulary=97, separator=0)
    assert deal_samples(stored, PYDOC.host, "large").train.labels.untyped_storage().nbytes() == 8
    larger = replace(
        text, tokens=text.tokens[:1].expand(2**31 + 65), ends=torch.tensor([2**31 + 65])
    )
    with pytest.raises(
        DataError, match=r"large: train: expected at most 2,147,483,647 places .* got 2,147,483,681"
    ):
        deal_samples(replace(stored, train=larger), PYDOC.host, "large")


def test_characters_become_97_tokens():
    assert encode_characters("\n ~A\t\r\x00\x7fé漢").tolist() == [0, 1, 95, 34, *(96,) * 6]


def test_the_documentation_is_split_by_blocks_and_loses_none_but_its_tail():
    splits = split_characters(TEXT + "tail")
    blocks = encode_characters(TEXT).view(-1, DOCUMENT)
    chosen = {"train": [i for i in range(24) if i % 10 < 8], "validation": [8, 18], "test": [9, 19]}
    for name, numbers in chosen.items():
        text = getattr(splits, name)
        assert torch.equal(text.tokens.view(-1, DOCUMENT), blocks[numbers])
        assert text.starts.tolist() == list(range(0, len(numbers) * DOCUMENT, DOCUMENT))


def test_a_python_without_documentation_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr("morphogen.extras.text.pydoc.MODULE", "no_such_topics")
    with pytest.raises(DataError, match=r"no_such_topics is missing"):
        read_pydoc(tmp_path)


def test_the_fingerprint_tells_any_other_text_and_not_the_length_of_windows():
    def found(text, block=64):
        host = replace(PYDOC.host, block=block)
        return fingerprint(deal_samples(split_characters(text), host, "text"))

    assert found(TEXT) == found(TEXT, block=32)
    others = [TEXT + "tail", TEXT[1:] + TEXT[0], TEXT.replace("~", "é"), TEXT[:-1] + "é"]
    assert len({found(TEXT), *map(found, others)}) == 5
    assert found(TEXT[:-1] + "é") != found(TEXT[:-1] + "ü")  # the same tokens of another text


BAD_TEXTS = {
    "float32": TokenText(torch.zeros(9), torch.tensor([0]), torch.tensor([9])),
    "documents": TokenText(torch.zeros(9, dtype=torch.uint8), torch.tensor([]), torch.tensor([])),
    "at least 2": TokenText(
        torch.zeros(9, dtype=torch.uint8), torch.tensor([0, 4]), torch.tensor([4, 5])
    ),
    "in order": TokenText(
        torch.zeros(9, dtype=torch.uint8), torch.tensor([4, 0]), torch.tensor([9, 4])
    ),
    "within 9": TokenText(torch.zeros(9, dtype=torch.uint8), torch.tensor([0]), torch.tensor([10])),
}


@pytest.mark.parametrize("words", BAD_TEXTS)
def test_a_text_that_is_none_is_refused(words):
    good = split_characters(TEXT)
    with pytest.raises(DataError, match=f"own: validation: expected .*{words}"):
        deal_samples(replace(good, validation=BAD_TEXTS[words]), PYDOC.host, "own")


def test_a_text_of_another_vocabulary_and_images_for_a_language_model_are_refused():
    text = split_characters(TEXT)
    with pytest.raises(
        DataError,
        match=r"expected a text with a vocabulary of 97, as the host has, got one of 98: set "
        r"host.vocabulary to 98",
    ):
        deal_samples(replace(text, vocabulary=98), PYDOC.host, "own")
    with pytest.raises(DataError, match=r"separator: expected a token in 0 .. 96, got 97"):
        deal_samples(replace(text, separator=97), PYDOC.host, "own")
    with pytest.raises(
        DataError, match=r"expected samples of numbers, as the host takes, got a text"
    ):
        deal_samples(text, TASKS["digits"].host, "own")
    with pytest.raises(
        DataError, match=r"digits: expected samples with their own answers, as the host takes"
    ):
        open_dataset(PYDOC, DataSpec(name="digits"), PYDOC.host, "cpu")


@pytest.mark.parametrize(
    ("task", "name", "span"),
    [
        *(
            ("pydoc", *pair)
            for pair in (("width", 0.5), ("data_share", 0.5), ("label_noise", 0.1), ("classes", 50))
        ),
        ("tinystories", "reach", 1),
    ],
)
def test_nothing_but_the_price_and_the_reach_of_a_host_that_has_one_varies_in_a_language_task(
    task, name, span
):
    known = {"pydoc": "reach and param_price", "tinystories": "param_price"}[task]
    with pytest.raises(
        ConfigError, match=rf"instance.{name}: expected null: with the task {task} only {known} may"
    ):
        mg.RunSpec(task=task, instance={name: (span, span)})
    with pytest.raises(ConfigError, match=rf"task.instance: expected {known} alone"):
        replace(TASKS[task], instance=mg.InstanceSpec(**{name: (span, span)}))
    mg.RunSpec(task=task, instance={"param_price": (0.1, 0.2)})
