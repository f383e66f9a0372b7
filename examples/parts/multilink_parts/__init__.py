"""Parts of one's own: each module is one, and `pyproject.toml` names them as entry points."""
