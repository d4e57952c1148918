"""Floor 4: the controller's own training, and the baselines it is compared with."""
