"""Similarity of a sentence set and an image set: a module each in `kinds/`; AP's matchings in `assignment.py`."""
