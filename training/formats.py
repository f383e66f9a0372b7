"""Settings as earlier versions of this project wrote them, read as today's.

model.json 2, config.json     an objective is one table of all its terms' settings, with its similarity's among them
model.json 3                  an objective is a list of terms, each with its own settings and similarity
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from schemas.plugins import NAME, OBJECTIVES, SIMILARITIES, canonical_names, find_part

_RENAMED = {"alpha": "hal_alpha", "beta": "hal_beta", "epsilon": "hal_epsilon"}
_SIMILARITY = "similarity"


def current_config(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a `TrainConfig` that any version wrote, as today's.

    Raises:
        ConfigError: its objective is not known here.
    """
    objective = values.get("objective")
    return dict(values) | ({"objective": _terms(objective)} if isinstance(objective, Mapping) else {})


def _terms(old: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the terms of an objective that was one table."""
    names = canonical_names(OBJECTIVES, old[NAME], key="objective.name")
    given = dict(old) | dict(item.split("=", 1) for item in old.get("options", ()))
    given |= {new: given[former] for new, former in _RENAMED.items() if former in given}
    terms = []
    for name in names:
        known = [field.name for field in fields(find_part(OBJECTIVES, name))]
        term = {key: given[key] for key in known if key in given and key != _SIMILARITY}
        if _SIMILARITY in known and _SIMILARITY in given:
            own = [field.name for field in fields(find_part(SIMILARITIES, given[_SIMILARITY]))]
            term[_SIMILARITY] = {key: given[key] for key in own if key in given} | {NAME: given[_SIMILARITY]}
        terms.append(term | {NAME: name})
    return terms
