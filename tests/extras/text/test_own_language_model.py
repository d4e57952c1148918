"""A language model of plain torch as a host."""

import torch
from support import small_states
from support.extras import needs_extra

import morphogen as mg
from morphogen.extras.text.plain_text import PlainTransformer

pytestmark = needs_extra("modules")
TASK = mg.TASKS["pydoc"]


def build_host():
    sizes = {"width": 16, "heads": 2, "layers": 3}
    block = TASK.host.input_shape[0]
    host = mg.TransformerSpec(vocabulary=TASK.host.vocabulary, block=block, **sizes)
    slots = {f"layers.{i}": f"r0c{i}" for i in range(3)}
    example = torch.zeros(block, dtype=torch.int64)
    build = lambda: PlainTransformer(host, None)
    return mg.host_from_module(build, slots=slots, example=example, causal=True)


def test_it_trains_on_the_texts_of_a_task():
    task = mg.TaskSpec(name="own", dataset=TASK.dataset, host=build_host())
    rates = {"optimizer": "adamw", "lr": 0.003, "seed_lr": 0.003}
    sizes = {"batch": 4, "minibatches": 4, "val_samples": 16}
    env = mg.make(task, envs=2, seed=0, host=rates, data=sizes)
    state, _ = env.reset()
    for _ in range(2):
        state, step = env.step(state, mg.actions.wait(env))
    assert (step.validation.loss < 0.9 * first_loss(env)).all()


def first_loss(env):
    return env.reset()[0].signals.val_loss


def test_no_gate_of_a_seed_looks_ahead():
    host = build_host()
    net = mg.Net(host, host.all_slots)
    state = small_states.nudge(small_states.all_kinds(net), net)
    plan, asked = small_states.plan(state, net), small_states.every(state, net)
    split = small_states.split(net, 4)
    tail = split.inputs.clone()
    tail[:, 20:] = (tail[:, 20:] + 1) % host.vocabulary
    labels = split.labels.clone()
    labels[:, 20:] = -1  # only places before the change count
    one, other = (
        mg.steps.validate(state, split.replace(inputs=inputs, labels=labels), *asked, plan, net=net)
        for inputs in (split.inputs, tail)
    )
    torch.testing.assert_close(one.loss, other.loss, rtol=1e-6, atol=1e-6)
