"""Baselines: score matrices made without training (SPEC 7)."""
