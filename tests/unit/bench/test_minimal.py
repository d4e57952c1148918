"""The plain loop of `bench.harness.minimal` against the package: an episode, an update of PPO."""

from dataclasses import dataclass, replace
from itertools import product

import pytest
import torch
from support import small_states
from tensordict import TensorDict

import morphogen as mg
from bench.harness import minimal
from bench.harness.module_loop import load_parameters, storage_order
from bench.harness.minimal import HORIZON, PARAM_BUDGET, Action, Env, Host, Op, Policy, Slot, Stage
from morphogen.engine import phases
from morphogen.rules.counts import seed_params
from morphogen.vocab.observation import ENV, SLOT, column_index

SETTINGS = {
    "blueprints": ("conv_light", "depthwise"),
    "episode_length": HORIZON,
    "host": {"norm": "group"},
    "instance": {"width": [1, 1], "reach": [1, 1]},
    "lifecycle": {
        "auto_forward": ["TRAIN", "HOLD"],
        "min_training_epochs": 1,
        "min_prune_age": 1,
        "embargo_epochs": 1,
        "min_gradient_health": 0.0,
    },
    "reward": {"rule": "anytime"},
    "data": {"minibatches": 3, "batch": 8, "val_samples": 60},
}
EXACT = {"rtol": 1e-10, "atol": 1e-10}
STYLES = {"add": 1, "multiply": 2, "gate": 3}


@dataclass
class DoubleFeed:
    """A feed whose images are float64; it keeps the minibatches that it has served."""

    feed: object
    served: list

    def __getattr__(self, name):
        return getattr(self.feed, name)

    def batch(self, draws, minibatch):
        batch = self.feed.batch(draws, minibatch)
        self.served.append(batch.replace(inputs=noisy(batch.inputs)))
        return self.served[-1]


def noisy(inputs):
    return inputs.double() + 0.1*small_states.normal(*inputs.shape)


def open_double_env():
    """Envs of digits in float64."""
    env = mg.make("digits", envs=4, seed=3, **SETTINGS)
    split = env.setup.dataset.validation()
    dataset = replace(env.setup.dataset, _validation=split.replace(inputs=noisy(split.inputs)))
    feed = DoubleFeed(env.feed, [])
    return replace(env, feed=feed, setup=replace(env.setup, dataset=dataset))


def build_plain_env(env, state, e):
    spec, host, instance = env.spec.host, env.net.host, state.instance
    plain = Host([host.channels_in, *host.channels], host.kernel, host.pools, host.classes).double()
    for slot in env.net.slots:
        plain.slots[slot.name] = Slot(slot.channels)
    plain.classes = int(instance.classes[e])
    load_parameters(list(plain.parameters()), state.host.params[e])
    plain_env = Env(plain, spec.lr, spec.seed_lr, float(instance.param_price[e]))
    plain_env.measure(*split_of(env, state, e))
    return plain_env


def split_of(env, state, e):
    """Validation samples whose labels are in use of an env."""
    split, class_of = env.setup.dataset.validation(), state.instance.class_of[e]
    labels = class_of[split.labels]
    return split.inputs[labels >= 0], labels[labels >= 0]


def test_try():
    env = open_double_env()
    fresh = env.init_state(torch.zeros(env.envs, dtype=torch.int64))
    state, seen = env.start(small_states.double(fresh))
    plain = [build_plain_env(env, state, e) for e in range(env.envs)]
    lived = set()
    for epoch in range(40):
        action = mg.actions.random(env, state, seen)
        facts = env._facts(state)
        act = phases.act_phase(state, action, env.keys, facts, setup=env.setup)
        plan = env.read_plan(act.counts, act.ticked)
        born = phases.init_new_seeds(act.ticked, act.born, env.keys, plan, setup=env.setup)
        env.feed.served.clear()
        state, step = env.step(state, action)
        seen = step.seen
        for e, p in enumerate(plain):
            chosen = Action(*action[e].tolist())

            def build(blueprint, channels):
                seed = [m.double() for m in minimal.build_seed(blueprint, channels)]
                row = born.seeds[env.net.names[chosen.slot], "params"][e]
                load_parameters(storage_order(seed[0]), row)
                load_parameters(storage_order(seed[1]), row[-sum(x.numel() for x in seed[1].parameters()) :])
                return seed

            batches = [(b.inputs[e], b.labels[e]) for b in env.feed.served]
            reward = p.step(chosen, batches, split_of(env, state, e), build)
            assert [s.stage for s in p.slots] == state.slots.stage[e].tolist(), (epoch, e)
            assert [s.age for s in p.slots] == state.slots.age[e].tolist()
            assert [s.epochs_in_stage * (s.stage != 1) for s in p.slots] == state.slots.epochs_in_stage[e].tolist()
            close = lambda a, b: torch.testing.assert_close(torch.as_tensor(a, dtype=torch.float64), b, **EXACT)
            close([s.alpha for s in p.slots], state.slots.alpha[e])
            close([s.contribution for s in p.slots], state.slots.contribution[e])
            close(p.train_loss, step.metrics.loss[e])
            close(p.val_loss, step.validation.loss[e])
            close(p.accuracy, state.signals.val_acc[e])
            close(reward, step.reward[e])
            own = [x for n, x in p.host.named_parameters() if "slots" not in n]
            close(torch.cat([x.detach().flatten() for x in own]), state.host.params[e])
            for s, (name, slot) in enumerate(p.host.slots.items()):
                row = state.seeds[name, "params"][e]
                if slot.body is None:
                    assert not row.any()
                else:
                    body = torch.cat([x.detach().flatten() for x in storage_order(slot.body)])
                    gate = torch.cat([x.detach().flatten() for x in storage_order(slot.gate)])
                    print(epoch, e, name, slot.stage.name, slot.algorithm, slot.alpha, slot.ramp, slot.blueprint, float((body-row[: len(body)]).abs().max()))
                    close(body, row[: len(body)])
                    close(gate, row[-len(gate):])
                lived.add((slot.stage.name, getattr(slot, "algorithm", None) if slot.body else None))
            legal = torch.tensor([p.legal(s) for s in p.slots]).T
            assert torch.equal(legal, seen.masks.slot[e]), (legal, seen.masks.slot[e])
    print(sorted(map(str, lived)))


@dataclass(frozen=True, eq=False)
class PlainNetwork(mg.PolicyNetwork):
    """The plain policy as a network of the package."""

    policy: Policy
    value_layer = "value"

    def init(self, key):
        return {name: leaf.detach().clone() for name, leaf in self.policy.named_parameters()}

    def initial_hidden(self, envs, *, device="cpu"):
        size = self.policy.core.hidden_size
        return TensorDict({name: torch.zeros(envs, size) for name in "hc"}, batch_size=[envs])

    def _run(self, net, inputs, hidden):
        features = inputs.features
        env = torch.cat((features["env"], features["instance"]), -1)
        memory = (hidden["h"][None].to(env.dtype), hidden["c"][None].to(env.dtype))
        op, leaf, value, (h, c) = torch.func.functional_call(self.policy, net, (env, features["slots"], memory))
        out = mg.nets.NetworkOutput(mg.nets.build_tables(op, leaf, inputs.legal), value)
        return out, TensorDict({"h": h[0], "c": c[0]}, batch_size=hidden.batch_size)

    def step(self, net, inputs, hidden):
        row = inputs._replace(
            features={k: v[None] for k, v in inputs.features.items()},
            legal=type(inputs.legal)(*(v[None] for v in inputs.legal)),
        )
        out, memory = self._run(net, row, hidden)
        return mg.nets.NetworkOutput(type(out.tables)(*(t[0] for t in out.tables)), out.value[0]), memory

    def unroll(self, net, inputs, keep, hidden):
        return self._run(net, inputs, hidden)[0]


def test_update():
    env = mg.make("digits", envs=4, seed=5, **SETTINGS)
    torch.manual_seed(0)
    plain = Policy(len(ENV) + 8, len(SLOT), hidden=16)
    policy = mg.NetworkPolicy(PlainNetwork(plain))
    learner = mg.learn.init_ppo(policy, env.keys[0])
    rollout, hidden = mg.Rollout(12, envs=4, slots=3), policy.initial_hidden(4)
    state, seen = env.reset()
    with torch.no_grad():
        for t in range(12):
            epoch = mg.run_epoch(env, state, seen, policy, params=learner.params, hidden=hidden)
            rollout.write(t, epoch, reset_before=torch.full((4,), t == 0))
            state, seen, hidden = epoch.after, epoch.step.seen, epoch.hidden
    double = lambda tree: tree
    rows = double(rollout.rows)
    learner = double(learner)
    pass
    spec = mg.PpoSpec(ratio="joint", gamma=0.99, target_kl=0.1)
    weights = mg.learn.Coefficients(lr=1e-2, entropy=0.0, value=0.5)
    assignment = torch.tensor([[[0, 3], [1, 2]], [[0, 1], [2, 3]], [[0, 2], [1, 3]]])
    after, metrics = mg.learn.update_ppo(learner, rows, assignment, weights, policy=policy, spec=spec, return_scale="fixed")
    print({k: float(v) for k, v in metrics.items() if k in ("kl", "steps_done", "policy_loss", "value_loss")})
    plain_rows = {
        "env": torch.cat((rows["observation"].env, rows["observation"].instance), -1),
        "slots": rows["observation"].slots,
        "legal": rows["masks"].slot,
        "action": rows["action"],
        "log_prob": rows["log_prob"].sum(-1),
        "value": rows["value"],
        "reward": rows["reward"],
    }
    with torch.no_grad():
        op, leaf, value, _ = plain(plain_rows["env"], plain_rows["slots"])
        _, log_prob = minimal.choose(op, leaf, plain_rows["legal"], rows["action"])
    torch.testing.assert_close(log_prob, plain_rows["log_prob"], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(value, rows["value"], rtol=1e-5, atol=1e-5)
    before = {n: x.detach().clone() for n, x in plain.named_parameters()}
    optimiser = torch.optim.Adam(plain.parameters(), lr=1e-2, eps=1e-5)
    minimal.update(plain, optimiser, plain_rows, assignment.flatten(0, 1))
    for name, x in plain.state_dict().items():
        print(name, float((x - after.params["net", name]).abs().max()), float((x - before[name]).abs().max()))
