"""Similarity of a sentence set and an image set."""
