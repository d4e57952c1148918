"""Reward rules, one file per family, and their table; `table.register` adds a rule."""
