"""Hosts and seeds on other targets, against one module and one optimiser per env."""

import pytest
import torch
import torch.nn.functional as F
from support import small_states
from support.extras import needs_extra
from support.plain_training import assert_equal_parameters, build_optimiser, take_step
from target_tables import CASES, closeness, cubic, name_of, task

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
    optimisers = [build_optimiser(module, small_states.SPEC) for module in modules]
    plan = small_states.plan(state, net)
    asked = small_states.every(state, net)
    for epoch in range(2):
        progress = start_epoch(state, plan, net=net)
        for m in range(2):
            index = small_states.integers(0, len(train), envs, SAMPLES, seed=10 * epoch + m)
            batch = InputBatch(inputs=train[index], labels=labels[index], batch_size=[envs])
            progress, _ = train_minibatch(progress, batch, plan, net=net, **SPECS)
            for i, (module, optimiser) in enumerate(zip(modules, optimisers, strict=True)):
                output = module.train()(train[index[i]])
                take_step(optimiser, LOSSES[loss](output, labels[index[i]]), small_states.SPEC)
        state, _ = finish_epoch(state, progress, plan, net=net)
        measured = validate(state, split, *asked, plan, net=net)
        for i, module in enumerate(modules):
            assert_equal_parameters(state, i, module, **EXACT)
            with torch.no_grad():
                output = module.eval()(split.inputs)
            expected = score_by_hand(loss, output, split.labels, labels)
            assert float(measured.accuracy[i, 0]) == pytest.approx(expected, abs=1e-8)
            expected = float(LOSSES[loss](output, split.labels))
            assert float(measured.loss[i]) == pytest.approx(expected, rel=1e-10)
    assert measured.accuracy[:, 0].max() > 0
