"""Small reward rules and steps with one deliberate fault each, and the ones without that they were
made from.
"""

from dataclasses import dataclass, replace

import torch
from tensordict import TensorDict

from morphogen.config.groups import RewardSpec
from morphogen.rules.legality import legal
from morphogen.rules.rewards.table import FunctionRule, build_rule
from morphogen.vocab.action import Op
from morphogen.vocab.limits import Limits
from morphogen.vocab.stage import Stage

GAMMA = 0.9


def paying(function):
    """The rule that pays what a function of the inputs returns."""
    return FunctionRule(function, governor_penalty=1.0, components=("paid", "governor"))


def gain(inputs):
    """Points of clean improvement, where they were measured."""
    return {"paid": torch.where(inputs.clean_valid, inputs.clean_improvement, 0.0) / 100}


def above_average(inputs):
    """Looks at neighbours: what an env gains over the mean of all envs."""
    paid = gain(inputs)["paid"]
    return {"paid": paid - paid.mean()}


def first_slot(inputs):
    """Pays for a slot index: germinating is worth something in the first slot only."""
    return {
        "paid": 0.1 * (inputs.slots.op[:, 0] == int(Op.GERMINATE)).to(inputs.committed_acc.dtype)
    }


def masked_by_product(inputs):
    """NaN: a product with a flag keeps what is not a number."""
    return {"paid": inputs.clean_improvement * inputs.clean_valid / 100}


def for_trying(inputs):
    """Pays for an op that did not take effect."""
    return {"paid": -0.01 * (inputs.op != int(Op.WAIT)).to(inputs.committed_acc.dtype)}


def noisy(inputs):
    """Draws from the global generator."""
    return {"paid": gain(inputs)["paid"] + 0.01 * torch.randn(())}


class Numbered:
    """Counts its calls in Python, so that every call is another graph."""

    def __init__(self):
        self.calls = 0

    def __call__(self, inputs):
        self.calls += 1
        return {"paid": gain(inputs)["paid"] * (1 + 0 * self.calls)}


@dataclass(frozen=True)
class Shaped:
    """A rule of one ledger leaf; `delta` shapes by the potential of clean improvement."""

    delta: object = build_rule(RewardSpec(), param_budget=1000, episode_length=9, gamma=GAMMA)
    components: tuple[str, ...] = ("value", "shaping", "rent", "op_cost", "governor")
    slot_scale: float = 0.01

    def init(self, envs, slots, device="cpu"):
        return self.delta.init(envs, slots, device)

    def potential(self, inputs, ledger):
        return self.delta.potential(inputs, ledger)

    def __call__(self, inputs, ledger):
        return self.delta(inputs, ledger)


class Undiscounted(Shaped):
    """Does not telescope though it says so: the potential after the step is not discounted."""

    def __call__(self, inputs, ledger):
        return replace(self.delta, terms=replace(self.delta.terms, gamma=1.0))(inputs, ledger)


class InPlace(Shaped):
    """Writes to its ledger in place."""

    def __call__(self, inputs, ledger):
        reward, parts, after = self.delta(inputs, ledger)
        ledger["phi"].copy_(after["phi"])
        return reward, parts, ledger


class Unsummed(Shaped):
    """Adds something to the reward that no component tells."""

    def __call__(self, inputs, ledger):
        reward, parts, after = self.delta(inputs, ledger)
        return reward + 0.001, parts, after


class Growing(Shaped):
    """Puts a new leaf into its ledger."""

    def __call__(self, inputs, ledger):
        reward, parts, after = self.delta(inputs, ledger)
        more = TensorDict({"seen": torch.ones_like(reward)}, batch_size=after.batch_size)
        return reward, parts, after.copy().update(more)


class Elsewhere(Shaped):
    """Makes its ledger on the CPU, wherever it is asked to."""

    def init(self, envs, slots, device="cpu"):
        return self.delta.init(envs, slots)


# steps


def older(slots):
    """One epoch more for every seed."""
    return slots.replace(age=slots.age + (slots.stage >= int(Stage.GERMINATED)))


def older_in_place(slots):
    """Writes to its input."""
    slots.age.add_(1)
    return slots


def older_where_it_counts(slots):
    """Asks the host how many there are."""
    age = slots.age.clone()
    age[slots.stage > 1] += 1
    return slots.replace(age=age)


def older_than_the_others(slots):
    """Looks at other envs."""
    return slots.replace(age=torch.clamp(slots.age, max=slots.age.amin() + 1))


def older_by_place(slots):
    """Treats slots by their index."""
    return slots.replace(age=slots.age + torch.arange(slots.age.shape[1]).to(slots.age.device))


def older_by_chance(slots):
    """Draws from the global generator."""
    return slots.replace(
        age=slots.age + torch.randint(0, 2, slots.age.shape, device=slots.age.device)
    )


def older_in_single(slots):
    """Turns alpha into float32, whatever it was."""
    return slots.replace(alpha=slots.alpha.float() + 0.0)


def older_on_the_cpu(slots):
    """Makes a tensor where it stands."""
    return torch.ones(slots.stage.shape), slots


def older_in_company(slots):
    """Needs others beside it."""
    if len(slots) == 1:
        raise ValueError("nobody is here")
    return older(slots)


def older_by_device(slots):
    """Counts in another type where there are no values."""
    return slots.age.int() + 1 if slots.age.device.type == "meta" else slots.age + 1


def older_when_compiled(slots):
    """Is another function as a graph."""
    return slots.replace(alpha=slots.alpha + (1e-3 if torch.compiler.is_compiling() else 0.0))


def older_in_two_graphs(slots):
    """Prints, which no graph does."""
    print(end="")
    return older(slots)


class Counting:
    """Remembers how often it was called."""

    def __init__(self):
        self.calls = 0

    def __call__(self, slots):
        self.calls += 1
        return slots.replace(age=slots.age + self.calls)


def picky(slots):
    """Raises at a state that can be reached."""
    if slots.stage.shape[1] > 1:
        raise IndexError("one slot is enough")
    return older(slots)


def by_host(inputs):
    """Asks the host whether an episode ends."""
    return gain(inputs) if bool(inputs.horizon.any()) else {"paid": inputs.committed_acc * 0}


def patient(slots):
    """A mask: no PRUNE in the first ten epochs of a life."""
    allowed = legal(slots, Limits((True,) * slots.stage.shape[1])).clone()
    allowed[:, Op.PRUNE] &= slots.age >= 10
    return allowed


def dead(slots):
    """A mask without a legal op for a host whose first slot is in use."""
    return patient(slots) & (slots.stage[:, 0] == int(Stage.DORMANT)).view(-1, 1, 1)


def illegal(slots):
    """A mask that lets empty slots fossilize."""
    allowed = patient(slots)
    allowed[:, Op.FOSSILIZE] |= slots.stage == int(Stage.DORMANT)
    return allowed


def by_op(slots):
    """A mask without slots."""
    return patient(slots).any(-1)


def hasty(slots):
    """A mask that one host decides for another."""
    allowed = patient(slots)
    allowed[:, Op.PRUNE] &= slots.age.float().mean() >= 10
    return allowed
