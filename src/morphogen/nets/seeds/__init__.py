"""Seed networks: one function per blueprint, each a delta that is zero at birth."""
