"""The recurrent policy: act against evaluate, symmetry, sizes, and the LSTM of torch as the oracle of
the unroll.
"""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from support.drawn_tensors import permute_action
from support.made_up_rollouts import KEY, masks, noise, observation, play, small, source

from morphogen.kernels.lstm import lstm_unroll
from morphogen.policy.policy_network import LstmNetwork
from morphogen.testing.builders.permute import permute

POLICY = small()
PARAMS = POLICY.init(KEY)


def shift_statistics(params, seed=0):
    """Set observation statistics to values other than the initial ones."""
    draw = source(seed)
    stats = params["observation"].apply(
        lambda x: torch.rand(x.shape, generator=draw, dtype=x.dtype) + 0.5
    )
    return params.replace(observation=stats, value_offset=torch.tensor(0.7))


@pytest.mark.parametrize(("hidden", "count"), [(64, 55_796), (128, 209_780), (256, 812_660)])
def test_the_network_has_the_documented_number_of_parameters(hidden, count):
    assert sum(leaf.numel() for leaf in LstmNetwork(hidden=hidden).init(KEY).values()) == count


def test_it_starts_as_documented():
    net = LstmNetwork().init(KEY)
    for name, gain in (
        ("base.in", 2**0.5),
        ("op.out", 0.01),
        ("leaf.out", 0.01),
        ("value.out", 0.1),
    ):
        weight = net[f"{name}.weight"] / gain
        fewer = weight if weight.shape[0] <= weight.shape[1] else weight.T
        assert torch.allclose(fewer @ fewer.T, torch.eye(len(fewer)), atol=1e-5)
        assert (net[f"{name}.bias"] == 0).all()
    assert torch.allclose(net["core.w_hh"].T @ net["core.w_hh"], torch.eye(128), atol=1e-5)
    assert net["core.bias"].view(4, 128).sum(-1).tolist() == [0.0, 128.0, 0.0, 0.0]
    assert net["embed.weight"].std().item() == pytest.approx(0.02, rel=0.3)
    again, other = LstmNetwork().init(KEY), LstmNetwork().init(KEY + 1)
    assert torch.equal(again["mix.in.weight"], net["mix.in.weight"])
    assert not torch.equal(other["mix.in.weight"], net["mix.in.weight"])


@pytest.mark.slow
@given(st.integers(0, 300), st.integers(1, 4))
def test_evaluate_equals_act_step_by_step_with_segments_that_end_anywhere(seed, slots):
    params = shift_statistics(PARAMS, seed)
    ends = torch.rand(7, 3, generator=source(seed)) < 0.3
    rollout = play(POLICY, params, steps=7, envs=3, slots=slots, seed=seed, ends=ends)
    result = POLICY.evaluate(params, rollout)
    assert torch.allclose(result.log_prob, rollout["log_prob"], atol=2e-6)
    assert torch.allclose(result.value, rollout["value"], atol=2e-6)


def test_evaluate_starts_from_the_memory_it_is_given():
    joint = play(POLICY, PARAMS, steps=6)
    hidden = POLICY.initial_hidden(4)
    for t in range(3):
        obs, legal = joint["observation"][t], joint["masks"][t]
        hidden = POLICY.act(PARAMS, obs, legal, hidden, noise(4, 3, t, 0)).hidden
    tail = POLICY.evaluate(PARAMS, joint[3:], hidden)
    assert torch.allclose(tail.value, joint["value"][3:], atol=1e-6)
    assert not torch.allclose(
        POLICY.evaluate(PARAMS, joint[3:]).value, joint["value"][3:], atol=1e-6
    )


def test_without_memory_every_epoch_is_like_a_first_one():
    forgetful = small(memory=False)
    assert sum(leaf.numel() for leaf in forgetful.network.init(KEY).values()) == 4_820
    joint = play(forgetful, PARAMS, steps=6)
    first = [POLICY.evaluate(PARAMS, joint[t : t + 1]).value for t in range(6)]
    assert torch.allclose(torch.cat(first), joint["value"], atol=1e-6)
    assert torch.allclose(forgetful.evaluate(PARAMS, joint).value, joint["value"], atol=1e-6)
    assert not torch.allclose(POLICY.evaluate(PARAMS, joint).value, joint["value"], atol=1e-6)
    acted = forgetful.act(
        PARAMS,
        joint["observation"][0],
        joint["masks"][0],
        forgetful.initial_hidden(4),
        noise(4, 3, 0, 0),
    )
    assert not list(acted.hidden.keys()), "a memory that vanishes would be an alarm"


@given(st.permutations(range(4)), st.integers(0, 100))
def test_permuting_slots_permutes_the_slot_choice_and_nothing_else(order, seed):
    seen = observation(3, slots=4, seed=seed), masks(3, slots=4, seed=seed)
    lanes, hidden = noise(3, 4, seed), POLICY.initial_hidden(3)
    a = POLICY.act(PARAMS, *seen, hidden, lanes)
    turned = torch.cat((lanes[:, :38], lanes[:, 38:][:, order]), -1)
    b = POLICY.act(PARAMS, *permute(seen, order), hidden, turned)
    moved = permute_action(a.action, order)
    moved[a.action[:, 0] == 0, 1] = 0  # WAIT holds the placeholder
    assert torch.equal(moved, b.action)
    for name in ("log_prob", "value", "op_prob"):
        assert torch.allclose(getattr(a, name), getattr(b, name), atol=1e-5)


def test_a_step_with_one_choice_is_forced_and_certain():
    legal = masks(4, share=0.0)
    out = POLICY.act(PARAMS, observation(4), legal, POLICY.initial_hidden(4), noise(4, 3, 0))
    assert out.forced.all()
    assert (out.log_prob == 0).all()
    assert (out.entropy == 0).all()


def plain(x: torch.Tensor, net, *layers: str) -> torch.Tensor:
    """Layers one after the other: `name` a linear map, `name.norm` a normalisation, `silu`."""
    for layer in layers:
        if layer == "silu":
            x = F.silu(x)
            continue
        weight, bias = net[f"{layer}.weight"], net[f"{layer}.bias"]
        is_norm = layer.endswith("norm")
        x = F.layer_norm(x, x.shape, weight, bias) if is_norm else F.linear(x, weight, bias)
    return x


def test_one_env_through_the_network_by_hand():
    """Every parameter moved from its start, one slot at a time, no batch."""
    draw = source(4)
    net = {
        name: leaf + 0.2 * torch.randn(leaf.shape, generator=draw)
        for name, leaf in PARAMS["net"].items()
    }
    obs, legal = observation(1, slots=2, seed=8), masks(1, slots=2, seed=8, share=0.8)
    obs.slots[0, 1, 9] = 0.0  # not enabled: out of the pool
    hidden = POLICY.initial_hidden(1)
    h, c = (torch.randn(1, 16, generator=draw) for _ in "hc")
    hidden.update({"h": h, "c": c})
    params = PARAMS.replace(net=PARAMS["net"].replace(**net), value_offset=torch.tensor(0.25))
    out = POLICY.act(params, obs, legal, hidden, torch.zeros(1, 40))

    body = "base.in", "base.norm", "silu", "base.out"
    base = plain(torch.cat((obs.env[0], obs.instance[0])), net, *body)
    codes = [13 if code < 0 else code for code in obs.blueprints[0].tolist()]
    body = "slot.in", "slot.norm", "silu", "slot.out"
    u = [
        plain(torch.cat((features, net["embed.weight"][code])), net, *body)
        for features, code in zip(obs.slots[0], codes, strict=True)
    ]
    x = plain(torch.cat((base, u[0], u[0])), net, "mix.in", "mix.norm", "silu")
    weights = net["core.w_ih"], net["core.w_hh"], net["core.bias"]
    (state,), (memory,) = torch.lstm_cell(x[None], (h, c), *weights, torch.zeros(64))
    z = x + plain(state, net, "core.norm")
    value = plain(z, net, "value.in", "value.norm", "silu", "value.mid", "silu", "value.out")
    context = [plain(torch.cat((code, z)), net, "context.in", "context.norm", "silu") for code in u]
    scores = torch.stack([plain(each, net, "leaf.out")[:5] for each in context], dim=1)
    logits = plain(z, net, "op.in", "silu", "op.out")
    ready = legal.slot[0, 1:]
    logits[1:] += ((ready * scores.exp()).sum(-1) / ready.sum(-1)).log()
    p = torch.where(legal.op[0], logits, -torch.inf).softmax(0)
    p = legal.op[0] * ((1 - legal.op.sum() * 0.005) * p + 0.005)
    assert torch.allclose(out.op_prob[0], p, atol=1e-5)
    assert out.value.item() == pytest.approx(value.item() + 0.25, abs=1e-5)
    assert torch.allclose(out.hidden["h"][0], state, atol=1e-5)
    assert torch.allclose(out.hidden["c"][0], memory, atol=1e-5)


def test_the_unroll_and_its_gradient_are_those_of_the_lstm_of_torch():
    """In float64; memories are reset in between, and one is not at the start."""
    size, steps, envs = 3, 7, 4
    shapes = (steps, envs, size), (envs, size), (envs, size)
    x, h, c = (torch.randn(*shape, generator=source(i)).double() for i, shape in enumerate(shapes))
    keep = (torch.rand(steps, envs, 1, generator=source(9)) < 0.7).double()
    assert 0 < keep[0].sum() < envs
    draws = (torch.randn(4 * size, n, generator=source(n)).double() for n in (size, size, 1))
    w_ih, w_hh, bias = (leaf.requires_grad_() for leaf in draws)
    leaves = [h.requires_grad_(), c.requires_grad_(), w_ih, w_hh, bias]
    ours = lstm_unroll(x @ w_ih.T + bias[:, 0], keep, h, c, w_hh)
    rows = []
    for row, kept in zip(x, keep, strict=True):
        h, c = torch.lstm_cell(row, (h * kept, c * kept), w_ih, w_hh, bias[:, 0], 0 * bias[:, 0])
        rows.append(h)
    theirs = torch.stack(rows)
    torch.testing.assert_close(ours, theirs)
    weights = torch.randn(theirs.shape, generator=source(10)).double()
    pairs = (torch.autograd.grad(out, leaves, weights) for out in (ours, theirs))
    for own, expected in zip(*pairs, strict=True):
        torch.testing.assert_close(own, expected)
