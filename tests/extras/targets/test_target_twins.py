"""Hosts and seeds on other targets, against one module and one optimiser per env."""

import pytest
import torch
import torch.nn.functional as F
from support import small_states
from support.extras import needs_extra
from target_tables import CASES, closeness, cubic, name_of, task
from torch import nn

import morphogen as mg
from morphogen.state.measure import InputBatch
from morphogen.steps.train import finish_epoch, start_epoch, train_minibatch
from morphogen.steps.validate_step import validate

SPECS = {"spec": small_states.SPEC, "lifecycle": small_states.LIFECYCLE}
EXACT = {"rtol": 1e-10, "atol": 1e-10}
SAMPLES = 8
LOSSES = {
    "mse": F.mse_loss,
    "huber": F.huber_loss,
    "bce_with_logits": F.binary_cross_entropy_with_logits,
    cubic: lambda output, target: cubic(output, target).mean(),
}


def score_by_hand(loss, output, target, train):
    """Percent of a split, from its formula in words."""
    if loss is cubic:
        return 100 * float(closeness(output, target).mean())
    if loss == "bce_with_logits":
        return 100 * float((output.sigmoid() > 0.5).eq(target == 1).double().mean())
    spread = train.double().var(0, correction=0)
    unexplained = (output - target).square().mean(0) / spread
    return 100 * max(0.0, float(1 - unexplained.mean()))


def optimiser_of(module):
    spec = small_states.SPEC
    own = [x for name, x in module.named_parameters() if not name.startswith("slots.")]
    groups = [{"params": own, "lr": spec.lr, "weight_decay": spec.weight_decay}]
    groups += [{"params": slot.parameters()} for slot in module.slots.values()]
    return torch.optim.SGD(groups, lr=spec.seed_lr, momentum=spec.momentum)


def learn(module, optimiser, loss, inputs, target):
    optimiser.zero_grad()
    LOSSES[loss](module(inputs), target).backward()
    for group in optimiser.param_groups:
        nn.utils.clip_grad_norm_(group["params"], small_states.SPEC.max_grad_norm)
    optimiser.step()


def assert_equal_parameters(net, state, i, module):
    own = dict(module.named_parameters())
    for leaf, part in net.host_layout.leaf_parts(state.host.params[i : i + 1]):
        torch.testing.assert_close(part.view(leaf.shape), own[leaf.name].detach(), **EXACT)
    for name, slot in module.slots.items():
        stored = state.seeds[name, "params"][i]
        for part, row in ((slot.seed, stored), (slot.gate, stored.flip(0))):
            if part is not None:
                flat = torch.cat([x.detach().flatten() for x in part.parameters()])
                flat = flat if part is slot.seed else flat.flip(0)  # a gate is stored last
                torch.testing.assert_close(row[: len(flat)], flat, **EXACT)


@pytest.mark.slow
@needs_extra("export")
@needs_extra("text")  # blueprints for dense features
@pytest.mark.parametrize("loss", CASES, ids=name_of)
def test_hosts_and_seeds_train_as_modules_with_an_optimiser_each(loss):
    from morphogen.extras.export.exported import build_plain

    targets, score = CASES[loss]
    env = mg.make(task(loss, targets, score=score), envs=2)
    net = env.net
    dataset = env.setup.dataset
    train = dataset.preparation(dataset.train.inputs).double()
    labels = dataset.labels.double()
    split = dataset.validation
    split = split.replace(inputs=split.inputs.double(), labels=split.labels.double())
    state = small_states.double(small_states.nudge(small_states.all_kinds(net), net))
    envs = len(state)
    modules = [build_plain(net, state, i).double() for i in range(envs)]
    optimisers = [optimiser_of(module) for module in modules]
    plan = small_states.plan(state, net)
    asked = small_states.every(state, net)
    for epoch in range(2):
        progress = start_epoch(state, plan, net=net)
        for m in range(2):
            index = small_states.integers(0, len(train), envs, SAMPLES, seed=10 * epoch + m)
            batch = InputBatch(inputs=train[index], labels=labels[index], batch_size=[envs])
            progress, _ = train_minibatch(progress, batch, plan, net=net, **SPECS)
            for i, (module, optimiser) in enumerate(zip(modules, optimisers, strict=True)):
                learn(module.train(), optimiser, loss, train[index[i]], labels[index[i]])
        state, _ = finish_epoch(state, progress, plan, net=net)
        measured = validate(state, split, *asked, plan, net=net)
        for i, module in enumerate(modules):
            assert_equal_parameters(net, state, i, module)
            with torch.no_grad():
                output = module.eval()(split.inputs)
            expected = score_by_hand(loss, output, split.labels, labels)
            assert float(measured.accuracy[i, 0]) == pytest.approx(expected, abs=1e-8)
            expected = float(LOSSES[loss](output, split.labels))
            assert float(measured.loss[i]) == pytest.approx(expected, rel=1e-10)
    assert measured.accuracy[:, 0].max() > 0
