"""The hosts and the blueprints of language models keep the laws of parts."""

import numpy as np
import pytest

import morphogen as mg
from morphogen.testing import laws

TOKENS = mg.TransformerSpec(vocabulary=11, width=8, heads=2, layers=2, block=5, segments=2)
MODULES = [mg.BLUEPRINTS[TOKENS.module_name(name)] for name in TOKENS.blueprints]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_the_blueprints_keep_the_laws(module):
    laws.check_blueprint(module, size=(6,))


@pytest.mark.slow
def test_the_host_keeps_the_laws():
    laws.check_host(TOKENS)


def test_numbers_of_numpy_become_plain():
    sizes = {
        name: np.int64(value)
        for name, value in {"vocabulary": 9, "width": 8, "heads": 2, "layers": 3}.items()
    }
    assert type(mg.TransformerSpec(**sizes, block=np.int64(4)).width) is int
