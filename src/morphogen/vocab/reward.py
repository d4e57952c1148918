"""Components of the reward rules, and detectors by name, with the numbers that a run cannot
change.
"""

# signed, they sum to the reward
CORE_COMPONENTS: tuple[str, ...] = ("value", "shaping", "rent", "op_cost", "governor")
# of the rule `anytime`
ANYTIME_COMPONENTS: tuple[str, ...] = ("accuracy", "rent", "op_cost", "governor")
# last axis of `StepScore.detectors`
DETECTORS: tuple[str, ...] = ("attribution_ratio", "ransomware")

RATIO_LIMIT = 5.0  # contribution over uncommitted improvement at which credit looks inflated
# points that removal costs, above which a seed may hold its host to ransom ...
RANSOM_CONTRIBUTION = 0.1
RANSOM_HARM = -0.2  # ... when the uncommitted seeds together lose more points than this
CRITICAL_CONTRIBUTION = 1.0  # points from which that is critical
