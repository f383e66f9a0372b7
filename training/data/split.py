"""A split as training reads it: any documents of it, in any order, by every worker of a host from the same memory.

A shard is read, checked and written as Arrow arrays of the host (`mapped.py`) when its first document is asked for;
after that it is mapped. Nothing of a split is held but its index.

The index has of every document where its rows are, and its image set: 32 bytes, in one file a host that all its workers
map. It is made of two narrow columns, part by part in several threads, in no more memory than it has. Bytes of parts
are not checked: whoever reads documents checks those of their part, and the counts.

A batch is `b + 1` documents, each the others' negative: the same in the same order for any number of workers, since it
depends on the seed, the epoch and the split's index alone. No list of an epoch is kept: of a large split, documents
come a window of some shards at a time.
"""

import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import lru_cache, partial
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from schemas.configs import Json
from schemas.documents import Split
from schemas.lake import Folder
from schemas.manifest import FileEntry, Manifest
from schemas.messages import IntegrityError
from schemas.parts import split_parts
from schemas.versions import fingerprint
from training.data.documents import ALL_SENTENCES, DocumentSet, TextView, joined, viewed
from training.data.lake import HASHES, ROLES, Columns, read_split
from training.data.mapped import Arrays, cache_folder, content_of, from_arrays, make_room, mapped, numbers, to_arrays
from training.data.ragged import Bool, Int64, Ragged, UInt64, hash_keys, set_keys, stream

WINDOW = 65_536  # documents that are shuffled together; of a larger split, those of shards drawn at random
PASSED_OVER = 1024  # documents that a batch waits for at most


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitIndex:
    """The D documents of a split, in part and row order.

    Attributes:
        shards: which documents are of which of the S shards.
        sentences: which sentences of the split are of which document, in the view that is read.
        images: which image places of the split are of which document.
        image_sets: D keys; two documents with equal keys hold the same set of images.
        usable: positions of the documents that have at least one sentence and one image, rising.
    """

    shards: Ragged
    sentences: Ragged
    images: Ragged
    image_sets: UInt64
    usable: Int64

    def __len__(self) -> int:
        return len(self.images)

    def same_image_set(self, positions: Int64) -> Bool:
        """Return B x B: whether two of the given documents hold the same set of images (true on the diagonal)."""
        keys = self.image_sets[positions]
        return np.equal(keys[:, None], keys[None, :])


def read_index(manifest: Manifest, folder: Folder, split: Split | str, *, view: TextView = ALL_SENTENCES) -> SplitIndex:
    """Return the index of a split, in memory."""
    return index_of(manifest, split, index_arrays(manifest, folder, split, view=view))


def index_of(manifest: Manifest, split: Split | str, arrays: Arrays) -> SplitIndex:
    """Return the index over the arrays that `index_arrays` gave."""
    columns = {name: numbers(array) for name, array in arrays.items()}
    return SplitIndex(
        shards=Ragged.of([documents.rows for documents, _ in split_parts(manifest, split)]),
        sentences=Ragged(columns["sentences"]),
        images=Ragged(columns["images"]),
        image_sets=columns["image_sets"],
        usable=columns["usable"],
    )


def index_arrays(manifest: Manifest, folder: Folder, split: Split | str, *, view: TextView) -> Arrays:
    """Return the arrays of a split's index, read from its documents parts.

    Raises:
        NotFoundError: the split is not there.
        IntegrityError: a part is not there, or has another number of rows.
    """
    entries = [documents for documents, _ in split_parts(manifest, split)]
    starts = np.cumsum([0, *(entry.rows for entry in entries)]).tolist()
    sentences, images, usable = (np.zeros(starts[-1] + 1, np.int64) for _ in range(3))
    image_sets = np.zeros(starts[-1], np.uint64)

    def read(numbers: range) -> None:
        for number in numbers:
            table, rows = _narrow(folder, entries[number]), slice(starts[number], starts[number + 1])
            roles, texts = _flat(table.column("sentences"), "role")
            hashes, shown = _flat(table.column("images"), "hash")
            sentences[1:][rows], images[1:][rows] = view.counts(roles, texts), shown.counts
            image_sets[rows] = set_keys(hash_keys(hashes), shown)

    threads = os.cpu_count() or 1
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(read, (range(first, len(entries), threads) for first in range(threads))))
    count = 0
    for start, stop in pairwise(starts):  # part by part, and in place: nothing else is as long as the split
        rows = slice(start + 1, stop + 1)
        positions = start + np.flatnonzero((sentences[rows] > 0) & (images[rows] > 0))
        usable[count : count + len(positions)] = positions
        count += len(positions)
        for offsets in (sentences, images):
            offsets[rows] = offsets[start] + np.cumsum(offsets[rows])
    columns = {"sentences": sentences, "images": images, "image_sets": image_sets, "usable": usable[:count]}
    return {name: pa.array(values) for name, values in columns.items()}


def _narrow(folder: Folder, entry: FileEntry) -> pa.Table:
    """Return what the index is made of, of one part."""
    try:
        with folder.open(entry.path) as stream:
            table = pq.ParquetFile(stream).read(columns=[HASHES, ROLES])
    except (OSError, pa.ArrowException) as problem:
        raise IntegrityError(f"{folder.uri}/{entry.path}: cannot be read: {problem}") from problem
    if table.num_rows != entry.rows:
        raise IntegrityError(f"{entry.path}: {table.num_rows} rows, the manifest has {entry.rows}")
    return table


def _flat(column: pa.ChunkedArray, field: str) -> tuple[pa.Array, Ragged]:
    """Return a field of the items of all rows, and which items are of which row."""
    lists = column.combine_chunks()
    items = lists.flatten()
    return items.field(field), Ragged.of(pc.list_value_length(lists).to_numpy())


def batch_count(index: SplitIndex, *, negative_documents: int) -> int:
    """Return how many batches an epoch has: what is left over is dropped, unless it is all there is."""
    return max(1, len(index.usable) // (negative_documents + 1))


def training_batches(index: SplitIndex, *, negative_documents: int, seed: int, epoch: int) -> Iterator[Int64]:
    """Yield the batches of an epoch as index positions, each of `negative_documents + 1` documents.

    Documents of one image set are kept out of one another's batches where that can be done, so that each has all its
    negatives. What is left over at the end is dropped, unless it is all there is.
    """
    size, total = negative_documents + 1, len(index.usable)
    coming: deque[tuple[int, int]] = deque()
    for positions in _windows(index, seed, epoch):
        if total <= size:
            yield positions
            return
        while len(coming) >= size + PASSED_OVER:
            yield _draw(coming, size)
        coming.extend(zip(positions.tolist(), index.image_sets[positions].tolist(), strict=True))
    while len(coming) >= size:
        yield _draw(coming, size)


def validation_bounds(documents: int, *, negative_documents: int) -> Int64:
    """Return where each fixed batch of usable documents begins, and where the last ends.

    Fewer than two documents at the end join the batch before.
    """
    cuts = np.arange(0, documents, negative_documents + 1)
    if len(cuts) > 1 and documents - cuts[-1] < 2:
        cuts = cuts[:-1]
    return np.append(cuts, documents)


def _windows(index: SplitIndex, seed: int, epoch: int) -> Iterator[Int64]:
    """Yield all usable positions, shuffled: at once, or of a large split those of some shards at a time.

    So an epoch reads every shard once, and few of them at a time.
    """
    usable, shards = index.usable, index.shards
    if len(usable) <= WINDOW:
        yield usable[stream("batches", seed, epoch).permutation(len(usable))]
        return
    order = stream("batches", seed, epoch).permutation(len(shards))
    bounds = np.searchsorted(usable, shards.offsets)
    ends = np.cumsum(shards.sizes(order)) - 1
    for number, window in enumerate(np.split(order, np.flatnonzero(np.diff(ends // WINDOW)) + 1)):
        positions = np.concatenate([usable[bounds[shard] : bounds[shard + 1]] for shard in window])
        yield positions[stream("batches", seed, epoch, number).permutation(len(positions))]


def _draw(coming: deque[tuple[int, int]], size: int) -> Int64:
    """Take `size` documents of different image sets from the front; those passed over stay at the front.

    Where a batch cannot be filled, it takes the first of those that were passed over.
    """
    batch: list[int] = []
    passed: deque[tuple[int, int]] = deque()
    taken: set[int] = set()
    while coming and len(batch) < size and len(passed) < max(PASSED_OVER, size):
        position, image_set = coming.popleft()
        if image_set in taken:
            passed.append((position, image_set))
        else:
            batch.append(position)
            taken.add(image_set)
    batch += [passed.popleft()[0] for _ in range(size - len(batch))]
    coming.extendleft(reversed(passed))
    return np.array(batch, dtype=np.int64)


CACHE_FORMAT = 3
MOST_OPEN = 16_384  # shards; the system maps 65,530 files of a process
SAMPLED_DOCUMENTS = 200_000


@dataclass(kw_only=True)
class TrainingSplit:
    """A split of a data set version that is trained on, or that a training is judged by.

    Attributes:
        manifest: of the version.
        folder: of the version.
        split: its name.
        columns: what is read of it.
        view: which sentences are read.
        labelled_share: share of the documents whose links are shown to the objective; 0: none.
        seed: of the choice of those documents.
        index: of all documents.

    Raises:
        NotFoundError: the split is not there.
        ConfigError: a named extractor is not there.
        IntegrityError: a part is not there.
    """

    manifest: Manifest
    folder: Folder
    split: Split
    columns: Columns
    view: TextView
    labelled_share: float = 0.0
    seed: int = 0
    index: SplitIndex = field(init=False)

    def __post_init__(self) -> None:
        self.columns = self.columns.resolved(self.manifest)
        self._parts = split_parts(self.manifest, self.split)
        make_room(cache_folder())
        make = partial(index_arrays, self.manifest, self.folder, self.split, view=self.view)
        name = _name((shard.documents for shard in self._parts), asdict(self.view))
        self.index = index_of(self.manifest, self.split, mapped(name, make))
        # Batches come from a window of shards, and while it ends from the next one's.
        in_two_windows = 2 + 2 * WINDOW * len(self._parts) // max(1, len(self.index))
        self._open = lru_cache(min(MOST_OPEN, in_two_windows + in_two_windows // 4))(self._map)

    def documents(self, positions: Int64) -> DocumentSet:
        """Return the documents at some positions of the index, in the given order, with the images they show.

        Raises:
            IntegrityError: a part is damaged, or a document cannot be read: an image or a vector is missing.
            UsageError: an image has no picture, where pictures are read.
        """
        shards = np.searchsorted(self.index.shards.offsets, positions, side="right") - 1
        order = np.argsort(shards, kind="stable")
        numbers, starts = np.unique(shards[order], return_index=True)
        groups = zip(numbers.tolist(), np.split(order, starts[1:]), strict=True)
        firsts = self.index.shards.offsets
        parts = [self._open(number).take_documents(positions[rows] - firsts[number]) for number, rows in groups]
        documents = joined(parts)
        return viewed(documents if len(parts) == 1 else documents.take_documents(np.argsort(order)), self.view)

    def links_shown(self, documents: DocumentSet) -> tuple[Int64 | None, ...] | None:
        """Return the links that are shown of some documents, None where they are not; None unless some are."""
        if not self.labelled_share or documents.links is None:
            return None
        pairs = zip(documents.ids, documents.links, strict=True)
        return tuple(
            links if is_labelled(id_, share=self.labelled_share, seed=self.seed) else None for id_, links in pairs
        )

    def shard(self, number: int) -> DocumentSet:
        """Return the documents of a shard; raises as `documents`."""
        return viewed(self._open(number), self.view)

    def _map(self, number: int) -> DocumentSet:
        """Return all documents of a shard, every sentence of them, over memory that is mapped."""
        shard = self._parts[number]
        read = partial(read_split, self.manifest, self.folder, self.split, self.columns, shards=[shard])
        documents = from_arrays(mapped(_name(shard, asdict(self.columns)), lambda: to_arrays(read())))
        first = self.index.shards.rows(number).start
        offsets = self.index.images.offsets[first : first + len(documents) + 1]
        if not np.array_equal(documents.images.offsets, offsets - offsets[0]):
            raise IntegrityError(f"{shard.documents.path}: its documents have other images than when they were counted")
        return documents


def _name(parts: Iterable[FileEntry], read: Json) -> str:
    """Return the name under which this host keeps what was read of some parts: by their bytes, and by what was read."""
    return f"{content_of(parts)}-{fingerprint([CACHE_FORMAT, read])[:16]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Some whole shards of a split, as a worker's share of what statistics are taken from: all of a small split.

    Attributes:
        split: the split.
        shards: their numbers.
    """

    split: TrainingSplit
    shards: tuple[int, ...]

    def __iter__(self) -> Iterator[DocumentSet]:
        """Yield the documents, shard by shard, in the view that is read."""
        return map(self.split.shard, self.shards)


def sample(split: TrainingSplit, *, seed: int, rank: int, world_size: int) -> Sample:
    """Return worker `rank`'s share of the sample: shards in a random order until they hold `SAMPLED_DOCUMENTS`.

    The shards of all workers, by rank, are those of the sample in the order of the split.
    """
    counts = split.index.shards.counts
    order = stream("sample", seed).permutation(len(counts))
    taken = int(np.searchsorted(np.cumsum(counts[order]), SAMPLED_DOCUMENTS)) + 1
    return Sample(split=split, shards=tuple(np.array_split(np.sort(order[:taken]), world_size)[rank].tolist()))


def is_labelled(document: str, *, share: float, seed: int) -> bool:
    """Return whether a document is of the labelled share; one that is, is of every larger share, too."""
    return float(stream("labelled", seed, document).random()) < share
