"""The kinds of events, one module per unit of time."""
