"""The loop: the envs of a scene one after another, as the plain envs of `bench.harness.minimal`."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from bench.harness.bench_scenes import BenchScene
from bench.harness.minimal import Env, Host, Slot, Stage, gate
from bench.harness.plain_modules import (
    BODIES,
    NarrowNorm,
    flatten_parameters,
    host_parameters,
    load_parameters,
    ordered_parameters,
)
from bench.harness.plain_transformer import TOKEN_BODIES, LanguageModel, TokenGate
from morphogen.config.host import CnnSpec
from morphogen.hosts.net import Net
from morphogen.state.env import EnvState

LAYOUTS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}
ALGORITHMS = ("", "add", "multiply", "gate")  # by the codes of the package


def build_module_twin(state: EnvState, net: Net, env: int) -> Host | LanguageModel:
    """An env as a plain module, with the parameters, dtype and device of the state."""
    if net.host.vocabulary:
        made = _build_language_model(net.host, state, env)
        bodies, build_gate = TOKEN_BODIES, TokenGate
    else:
        made = _build_cnn(net.host, state, env)
        bodies, build_gate = BODIES, gate
    load_parameters(host_parameters(made), state.host.params[env])
    slots = state.slots[env]
    for s, place in enumerate(net.slots):
        slot = made.slots[place.name] = Slot(place.channels, net.host.isolates)
        if Stage.TRAINING <= slots.stage[s] <= Stage.FOSSILIZED:
            slot.enter(int(slots.stage[s]))
            slot.algorithm = ALGORITHMS[int(slots.algorithm[s])]
            slot.alpha = float(slots.alpha[s])
            slot.body = bodies[int(slots.blueprint[s])](place.channels)
            slot.gate = build_gate(place.channels)
            load_seed(slot, state.seeds[place.name, "params"][env])
    return made


def load_seed(slot: Slot, row: Tensor) -> None:
    """Give a seed the parameters of a row of the storage: the body first, the gate last."""
    last = ordered_parameters(slot.gate)
    load_parameters(ordered_parameters(slot.body), row)
    load_parameters(last, row[-sum(leaf.numel() for leaf in last) :])


def _build_cnn(spec: CnnSpec, state: EnvState, env: int) -> Host:
    channels, width = [spec.channels_in, *spec.channels], float(state.instance.width[env])
    host = Host(channels, spec.kernel, spec.pools, spec.classes)
    host.classes = int(state.instance.classes[env])
    if width < 1:
        for block, size in zip(host.blocks, spec.channels, strict=True):
            block[1] = NarrowNorm(size, width)
    return host


def _build_language_model(spec: Any, state: EnvState, env: int) -> LanguageModel:
    sizes = spec.width, spec.heads, spec.layers, spec.block, spec.segments
    model = LanguageModel(spec.vocabulary, *sizes)
    model.reach = int(state.instance.reach[env]) if spec.reach else None
    return model


class ModuleLoop:
    """Every env of a scene as a module with its optimiser.  `layout`: one of LAYOUTS."""

    def __init__(self, scene: BenchScene, layout: str = "contiguous") -> None:
        host, rows = scene.spec.host, range(scene.state.batch_size[0])
        twins = [build_module_twin(scene.state, scene.net, e) for e in rows]
        twins = [twin.to(memory_format=LAYOUTS[layout]) for twin in twins]
        self.envs = [Env(twin, host.lr, host.seed_lr) for twin in twins]
        for env in self.envs:
            env.collect_parameters()
        # Minibatches lie in memory as the modules want them, so that no step converts them.
        inputs = [
            batch.inputs.flatten(0, 1).contiguous(memory_format=LAYOUTS[layout])
            for batch in scene.batches
        ]
        self.batches = [
            list(
                zip(
                    flat.unflatten(0, batch.labels.shape[:2]).unbind(),
                    batch.labels.unbind(),
                    strict=True,
                )
            )
            for flat, batch in zip(inputs, scene.batches, strict=True)
        ]

    def train(self, batches: Iterable[list[tuple[Tensor, Tensor]]] | None = None) -> None:
        """All minibatches, by default of the scene, going on from where the call before
        stopped.
        """
        for batch in self.batches if batches is None else batches:
            for env, (inputs, labels) in zip(self.envs, batch, strict=True):
                env.learn(inputs, labels)

    def parameters(self) -> Tensor:
        """The hosts, as the stacked state stores them: [E, P]."""
        return torch.stack([flatten_parameters(host_parameters(env.host)) for env in self.envs])
