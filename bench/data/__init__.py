"""Commands that make the data files of the package."""
