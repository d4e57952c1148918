"""What the strategies and the laws need beside the package: importing this says how to install it where it is missing."""

from importlib.util import find_spec

if find_spec("hypothesis") is None:
    raise ImportError(
        'morphogen.testing.strategies and .laws need Hypothesis; want it installed: pip install "morphogen[test]"'
    )
