"""LINK: one predicted link a row, what `multilink link` writes.

The links of a document are the best one-to-one assignment of its sentences and images; a document for which nothing
was predicted has no row. How they are chosen is `training.linking`'s business.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from schemas.tables import column, table_schema

LINK_VERSION = 1


@dataclass(frozen=True, slots=True)
class PredictedLink:
    """Sentence `sentence` of a document goes with its image `image` (both count from 0).

    Attributes:
        document: id of the document.
        sentence: index of the sentence.
        image: index of the image.
        similarity: cosine of the two embeddings, -1 to 1.
        rank: place among the document's links by similarity, from 1.
        model: URI of the model that predicted it.
        probability: that it is true, 0 to 1, by the model's calibration; None without one.
    """

    document: str
    sentence: int
    image: int
    similarity: float
    rank: int
    model: str
    probability: float | None = None


def link_schema() -> pa.Schema:
    """Return the schema of a table of predicted links."""
    columns = [
        column("document", pa.string(), "id of the document"),
        column("sentence", pa.int32(), "index of the sentence in the document", unit="from 0"),
        column("image", pa.int32(), "index of the image in the document", unit="from 0"),
        column("similarity", pa.float32(), "cosine of the two embeddings", unit="-1 to 1"),
        column("rank", pa.int32(), "place among the document's links by similarity", unit="from 1"),
        column("model", pa.string(), "URI of the model that predicted it"),
        column(
            "probability",
            pa.float32(),
            "that it is true, by the model's calibration on validation links; null without one",
            nullable=True,
            unit="0 to 1",
        ),
    ]
    return table_schema("links", LINK_VERSION, columns)


def to_row(link: PredictedLink) -> dict[str, Any]:
    """Return a link as a row of `link_schema()`."""
    return asdict(link)
