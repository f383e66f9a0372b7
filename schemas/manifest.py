"""The manifest of a data set version: the only thing a reader trusts.

It lists every file with its size, rows and SHA-256, says which configuration, inputs, code and schema versions made
them, and holds the statistics of Hessel 2019's table 1 per split. It is written last; without it a version does not
exist. It holds no clock time, so that equal builds have equal manifests.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.configs import restore
from schemas.documents import Split
from schemas.errors import IntegrityError
from schemas.features import FeatureColumn, FeatureKind
from schemas.lake import MANIFEST, Folder, Lake
from schemas.versions import digest_stream, version_of

MANIFEST_FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class FileEntry:
    """One file of the version: path relative to the version's folder, bytes, SHA-256 (hex), rows (0: no table)."""

    path: str
    bytes: int
    sha256: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitStatistics:
    """The row of Hessel 2019's table 1 for one split.

    `density` is links over sentence-image pairs, averaged over documents with known links (None where there is none).
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a version is.

    Attributes:
        version: `version_name` of config, inputs and schema versions.
        failures: how many failure rows there are of each reason.
        stages: how many elements went in and out of each stage, were rejected, and failed.
        config: the settings that change what is built.
        inputs: what else decides it: digests of what was read, of the code, of extractors; versions of libraries.
        notes: counts of leaks (`leaks`, `heeded_leaks`), and of each reason its commonest failure (`failures`).
        features: the feature columns of `images` and of `documents`, each sorted.
    """

    dataset: str
    version: str
    files: tuple[FileEntry, ...]
    splits: Mapping[str, SplitStatistics]
    failures: Mapping[str, int]
    stages: Mapping[str, Mapping[str, int]]
    config: Mapping[str, Any]
    inputs: Mapping[str, str]
    schema_versions: Mapping[str, int]
    code_version: str
    format: int = MANIFEST_FORMAT
    notes: Mapping[str, Any] = field(default_factory=dict)
    features: Mapping[str, tuple[FeatureColumn, ...]] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return the manifest's text: stable key order, one line a value, newline at the end."""
        return json.dumps(asdict(self), sort_keys=True, indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Return the manifest of a file's text.

        Raises:
            IntegrityError: it is none, or of another format.
        """
        try:
            values = json.loads(text)
            if values["format"] != MANIFEST_FORMAT:
                raise IntegrityError(f"manifest format is {values['format']!r}, this code reads {MANIFEST_FORMAT}")
            values["files"] = tuple(FileEntry(**entry) for entry in values["files"])
            values["features"] = {
                table: tuple(restore(FeatureColumn, column) for column in columns)
                for table, columns in values["features"].items()
            }
            values["splits"] = {name: SplitStatistics(**row) for name, row in values["splits"].items()}
            return cls(**values)
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            raise IntegrityError(f"expected the manifest of a data set version, found {problem!r}") from problem

    @property
    def image_extractors(self) -> dict[str, int]:
        """Return the size of an image's vector by extractor."""
        return self._sizes("images", FeatureKind.VECTOR)

    @property
    def sentence_extractors(self) -> dict[str, int]:
        """Return the size of a sentence's vector by extractor."""
        return self._sizes("documents", FeatureKind.VECTOR)

    @property
    def region_extractors(self) -> dict[str, int]:
        """Return the size of a region's vector by extractor of regions."""
        return self._sizes("images", FeatureKind.REGIONS)

    @property
    def class_extractors(self) -> dict[str, int]:
        """Return the extractors of classes, each with 0: they have no vectors."""
        return self._sizes("images", FeatureKind.CLASSES)

    def _sizes(self, table: str, kind: FeatureKind) -> dict[str, int]:
        return {column.name: column.dimensions for column in self.columns(table) if column.kind is kind}

    def columns(self, table: str) -> tuple[FeatureColumn, ...]:
        """Return the feature columns of a table (`images`, `documents`), sorted by name."""
        return self.features.get(table, ())

    def parts(self, table: str, split: Split | str) -> list[FileEntry]:
        """Return the part files of a table (`documents`, `images`) in one split, in part order."""
        prefix = f"{table}/{split}/"
        return sorted(entry for entry in self.files if entry.path.startswith(prefix))


def read_manifest(lake: Lake, reference: str) -> tuple[Manifest, Folder]:
    """Return the manifest of `NAME[@VERSION]` and the version's folder."""
    name, version = lake.find(reference)
    folder = lake.dataset(name, version)
    try:
        return Manifest.from_json(folder.read(MANIFEST).decode()), folder
    except IntegrityError as problem:
        raise IntegrityError(f"{folder.uri}/{MANIFEST}: {problem}") from problem


def table_parts(manifest: Manifest, folder: Folder, table: str) -> Iterator[pa.Table]:
    """Yield the parts of a table that has no splits: `failures`, `duplicates`, `leaks`."""
    for entry in manifest.files:
        if entry.path.startswith(f"{table}/"):
            with folder.open(entry.path) as stream:
                yield pq.read_table(stream)


def version_name(config: Mapping[str, Any], inputs: Mapping[str, str], schema_versions: Mapping[str, int]) -> str:
    """Return the name of a version: a fingerprint of all that decides its bytes."""
    return version_of({"config": config, "inputs": inputs, "schemas": schema_versions})


def commit(lake: Lake, manifest: Manifest) -> None:
    """Make a version real: write its manifest, then move the `latest` pointer."""
    folder = lake.dataset(manifest.dataset, manifest.version)
    folder.publish(MANIFEST, manifest.to_json().encode())
    lake.point_latest(manifest.dataset, manifest.version)


def verify(manifest: Manifest, folder: Folder) -> Iterator[str]:
    """Yield one line per difference between a version's files and its manifest: none means it is intact.

    Every byte is read; a missing file, an extra one, another size and another hash are each reported. So is a
    manifest whose version is not the one that its settings and inputs give.
    """
    named = version_name(manifest.config, manifest.inputs, manifest.schema_versions)
    if named != manifest.version:
        yield f"{MANIFEST}: of version {manifest.version}, by its settings and inputs it is {named}"
    listed = {entry.path: entry for entry in manifest.files}
    found = set(folder.files()) - {MANIFEST}
    for path in sorted(found - listed.keys()):
        yield f"{path}: extra file, not in the manifest"
    for path, entry in sorted(listed.items()):
        if path not in found:
            yield f"{path}: missing"
            continue
        size = folder.size(path)
        if size != entry.bytes:
            yield f"{path}: {size} bytes, the manifest says {entry.bytes}"
            continue
        with folder.open(path) as stream:
            digest = digest_stream(stream)
        if digest != entry.sha256:
            yield f"{path}: SHA-256 {digest[:16]}..., the manifest says {entry.sha256[:16]}..."


def diff(old: Manifest, new: Manifest) -> Iterator[str]:
    """Yield one line per difference between two versions: configuration, inputs, counts, files."""
    for title in ("config", "inputs", "schema_versions", "failures"):
        yield from _diff_values(title, getattr(old, title), getattr(new, title))
    for table in ("images", "documents"):
        yield from _diff_values(f"features.{table}", _by_name(old.columns(table)), _by_name(new.columns(table)))
    for split in sorted({*old.splits, *new.splits}):
        before, after = old.splits.get(split), new.splits.get(split)
        yield from _diff_values(f"splits.{split}", asdict(before) if before else {}, asdict(after) if after else {})
    before_files = {entry.path: entry.sha256 for entry in old.files}
    after_files = {entry.path: entry.sha256 for entry in new.files}
    yield from _diff_values("files", before_files, after_files)


def _by_name(columns: Iterable[FeatureColumn]) -> dict[str, Any]:
    return {column.name: asdict(column) for column in columns}


def _diff_values(title: str, before: Any, after: Any) -> Iterator[str]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in sorted({*before, *after}):
            yield from _diff_values(f"{title}.{key}", before.get(key), after.get(key))
    elif before != after:
        yield f"{title}: {_short(before)} -> {_short(after)}"


def _short(value: Any) -> str:
    text = "absent" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."
