"""The stacked networks against one plain module with `torch.optim` per env."""

import pytest
import torch
from support import small_states
from support.extras import rows_of_extra

from bench.harness.minimal import Env
from bench.harness.module_loop import build_module_twin
from bench.harness.plain_modules import flatten_parameters, host_parameters
from morphogen.config.host import CnnSpec
from morphogen.state.measure import InputBatch
from morphogen.steps.train import finish_epoch, start_epoch, train_minibatch
from morphogen.steps.validate_step import validate

EPOCHS, MINIBATCHES = 2, 2
DEEP = CnnSpec(base=3, blocks=3, kernel=3, pools=2, channels_in=2, size=9, classes=5)
CASES = {
    "digits": (small_states.net(), 12),
    "deep": (small_states.net(DEEP, ("r1c1", "r0c0", "r0c2", "r1c0")), 8),
    "wide": (
        small_states.net(small_states.cnn_host(16, 2, 1, 2, 1, 6, 4), ("r0c1", "r1c1", "r0c0")),
        7,
    ),
}
LONG = {"vocabulary": 11, "width": 8, "heads": 4, "layers": 4, "block": 13, "segments": 2}
SPECS = {"spec": small_states.SPEC, "lifecycle": small_states.LIFECYCLE}
HOSTS = {"tokens": {}, "long": LONG, "near": {"reach": 6}}
LANGUAGE = rows_of_extra(
    "text",
    lambda: {
        name: small_states.token_net(small_states.token_host(**sizes))
        for name, sizes in HOSTS.items()
    },
)


def _narrowed(state, net):
    """Some envs with fewer channels and classes."""
    envs = state.batch_size[0]
    width = torch.tensor([1.0, 0.5, 0.75, 1.0, 0.3]).repeat(envs)[:envs]
    classes = torch.tensor([net.host.classes, net.host.classes - 1]).repeat(envs)[:envs]
    labels = torch.arange(net.host.classes).expand(envs, -1)
    labels = torch.where(labels < classes.unsqueeze(-1), labels, -1)
    return state.replace(
        instance=state.instance.replace(width=width, classes=classes, class_of=labels)
    )


def _near(state):
    """Envs whose attention sees no token back, one, two and all."""
    envs = state.batch_size[0]
    return state.replace(
        instance=state.instance.replace(reach=torch.tensor([0, 1, 2, 6]).repeat(envs)[:envs])
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "dtype", "tolerance"),
    [
        *[(case, torch.float64, 1e-10) for case in (*CASES, *LANGUAGE)],
        ("digits", torch.float32, 1e-4),
    ],
)
def test_two_epochs_equal_a_plain_module_with_torch_optim_per_env(case, dtype, tolerance):
    if case in LANGUAGE:
        net, split = LANGUAGE[case], small_states.split(LANGUAGE[case], 12)
        state = _near(small_states.nudge(small_states.all_kinds(net), net))
    else:
        net, count = CASES[case]
        state, split = (
            _narrowed(small_states.mixed(net, count, seed=5), net),
            small_states.split(net),
        )
    envs = state.batch_size[0]
    state = small_states.double(state) if dtype == torch.float64 else state
    split = split.replace(inputs=_convert(split.inputs, dtype))
    twins = [build_module_twin(state, net, e) for e in range(envs)]
    plain = [Env(twin, small_states.SPEC.lr, small_states.SPEC.seed_lr) for twin in twins]
    plan = small_states.plan(state, net)
    coalition, evaluated = small_states.every(state, net)
    for epoch in range(EPOCHS):
        progress = start_epoch(state, plan, net=net)
        for own in plain:
            own.collect_parameters()
        for m in range(MINIBATCHES):
            samples = 16 if case in CASES else 4
            batch = small_states.batch(net, envs, samples, seed=10 * epoch + m)
            batch = _cast(batch, dtype, state)
            progress, observed = train_minibatch(progress, batch, plan, net=net, **SPECS)
            losses = [own.learn(batch.inputs[e], batch.labels[e]) for e, own in enumerate(plain)]
            torch.testing.assert_close(
                observed.loss, torch.stack(losses), rtol=tolerance, atol=tolerance
            )
        state, _ = finish_epoch(state, progress, plan, net=net)
        measured = validate(state, split, coalition, evaluated, plan, net=net)
        for e, twin in enumerate(twins):
            _assert_equal(state, net, e, twin, tolerance)
            _assert_measured(measured, state, net, e, twin, split, tolerance)


def _cast(batch: InputBatch, dtype, state) -> InputBatch:
    """The batch in another precision, with labels that each env has."""
    classes = state.instance.classes.view(-1, *(1,) * (batch.labels.dim() - 1))
    labels = torch.where(batch.labels < 0, -1, batch.labels % classes)
    return batch.replace(inputs=_convert(batch.inputs, dtype), labels=labels)


def _convert(inputs, dtype):
    return inputs.to(dtype) if inputs.is_floating_point() else inputs


def _assert_equal(state, net, e, twin, tolerance):
    own = {"rtol": tolerance, "atol": tolerance}
    torch.testing.assert_close(
        state.host.params[e], flatten_parameters(host_parameters(twin)), **own
    )
    for slot in net.slots:
        row, plain = state.seeds[slot.name, "params"][e], twin.slots[slot.name]
        expected = small_states.stored(plain, len(row)) if plain.body else torch.zeros_like(row)
        torch.testing.assert_close(row, expected, **own)


def _assert_measured(measured, state, net, e, twin, split, tolerance):
    twin.eval()
    counted = (split.labels >= 0) & (split.labels < state.instance.classes[e])
    labels = split.labels[counted]
    for k in measured.evaluated[e].nonzero().flatten().tolist():
        on = int(measured.coalition[e, k])
        off = frozenset(slot.name for s, slot in enumerate(net.slots) if not on >> s & 1)
        with torch.no_grad():
            logits = twin(split.inputs, off)[counted]
        right = (logits.argmax(-1) == labels).double().mean() * 100
        near = 1e-4 if tolerance < 1e-6 else 3.0
        assert float(measured.accuracy[e, k]) == pytest.approx(float(right), abs=near)
        if k == 0:
            loss = float(torch.nn.functional.cross_entropy(logits, labels))
            assert float(measured.loss[e]) == pytest.approx(loss, rel=tolerance, abs=tolerance)
