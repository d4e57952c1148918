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
    assert layout.size == 9
    assert {name: tuple(part.shape) for name, part in parts.items()} == {
        "w": (2, 2, 3),
        "gain": (2, 2),
        "s": (2,),
    }
    assert parts["gain"][1].tolist() == [16.0, 17.0]
    assert parts["w"].data_ptr() == rows.data_ptr()
    drawn = layout.split(layout.draw(noise(500, 9)))
    assert drawn["w"].abs().max() <= 0.5
    assert drawn["w"].abs().max() > 0.49
    assert drawn["gain"].unique().tolist() == [1.0]
    assert drawn["s"].unique().tolist() == [0.0]
