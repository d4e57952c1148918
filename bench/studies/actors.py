"""The same run under Ray: an actor per rank with the variables that torchrun sets.

`pip install ray`, then `python -m bench.studies.actors 4 train --out runs/a`: four ranks, and the
command of each.
"""

import importlib
import os
import socket
import subprocess
import sys


def run_rank(variables: dict[str, str], words: list[str]) -> int:
    """Run a command as a rank, in a process of its own; return its exit code."""
    command = [sys.executable, "-m", "morphogen", *words]
    return subprocess.run(
        command, env={**os.environ, "OMP_NUM_THREADS": "1", **variables}, check=False
    ).returncode


def main() -> int:
    """Start all ranks; return the first exit code that is not 0."""
    ray = importlib.import_module("ray")
    ranks, words = int(sys.argv[1]), sys.argv[2:]
    ray.init()
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
    shared = {
        "WORLD_SIZE": str(ranks),
        "MASTER_ADDR": ray.util.get_node_ip_address(),
        "MASTER_PORT": str(port),
    }
    start = ray.remote(num_cpus=1)(run_rank).remote
    jobs = [start({**shared, "RANK": str(rank)}, words) for rank in range(ranks)]
    return next((code for code in ray.get(jobs) if code), 0)


if __name__ == "__main__":
    sys.exit(main())
