"""Subjects that the core does without, a folder each.

Every extra plugs in at a declared hook of the core, by an entry point in `pyproject.toml`, as a package from outside
does.  The core imports no extra and does not know its words; `tests/meta/test_extras.py` holds the table of extras,
their words, and the files of the core that are their hooks.

- `whitebox`: a task kind whose accuracy is a formula, so that the best policy is known
- `regimes`: worlds that change within an episode

An extra may import every room of the core.  To remove an extra, delete its folder, its tests in `tests/extras`, and
its entry points.

An extra of your own is a package with the same entry points; nothing in this folder is special.

Importing the package loads nothing, no torch either; each folder says whether its modules load torch.
"""
