"""Look at what editors decided, and use it."""
