"""What strategies and laws need beside the package: where it is missing, importing this says how to install it."""

from importlib.util import find_spec

if find_spec("hypothesis") is None:
    raise ImportError(
        'morphogen.testing.strategies and .laws need Hypothesis; want it installed: pip install "morphogen[test]"'
    )
