"""Readers of golden rows: advantages, attribution, rewards of the own rules."""

from collections.abc import Callable

import torch
from support.made_up_measurements import slots_by_stage

from morphogen.config.groups import RewardSpec
from morphogen.ppo.advantage import gae
from morphogen.rules.attribution import attribution, coalitions, detect_false_credit
from morphogen.rules.rewards.example_inputs import make_reward_inputs
from morphogen.rules.rewards.own import loss_progress
from morphogen.rules.rewards.table import build_rule
from morphogen.testing.builders.reward_inputs import play_rule
from morphogen.vocab.action import Op
from morphogen.vocab.stage import Stage

OWN_RULES = ("sparse", "delta", "rent", "loss")


def near(got: torch.Tensor, want, *, exact: float, single: float) -> None:
    """Equal within `exact` in float64, within `single` times max(1, |x|) in float32."""
    wanted = torch.tensor(want, dtype=torch.float64)
    room = exact if got.dtype == torch.float64 else single * wanted.abs().clamp_min(1.0)
    assert got.shape == wanted.shape
    assert ((got.double() - wanted).abs() <= room).all(), f"got {got}, want {wanted}"


def read_gae(row: dict, dtype: torch.dtype) -> None:
    given = row["inputs"]
    reals = [torch.tensor(given[name], dtype=dtype) for name in ("reward", "value", "next_value")]
    flags = [torch.tensor(given[name]) for name in ("terminated", "truncated")]
    advantage, returns = gae(*reals, *flags, gamma=given["gamma"], gae_lambda=given["gae_lambda"])
    near(advantage, row["outputs"]["advantage"], exact=1e-9, single=1e-5)
    near(returns, row["outputs"]["return"], exact=1e-9, single=1e-5)


def read_attribution(row: dict, dtype: torch.dtype) -> None:
    count = row["players"]
    fossilized = row["inputs"]["fossilized"]
    slots = slots_by_stage([[Stage.FOSSILIZED if kept else Stage.HOLDING for kept in fossilized]])
    coalition, evaluated = coalitions(slots, torch.zeros(1, 2, count), pairs=2)
    assert evaluated.all()
    table = torch.tensor(row["inputs"]["acc_table"], dtype=dtype)
    got = attribution(table[coalition], coalition, evaluated, slots)
    for name, want in row["outputs"].items():
        value = getattr(got, name)[0]
        room = torch.full((), 1e-9 if dtype == torch.float64 else 1e-3)
        assert ((value.double() - torch.tensor(want, dtype=torch.float64)).abs() <= room).all(), (
            name
        )


def read_sparse(row: dict, dtype: torch.dtype) -> None:
    given, config = row["inputs"], row["config"]
    budget = config.get("param_budget", 500_000)
    rule = build_rule(
        RewardSpec(rule="sparse"), param_budget=budget, episode_length=given["horizon"], gamma=0.995
    )
    step = make_reward_inputs(
        dtype=dtype,
        horizon=given["epoch"] == given["horizon"],
        committed_acc=given["committed_acc"],
        fossil_params=given["fossil_params"],
        param_price=config.get("param_price", 0.1),
    )
    rewards, _, _ = play_rule(rule, [step])
    near(rewards[:, 0], [row["outputs"]["total"]], exact=1e-9, single=1e-5)


def read_trajectory(row: dict, dtype: torch.dtype) -> None:
    config = row["config"]
    steps = [
        trajectory_step(step, config, dtype, last=place == len(row["steps"]) - 1)
        for place, step in enumerate(row["steps"])
    ]
    for name in OWN_RULES:
        spec = RewardSpec(
            rule=name,
            potential_scale=config.get("potential_scale", 1.0),
            governor_penalty=config.get("governor_penalty", 1.0),
            op_cost=config.get("op_cost", 0.0),
        )
        rule = build_rule(
            spec,
            param_budget=config.get("param_budget", 500_000),
            episode_length=len(steps),
            gamma=config.get("gamma", 0.995),
        )
        rewards, _, _ = play_rule(rule, steps)
        near(rewards[:, 0], row["outputs"][name], exact=1e-12, single=1e-5)


def trajectory_step(step: dict, config: dict, dtype: torch.dtype, *, last: bool):
    """One recorded step as the inputs of a rule; what is null is not measured."""
    optional = {
        "committed_acc": "committed_valid",
        "clean_improvement": "clean_valid",
        "val_loss": "loss_valid",
    }
    fields = {name: 0.0 if step[name] is None else step[name] for name in optional}
    fields |= {flag: step[name] is not None for name, flag in optional.items()}
    fields |= {
        name: step[name] for name in ("fossil_params", "live_params", "op_executed", "rolled_back")
    }
    prices = {
        name: config[name]
        for name in ("param_price", "baseline_loss", "target_loss")
        if name in config
    }
    return make_reward_inputs(dtype=dtype, horizon=last, op=int(Op[step["op"]]), **fields, **prices)


def read_detectors(row: dict, dtype: torch.dtype) -> None:
    given, outputs = row["inputs"], row["outputs"]
    q, u = (
        torch.tensor([given[name]], dtype=dtype)
        for name in ("contribution", "uncommitted_improvement")
    )
    slots = slots_by_stage([[Stage.HOLDING]], contribution=q[:, None], contribution_valid=[[True]])
    got = detect_false_credit(slots, u)
    assert got.fired.tolist() == [
        [[outputs["attribution_ratio_fired"], outputs["ransomware_fired"]]]
    ]
    assert got.critical.item() == outputs["ransomware_critical"]
    near(got.ratio[0], [outputs["attribution_ratio"] or 0.0], exact=1e-9, single=1e-5)


def read_loss_progress(row: dict, dtype: torch.dtype) -> None:
    loss, baseline, target = (
        torch.tensor([row["inputs"][name]], dtype=dtype)
        for name in ("val_loss", "baseline_loss", "target_loss")
    )
    near(
        loss_progress(loss, baseline=baseline, target=target),
        [row["outputs"]["value"]],
        exact=1e-9,
        single=1e-5,
    )


READERS: dict[str, Callable[[dict, torch.dtype], None]] = {
    "gae": read_gae,
    "attribution_table": read_attribution,
    "rewards_sparse": read_sparse,
    "rewards_trajectories": read_trajectory,
    "hacking_detectors": read_detectors,
    "loss_progress": read_loss_progress,
}
