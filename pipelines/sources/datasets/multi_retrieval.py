"""The files Hessel 2019 released: documents whose images are rows of a feature array.

    docs.json     {"train": [[images, sentences, meta], ...], "val": ..., "test": ...}
                  image = [id, sentence index], sentence = [text, image index]; -1: no partner; null: unlabelled corpus
    id2row.json   {image id: row of features.npy}

The links of a document are the union of what both of its sides say. The feature array itself is not read here.
`docs.json` is streamed; `id2row.json` is in memory.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from pipelines.recipe import EVERY_DOCUMENT, BuildConfig, without_limits
from pipelines.settings import FeaturesConfig, SplitsConfig
from pipelines.sources.fields import identifier, typed
from pipelines.sources.inputs import Input, input_path
from pipelines.sources.json_files import read_lists, read_mapping
from pipelines.sources.records import (
    CandidateDocument,
    CandidateImage,
    FieldError,
    linked,
    outcomes_of,
    rejected,
    sentence,
)
from pipelines.sources.source import Outcomes, Source
from schemas.documents import Provenance, Split
from schemas.failures import Failure, Reason

SOURCE = "multi-retrieval"
EXTRACTOR = "released"  # the name of the vectors' column
_NO_PARTNER = (-1, None)
_Pairs = tuple[list[tuple[Any, int | None]], list[tuple[str, int | None]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiRetrievalSource(Source):
    """The files Hessel 2019 released: documents, and one feature row per image (STACK, data formats).

    Attributes:
        documents: path of `docs.json`.
        id2row: path of `id2row.json`.
        features: path of `features.npy`, rows x dimensions.
    """

    inputs: ClassVar = (
        Input("documents", published=("docs.json",), is_needed=True),
        Input("id2row", published=("id2row.json",), is_needed=True),
        Input("features", "array", is_needed=True),
    )
    documents: str = input_path("")
    id2row: str = input_path("")
    features: str = input_path("")

    @property
    def is_fixed(self) -> bool:
        """Return that it is."""
        return True

    @property
    def given_features(self) -> tuple[str, str]:
        """Return the released array."""
        return EXTRACTOR, self.features

    def read(self) -> Outcomes:
        """Yield the released documents, split by split in file order, and a failure for each thing that cannot be used.

        A document is kept without the images that have no row (FEATURE_MISSING) and the links that lead nowhere
        (BAD_LINK). Its id is the one in its meta data unless one before has it, else `<split>-<index>`.

        Raises:
            BuildError: `id2row` is not JSON of the published form.
            NotFoundError: there is no such file.
        """
        rows = read_mapping(self.id2row, int)
        counts: Counter[str] = Counter()
        seen: set[str] = set()

        def identify(listed: tuple[str, object]) -> str:
            split, record = listed
            own_id = _own_id(record)
            record_id = own_id if own_id and own_id not in seen else f"{split}-{counts[split]}"
            seen.add(record_id)
            counts[split] += 1
            return record_id

        yield from outcomes_of(read_lists(self.documents, *Split), partial(_outcomes, rows), identify)


def _outcomes(
    rows: Mapping[str, int], listed: tuple[str, object], record_id: str
) -> Iterator[CandidateDocument | Failure]:
    """Yield the document of a record, then the failures of its parts.

    Raises:
        FieldError: it is not `[images, sentences, meta]`.
    """
    split, item = listed
    images, texts = typed(item[:2] if isinstance(item, list) else item, _Pairs)
    image_ids = [str(image_id) for image_id, _ in images]
    sides = {(text, image) for image, (_, text) in enumerate(images) if text not in _NO_PARTNER}
    sides |= {(text, image) for text, (_, image) in enumerate(texts) if image not in _NO_PARTNER}
    links, lost = linked(sorted(sides), [True] * len(texts), [image_id in rows for image_id in image_ids])
    is_labelled = any(partner is not None for _, partner in (*images, *texts))
    yield CandidateDocument(
        id=record_id,
        dataset=SOURCE,
        sentences=tuple(sentence(text) for text, _ in texts),
        images=tuple(CandidateImage(f"row:{rows[image_id]}") for image_id in image_ids if image_id in rows),
        links=links if is_labelled else None,
        provenance=Provenance(SOURCE, record_id),
        split=Split(split),
    )
    for index, image_id in enumerate(image_ids):
        if image_id not in rows:
            expected = f"expected a row of image {image_id!r}, found none in id2row"
            yield rejected(record_id, Reason.FEATURE_MISSING, expected, image=index)
    for message in lost:
        yield rejected(record_id, Reason.BAD_LINK, message)


def _own_id(record: object) -> str | None:
    """Return the id in a record's meta data, which is an object with one, or the id itself."""
    meta = record[2] if isinstance(record, list) and len(record) > 2 else None
    try:
        return identifier(meta if isinstance(meta, dict) else {"id": meta})
    except FieldError:
        return None


def multi_retrieval() -> BuildConfig:
    """The files Hessel 2019 released: documents and feature rows, no pixels, splits as published."""
    config = without_limits("multi-retrieval", MultiRetrievalSource(), EVERY_DOCUMENT)
    return replace(config, features=FeaturesConfig(images=()), splits=SplitsConfig(val=0.0, test=0.0))


RECIPES = {"multi-retrieval": multi_retrieval}
