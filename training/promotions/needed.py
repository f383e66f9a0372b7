"""Which data set versions the champions of a lake need: those that they were trained on and judged on."""

from collections.abc import Mapping
from typing import Any

from schemas.lake import Lake
from training.promotions.chain import Statement
from training.promotions.record import trusted_statements

HELD = 2  # the champion, and the one before it, which a rollback makes the champion again


def needed_by_champions(lake: Lake) -> Mapping[str, list[str]]:
    """Return NAME@VERSION -> addresses of the champions, and of those before them, that need it.

    Raises:
        IntegrityError: a chain of promotions is damaged, or not signed by trusted keys.
    """
    needed: dict[str, list[str]] = {}
    for name in lake.root.child("promotions").names():
        statements = trusted_statements(lake.promotions(name))
        changes = [each for each in statements if "champions" in each.predicate]
        for version in changes[-1].champions[:HELD] if changes else ():
            for reference in _read_by(version, statements):
                needed.setdefault(reference, []).append(f"models:/{name}/{version}")
    return needed


def _read_by(version: str, statements: list[Statement]) -> list[str]:
    """Return what a version of the model was trained and judged on, by the last statement that says so."""
    own = [each.predicate for each in statements if each.version == version]
    said: Mapping[str, Any] = next((each for each in reversed(own) if "trained_on" in each), {})
    found = [said.get("trained_on", {}), *said.get("judged_on", ())]
    return list(dict.fromkeys(each["dataset"] for each in found if "dataset" in each))
