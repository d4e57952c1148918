"""Data sets, splits, instances and batches."""
