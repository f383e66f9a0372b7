"""An image as it travels through a build: what is known of it, and where its 256-px copy is.

Pictures never travel between workers: their copies are in packs (`<lake>/images/<method>/`), and a `PackedImage` says
in which row.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.images.copies import METHOD
from pipelines.packs import PackFolder, PackRef
from pipelines.settings import FingerprintName, ImagesConfig
from schemas.codecs import picture_libraries
from schemas.configs import resolve
from schemas.images import COPY_SCHEMA, Image
from schemas.lake import Lake
from schemas.tables import travels
from schemas.versions import fingerprint as digest_of

ROWS_PER_GROUP = 8  # of some 15 KB each: one copy is read without many others
_SETTINGS_DIGITS = 12


@travels
@dataclass(frozen=True, slots=True)
class PackedImage:
    """What is known of an image.

    Attributes:
        copy: where its copy is; None: it has no pixels (a row of a feature array).
        retrieved: when it was fetched, ISO 8601 in UTC; None: it was not.
    """

    image: Image
    copy: PackRef | None = None
    retrieved: str | None = None


def copy_packs(lake: Lake, config: ImagesConfig, fingerprint: FingerprintName) -> PackFolder:
    """Return the packs of the copies that these settings give.

    What is accepted, how copies are made, with which libraries, and which fingerprint is computed are in the folder's
    name, so that a copy that is found there is what inspecting the picture anew would give.
    """
    depends_on = {"config": resolve(config), "fingerprint": str(fingerprint), "libraries": picture_libraries()}
    settings = digest_of(depends_on)[:_SETTINGS_DIGITS]
    return PackFolder(lake.images.child(f"{METHOD}-{settings}"), COPY_SCHEMA, "hash", ROWS_PER_GROUP)
