"""Entry point of `python -m morphogen`."""

import sys

from morphogen.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
