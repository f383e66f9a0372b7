"""CORPORA: the names in the files of other projects, for the readers and for the writers (`pipelines.exports`) alike.

    mmc4          JSON Lines: a document a line (Zhu et al. 2023; `Mmc4`, `Mmc4Image`)
    obelics       Parquet: a document a row, `images` and `texts` parallel, one of both null at each place
                  (Laurencon et al. 2023; MINT-1T's HTML documents; `OBELICS_SCHEMA`)
    interleaved   Parquet: a text or an image a row (NeMo Curator; `INTERLEAVED_SCHEMA`)
    webdataset    tars: files of one key are a sample; a JSON with parallel `texts` and `images` is a document (MINT-1T)
    hf            Parquet or Arrow with Hugging Face's `Image` (`IMAGE_FEATURE`)

None of them has a place for all that a document of this project says. What is left goes into one more field, `EXTRAS`:
`extras_of` makes it, and a reader that finds it gives the same document back.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import pyarrow as pa

EXTRAS = "multilink"
IMAGE_FEATURE = pa.struct([pa.field("bytes", pa.binary()), pa.field("path", pa.string())])


class Mmc4(StrEnum):
    """Fields of a document of MMC4."""

    URL = "url"
    TEXTS = "text_list"
    IMAGES = "image_info"
    SIMILARITIES = "similarity_matrix"  # images x sentences
    MAY_REPEAT = "could_have_url_duplicate"


class Mmc4Image(StrEnum):
    """Fields of an image of MMC4."""

    NAME = "image_name"
    URL = "raw_url"
    SENTENCE = "matched_text_index"
    SIMILARITY = "matched_sim"
    FACES = "face_detections"


class Parallel(StrEnum):
    """Columns of OBELICS, and of the JSON of an interleaved sample in a tar."""

    IMAGES = "images"
    TEXTS = "texts"
    METADATA = "metadata"  # a JSON list, parallel to both: of each image `src`, `document_url`, `alt_text`
    GENERAL = "general_metadata"  # a JSON object: `url`
    URL = "url"  # MINT-1T's
    PICTURES = "pictures"  # embedded pictures, parallel to both
    IMAGE_INDEX = "image_index"  # place of each image in document order, where that is another than the layout's


class Interleaved(StrEnum):
    """Columns of NeMo Curator's rows."""

    SAMPLE = "sample_id"
    POSITION = "position"  # -1 for the row of metadata
    MODALITY = "modality"  # text, image, metadata
    CONTENT_TYPE = "content_type"
    TEXT = "text_content"
    BINARY = "binary_content"
    SOURCE = "source_ref"  # a JSON object (`path`, `member`, `frame_index`), or a struct (`uri`)
    MEMBER = "source_member"
    FRAME = "source_frame_index"
    ERROR = "materialize_error"


OBELICS_SCHEMA = pa.schema(
    [
        (Parallel.IMAGES.value, pa.list_(pa.string())),
        (Parallel.METADATA.value, pa.string()),
        (Parallel.GENERAL.value, pa.string()),
        (Parallel.TEXTS.value, pa.list_(pa.string())),
    ]
)
INTERLEAVED_SCHEMA = pa.schema(
    [
        pa.field(Interleaved.SAMPLE.value, pa.string(), nullable=False),
        pa.field(Interleaved.POSITION.value, pa.int32(), nullable=False),
        pa.field(Interleaved.MODALITY.value, pa.string(), nullable=False),
        pa.field(Interleaved.CONTENT_TYPE.value, pa.string()),
        pa.field(Interleaved.TEXT.value, pa.string()),
        pa.field(Interleaved.BINARY.value, pa.large_binary()),
        pa.field(Interleaved.SOURCE.value, pa.string()),
        pa.field(Interleaved.ERROR.value, pa.string()),
    ]
)


def extras_of(row: Mapping[str, Any], images: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return what goes beside a document in another project's format, as an object of JSON.

    Args:
        row: of a documents part (`schemas.documents.document_schema`), as Python values.
        images: rows of the images part by hash: at least `licence` and `metadata`.
    """
    shown = [images.get(image["hash"], {}) for image in row["images"]]
    return {
        "id": row["id"],
        "dataset": row["dataset"],
        "language": row["language"],
        "split": row["split"],
        "roles": [sentence["role"] for sentence in row["sentences"]],
        "images": [
            {**image, "licence": known.get("licence"), "metadata": known.get("metadata")}
            for image, known in zip(row["images"], shown, strict=True)
        ],
        "links": row["links"],
        "after_sentence": row.get("after_sentence"),
        "given_links": row.get("given_links"),
        "given_similarities": row.get("given_similarities"),
        "sentence_numbers": row.get("sentence_numbers"),
        "image_numbers": row.get("image_numbers"),
        "provenance": row["provenance"],
    }
