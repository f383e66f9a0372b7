"""The rules, as pure functions: what follows from a state, and whether a version or a model passes a check."""
