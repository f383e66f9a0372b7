"""Copies by content hash, for those who have nothing but the hash."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from pipelines.packs import PackFolder


@dataclass(frozen=True, slots=True)
class ImageStore:
    """The 256-px copies of a lake, looked up by the SHA-256 of the original bytes."""

    packs: PackFolder

    def read(self, image_hash: str) -> bytes:
        """Return a copy.

        Raises:
            FileNotFoundError: it is not there.
        """
        (ref,) = self.packs.index().find([image_hash])
        if ref is None:
            raise FileNotFoundError(f"{self.packs.folder.uri}: no copy of {image_hash}")
        return cast(bytes, self.packs.read([ref], ["jpeg"])["jpeg"][0].as_py())

    def exists(self, image_hash: str) -> bool:
        return self.packs.index().find([image_hash]) != [None]
