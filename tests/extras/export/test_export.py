"""Exported networks: the outputs of the env, in plain torch, and one more epoch of training."""

import importlib.util
from dataclasses import replace

import pytest
import torch
from support import small_states
from support.extras import rows_of_extra
from support.module_nets import Dense, Skips, Tokens
from support.plain_training import assert_equal_parameters, build_optimiser, take_step
from torch import nn
from torch.optim import lr_scheduler

import morphogen as mg
from morphogen.errors import ConfigError
from morphogen.extras.export.exported import build_plain
from morphogen.extras.export.network_files import save_network
from morphogen.hosts.net import Net
from morphogen.hosts.optim import OPTIMIZERS
from morphogen.hosts.schedule import build_schedule
from morphogen.steps.train import finish_epoch, start_epoch, train_minibatch
from morphogen.steps.validate_step import validate


def module_net(factory, example):
    host = mg.host_from_module(factory, example=example)
    return Net(host, host.all_slots)


NETS = {
    "cnn": small_states.net,
    "batch": lambda: small_states.net(
        mg.CnnSpec(
            base=4, blocks=2, kernel=3, pools=1, channels_in=1, size=8, classes=10, norm="batch"
        )
    ),
    "skips": lambda: module_net(Skips, torch.zeros(2, 6, 6)),
    **rows_of_extra(
        "text",
        lambda: {
            "transformer": small_states.token_net,
            "dense": lambda: module_net(Dense, torch.zeros(6)),
            "tokens": lambda: module_net(Tokens, torch.zeros(6)),
        },
    ),
}


def grown(net):
    """Every blueprint by every algorithm in every stage of a seed that runs."""
    return small_states.nudge(small_states.all_kinds(net), net)


def different_envs(state):
    """Numbers of envs that together hold every blueprint, every algorithm and every stage."""
    leaves = [getattr(state.slots, name) for name in ("blueprint", "algorithm", "stage")]
    seen, chosen = set(), []
    for i in range(len(state)):
        held = {(k, code) for k, leaf in enumerate(leaves) for code in leaf[i].tolist()}
        chosen += [] if held <= seen else [i]
        seen |= held
    return chosen


def labelled(net, samples=30):
    split = small_states.split(net, samples)
    return split, split.inputs, split.labels


def scores(made, inputs, labels):
    with torch.no_grad():
        logits = made.eval()(inputs)
    flat, wanted = logits.flatten(0, -2), labels.flatten()
    loss = nn.functional.cross_entropy(flat, wanted, ignore_index=-1)
    right = (flat.argmax(-1) == wanted)[wanted >= 0].double().mean()
    return float(loss), float(right) * 100


@pytest.mark.parametrize("name", NETS)
def test_an_exported_network_scores_like_its_env(name):
    net = NETS[name]()
    state = grown(net)
    split, inputs, labels = labelled(net)
    asked = small_states.every(state, net)
    measured = validate(state, split, *asked, small_states.plan(state, net), net=net)
    for i in range(state.batch_size[0]):
        loss, accuracy = scores(build_plain(net, state, i), inputs, labels)
        assert loss == pytest.approx(float(measured.loss[i]), rel=1e-4, abs=1e-5)
        assert accuracy == pytest.approx(float(measured.accuracy[i, 0]), abs=1e-3)


@pytest.mark.parametrize("name", NETS)
def test_delivered_seeds_alone_are_those_that_are_kept(name):
    net = NETS[name]()
    state = grown(net)
    for i in range(state.batch_size[0]):
        made = build_plain(net, state, i, seeds="delivered")
        kept = [s.name for k, s in enumerate(net.slots) if state.slots.stage[i, k] == 6]
        assert list(made.slots) == kept


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(NETS.keys() - {"batch", "tokens"}))
def test_torch_exports_the_network_with_its_own_operators_alone(name):
    net = NETS[name]()
    state = grown(net)
    _, inputs, _ = labelled(net, 5)
    for i in different_envs(state):
        made = build_plain(net, state, i).eval()
        program = torch.export.export(made, (inputs,))
        used = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
        assert not [target for target in used if "morphogen" in target]
        torch.testing.assert_close(program.module()(inputs), made(inputs), rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("onnxruntime", "onnxscript")),
    reason="onnxruntime or onnxscript is not installed",
)
@pytest.mark.filterwarnings("ignore")
def test_onnx_runtime_agrees(tmp_path):
    net = NETS["cnn"]()
    _, inputs, _ = labelled(net, 5)
    made = build_plain(net, grown(net), 0).eval()
    lines = save_network(made, inputs[:2], tmp_path / "net.onnx")
    scope = {}
    exec("\n".join(lines[:2]), scope)
    [given] = scope["net"].get_inputs()
    [found] = scope["net"].run(None, {given.name: inputs.numpy()})
    torch.testing.assert_close(torch.from_numpy(found), made(inputs).detach(), rtol=1e-4, atol=1e-5)


EPOCHS, MINIBATCHES = 3, 2
NEAR = {"rtol": 1e-10, "atol": 1e-10}
# `skips` has a bias before a normalisation: AdamW divides its gradient, all rounding, by 1e-8
ROUNDED = {"rtol": 1e-10, "atol": 1e-9}
SPEC = mg.HostSpec(lr=0.02, seed_lr=0.01)
WAYS = [("adamw", "warmup_cosine"), ("sgd", "constant"), ("sgd", "cosine")]


def build_course(optimiser, spec):
    """The schedule of torch that a spec stands for."""
    total = EPOCHS * MINIBATCHES
    warm = round(spec.warmup_share * total) if spec.schedule == "warmup_cosine" else 0
    if spec.schedule == "constant":
        return lr_scheduler.ConstantLR(optimiser, factor=1)
    fall = lr_scheduler.CosineAnnealingLR(optimiser, T_max=total - warm)
    if not warm:
        return fall
    rise = lr_scheduler.LinearLR(optimiser, start_factor=1 / (warm + 1), total_iters=warm)
    return lr_scheduler.SequentialLR(optimiser, [rise, fall], milestones=[warm])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The epoch parameter")  # of torch, inside of SequentialLR
@pytest.mark.parametrize(
    ("name", "optimizer", "schedule"),
    [
        (name, *way)
        for name in sorted(NETS.keys() - {"tokens"})  # it has dropout
        for way in (WAYS if name == "dense" else WAYS[:1])
    ],
)
def test_further_epochs_by_plain_torch_equal_the_epochs_of_the_env(name, optimizer, schedule):
    """Grown networks as modules with an optimiser of torch, in double precision."""
    spec = replace(SPEC, optimizer=optimizer, schedule=schedule, warmup_share=0.3)
    how = {
        "optimizer": OPTIMIZERS[optimizer],
        "schedule": build_schedule(spec, MINIBATCHES, EPOCHS),
    }
    net = replace(NETS[name](), **how)
    state = grown(net)
    state = small_states.double(state[torch.tensor(different_envs(state))])
    made = [build_plain(net, state, i).double().train() for i in range(len(state))]
    optimisers = [build_optimiser(module, spec) for module in made]
    courses = [build_course(optimiser, spec) for optimiser in optimisers]
    plan = small_states.plan(state, net)
    for epoch in range(EPOCHS):
        progress = start_epoch(state, plan, net=net)
        for m in range(MINIBATCHES):
            batch = small_states.batch(net, len(made), 6, seed=10 * epoch + m)
            batch = small_states.like(state, batch)
            progress, _ = train_minibatch(
                progress, batch, plan, net=net, spec=spec, lifecycle=small_states.LIFECYCLE
            )
            for i, module in enumerate(made):
                logits = module(batch.inputs[i]).flatten(0, -2)
                loss = nn.functional.cross_entropy(
                    logits, batch.labels[i].flatten(), ignore_index=-1
                )
                take_step(optimisers[i], loss, spec)
                courses[i].step()
        state, _ = finish_epoch(state, progress, plan, net=net)
        state = state.replace(clock=state.clock.replace(epoch=state.clock.epoch + 1))
    near = ROUNDED if name == "skips" else NEAR
    for i, module in enumerate(made):
        assert_equal_parameters(state, i, module, **near)


def test_stored_samples_are_normalised_first():
    env = mg.make("tiny", envs=2, seed=0)
    state, _ = env.reset()
    dataset = env.setup.dataset
    stored = dataset.test.inputs[:7]
    prepared, _ = dataset.preparation.prepare(stored, dataset.test.labels[:7])
    whole, bare = mg.export(env, state, 1), mg.export(env, state, 1, normalised=False)
    torch.testing.assert_close(whole(stored), bare(prepared))


def test_names_are_those_of_the_users_module_and_of_slots():
    net = NETS["skips"]()
    state = grown(net)
    names = set(build_plain(net, state, 0).state_dict())
    assert {name for name in names if not name.startswith("slots.")} == {
        name for name, _ in Skips().named_parameters()
    }
    assert "slots.r0c0.alpha" in names
    assert any(name.startswith("slots.r0c1.seed.") for name in names)


def test_what_cannot_be_exported_is_refused_by_name():
    net = small_states.net()
    state = small_states.fresh(net, 2)
    with pytest.raises(ConfigError, match=r"expected 0 \.\. 1, the envs of the state, got 2"):
        build_plain(net, state, 2)
    with pytest.raises(ConfigError, match="expected all or delivered, got"):
        build_plain(net, state, 0, seeds="kept")
