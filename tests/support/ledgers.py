"""Counts of the transfers of a run, computed by hand from its sizes."""

from morphogen.device.transfers import FENCES


def expected_ledger(
    *, rounds: int, epochs: int, streamed: int = 0, evaluated_epochs: int = 0, **more: int
) -> dict[str, int]:
    """Transfers of a run by name, whatever its envs and slots.

    streamed: minibatches per epoch of streamed data; more: counts that follow from no size.
    """
    played = rounds * epochs + evaluated_epochs
    counts = {"plan": played, "record": rounds * epochs, "update": rounds}
    return dict.fromkeys(FENCES, 0) | counts | {"batch": played * streamed} | more
