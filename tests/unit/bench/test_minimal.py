"""The loop in plain torch is the package: an episode in float64, and an update of its policy."""

from dataclasses import dataclass, replace
from itertools import product

import pytest
import torch
from support import small_states
from tensordict import TensorDict

import morphogen as mg
from bench.harness import minimal
from bench.harness.minimal import HORIZON, Action, Env, Op, Policy, Stage
from bench.harness.module_loop import build_module_twin, load_seed
from bench.harness.plain_modules import flatten_parameters, host_parameters
from morphogen.env.phases import act_phase, init_new_seeds
from morphogen.vocab.observation import ENV, INSTANCE, SLOT, column_index

CODES = (1, 4)  # of the blueprints, in the package
SETTINGS = {
    "blueprints": tuple(minimal.BLUEPRINTS),
    "data": {"minibatches": 3, "batch": 8, "val_samples": 60},
    "episode_length": HORIZON,
    "host": {"norm": "group"},
    "instance": {"width": [1, 1], "reach": [1, 1]},
    "lifecycle": {
        "auto_forward": ["TRAIN", "HOLD"],
        "min_training_epochs": 1,
        "min_prune_age": 1,
        "embargo_epochs": 1,
    },
    "reward": {"rule": "anytime"},
}
EPOCHS = 16
SCRIPT = (  # first actions of each env, of which random ones cover little
    [(Op.GERMINATE, 0, code, style, 0, 2) for code, style in ((1, 0), (4, 1), (1, 3), (4, 2))],
    4 * [(Op.ADVANCE, 0)],
    [(Op.WAIT,), (Op.GERMINATE, 2, 4, 2, 1, 2), (Op.ADVANCE, 1), (Op.GERMINATE, 1, 1, 3, 0, 0)],
    [*3 * [(Op.WAIT,)], (Op.FOSSILIZE, 2)],  # illegal: the slot is empty
    [*3 * [(Op.FOSSILIZE, 0)], (Op.SET_ALPHA_TARGET, 0, 0, 3, 0, 1, 0, 0)],
    [*3 * [(Op.WAIT,)], (Op.PRUNE, 0, 0, 0, 0, 0, 1, 1)],
)
EXACT = {"rtol": 1e-10, "atol": 1e-10}


@dataclass
class DoubleFeed:
    """A feed in float64 that keeps the minibatches of the epoch."""

    feed: object
    served: list

    def __getattr__(self, name):
        return getattr(self.feed, name)

    def batch(self, draws, minibatch):
        batch = self.feed.batch(draws, minibatch)
        self.served.append(batch.replace(inputs=blur(batch.inputs)))
        return self.served[-1]


def blur(images):
    """Images in float64, with noise: equal pixels tie in a pool, and rounding would choose one."""
    return images.double() + 0.1 * small_states.normal(*images.shape)


class Twin(Env):
    """A plain env whose new seeds get the parameters of the package."""

    newborn: list[torch.Tensor]  # rows of the storage, per slot
    germinated = False

    def act(self, action):
        super().act(action)
        slot = self.slots[action.slot]
        if slot.stage == Stage.GERMINATED:
            self.germinated = True
            load_seed(slot, self.newborn[action.slot])


def open_envs():
    """Four envs of the package in float64, with their plain twins."""
    env = mg.make("digits", envs=4, seed=3, **SETTINGS)
    split = env.setup.dataset.validation
    dataset = replace(env.setup.dataset, validation=split.replace(inputs=blur(split.inputs)))
    env = replace(env, feed=DoubleFeed(env.feed, []), setup=replace(env.setup, dataset=dataset))
    fresh = small_states.double(env.init_state(torch.zeros(env.envs, dtype=torch.int64)))
    state, seen = env.start(fresh)
    twins = []
    for e, price in enumerate(state.instance.param_price.tolist()):
        host, spec = build_module_twin(state, env.net, e), env.spec.host
        twins.append(Twin(host, spec.lr, spec.seed_lr, price))
        twins[e].measure(*used_split(env, state, e))
    return env, state, seen, twins


def used_split(env, state, e):
    """Validation samples of the classes that an env uses."""
    split = env.setup.dataset.validation
    labels = state.instance.class_of[e][split.labels]
    return split.inputs[labels >= 0], labels[labels >= 0]


def choose_actions(env, state, seen, epoch):
    if epoch >= len(SCRIPT):
        return mg.actions.random(env, state, seen)
    return torch.tensor([[*row, *(8 - len(row)) * [0]] for row in SCRIPT[epoch]])


def to_plain(action):
    """An action with the plain index of its blueprint."""
    action = Action(*action.tolist())
    return action._replace(blueprint=CODES.index(action.blueprint) if action.blueprint else 0)


def assert_equal(twin, state, step, e):
    """Everything that a twin has."""

    def close(own, other, **tolerance):
        own = torch.as_tensor(own, dtype=torch.float64)
        torch.testing.assert_close(own, other.double(), **(tolerance or EXACT))

    slots = state.slots[e]
    assert [slot.stage for slot in twin.slots] == slots.stage.tolist()
    close([slot.alpha for slot in twin.slots], slots.alpha)
    close([slot.contribution for slot in twin.slots], slots.contribution)
    close(twin.train_loss, step.metrics.loss[e])
    close(twin.val_loss, step.validation.loss[e])
    close(twin.accuracy, state.signals.val_acc[e])
    close(flatten_parameters(host_parameters(twin.host)), state.host.params[e])
    for name, slot in twin.host.slots.items():
        row = state.seeds[name, "params"][e]
        close(small_states.stored(slot, len(row)) if slot.body else torch.zeros(len(row)), row)
    assert [slot.count_params() for slot in twin.slots] == step.inputs.facts.seed_params[e].tolist()
    own, seen = twin.observe(), step.inputs
    assert torch.equal(own["legal"], seen.masks.slot[e])
    known = column_index(ENV)
    columns = [known[name] for name in ("progress", "acc_history.4", "loss_history.4")]
    close(own["env"], seen.observation.env[e, columns], rtol=1e-6, atol=1e-6)
    known = column_index(SLOT)
    stages = [known[f"stage.{stage.name.lower()}"] for stage in Stage]
    columns = [*stages, known["alpha"], known["contribution"]]
    close(own["slots"], seen.observation.slots[e][:, columns], rtol=1e-6, atol=1e-6)


@pytest.mark.slow
def test_an_episode_of_four_envs_is_the_episode_of_the_package():
    env, state, seen, twins = open_envs()
    history = set()
    for epoch in range(EPOCHS):
        action = choose_actions(env, state, seen, epoch)
        act = act_phase(state, action, env.keys, seen.facts, setup=env.setup)
        plan = env.read_plan(act.counts, act.ticked)
        born = init_new_seeds(act.ticked, act.born, env.keys, plan, setup=env.setup).seeds
        env.feed.served.clear()
        state, step = env.step(state, action)
        seen = step.inputs
        for e, twin in enumerate(twins):
            twin.newborn = [born[name, "params"][e] for name in env.net.names]
            batches = [(batch.inputs[e], batch.labels[e]) for batch in env.feed.served]
            reward = twin.step(to_plain(action[e]), batches, used_split(env, state, e))
            assert reward == pytest.approx(float(step.reward[e]), rel=1e-10, abs=1e-10)
            assert_equal(twin, state, step, e)
            history |= {(slot.stage, slot.body and slot.algorithm) for slot in twin.slots}
    running = (Stage.TRAINING, Stage.BLENDING, Stage.HOLDING, Stage.FOSSILIZED)
    empty = (Stage.DORMANT, Stage.PRUNED, Stage.EMBARGOED, Stage.RESETTING)
    assert history == {*product(running, ("add", "multiply", "gate")), *product(empty, [None])}
    assert all(twin.germinated for twin in twins)


@dataclass(frozen=True, eq=False)
class PlainNetwork(mg.PolicyNetwork):
    """A plain policy as a network of the package."""

    policy: Policy
    value_layer = "value"

    def init(self, key):
        return {name: leaf.detach().clone() for name, leaf in self.policy.named_parameters()}

    def initial_hidden(self, envs, *, device="cpu"):
        memory = torch.zeros(envs, self.policy.core.hidden_size)
        return TensorDict({"h": memory, "c": memory}, batch_size=[envs])

    def step(self, net, inputs, hidden):
        rows = {name: leaf.unsqueeze(0) for name, leaf in inputs.features.items()}
        op, outputs, value, memory = self._run(net, rows, hidden)
        after = {name: leaf.squeeze(0) for name, leaf in zip("hc", memory, strict=True)}
        tables = mg.policy.build_tables(op.squeeze(0), outputs.squeeze(0), inputs.legal)
        return mg.policy.NetworkOutput(tables, value.squeeze(0)), hidden.replace(after)

    def unroll(self, net, inputs, keep, hidden):
        op, outputs, value, _ = self._run(net, inputs.features, hidden)
        return mg.policy.NetworkOutput(mg.policy.build_tables(op, outputs, inputs.legal), value)

    def _run(self, net, features, hidden):
        memory = tuple(hidden[name].unsqueeze(0) for name in "hc")
        env = torch.cat((features["env"], features["instance"]), -1)
        rows = env, features["slots"], memory
        op, leaf, value, memory = torch.func.functional_call(self.policy, net, rows)
        # The package has logits of 13 blueprints, after the scores of 5 ops; masks forbid the
        # others.
        places = torch.tensor([*range(5), *(5 + code for code in CODES), *range(18, 53)])
        outputs = leaf.new_zeros(*leaf.shape[:-1], 53).index_copy(-1, places, leaf)
        return op, outputs, value, memory


def play(learner, policy):
    """Rows [T, E] of a few epochs of the package under a plain network."""
    env = mg.make("digits", envs=4, seed=5, **SETTINGS)
    rollout, carry = mg.Rollout(12, envs=4, slots=3), mg.first_carry(env, policy)
    with torch.no_grad():
        for t in range(12):
            carry, epoch = mg.run_epoch(env, policy, learner.params, carry)
            rollout.write(t, epoch)
    return rollout.rows


def plain_rows(rows):
    seen, action = rows["observation"], rows["action"].clone()
    action[..., 2] = (action[..., 2] == CODES[1]).long()
    return {
        "env": torch.cat((seen.env, seen.instance), -1),
        "slots": seen.slots,
        "legal": rows["masks"].slot,
        "action": action,
        "log_prob": rows["log_prob"].sum(-1),
        "value": rows["value"],
        "reward": rows["reward"],
    }


@pytest.mark.parametrize(("lr", "applied", "tolerance"), [(1e-3, 6, 1e-6), (0.3, 1, 1e-4)])
def test_an_update_is_the_update_of_the_package(lr, applied, tolerance):
    """Also one that stops after its first step, which moves the policy far."""
    torch.manual_seed(0)
    plain = Policy(len(ENV) + len(INSTANCE), len(SLOT), hidden=16)
    policy = mg.NetworkPolicy(PlainNetwork(plain))
    learner = mg.ppo.init_ppo(policy, mg.rng.env_keys(0, 0, 1)[0])
    rows = play(learner, policy)
    envs = torch.tensor([[[0, 3], [1, 2]], [[0, 1], [2, 3]], [[0, 2], [1, 3]]])
    spec = mg.PpoSpec(ratio="joint", gamma=0.99, gae_lambda=0.95, clip=0.2, target_kl=0.1)
    weights = mg.ppo.Coefficients(lr=lr, entropy=0.0, value=0.5)
    run = mg.RunSpec(ppo=spec, reward=mg.RewardSpec(return_scale="fixed"))
    after, metrics = mg.ppo.update_ppo(
        learner, rows, envs, weights, policy=policy, round=mg.Round(run, 0)
    )
    optimiser = torch.optim.Adam(plain.parameters(), lr=lr, eps=1e-5)
    minimal.update(plain, optimiser, plain_rows(rows), envs.flatten(0, 1))
    assert metrics["steps_done"] == applied
    for name, leaf in plain.named_parameters():
        torch.testing.assert_close(leaf, after.params["net", name], rtol=0, atol=tolerance)
        assert not torch.equal(leaf, learner.params["net", name])
