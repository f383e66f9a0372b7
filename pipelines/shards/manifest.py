"""What a build did, put together as its manifest; and the name of its version."""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from pipelines.counts import stage_table
from pipelines.features.extraction import FeaturePlan
from pipelines.shards.statistics import DocumentSize, summarise
from pipelines.splits.leaks import LeakCount
from schemas.codecs import picture_libraries
from schemas.configs import Json
from schemas.documents import Document, Split, document_schema, image_schema
from schemas.duplicates import DUPLICATE_SCHEMA, LEAK_SCHEMA
from schemas.failures import FAILURE_SCHEMA, Failure
from schemas.manifest import Manifest, version_name
from schemas.tables import TABLE, schema_version
from schemas.versions import canonical_json, code_digest, code_version, content

_SCHEMAS = (document_schema(), image_schema(), FAILURE_SCHEMA, DUPLICATE_SCHEMA, LEAK_SCHEMA)
_DIGESTS = 1 << 256


def build_identity(config: Mapping[str, Json], extractors: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Return all that decides what a build makes of what it reads: settings, extractors, code, libraries, schemas.

    Args:
        config: the settings that change what is built.
        extractors: names and fingerprints.
    """
    inputs = {"code": code_digest("schemas", "pipelines")}
    inputs |= {f"extractors.{name}": value for name, value in extractors}
    pyarrow = f"{pa.__version__} {pa.cpp_build_info.package_kind}".strip()  # brings a zstd of its own
    libraries = {"pyarrow": pyarrow, **picture_libraries()}
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
        told: Json = [str(item.stage), item.record_id, str(item.reason), item.message]
    else:
        told = content(item)
    return int.from_bytes(hashlib.sha256(canonical_json(told).encode()).digest(), "big")


def add_digests(digests: Iterable[int]) -> int:
    """Return the digest of a multiset: the same number whatever the order."""
    return sum(digests) % _DIGESTS


def compose_manifest(
    identity: Mapping[str, Any], features: FeaturePlan, facts: Mapping[str, Sequence[Any]]
) -> Manifest:
    """Return the manifest of a finished build.

    Args:
        identity: what decided it (`build_identity`).
        features: its feature columns.
        facts: what it knows of itself, whose number does not grow with the documents'. Each is a list, in any order:
            `digest`, the one number of all that was read; `files`, entries of tables; `shards`, their summaries;
            `unique_images`, (split, number) in parts; `reasons`, (reason, number of failures); `explained`, (reason,
            its commonest `Message`); `stages`, (stage, field, number); `leaks` and `heeded_leaks`, `LeakCount`s.
    """
    known = defaultdict(list, facts)
    (digest,) = known["digest"]
    deciding = _with_records(identity, digest)
    sizes: dict[str, Counter[DocumentSize]] = {split: Counter() for split in Split}
    for shard in known["shards"]:
        sizes[shard.split].update(shard.sizes)
    unique: Counter[str] = Counter()
    for split, number in known["unique_images"]:
        unique[split] += number
    return Manifest(
        dataset=deciding["config"]["dataset"],
        version=version_name(**deciding),
        files=tuple(sorted([*known["files"], *(entry for shard in known["shards"] for entry in shard.entries)])),
        splits={str(split): summarise(counted, unique[split]) for split, counted in sizes.items()},
        failures=dict(sorted(known["reasons"])),
        stages=stage_table(known["stages"]),
        features={"images": features.images, "documents": features.sentences},
        code_version=code_version(),
        notes={
            "failures": {reason: message._asdict() for reason, message in sorted(known["explained"])},
            "leaks": _counts(known["leaks"]),
            "heeded_leaks": _counts(known["heeded_leaks"]),
        },
        **deciding,
    )


def _with_records(identity: Mapping[str, Any], digest: int) -> dict[str, Any]:
    return {**identity, "inputs": {**identity["inputs"], "records": f"{digest:064x}"}}


def _counts(leaks: Iterable[LeakCount]) -> list[dict[str, Any]]:
    return [dataclasses.asdict(count) for count in sorted(leaks)]
