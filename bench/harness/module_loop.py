"""The loop: the envs of a scene one after another, as plain modules with plain optimisers."""

from collections.abc import Iterable

import torch
from torch import Tensor

from bench.harness.bench_scenes import BenchScene
from bench.harness.minimal import ScaledNorm
from bench.harness.plain_modules import (
    HostModule,
    ModuleLearner,
    cnn_seed,
    flatten_parameters,
    load_parameters,
    ordered_parameters,
)
from bench.harness.plain_transformer import LanguageModule, token_seed
from morphogen.nets.net import Net
from morphogen.state.env import EnvState
from morphogen.vocab.stage import Stage
from morphogen.vocab.transformer_host import TransformerSpec

LAYOUTS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}
GROWN_STAGES = (Stage.TRAINING, Stage.BLENDING, Stage.HOLDING, Stage.FOSSILIZED)


def build_module_twin(state: EnvState, net: Net, env: int) -> HostModule | LanguageModule:
    """An env as a plain module, with the parameters, dtype and device of the state."""
    host, slots = net.host, state.slots[env]
    if isinstance(host, TransformerSpec):
        build_seed = token_seed
        made = LanguageModule(host.vocabulary, host.width, host.heads, host.layers, host.block, host.segments)
        made.reach = int(state.instance.reach[env]) if host.reach else None
    else:
        build_seed = cnn_seed
        made = HostModule(host.base, host.blocks, host.kernel, host.pools, host.channels_in, host.classes)
        made.width, made.class_count = float(state.instance.width[env]), int(state.instance.classes[env])
    load_parameters(made.host_parameters(), state.host.params[env])
    for s, slot in enumerate(net.slots):
        if int(slots.stage[s]) in GROWN_STAGES:
            life = {"stage": int(slots.stage[s]), "algorithm": int(slots.algorithm[s]), "alpha": float(slots.alpha[s])}
            seed = build_seed(int(slots.blueprint[s]), slot.channels, **life)
            row = state.seeds[slot.name, "params"][env]
            load_parameters(ordered_parameters(seed.body), row)
            load_parameters(ordered_parameters(seed.gate), row[row.shape[0] - net.gate_counts[s] :])
            made.seeds[slot.name] = seed
    return made


def storage_order(module):
    """Parameters of a seed or a gate in the order in which the package stores them."""
    own = list(module.parameters(recurse=False))
    own = own[::-1] if isinstance(module, ScaledNorm) else own
    return own + [leaf for child in module.children() for leaf in storage_order(child)]


class ModuleLoop:
    """Every env of a scene as a module with its optimiser.  `layout`: one of LAYOUTS."""

    def __init__(self, scene: BenchScene, layout: str = "contiguous") -> None:
        rates = {"lr": scene.spec.host.lr, "seed_lr": scene.spec.host.seed_lr, "layout": LAYOUTS[layout]}
        envs = range(scene.state.batch_size[0])
        self.learners = [ModuleLearner(build_module_twin(scene.state, scene.net, e), **rates) for e in envs]
        # Minibatches lie in memory as the modules want them, so that no step converts them.
        inputs = [batch.inputs.flatten(0, 1).contiguous(memory_format=LAYOUTS[layout]) for batch in scene.batches]
        self.batches = [
            list(zip(flat.unflatten(0, batch.labels.shape[:2]).unbind(), batch.labels.unbind(), strict=True))
            for flat, batch in zip(inputs, scene.batches, strict=True)
        ]

    def train(self, batches: Iterable[list[tuple[Tensor, Tensor]]] | None = None) -> None:
        """All minibatches, those of the scene unless given, going on from where the call before stopped."""
        for batch in self.batches if batches is None else batches:
            for learner, (inputs, labels) in zip(self.learners, batch, strict=True):
                learner.step(inputs, labels)

    def parameters(self) -> Tensor:
        """The hosts, as the stacked state stores them: [E, P]."""
        return torch.stack([flatten_parameters(learner.net.host_parameters()) for learner in self.learners])
