"""Reward rules that installed packages offer: entry points of the group `morphogen.rewards`.

Their names are known without importing anything; a rule is imported when a run names it (`run.rule`).  So a package
that is broken stops only the runs that want its rule.
"""

from importlib import metadata

from morphogen.vocab.reward import NAME, RULES

GROUP = "morphogen.rewards"  # entry point: name of the rule = its builder
Points = list[metadata.EntryPoint]


def offers() -> dict[str, Points]:
    """What installed packages offer, by name of the rule."""
    found: dict[str, Points] = {}
    for point in metadata.entry_points(group=GROUP):
        found.setdefault(point.name, []).append(point)
    return found


def origin(points: Points) -> str:
    """Who offers a rule: `package 1.0`."""
    names = {f"{point.dist.name} {point.dist.version}" if point.dist else point.value for point in points}
    return " and ".join(sorted(names))


def announce() -> None:
    """Add the names of installed rules to those that a config may hold.  A name that is taken stays as it is."""
    for name, points in offers().items():
        if NAME.fullmatch(name):
            RULES.setdefault(name, origin(points))


def refused() -> dict[str, str]:
    """Why an offer cannot be used, by the name that it wants: it is no name, or it is taken."""
    found = {}
    for name, points in offers().items():
        who = f"{origin(points)} offers a reward rule {name!a}"
        if not NAME.fullmatch(name):
            found[name] = f"{who}; want a name of letters and digits, with . _ - between them"
        elif RULES.get(name) != origin(points):
            found[name] = f"{who}, which is the name of another one ({RULES.get(name)}); it is not used"
    return found
