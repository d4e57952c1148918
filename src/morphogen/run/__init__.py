"""Floor 5, the impure one: order, clocks, files, devices, the host."""
