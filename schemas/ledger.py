"""LEDGER: everything that a build read, what it rejected included, so that what is to be forgotten can be found.

    <lake>/ledger/<name>/<version>/part-00000-of-00001.parquet

It stands beside the versions, not in them, and is private: it names what no version does. It stays when its version
goes, as long as the answers of hosts do. One row for each document that was read, one for each address that gave an
image. What a takedown list took out has none.
"""

from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa

from schemas.tables import column, table_schema, travels


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
