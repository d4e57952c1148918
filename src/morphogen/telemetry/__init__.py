"""Events derived on the host from the record, and where they go."""
