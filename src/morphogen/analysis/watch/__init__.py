"""The live view of a run: read its event files as they grow, fold the events, draw.  No tensors."""
