"""Similarity of a sentence set and an image set: DC, TK, NegTK and AP (`sets.py`), AP's matchings (`assignment.py`)."""
