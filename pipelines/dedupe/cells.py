"""The pieces that a cluster compares: a bucket of equal keys, or, where it is crowded, two blocks of it.

A bucket of B codes is cut into ceil(B / BUCKET_CODES) blocks by a hash of the code. Each pair of blocks i <= j is a
cell: the pairs between the two, or within the one:

    4 blocks      00 01 02 03        10 cells; a code of block 1 goes into 01, 11, 12 and 13
                     11 12 13
                        22 23
                           33

A cell is labelled `<choice of bands>:<key>` and, for blocks, `:<blocks>:<i>:<j>`. Plain functions;
`transforms` wires them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from pipelines.dedupe.bands import WORD_BITS, shuffled_bands
from pipelines.dedupe.buckets import near_between, near_in_buckets
from pipelines.dedupe.hamming import parse_fingerprints

BUCKET_CODES = 4096  # two blocks of it: 33 million pairs, a tenth of a second


class Code(NamedTuple):
    """A distinct fingerprint, and the image that stands for its look."""

    fingerprint: str
    image: str


class NearCodes(NamedTuple):
    """Two looks within the radius, by the images that stand for them."""

    first: str
    second: str
    distance: int


def keys_of(codes: Sequence[Code], *, radius: int) -> Iterator[tuple[str, Code]]:
    """Yield `<choice>:<key>` and code, for every code and choice of bands; fingerprints are of one length."""
    words = parse_fingerprints([code.fingerprint for code in codes])
    bands = shuffled_bands(words.shape[1] * WORD_BITS, radius)
    permuted = bands.permute(words)
    for choice in range(len(bands.choices)):
        for key, code in zip(bands.keys(permuted, choice).tolist(), codes, strict=True):
            yield f"{choice}:{key:x}", code


def cells_of(
    keyed: tuple[str, Code], crowded: Mapping[str, int], bucket_codes: int = BUCKET_CODES
) -> Iterator[tuple[str, Code]]:
    """Yield the cells of a bucket that a code belongs to, and the code.

    Args:
        keyed: label of the bucket, and the code.
        crowded: number of codes of each bucket that has more than `bucket_codes`.
        bucket_codes: codes of a block, on average at most.
    """
    label, code = keyed
    blocks = -(-crowded.get(label, 0) // bucket_codes)
    if blocks < 2:
        yield keyed
        return
    own = _block_of(code, blocks)
    for other in range(blocks):
        yield f"{label}:{blocks}:{min(own, other)}:{max(own, other)}", code


def compare_cell(label: str, codes: Sequence[Code], *, radius: int) -> Iterator[NearCodes]:
    """Yield the pairs within the radius that this cell reports: over all cells, each pair once.

    Args:
        label: of the cell; of a bucket cut into blocks it names two.
        codes: of the cell, distinct, in any order.
        radius: in bits.
    """
    if len(codes) < 2:
        return
    choice, first, second = _parts(label, codes)
    both = [*first, *(second or ())]
    words = parse_fingerprints([code.fingerprint for code in both])
    bands = shuffled_bands(words.shape[1] * WORD_BITS, radius)
    permuted = bands.permute(words)
    if second is not None:
        near = near_between(permuted, len(first), bands=bands, choice=choice)
    else:
        near = near_in_buckets(permuted, np.array([[0, len(both)]]), bands=bands, choice=choice)
    for (one, other), distance in zip(near.pairs.tolist(), near.distances.tolist(), strict=True):
        yield NearCodes(both[one].image, both[other].image, distance)


def _parts(label: str, codes: Sequence[Code]) -> tuple[int, list[Code], list[Code] | None]:
    """Return the choice of bands, and the codes to compare: of the cell's two blocks, or all and None."""
    choice, _, *cut = label.split(":")
    blocks, first, second = (int(part) for part in cut or ("1", "0", "0"))
    if first == second:
        return int(choice), list(codes), None
    of_first = [code for code in codes if _block_of(code, blocks) == first]
    return int(choice), of_first, [code for code in codes if _block_of(code, blocks) == second]


def _block_of(code: Code, blocks: int) -> int:
    digest = hashlib.blake2b(code.fingerprint.encode(), digest_size=8).digest()
    return int.from_bytes(digest) % blocks
