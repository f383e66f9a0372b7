"""Look after a lake."""
