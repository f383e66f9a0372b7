"""What is stated of the rights of a version's documents and images, counted for its card.

It is read from the version's parts when the card is written. An image counts in each shard that has it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from schemas.documents import Split
from schemas.lake import Folder
from schemas.manifest import Manifest
from schemas.parts import read_part

NOT_STATED = "not stated"
OTHERS = "others"
MOST = 50  # statements of a kind that are listed
_LONG = 120  # characters of a statement
_HELD = 100 * MOST  # while they are counted: of more, rare ones go to the others


def count_rights(manifest: Manifest, folder: Folder) -> dict[str, dict[str, int]]:
    """Return of each kind of statement how many documents or images state what; the rarest are summed up."""
    counts = defaultdict[str, Counter[str]](Counter)
    for split in Split:
        for entry in manifest.parts("documents", split):
            for row in read_part(folder, entry, ["provenance"]).to_pylist():
                counts["documents by licence"][_short(row["provenance"]["licence"])] += 1
        for entry in manifest.parts("images", split):
            for row in read_part(folder, entry, ["licence", "rights"]).to_pylist():
                for kind, statement in _of_image(row["licence"], row.get("rights")):
                    counts[kind][statement] += 1
        counts = defaultdict(Counter, {kind: commonest(each, _HELD) for kind, each in counts.items()})
    return {kind: dict(commonest(each, MOST)) for kind, each in sorted(counts.items())}


def _of_image(licence: str | None, rights: Mapping[str, Any] | None) -> Iterator[tuple[str, str]]:
    """Yield what is stated of an image: its licence by its source, else by its file; and what else its file says."""
    said = rights or {}
    yield "images by licence", _short(licence or said.get("licence"))
    for kind in ("creator", "credit", "copyright"):
        if said.get(kind):
            yield "images that name", kind
    claim = said.get("claim") or {}
    if claim:
        yield "images by C2PA claim", "intact" if claim["is_intact"] else "broken"
    for use in claim.get("training") or ():
        yield "images by use in C2PA claim", _short(use)
    for kind, value in (
        ("images by digital source type", said.get("source_type")),
        ("images by PLUS data mining", said.get("data_mining")),
        ("images by digital source type in C2PA claim", claim.get("source_type")),
    ):
        if value:
            yield kind, _short(value)


def _short(statement: str | None) -> str:
    return (statement or NOT_STATED)[:_LONG]


def commonest(numbers: Counter[str], most: int) -> Counter[str]:
    """Return the most frequent of some statements, of equals the first by name, and the rest as one."""
    named = sorted(numbers.keys() - {OTHERS}, key=lambda each: (-numbers[each], each))
    kept = Counter({each: numbers[each] for each in named[:most]})
    return kept + Counter({OTHERS: numbers.total() - kept.total()})
