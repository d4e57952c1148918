"""Exported networks: the outputs of the env, in plain torch, and one more epoch of training."""

import importlib.util

import pytest
import torch
from support import small_states
from support.extras import rows_of_extra
from support.module_nets import Dense, Skips, Tokens
from torch import nn

import morphogen as mg
from morphogen.errors import ConfigError
from morphogen.extras.export.exported import build_plain
from morphogen.hosts.net import Net
from morphogen.steps.train import finish_epoch, start_epoch, train_minibatch
from morphogen.steps.validate_step import validate

SPECS = {"spec": small_states.SPEC, "lifecycle": small_states.LIFECYCLE}


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
@pytest.mark.parametrize("name", NETS)
def test_torch_exports_the_network_with_its_own_operators_alone(name):
    net = NETS[name]()
    state = grown(net)
    _, inputs, _ = labelled(net, 5)
    for i in range(0, state.batch_size[0], 3):
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
@pytest.mark.parametrize("name", NETS)
def test_onnx_runtime_agrees(name, tmp_path):
    onnxruntime = importlib.import_module("onnxruntime")
    net = NETS[name]()
    state = grown(net)
    _, inputs, _ = labelled(net, 5)
    for i in range(0, state.batch_size[0], 7):
        made = build_plain(net, state, i).eval()
        path = tmp_path / f"{i}.onnx"
        torch.onnx.export(made, (inputs,), path, dynamo=True, verbose=False)
        session = onnxruntime.InferenceSession(path)
        [given] = session.get_inputs()
        [found] = session.run(None, {given.name: inputs.numpy()})
        torch.testing.assert_close(
            torch.from_numpy(found), made(inputs).detach(), rtol=1e-4, atol=1e-5
        )


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(NETS.keys() - {"tokens"}))  # it has dropout
def test_one_more_epoch_by_plain_torch_equals_the_epoch_of_the_env(name):
    net = NETS[name]()
    state = small_states.double(grown(net))
    spec = small_states.SPEC
    made = [build_plain(net, state, i).double().train() for i in range(state.batch_size[0])]
    optimisers = []
    for module in made:
        own = [x for name, x in module.named_parameters() if not name.startswith("slots.")]
        groups = [{"params": own, "lr": spec.lr, "weight_decay": spec.weight_decay}]
        groups += [{"params": slot.parameters()} for slot in module.slots.values()]
        optimisers.append(torch.optim.SGD(groups, lr=spec.seed_lr, momentum=spec.momentum))
    plan = small_states.plan(state, net)
    progress = start_epoch(state, plan, net=net)
    for m in range(2):
        batch = small_states.batch(net, len(made), 6, seed=m)
        if batch.inputs.is_floating_point():
            batch = batch.replace(inputs=batch.inputs.double())
        progress, _ = train_minibatch(progress, batch, plan, net=net, **SPECS)
        for i, (module, optimiser) in enumerate(zip(made, optimisers, strict=True)):
            optimiser.zero_grad()
            logits = module(batch.inputs[i]).flatten(0, -2)
            nn.functional.cross_entropy(
                logits, batch.labels[i].flatten(), ignore_index=-1
            ).backward()
            for group in optimiser.param_groups:
                nn.utils.clip_grad_norm_(group["params"], spec.max_grad_norm)
            optimiser.step()
    after, _ = finish_epoch(state, progress, plan, net=net)
    for i, module in enumerate(made):
        again = build_plain(net, after, i)
        for (path, one), (_, other) in zip(
            module.named_parameters(), again.named_parameters(), strict=True
        ):
            torch.testing.assert_close(
                one.detach().float(), other.detach(), rtol=1e-5, atol=1e-6, msg=f"{i} {path}"
            )


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
