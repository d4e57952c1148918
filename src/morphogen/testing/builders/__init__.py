"""testing/builders."""
