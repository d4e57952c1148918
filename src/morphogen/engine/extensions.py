"""Reward rules that installed packages offer: entry points of the group `morphogen.rewards`.

Their names are known without importing anything; a rule is imported when a run names it (`run.rule`).  So a package
that is broken stops only the runs that want its rule.
"""

from importlib import metadata

from morphogen.vocab.reward import RULE_NAME, RULES

GROUP = "morphogen.rewards"  # entry point: name of the rule = its builder
EntryPoints = list[metadata.EntryPoint]


def find_extensions() -> dict[str, EntryPoints]:
    """Reward rules of installed packages, by name."""
    found: dict[str, EntryPoints] = {}
    for point in metadata.entry_points(group=GROUP):
        found.setdefault(point.name, []).append(point)
    return found


def origin(points: EntryPoints) -> str:
    """Package and version behind a rule: `package 1.0`."""
    names = {f"{point.dist.name} {point.dist.version}" if point.dist else point.value for point in points}
    return " and ".join(sorted(names))


def register_names() -> None:
    """Add the names of installed rules to those that a config may hold.  A name that is taken stays as it is."""
    for name, points in find_extensions().items():
        if RULE_NAME.fullmatch(name):
            RULES.setdefault(name, origin(points))


def unusable_extensions() -> dict[str, str]:
    """Why an offer cannot be used, by the name that it wants: it is no name, or it is taken."""
    found = {}
    for name, points in find_extensions().items():
        who = f"{origin(points)} offers a reward rule {name!a}"
        if not RULE_NAME.fullmatch(name):
            found[name] = f"{who}; want a name of letters and digits, with . _ - between them"
        elif RULES.get(name) != origin(points):
            found[name] = f"{who}, which is the name of another one ({RULES.get(name)}); it is not used"
    return found
