"""Who was champion of a registered model, from when to when, by which decision, and on which data.

Read from the chain of statements (`champions.py`), which only grows: a version that was deleted since is still listed,
and an alias that was set by hand is not. Also who approved a version, which a policy may require (`policy.py`).
"""

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from itertools import zip_longest

import mlflow

from schemas.console import aligned
from schemas.errors import GateError, UsageError
from training.mlflow.champions import ChampionEntry, append_statement, champion_log
from training.mlflow.provenance import APPROVED
from training.mlflow.registry import APPROVED_TAG, ModelVersion, find_model, find_version, versions
from training.mlflow.runs import DATASET_TAG, VERSION_TAG
from training.mlflow.taints import taint_of

PROMOTED, ROLLED_BACK = "promotion", "rollback"


@dataclass(frozen=True, slots=True, kw_only=True)
class Championship:
    """A time during which one version was the champion.

    Attributes:
        model: registered model.
        version: of it.
        since: when it became champion, ISO 8601 in UTC.
        until: when another did; empty: it still is.
        replaced: the champion before; empty: there was none.
        by: `promotion` or `rollback`.
        trained_on: NAME@VERSION of the data it was trained on; empty where the version was deleted.
        judged_on: NAME@VERSION of the data it was judged on; empty for a rollback.
        split: of `judged_on`.
        documents: of it that were scored; 0 for a rollback.
        approved_by: who approved it; empty: no approval was needed.
        reasons: why it was promoted, a sentence each.
        signed_by: ids of the keys that claim to have signed the statement on it; empty: nobody has.
        tainted: why it is tainted; empty: it is not, or the version was deleted.
    """

    model: str
    version: str
    since: str
    until: str
    replaced: str
    by: str
    trained_on: str
    judged_on: str
    split: str
    documents: int
    approved_by: str
    reasons: tuple[str, ...]
    signed_by: tuple[str, ...]
    tainted: str


def championships(client: mlflow.MlflowClient, name: str) -> list[Championship]:
    """Return who was champion, the first one first; empty where nobody was promoted.

    Raises:
        NotFoundError: there is no such model.
    """
    model = find_model(client, name)
    there = {each.version: each for each in versions(client, f"name = '{model.name}'")}
    entries = champion_log(client, model.name)[1:]
    return [
        _championship(model.name, entry, after, there.get(entry.champions[0]))
        for entry, after in zip_longest(entries, entries[1:])
    ]


def _championship(
    name: str, entry: ChampionEntry, after: ChampionEntry | None, version: ModelVersion | None
) -> Championship:
    tags: Mapping[str, str] = {} if version is None else version.tags
    why = None if version is None else taint_of(version)
    decision = json.loads(entry.decision or "{}")
    is_known = {DATASET_TAG, VERSION_TAG} <= tags.keys()
    return Championship(
        model=name,
        version=entry.champions[0],
        since=_time(entry),
        until="" if after is None else _time(after),
        replaced=decision.get("champion_before") or "",
        by=ROLLED_BACK if decision.get("is_rollback") else PROMOTED,
        trained_on=f"{tags[DATASET_TAG]}@{tags[VERSION_TAG]}" if is_known else "",
        judged_on=decision.get("dataset", ""),
        split=decision.get("split", ""),
        documents=decision.get("documents", 0),
        approved_by=decision.get("approved_by", ""),
        reasons=tuple(decision.get("reasons", [])),
        signed_by=entry.signed_by,
        tainted="" if why is None else str(why),
    )


def _time(entry: ChampionEntry) -> str:
    return datetime.fromtimestamp(entry.since_ms / 1000, UTC).isoformat(timespec="seconds")


def to_csv(found: Sequence[Championship]) -> str:
    """Return them as CSV, with a line of column names; reasons are separated by ` | `."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, [each.name for each in fields(Championship)])
    writer.writeheader()
    writer.writerows(
        asdict(each) | {"reasons": " | ".join(each.reasons), "signed_by": " ".join(each.signed_by)} for each in found
    )
    return text.getvalue()


def lines(found: Sequence[Championship]) -> Iterator[str]:
    """Yield a table of them, and under each what it was decided by."""
    rows = [["since", "version", "replaced", "by", "judged on", "approved by", "signed by"]]
    for each in found:
        shown = (each.replaced, each.by, each.judged_on, each.approved_by, each.signed_by and each.signed_by[0][:12])
        rows.append([each.since, each.version, *(cell or "-" for cell in shown)])
    head, *table = aligned(rows)
    yield head
    for line, each in zip(table, found, strict=True):
        yield line
        yield from (f"  {reason}" for reason in each.reasons)
        if each.tainted:
            yield f"  tainted: {each.tainted}"


def approve(client: mlflow.MlflowClient, name: str, version: str, *, by: str) -> ModelVersion:
    """Record who approves a version: a statement, and its tag `approved_by`. The alias moves when it is promoted next.

    Raises:
        NotFoundError: there is no such model or version.
        UsageError: no name is given.
        GateError: another person has approved it already.
    """
    if not by.strip():
        raise UsageError("--by: expected the name of a person")
    found = find_version(client, name, version)
    before = found.tags.get(APPROVED_TAG, by.strip())
    if before != by.strip():
        raise GateError(f"{found.uri} is approved by {before} already")
    if APPROVED_TAG not in found.tags:
        append_statement(client, found, APPROVED, {"approved_by": by.strip()})
    client.set_model_version_tag(found.name, found.version, APPROVED_TAG, by.strip())
    return found
