"""Where the pictures of a lake are between stages: one 256-px JPEG per content hash.

Stages pass hashes along and open the pictures here; bytes of images never travel between workers.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.images.copies import METHOD
from schemas.lake import Folder, Lake


@dataclass(frozen=True, slots=True)
class ImageStore:
    """JPEGs under `<first two digits>/<hash>.jpg`, the hash being the SHA-256 of the original bytes.

    What is written for a hash follows from the hash (and the settings the folder belongs to), so writing is
    repeatable: a picture that is there in full length is left alone. Every build writes what it goes on to read, so the
    disk is not waited for.
    """

    folder: Folder

    def write(self, image_hash: str, jpeg: bytes) -> None:
        """Keep a picture, atomically, unless it is there."""
        if self.folder.size(_place(image_hash)) != len(jpeg):
            self.folder.write(_place(image_hash), jpeg, is_checked=True)

    def read(self, image_hash: str) -> bytes:
        """Return a picture.

        Raises:
            FileNotFoundError: it is not there.
        """
        return self.folder.read(_place(image_hash))

    def exists(self, image_hash: str) -> bool:
        return self.folder.exists(_place(image_hash))


def _place(image_hash: str) -> str:
    return f"{image_hash[:2]}/{image_hash}.jpg"


def stored_copies(lake: Lake, jpeg_quality: int) -> Folder:
    """Return the folder of the lake that copies of that quality are kept in."""
    return lake.stages.child("images", f"jpeg-256-{METHOD}-q{jpeg_quality}")
