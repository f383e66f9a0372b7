"""Where documents come from: a record iterator for each source, in plain Python.

A source yields candidate documents (or, for Reddit, submissions) and failure rows, in the order of its file. Fetching
is `pipelines.web`'s; filters of documents are `pipelines.documents`'. Beam appears in `transforms.py` alone.
"""
