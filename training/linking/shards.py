"""One shard of a data set version to its links: read, link, write; or find the links of an earlier call.

A shard's links are one file, and the file appears whole: its metadata hold what it was made by and the shard's counts,
so that a later call can take it over. `versions.py` lists the shards and writes the manifest when all are linked.

Weights of the steps at link time are chosen again on the documents that are linked, without a link. A model's weight of
class names is that of its training data. On pictures of another kind another one may rank own images better, and the
documents may have an order that those of the training did not have. What is chosen is clear of chance, or stays as it
was.
"""

import copy
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import chain, islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from schemas.documents import IMAGE_NUMBERS, SENTENCE_NUMBERS
from schemas.failures import FAILURE_SCHEMA, Failure, Reason, Stage
from schemas.lake import Folder
from schemas.manifest import FileEntry, Manifest
from schemas.messages import IntegrityError, UsageError
from schemas.parts import Shard, read_part, split_parts
from schemas.tables import records_table
from training.closed_form.plans import BINS, Order
from training.data.documents import DocumentSet, GivenDocument, joined
from training.data.lake import Unreadable
from training.data.loading import read_for_model
from training.data.ragged import Float32
from training.data.threads import one_thread
from training.link_steps import LinkSteps
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
from training.loop.epoch import ENOUGH_TO_RANK, RETRIEVAL_POOL
from training.loop.link_steps import NAMES_WEIGHTS, few_enough, learn_order, shares_behind
from training.metrics.links import score_documents
from training.model import LinkModel
from training.parts import LinkSettings
from training.shards import filled_splits

WEIGHTS = (*NAMES_WEIGHTS, 3.2, 6.4, 12.8)
ERRORS = 2.0  # standard errors by which own images have to rank better


@dataclass(frozen=True, slots=True)
class FittedSteps:
    """Steps that were chosen on the documents that are linked, and what changed, in words."""

    steps: LinkSteps
    words: str

    def to_json(self) -> dict[str, Any]:
        """Return the numbers that were chosen, for fingerprints."""
        chosen = {"weights": self.steps.weights, "levels": self.steps.levels, "order": self.steps.order}
        return {name: None if each is None else each.tolist() for name, each in chosen.items()}


def fitted(
    linker: Linker, given: Iterable[GivenDocument | Failure]
) -> tuple[Linker, str, Iterator[GivenDocument | Failure]]:
    """Return a linker for a user's documents, what was chosen on the first `RETRIEVAL_POOL` in words, and all of them.

    Nothing is chosen, and the words are empty, where the linker's options forbid it (`LinkOptions.can_fit`).
    """
    remaining = iter(given)
    first = list(islice(remaining, RETRIEVAL_POOL)) if linker.options.can_fit else []
    usable = [each for each in first if isinstance(each, GivenDocument)]
    chosen = None
    with suppress(UsageError, IntegrityError):  # of a document: a failure of it alone, where it is linked
        chosen = fit_steps(linker.model, linker.model.read(usable)) if usable else None
    if chosen is not None:
        linker = replace(linker, steps=chosen.steps)
    return linker, "" if chosen is None else chosen.words, chain(first, remaining)


def fit_version(model: LinkModel, manifest: Manifest, folder: Folder) -> FittedSteps | None:
    """Return steps for the documents of a data set version, chosen on its first; None where the model's own stay.

    They stay for versions of the data set that the model was trained on: there they were chosen in training.

    Raises:
        UsageError: the version lacks what the model reads.
    """
    card, read = model.card, list[DocumentSet]()
    if manifest.dataset == card.data.dataset:
        return None
    for shard in (each for split in filled_splits(manifest) for each in split_parts(manifest, split)):
        where = (manifest, folder, shard.split)
        read.append(
            read_for_model(card.config.reading, card.data, *where, with_truth=True, shards=[shard], unreadable=[])
        )
        if sum(map(len, read)) >= RETRIEVAL_POOL:
            break
    with one_thread():
        return fit_steps(model, joined(read)) if read else None


def fit_steps(model: LinkModel, documents: DocumentSet) -> FittedSteps | None:
    """Return steps for documents like these; None where the model's own stay: of few documents, or by chance alone.

    Args:
        model: that links.
        documents: as the model reads them; the first `RETRIEVAL_POOL` with sentences, images and finite vectors count.

    Raises:
        UsageError: the documents lack what the model reads.
    """
    n, m = documents.sentences.counts, documents.images.counts
    usable = np.flatnonzero((n > 0) & (m > 0) & documents.are_finite)[:RETRIEVAL_POOL]
    usable = usable[: few_enough(n[usable], m[usable])]
    if len(usable) < ENOUGH_TO_RANK:
        return None
    documents = documents.take_documents(usable)
    texts, images = (rows.cpu().numpy() for rows in model.encode(documents))
    steps = copy.deepcopy(model.steps) or LinkSteps(LinkSettings(), model.card.config.dimensions)
    changes = [_fit_names(model, steps, documents, texts, images)]
    if documents.sources is None:  # else a document is one row, which has no place
        changes.append(_fit_order(model, steps, documents))
    words = "; ".join(filter(None, changes))
    return FittedSteps(steps, words) if words else None


def _fit_names(model: LinkModel, steps: LinkSteps, documents: DocumentSet, texts: Float32, images: Float32) -> str:
    """Choose the weight of class names by the rank of own images; return what changed, or nothing."""
    names = steps.namer(documents)(slice(None), np.arange(len(images)))
    if names is None or not names.std():
        return ""
    before, level = tuple(steps.weights.tolist()), float(steps.levels[1])
    unit = float((texts @ images.T).std() / names.std())
    tried = [before, *((before[0], unit * weight) for weight in WEIGHTS)]
    steps.levels[1] = float(names.mean())
    own, *others = shares_behind(model, steps, [documents], tried)
    gains = [each - own for each in others]
    best = int(np.argmax([gain.mean() for gain in gains])) if len(own) else 0
    if not len(own) or not gains[best].mean() > ERRORS * gains[best].std(ddof=1) / np.sqrt(len(own)):
        steps.levels[1] = level
        return ""
    steps.weights.copy_(torch.tensor(tried[1 + best]))
    return f"class names of weight {tried[1 + best][1]:.2g} in place of {before[1]:.2g}"


def _fit_order(model: LinkModel, steps: LinkSteps, documents: DocumentSet) -> str:
    """Learn the order of the documents, where they show one; return what it is, or nothing."""
    order = Order(log_weights=torch.zeros(BINS), is_tested=True)
    learn_order(model, (documents.take_documents([number]) for number in range(len(documents))), order)
    if not order.log_weights.any():
        return ""
    steps.order = order.log_weights
    return order.words


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
