"""Floor 2: networks.  Parameters and inputs in, outputs out, all envs at once."""
