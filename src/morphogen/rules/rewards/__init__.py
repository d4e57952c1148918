"""Reward rules, one file per family, and their table."""
