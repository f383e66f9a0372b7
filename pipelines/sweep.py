"""Versions are deleted, and what no version of a lake needs: `multilink datasets delete` and `multilink lake sweep`.

    images/<method>/          copies under settings that no version was built with
    images/<method>/<pack>    no copy of which is of an image of any version; of large ones that are half so, that half
    features/<extractor>/     features that no version has, and packs as above
    datasets/<name>/          folders without a manifest: a build did not finish
    retrievals/, links/, indexes/    of versions that are gone
    builds/                   drafts of builds that were killed
    anywhere                  temporary files that a killed process left

All of it is made again when it is wanted. Answers of hosts (`raw/`) stay: what a host answered may not be had again;
and with them the ledger, which says what they are of.
While a build is under way nothing is deleted. What is younger than a day stays, too: on a store without conditional
requests nobody says that a build is under way.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np

from pipelines.features.values import DOCUMENTS, IMAGES, feature_folder
from pipelines.packs import pack_at, parse_keys, read_keys, remove_rows
from pipelines.turns import LEASES, turn_alone
from schemas.lake import MANIFEST, Folder, Lake, is_temporary
from schemas.manifest import COPIES, Manifest, read_manifest
from schemas.messages import UsageError
from schemas.tables import read_columns

MIN_AGE_S = 86_400.0
LEAST_SPARE, LEAST_BYTES = 0.5, 1 << 20  # of a pack that is written again without its spare rows
_OF_VERSIONS = ("datasets", "retrievals", "links", "indexes")


@dataclass(frozen=True, slots=True)
class Swept:
    """What was deleted, or would be: paths relative to the lake, and their bytes."""

    paths: tuple[str, ...]
    bytes: int


def delete_version(lake: Lake, reference: str, *, needed_by: Mapping[str, Sequence[str]], dry_run: bool) -> Swept:
    """Delete a version with its times, links and indexes, or only find what that is.

    Copies and features that no other version has stay until `sweep_lake`; answers of hosts and the ledger stay.

    Args:
        lake: it is in.
        reference: NAME@VERSION.
        needed_by: NAME@VERSION -> who needs it.
        dry_run: only find it.

    Raises:
        UsageError: it is the latest of its data set, or somebody needs it.
        HeldError: a build is under way.
    """
    name, _, version = reference.partition("@")
    if lake.latest(name) == version:
        raise UsageError(f"{reference}: it is the latest version of '{name}'; build or choose another one first")
    if needed_by.get(reference):
        raise UsageError(
            f"{reference}: needed by {', '.join(needed_by[reference])}, for verification and new evaluations"
        )
    files = {
        f"{kind}/{name}/{version}/{path}": info.size
        for kind in _OF_VERSIONS
        for path, info in lake.root.child(kind, name, version).infos().items()
    }
    if not dry_run:
        with turn_alone(lake):
            remove_version(lake, name, version)
    return Swept(tuple(files), sum(files.values()))


def remove_version(lake: Lake, name: str, version: str) -> None:
    """Remove a version and what is made of it; manifests go first, so that no reader finds half of something."""
    made = [lake.root.child(kind, name, version) for kind in _OF_VERSIONS[::-1]]
    for folder in made:
        for path in list(folder.files()):
            if path.rpartition("/")[2] == MANIFEST:
                folder.delete(path)
    for folder in made:
        folder.remove()


def sweep_lake(lake: Lake, *, dry_run: bool, now: float | None = None) -> Swept:
    """Delete what no version of a lake needs, or only find it.

    Raises:
        HeldError: it is to be deleted, and a build is under way.
    """
    with nullcontext() if dry_run else turn_alone(lake):
        return _sweep(lake, dry_run=dry_run, now=now)


def _sweep(lake: Lake, *, dry_run: bool, now: float | None) -> Swept:
    before = (time.time() if now is None else now) - MIN_AGE_S
    needs = _Needs(lake, [read_manifest(lake, version) for version in lake.references()])
    gone: list[str] = []
    size = 0
    for path, file in lake.root.infos().items():
        spare = needs.spare(path) if file.mtime_ns / 1e9 < before else 0.0
        if spare == 1.0 or (spare >= LEAST_SPARE and file.size >= LEAST_BYTES):
            gone.append(path)
            size += int(spare * file.size)
            if not dry_run and spare == 1.0:
                lake.root.delete(path)
            elif not dry_run:
                needs.remove_spare(path)
    return Swept(tuple(gone), size)


class _Needs:
    """What the versions of a lake need."""

    def __init__(self, lake: Lake, versions: Sequence[tuple[Manifest, Folder]]) -> None:
        self._lake = lake
        self._versions = {f"{manifest.dataset}/{manifest.version}" for manifest, _ in versions}
        shown = [parse_keys(hashes) for manifest, folder in versions for hashes in _shown(manifest, folder)]
        self._shown = np.unique(np.concatenate([parse_keys([]), *shown]))
        self._of_images, self._of_texts = set[str](), set[str]()
        for manifest, _ in versions:
            self._of_images.add(lake.images.child(manifest.notes.get(COPIES, "")).uri)
            self._of_images.update(feature_folder(lake, column).uri for column in manifest.columns(IMAGES))
            self._of_texts.update(feature_folder(lake, column).uri for column in manifest.columns(DOCUMENTS))

    def spare(self, path: str) -> float:
        """Return the share of a file that no version needs: of a pack, of its rows; `path` is relative to the lake."""
        top, *rest = path.split("/")
        if is_temporary(path):
            return 1.0
        if top in _OF_VERSIONS:
            return float(len(rest) > 2 and "/".join(rest[:2]) not in self._versions)
        if top == "builds":
            return float(path.endswith(".json") and rest[0] != LEASES)
        return self._spare_of_pack(path) if top in ("images", "features") else 0.0

    def remove_spare(self, path: str) -> None:
        """Take the rows out of a pack that no version needs."""
        if (pack := pack_at(self._lake, path)) is not None:
            keys = read_keys(*pack)
            remove_rows(*pack, keys[~np.isin(keys, self._shown)])

    def _spare_of_pack(self, path: str) -> float:
        pack = pack_at(self._lake, path)
        if pack is not None and pack[0].uri in self._of_texts:
            return 0.0
        if pack is None or pack[0].uri not in self._of_images:
            return 1.0
        keys = read_keys(*pack)
        return 1.0 - float(np.isin(keys, self._shown).sum()) / max(1, len(keys))


def _shown(manifest: Manifest, folder: Folder) -> Iterator[list[str]]:
    """Yield the hashes of the images of each part of a version, the dropped ones of its duplicates table included."""
    for entry in manifest.files:
        name = {"images": "hash", "duplicates": "image", "near-copies": "image"}.get(entry.path.partition("/")[0])
        if name is not None:
            yield read_columns(folder, entry.path, [name])[name].to_pylist()
