"""Parameters as flat rows of named leaves."""

import torch
from support.small_states import noise

from morphogen.hosts.layout import ParamLayout, ParamLeaf, fan_in_leaf


def test_leaves_are_views_in_order_and_start_where_they_should():
    layout = ParamLayout(
        (fan_in_leaf("w", (2, 3), 4), ParamLeaf("gain", (2,), fill=1.0), ParamLeaf("s", ()))
    )
    rows = torch.arange(20.0).view(2, 10)
    parts = layout.split(rows)
    assert [part.tolist() for part in (parts["gain"], parts["s"])] == [[[6, 7], [16, 17]], [8, 18]]
    assert parts["w"].data_ptr() == rows.data_ptr()
    assert torch.equal(layout.join(parts), rows[:, : layout.size])
    drawn = layout.split(layout.draw(noise(500, 9)))
    assert drawn["w"].abs().max() <= 0.5
    assert drawn["w"].abs().max() > 0.49
    assert drawn["gain"].unique().tolist() == [1.0]
    assert drawn["s"].unique().tolist() == [0.0]
