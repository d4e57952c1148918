"""Hosts from modules of plain torch: the laws, first values, draws, and modules that are refused."""

import copy
from collections.abc import Callable

import pytest
import torch
from safetensors.torch import save_file
from support import small_states
from support.extras import needs_extra
from support.module_nets import Attention, Cnn, Dense, Skips, Tokens, resnet18
from torch import nn

import morphogen as mg
from morphogen.errors import ConfigError
from morphogen.hosts.net import Net
from morphogen.testing import laws
from morphogen.testing.builders.tree_equality import leaves

CASES: dict[str, tuple[Callable[[], nn.Module], torch.Tensor]] = {
    "skips": (Skips, torch.zeros(2, 6, 6)),
    "dense": (Dense, torch.zeros(6)),
    "tokens": (Tokens, torch.zeros(6)),
    "attention": (Attention, torch.zeros(5, 4)),
}


def made(case):
    factory, example = CASES[case]
    return mg.host_from_module(factory, example=example)


def _parts(net, row):
    return [part.view(leaf.shape) for leaf, part in net.host_layout.leaf_parts(row)]


@pytest.mark.slow
@pytest.mark.parametrize("case", ["skips", "tokens", "attention"])
def test_a_module_host_keeps_the_laws_of_hosts(case):
    laws.check_host(made(case))


def task_of(case, **fields):
    """A task of a module host on made-up arrays."""
    factory, example = CASES[case]
    inputs = small_states.normal(120, *example.shape)
    inputs = inputs.abs().mul(3).floor() if case == "tokens" else inputs
    labels = torch.arange(120) % 3
    data = mg.from_arrays(f"made-up-{case}", inputs, labels)
    host = mg.host_from_module(factory)
    defaults = {"lifecycle": {"auto_forward": ["TRAIN", "HOLD"]}, "data": {"minibatches": 2}}
    return mg.TaskSpec(
        name=f"own-{case}",
        dataset=data,
        host=host,
        scale=1.0,
        mean=_like(example, 0.0),
        std=_like(example, 1.0),
        defaults=defaults,
        **fields,
    )


def _like(example, value):
    return (value,) * example.shape[0]


@pytest.mark.slow
@pytest.mark.parametrize("case", ["skips", "attention"])
def test_an_env_lives_the_same_among_any_others(case):
    env = mg.make(task_of(case), envs=4, seed=3)
    few = mg.make(task_of(case), envs=2, seed=3)
    ends = []
    for world in (env, few):
        state, seen = world.reset()
        for _ in range(6):
            state, step = world.step(state, mg.actions.random(world, state, seen))
            seen = step.inputs
        ends.append(state)
    for name, leaf in leaves(ends[1]).items():
        torch.testing.assert_close(
            leaves(ends[0])[name][:2], leaf, rtol=1e-3, atol=1e-4, equal_nan=True
        )


@pytest.mark.slow
def test_a_residual_network_of_18_layers_grows_after_each_of_its_parts():
    slots = {f"layer{i + 1}": f"r0c{i}" for i in range(4)}
    noise = small_states.normal(64, 3, 32, 32)
    task = mg.TaskSpec(
        name="resnet",
        dataset=mg.from_arrays("noise", noise, torch.arange(64) % 10),
        host=mg.host_from_module(resnet18, slots=slots),
        mean=(0.0,) * 3,
        std=(1.0,) * 3,
        defaults={"data": {"minibatches": 2, "batch": 8}},
    )
    env = mg.make(task, envs=8, seed=0)
    assert env.net.host.params() == sum(x.numel() for x in resnet18().parameters())
    assert [slot.size for slot in env.net.slots] == [(32, 32), (16, 16), (8, 8), (4, 4)]
    state, seen = env.reset()
    start = state.host.params
    for _ in range(2):
        state, step = env.step(state, mg.actions.random(env, state, seen))
        seen = step.inputs
        assert state.signals.train_loss.isfinite().all()
    assert (state.host.params != start).any(-1).all()


def test_initial_values_follow_the_rules_of_the_layers():
    host = made("tokens")
    leaf = {leaf.name: leaf for leaf in host.layout().leaves}
    assert list(leaf) == [
        "position",
        "embed.weight",
        *(f"layer.{i}.{n}" for i in (0, 3) for n in ("weight", "bias")),
    ]
    assert leaf["embed.weight"].std == 1.0
    assert leaf["position"].std == pytest.approx(0.02)
    assert leaf["layer.0.weight"].bound == pytest.approx(8**-0.5)
    assert leaf["layer.3.bias"].bound == pytest.approx(16**-0.5)
    assert host.start_values() is None


def test_entries_of_a_file_that_do_not_train_are_left_out(tmp_path):
    module = Skips()
    save_file(module.state_dict(), tmp_path / "skips.safetensors")
    host = mg.host_from_module(Skips, example=torch.zeros(2, 6, 6))
    net = mg.Net(host, host.all_slots, weights=(str(tmp_path / "skips.safetensors"),))
    assert net.start[0].equal(torch.cat([x.detach().flatten() for x in module.parameters()])[None])


@needs_extra("text")  # seeds for dense features
def test_every_env_starts_from_the_parameters_of_a_module():
    module = Dense()
    host = mg.host_from_module(module, example=torch.zeros(6))
    own = torch.cat([x.detach().flatten() for x in module.parameters()])
    start = host.start_values()
    assert start is not None
    assert start.equal(own.unsqueeze(0))
    task = mg.TaskSpec(name="warm", dataset=task_of("dense").dataset, host=host)
    state, _ = mg.make(task, envs=3).reset()
    assert state.host.params.equal(own.expand(3, -1))


def test_values_that_no_stream_draws_are_the_same_in_every_env():
    def build():
        net = Dense()
        nn.init.orthogonal_(net.first.weight)
        return net

    host = mg.host_from_module(build, example=torch.zeros(6))
    values = host.start_values()
    assert values is not None
    start = values[0]
    assert start[:48].isfinite().all()
    assert start[48:].isnan().all()


def test_dropout_draws_from_the_streams_of_its_env():
    net = Net(made("tokens"), made("tokens").all_slots)
    host = net.host
    x = torch.ones(2, 4, 6).long()
    state = small_states.fresh(net, 2)
    split = net.host_layout.split(state.host.params)
    streams = mg.rng.stream(mg.rng.env_keys(1, 0, 2), mg.rng.Purpose.DROPOUT)

    def features(dropout):
        rows = mg.HostRows(split, (), None, dropout)
        return host.stage(0, host.embed(x), rows).values

    assert features(None).equal(features(None))
    assert features(streams).equal(features(streams))
    assert not features(streams).equal(features(streams + 1))
    assert not features(streams).equal(features(None))
    assert host.dropout


@pytest.mark.filterwarnings("error")
def test_attention_runs_for_all_envs_at_once():
    host = made("attention")
    assert host.attends
    assert not made("dense").attends
    net = Net(host, host.all_slots)
    state = small_states.fresh(net, 2)
    rows = mg.HostRows(net.host_layout.split(state.host.params), (), None)
    x = small_states.normal(2, 6, 5, 4)
    found = host.head(host.stage(0, host.embed(x), rows), rows)
    for e, row in enumerate(state.host.params):
        module = copy.deepcopy(host.module)
        names = [leaf.name for leaf in net.host_layout.leaves]
        module.load_state_dict(dict(zip(names, _parts(net, row), strict=True)))
        torch.testing.assert_close(found[e], module(x[e]), rtol=1e-5, atol=1e-5)


class Remembers(nn.Module):
    """A submodule with a memory between its calls."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(8))

    def forward(self, x):
        self.seen.mul_(0.9)
        return x + self.seen


class Draws(nn.Module):
    def forward(self, x):
        return x + torch.rand_like(x)


class Branches(Dense):
    def forward(self, x):
        return super().forward(x) if x.sum() > 0 else x


class NoSlot(Dense):
    def forward(self, x):
        return self.head(self.first(x))


class TwiceSlot(Dense):
    def forward(self, x):
        return self.head(self.grow(self.grow(self.first(x))))


def with_part(part):
    return lambda: nn.Sequential(nn.Linear(6, 8), part, mg.Slot(), nn.Linear(8, 3))


@pytest.mark.parametrize(
    ("factory", "words"),
    [
        (NoSlot, "every slot to be called once"),
        (TwiceSlot, "2 calls of grow"),
        (Branches, "cannot trace"),
        (with_part(Remembers()), "a state besides its parameters"),
        (with_part(Draws()), "draws of its own"),
        (lambda: nn.Linear(6, 3), "at least one mg.Slot"),
        (lambda: nn.Sequential(mg.Slot(), nn.ReLU()), "parameters that train"),
        (lambda: 3, "a function that builds a module"),
        (with_part(nn.Linear(9, 8)), "fails on an input of shape"),
    ],
)
def test_a_module_that_cannot_be_a_host_is_refused_in_one_line(factory, words):
    with pytest.raises(ConfigError, match=words) as caught:
        mg.host_from_module(factory, example=torch.zeros(6))
    assert "\n" not in str(caught.value)


def test_a_slot_after_an_unknown_submodule_is_refused():
    with pytest.raises(ConfigError, match="got layer9"):
        mg.host_from_module(Cnn, slots={"layer9": "r0c0"}, example=torch.zeros(1, 8, 8))


def test_data_without_a_shape_needs_an_example():
    with pytest.raises(ConfigError, match="example="):
        mg.TaskSpec(name="own", dataset="digits", host=mg.host_from_module(Dense))


def test_a_change_of_values_that_no_rule_describes_leaves_them_as_they_are():
    def build():
        net = Dense()
        net.shift = nn.Parameter(torch.add(torch.ones(3), 1, alpha=2))
        return net

    host = mg.host_from_module(build, example=torch.zeros(6))
    assert list(host.given) == ["shift"]
    assert host.given["shift"].tolist() == [3.0, 3.0, 3.0]
