"""Reader of TinyStories: texts and token files, stories, splits, and what is refused."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from morphogen.config.groups import DataSpec
from morphogen.config.task import TASKS
from morphogen.data.dataset import deal_samples, open_dataset
from morphogen.errors import DataError
from morphogen.extras.text.tinystories import Meta, read_stories, read_tinystories, read_tokens

TASK = TASKS["tinystories"]
LARGE = Meta(vocab_size=65_536, eos=65_535)
STORIES = [f"Story {i} of a net that grew. " * (1 + i % 5) for i in range(9)]


def write_text(folder, prefix="TinyStories", train=STORIES, valid=STORIES):
    for name, stories in (("train", train), ("valid", valid)):
        (folder / f"{prefix}-{name}.txt").write_text("\n<|endoftext|>\n".join(stories))


def write_tokens(folder, train, valid, **meta):
    for name, tokens in (("train", train), ("val", valid)):
        np.asarray(tokens, dtype=np.uint16).tofile(folder / f"{name}.bin")
    (folder / "meta.json").write_text(json.dumps({"vocab_size": 50_257, "eos": 50_256} | meta))


def stories_of(text, tokens=2**16):
    spans = zip(text.starts.tolist(), text.ends.tolist(), strict=True)
    return [[token % tokens for token in text.tokens[start:end].tolist()] for start, end in spans]


@pytest.mark.parametrize("prefix", ["TinyStories", "TinyStoriesV2-GPT4"])
def test_stories_are_bytes_without_the_space_around_them_and_the_valid_file_is_halved(
    tmp_path, prefix
):
    write_text(tmp_path, prefix, train=["\n one ", "", "x", "two é\n"], valid=STORIES)
    splits = read_tinystories(tmp_path)
    assert stories_of(splits.train) == [list(b"one"), list("two é".encode())]
    expected = [list(story.strip().encode()) for story in STORIES]
    assert stories_of(splits.validation) == expected[:4]
    assert stories_of(splits.test) == expected[4:]
    assert (splits.vocabulary, splits.separator) == (257, 256)


def test_the_task_trains_on_text_with_padding_that_is_no_target(tmp_path):
    write_text(tmp_path)
    dataset = open_dataset(TASK, DataSpec(dir=str(tmp_path)), TASK.host, "cpu")
    assert dataset.sizes == {"train": 9, "validation": 4, "test": 5}
    split = dataset.validation
    lengths = torch.tensor([len(story.strip()) for story in STORIES[:4]])
    assert torch.equal((split.labels >= 0).sum(1), lengths - 1)
    assert torch.equal((split.inputs != 256).sum(1), lengths)


@given(stories=st.lists(st.lists(st.integers(0, 65_534), max_size=5), min_size=4, max_size=9))
def test_tokens_are_cut_at_the_separator_alone(tmp_path_factory, stories):
    path = tmp_path_factory.getbasetemp() / "tokens.bin"
    np.asarray([t for story in stories for t in (*story, 65_535)], dtype=np.uint16).tofile(path)
    expected = [story for story in stories if len(story) >= 2]
    if len(expected) < 2:
        with pytest.raises(
            DataError, match=rf"at least 2 stories of 2 tokens, got {len(expected)}"
        ):
            read_tokens(path, LARGE)
    else:
        assert stories_of(read_tokens(path, LARGE)) == expected


def test_text_is_preferred_and_token_files_bring_their_vocabulary(tmp_path):
    write_tokens(tmp_path, [1, 2, 50_256, 50_255, 4], [5, 6, 50_256, 7, 8, 50_256])
    splits = read_tinystories(tmp_path)
    assert stories_of(splits.train) == [[1, 2], [50_255, 4]]
    assert (stories_of(splits.validation), stories_of(splits.test)) == ([[5, 6]], [[7, 8]])
    assert (splits.vocabulary, splits.separator) == (50_257, 50_256)
    deal_samples(splits, replace(TASK.host, vocabulary=50_257), "tinystories")
    write_text(tmp_path)
    assert read_tinystories(tmp_path).vocabulary == 257


def test_files_are_mapped_for_reading_and_not_read(tmp_path):
    write_text(tmp_path)
    text = read_stories(tmp_path / "TinyStories-train.txt")
    with (tmp_path / "TinyStories-train.txt").open("r+b") as file:
        file.write(b"@")
    assert text.cut(3, 1)[torch.tensor([0])].tolist() == [list(b"@to")]


def test_a_missing_file_is_named_with_what_is_expected(tmp_path):
    with pytest.raises(DataError, match=r"TinyStories-train.txt is missing; put the TinyStories"):
        read_tinystories(tmp_path)
    write_text(tmp_path)
    (tmp_path / "TinyStories-valid.txt").unlink()
    with pytest.raises(
        DataError, match=r"TinyStories-valid.txt is missing; put the TinyStories texts.*--data-dir"
    ):
        read_tinystories(tmp_path)


@pytest.mark.parametrize(
    ("content", "words"),
    [("", "empty file"), ("one story", "got 1"), ("<|endoftext|>" * 9, "got 0")],
)
def test_a_text_of_fewer_than_two_stories_is_refused(tmp_path, content, words):
    write_text(tmp_path)
    (tmp_path / "TinyStories-valid.txt").write_text(content)
    with pytest.raises(
        DataError, match=rf"TinyStories-valid.txt: expected at least 2 stories.*{words}"
    ):
        read_tinystories(tmp_path)


META = {
    "vocab_size: expected an integer in 2 .. 65536 with tokens in uint16, got 65537": {
        "vocab_size": 65_537
    },
    "vocab_size: expected a valid integer, got null": {"vocab_size": None},
    "eos: expected a number greater than or equal to 0, got -1": {"eos": -1},
    "dtype: expected 'uint16', '<u2', 'uint32' or '<u4', got \"int64\"": {"dtype": "int64"},
    r"dtpye: expected one of vocab_size, eos, dtype, got an unknown name \(did you mean "
    r"dtype\?\)": {"dtpye": "uint32"},
    "eos: expected an integer in 0 .. 50256, got 50257": {"eos": 50_257},
}


@pytest.mark.parametrize("words", META)
def test_token_files_that_disagree_with_their_description_are_refused(tmp_path, words):
    write_tokens(tmp_path, [1, 12, 0, 1, 2], [1, 2, 0, 3, 4], **META[words])
    with pytest.raises(DataError, match=words):
        read_tinystories(tmp_path)


def test_damaged_token_files_are_refused(tmp_path):
    write_tokens(tmp_path, [1, 2, 50_256, 3, 4], [1, 2, 50_256, 3, 4])
    (tmp_path / "train.bin").write_bytes(bytes(5))
    with pytest.raises(
        DataError,
        match=r"train.bin: expected tokens of 2 bytes each .* got 5 bytes: name their dtype",
    ):
        read_tinystories(tmp_path)
    (tmp_path / "meta.json").write_text("[1]")
    with pytest.raises(DataError, match=r"meta.json: expected an object"):
        read_tinystories(tmp_path)


@pytest.mark.parametrize("dtype", ["uint32", "<u4"])
def test_tokens_of_32_bits_are_read_where_they_are_declared(tmp_path, dtype):
    write_tokens(tmp_path, [], [], vocab_size=100_000, eos=2, dtype=dtype)
    tokens = {"train": [1, 70_000, 2, 99_999, 4], "val": [5, 6, 2, 70_000, 8, 2]}
    for name, values in tokens.items():
        np.asarray(values, dtype="<u4").tofile(tmp_path / f"{name}.bin")
    splits = read_tinystories(tmp_path)
    assert stories_of(splits.train, 2**32) == [[1, 70_000], [99_999, 4]]
    assert splits.train.cut(2, 1)[torch.tensor([0, 1])].tolist() == [[1, 70_000], [99_999, 4]]
    host = replace(TASK.host, vocabulary=100_000)
    deal_samples(splits, host, "tinystories")
    tokens["train"][1] = 100_000
    np.asarray(tokens["train"], dtype="<u4").tofile(tmp_path / "train.bin")
    with pytest.raises(DataError, match=r"train: expected tokens in 0 .. 99999, .* at token 1$"):
        deal_samples(read_tinystories(tmp_path), host, "tinystories")


def test_a_text_whose_every_second_token_is_0_names_the_wider_type(tmp_path):
    write_tokens(
        tmp_path,
        [2, 0, 3, 0, 1, 0, 4, 0, 5, 0],
        [2, 0, 3, 0, 1, 0, 4, 0, 5, 0, 1, 0],
        vocab_size=257,
        eos=1,
    )
    with pytest.raises(
        DataError, match=r'train: .*every second token is 0.*"dtype": "uint32" in meta.json'
    ):
        deal_samples(read_tinystories(tmp_path), TASK.host, "tinystories")


def test_byte_order_marks_are_no_part_of_a_file(tmp_path):
    write_tokens(tmp_path, [1, 2, 50_256, 50_255, 4], [5, 6, 50_256, 7, 8, 50_256])
    text = (tmp_path / "meta.json").read_text()
    for encoding in ("utf-8-sig", "utf-16"):
        (tmp_path / "meta.json").write_text(text, encoding=encoding)
        assert stories_of(read_tinystories(tmp_path).train) == [[1, 2], [50_255, 4]]
    (tmp_path / "stories.txt").write_text("one<|endoftext|>two", encoding="utf-8-sig")
    assert stories_of(read_stories(tmp_path / "stories.txt")) == [list(b"one"), list(b"two")]
