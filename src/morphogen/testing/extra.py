"""Optional requirements of strategies and laws: without them, importing this module says how to install them."""

from importlib.util import find_spec

if find_spec("hypothesis") is None:
    raise ImportError(
        'morphogen.testing.strategies and .laws need Hypothesis; want it installed: pip install "morphogen[test]"'
    )
