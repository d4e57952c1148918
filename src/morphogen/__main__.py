"""Entry point of `python -m morphogen`."""

import sys

from morphogen.cli.main import run_process

if __name__ == "__main__":
    sys.exit(run_process())
