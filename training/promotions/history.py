"""Who was champion of a registered model, from when to when, by which decision, and on which data; what champions need.

Read from the record, which only grows: a version that was deleted since is still listed, and an alias that was set by
hand is not.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import zip_longest
from typing import Any

from schemas.console import aligned
from schemas.lake import Lake
from training.promotions.chain import Statement
from training.promotions.record import ADOPTED, Record, trusted_statements

PROMOTED, ROLLED_BACK = "promotion", "rollback"
HELD = 2  # the champion, and the one before it, which a rollback makes the champion again


Championship = Mapping[str, Any]


def championships(record: Record) -> list[Championship]:
    """Return who was champion, the first one first; empty where nobody was promoted.

    Each has, ready for JSON: `model` and `version`; `since` and `until` (empty: it still is), ISO 8601 in UTC;
    `replaced`, the champion before; `by`, which is `promotion`, `rollback` or `adopted` (who signs answers for what
    stood before); `trained_on` and `judged_on`, NAME@VERSION; `split` and `documents` of the latter; `approved_by`;
    `reasons`, a sentence each; `signed_by`, ids of the trusted keys whose signatures of the statement verify; and
    `tainted`, why it is. What no statement says is empty.
    """
    changes = record.changes
    return [_championship(record, change, after) for change, after in zip_longest(changes, changes[1:])]


def _championship(record: Record, change: Statement, after: Statement | None) -> Championship:
    version, decision, replaced = (
        next(iter(change.champions), ""),
        change.decision,
        change.decision.get("champion_before"),
    )
    return {
        "model": record.model.name,
        "version": version,
        "since": _time(change),
        "until": "" if after is None else _time(after),
        "replaced": "" if replaced in (None, version) else replaced,
        "by": ADOPTED if change.event == ADOPTED else ROLLED_BACK if decision.get("is_rollback") else PROMOTED,
        "trained_on": change.predicate.get("trained_on", {}).get("dataset", ""),
        "judged_on": decision.get("dataset", ""),
        "split": decision.get("split", ""),
        "documents": decision.get("documents", 0),
        "approved_by": decision.get("approved_by", ""),
        "reasons": decision.get("reasons", []),
        "signed_by": change.signers,
        "tainted": str(record.taint(version) or ""),
    }


def _time(change: Statement) -> str:
    return datetime.fromisoformat(change.predicate["at"]).astimezone(UTC).isoformat(timespec="seconds")


def lines(found: Sequence[Championship]) -> Iterator[str]:
    """Yield a table of them, and under each what it was decided by."""
    heads = ["since", "version", "replaced", "by", "judged on", "approved by", "signed by"]
    rows = [[str(each[head.replace(" ", "_")] or "-") for head in heads[:-1]] for each in found]
    signers = [each["signed_by"][0][:12] if each["signed_by"] else "-" for each in found]
    head, *table = aligned([heads, *([*row, signer] for row, signer in zip(rows, signers, strict=True))])
    yield head
    for line, each in zip(table, found, strict=True):
        yield line
        yield from (f"  {reason}" for reason in each["reasons"])
        if each["tainted"]:
            yield f"  tainted: {each['tainted']}"


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
