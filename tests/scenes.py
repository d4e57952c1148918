"""Small worlds put together by hand: slots by stage, whole states, inputs of reward rules, games of coalitions."""

import torch
from tensordict import TensorDict

from morphogen.state import rng, schema
from morphogen.state.env import EnvState, Slots
from morphogen.state.measure import Attribution, RewardInputs, SlotInputs
from morphogen.vocab.action import Op
from morphogen.vocab.stage import Stage

INPUTS = {  # neutral fields of a rule's inputs: everything measured, nothing going on; (value, kind)
    **dict.fromkeys(("horizon", "rolled_back", "op_executed"), (False, torch.bool)),
    **dict.fromkeys(("committed_valid", "clean_valid", "loss_valid", "uncommitted_valid"), (True, torch.bool)),
    **dict.fromkeys(("fossil_params", "live_params"), (0, torch.int64)),
    **{"op": (int(Op.WAIT), torch.int64), "epoch": (1, torch.int64), "host_params": (1000, torch.int64)},
    **dict.fromkeys(("committed_acc", "clean_improvement", "val_loss", "uncommitted_improvement"), (0.0, None)),
    **dict.fromkeys(("val_acc", "stable_val_acc", "next_val_acc"), (0.0, None)),
    **{"param_price": (0.1, None), "baseline_loss": (2.3, None), "target_loss": (0.3, None)},
}
SLOT_INPUTS = {  # empty slots
    **dict.fromkeys(("stage", "next_stage"), (int(Stage.DORMANT), torch.int64)),
    "op": (int(Op.WAIT), torch.int64),
    **dict.fromkeys(("previous_stage", "epochs_in_stage", "previous_epochs_in_stage", "age"), (0, torch.int64)),
    "params": (0, torch.int64),
    **dict.fromkeys(("contribution_valid", "next_contribution_valid"), (False, torch.bool)),
    **dict.fromkeys(("contribution", "next_contribution", "interaction_sum", "alpha"), (0.0, None)),
    **dict.fromkeys(("accuracy_at_germination", "accuracy_at_stage_start"), (0.0, None)),
}


def sizes(envs: int, slots: int) -> schema.Sizes:
    names = tuple(f"r0c{i}" for i in range(slots))
    return schema.Sizes(envs, names, host_params=2, seed_params=(3,) * slots, window=20, classes=10)


def slots_of(stages, alphas=None, **leaves) -> Slots:
    """Slots by hand.  stages: rows of `Stage`, one an env; alpha 1 where blended unless given; other leaves by name."""
    stage = torch.tensor([[int(s) for s in row] for row in stages])
    alpha = ((stage >= int(Stage.BLENDING)) & (stage <= int(Stage.FOSSILIZED))).float()
    empty = Slots(**schema.part("slots", sizes(*stage.shape)), batch_size=[stage.shape[0]])
    given = {name: torch.as_tensor(value) for name, value in leaves.items()}
    return empty.replace(stage=stage, alpha=alpha if alphas is None else torch.tensor(alphas), **given)


def state_of(slots: Slots, *, epoch: int = 0, phi: float = 0.0, price: float = 0.1) -> EnvState:
    """A state around some slots: nothing measured, own-rule ledger."""
    envs = slots.stage.shape[0]
    ledger = TensorDict({"phi": torch.full((envs,), phi)}, batch_size=[envs])
    state = schema.init(sizes(*slots.stage.shape), rng.env_keys(7, 0, envs), ledger)
    instance = state.instance.replace(param_price=torch.full((envs,), price), baseline_loss=torch.full((envs,), 2.3))
    return state.replace(slots=slots, instance=instance, clock=state.clock.replace(epoch=state.clock.epoch + epoch))


def filled(known: dict, given: dict, shape: tuple[int, ...], dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """The known fields as tensors of a shape, those that are given instead of their neutral values."""
    assert given.keys() <= known.keys(), given.keys() - known.keys()
    made = {name: (given.get(name, value), kind or dtype) for name, (value, kind) in known.items()}
    return {name: torch.as_tensor(value, dtype=kind).expand(shape).clone() for name, (value, kind) in made.items()}


def slot_inputs(envs: int = 1, slots: int = 3, *, dtype: torch.dtype = torch.float64, **fields) -> SlotInputs:
    """What a rule sees of slots; a number stands for all of them, a row for all envs.  Empty slots unless given."""
    return SlotInputs(**filled(SLOT_INPUTS, fields, (envs, slots), dtype), batch_size=[envs])


def inputs(envs: int = 1, *, dtype: torch.dtype = torch.float64, slots=None, interaction=0.0, **fields) -> RewardInputs:
    """Inputs of a rule; a number stands for all envs.  Measured zeros unless given; price .1, losses 2.3 and .3."""
    slots = slot_inputs(envs, dtype=dtype) if slots is None else slots
    places = slots.stage.shape[1]
    pairs = torch.as_tensor(interaction, dtype=dtype).expand(envs, places, places).clone()
    leaves = filled(INPUTS, fields, (envs,), dtype)
    return RewardInputs(**leaves, interaction=pairs, slots=slots, batch_size=[envs])


def play(rule, steps: list[RewardInputs]):
    """Rewards and components of consecutive steps from a fresh ledger: [T, E], {name: [T, E]}, last ledger."""
    ledger = rule.init(steps[0].batch_size[0], 3)
    rewards, parts = [], []
    for step in steps:
        reward, paid, ledger = rule(step, ledger)
        rewards.append(reward)
        parts.append(paid)
    return torch.stack(rewards), {name: torch.stack([p[name] for p in parts]) for name in rule.components}, ledger


def discount(rewards: torch.Tensor, gamma: float) -> torch.Tensor:
    """Discounted sum over the first axis, step by step."""
    total = torch.zeros_like(rewards[0])
    for t in range(rewards.shape[0]):
        total = total + gamma**t * rewards[t]
    return total


def found(
    accuracy: list[float], *, clean=None, contribution=None, slots: int = 3, measured: bool = True
) -> Attribution:
    """An attribution by hand: accuracies of envs without fossils; no player unless contributions are given."""
    val = torch.tensor(accuracy)
    flat, wide = torch.zeros_like(val), torch.zeros(len(accuracy), slots)
    credit = wide if contribution is None else torch.tensor(contribution)
    return Attribution(
        val_acc=val,
        committed_acc=val.clone(),
        host_acc=val.clone(),
        clean_improvement=flat if clean is None else torch.tensor(clean),
        uncommitted_improvement=flat,
        contribution=credit,
        contribution_valid=credit != 0,
        shapley=credit.clone(),
        interaction=torch.zeros(len(accuracy), slots, slots),
        interaction_sum=wide,
        boost_received=wide,
        interaction_valid=wide.bool(),
        measured=torch.full((len(accuracy),), measured),
        exact=torch.full((len(accuracy),), measured),
        forwards=torch.ones(len(accuracy), dtype=torch.int64),
        batch_size=[len(accuracy)],
    )


def leaves(tree) -> dict:
    """All tensors of a tree by path."""
    return dict(tree.to_tensordict().items(include_nested=True, leaves_only=True))


def assert_same(a, b) -> None:
    """Two trees are equal, bit for bit."""
    left, right = leaves(a), leaves(b)
    assert left.keys() == right.keys()
    for path, value in left.items():
        torch.testing.assert_close(
            value, right[path], rtol=0, atol=0, equal_nan=True, msg=lambda m, p=path: f"{p}: {m}"
        )
