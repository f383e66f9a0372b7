"""The manifest of a data set version: the only thing a reader trusts.

It lists every file with its size, rows and SHA-256, says which configuration, inputs, code and schema versions made
them, and holds the statistics of Hessel 2019's table 1 per split. It is written last; without it a version does not
exist. It holds no clock time, so that equal builds have equal manifests.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Any, ClassVar, Literal

import pyarrow as pa

from schemas.configs import JsonFile
from schemas.documents import Split
from schemas.failures import TRANSIENT, Reason
from schemas.features import FeatureColumn, FeatureKind
from schemas.lake import MANIFEST, Folder, Lake, check_name, inner_path
from schemas.messages import IntegrityError
from schemas.overrides import flatten
from schemas.tables import read_columns
from schemas.versions import digest_stream, fingerprint

VERSION_DIGITS = 16
COPIES = "copies"  # of the notes: the folder in `images/` that a version's pictures were copied to
_KEPT = 48  # manifests that a process keeps parsed
CARDS = ("README.md", "croissant.json")  # beside the files of a version: written from its manifest, and no part of it
FEWEST_JUDGED = 20  # documents of a split, below which a mean over it says little


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class FileEntry:
    """One file of the version: path relative to the version's folder, bytes, SHA-256 (hex), rows (0: no table)."""

    path: str
    bytes: int
    sha256: str
    rows: int

    def __post_init__(self) -> None:
        inner_path(self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitStatistics:
    """The row of Hessel 2019's table 1 for one split.

    `density` is links over sentence-image pairs, averaged over documents with known links (None where there is none).
    `placed_images` are those of which it is known where they stand among the sentences.
    """

    documents: int
    images: int
    sentences: int
    unique_images: int
    median_sentences: float
    median_images: float
    mean_sentences: float
    mean_images: float
    max_sentences: int
    max_images: int
    links: int
    documents_with_known_links: int
    density: float | None
    placed_images: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest(JsonFile):
    """What a version is.

    Attributes:
        version: `version_name` of config, inputs and schema versions.
        failures: how many failure rows there are of each reason.
        stages: how many elements went in and out of each stage, were rejected, and failed.
        config: the settings that change what is built.
        inputs: what else decides it: digests of what was read, of the code, of extractors; versions of libraries.
        notes: counts of leaks (`leaks`); how many pictures had a near-duplicate, and how many of them are left beside
            it (`near_duplicates`); where their copies are (`copies`).
        features: the feature columns of `images` and of `documents`, each sorted.
    """

    what: ClassVar[str] = "the manifest of a data set version"
    dataset: str
    version: str
    files: tuple[FileEntry, ...]
    splits: Mapping[str, SplitStatistics]
    failures: Mapping[str, int]
    stages: Mapping[str, Mapping[str, int]]
    config: Mapping[str, Any]
    inputs: Mapping[str, str]
    schema_versions: Mapping[str, int]
    format: Literal[1] = 1
    notes: Mapping[str, Any] = field(default_factory=dict)
    features: Mapping[str, tuple[FeatureColumn, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_name(self.dataset)
        check_name(self.version)

    @property
    def reference(self) -> str:
        """Return NAME@VERSION."""
        return f"{self.dataset}@{self.version}"

    @property
    def lasting(self) -> Manifest:
        """Return what a build knows as a version has it: which transient reason a failure had is luck."""
        failures = Counter[str]()
        for reason, count in self.failures.items():
            failures[str(Reason.UNREACHED) if reason in TRANSIENT else reason] += count
        return replace(self, failures=dict(sorted(failures.items())))

    def extractors(self, table: str, kind: FeatureKind = FeatureKind.VECTOR) -> dict[str, int]:
        """Return the size of a vector (of classes: 0) by extractor, for the columns of one kind of a table."""
        return {column.name: column.dimensions for column in self.columns(table) if column.kind is kind}

    def columns(self, table: str) -> tuple[FeatureColumn, ...]:
        """Return the feature columns of a table (`images`, `documents`), sorted by name."""
        return self.features.get(table, ())

    def parts(self, table: str, split: Split | str = "") -> list[FileEntry]:
        """Return the part files of a table, perhaps (`documents`, `images`) of one split alone, in part order."""
        prefix = f"{table}/{split}/" if split else f"{table}/"
        return sorted(entry for entry in self.files if entry.path.startswith(prefix))


def read_manifest(lake: Lake, reference: str) -> tuple[Manifest, Folder]:
    """Return the manifest of `NAME[@VERSION]` and the version's folder."""
    name, version = lake.find(reference)
    folder = lake.dataset(name, version)
    return parsed_manifest(Manifest, folder, folder.stamp(MANIFEST)), folder


@lru_cache(_KEPT)
def parsed_manifest(kind: Any, folder: Folder, _stamp: tuple[int, int]) -> Any:
    """Return the manifest in a folder, parsed once while its file is the same: of 300,000 parts that takes seconds."""
    return kind.from_json(folder.read(MANIFEST).decode(), where=f"{folder.uri}/{MANIFEST}")


def small_splits(manifest: Manifest) -> str:
    """Return a warning where a split that models are judged on has too few documents for that; else nothing."""
    counts = {name: split.documents for name in (Split.VAL, Split.TEST) if (split := manifest.splits.get(name))}
    few = [f"{name} {count}" for name, count in counts.items() if count < FEWEST_JUDGED]
    if not few or not any(counts.values()):
        return ""
    return f"too few documents to judge a model: {', '.join(few)}; expected at least {FEWEST_JUDGED} of each split"


def table_parts(manifest: Manifest, folder: Folder, table: str) -> Iterator[pa.Table]:
    """Yield the parts of a table that has no splits: `failures`, `duplicates`, `leaks`."""
    for entry in manifest.parts(table):
        yield read_columns(folder, entry.path)


def version_name(config: Mapping[str, Any], inputs: Mapping[str, str], schema_versions: Mapping[str, int]) -> str:
    """Return the name of a version: a fingerprint of all that decides its bytes."""
    return fingerprint({"config": config, "inputs": inputs, "schemas": schema_versions})[:VERSION_DIGITS]


def commit(lake: Lake, manifest: Manifest, *, is_latest: bool = True) -> None:
    """Make a version real by its manifest, which is written once and never again; then move the `latest` pointer.

    Raises:
        IntegrityError: the version is there, with other content.
    """
    folder = lake.dataset(manifest.dataset, manifest.version)
    if not folder.add(MANIFEST, manifest.to_json().encode()):
        check_same(manifest, folder)
    if is_latest:
        lake.point_latest(manifest.dataset, manifest.version)


def check_same(manifest: Manifest, folder: Folder) -> None:
    """Raise an `IntegrityError` where a version of this name is in a folder and has another content."""
    if folder.exists(MANIFEST) and (text := folder.read(MANIFEST).decode()) != manifest.to_json():
        different = next(diff(Manifest.from_json(text, where=folder.uri), manifest), "its notes")
        raise IntegrityError(f"{folder.uri}: another {manifest.reference} is there, and stays as it is: {different}")


def verify(manifest: Manifest, folder: Folder, *, reads_bytes: bool = True) -> Iterator[str]:
    """Yield one line per difference between a version's files and its manifest: none means it is intact.

    Every byte is read, unless sizes are enough, which one listing gives; a missing file, an extra one, another size and
    another hash are each reported. So is a manifest whose version is not the one that its settings and inputs give.
    """
    named = version_name(manifest.config, manifest.inputs, manifest.schema_versions)
    if named != manifest.version:
        yield f"{MANIFEST}: of version {manifest.version}, by its settings and inputs it is {named}"
    found = folder.infos()
    for path in sorted(found.keys() - {MANIFEST, *CARDS, *(entry.path for entry in manifest.files)}):
        yield f"{path}: extra file, not in the manifest"
    for entry in manifest.files:
        if entry.path not in found:
            yield f"{entry.path}: missing"
        elif found[entry.path].size != entry.bytes:
            yield f"{entry.path}: {found[entry.path].size} bytes, the manifest has {entry.bytes}"
        elif reads_bytes and (digest := _digest(folder, entry.path)) != entry.sha256:
            yield f"{entry.path}: SHA-256 {digest[:16]}..., the manifest has {entry.sha256[:16]}..."


def _digest(folder: Folder, path: str) -> str:
    with folder.open(path) as stream:
        return digest_stream(stream)


def diff(old: Manifest, new: Manifest) -> Iterator[str]:
    """Yield one line per difference between two versions: configuration, inputs, counts, features, files."""
    before, after = flatten(_compared(old)), flatten(_compared(new))
    for key in sorted({*before, *after}):
        if before.get(key) != after.get(key):
            yield f"{key}: {_short(before.get(key))} -> {_short(after.get(key))}"


def _compared(manifest: Manifest) -> dict[str, Any]:
    values = asdict(manifest)
    names = ("config", "inputs", "schema_versions", "failures", "splits")
    features = {table: {c["name"]: c for c in columns} for table, columns in values["features"].items()}
    files = {entry.path: entry.sha256 for entry in manifest.files}
    return {name: values[name] for name in names} | {"features": features, "files": files}


def _short(value: Any) -> str:
    text = "absent" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."
