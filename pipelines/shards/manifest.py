"""What a build did, put together as its manifest, and the name of its version."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import accumulate
from operator import attrgetter
from typing import Any, NamedTuple

import pyarrow as pa

from pipelines.features.extraction import FeaturePlan
from pipelines.images.inspect import blas_kind, fingerprint_libraries
from pipelines.settings import FingerprintName
from pipelines.splits.shared import leak_counts
from pipelines.transforms import stage_table
from schemas import parts
from schemas.codecs import picture_libraries
from schemas.configs import Json
from schemas.documents import Document, Split, document_schema, image_schema
from schemas.duplicates import DUPLICATE_SCHEMA, LEAK_SCHEMA, NEAR_COPY_SCHEMA
from schemas.failures import FAILURE_SCHEMA, Failure, Stage
from schemas.manifest import COPIES, Manifest, SplitStatistics, version_name
from schemas.raw import UNREACHED
from schemas.tables import TABLE, schema_version
from schemas.versions import canonical_json, content, reached_digest

TABLES = {
    "failures": FAILURE_SCHEMA,
    UNREACHED: FAILURE_SCHEMA,
    "duplicates": DUPLICATE_SCHEMA,
    "near-copies": NEAR_COPY_SCHEMA,
    "leaks": LEAK_SCHEMA,
}
_SCHEMAS = (document_schema(), image_schema(), *TABLES.values())
_DIGESTS = 1 << 256


def build_identity(
    config: Mapping[str, Any], extractors: Iterable[tuple[str, str]], modules: Iterable[str]
) -> dict[str, Any]:
    """Return all that decides what a build makes of what it reads: settings, extractors, code, libraries, schemas.

    Args:
        config: the settings that change what is built.
        extractors: names and fingerprints.
        modules: those that the build begins with; what they import counts.
    """
    inputs = {"code": reached_digest(*modules)}
    inputs |= {f"extractors.{name}": value for name, value in extractors}
    pyarrow = f"{pa.__version__} {pa.cpp_build_info.package_kind}".strip()  # brings a zstd of its own
    libraries = {"pyarrow": pyarrow, **picture_libraries()}
    libraries |= fingerprint_libraries(FingerprintName(config["dedupe"]["fingerprint"]))
    if config["copy_detection"]["extractor"]:
        libraries |= {"blas": blas_kind()}
    inputs |= {f"libraries.{name}": version for name, version in libraries.items()}
    return {
        "config": config,
        "inputs": inputs,
        "schema_versions": {schema.metadata[TABLE].decode(): schema_version(schema) for schema in _SCHEMAS},
    }


def version_of_build(identity: Mapping[str, Any], digest: int) -> str:
    """Return the version of a build: a fingerprint of what decides it (`build_identity`) and of what it read."""
    return version_name(**_with_records(identity, digest))


def content_digest(item: Document | Failure) -> int:
    """Return the SHA-256 of a document, or of a failure, as a number; luck and the versions of libraries aside."""
    if isinstance(item, Failure):
        item = item.lasting
        parts: Json = [str(item.stage), item.record_id, item.image, str(item.reason), item.message]
    else:
        parts = content(item)
    return int.from_bytes(hashlib.sha256(canonical_json(parts).encode()).digest(), "big")


def add_digests(digests: Iterable[int]) -> int:
    """Return the digest of a multiset: the same number whatever the order."""
    return sum(digests) % _DIGESTS


def compose_manifest(
    identity: Mapping[str, Any],
    features: FeaturePlan,
    stages: Collection[str],
    facts: Mapping[str, Sequence[Any]],
    *,
    copies: str,
) -> Manifest:
    """Return the manifest of a finished build, transient reasons still apart (`Manifest.lasting`).

    Args:
        identity: what decided it (`build_identity`).
        features: its feature columns.
        stages: that were on.
        copies: name of the folder of its copies.
        facts: what it knows of itself, whose number does not grow with the documents'. Each is a list, in any order:
            `digest`, the one number of all that was read; `files`, entries of tables; `shards`, their summaries;
            and numbers of things: `unique_images` of splits, of `duplicates` and `near-copies` as `count_duplicates`
            names them, `passed` and `recounted` of `count_passed`, `lost` of `count_lost`, `leaks` of `ListLeaks`,
            `sizes` of shards' documents.
    """
    known = defaultdict(list, facts)
    (digest,), shards = known["digest"], sorted(known["shards"], key=attrgetter("entries"))
    deciding = _with_records(identity, digest)
    sizes: dict[str, Counter[DocumentSize]] = {split: Counter() for split in Split}
    unique, reasons = Counter(dict(known["unique_images"])), Counter[str]()
    for (split, size), number in known["sizes"]:
        sizes[split][size] += number
    for (_, reason), number in known["lost"]:
        reasons[reason] += number
    alike, near = Counter(dict(known["duplicates"])), Counter(dict(known["near-copies"]))
    copied = {"near_copies": {"images": near["images"], "clusters": near["clusters"]}}
    return Manifest(
        dataset=deciding["config"]["dataset"],
        version=version_name(**deciding),
        files=tuple(sorted([*known["files"], *(entry for shard in shards for entry in shard.entries)])),
        splits={str(split): summarise(counted, unique[split]) for split, counted in sizes.items()},
        failures=dict(sorted(reasons.items())),
        stages=stage_table(stages, known["passed"], known["lost"], known["recounted"]),
        features={"images": features.images, "documents": features.sentences},
        notes={
            "leaks": leak_counts(known["leaks"]),
            COPIES: copies,
            parts.NOTE: parts.noted(shard.ranges for shard in shards),
            "near_duplicates": {"pictures": alike["occurrences"], "left": alike["left"]},
            **(copied if Stage.COPY_DETECTION in stages else {}),
        },
        **deciding,
    )


def _with_records(identity: Mapping[str, Any], digest: int) -> dict[str, Any]:
    return {**identity, "inputs": {**identity["inputs"], "records": f"{digest:064x}"}}


class DocumentSize(NamedTuple):
    """Sentences, images and links of one document (`links` is None where they are unknown), and images with a place."""

    sentences: int
    images: int
    links: int | None
    placed: int = 0


def size_of(document: Document) -> DocumentSize:
    links = None if document.links is None else len({(link.sentence, link.image) for link in document.links})
    placed = sum(place is not None for place in document.after_sentence)
    return DocumentSize(len(document.sentences), len(document.images), links, placed)


def summarise(sizes: Mapping[DocumentSize, int], unique_images: int) -> SplitStatistics:
    """Return the statistics of a split; density is averaged over the documents whose links are known.

    Args:
        sizes: how many documents have each size.
        unique_images: how many different images they show.
    """
    documents = sum(sizes.values())
    texts, images, links = Counter[int](), Counter[int](), Counter[int]()
    density, known = Fraction(), 0
    for size, count in sizes.items():
        texts[size.sentences] += count
        images[size.images] += count
        if size.links is not None:
            links[size.links] += count
            density += Fraction(size.links / (size.sentences * size.images)) * count  # exact: in any order
            known += count
    return SplitStatistics(
        documents=documents,
        images=_total(images),
        sentences=_total(texts),
        unique_images=unique_images,
        median_sentences=_median(texts),
        median_images=_median(images),
        mean_sentences=round(_total(texts) / max(1, documents), 6),
        mean_images=round(_total(images) / max(1, documents), 6),
        max_sentences=max(texts, default=0),
        max_images=max(images, default=0),
        links=_total(links),
        documents_with_known_links=known,
        density=round(float(density) / known, 6) if known else None,
        placed_images=sum(size.placed * count for size, count in sizes.items()),
    )


def _total(counts: Mapping[int, int]) -> int:
    return sum(value * count for value, count in counts.items())


def _median(counts: Mapping[int, int]) -> float:
    """Return the median of values, each so many times; 0 where there are none."""
    values = sorted(counts)
    ends = list(accumulate(counts[value] for value in values))
    middle = ((ends[-1] - 1) // 2, ends[-1] // 2) if ends else ()
    return sum(values[bisect_right(ends, place)] for place in middle) / 2
