"""Builders of small states, inputs and epochs for tests."""
