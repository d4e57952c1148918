"""The reward rules of the original as frozen kernels, kept for comparison; known faults included."""
