"""The image towers: a module each."""
