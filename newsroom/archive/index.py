"""An index in files: its parts, the index of another version, all of it on this machine, and opened.

A part is some of the rows, in files that are written once. An index is read where it lies, or fetched from an object
store. Its files are compared with the digests of the manifest once a machine: those of the same size and time are not
read again. What was fetched stays in the machine's cache (`training/data/mapped.py`), which its processes share.

Its confidence says how sure the result of a search is. It is fitted on validation texts that were searched for in the
index itself. How likely the best of a million pictures is right has nothing to do with how likely a link inside a
document is: the larger an archive, the more wrong pictures are as near as the right one. So each index has its own
numbers, made when the index is: every validation text with known links is searched for among all pictures. They hold
for an index of that size and for texts like those: sentences of the data set, searched by similarity alone, without a
filter.
"""

import math
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from newsroom.archive.filters import WORDS as DESCRIBED
from newsroom.archive.records import Records, write_table
from newsroom.archive.vectors import RERANKED, Stacked, Vectors, fused
from newsroom.archive.words import write_words
from schemas.configs import JsonFile
from schemas.documents import Split
from schemas.indexes import (
    CELLS,
    CONFIDENCE,
    FIELDS,
    FIELDS_SCHEMA,
    MODEL,
    PARTS,
    PLACES,
    VECTORS,
    WORDS,
    IndexManifest,
)
from schemas.lake import MANIFEST, Folder, Lake
from schemas.manifest import Manifest
from schemas.messages import IntegrityError, NotFoundError
from schemas.parts import sampled
from schemas.versions import digest_stream, fingerprint
from training.data.mapped import cache_folder
from training.data.ragged import Bool, Float32, Floats, UInt64
from training.evaluation.evaluate import POOL_DOCUMENTS, has_links
from training.loop.context import choose_device
from training.metrics.curves import ProbabilityCurve, fit_curve
from training.model import LinkModel
from training.shards import embed_split

FIRST = 10  # pictures of a result
ORDERS = ("visual", "lexical", "fused")
MOST_QUERIES = 2_000  # that are searched for
STRENGTHS = (1 / 3, 2 / 3)  # of known texts: from these shares on a picture is fair, and strong
FEWEST_DOCUMENTS = 20  # whose texts are needed


Strength = Literal["weak", "fair", "strong"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Confidence(JsonFile):
    """Probabilities of a search result.

    Attributes:
        texts: NAME@VERSION and split that the texts are of.
        images: pictures of the index.
        queries: texts that were searched for.
        found: of these, those with a right picture among the first ten.
        any_of_first: probability that one of the first ten pictures is right, by the highest cosine.
        pictures: probability that one of the first ten is right, by its own cosine.
        reciprocal_ranks: mean of the texts by each order of pictures, 0 to 1. Words are those of titles and captions
            by file or archive, never the captions that articles have for a picture: those are among the texts.
    """

    what: ClassVar[str] = "probabilities of a search"
    texts: str
    images: int
    queries: int
    found: int
    any_of_first: ProbabilityCurve
    pictures: ProbabilityCurve
    reciprocal_ranks: Mapping[str, float] = field(default_factory=dict)

    @property
    def rank_by(self) -> str:
        """Return the order that finds the texts' pictures best; of equal ones the first of ORDERS."""
        return max(ORDERS, key=lambda order: self.reciprocal_ranks.get(order, 0.0))

    def strengths(self, cosines: Floats) -> list[Strength]:
        """Return a word for each picture: how often known texts had the right one where their nearest was as near.

        It says whether text and picture go together. How likely a picture is the only right one is another question:
        of ten pictures of tractors, each is so with 10% at most.

        Args:
            cosines: of pictures with a text.
        """
        words: tuple[Strength, ...] = ("weak", "fair", "strong")
        return [words[step] for step in np.digitize(self.any_of_first.probability(cosines), STRENGTHS).tolist()]

    def lines(self) -> list[str]:
        """Return what it was fitted on."""
        return [
            f"of {self.queries} texts of {self.texts}, {self.found} have a right picture among the first {FIRST} of "
            f"{self.images}: results have a probability",
            "mean reciprocal rank of these texts: "
            + ", ".join(f"{order} {100 * self.reciprocal_ranks[order]:.1f}" for order in ORDERS),
        ]


def fit_confidence(
    model: LinkModel, manifest: Manifest, source: Folder, records: Records, vectors: Vectors
) -> Confidence | None:
    """Return the probabilities of results of an index; None without validation texts whose pictures are known.

    Args:
        model: of the index.
        manifest: of the data set version.
        source: its folder.
        records: pictures of the index.
        vectors: theirs.
    """
    if not manifest.parts("documents", Split.VAL):
        return None
    searches = list(_searches(model, sampled(manifest, POOL_DOCUMENTS), source, records, vectors))
    if len({number for number, *_ in searches}) < FEWEST_DOCUMENTS:
        return None
    _, cosines, are_right, reciprocal = zip(*searches, strict=True)
    are_found, best = np.array([each.any() for each in are_right]), np.array([each[0] for each in cosines])
    return Confidence(
        texts=f"{manifest.reference}, split {Split.VAL}",
        images=records.count,
        queries=len(searches),
        found=int(are_found.sum()),
        any_of_first=fit_curve(best, are_found),
        pictures=fit_curve(np.concatenate(cosines), np.concatenate(are_right)),
        reciprocal_ranks={by: round(float(np.mean([each[by] for each in reciprocal])), 4) for by in ORDERS},
    )


def _searches(
    model: LinkModel, manifest: Manifest, source: Folder, records: Records, vectors: Vectors
) -> Iterator[tuple[int, Floats, Bool, Mapping[str, float]]]:
    """Yield what was found for each validation text whose pictures are known.

    The number of its document, the cosines of the first pictures, which of them it is linked to, and by each order the
    reciprocal rank of the first picture that it is linked to; 0 beyond RERANKED.
    """
    documents, embedded = embed_split(model, manifest, source, Split.VAL)
    if not has_links(documents):
        return
    known = [(number, links) for number, links in enumerate(documents.links or ()) if links is not None and len(links)]
    linked = [(number, row, links) for number, links in known for row in np.unique(links[:, 0]).tolist()]
    for number, row, links in linked[:: max(1, len(linked) // MOST_QUERIES)]:
        images = documents.image_rows[documents.images.rows(number)][links[links[:, 0] == row, 1]]
        right = records.rows_named([documents.image_hashes[image] for image in images])
        visual = vectors.nearest(embedded[number].texts[row], RERANKED)
        place = int(np.arange(len(documents.texts))[documents.sentences.rows(number)][row])
        text = documents.texts[place] if documents.sources is None else " ".join(documents.sources[place])
        lexical = records.words.rank(text, RERANKED, fields=DESCRIBED)
        orders = zip(ORDERS, (visual, lexical, fused(visual, lexical)), strict=True)
        reciprocal = {by: 1 / ranking.rank_of_first(right) for by, ranking in orders}
        yield number, visual.scores[:FIRST], np.isin(visual.rows[:FIRST], right), reciprocal


PART_ROWS = 500_000
MOST_GROWN = 8  # parts that later versions added
MOST_GONE = 0.1  # of all rows
_DAMAGED = "{}/{}: {}; remove the folder and make the index again"
_WHOLE = "whole"  # a file that says that all others were checked
_BETWEEN = "\x1f"  # keywords, which are in one line each


def write_part(tables: Sequence[pa.Table], vectors: Sequence[Float32], folder: Path) -> tuple[str, UInt64]:
    """Write rows in order of their keys as a part; return its name, which is a digest of it, and the keys.

    Args:
        tables: rows of `FIELDS_SCHEMA`, values not numbered yet.
        vectors: of these.
        folder: of all parts.
    """
    table = pa.concat_tables(tables).combine_chunks()
    keys: UInt64 = table.column("key").to_numpy()
    order, target = np.argsort(keys), folder / "part"
    target.mkdir(parents=True)
    np.save(target / VECTORS, np.concatenate(vectors)[order])
    rows = table.take(order)
    columns = [
        rows.column(each.name).dictionary_encode() if pa.types.is_dictionary(each.type) else rows.column(each.name)
        for each in FIELDS_SCHEMA
    ]
    write_table(pa.table(columns, FIELDS_SCHEMA), target / FIELDS)
    with (target / FIELDS).open("rb") as stream:
        digest = digest_stream(stream)
    write_words(rows, target / WORDS, digest[:32])
    target.rename(folder / digest[:16])
    return digest[:16], keys[order]


@dataclass(frozen=True, slots=True)
class Earlier:
    """The index of another version, whose parts become parts of a new one.

    Attributes:
        folder: where it is.
        manifest: of it.
        here: its folder on this machine.
        records: its pictures.
        vectors: theirs.
    """

    folder: Folder
    manifest: IndexManifest
    here: Path
    records: Records
    vectors: Stacked

    def have(self, table: pa.Table, rows: np.ndarray) -> Bool:
        """Return of each row of a table whether the same is known in a row here, of the same picture."""
        there, same = self.records.take(rows), np.ones(len(rows), bool)
        for name in FIELDS_SCHEMA.names:
            new, old = _comparable(table.column(name)), _comparable(there.column(name))
            same &= pc.coalesce(pc.equal(new, old), pc.and_(new.is_null(), old.is_null())).to_numpy()
        return same


def _comparable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_list(column.type):
        return pc.binary_join(column, _BETWEEN)
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def find_earlier(
    lake: Lake, manifest: Manifest, name: str, rows_by: str, *, keys: UInt64, accepts: Callable[[Folder], bool]
) -> Earlier | None:
    """Return the newest index of another version whose rows are those that an index of this one would have.

    None where too many of its rows would be of no use, or its parts are too many to search them fast.

    Args:
        lake: that holds both.
        manifest: of the version that is to be indexed.
        name: of the model, by which indexes are named.
        rows_by: see `IndexManifest`.
        keys: of all pictures of the version.
        accepts: whether the files of an index may be used for another.
    """
    found = []
    for other in lake.root.child("indexes", manifest.dataset).names():
        folder = lake.index(manifest.dataset, other, name)
        there = index_manifest(folder)
        is_like_it = other != manifest.version and there is not None and there.rows_by == rows_by
        if is_like_it and there is not None and accepts(folder):
            found.append((folder.stamp(MANIFEST)[1], other, folder, there))
    if not found:
        return None
    _, _, folder, there = max(found, key=lambda each: each[:2])
    here = on_this_machine(folder, there)
    parts = [here / PARTS / part for part in there.parts]
    records = Records.open(parts, here / PLACES)
    used = int((records.rows_with(keys) >= 0).sum())
    grown = len(parts) - math.ceil(there.rows / PART_ROWS)
    if used < (1 - MOST_GONE) * there.rows or grown >= MOST_GROWN:
        return None
    vectors = Stacked([np.load(part / VECTORS, mmap_mode="r", allow_pickle=False) for part in parts])
    return Earlier(folder, there, here, records, vectors)


def index_manifest(folder: Folder) -> IndexManifest | None:
    """Return the manifest of an index, None where there is none in the format of today."""
    with suppress(IntegrityError, FileNotFoundError):
        return IndexManifest.from_json(folder.read(MANIFEST).decode(), where=folder.uri)
    return None


def on_this_machine(folder: Folder, manifest: IndexManifest) -> Path:
    """Return a local folder with all files of an index.

    Raises:
        IntegrityError: one is missing or damaged.
    """
    infos, stamps = folder.infos(), list[object]()
    for entry in manifest.files:
        info = infos.get(entry.path)
        if info is None or info.size != entry.bytes:
            raise IntegrityError(_DAMAGED.format(folder.uri, entry.path, "missing or cut short"))
        stamps.append([entry.path, entry.sha256, info.mtime_ns])
    cache = cache_folder(f"index-{fingerprint([folder.uri, stamps])[:32]}")
    home = Path(folder.local) if folder.local is not None else cache
    if not (cache / _WHOLE).exists():
        for entry in manifest.files:
            path = home / entry.path
            if folder.local is None and not path.exists():
                copy_file(entry.path, folder, Folder(str(home)))
            with path.open("rb") as stream:
                if digest_stream(stream) != entry.sha256:
                    raise IntegrityError(_DAMAGED.format(folder.uri, entry.path, "damaged, by its SHA-256"))
        (cache / _WHOLE).touch()
    return home


def copy_file(name: str, source: Folder, target: Folder) -> None:
    """Copy a file of a folder into another; several processes may do so at once."""
    with source.open(name) as stream, target.create(name) as sink:
        shutil.copyfileobj(stream, sink.stream, 1 << 20)
        sink.commit()


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """What `search` searches; may be used by several threads.

    Attributes:
        manifest: what it is.
        model: reads the queries.
        confidence: gives results their probability; None: they have none.
        records: the pictures.
        vectors: theirs, row by row.
    """

    manifest: IndexManifest
    model: LinkModel
    confidence: Confidence | None
    records: Records
    vectors: Vectors


def index_folder(uri: str) -> Folder:
    """Return the folder of an index.

    Raises:
        NotFoundError: no index is there.
    """
    folder = Folder(uri if "://" in uri else str(Path(uri).absolute()))
    if not folder.exists(MANIFEST):
        raise NotFoundError(
            f"--index {uri}: expected the folder of an index, found no {MANIFEST}; `multilink index` makes one"
        )
    return folder


def open_index(uri: str, check: Callable[[Folder, bytes, IndexManifest, Path], None] | None = None) -> Index:
    """Return the index in a folder; one on an object store is fetched into the cache of this machine first.

    Args:
        uri: of the folder.
        check: raises an error where the index may not be used, by its folder, its manifest as it was read, the same
            parsed, and the folder on this machine.

    Raises:
        NotFoundError: no index is there.
        IntegrityError: it is not whole, or of another release's format.
    """
    folder = index_folder(uri)
    text = folder.read(MANIFEST)
    try:
        manifest = IndexManifest.from_json(text.decode(), where=uri)
    except IntegrityError as problem:
        raise IntegrityError(f"{problem}; `multilink index` makes it again") from problem
    home = on_this_machine(folder, manifest)
    if check is not None:
        check(folder, text, manifest, home)
    parts, confidence = [home / PARTS / part for part in manifest.parts], home / CONFIDENCE
    records = Records.open(parts, home / PLACES)
    cells, probes = (home / CELLS, manifest.cells.probes) if manifest.cells else (None, 0)
    return Index(
        manifest=manifest,
        model=LinkModel.load(home / MODEL, choose_device()),
        confidence=Confidence.from_json(confidence.read_text(encoding="utf-8"), where=uri)
        if confidence.is_file()
        else None,
        records=records,
        vectors=Vectors.open([part / VECTORS for part in parts], records.live, cells, probes),
    )
