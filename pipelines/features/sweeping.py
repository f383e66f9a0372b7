"""Freeing the cache of features that no committed version was made from, and of what killed writers left in it.

A folder of the cache stands for an extractor with all that its values depend on, so whole folders go: those that no
manifest of the lake leads to. What goes is only ever computed again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from pipelines.features.plan import image_folder, sentence_folder
from pipelines.features.values import RegionLimits
from schemas.lake import Folder, Lake
from schemas.manifest import Manifest, read_manifest

_LEFT_OVER = ".tmp"


@dataclass(frozen=True, slots=True)
class Swept:
    """What was deleted: folders as `<extractor>/<fingerprint>`, how many files, and their bytes."""

    folders: tuple[str, ...]
    files: int
    bytes: int

    def to_json(self) -> dict[str, Any]:
        """Return the machine-readable summary."""
        return asdict(self)


def sweep_cache(lake: Lake) -> Swept:
    """Delete the folders of the feature cache that no version of the lake uses, and left-overs in the others.

    A build that is under way may lose what it has computed, and then says so and stops.
    """
    used = {folder.uri for name in lake.dataset_names() for folder in _used_by_versions(lake, name)}
    unused: list[str] = []
    sizes: list[int] = []
    for extractor in lake.features.names():
        for digits in lake.features.child(extractor).names():
            folder = lake.features.child(extractor, digits)
            is_used = folder.uri in used
            gone = [path for path in folder.files() if not is_used or path.endswith(_LEFT_OVER)]
            sizes += [folder.size(path) or 0 for path in gone]
            for path in gone:
                folder.delete(path)
            if not is_used:
                folder.remove()
                unused.append(f"{extractor}/{digits}")
    return Swept(tuple(unused), len(sizes), sum(sizes))


def _used_by_versions(lake: Lake, name: str) -> Iterator[Folder]:
    for version in lake.versions(name):
        manifest, _ = read_manifest(lake, f"{name}@{version}")
        yield from used_folders(lake, manifest)


def used_folders(lake: Lake, manifest: Manifest) -> Iterator[Folder]:
    """Yield the folders of the cache that a version's features are kept in."""
    quality = manifest.config.get("images", {}).get("jpeg_quality")
    features = manifest.config.get("features", {})
    for column in manifest.columns("images"):
        if column.fingerprint and quality is not None:
            limits = RegionLimits(
                least=features["min_regions"], most=features["max_regions"], score=features["min_score"]
            )
            yield image_folder(lake, column, quality, limits)
    for column in manifest.columns("documents"):
        if column.fingerprint:
            yield sentence_folder(lake, column)
