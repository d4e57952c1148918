"""Smoke check of parts from outside, before a run: one small call of each has the declared shapes
and finite numbers.

`morphogen.testing.laws` holds parts to every promise of their protocols.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from morphogen.config.groups import RewardSpec
from morphogen.config.host import Host
from morphogen.config.parts import BLUEPRINTS, HOSTS, RULES
from morphogen.config.registry import error_line, is_ours
from morphogen.config.spec import RunSpec
from morphogen.errors import ConfigError
from morphogen.hosts.host_networks import Features, HostRows
from morphogen.hosts.layout import ParamLayout
from morphogen.hosts.net import Net
from morphogen.hosts.seed_module import SeedModule, seed_layout
from morphogen.rules.rewards import table
from morphogen.rules.rewards.example_inputs import example_steps
from morphogen.rules.rewards.protocol import Rule
from morphogen.state import rng
from morphogen.state.env import Instance
from morphogen.state.schema import Sizes, empty_part
from morphogen.state.tree_ops import replace
from morphogen.vocab.purpose import Purpose
from morphogen.vocab.slot import SlotSpec

ROWS = 3  # networks of a check
SAMPLES = 4


def draw_normal(*shape: int, number: int = 0) -> Tensor:
    """Draw standard normal numbers, the same at every call.  number: of the draw -> float32
    [*shape].
    """
    stream = rng.stream(rng.env_keys(0, 0, 1)[0], Purpose.POLICY_INIT, minibatch=number)
    return rng.normal(stream, torch.Size(shape).numel()).view(shape)


def draw_params(layout: ParamLayout) -> Tensor:
    """Draw the initial parameters of networks, float32 [ROWS, size]."""
    keys = rng.env_keys(0, 0, ROWS)
    return layout.draw(
        torch.stack([rng.uniform(rng.stream(key, Purpose.SEED_INIT), layout.size) for key in keys])
    )


def draw_inputs(host: Host, *lead: int, number: int = 0) -> Tensor:
    """Draw inputs of a host: numbers float32 [*lead, *input_shape], or int64 below the
    vocabulary.
    """
    normal = draw_normal(*lead, *host.input_shape, number=number)
    return (normal.abs() * 1e4).to(torch.int64) % host.vocabulary if host.vocabulary else normal


def reference_rows(host: Host) -> Instance:
    """Return the reference instance of every host, [ROWS]."""
    sizes = Sizes(ROWS, (), host_params=0, seed_params=(), window=0, classes=host.classes)
    instance: Instance = empty_part("instance", sizes)
    given = {
        "classes": host.classes,
        "reach": host.reach,
        "param_price": 0.1,
        "samples": SAMPLES,
        "baseline_loss": 1.0,
    }
    leaves = {name: torch.full_like(getattr(instance, name), x) for name, x in given.items()}
    labels = torch.arange(host.classes, device="cpu").expand(ROWS, -1)
    return replace(instance, class_of=labels, **leaves)


def form_fault(
    name: str, value: Any, shape: tuple[int, ...], dtype: torch.dtype = torch.float32
) -> str:
    """Return the fault of a value that is no tensor of this form with finite numbers; "" without
    one.
    """
    form = (
        f"{value.dtype} {list(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
    )
    if form != f"{dtype} {list(shape)}":
        return f"{name}: expected {dtype} {list(shape)}, got {form}"
    return "" if value.isfinite().all() else f"{name}: expected finite numbers"


def blueprint_fault(module: SeedModule, slot: SlotSpec, dtype: torch.dtype = torch.float32) -> str:
    """Return the fault in the delta of newborn seeds at a slot; "" without one."""
    layout = seed_layout(module, slot.channels)
    x = draw_normal(SAMPLES, *slot.size, ROWS, slot.channels).to(dtype)
    delta = module.delta(layout.split(draw_params(layout).to(dtype)), x)
    return form_fault(f"delta at {slot.name}", delta, tuple(x.shape), dtype)


def host_fault(net: Net) -> str:
    """Return the first fault in the features and logits of fresh hosts; "" without one."""
    flat = draw_params(net.host_layout)
    rows = HostRows(
        net.host_layout.split(flat), net.networks.masks(reference_rows(net.host), flat), None
    )
    h: Any = net.networks.embed(draw_inputs(net.host, ROWS, SAMPLES))
    for i, slot in enumerate(net.host.all_slots):
        h = net.networks.stage(i, h, rows)
        features = h.in_slot_order() if isinstance(h, Features) else h
        if fault := form_fault(
            f"features at {slot.name}", features, (SAMPLES, *slot.size, ROWS, slot.channels)
        ):
            return fault
        if slot.pooled:
            h = features[:, : slot.size[0] // 2, : slot.size[1] // 2]
    answers = net.host.input_shape if net.host.causal else ()
    return form_fault(
        "logits", net.networks.head(h, rows), (ROWS, SAMPLES, *answers, net.host.classes)
    )


def rule_fault(rule: Rule) -> str:
    """Return the first fault in the rewards of a rule over a few steps; "" without one."""
    names = rule.components
    if not isinstance(names, tuple) or not names or len(set(names)) < len(names):
        return f"components: expected a tuple of distinct names, got {names!a}"
    steps = example_steps()
    envs, slots = steps[0].slots.stage.shape
    ledger = rule.init(envs, slots)
    for step, inputs in enumerate(steps):
        reward, parts, ledger = rule(inputs, ledger)
        if set(parts) != set(names):
            return f"components: expected {', '.join(names)}, got {', '.join(parts) or 'none'}"
        for name, value in {"reward": reward, **parts}.items():
            if fault := form_fault(name, value, (envs,)):
                return f"step {step + 1}: {fault}"
    return ""


def raise_fault(source: str, check: Callable[..., str], *args: Any) -> None:
    """Raise ConfigError, `source: fault`, for the fault that a check returns or raises."""
    try:
        fault = check(*args)
    except Exception as error:
        raise ConfigError(f"{source}: {error_line(error)}") from error
    if fault:
        raise ConfigError(f"{source}: {fault}")


def check_networks(spec: RunSpec, net: Net) -> None:
    """Raise ConfigError for the first fault of a host or blueprint from outside."""
    if not is_ours(net.host):
        source = HOSTS.source(spec.host.name) if spec.host.name else f"host of task {spec.task}"
        raise_fault(source, host_fault, net)
    for module in net.modules.values():
        if not is_ours(module):
            for slot in net.slots:
                raise_fault(BLUEPRINTS.source(module.name), blueprint_fault, module, slot)


def build_rule(spec: RewardSpec, **terms: Any) -> Rule:
    """Build the rule that a spec names, for the terms of `table.build_rule`.  Raises ConfigError
    for a faulty rule from outside.
    """
    build = partial(table.build_rule, spec, **terms)
    if spec.rule not in RULES.builtin():
        _ = RULES[spec.rule]  # raises by itself where the rule cannot be imported
        raise_fault(RULES.source(spec.rule), lambda: rule_fault(build()))
    return build()
