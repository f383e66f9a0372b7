"""The terms of objectives: a module each."""
