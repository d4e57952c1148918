"""Floor 3: pure steps.  `(state, inputs, *, knobs) -> (state, outputs)`; one file is one step."""
