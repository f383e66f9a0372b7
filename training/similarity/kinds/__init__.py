"""The similarities of a sentence set and an image set: a module each."""
