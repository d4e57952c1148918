"""Requirement of strategies and laws: importing this module without Hypothesis raises how to
install it.
"""

from importlib.util import find_spec

if find_spec("hypothesis") is None:
    raise ImportError(
        'morphogen.testing.strategies and .laws need Hypothesis: pip install "morphogen[test]"'
    )
