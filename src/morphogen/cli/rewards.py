"""The command `morphogen rewards`: every rule with its meaning, and what each pays the archetypes."""

from dataclasses import asdict
from itertools import groupby
from typing import Any

from morphogen.config.spec import RewardSpec
from morphogen.engine import extensions
from morphogen.engine.reward_rule import build_rule
from morphogen.errors import ConfigError
from morphogen.rules.rewards.archetypes import ARCHETYPES, STEPS, TERMS, archetype_returns
from morphogen.rules.rewards.table import Rule, describe_rule
from morphogen.vocab.reward import RULES

RULES_PER_TABLE = 6  # rules side by side in a table


def load_rules() -> tuple[dict[str, Rule], list[str]]:
    """Every rule of the table on the terms of the archetypes, and a line for each that cannot be used."""
    rules, faults = {}, list(extensions.unusable_extensions().values())
    for name in tuple(RULES):
        try:
            rules[name] = build_rule(RewardSpec(rule=name), **asdict(TERMS))
        except ConfigError as error:
            faults.append(str(error))
    return rules, faults


def rule_lines(rules: dict[str, Rule]) -> list[str]:
    """A line for each rule: its name, whose it is, what it pays."""
    wide, side = (max(map(len, column), default=0) for column in (rules, [RULES[name] for name in rules]))
    return [f"{name:<{wide}}  {RULES[name]:<{side}}  {describe_rule(name)}" for name in rules]


def return_tables(rules: dict[str, Rule]) -> list[tuple[str, list[dict[str, Any]]]]:
    """Tables of discounted returns, a title and rows for each: archetypes down, rules of one origin across."""
    policies = list(ARCHETYPES.values())
    first = [_archetype_row(name) for name in ARCHETYPES]
    paid = {name: archetype_returns(rule, policies).tolist() for name, rule in rules.items()}
    found = []
    for whose, group in groupby(rules, key=RULES.__getitem__):
        names = list(group)
        for part in (names[i : i + RULES_PER_TABLE] for i in range(0, len(names), RULES_PER_TABLE)):
            rows = [{**row, **{name: paid[name][i] for name in part}} for i, row in enumerate(first)]
            found.append((f"discounted returns, {whose}", rows))
    return found


def _archetype_row(name: str) -> dict[str, Any]:
    """A policy, and the accuracy that it delivers, if it gets that far."""
    policy = ARCHETYPES[name]
    return {"policy": name, "committed": None if policy.rollback_step else policy.committed_accuracy(STEPS)}
