"""What is stated of the rights of a version's documents and images, counted for its card.

When the card is written, these columns alone are read from the version's parts: no picture is, and no part is checked.
An image counts in each shard that has it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from schemas.documents import Split
from schemas.lake import Folder
from schemas.manifest import FileEntry, Manifest

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
            licences = pc.struct_field(_columns(folder, entry, "provenance")["provenance"], "licence")
            counts["documents by licence"] += _numbers(licences)
        for entry in manifest.parts("images", split):
            table = _columns(folder, entry, "licence", "rights")
            says_more = pc.is_valid(table["rights"])
            counts["images by licence"] += _numbers(table["licence"].filter(pc.invert(says_more)))
            for row in table.filter(says_more).to_pylist():
                for kind, statement in _of_image(row["licence"], row["rights"]):
                    counts[kind][statement] += 1
        counts = defaultdict(Counter, {kind: commonest(each, _HELD) for kind, each in counts.items()})
    return {kind: dict(commonest(each, MOST)) for kind, each in sorted(counts.items())}


def _columns(folder: Folder, entry: FileEntry, *names: str) -> pa.Table:
    with folder.open(entry.path) as stream:
        return pq.ParquetFile(stream, pre_buffer=True).read(columns=[*names], use_threads=False)


def _numbers(statements: pa.ChunkedArray) -> Counter[str]:
    """Return how often each statement comes."""
    numbers = Counter[str]()
    for each in pc.value_counts(statements).to_pylist():
        numbers[_short(each["values"])] += each["counts"]
    return numbers


def _of_image(licence: str | None, said: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what is stated of an image: its licence by its source, else by its file; and what else its file says."""
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
