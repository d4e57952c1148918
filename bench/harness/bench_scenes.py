"""Populations to measure: envs of a task with given seeds, everything that an epoch of training and
validation needs.

Images or tokens, and labels, are noise, so that no data set is needed; two calls give the same
scene.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from tensordict import TensorDict
from torch import Tensor

import morphogen as mg
from morphogen.config.execution_spec import EngineSpec
from morphogen.config.fields import Spec, fields_of, to_settings
from morphogen.config.groups import DataSpec
from morphogen.config.spec import RunSpec, find_host, resolve
from morphogen.config.task import TASKS
from morphogen.env.setup import build_setup
from morphogen.hosts.answers import NO_LABEL
from morphogen.hosts.net import Net
from morphogen.hosts.plan import Plan, empty_plan, plan_counts, read_plan
from morphogen.log.writer import Sink
from morphogen.rules.attribution import players
from morphogen.state import rng, schema
from morphogen.state.env import EnvState
from morphogen.state.measure import InputBatch, LabelledInputs, Validation
from morphogen.steps.reset_step import init_seeds, new_seed_rows, reset
from morphogen.steps.train import finish_epoch, start_epoch, train_minibatch
from morphogen.steps.validate_step import validate
from morphogen.train.loop import Parts, Scheduler
from morphogen.vocab.stage import Algorithm, Stage

TrainStep = Callable[..., tuple]
TOKENS = "tokens"  # a small language model, for which no text is needed
# a host of the extra `text`
LANGUAGE_MODEL = {"vocabulary": 97, "width": 48, "heads": 4, "layers": 3, "block": 64}
LANGUAGE_BATCH = 8  # rows of tokens
EPOCH_MINIBATCHES = resolve(RunSpec(task="digits")).data.minibatches  # of digits


@dataclass(frozen=True)
class BenchScene:
    """Envs with the plan of their epoch, its minibatches and a validation split."""

    spec: RunSpec
    net: Net
    state: EnvState
    plan: Plan
    requested_coalitions: tuple[Tensor, Tensor]  # coalitions int64, evaluated bool [E, K]
    batches: tuple[InputBatch, ...]
    split: LabelledInputs

    @property
    def minibatch_step(self) -> TrainStep:
        """The training step with everything that is fixed for the epoch: (progress, batch) ->
        (progress, seen).
        """
        knobs = {
            "plan": self.plan,
            "net": self.net,
            "spec": self.spec.host,
            "lifecycle": self.spec.lifecycle,
        }
        return functools.partial(train_minibatch, **knobs)

    def train(self, step: TrainStep | None = None) -> EnvState:
        """An epoch over all minibatches, from the same state at every call."""
        step = step or self.minibatch_step
        progress = start_epoch(self.state, self.plan, net=self.net)
        for batch in self.batches:
            progress, _ = step(progress, batch)
        return finish_epoch(self.state, progress, self.plan, net=self.net)[0]

    def validate(self) -> Validation:
        """One pass over the split, for every coalition that is asked for."""
        return validate(self.state, self.split, *self.requested_coalitions, self.plan, net=self.net)

    def with_state(self, state: EnvState, *, coalitions: int | None = None) -> "BenchScene":
        """The scene around another state, of as many envs as that has; its minibatches stay."""
        asked = tuple(part[:, :coalitions].contiguous() for part in all_coalitions(state, self.net))
        nothing = torch.zeros_like(state.slots.stage, dtype=torch.bool)
        return replace(
            self,
            state=state,
            requested_coalitions=asked,
            plan=_build_plan(state, self.net, asked, nothing),
        )

    def without_slots(self) -> "BenchScene":
        """The same hosts, declared without slots."""
        envs, net = self.state.batch_size[0], Net(self.net.host, ())
        slots = self.state.slots.apply(lambda leaf: leaf[:, :0])
        state = self.state.replace(
            slots=slots, seeds=TensorDict({}, batch_size=[envs], device=self.state.device)
        )
        asked = (
            self.requested_coalitions[0][:, :1].contiguous(),
            self.requested_coalitions[1][:, :1].contiguous(),
        )
        return replace(
            self, net=net, state=state, requested_coalitions=asked, plan=empty_plan(envs, net)
        )

    def to(self, dtype: torch.dtype) -> "BenchScene":
        """The same scene in another precision."""
        state, split, *batches = (
            part.apply(lambda leaf: leaf.to(dtype) if leaf.is_floating_point() else leaf)
            for part in (self.state, self.split, *self.batches)
        )
        return replace(self, state=state, split=split, batches=tuple(batches))


def build_scene(
    task: str,
    envs: int,
    kind: str,
    *,
    minibatches: int = 1,
    val_samples: int = 300,
    coalitions: int | None = None,
    device: torch.device | str = "cpu",
    **trained: Any,
) -> BenchScene:
    """A scene of a task, or of TOKENS, with the data of the task and the defaults of the classes.

    coalitions: their number, None = all of the live seeds; trained: optimizer, schedule and freeze
    of the net.
    """
    if task == TOKENS:
        spec = resolve(
            plain_spec(
                task="digits", envs=envs, instances="single", data=DataSpec(batch=LANGUAGE_BATCH)
            )
        )
        host = mg.TransformerSpec(**LANGUAGE_MODEL)
        net = Net(host, host.all_slots, **trained)
    else:
        data = DataSpec(**TASKS[task].defaults.get("data", {}))
        spec = resolve(plain_spec(task=task, envs=envs, instances="single", data=data))
        host = find_host(spec)
        net = Net(host, host.pick_slots(spec.slots), **trained)
    state = add_seeds(
        _initial_state(net, spec, torch.device(device)), net, *seed_layout(kind, envs, net, device)
    )
    asked = tuple(part[:, :coalitions].contiguous() for part in all_coalitions(state, net))
    nothing = torch.zeros_like(state.slots.stage, dtype=torch.bool)
    return BenchScene(
        spec=spec,
        net=net,
        state=state,
        plan=_build_plan(state, net, asked, nothing),
        requested_coalitions=asked,
        batches=tuple(_batch(net, state, spec.data.batch, m) for m in range(minibatches)),
        split=_split(net, state, val_samples),
    )


def plain_spec(**fields: Any) -> RunSpec:
    """A spec without the defaults of its task: a field that is not given has the default of its
    class.
    """
    known = {name: info.default for name, info in fields_of(RunSpec).items()} | fields
    return RunSpec(
        **{
            name: to_settings(value) if isinstance(value, Spec) else value
            for name, value in known.items()
        }
    )


def task_sizes(envs: int) -> dict[str, tuple[str, int]]:
    """Short name -> task and number of envs: a cifar env is far larger than a digits env."""
    return {"digits": ("digits", envs), "cifar": ("cifar_baseline", max(1, envs // 4))}


def build_scheduler(
    envs: int,
    device: torch.device,
    *,
    sinks: Sequence[Sink] = (),
    compile: str = "off",
    **settings: Any,
) -> Scheduler:
    """A run on digits with the defaults of the classes, up to the settings."""
    spec = plain_spec(
        task="digits",
        envs=envs,
        engine=EngineSpec(devices=(str(device),), compile=compile),
        **settings,
    )
    return Scheduler(build_setup(resolve(spec)), Parts(sinks=sinks))


def all_coalitions(state: EnvState, net: Net) -> tuple[Tensor, Tensor]:
    """All coalitions of every env: number k switches off the players whose bits are set in k.  [E,
    2^S] each.
    """
    device, size = state.slots.stage.device, len(net.slots)
    weight, numbers = 1 << torch.arange(size, device=device), torch.arange(1 << size, device=device)
    live = (players(state.slots) * weight).sum(-1, keepdim=True)
    return live & ~numbers, (numbers & live) == numbers


def add_seeds(
    state: EnvState, net: Net, stage: Tensor, blueprint: Tensor, algorithm: Tensor, alpha: Tensor
) -> EnvState:
    """The state with seeds as given, their parameters drawn anew.  int64 and float [E, S];
    blueprint -1 = empty.
    """
    born = blueprint > 0
    own = {
        "stage": stage,
        "blueprint": blueprint,
        "algorithm": algorithm,
        "alpha": alpha,
        "alpha_target": alpha,
    }
    state = state.replace(slots=state.slots.replace(**own))
    rows = new_seed_rows(born, _build_plan(state, net, all_coalitions(state, net), born))
    wide = zip(rows, net.seed_sizes, strict=True)
    noise = tuple(_noise(row, row.shape[0], size, seed=1 + s) for s, (row, size) in enumerate(wide))
    return init_seeds(state, rows, noise, net=net)


def _initial_state(net: Net, spec: RunSpec, device: torch.device) -> EnvState:
    """Envs at the start of a life, at full width and with all classes."""
    envs, classes = spec.envs, net.host.classes
    key, nothing = (
        rng.env_keys(spec.seed, 0, envs, device),
        TensorDict({}, batch_size=[envs], device=device),
    )
    sizes = net.sizes(envs=envs, window=spec.governor.window, classes=classes)
    labels = torch.arange(classes, device=device).expand(envs, -1).contiguous()
    instance = schema.empty_state(sizes, key, nothing).instance
    instance = instance.replace(classes=torch.full_like(instance.classes, classes), class_of=labels)
    noise = _noise(key, envs, net.host_size, seed=0)
    return reset(
        key, instance, noise, episode=0, ledger=nothing, net=net, window=spec.governor.window
    )


def seed_layout(
    kind: str, envs: int, net: Net, device: torch.device | str
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Stage, blueprint, algorithm and alpha.  [E, S] each.

    none: empty slots; light: one seed of the first blueprint (conv_light) in each env; mixed: every
    blueprint in every slot, under all three algorithms, half blended in; kept: the same,
    fossilized.
    """
    slots = len(net.slots)
    number = torch.arange(envs * slots, device=device).view(envs, slots)
    kinds = torch.tensor([int(code) for code in net.modules], device=device)
    live = {"none": number < 0, "light": number % slots == 0}.get(kind, number >= 0)
    spread = kind in ("mixed", "kept")
    stage = int(Stage.FOSSILIZED if kind == "kept" else Stage.BLENDING)
    blueprint = kinds[number % len(kinds)] if spread else kinds[:1].expand_as(number)
    algorithm = (
        1 + number // len(kinds) % (len(Algorithm) - 1) if spread else torch.ones_like(number)
    )
    alpha = torch.full(number.shape, 1.0 if kind == "kept" else 0.5, device=device)
    return (
        torch.where(live, stage, int(Stage.DORMANT)),
        torch.where(live, blueprint, -1),
        torch.where(live, algorithm, 0),
        torch.where(live, alpha, 0.0),
    )


def _build_plan(
    state: EnvState, net: Net, requested: tuple[Tensor, Tensor], is_new: Tensor
) -> Plan:
    return read_plan(plan_counts(state.slots, *requested, is_new, net=net).tolist(), net)


def _noise(like: Tensor, *sizes: int, seed: int) -> Tensor:
    """Uniform in [0, 1), the same at every call.  float32 [*sizes] on the device of `like`."""
    return torch.rand(
        *sizes, generator=torch.Generator(like.device).manual_seed(seed), device=like.device
    )


def _examples(net: Net, state: EnvState, *lead: int, seed: int) -> tuple[Tensor, Tensor]:
    """Images of mean 0 and variance 1, float32 [*lead, C, H, W], with a class each, int64 [*lead].

    Rows of tokens, int64 [*lead, n], with the token behind each; the last one has no label.
    """
    host, noise = net.host, _noise(state.key, *lead, *net.host.input_shape, seed=seed)
    if not host.vocabulary:
        return (noise - 0.5) * 12**0.5, (_noise(state.key, *lead, seed=seed) * host.classes).long()
    tokens = (noise * host.vocabulary).long()
    return tokens, F.pad(tokens[..., 1:], (0, 1), value=NO_LABEL)


def _batch(net: Net, state: EnvState, samples: int, number: int) -> InputBatch:
    lead = (state.batch_size[0], samples)
    inputs, labels = _examples(net, state, *lead, seed=100 + number)
    return InputBatch(inputs=inputs, labels=labels, batch_size=lead[:1], device=inputs.device)


def _split(net: Net, state: EnvState, samples: int) -> LabelledInputs:
    inputs, labels = _examples(net, state, samples, seed=99)
    return LabelledInputs(inputs=inputs, labels=labels, batch_size=[], device=inputs.device)
