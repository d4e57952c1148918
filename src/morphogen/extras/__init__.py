"""Extras: subjects beside the core, one folder each, which register by the entry points of `pyproject.toml`.

An extra may import every room of the core; the core imports no extra and does not know its words.  A folder and its
entry points can be removed without a change of the core.  The docstring of a folder says what it holds and where it
plugs in.
"""
