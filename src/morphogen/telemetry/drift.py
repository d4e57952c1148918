"""Distance of a gradient norm from its average."""

DRIFT_MOMENTUM = 0.99
DRIFT_EPSILON = 1e-8


def gradient_drift(norm: float | None, average: float | None) -> tuple[float, float | None]:
    """Relative distance of a round's norm from the moving average before it, and the average after it.

    norm None: nothing was applied in this round, which leaves the average alone; average None: there was no norm yet.
    The drift of both is 0.
    """
    if norm is None or average is None:
        return 0.0, average if norm is None else norm
    return abs(norm - average) / (average + DRIFT_EPSILON), DRIFT_MOMENTUM * average + (1.0 - DRIFT_MOMENTUM) * norm
