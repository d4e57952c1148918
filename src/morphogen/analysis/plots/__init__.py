"""Plots of the report: what each shows as rows, and the picture drawn from those rows and nothing else."""
