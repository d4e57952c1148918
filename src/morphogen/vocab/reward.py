"""Reward rules and detectors by name, with the numbers that a run cannot change."""

import re

CORE, LEGACY, REGISTERED = "own", "legacy", "this program"
FAMILIES: tuple[str, ...] = (CORE, LEGACY)  # of the rules that are from here
RULE_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")  # what a rule may be called
# name -> whose rule it is.  Open: `rules.rewards.table.register` adds to it, `run.extensions` for packages.
RULES: dict[str, str] = {
    **dict.fromkeys(("sparse", "delta", "value", "rent", "loss"), CORE),
    **dict.fromkeys(("shaped", "escrow", "simplified", "basic", "basic_plus"), LEGACY),
}
CORE_COMPONENTS: tuple[str, ...] = ("value", "shaping", "rent", "op_cost", "governor")  # signed, they sum to the reward
DETECTORS: tuple[str, ...] = ("attribution_ratio", "ransomware")  # last axis of `Score.detectors`

RATIO_LIMIT = 5.0  # contribution over uncommitted improvement at which credit looks inflated
RANSOM_CONTRIBUTION = 0.1  # points that removal costs, above which a seed may hold its host to ransom ...
RANSOM_HARM = -0.2  # ... when the uncommitted seeds together lose more points than this
CRITICAL_CONTRIBUTION = 1.0  # points from which that is critical
