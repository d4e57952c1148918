"""Command `rewards`: every reward rule, and its returns on scripted policies."""

from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from importlib import import_module
from itertools import groupby, islice
from typing import Any

from morphogen.cli import arguments, process
from morphogen.config.groups import RewardSpec
from morphogen.config.parts import RULES
from morphogen.errors import ConfigError
from morphogen.log.events import tidy

RULES_PER_TABLE = 6
PARSER = {
    "description": "List the reward rules, installed packages included, and print what "
    "each of them pays scripted policies on synthetic learning curves.",
}


def add_arguments(parser: ArgumentParser) -> None:
    """Add the flags of `rewards`."""
    arguments.add_json(parser)


def run(args: Namespace) -> None:
    """Print every rule with its origin and description, then the tables of returns."""
    rules, faults = load_rules()
    describe = import_module("morphogen.rules.rewards.table").describe_rule
    rows = [
        {"rule": name, "origin": RULES.origin(name), "description": describe(name)}
        for name in rules
    ]
    if args.json:
        process.print_json(tidy({"rules": rows, "tables": dict(return_tables(rules, len(rules)))}))
    else:
        process.print_tables([("rules", rows), *return_tables(rules)])
    process.print_notes(faults)


def load_rules() -> tuple[dict[str, Any], list[str]]:
    """Return every rule of the table on the terms of the archetypes, and a line for each that
    cannot be used.
    """
    build_rule = import_module("morphogen.env.part_check").build_rule
    terms = asdict(import_module("morphogen.extras.archetypes.scripted_policies").TERMS)
    rules = {}
    faults = []
    for name in tuple(RULES):
        try:
            rules[name] = build_rule(RewardSpec(rule=name), **terms)
        except ConfigError as error:
            faults.append(str(error))
    return rules, faults


def return_tables(
    rules: dict[str, Any], most: int = RULES_PER_TABLE
) -> list[tuple[str, list[dict[str, Any]]]]:
    """Return titles and rows of the discounted returns: archetypes down, rules of one origin
    across, at most `most`.
    """
    archetypes = import_module("morphogen.extras.archetypes.scripted_policies")
    policies = archetypes.ARCHETYPES
    returns = {
        name: archetypes.archetype_returns(rule, list(policies.values())).tolist()
        for name, rule in rules.items()
    }
    first = [
        {
            "policy": name,
            "committed": None
            if policy.rollback_step
            else policy.committed_accuracy(archetypes.STEPS),
        }
        for name, policy in policies.items()
    ]
    tables = []
    for source, group in groupby(rules, key=RULES.origin):
        while part := list(islice(group, most)):
            rows = [
                {**row, **{name: returns[name][i] for name in part}} for i, row in enumerate(first)
            ]
            tables.append((f"discounted returns, {source}", rows))
    return tables
