"""morphogen: growing neural networks under the control of a learned policy."""
