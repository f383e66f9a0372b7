"""LEDGER: everything that a build read, what it rejected included, so that what is to be forgotten can be found.

    <lake>/ledger/<name>/<build>/<digest of its rows>.parquet
    <lake>/ledger/<name>/versions/<version>                      the build that made it first

It stands beside the versions, not in them, and is private: it names what no version does. It stays when its version
goes, as long as the answers of hosts do. Workers write it as they read, so that a build that failed or was killed has
one, too; builds that gave one version may have read different things that they rejected. One row for each document that
was read, and one for each record of which a page was asked for, before it was; one for each address that gave an image.
What a takedown list took out has none.
"""

import hashlib
import io
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.lake import Folder
from schemas.tables import column, row_of, table_schema, to_table, travels
from schemas.versions import fingerprint

VERSIONS = "versions"  # beside the builds of a data set
_DIGITS = 32


class Read(StrEnum):
    """What was read."""

    DOCUMENT = "document"
    IMAGE = "image"


@travels
@dataclass(frozen=True, slots=True, order=True)
class LedgerRow:
    """A row of the ledger. The columns say what each field means."""

    kind: Read
    key: str
    url: str | None
    record: str | None = None
    captured: str | None = None
    text: str | None = None
    addresses: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()


LEDGER_SCHEMA = table_schema(
    "ledger",
    1,
    [
        column("kind", pa.string(), "document or image"),
        column("key", pa.string(), "id of the document, content hash of the image"),
        column("url", pa.string(), "page of the document; address that gave the image", nullable=True),
        column("record", pa.string(), "id of a document's record at its source", nullable=True),
        column("captured", pa.string(), "address that a document was asked for at", nullable=True),
        column("text", pa.string(), "of a document, the key of its sentences' features", nullable=True),
        column("addresses", pa.list_(pa.string()), "of a document, those of its images"),
        column("sources", pa.list_(pa.string()), "where its images came from, if they are embedded in files"),
    ],
)


def append(folder: Folder, rows: Iterable[LedgerRow]) -> None:
    """Add rows to the ledger of a build, as a file of their own; the same rows make the same file."""
    written = sorted(rows, key=repr)
    if written:
        sink = io.BytesIO()
        pq.write_table(to_table(map(row_of, written), LEDGER_SCHEMA), sink, compression="zstd")
        folder.write(f"{hashlib.sha256(sink.getvalue()).hexdigest()[:_DIGITS]}.parquet", sink.getvalue())


def texts_key(texts: Iterable[str]) -> str:
    """Return the key of a document's texts: the SHA-256 (hex) of their JSON."""
    return fingerprint(list(texts))
