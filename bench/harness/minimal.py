"""The whole idea in plain torch: hosts that grow, lives of seeds, a reward, a policy and PPO.

Every env is one `nn.Module` with one optimiser, and an epoch loops over envs and slots.  The
package computes the same numbers for all envs at once: `tests/unit/bench/test_minimal.py` holds an
episode and an update of both equal, and benchmarks of training measure against `Env.learn`.
Nothing of the package is imported.  Read from top to bottom: actions, networks, an env and its
epoch (`Env.step`), the policy, PPO (`ppo_loss`), a round of all of them (`play_round`).

Lifecycle and reward are those of the preset `digits_phases`.  Left out: other hosts, most
blueprints, worlds that change within an episode, gates that ask for the health of gradients, the
governor, which takes a diverged host back, most features, running scales of features and returns,
the bonus for entropy, floors under probabilities, imitation, baselines from sibling envs, keyed
random streams, ranks, devices and precisions.
"""

import itertools
import math
from collections import namedtuple
from collections.abc import Callable, Iterable
from enum import IntEnum

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import Categorical

# A seed lives from GERMINATED to FOSSILIZED, which is for good.  In TRAINING it learns, and the
# host does not hear it.  In BLENDING alpha moves, its share in the signal; from HOLDING on it is 1.
# From PRUNED on there is no seed: the slot cools down until it is DORMANT, which is empty.
Stage = IntEnum(
    "Stage", "DORMANT GERMINATED TRAINING BLENDING HOLDING FOSSILIZED PRUNED EMBARGOED RESETTING"
)
Op = IntEnum("Op", "WAIT GERMINATE SET_ALPHA_TARGET PRUNE FOSSILIZE ADVANCE", start=0)
USES = {  # heads of an action that an op reads, besides the slot
    Op.GERMINATE: ("blueprint", "style", "tempo", "alpha_target"),
    Op.SET_ALPHA_TARGET: ("style", "alpha_target", "alpha_speed", "alpha_curve"),
    Op.PRUNE: ("alpha_speed", "alpha_curve"),
}


def sigmoid(steepness: float) -> Callable[[float], float]:
    """A logistic curve, scaled to run from (0, 0) to (1, 1)."""
    quarter = steepness / 4
    return lambda t: 0.5 + math.tanh(quarter * (2 * t - 1)) / (2 * math.tanh(quarter))


LINEAR, COSINE = (lambda t: t), (lambda t: (1 - math.cos(math.pi * t)) / 2)
HEADS = {  # meaning of every choice; tempo and speed are epochs of a ramp of alpha
    "blueprint": range(13),  # codes, of which `BODIES` knows some
    "style": ((LINEAR, "add"), (LINEAR, "multiply"), (sigmoid(12), "add"), (LINEAR, "gate")),
    "tempo": (3, 5, 8),
    "alpha_target": (0.5, 0.7, 1.0),
    "alpha_speed": (0, 3, 5, 8),
    "alpha_curve": (LINEAR, COSINE, sigmoid(6), sigmoid(12), sigmoid(24)),
}
Action = namedtuple("Action", ("op", "slot", *HEADS), defaults=[0] * 7)  # an index per head
NO_SEED = len(HEADS["blueprint"])


def conv(inputs: int, outputs: int, size: int, groups: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, size, padding=size // 2, groups=groups, bias=False)


def groups(channels: int) -> int:
    """Groups of a normalisation: of at least 16 channels, because fewer make poor statistics."""
    return next((g for g in (32, 16, 8, 4, 2) if channels % g == 0 and channels // g >= 16), 1)


class ScaledNorm(nn.GroupNorm):
    """Normalisation, ReLU, and a scale of 0 at birth, so that a new seed changes nothing."""

    def __init__(self, channels: int) -> None:
        super().__init__(groups(channels), channels)
        nn.init.zeros_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        x = F.group_norm(x, self.num_groups, torch.ones_like(self.bias), self.bias)
        return self.weight.view(-1, 1, 1) * F.relu(x, inplace=True)


BODIES: dict[int, Callable[[int], nn.Module]] = {  # blueprints by code, for c channels
    1: lambda c: nn.Sequential(conv(c, c, 3), ScaledNorm(c)),
    4: lambda c: nn.Sequential(conv(c, c, 3, groups=c), conv(c, c, 1), ScaledNorm(c)),
}


def build_seed(blueprint: int, channels: int) -> tuple[nn.Module, nn.Module]:
    """Body and gate; a gate opens by the means of the channels of a sample."""
    hidden = max(8, channels // 4)
    layers = nn.Linear(channels, hidden), nn.SiLU(), nn.Linear(hidden, 1), nn.Sigmoid()
    pool = nn.AdaptiveAvgPool2d(1), nn.Flatten()
    return BODIES[blueprint](channels), nn.Sequential(*pool, *layers, nn.Unflatten(1, (1, 1, 1)))


class Slot(nn.Module):
    """A place in a host, with at most one seed."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = channels
        self.clear()

    def clear(self) -> None:
        self.remove()
        self.stage = Stage.DORMANT
        self.age = 0  # epochs since germination

    def remove(self) -> None:
        self.enter(Stage.PRUNED)
        self.body, self.gate = None, None
        self.blueprint = NO_SEED
        self.alpha = 0.0
        self.ramp: list[float] = []  # alphas of the next epochs
        self.contribution = 0.0  # points of accuracy that the host loses without the seed

    def enter(self, stage: int) -> None:
        self.stage = Stage(stage)
        self.epochs_in_stage = 0

    def move_alpha(self, target: float, epochs: int, curve: Callable[[float], float]) -> None:
        """Ramp alpha to a target, which the last epoch reaches without rounding."""
        way = target - self.alpha
        if epochs and way:
            steps = [self.alpha + way * curve(k / epochs) for k in range(1, epochs)]
            self.ramp = [*steps, target]
        self.alpha = self.alpha if self.ramp else target
        if self.stage == Stage.HOLDING and way:
            self.enter(Stage.BLENDING)

    def forward(self, h: Tensor, on: bool = True) -> Tensor:
        x = h.detach()  # the host gets no gradient through a seed, so that it is not spoiled by it
        if self.stage == Stage.TRAINING and self.training:
            delta = self.body(x)
            delta = x * torch.tanh(delta) if self.algorithm == "multiply" else delta
            return h + (delta - delta.detach())  # equals h, with a gradient for the seed
        if self.alpha == 0 or not on:
            return h
        if self.algorithm == "multiply":
            return torch.addcmul(h, h, torch.tanh(self.body(x)), value=self.alpha)
        if self.algorithm == "gate":
            return torch.addcmul(h, self.body(x), self.gate(x), value=self.alpha)
        return torch.add(h, self.body(x), alpha=self.alpha)

    def count_params(self) -> int:
        """Parameters that are paid for: a gate only counts where the style uses it."""
        modules = [self.body, self.gate if self.body and self.algorithm == "gate" else None]
        return sum(p.numel() for module in modules if module for p in module.parameters())


class Host(nn.Module):
    """A CNN of blocks with slots: `r0c0` is behind block 0, `r1c0` behind the pool after it."""

    loss = staticmethod(F.cross_entropy)

    def __init__(self, channels: list[int], kernel: int, pools: int, classes: int) -> None:
        """channels: of the image, then of every block; pools: blocks that end in a pool."""
        super().__init__()
        pairs = itertools.pairwise(channels)
        self.blocks = nn.ModuleList(
            nn.ModuleList((conv(a, b, kernel), nn.GroupNorm(groups(b), b))) for a, b in pairs
        )
        self.head = nn.Linear(channels[-1], classes)
        self.slots = nn.ModuleDict()  # those that may hold a seed
        self.pools = pools
        self.classes = classes  # in use; an instance of the task may have fewer

    def forward(self, x: Tensor, off: frozenset[str] = frozenset()) -> Tensor:
        for i, (layer, normalise) in enumerate(self.blocks):
            x = F.relu(normalise(layer(x)), inplace=True)
            x = self.grow(f"r0c{i}", x, off)
            if i < self.pools:
                x = self.grow(f"r1c{i}", F.max_pool2d(x, 2), off)
        return self.head(x.mean((2, 3)))[:, : self.classes]

    def grow(self, name: str, x: Tensor, off: frozenset[str]) -> Tensor:
        return self.slots[name](x, name not in off) if name in self.slots else x


HORIZON, PARAM_BUDGET = 90, 100  # epochs of an episode; parameters that cost the price of the env


class Env:
    """A host in an episode; every epoch takes one action."""

    def __init__(self, host: nn.Module, lr: float, seed_lr: float, price: float = 0.0) -> None:
        self.host = host
        self.slots: list[Slot] = list(host.slots.values())
        self.price = price
        self.epoch = 0
        own = [p for name, p in host.named_parameters() if not name.startswith("slots.")]
        groups = [{"params": own, "lr": lr, "weight_decay": 5e-4}]
        groups += [{"params": [], "lr": seed_lr} for _ in self.slots]
        self.optimiser = torch.optim.SGD(groups, momentum=0.9, fused=True)

    def step(self, action: Action, batches: Iterable, split: tuple, build=build_seed) -> float:
        """Run an epoch; return its reward: accuracy, less the price of all parameters of seeds."""
        self.act(action, build)
        self.tick()
        self.train(batches)
        self.measure(*split)
        self.epoch += 1
        for slot in self.slots:
            slot.epochs_in_stage += 1
            slot.age += slot.body is not None
        rent = self.price * sum(slot.count_params() for slot in self.slots) / PARAM_BUDGET
        return (self.accuracy / 100 - rent) / HORIZON

    def legal(self, slot: Slot) -> tuple[bool, ...]:
        """Whether each op may address a slot."""
        calm = (Stage.DORMANT, Stage.BLENDING, Stage.HOLDING, Stage.FOSSILIZED)
        quiet = all(other.stage in calm for other in self.slots)  # one seed at a time
        trains, holds = slot.stage == Stage.TRAINING, slot.stage == Stage.HOLDING
        still = (holds or slot.stage == Stage.BLENDING) and not slot.ramp
        germinates = quiet and slot.stage == Stage.DORMANT
        return True, germinates, still, trains or still, holds, trains

    def act(self, action: Action, build: Callable) -> None:
        """Change the slot of an action; an illegal action does nothing."""
        slot = self.slots[action.slot]
        if not self.legal(slot)[action.op]:
            return
        chosen = {head: values[getattr(action, head)] for head, values in HEADS.items()}
        curve, algorithm = chosen["style"]
        target, *later = chosen["alpha_target"], chosen["alpha_speed"], chosen["alpha_curve"]
        match action.op:
            case Op.GERMINATE:
                slot.enter(Stage.GERMINATED)
                slot.body, slot.gate = build(action.blueprint, slot.channels)
                slot.blueprint = action.blueprint
                slot.algorithm = algorithm
                slot.first_ramp = target, chosen["tempo"], curve
            case Op.SET_ALPHA_TARGET:
                slot.algorithm = algorithm
                slot.move_alpha(target, *later)
            case Op.PRUNE if slot.alpha and chosen["alpha_speed"]:
                slot.move_alpha(0.0, *later)  # `tick` removes it at the end
            case Op.PRUNE:
                slot.remove()
            case Op.FOSSILIZE:
                slot.enter(Stage.FOSSILIZED)
            case Op.ADVANCE:
                slot.enter(Stage.BLENDING)
                slot.move_alpha(*slot.first_ramp)

    def tick(self) -> None:
        """Move what moves by itself: new seeds, ramps, seeds at the end of a ramp, and cooling."""
        for slot in self.slots:
            if slot.ramp:
                slot.alpha = slot.ramp.pop(0)
            if slot.stage == Stage.GERMINATED:
                slot.enter(Stage.TRAINING)
            elif slot.stage == Stage.BLENDING and not slot.ramp and slot.alpha in (0, 1):
                slot.enter(Stage.HOLDING) if slot.alpha else slot.remove()
            elif slot.stage == Stage.RESETTING:
                slot.clear()
            elif slot.stage >= Stage.PRUNED and slot.epochs_in_stage:
                slot.enter(slot.stage + 1)

    def train(self, batches: Iterable[tuple[Tensor, Tensor]]) -> None:
        self.collect_parameters()
        losses = [self.learn(*batch) for batch in batches]
        self.train_loss = torch.stack(losses).mean().item()

    def collect_parameters(self) -> None:
        """Hand the parameters of all seeds to the optimiser; a seed that fades does not learn."""
        self.host.train()
        for slot, group in zip(self.slots, self.optimiser.param_groups[1:], strict=True):
            fades = bool(slot.ramp) and slot.ramp[-1] < slot.alpha
            group["params"] = [] if fades else list(slot.parameters())
            for p in group["params"]:  # the fused optimiser wants the momentum of all or of none
                self.optimiser.state[p].setdefault("momentum_buffer", torch.zeros_like(p))

    def learn(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """Take a step of the host and of every seed, each with its own clipped gradient."""
        self.host.zero_grad()
        loss = self.host.loss(self.host(inputs), labels)
        loss.backward()
        for group in self.optimiser.param_groups:
            nn.utils.clip_grad_norm_(group["params"], 1.0, foreach=True)
        self.optimiser.step()
        return loss.detach()

    @torch.no_grad()
    def measure(self, inputs: Tensor, labels: Tensor) -> None:
        """Measure loss and accuracy, and what the host loses without each of its seeds."""
        self.host.eval()
        points = {}
        live = [name for name, slot in self.host.slots.items() if slot.alpha]
        for off in (*live, ""):
            logits = self.host(inputs, frozenset([off]))
            points[off] = 100 * (logits.argmax(-1) == labels).double().mean().item()
        self.val_loss = self.host.loss(logits, labels).item()
        self.accuracy = points[""]
        for name in live:
            self.host.slots[name].contribution = self.accuracy - points[name]

    def observe(self) -> dict[str, Tensor]:
        """Features of the env, features of its slots, and the legal slots of every op."""
        env = [self.epoch / HORIZON, self.accuracy / 100, math.log1p(self.val_loss) / 7]
        slots = []
        for slot in self.slots:
            stages = [float(slot.stage == stage) for stage in Stage]
            cost = 10 * self.price * slot.count_params() / PARAM_BUDGET
            clock = min(slot.epochs_in_stage, 20) / 20
            slots.append([*stages, slot.alpha, slot.contribution / 10, cost, clock])
        legal = [self.legal(slot) for slot in self.slots]
        features = {"env": torch.tensor(env), "slots": torch.tensor(slots)}
        return {**features, "legal": torch.tensor(legal).T}


CHOICES = [(head, op) for head in HEADS for op in USES if head in USES[op]]


class Policy(nn.Module):
    """An LSTM for any number of slots, with logits of every op, slot and choice, and the value."""

    def __init__(self, env_features: int, slot_features: int, hidden: int = 64) -> None:
        super().__init__()
        self.slot = nn.Sequential(nn.Linear(slot_features, hidden), nn.SiLU())
        self.mix = nn.Sequential(nn.Linear(env_features + hidden, hidden), nn.SiLU())
        self.core = nn.LSTM(hidden, hidden)
        self.op = nn.Linear(hidden, len(Op))
        self.leaf = nn.Linear(2 * hidden, len(Op) - 1 + sum(len(HEADS[h]) for h, _ in CHOICES))
        self.value = nn.Linear(hidden, 1)

    def forward(self, env: Tensor, slots: Tensor, memory: tuple | None = None) -> tuple:
        """Logits of ops [T, B, 6] and of every slot [T, B, S, 53], values [T, B], next memory."""
        codes = self.slot(slots)
        z, memory = self.core(self.mix(torch.cat((env, codes.mean(-2)), -1)), memory)
        around = z.unsqueeze(-2).expand(codes.shape)
        leaf = self.leaf(torch.cat((codes, around), -1))
        return self.op(z), leaf, self.value(z).squeeze(-1), memory


def choose(op: Tensor, leaf: Tensor, legal: Tensor, action: Tensor | None = None) -> tuple:
    """Draw an op, then its slot, then the other heads; or take given actions.

    op, leaf: of the policy; legal: bool [T, B, 6, S] -> actions int64 [T, B, 8], log-probs [T, B].
    """
    sizes = [len(HEADS[head]) for head, _ in CHOICES]
    scores, *choices = leaf.split([len(Op) - 1, *sizes], -1)
    scores = F.pad(scores.mT, (0, 0, 1, 0)).masked_fill(~legal, -1e9)  # none for WAIT
    # An op is as good as its best slots: their soft maximum raises it.
    op = op + scores.logsumexp(-1) - legal.sum(-1).clamp(min=1).log()
    first = Categorical(logits=op.masked_fill(~legal.any(-1), -1e9))
    chosen = first.sample() if action is None else action[..., 0]
    t, b = torch.meshgrid(*map(torch.arange, chosen.shape), indexing="ij")
    second = Categorical(logits=scores[t, b, chosen])
    slot = second.sample() if action is None else action[..., 1]
    total = first.log_prob(chosen) + (chosen != Op.WAIT) * second.log_prob(slot)
    found = torch.zeros(*chosen.shape, len(Action._fields), dtype=torch.int64)
    found[..., 0], found[..., 1] = chosen, slot
    known = torch.tensor([code in BODIES for code in HEADS["blueprint"]])
    for (head, owner), logits in zip(CHOICES, choices, strict=True):
        column, used = Action._fields.index(head), chosen == owner
        logits = logits[t, b, slot]
        logits = logits.masked_fill(~known, -1e9) if head == "blueprint" else logits
        dist = Categorical(logits=logits)
        value = dist.sample() if action is None else action[..., column]
        found[..., column] = torch.where(used, value, found[..., column])
        total = total + used * dist.log_prob(value)
    return found, total


GAMMA, LAMBDA, CLIP, TARGET_KL, VALUE_COEF = 0.99, 0.95, 0.2, 0.1, 0.5


def ppo_loss(policy: Policy, rows: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Loss on whole episodes [T, B], and how far the policy has moved since it acted, in nats.

    L = - mean min(r A, clip(r, 1 - e, 1 + e) A) + c mean (V - R)^2 / 2
    r: new over old probability of an action, A: its advantage, V: value, R: return, e: `CLIP`.
    Rows with a single legal action teach the value alone.
    """
    op, leaf, value, _ = policy(rows["env"], rows["slots"])
    change = choose(op, leaf, rows["legal"], rows["action"])[1] - rows["log_prob"]
    ratio, gain = change.exp(), rows["advantage"]
    surrogate = torch.minimum(ratio * gain, ratio.clamp(1 - CLIP, 1 + CLIP) * gain)
    free = rows["free"]
    loss = VALUE_COEF * (value - rows["return"]).square().mean() / 2 - surrogate[free].mean()
    return loss, (ratio - 1 - change)[free].mean()


def update(policy: Policy, optimiser, rows: dict[str, Tensor], minibatches: Iterable) -> None:
    """Train on a round of whole episodes [T, E]; minibatches: tensors of envs.

    Advantages: A(t) = d(t) + gamma lambda A(t + 1), d(t) = r(t) + gamma V(t + 1) - V(t).
    """
    value = F.pad(rows["value"], (0, 0, 0, 1))  # 0 after the end
    error = rows["reward"] + GAMMA * value[1:] - value[:-1]
    gain = torch.zeros_like(value)
    for t in reversed(range(len(error))):
        gain[t] = error[t] + GAMMA * LAMBDA * gain[t + 1]
    gain = gain[:-1]
    free = rows["legal"][..., 1:, :].flatten(-2).any(-1)
    scaled = (gain - gain[free].mean()) / gain[free].std(correction=0).clamp(min=0.1)
    rows = {**rows, "return": gain + rows["value"], "advantage": scaled, "free": free}
    for envs in minibatches:
        loss, distance = ppo_loss(policy, {name: leaf[:, envs] for name, leaf in rows.items()})
        if distance > 1.5 * TARGET_KL:
            return  # the rows say little about a policy that is so far away
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimiser.step()


@torch.no_grad()
def play_round(
    policy: Policy, envs: list[Env], draw: Callable, epochs: int = HORIZON
) -> dict[str, Tensor]:
    """Play an episode of all envs; `draw(env)` gives the minibatches and the split of an epoch."""
    rows, memory = [], None
    for _ in range(epochs):
        seen = [env.observe() for env in envs]
        row = {name: torch.stack([one[name] for one in seen])[None] for name in seen[0]}
        op, leaf, value, memory = policy(row["env"], row["slots"], memory)
        action, log_prob = choose(op, leaf, row["legal"])
        reward = [
            env.step(Action(*chosen), *draw(env))
            for env, chosen in zip(envs, action[0].tolist(), strict=True)
        ]
        row |= {
            "action": action,
            "log_prob": log_prob,
            "value": value,
            "reward": torch.tensor([reward]),
        }
        rows.append(row)
    return {name: torch.cat([row[name] for row in rows]) for name in rows[0]}
