"""Floor 1: what exists.  Frozen stacked state, keyed draws, the schema."""
