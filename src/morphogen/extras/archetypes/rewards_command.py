"""Command `rewards`: every reward rule, and its returns on scripted policies."""

from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from importlib import import_module
from itertools import groupby
from typing import Any

from morphogen.cli import arguments, process
from morphogen.config.groups import RewardSpec
from morphogen.config.parts import RULES
from morphogen.errors import ConfigError
from morphogen.log.events import tidy

PARSER = {
    "description": "List the reward rules, installed packages included, and print what "
    "each of them pays scripted policies on synthetic learning curves.",
}


def add_arguments(parser: ArgumentParser) -> None:
    """Add the flags of `rewards`."""
    arguments.add_json(parser)


def run(args: Namespace) -> None:
    """Print every rule with its origin and description, then the tables of returns."""
    archetypes = import_module("morphogen.extras.archetypes.scripted_policies")
    build_rule = import_module("morphogen.env.part_check").build_rule
    rules: dict[str, Any] = {}
    faults: list[str] = []
    for name in tuple(RULES):
        try:
            rules[name] = build_rule(RewardSpec(rule=name), **asdict(archetypes.TERMS))
        except ConfigError as error:
            faults.append(str(error))
    describe = import_module("morphogen.rules.rewards.table").describe_rule
    rows = [
        {"rule": name, "origin": RULES.origin(name), "description": describe(name)}
        for name in rules
    ]
    tables = [
        (
            f"discounted returns, {origin}",
            archetypes.return_rows({name: rules[name] for name in group}),
        )
        for origin, group in groupby(rules, key=RULES.origin)
    ]
    if args.json:
        process.print_json(tidy({"rules": rows, "tables": dict(tables)}))
    else:
        process.print_tables([("rules", rows), *tables])
    process.print_notes(faults)
