"""The duplicates of a finished version, and pictures of them: dropped images are in no shard, but in the packs."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.images.packed import copy_packs
from pipelines.images.store import ImageStore
from pipelines.settings import FingerprintName, ImagesConfig
from schemas.configs import restore
from schemas.duplicates import DUPLICATE_SCHEMA
from schemas.lake import Folder, Lake
from schemas.manifest import Manifest


def read_duplicates(manifest: Manifest, folder: Folder) -> pa.Table:
    """Return the rows of a version's duplicates table."""
    tables = [DUPLICATE_SCHEMA.empty_table()]
    for entry in manifest.files:
        if entry.path.startswith("duplicates/"):
            with folder.open(entry.path) as stream:
                tables.append(pq.read_table(stream))
    return pa.concat_tables(tables)


def stored_picture(lake: Lake, manifest: Manifest) -> Callable[[str], bytes | None]:
    """Return a function from content hash to 256-px JPEG, or None where it is no longer kept."""
    fingerprint = FingerprintName(manifest.config["dedupe"]["fingerprint"])
    store = ImageStore(copy_packs(lake, restore(ImagesConfig, manifest.config["images"]), fingerprint))

    def read(content_hash: str) -> bytes | None:
        return store.read(content_hash) if store.exists(content_hash) else None

    return read
