"""The text towers: a module each."""
