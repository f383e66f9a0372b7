"""A model behind an HTTP address."""
