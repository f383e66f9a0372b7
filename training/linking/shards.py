"""One shard of a data set version to its links: read, link, write; or find the links of an earlier call.

A shard's links are one file, and the file appears whole: its metadata hold what it was made by and the shard's counts,
so that a later call can take it over. `versions.py` lists the shards and writes the manifest when all are linked.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.documents import IMAGE_NUMBERS, SENTENCE_NUMBERS
from schemas.failures import FAILURE_SCHEMA, Failure, Reason, Stage
from schemas.lake import Folder
from schemas.manifest import FileEntry, Manifest
from schemas.messages import UsageError
from schemas.parts import Shard, read_part
from schemas.tables import records_table
from training.data.documents import DocumentSet
from training.data.lake import Unreadable
from training.data.loading import read_for_model
from training.linking.fitting import FittedSteps
from training.linking.links import LinkedDocument, Linker, LinkOptions, numbered, parquet_bytes
from training.linking.records import (
    LINK_SCHEMA,
    LINKED_SCHEMA,
    RELINKED_SCHEMA,
    DocumentLinks,
    LinkCounts,
    PredictedLink,
    TrueLink,
)
from training.linking.relinked import relinked_table
from training.metrics.links import score_documents
from training.model import LinkModel

NOTE = b"multilink.linking"
RELINKED = "relinked"
LINKS, DOCUMENTS, FAILURES = "links", "documents", "failures"
_ALL = range(2**31)  # numbers of parts of which none was left out
RELATION_FROM = 0.5  # probability at which a link counts as having a relation


@dataclass(frozen=True, slots=True, kw_only=True)
class Linking:
    """What all shards of one linking share.

    Attributes:
        manifest: of the data set version.
        folder: of it.
        output: where links go.
        model: URI of the model, with its version.
        options: how links are chosen, and what they carry.
        made_by: fingerprint of everything that decides which links a shard has.
        with_documents: whether the documents themselves are written, too, with the links they came with beside the
            predicted ones.
        fitted: steps that were chosen on the documents; None: the model's own.
    """

    manifest: Manifest
    folder: Folder
    output: Folder
    model: str
    options: LinkOptions
    made_by: str
    with_documents: bool = False
    fitted: FittedSteps | None = None

    @property
    def reference(self) -> str:
        """Return NAME@VERSION."""
        return self.manifest.reference

    def other_links(self, other: str) -> UsageError:
        """Return the error of an output that holds other links than this linking's."""
        expected = f"expected links of {self.model} on {self.reference}"
        return UsageError(f"--output {self.output.uri}: {expected}, found {other}; take another folder")


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedShard:
    """A shard that is linked.

    Attributes:
        shard: which one.
        counts: of its documents, links and failures.
        files: its links, the outcomes of its documents, and its failures where there are any.
    """

    shard: Shard
    counts: LinkCounts
    files: tuple[FileEntry, ...]


def link_shard(linking: Linking, model: LinkModel, shard: Shard) -> LinkedShard:
    """Link the documents of a shard; write its failures, the outcomes of its documents, and then its links.

    The ground truth is read to count wrong and missed links; the linker does not get it.
    """
    linked: dict[str, Sequence[PredictedLink]] = {}
    outcomes: list[DocumentLinks] = []
    cautions = Counter[str]()
    unreadable: list[Unreadable] = []
    card, where = model.card, (linking.manifest, linking.folder, shard.split)
    steps = None if linking.fitted is None else linking.fitted.steps
    linker = Linker(model=model, uri=linking.model, options=linking.options, dataset=linking.reference, steps=steps)
    documents = read_for_model(
        card.config.reading, card.data, *where, with_truth=True, shards=[shard], unreadable=unreadable
    )
    failures = [Failure(Stage.LINKING, each.id, Reason.UNREADABLE, each.problem) for each in unreadable]
    count = len(documents) + len(failures)
    numbers = read_part(linking.folder, shard.documents, ["id", SENTENCE_NUMBERS, IMAGE_NUMBERS]).to_pylist()
    numbers_of = {row["id"]: (row.get(SENTENCE_NUMBERS), row.get(IMAGE_NUMBERS)) for row in numbers}
    for number, outcome in enumerate(linker.link_set(replace(documents, links=None))):
        if isinstance(outcome, Failure):
            failures.append(outcome)
        else:
            linked[outcome.id] = outcome.links
            cautions.update([outcome.caution] if outcome.caution and outcome.links else ())
            outcomes.append(_outcome(outcome, documents, number, *numbers_of[outcome.id]))
    links = [
        link
        for each in outcomes
        for link in numbered(linked[each.document], each.sentence_numbers or _ALL, each.image_numbers or _ALL)
    ]
    reasons = dict(sorted(Counter(str(failure.reason) for failure in failures).items()))
    counts = LinkCounts(documents=count, links=len(links), failures=reasons, cautions=dict(sorted(cautions.items())))
    about = {"model": linking.model, "dataset": linking.reference, "made_by": linking.made_by}
    note = {NOTE: json.dumps(about | asdict(counts), sort_keys=True).encode()}
    tables = {FAILURES: records_table(failures, FAILURE_SCHEMA)} if failures else {}
    tables[DOCUMENTS] = records_table(outcomes, LINKED_SCHEMA)
    if linking.with_documents:
        table = read_part(linking.folder, shard.documents, RELINKED_SCHEMA.names)
        tables[RELINKED] = _noted(relinked_table(table, linked), note)
    tables[LINKS] = _noted(records_table(links, LINK_SCHEMA), note)  # last: its file is the sign that all are there
    if not failures:
        linking.output.delete(shard.path(FAILURES))
    files = tuple(_write(linking.output, shard.path(kind), table) for kind, table in tables.items())
    return LinkedShard(shard=shard, counts=counts, files=files)


def _outcome(
    linked: LinkedDocument,
    documents: DocumentSet,
    number: int,
    sentence_numbers: list[int] | None,
    image_numbers: list[int] | None,
) -> DocumentLinks:
    """Return the outcome of linking document `number` of some that were read with their links.

    How sure its links are, and which are wrong or were missed: the ground truth is compared with links that were chosen
    without it.
    """
    known = None if documents.links is None else documents.links[number]
    scores = score_documents([linked.similarities], [known]).table
    predicted = {(link.sentence, link.image) for link in linked.links}
    numbers = linked.sentence_numbers
    truth = None if known is None else {(int(numbers[row]), image) for row, image in known.tolist()}
    relations = {
        each.name for link in linked.links for each in link.relations or () if each.probability >= RELATION_FROM
    }
    return DocumentLinks(
        document=linked.id,
        language=(documents.languages or ())[number],
        sentences=len(numbers),
        images=linked.similarities.shape[1],
        links=len(predicted),
        wrong=None if truth is None else len(predicted - truth),
        missed=None if truth is None else len(truth - predicted),
        auc=float(scores[0, 0]) if len(scores) else None,
        confidence=linked.confidence,
        relations=tuple(sorted(relations)),
        truth=None
        if truth is None
        else tuple(
            TrueLink((sentence_numbers or _ALL)[text], (image_numbers or _ALL)[image]) for text, image in sorted(truth)
        ),
        sentence_numbers=sentence_numbers,
        image_numbers=image_numbers,
    )


def find_linked(linking: Linking, shard: Shard) -> LinkedShard | None:
    """Return a shard that was linked before by the same model and settings, or None: then it is to be linked.

    Raises:
        UsageError: its file is there and holds other links than this model's of this data set version.
    """
    output, path = linking.output, shard.path(LINKS)
    if not output.exists(path):
        return None
    data = {LINKS: output.read(path)}
    note = _read_note(data[LINKS])
    about = (note.get("model"), note.get("dataset"))
    if about != (linking.model, linking.reference):
        other = f"links of {about[0]} on {about[1]}" if all(about) else "another file"
        raise linking.other_links(f"{other} ({path})")
    if note["made_by"] != linking.made_by:
        return None
    counts = LinkCounts(**{name: note[name] for name in ("documents", "links", "failures", "cautions")})
    failed = sum(counts.failures.values())
    rows = {DOCUMENTS: counts.documents - failed, FAILURES: failed, RELINKED: counts.documents, LINKS: counts.links}
    kinds = [DOCUMENTS, *[FAILURES] * bool(failed), *[RELINKED] * linking.with_documents, LINKS]
    if not all(output.exists(shard.path(kind)) for kind in kinds):
        return None
    data |= {kind: output.read(shard.path(kind)) for kind in kinds if kind != LINKS}
    if linking.with_documents and _read_note(data[RELINKED]).get("made_by") != linking.made_by:
        return None
    files = tuple(_entry(shard.path(kind), data[kind], rows[kind]) for kind in kinds)
    return LinkedShard(shard=shard, counts=counts, files=files)


def _noted(table: pa.Table, note: Mapping[bytes, bytes]) -> pa.Table:
    """Return a table with a note in its metadata."""
    return table.replace_schema_metadata({**table.schema.metadata, **note})


def _write(output: Folder, path: str, table: pa.Table) -> FileEntry:
    data = parquet_bytes(table)
    output.write(path, data)
    return _entry(path, data, table.num_rows)


def _read_note(data: bytes) -> dict[str, Any]:
    """Return the note of a file of links or documents; nothing where it is none."""
    try:
        metadata = pq.read_schema(pa.BufferReader(data)).metadata or {}
    except pa.ArrowInvalid:
        return {}
    note: dict[str, Any] = json.loads(metadata.get(NOTE, b"{}"))
    return note


def _entry(path: str, data: bytes, rows: int) -> FileEntry:
    return FileEntry(path=path, bytes=len(data), sha256=hashlib.sha256(data).hexdigest(), rows=rows)
