"""Small states of networks with seeds, for the tests of training and validation."""

import itertools
from typing import Any

import torch
from support.manual_gates import by_hand
from tensordict import TensorDict
from torch import Tensor

import morphogen as mg
from bench.harness.minimal import Slot
from bench.harness.plain_modules import flatten_parameters, ordered_parameters
from morphogen.config.groups import HostSpec
from morphogen.config.host import CnnSpec, Host
from morphogen.hosts.net import Net
from morphogen.hosts.plan import Plan, plan_counts, read_plan
from morphogen.rules.attribution import players
from morphogen.rules.stages import occupied
from morphogen.state import rng, schema
from morphogen.state.env import EnvState, Slots
from morphogen.state.measure import InputBatch, LabelledInputs
from morphogen.state.tree_ops import TreeT
from morphogen.steps.reset_step import init_seeds, new_seed_rows
from morphogen.vocab.stage import Stage

DIGITS = CnnSpec(base=4, blocks=2, kernel=3, pools=1, channels_in=1, size=8, classes=10)
SPEC = HostSpec(lr=0.05, seed_lr=0.02)
LIFECYCLE = by_hand()


def net(host: Host = DIGITS, slots: tuple[str, ...] = ("r0c0", "r0c1", "r1c0")) -> Net:
    return Net(host, host.pick_slots(slots))


def cnn_host(*numbers: Any) -> CnnSpec:
    """A CNN host of numbers in the order of its fields."""
    names = ("base", "blocks", "kernel", "pools", "channels_in", "size", "classes")
    return CnnSpec(**dict(zip(names, numbers, strict=True)))


def token_host(**changes: int) -> Host:
    """A language model, of the extra `text`."""
    sizes = {"vocabulary": 19, "width": 16, "heads": 2, "layers": 3, "block": 7}
    return mg.TransformerSpec(**{**sizes, **changes})


def token_net(host: Host | None = None) -> Net:
    """A net of a language model with all its slots."""
    host = token_host() if host is None else host
    return Net(host, host.all_slots)


def noise(*shape: int, seed: int = 0) -> Tensor:
    """Uniform in [0, 1), the same at every call."""
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def integers(low: int, high: int, *shape: int, seed: int = 0) -> Tensor:
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(seed))


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def fresh(net: Net, envs: int, seed: int = 0) -> EnvState:
    """Envs without seeds, as a reset makes them."""
    sizes = net.sizes(envs=envs, window=4, classes=net.host.classes)
    state = schema.empty_state(
        sizes, rng.env_keys(seed, 0, envs), TensorDict({}, batch_size=[envs])
    )
    classes = torch.full((envs,), net.host.classes)
    labels = torch.arange(net.host.classes).expand(envs, -1).contiguous()
    instance = state.instance.replace(classes=classes, class_of=labels)
    host = state.host.replace(params=net.host_layout.draw(noise(envs, net.host_size, seed=seed)))
    return state.replace(instance=instance, host=host)


def plan(
    state: EnvState,
    net: Net,
    born: Tensor | None = None,
    asked: tuple[Tensor, Tensor] | None = None,
) -> Plan:
    born = torch.zeros_like(state.slots.stage, dtype=torch.bool) if born is None else born
    coalition, evaluated = asked or every(state, net)
    return read_plan(plan_counts(state.slots, coalition, evaluated, born, net=net).tolist(), net)


def every(state: EnvState, net: Net) -> tuple[Tensor, Tensor]:
    """All coalitions of every env: number k switches off the players whose bits are set in k."""
    size = len(net.slots)
    live = (players(state.slots) * torch.tensor([1 << s for s in range(size)])).sum(
        -1, keepdim=True
    )
    numbers = torch.arange(1 << size)
    return live & ~numbers, (numbers & live) == numbers


def grow(
    state: EnvState, net: Net, stage: Tensor, blueprint: Tensor, algorithm: Tensor, alpha: Tensor
) -> EnvState:
    """Seeds as given, int64 and float [E, S], with parameters as at birth."""
    own = {"stage": stage, "blueprint": blueprint, "algorithm": algorithm, "alpha": alpha}
    state = state.replace(slots=state.slots.replace(**own))
    born = blueprint > 0
    rows = new_seed_rows(born, plan(state, net, born))
    drawn = [
        noise(len(r), p, seed=7 + s)
        for s, (r, p) in enumerate(zip(rows, net.seed_sizes, strict=True))
    ]
    return init_seeds(state, rows, tuple(drawn), net=net)


def mixed(net: Net, envs: int, seed: int = 0) -> EnvState:
    """Every stage, blueprint, algorithm and alpha, some slots empty; seeds moved a little away from
    birth.
    """
    shape = (envs, len(net.slots))
    stage = integers(2, 7, *shape, seed=seed)
    stage = torch.where(stage == 2, 1, stage)
    live = stage > 1
    codes = torch.tensor([int(code) for code in net.modules])
    blueprint = torch.where(
        live, codes[(torch.arange(stage.numel()).view(shape) + seed) % len(codes)], -1
    )
    algorithm = torch.where(live, integers(1, 4, *shape, seed=seed + 1), 0)
    alpha = torch.where(stage >= 4, 0.05 + 0.95 * noise(*shape, seed=seed + 2), torch.zeros(shape))
    alpha = torch.where(stage >= 5, 1.0, alpha)
    return nudge(grow(fresh(net, envs, seed), net, stage, blueprint, algorithm, alpha), net)


def all_kinds(net: Net) -> EnvState:
    """Every blueprint under every algorithm in every stage of a seed that runs, as at birth."""
    stages = (Stage.TRAINING, Stage.BLENDING, Stage.HOLDING, Stage.FOSSILIZED)
    kinds = torch.tensor(
        list(itertools.product(map(int, net.modules), (1, 2, 3), map(int, stages)))
    )
    envs = -(-len(kinds) // len(net.slots))
    # an env holds different blueprints; a step without a common divisor reaches all kinds
    step = 5 if len(kinds) % 5 else 7
    order = torch.arange(envs * len(net.slots)) * step % len(kinds)
    blueprint, algorithm, stage = kinds[order].view(envs, len(net.slots), 3).unbind(-1)
    alpha = torch.where(
        stage == Stage.BLENDING, 0.05 + 0.95 * noise(*stage.shape), (stage > Stage.BLENDING).float()
    )
    return grow(fresh(net, envs), net, stage, blueprint, algorithm, alpha)


def nudge(state: EnvState, net: Net, size: float = 0.2) -> EnvState:
    """The same seeds with every parameter moved, so that no delta is 0."""
    seeds = {}
    for s, slot in enumerate(net.slots):
        old = state.seeds[slot.name, "params"]
        count = torch.tensor(net.counts[s])[state.slots.blueprint[:, s].clamp(min=0)].unsqueeze(-1)
        at = torch.arange(old.shape[1])
        own = ((at < count) | (at >= old.shape[1] - net.gate_counts[s])) & (count > 0)
        moved = torch.where(own, old + size * normal(*old.shape, seed=s), old)
        seeds[slot.name] = state.seeds[slot.name].replace({"params": moved})
    return state.replace(seeds=TensorDict(seeds, batch_size=state.batch_size))


def double(state: EnvState) -> EnvState:
    """The same state with floating leaves in float64."""
    cast = state.apply(lambda leaf: leaf.double() if leaf.is_floating_point() else leaf)
    assert cast is not None
    return cast


def like(state: EnvState, samples: TreeT) -> TreeT:
    """The samples with real numbers in the dtype of the state, and tokens as they are."""
    tree: Any = samples
    real = tree.inputs.is_floating_point()
    return tree.replace(inputs=tree.inputs.to(state.host.params.dtype)) if real else tree


def batch(net: Net, envs: int, samples: int = 16, seed: int = 0) -> InputBatch:
    inputs, labels = _examples(net.host, envs, samples, seed=seed)
    return InputBatch(inputs=inputs, labels=labels, batch_size=[envs])


def split(net: Net, samples: int = 40, seed: int = 3) -> LabelledInputs:
    inputs, labels = _examples(net.host, samples, seed=seed)
    return LabelledInputs(inputs=inputs, labels=labels, batch_size=[])


def _examples(host: Host, *lead: int, seed: int) -> tuple[Tensor, Tensor]:
    """Images with a label each, or rows of tokens with a label for most of them."""
    if not host.vocabulary:
        return normal(*lead, *host.input_shape, seed=seed), integers(
            0, host.classes, *lead, seed=seed
        )
    shape = (*lead, *host.input_shape)
    labels = integers(0, host.classes, *shape, seed=seed + 1)
    return integers(0, host.vocabulary, *shape, seed=seed), labels.masked_fill(
        noise(*shape, seed=seed) < 0.2, -1
    )


def advance_counters(slots: Slots) -> Slots:
    """The slots with the counters that the end of an epoch advances."""
    age = slots.age + occupied(slots.stage)
    return slots.replace(epochs_in_stage=slots.epochs_in_stage + (slots.stage != 1), age=age)


def stored(slot: Slot, size: int) -> Tensor:
    """The storage row of the seed in a plain slot."""
    body, gate = (
        flatten_parameters(ordered_parameters(slot.body)),
        flatten_parameters(ordered_parameters(slot.gate)),
    )
    return torch.cat((body, body.new_zeros(size - len(body) - len(gate)), gate))
