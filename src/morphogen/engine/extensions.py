"""Reward rules that installed packages offer: entry points of the group `morphogen.rewards`.

Names are read without importing a package; a rule is imported when a run names it (`engine.reward_rule`), so a broken
package stops only the runs that use its rule.
"""

from importlib import metadata

from morphogen.vocab.reward import RULE_NAME, RULES

GROUP = "morphogen.rewards"  # entry point: name of the rule = its builder
EntryPoints = list[metadata.EntryPoint]


def find_extensions() -> dict[str, EntryPoints]:
    """Return the reward rules of installed packages, by name."""
    rules: dict[str, EntryPoints] = {}
    for point in metadata.entry_points(group=GROUP):
        rules.setdefault(point.name, []).append(point)
    return rules


def origin(points: EntryPoints) -> str:
    """Name the packages and versions of a rule: `package 1.0`."""
    names = {f"{point.dist.name} {point.dist.version}" if point.dist else point.value for point in points}
    return " and ".join(sorted(names))


def register_names() -> None:
    """Register the names of installed rules for configs.  Existing names keep their rule."""
    for name, points in find_extensions().items():
        if RULE_NAME.fullmatch(name):
            RULES.setdefault(name, origin(points))


def unusable_extensions() -> dict[str, str]:
    """Describe the offered rules that cannot be used, by name: an invalid name, or one in use."""
    faults = {}
    for name, points in find_extensions().items():
        field = f"entry point of {origin(points)}: expected"
        if not RULE_NAME.fullmatch(name):
            faults[name] = f"{field} a name of letters and digits, with . _ - between them, got {name!a}"
        elif RULES.get(name) != origin(points):
            faults[name] = f"{field} a free name, got {name!a}, a rule of {RULES.get(name)}; the entry point is ignored"
    return faults
