"""Documents as ragged arrays: what is in memory of one split, or of one worker's shards of it.

Nothing here reads a file (`reading.py` does). Shape suffixes: D documents, N sentences, M image places, U different
images, L links, t and v dimensions of a sentence and an image vector.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]
Float16 = npt.NDArray[np.float16]
Float32 = npt.NDArray[np.float32]
Vectors = Float16 | Float32  # float16, or float32 where the data set stores vectors as float32 or int8


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionBank:
    """Detected regions of U images: those of image `u` are rows `offsets[u]:offsets[u + 1]`.

    Attributes:
        offsets: U + 1 offsets, int64.
        labels: R labels ("traffic light").
        vectors: R x d, float16.
        boxes: R x 4, float32: left, top, right, bottom, as shares of the picture's width and height.
        scores: R, float32: the detector's certainty of the label.
    """

    offsets: Int64
    labels: tuple[str, ...]
    vectors: Float16
    boxes: Float32
    scores: Float32


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassBank:
    """The K most probable classes of U images, the most probable first.

    Attributes:
        labels: U times K labels ("" beyond an image's last class).
        probabilities: U x K, float32 (0 beyond an image's last class).
    """

    labels: tuple[tuple[str, ...], ...]
    probabilities: Float32


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentSet:
    """Documents with their sentences and images, in part and row order.

    Sentences of document `d` are rows `sentence_offsets[d]:sentence_offsets[d + 1]` of `texts` and `sentence_vectors`;
    its images are `image_bank[image_rows[image_offsets[d]:image_offsets[d + 1]]]`.

    Attributes:
        ids: D document ids.
        texts: N sentences.
        sentence_offsets: D + 1 offsets, int64.
        sentence_vectors: N x t, or None where no sentence extractor was asked for.
        image_rows: M rows of the bank, int64.
        image_offsets: D + 1 offsets, int64.
        image_hashes: U content hashes, one a bank row.
        image_bank: U x v: every different image once.
        image_sets: D keys; two documents with equal keys hold the same set of images.
        links: per document, L x 2 (sentence, image) indices, or None where unknown; None as a whole: not read.
        roles: N roles of the sentences; () as a whole: not read.
        languages: D language codes; () as a whole: not read.
        sources: N tuples of texts, one a fused role ("" where the document has none); None: rows are single sentences.
        regions: of the U bank images; None: not read.
        classes: of the U bank images; None: not read.
        image_jpegs: U JPEG files; None: not read.
        relations: per document, the relations of its first link by name, None where unknown; empty without a link;
            None as a whole: not read.
    """

    ids: tuple[str, ...]
    texts: tuple[str, ...]
    sentence_offsets: Int64
    sentence_vectors: Vectors | None
    image_rows: Int64
    image_offsets: Int64
    image_hashes: tuple[str, ...]
    image_bank: Vectors
    image_sets: tuple[str, ...]
    links: tuple[Int64 | None, ...] | None = None
    roles: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()
    sources: tuple[tuple[str, ...], ...] | None = None
    regions: RegionBank | None = None
    classes: ClassBank | None = None
    image_jpegs: tuple[bytes, ...] | None = None
    relations: tuple[Mapping[str, bool | None], ...] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def sentence_counts(self) -> Int64:
        """Return the D numbers of sentences."""
        return np.diff(self.sentence_offsets)

    @property
    def image_counts(self) -> Int64:
        """Return the D numbers of images."""
        return np.diff(self.image_offsets)


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitIndex:
    """What every worker knows of every document of a split, whoever holds it; all in part and row order.

    Attributes:
        ids: D document ids.
        image_sets: D image-set keys.
        shards: D shard numbers (position of the part in the split), int64.
        sentence_counts: D numbers of sentences, int64.
        image_counts: D numbers of images, int64.
    """

    ids: tuple[str, ...]
    image_sets: tuple[str, ...]
    shards: Int64
    sentence_counts: Int64
    image_counts: Int64

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def sentence_offsets(self) -> Int64:
        """Return the D + 1 bounds of each document's sentences among those of the split."""
        return offsets_of(self.sentence_counts)

    @property
    def image_offsets(self) -> Int64:
        """Return the D + 1 bounds of each document's images among those of the split."""
        return offsets_of(self.image_counts)

    @property
    def usable(self) -> Int64:
        """Return the positions of the documents that have at least one sentence and one image."""
        return np.flatnonzero((self.sentence_counts > 0) & (self.image_counts > 0))

    def same_image_set(self, positions: Int64) -> npt.NDArray[np.bool_]:
        """Return B x B: whether two of the given documents hold the same set of images (true on the diagonal)."""
        keys: dict[str, int] = {}
        numbers = np.array([keys.setdefault(self.image_sets[p], len(keys)) for p in positions], dtype=np.int64)
        return np.equal(numbers[:, None], numbers[None, :])


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldSplit:
    """A split as one worker sees it: the index of all of it, and the documents of its own shards.

    Attributes:
        index: every document of the split.
        documents: the documents this worker holds.
        local: D_index rows of `documents`, int64; -1 where another worker holds the document.
        shown_links: per document of the index its L x 2 links, None where they are not shown; None as a whole unless
            the objective is supervised. (`documents.links` are for evaluation: training never looks at them.)
    """

    index: SplitIndex
    documents: DocumentSet
    local: Int64
    shown_links: tuple[Int64 | None, ...] | None = None

    def links_at(self, positions: Int64) -> tuple[Int64 | None, ...] | None:
        """Return the shown links of the documents at some index positions."""
        return None if self.shown_links is None else tuple(self.shown_links[position] for position in positions)

    def held(self, positions: Int64) -> Int64:
        """Return which of the given index positions this worker holds, as places in `positions`."""
        return np.flatnonzero(self.local[positions] >= 0)


def image_set_key(hashes: Sequence[str]) -> str:
    """Return the key of a set of images: the SHA-256 of their sorted different content hashes."""
    return hashlib.sha256("\n".join(sorted(set(hashes))).encode()).hexdigest()


def join_regions(banks: Sequence[RegionBank]) -> RegionBank:
    """Return the regions of several groups of images as one bank, group after group."""
    vectors = [bank.vectors for bank in banks if len(bank.vectors)]
    return RegionBank(
        offsets=offsets_of(np.concatenate([np.zeros(0, np.int64), *(np.diff(bank.offsets) for bank in banks)])),
        labels=tuple(label for bank in banks for label in bank.labels),
        vectors=np.concatenate(vectors) if vectors else np.zeros((0, 0), np.float16),
        boxes=np.concatenate([np.zeros((0, 4), np.float32), *(bank.boxes for bank in banks)]),
        scores=np.concatenate([np.zeros(0, np.float32), *(bank.scores for bank in banks)]),
    )


def take_regions(bank: RegionBank, images: Int64) -> RegionBank:
    """Return the regions of some images of a bank, in the given order."""
    rows = ragged_positions(bank.offsets, images)
    return RegionBank(
        offsets=offsets_of(np.diff(bank.offsets)[images]),
        labels=tuple(bank.labels[row] for row in rows),
        vectors=bank.vectors[rows],
        boxes=bank.boxes[rows],
        scores=bank.scores[rows],
    )


def ragged_positions(offsets: Int64, rows: Int64) -> Int64:
    """Return the flat positions of the given ragged rows, one row after the other.

    offsets 0 2 5 6, rows 2 0  ->  5 | 0 1
    """
    starts, counts = offsets[rows], offsets[rows + 1] - offsets[rows]
    shifts = np.repeat(starts - (np.cumsum(counts) - counts), counts)
    return shifts + np.arange(int(counts.sum()), dtype=np.int64)


def offsets_of(counts: Sequence[int] | Int64) -> Int64:
    """Return the offsets (one more than counts, from 0) of ragged rows of the given lengths."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(np.asarray(counts, np.int64), dtype=np.int64)])
