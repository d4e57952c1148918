"""Checks of parts that ask for a single law."""

import pytest

from morphogen.testing.laws import part_checks


def keep_law(monkeypatch: pytest.MonkeyPatch, table: str, law: str) -> None:
    """Let the checks of a table of laws ask for one of them, without those before it."""
    laws = getattr(part_checks, table)
    monkeypatch.setattr(part_checks, table, {law: laws[law]})
