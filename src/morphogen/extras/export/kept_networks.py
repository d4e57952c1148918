"""The networks that a run keeps of its final evaluation: written, and read back."""

import shlex
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from morphogen.config import files
from morphogen.config.config_files import dump_config, parse_config
from morphogen.config.registry import error_line
from morphogen.device.transfers import Transfers
from morphogen.env.make import make
from morphogen.env.setup import Setup
from morphogen.errors import CheckpointError
from morphogen.evaluation.play import ArmResult
from morphogen.extras.export.exported import build_network, export, normalise, take_networks
from morphogen.extras.export.keep_spec import ALL, NONE
from morphogen.extras.export.kept_files import (
    BEST,
    MEDIAN,
    TRAINED,
    Row,
    file_name,
    list_networks,
    read_facts,
)
from morphogen.extras.export.network_files import pack_network
from morphogen.hosts.weights import NORMALISATION
from morphogen.log.run_directory import NETWORKS, RunDirectory
from morphogen.state.env import EnvState
from morphogen.state.tree_ops import replace

INSTANCE = ("width", "classes", "reach")  # parameters that shape a network


class NetworkKeeper:
    """Keeper of networks (`train.held_out_plays.Keeper`).

    The networks of an arm wait on the CPU for its results; the chosen ones, as the bytes of their
    files, for the result of the run, so that a full disk costs networks alone.
    """

    def __init__(self, setup: Setup, transfers: Transfers) -> None:
        self._setup = setup
        self._transfers = transfers
        group: Any = setup.spec.evaluation
        self._mode: str = group.keep.networks if setup.kind.samples else NONE
        self._groups: list[Any] = []  # of the arm that plays
        self._files: dict[str, bytes] = {}
        self._faults: list[str] = []

    def end_group(self, state: EnvState) -> None:
        """Take the networks of a group of episodes to the CPU."""
        if self._mode != NONE:
            self._groups.append(self._transfers.fetch_state(take_networks(state), NETWORKS))

    def end_arm(self, result: ArmResult) -> None:
        """Build the chosen networks of the arm; every process those that it played."""
        if self._mode == NONE:
            return
        built: dict[str, bytes] = {}
        fault = ""
        try:
            built = self._build(result)
        except Exception as error:  # of a method `plain` from outside
            fault = f"networks of {result.policy}: {error_line(error)}"
        self._groups.clear()
        for files_of, fault_of in self._setup.exchange.facts((built, fault)):
            self._files |= files_of
            self._faults += [fault_of] if fault_of and fault_of not in self._faults else []

    def write(self, folder: RunDirectory) -> list[str]:
        """Write the networks, each file at once, and delete the files of an earlier evaluation;
        return what the best one of the run's policy is, and how to take it home.
        """
        if not folder.is_writer:
            return []
        for name, data in self._files.items():
            with folder.saving():
                (folder.path / NETWORKS).mkdir(exist_ok=True)
            folder.write(f"{NETWORKS}/{name}", lambda data=data: data)
        with folder.saving():
            self._delete_old(folder)
        if self._faults:
            raise CheckpointError("; ".join(self._faults))
        return [
            line
            for row in list_networks(folder.path)
            if (row["arm"], row["pick"]) == (TRAINED, BEST)
            for line in describe_network(folder.path, row, self._setup.task.score_name)
        ]

    def _delete_old(self, folder: RunDirectory) -> None:
        kept = {f"{NETWORKS}/{name}" for name in self._files}
        for row in list_networks(folder.path):
            own = f"{NETWORKS}/{file_name(row['arm'], row['pick'])}"
            if row["file"] == own and own not in kept:
                (folder.path / own).unlink()
        for path in (folder.path / NETWORKS).glob(f"{files.TEMPORARY}*"):
            path.unlink()  # of a run that was killed

    def _build(self, result: ArmResult) -> dict[str, bytes]:
        """Return the files of the chosen networks that this process played, by name."""
        spec = self._setup.spec
        arm = TRAINED if result.policy == spec.policy_name else result.policy
        count = min(spec.envs, len(result.network_value))
        places = self._setup.exchange.places(count).tolist()
        built: dict[str, bytes] = {}
        for pick, episode in choose(result, self._mode).items():
            group, place = divmod(episode, count)
            if place in places:
                i = places.index(place)
                row = self._groups[group][i : i + 1]
                facts = {"arm": arm, "policy": result.policy, "pick": pick, "env": episode}
                built[file_name(arm, pick)] = self._pack(row, result, facts)
        return built

    def _pack(self, row: Any, result: ArmResult, facts: Row) -> bytes:
        """Return the file of a network.  row: of `take_networks`, [1]."""
        setup = self._setup
        i = facts["env"]
        made = build_network(setup.net, row, seeds="delivered")
        instance = row["instance"]
        described = {
            **facts,
            "parameters": int(result.params[i]),
            "score": float(result.committed_accuracy[i]),
            "value": float(result.network_value[i]),
            "host": setup.net.host.numbers(),
            "instance": {name: getattr(instance, name)[0].item() for name in INSTANCE},
            "config": dump_config(setup.spec),
        }
        return pack_network(normalise(made, setup), described)


def describe_network(run: Path, row: Row, score: str) -> list[str]:
    """Return two lines: a kept network, and the command that exports it.  score: its name."""
    return [
        f"best network of {row['policy']}: {run / row['file']}: {row['parameters']:,} parameters, "
        f"{score} {row['score']:.1f} %, value {row['value']:.3f}",
        f"take it home: morphogen export {shlex.quote(str(run))} --out grown.pt2",
    ]


def choose(result: ArmResult, mode: str) -> dict[str, int]:
    """Return the numbers of the chosen episodes by pick: by the value of the network, then the
    fewest parameters.
    """
    value = np.nan_to_num(result.network_value, nan=-np.inf)
    order = np.lexsort((result.params, -value)).tolist()
    picks = {BEST: order[0], MEDIAN: order[len(order) // 2]}
    if mode == ALL:
        picks |= {f"{i:04d}": i for i in sorted(order) if i not in picks.values()}
    return picks


def load_network(path: Path) -> tuple[nn.Module, Tensor, Row]:
    """Return a kept network as a module, two samples that it takes, and the facts about it.

    Raises: ConfigError for parts that this process does not know, DataError for a damaged file.
    """
    facts = read_facts(path)
    spec = parse_config(facts["config"])
    env = make(spec, envs=1, device="cpu", host={"weights": [str(path)]})
    state = env.init_state(torch.zeros(1, dtype=torch.int64, device="cpu"))
    width, classes, reach = (
        torch.full_like(getattr(state.instance, name), facts["instance"][name]) for name in INSTANCE
    )
    instance = replace(state.instance, width=width, classes=classes, reach=reach)
    state = replace(state, instance=instance)
    dataset = env.setup.dataset
    made = export(env, state, 0)
    stored: Any = dataset.test.inputs if hasattr(made, NORMALISATION) else dataset.validation.inputs
    return made, stored[:2], facts
