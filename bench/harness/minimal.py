"""The whole idea in plain torch: hosts that grow, lives of seeds, a reward, a policy and PPO.

Every env is one `nn.Module` with one optimiser, in loops over envs and slots.  The package, which
is not imported, computes the same for all envs at once: `tests/unit/bench/test_minimal.py` holds an
episode and an update of both equal, and benchmarks of training measure against `Env.learn`.

Lifecycle and reward follow the preset `digits_regimes`.  Left out: other hosts, most
blueprints, worlds that change, gates that ask for healthy gradients, the governor, which takes a
diverged host back, most features, running scales of features and returns, the bonus for entropy,
floors under probabilities, imitation, baselines from sibling envs, ranks and devices.
"""

import itertools
import math
from collections import namedtuple
from collections.abc import Callable, Iterable
from enum import IntEnum

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# A seed lives from GERMINATED to FOSSILIZED, which is for good.  In TRAINING it learns, and the
# host does not hear it.  In BLENDING alpha moves, its share in the signal; from HOLDING on it is 1.
# From PRUNED on there is no seed: the slot cools down until it is DORMANT, which is empty.
Stage = IntEnum(
    "Stage", "DORMANT GERMINATED TRAINING BLENDING HOLDING FOSSILIZED PRUNED EMBARGOED RESETTING"
)


def conv(inputs: int, outputs: int, size: int, groups: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, size, padding=size // 2, groups=groups, bias=False)


def count_groups(channels: int) -> int:
    """Groups of a normalisation; each has 16 channels or more, because few make poor statistics."""
    return next((g for g in (32, 16, 8, 4, 2) if channels % g == 0 and channels // g >= 16), 1)


class ScaledNorm(nn.GroupNorm):
    """Normalisation, ReLU, and a scale of 0 at birth, so that a new seed changes nothing."""

    def __init__(self, channels: int) -> None:
        super().__init__(count_groups(channels), channels)
        nn.init.zeros_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        x = F.group_norm(x, self.num_groups, torch.ones_like(self.bias), self.bias)
        return self.weight.view(-1, 1, 1) * F.relu(x, inplace=True)


BLUEPRINTS = {
    "conv_light": lambda c: nn.Sequential(conv(c, c, 3), ScaledNorm(c)),
    "depthwise": lambda c: nn.Sequential(conv(c, c, 3, groups=c), conv(c, c, 1), ScaledNorm(c)),
}


def gate(c: int) -> nn.Module:
    """Openness of a seed for each sample, by the means of its channels."""
    hidden = max(8, c // 4)
    layers = nn.Linear(c, hidden), nn.SiLU(), nn.Linear(hidden, 1), nn.Sigmoid()
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), *layers, nn.Unflatten(1, (1, 1, 1)))


def curve(shape: str | float, t: float) -> float:
    """Way along a ramp after a share t of its time; a number is the steepness of a sigmoid."""
    if shape == "linear":
        return t
    if shape == "cosine":
        return (1 - math.cos(math.pi * t)) / 2
    return 0.5 + math.tanh(shape / 4 * (2 * t - 1)) / (2 * math.tanh(shape / 4))


class Slot(nn.Module):
    """A place in a host, with at most one seed: a body, and a gate that one style uses."""

    def __init__(self, channels: int, isolated: bool = True) -> None:
        super().__init__()
        self.channels = channels
        self.isolated = isolated  # the host gets no gradient through the input of a seed
        self.remove(Stage.DORMANT)

    def remove(self, after: Stage = Stage.PRUNED) -> None:
        self.enter(after)
        self.body = self.gate = None
        self.alpha = 0.0
        self.ramp: list[float] = []  # alphas of the next epochs
        self.contribution = 0.0  # points of accuracy that the host loses without the seed

    def enter(self, stage: int) -> None:
        self.stage = Stage(stage)
        self.epochs_in_stage = 0

    def move_alpha(self, target: float, epochs: int, shape: str | float) -> None:
        """Ramp alpha to a target, which the last epoch reaches without rounding."""
        way = target - self.alpha
        steps = [self.alpha + way * curve(shape, k / epochs) for k in range(1, epochs)]
        self.ramp = [*steps, target] if way else []
        if self.stage == Stage.HOLDING and way:
            self.enter(Stage.BLENDING)

    def forward(self, h: Tensor, on: bool = True) -> Tensor:
        x = h.detach() if self.isolated or self.stage == Stage.TRAINING else h
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
        """Parameters that are paid for: a gate only counts where it is used."""
        modules = [self.body, self.gate if self.body and self.algorithm == "gate" else None]
        return sum(p.numel() for module in modules if module for p in module.parameters())


class Host(nn.Module):
    """A CNN.  channels: of the image, then of every block; pools: blocks that end in a pool.

    Slot `r0c0` is behind block 0, `r1c0` behind the pool after it.
    """

    loss = staticmethod(F.cross_entropy)

    def __init__(self, channels: list[int], kernel: int, pools: int, classes: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList()
        for before, after in itertools.pairwise(channels):
            normalise = nn.GroupNorm(count_groups(after), after)
            self.blocks.append(nn.ModuleList((conv(before, after, kernel), normalise)))
        self.head = nn.Linear(channels[-1], classes)
        self.slots = nn.ModuleDict()  # places where seeds may live
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


# --- An env: actions and an epoch ---
Op = IntEnum("Op", "WAIT GERMINATE SET_ALPHA_TARGET PRUNE FOSSILIZE ADVANCE", start=0)
HEADS = {  # meaning of every choice; tempo and speed are epochs of a ramp of alpha
    "blueprint": tuple(BLUEPRINTS.values()),
    "style": (("linear", "add"), ("linear", "multiply"), (12, "add"), ("linear", "gate")),
    "tempo": (3, 5, 8),
    "alpha_target": (0.5, 0.7, 1.0),
    "alpha_speed": (0, 3, 5, 8),
    "alpha_curve": ("linear", "cosine", 6, 12, 24),
}
USES = {  # heads of an action that an op reads, besides the slot
    Op.GERMINATE: ("blueprint", "style", "tempo", "alpha_target"),
    Op.SET_ALPHA_TARGET: ("style", "alpha_target", "alpha_speed", "alpha_curve"),
    Op.PRUNE: ("alpha_speed", "alpha_curve"),
}
Action = namedtuple("Action", ("op", "slot", *HEADS), defaults=[0] * 7)  # an index per head
HORIZON = 90  # epochs of an episode
PARAM_BUDGET = 100  # parameters of seeds that cost the price of an env


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
        self.optimiser = torch.optim.SGD(groups, momentum=0.9, fused=True)  # the fastest form

    def step(self, action: Action, batches: Iterable, split: tuple) -> float:
        """Run an epoch; return its reward: accuracy, less the price of all parameters of seeds."""
        self.act(action)
        self.tick()
        self.collect_parameters()
        losses = [self.learn(*batch) for batch in batches]
        self.train_loss = torch.stack(losses).mean().item()
        self.measure(*split)
        self.epoch += 1
        for slot in self.slots:
            slot.epochs_in_stage += 1
        rent = self.price * sum(slot.count_params() for slot in self.slots) / PARAM_BUDGET
        return (self.accuracy / 100 - rent) / HORIZON

    def legal(self, slot: Slot) -> tuple[bool, ...]:
        """Flags of the ops that may address a slot."""
        calm = (Stage.DORMANT, Stage.BLENDING, Stage.HOLDING, Stage.FOSSILIZED)
        quiet = all(other.stage in calm for other in self.slots)  # one young seed at a time
        trains = slot.stage == Stage.TRAINING
        holds = slot.stage == Stage.HOLDING
        still = (holds or slot.stage == Stage.BLENDING) and not slot.ramp
        return True, quiet and slot.stage == Stage.DORMANT, still, trains or still, holds, trains

    def act(self, action: Action) -> None:
        """Change the slot of an action; an illegal action does nothing."""
        slot = self.slots[action.slot]
        if not self.legal(slot)[action.op]:
            return
        chosen = {head: values[getattr(action, head)] for head, values in HEADS.items()}
        shape, algorithm = chosen["style"]
        target, *later = chosen["alpha_target"], chosen["alpha_speed"], chosen["alpha_curve"]
        match action.op:
            case Op.GERMINATE:
                slot.enter(Stage.GERMINATED)
                slot.body = chosen["blueprint"](slot.channels)
                slot.gate = gate(slot.channels)
                slot.algorithm = algorithm
                slot.first_ramp = target, chosen["tempo"], shape
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
            elif slot.stage >= Stage.PRUNED and slot.epochs_in_stage:
                slot.enter(slot.stage % len(Stage) + 1)  # DORMANT follows RESETTING

    def collect_parameters(self) -> None:
        """Hand the parameters of all seeds to the optimiser; a seed that fades does not learn."""
        self.host.train()
        for slot, group in zip(self.slots, self.optimiser.param_groups[1:], strict=True):
            fades = bool(slot.ramp) and slot.ramp[-1] < slot.alpha
            group["params"] = [] if fades else list(slot.parameters())
            for p in group["params"]:  # the fused optimiser takes momentum of all or of none
                self.optimiser.state[p].setdefault("momentum_buffer", torch.zeros_like(p))

    def learn(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """Take a step of the host and of every seed, each with its own clipped gradient."""
        self.optimiser.zero_grad()
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
        for off in (*live, None):
            logits = self.host(inputs, frozenset([off]))
            points[off] = 100 * (logits.argmax(-1) == labels).double().mean().item()
        self.val_loss = self.host.loss(logits, labels).item()
        self.accuracy = points[None]
        for name in live:
            self.host.slots[name].contribution = self.accuracy - points[name]

    def observe(self) -> dict[str, Tensor]:
        """Features of the env, features of its slots, and the legal slots of every op."""
        env = [self.epoch / HORIZON, self.accuracy / 100, math.log1p(self.val_loss) / 7]
        numbers = torch.tensor([(slot.alpha, slot.contribution / 10) for slot in self.slots])
        stages = F.one_hot(torch.tensor([slot.stage - 1 for slot in self.slots]), len(Stage))
        legal = torch.tensor([self.legal(slot) for slot in self.slots]).T
        return {"env": torch.tensor(env), "slots": torch.cat((stages, numbers), -1), "legal": legal}


# --- The policy ---
Rows = dict[str, Tensor]  # of an episode, by name: what was seen, done and paid
CHOICES = [(head, op) for head in HEADS for op in USES if head in USES[op]]
SIZES = [len(Op) - 1, *(len(HEADS[head]) for head, _ in CHOICES)]  # ops but WAIT, then choices


class Policy(nn.Module):
    """An LSTM for any number of slots."""

    def __init__(self, env_features: int, slot_features: int, hidden: int = 64) -> None:
        super().__init__()
        self.slot = nn.Sequential(nn.Linear(slot_features, hidden), nn.SiLU())
        self.mix = nn.Sequential(nn.Linear(env_features + hidden, hidden), nn.SiLU())
        self.core = nn.LSTM(hidden, hidden)
        self.op = nn.Linear(hidden, len(Op))
        self.leaf = nn.Linear(2 * hidden, sum(SIZES))
        self.value = nn.Linear(hidden, 1)

    def forward(self, env: Tensor, slots: Tensor, memory: tuple | None = None) -> tuple:
        """Scores of ops [T, B, 6] and of every slot [T, B, S, 31], values [T, B], next memory."""
        codes = self.slot(slots)
        z, memory = self.core(self.mix(torch.cat((env, codes.mean(-2)), -1)), memory)
        leaf = self.leaf(torch.cat((codes, z.unsqueeze(-2).expand(codes.shape)), -1))
        return self.op(z), leaf, self.value(z).squeeze(-1), memory


def score(op: Tensor, leaf: Tensor, legal: Tensor, action: Tensor | None = None) -> tuple:
    """Log-probabilities [T, B] of actions int64 [T, B, 8]; without actions, they are drawn first.

    op, leaf: from the policy; legal: bool [T, B, 6, S], which forbids all other ops and slots.
    """
    scores, *choices = leaf.split(SIZES, -1)
    scores = F.pad(scores.mT, (0, 0, 1, 0)).masked_fill(~legal, -1e9)  # WAIT has 0
    # An op is as good as its best slots, so their soft maximum raises it.
    op = (op + scores.logsumexp(-1) - legal.sum(-1).log()).masked_fill(~legal.any(-1), -1e9)
    t, b = torch.meshgrid(*map(torch.arange, op.shape[:2]), indexing="ij")
    drawn = action is None
    action = torch.zeros(*op.shape[:2], len(Action._fields), dtype=torch.int64) if drawn else action

    def take(head: str, logits: Tensor, used: Tensor | bool = True) -> Tensor:
        column = Action._fields.index(head)
        choice = torch.distributions.Categorical(logits=logits)
        if drawn:
            action[..., column] += used * choice.sample()
        return used * choice.log_prob(action[..., column])

    total = take("op", op)
    chosen = action[..., 0]
    total = total + take("slot", scores[t, b, chosen], chosen != Op.WAIT)
    for (head, owner), logits in zip(CHOICES, choices, strict=True):
        total = total + take(head, logits[t, b, action[..., 1]], chosen == owner)
    return action, total


# --- PPO, and an episode to learn from ---
def ppo_loss(policy: Policy, rows: Rows, clip=0.2, value_coef=0.5) -> tuple[Tensor, Tensor]:
    """Loss on whole episodes [T, B], and how far the policy has moved since it acted, in nats.

    L = - mean min(r A, clip(r, 1 - e, 1 + e) A) + c mean (V - R)^2 / 2
    r: new over old probability of an action, A: its advantage, V: value, R: return.
    Rows with a single legal action teach the value alone.
    """
    op, leaf, value, _ = policy(rows["env"], rows["slots"])
    _, log_prob = score(op, leaf, rows["legal"], rows["action"])
    change = log_prob - rows["log_prob"]
    ratio = change.exp()
    advantage = rows["advantage"]
    gain = torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)
    loss = value_coef * (value - rows["return"]).square().mean() / 2 - gain[rows["free"]].mean()
    return loss, (ratio - 1 - change)[rows["free"]].mean()


def update(policy: Policy, optimiser, rows: Rows, batches, gamma=0.99, decay=0.95, target_kl=0.1):
    """Train on a round of whole episodes [T, E]; batches: indices of envs.

    A(t) = d(t) + gamma decay A(t + 1),  d(t) = reward(t) + gamma V(t + 1) - V(t)
    """
    value = F.pad(rows["value"], (0, 0, 0, 1))  # 0 after the end
    error = rows["reward"] + gamma * value[1:] - value[:-1]
    advantage = torch.zeros_like(value)
    for t in reversed(range(len(error))):
        advantage[t] = error[t] + gamma * decay * advantage[t + 1]
    advantage = advantage[:-1]
    free = rows["legal"][..., 1:, :].flatten(-2).any(-1)  # more than WAIT is legal
    spread = advantage[free].std(correction=0).clamp(min=0.1)
    rows = {**rows, "return": advantage + rows["value"], "free": free}
    rows["advantage"] = (advantage - advantage[free].mean()) / spread
    for envs in batches:
        loss, distance = ppo_loss(policy, {name: leaf[:, envs] for name, leaf in rows.items()})
        if distance > 1.5 * target_kl:
            return  # the rows say little about a policy that has moved so far
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimiser.step()


def play_episode(policy: Policy, envs: list[Env], draw: Callable) -> Rows:
    """Play new, measured envs to the end; `draw(env)`: batches and split of an epoch -> [T, E]."""
    rows, memory = [], None
    for _ in range(HORIZON):
        seen = [env.observe() for env in envs]
        row = {name: torch.stack([one[name] for one in seen])[None] for name in seen[0]}
        with torch.no_grad():
            op, leaf, row["value"], memory = policy(row["env"], row["slots"], memory)
            row["action"], row["log_prob"] = score(op, leaf, row["legal"])
        actions = itertools.starmap(Action, row["action"][0].tolist())
        rewards = [env.step(a, *draw(env)) for env, a in zip(envs, actions, strict=True)]
        rows.append({**row, "reward": torch.tensor([rewards])})
    return {name: torch.cat([row[name] for row in rows]) for name in rows[0]}
