"""Samples as bytes."""

from typing import Any


def sample_bytes(samples: Any) -> list[bytes]:
    """Return each sample as bytes, to compare as sets."""
    samples = samples.to("cpu")
    return [
        p.numpy().tobytes() + bytes([int(n)])
        for p, n in zip(samples.inputs, samples.labels, strict=True)
    ]
