"""One shard of a data set version to its links: read, link, write; or find that this was done before.

A shard's links are one file, and the file appears whole: its metadata say what it was made by and what came of the
shard, so that it needs nothing beside it to be taken over by a later call. Which shards there are, and what is written
when all are done, is `versions.py`'s.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from schemas.errors import UsageError
from schemas.failures import FAILURE_SCHEMA, Failure, Reason, Stage
from schemas.lake import Folder
from schemas.links import LINKED_SCHEMA, RELINKED_SCHEMA, DocumentLinks, LinkCounts, PredictedLink
from schemas.manifest import FileEntry, Manifest
from schemas.parts import read_part, split_parts
from schemas.tables import row_of, to_table
from training.data.lake import Unreadable
from training.data.loading import read_for_model
from training.linking.links import Linker, links_file, parquet_bytes
from training.linking.outcomes import outcome
from training.linking.relinked import relinked_table
from training.metrics.calibration import Calibration
from training.metrics.relations import RefineConfig
from training.model import LinkModel

NOTE = b"multilink.linking"
RELINKED = "relinked"
LINKS, DOCUMENTS, FAILURES = "links", "documents", "failures"


@dataclass(frozen=True, slots=True, kw_only=True)
class Linking:
    """What all shards of one linking share.

    Attributes:
        manifest: of the data set version.
        folder: of it.
        output: where links go.
        model: URI of the model, with its version.
        calibration: gives links their probability.
        precision: share of links that is to be true; None: all are kept.
        refine: by which refined similarities links are chosen; None: by the cosines.
        made_by: fingerprint of everything that decides which links a shard has.
        with_documents: whether the documents themselves are written, too, with the links they came with beside the
            predicted ones.
    """

    manifest: Manifest
    folder: Folder
    output: Folder
    model: str
    calibration: Calibration | None
    precision: float | None
    refine: RefineConfig | None
    made_by: str
    with_documents: bool = False

    @property
    def reference(self) -> str:
        return f"{self.manifest.dataset}@{self.manifest.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """Part `number` of a split, whose documents are in the file `<split>/<name>`."""

    split: str
    number: int
    name: str

    @property
    def links(self) -> str:
        """Return the path of its links, relative to the output."""
        return f"{LINKS}/{self.split}/{self.name}"

    @property
    def documents(self) -> str:
        """Return the path of what came of each of its documents, relative to the output."""
        return f"{DOCUMENTS}/{self.split}/{self.name}"

    @property
    def relinked(self) -> str:
        """Return the path of the documents themselves in a relinking, relative to the output."""
        return f"{RELINKED}/{self.split}/{self.name}"

    @property
    def failures(self) -> str:
        """Return the path of its failure rows, relative to the output."""
        return f"{FAILURES}/{self.split}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedShard:
    """What came of a shard.

    Attributes:
        shard: which one.
        counts: of its documents, links and failures.
        files: its links, what came of its documents, and its failures where there are any.
    """

    shard: Shard
    counts: LinkCounts
    files: tuple[FileEntry, ...]


def link_shard(model: LinkModel, linking: Linking, shard: Shard) -> LinkedShard:
    """Link the documents of a shard; write its failures, what came of its documents, and then its links.

    The ground truth is read to count what is wrong and missed; the linker is not shown it.

    One thread computes: sums of floating-point numbers depend on how many share them, and a shard's links are to be the
    same bytes wherever they are made.
    """
    links: list[PredictedLink] = []
    outcomes: list[DocumentLinks] = []
    failures: list[Failure] = []
    linked: dict[str, Sequence[PredictedLink]] = {}
    with one_thread():
        unreadable: list[Unreadable] = []
        card, place = model.card, (linking.manifest, linking.folder, shard.split)
        read = read_for_model(
            card.config, card.data, *place, with_truth=True, shards=[shard.number], unreadable=unreadable
        )
        failures += [Failure(Stage.LINKING, each.id, Reason.UNREADABLE, each.problem) for each in unreadable]
        documents = len(read) + len(failures)
        linker = Linker(
            model=model,
            uri=linking.model,
            calibration=linking.calibration,
            precision=linking.precision,
            refine=linking.refine,
        )
        for number, found in enumerate(linker.link_set(replace(read, links=None))):
            if isinstance(found, Failure):
                failures.append(found)
            else:
                links += found.links
                linked[found.id] = found.links
                outcomes.append(outcome(found, read, number))
    reasons = dict(sorted(Counter(str(failure.reason) for failure in failures).items()))
    counts = LinkCounts(documents=documents, links=len(links), failures=reasons)
    files = []
    if failures:
        data = parquet_bytes(to_table(map(row_of, failures), FAILURE_SCHEMA))
        files.append(_write(linking, shard.failures, data, len(failures)))
    else:
        linking.output.delete(shard.failures)
    data = parquet_bytes(to_table(map(row_of, outcomes), LINKED_SCHEMA))
    files.append(_write(linking, shard.documents, data, len(outcomes)))
    about = {"model": linking.model, "dataset": linking.reference, "made_by": linking.made_by}
    note = {NOTE: json.dumps(about | asdict(counts), sort_keys=True).encode()}
    if linking.with_documents:
        table = _relinked(linking, shard, linked)
        data = parquet_bytes(table.replace_schema_metadata({**table.schema.metadata, **note}))
        files.append(_write(linking, shard.relinked, data, table.num_rows))
    files.append(_write(linking, shard.links, links_file(links, note), len(links)))  # last: it says that all is done
    return LinkedShard(shard=shard, counts=counts, files=tuple(files))


def find_linked(linking: Linking, shard: Shard) -> LinkedShard | None:
    """Return a shard that was linked before by the same model and settings, or None: then it is to be linked.

    Raises:
        UsageError: its file is there and holds other links than this model's of this data set version.
    """
    if not linking.output.exists(shard.links):
        return None
    data = linking.output.read(shard.links)
    note = _read_note(data)
    about = (note.get("model"), note.get("dataset"))
    if about != (linking.model, linking.reference):
        found = f"links of {about[0]} on {about[1]}" if all(about) else "another file"
        raise UsageError(
            f"--output {linking.output.uri}: expected links of {linking.model} on {linking.reference}, found {found} "
            f"({shard.links}); take another folder"
        )
    if note["made_by"] != linking.made_by:
        return None
    counts = LinkCounts(documents=note["documents"], links=note["links"], failures=note["failures"])
    failed = sum(counts.failures.values())
    beside = {shard.documents: counts.documents - failed} | ({shard.failures: failed} if failed else {})
    if not all(map(linking.output.exists, beside)):
        return None
    files = [_entry(path, linking.output.read(path), rows) for path, rows in beside.items()]
    files.append(_entry(shard.links, data, counts.links))
    if linking.with_documents:
        relinked = linking.output.read(shard.relinked) if linking.output.exists(shard.relinked) else b""
        if not relinked or _read_note(relinked).get("made_by") != linking.made_by:
            return None
        files.append(_entry(shard.relinked, relinked, counts.documents))
    return LinkedShard(shard=shard, counts=counts, files=tuple(files))


def _relinked(linking: Linking, shard: Shard, links: Mapping[str, Sequence[PredictedLink]]) -> pa.Table:
    """Return the documents of a shard with their predicted links."""
    part, _ = split_parts(linking.manifest, shard.split)[shard.number]
    return relinked_table(read_part(linking.folder, part, RELINKED_SCHEMA.names), links)


def _write(linking: Linking, path: str, data: bytes, rows: int) -> FileEntry:
    linking.output.write(path, data)
    return _entry(path, data, rows)


def _read_note(data: bytes) -> dict[str, Any]:
    """Return what a file of links says of itself; nothing where it is none."""
    try:
        metadata = pq.read_schema(pa.BufferReader(data)).metadata or {}
    except pa.ArrowInvalid:
        return {}
    note: dict[str, Any] = json.loads(metadata.get(NOTE, b"{}"))
    return note


def _entry(path: str, data: bytes, rows: int) -> FileEntry:
    return FileEntry(path=path, bytes=len(data), sha256=hashlib.sha256(data).hexdigest(), rows=rows)


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute in one thread while the block lasts: the sums of several depend on how many there are."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
