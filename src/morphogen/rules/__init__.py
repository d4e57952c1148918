"""Floor 2: mathematics.  Tensors or sub-states in, tensors out; a rule never returns a whole state."""
