"""Floor 0: tables and numbers, standard library only."""
