"""`grow`: one call from a module and data to a better module."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from morphogen.config.fields import UNSET
from morphogen.config.host import Host
from morphogen.config.instance_spec import InstanceSpec
from morphogen.config.parts import FILE_POLICIES, KINDS, POLICIES
from morphogen.config.task import TASKS, TaskSpec
from morphogen.env.environment import Environment
from morphogen.env.episodes import Carry, first_carry, run_epoch
from morphogen.env.make import make
from morphogen.env.policies import TRAINED_PREFIX, build_arm
from morphogen.errors import ConfigError
from morphogen.evaluation.arms import drop_line
from morphogen.extras.export.exported import build_network, export, take_networks
from morphogen.extras.modules.module_host import ModuleHost, host_from_module
from morphogen.hosts.answers import Criterion
from morphogen.log.console import format_duration
from morphogen.log.run_directory import NETWORKS
from morphogen.state.env import EnvState
from morphogen.steps.reset_step import place_fossils
from morphogen.vocab.blueprint import Blueprint
from morphogen.vocab.objective import CROSS_ENTROPY, DELIVERED
from morphogen.vocab.plain import read_count
from morphogen.vocab.slot import SlotSpec
from morphogen.vocab.stage import Stage
from morphogen.vocab.text import format_choice

BATCH = 32
MOST_MINIBATCHES = 64  # of an epoch
NETWORK_NAMES = ("grown", "host alone", "same form from scratch")
NO_SEEDS = "none"
CHUNK = 256  # samples that a plain module is scored on at once


_Form = tuple[Tensor, Tensor]  # blueprint and algorithm of the fossils, int64 [E, S]


@dataclass(frozen=True)
class Grown:
    """Result of `grow`."""

    module: nn.Module
    """The grown network, which takes samples as they are stored."""
    score: float
    """Score on the test split, percent; the accuracy, unless `grow` was called with a loss."""
    history: list[dict[str, Any]] = field(repr=False)
    """Per epoch: the mean score of the copies on the validation split under its name, the best one,
    their seeds.
    """
    table: list[dict[str, Any]]
    """The grown network, the host alone, and a network of its form from scratch."""


def grow(
    network: Callable[[], nn.Module] | nn.Module | Host,
    data: Any,
    *,
    policy: str = "heuristic",
    epochs: int = 40,
    price: float = 0.1,
    copies: int = 16,
    seed: int = 0,
    loss: str | Callable[..., Any] = CROSS_ENTROPY,
    score: str | Callable[..., Any] | None = None,
    report: Callable[[str], None] = drop_line,
    **settings: Any,
) -> Grown:
    """Grow a network on data: copies of it live side by side, and the best one is returned.

    Args:
        network: a module with `Slot`s or a function that builds one, as of `host_from_module`, or a
            host.
        data: a data set, as of `from_arrays`, or the name of a task whose samples are taken.
        policy: the directory of a run, whose policy grows; a policy, as `heuristic`; or the policy
            of a file, as `reactive:FILE`.
        epochs: of training.
        price: value that a network as large as all seeds together would cost; a score of 100 % is
            worth 1.
        copies: number of networks; they differ in initial values and batches.
        seed: of all draws.
        loss, score: as of `TaskSpec`; by default cross-entropy and accuracy.
        report: receives a line per epoch of each of the three networks, with its seeds and with the
            time that all will still take.
        settings: of the run, as of `make`.

    Returns: the copy with the best score on the validation split, judged on the test split; for
        the table, hosts without seeds and networks of the grown form are trained from scratch in as
        many copies, and chosen in the same way.
    Raises: ConfigError for a network, data, policy or setting that cannot be used.

    Example:
        >>> import torch
        >>> import morphogen as mg
        >>> net = torch.nn.Sequential(torch.nn.Linear(4, 8), mg.Slot(), torch.nn.Linear(8, 2))
        >>> inputs = torch.linspace(-1, 1, 240).view(60, 4)
        >>> data = mg.from_arrays("line", inputs, (inputs.sum(1) > 0).long())
        >>> grown = mg.grow(net, data, epochs=2, copies=2)
        >>> grown.module(inputs).shape, [row["network"] for row in grown.table]
        (torch.Size([60, 2]), ['grown', 'host alone', 'same form from scratch'])
    """
    copies = read_count("copies", copies)
    epochs = read_count("epochs", epochs)
    defaults = _defaults(data, epochs, price)
    task = replace(_task(network, data), loss=loss, score=score or UNSET, defaults=defaults)
    env = make(task, envs=copies, seed=seed, **settings)
    progress = _Progress(report, env.horizon * len(NETWORK_NAMES))
    rows: list[dict[str, Any]] = []

    def play(network: str, arm: str, form: _Form | None = None) -> tuple[_Life, _Choice]:
        started = time.perf_counter()
        life = _live(env, arm, lambda line: progress.show(f"{network}, {line}"), form)
        chosen = _choose(env, life.state)
        seconds = round(time.perf_counter() - started, 1)
        rows.append({"network": network, **_row(chosen, task.score_name), "seconds": seconds})
        return life, chosen

    grown, alone, static = NETWORK_NAMES
    life, best = play(grown, _arm_name(policy))
    play(alone, "wait")
    if best.seeds == NO_SEEDS:
        report(f"{grown}: no seed is kept; its form is the host alone")
        rows.append(rows[-1] | {"network": static, "seconds": 0.0})
    else:
        play(static, "wait", _form(life.state, best.copy, env))
    module = export(env, life.state, best.copy, seeds="delivered")
    return Grown(module, best.test, life.history, rows)


class _Progress:
    """Lines of progress, each with the time that all epochs will still take."""

    def __init__(self, report: Callable[[str], None], epochs: int) -> None:
        self.report = report
        self.epochs = epochs
        self.done = 0
        self.started = time.perf_counter()

    def show(self, line: str) -> None:
        self.done += 1
        left = (time.perf_counter() - self.started) / self.done * (self.epochs - self.done)
        self.report(f"{line}; {format_duration(left)} left")


class _Life(NamedTuple):
    """The copies after all epochs, and a row per epoch."""

    state: EnvState
    history: list[dict[str, Any]]


@dataclass(frozen=True)
class _Choice:
    copy: int
    validation: float
    test: float
    params: int
    seeds: str


def _task(network: Any, data: Any) -> TaskSpec:
    """Return the task of a network on a data set, or on the samples of a task."""
    if not isinstance(data, str):
        host = network if isinstance(network, Host) else host_from_module(network)
        return TaskSpec(name="grow", dataset=data, host=host)
    if data not in TASKS or not KINDS[str(TASKS[data].kind)].samples:
        got = format_choice(data, TASKS)
        raise ConfigError(f"data: expected a data set or a task with samples, got {got}")
    source: Any = TASKS[data]
    example = torch.zeros(source.host.input_shape, device="cpu")
    host = network if isinstance(network, Host) else host_from_module(network, example=example)
    return replace(
        source,
        name="grow",
        host=host,
        slots=(),
        instance=InstanceSpec(),
        param_budget=None,
        objective=DELIVERED,
    )


def _defaults(data: Any, epochs: int, price: float) -> dict[str, Any]:
    samples = len(getattr(data, "inputs", ())) or BATCH * MOST_MINIBATCHES
    return {
        "episode_length": epochs,
        "data": {
            "batch": BATCH,
            "minibatches": min(MOST_MINIBATCHES, math.ceil(samples / BATCH)),
        },
        "heuristic": {"first_epoch": 0, "min_plateau": 0},
        "instance": {"param_price": [price, price]},
        "reward": {"rule": "value"},
    }


def _arm_name(policy: str) -> str:
    """Return the name of an arm for `build_arm`."""
    prefixes = (*(f"{kind}:" for kind in FILE_POLICIES), TRAINED_PREFIX)
    if policy in POLICIES or policy.startswith(prefixes):
        return policy
    if Path(policy).exists():
        return TRAINED_PREFIX + policy
    known = [*POLICIES, *(f"{prefix}FILE" for prefix in prefixes)]
    raise ConfigError(
        f"policy: expected the directory of a run, or one of {', '.join(known)}, got "
        f"{format_choice(policy, list(POLICIES))}"
    )


def _live(
    env: Environment,
    name: str,
    report: Callable[[str], None],
    form: _Form | None,
) -> _Life:
    """Play all epochs under a policy, from networks of a form or from hosts without seeds."""
    arm = build_arm(name, env.setup)
    env = env if arm.control is None else replace(env, control=arm.control)
    carry: Any = first_carry(env, arm.policy)
    if form is not None:
        episode = torch.full_like(env.keys[:, 0], env.split.first_episode)
        state, inputs = env.start(place_fossils(env.init_state(episode), *form), form[0] > 0)
        carry = Carry(state, inputs, carry.memory, carry.segment)
    history: list[dict[str, Any]] = []
    with torch.no_grad():
        for number in range(1, env.horizon + 1):
            carry, epoch = run_epoch(env, arm.policy, arm.params, carry)
            slots = epoch.after.slots
            sent = {"accuracy": epoch.step.validation.accuracy[:, 0]}
            sent |= {"stage": slots.stage, "blueprint": slots.blueprint}
            found = env.transfers.read("result", sent)  # once an epoch, for the line of progress
            mean = float(found["accuracy"].mean())
            best = float(found["accuracy"].max())
            seeds = _count_seeds(found, env)
            score = env.setup.task.score_name
            history.append({"epoch": number, score: mean, "best": best, "seeds": seeds})
            shown = ", ".join(f"{count} {name}" for name, count in seeds.items()) or "no seeds"
            report(
                f"epoch {number}/{env.horizon}: {score} {mean:.1f} %, best {best:.1f} %; {shown}"
            )
    return _Life(carry.state, history)


def _count_seeds(sent: dict[str, Any], env: Environment) -> dict[str, int]:
    """Count the living seeds of all copies, by blueprint and slot."""
    found: dict[str, int] = {}
    rows = zip(sent["stage"].tolist(), sent["blueprint"].tolist(), strict=True)
    for stage_row, blueprint_row in rows:
        for slot, stage, code in zip(env.net.slots, stage_row, blueprint_row, strict=True):
            if Stage.GERMINATED <= stage <= Stage.FOSSILIZED:
                name = _seed_name(env, code, slot)
                found[name] = found.get(name, 0) + 1
    return dict(sorted(found.items()))


def _seed_name(env: Environment, code: int, slot: SlotSpec) -> str:
    """Return the name of a blueprint and its place, a slot of a user's module by its own name."""
    host = env.net.host
    place = host.slot_path(slot.name) if isinstance(host, ModuleHost) else slot.name
    return f"{env.net.modules[Blueprint(code)].name} at {place}"


def _choose(env: Environment, state: EnvState) -> _Choice:
    """Return the copy whose delivered network is the best on the validation split."""
    dataset = env.setup.dataset
    split = dataset.validation
    test = dataset.on_test_split().validation
    stored: Any = env.transfers.fetch_state(take_networks(state), NETWORKS)
    scored = [
        (
            score_module(module, split, env.net.criterion),
            -sum(x.numel() for x in module.parameters()),
            -i,
            module,
        )
        for i in range(env.envs)
        for module in [build_network(env.net, stored[i : i + 1], seeds="delivered").eval()]
    ]
    score, size, number, module = max(scored, key=lambda entry: entry[:3])
    grown: Any = module
    blueprints = stored["slots"].blueprint[-number].tolist()
    names = [
        _seed_name(env, code, slot)
        for slot, code in zip(env.net.slots, blueprints, strict=True)
        if slot.name in grown.slots
    ]
    shown = ", ".join(names) or NO_SEEDS
    return _Choice(-number, score, score_module(module, test, env.net.criterion), -size, shown)


def score_module(module: nn.Module, split: Any, criterion: Criterion) -> float:
    """Score of a module on the samples of a split, percent."""
    parts = zip(split.inputs.cpu().split(CHUNK), split.labels.cpu().split(CHUNK), strict=True)
    with torch.no_grad():
        counts = [criterion.count(module(x)[None], target[None], None) for x, target in parts]
    return float(
        criterion.percent(*(torch.stack(count).sum() for count in zip(*counts, strict=True)))
    )


def _form(state: EnvState, copy: int, env: Environment) -> _Form:
    """Return blueprint and algorithm of the fossils of a copy, for all copies; -1 without one."""
    kept = state.slots.stage[copy] == int(Stage.FOSSILIZED)
    blueprint = torch.where(kept, state.slots.blueprint[copy], -1)
    rows = (blueprint, state.slots.algorithm[copy])
    return rows[0].expand(env.envs, -1).clone(), rows[1].expand(env.envs, -1).clone()


def _row(found: _Choice, score: str) -> dict[str, Any]:
    return {
        f"validation {score} %": round(found.validation, 2),
        f"test {score} %": round(found.test, 2),
        "parameters": found.params,
        "seeds": found.seeds,
    }
