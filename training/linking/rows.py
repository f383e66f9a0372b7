"""Documents as rows of lists, as a data frame or JSON has them, and a model's answer for each.

MLflow's `python_function` and `multilink serve` take and give these rows. Everything a document is computed from is
`LinkModel`'s; here lists become arrays and back.
"""

import base64
import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from schemas.documents import Role
from schemas.failures import Failure
from schemas.messages import UsageError
from training.data.documents import GivenDocument, RegionBank, TextView
from training.data.ragged import Float32, Ragged
from training.linking.links import Linker
from training.linking.records import PredictedLink
from training.model import LinkModel

SENTENCES, SENTENCE_VECTORS, IMAGE_VECTORS = "sentences", "sentence_vectors", "image_vectors"
ROLES, LANGUAGE, PICTURES = "roles", "language", "pictures"
REGION_VECTORS, REGION_LABELS = "region_vectors", "region_labels"
ALWAYS_KNOWN = (SENTENCES, SENTENCE_VECTORS, IMAGE_VECTORS)
READ, SIMILARITIES, LINKS, MODEL, CAUTION = "read", "similarities", "links", "model", "caution"
RELATIONS = "relations"
LINK_FIELDS = ("sentence", "image", "similarity", "probability", "word")


def documents_of(model: LinkModel, rows: Sequence[dict[str, Any]]) -> list[GivenDocument]:
    """Return documents as the model reads them, of rows as `LinkPredictor.predict` takes them.

    Raises:
        UsageError: a value is of another kind than expected, or vectors are missing or of another size.
    """
    return [_document(model, row, place) for place, row in enumerate(rows)]


def answers(linker: Linker, documents: Sequence[GivenDocument]) -> list[dict[str, Any]]:
    """Return of each document its similarities, its predicted links, and the model's address.

    `read` are the indices of the n sentences that the model reads (all but blank ones, unless it goes by roles),
    and `similarities` n lists of m cosines, or what the model's steps make of them; `links` are those of
    `multilink link`, the most similar first, with their `sentence`, `image`, `similarity`, and `probability` or,
    where that does not hold, a `word`: `caution` says why. Of a coherence model they also have `relations`.

    Raises:
        UsageError: vectors are not finite.
    """
    found: list[dict[str, Any]] = []
    for place, each in enumerate(linker.link_given(documents)):
        if isinstance(each, Failure):
            raise UsageError(f"row {place}: {each.message}")
        found.append(
            {
                READ: each.sentence_numbers.tolist(),
                SIMILARITIES: each.similarities.astype(np.float64).tolist(),
                LINKS: [_fields(link) for link in each.links],
                MODEL: linker.uri,
                CAUTION: each.caution,
            }
        )
    return found


def _document(model: LinkModel, row: dict[str, Any], place: int) -> GivenDocument:
    data = model.card.data
    texts = _texts(row[SENTENCES], f"row {place}, {SENTENCES}")
    roles = _texts(row.get(ROLES), f"row {place}, {ROLES}")
    if strange := sorted({*roles} - {*Role}):
        raise UsageError(f"row {place}, {ROLES}: expected {', '.join(Role)}, found {strange[0]!r}")
    kept = [number for number, text in enumerate(texts) if text.strip()]  # a blank sentence has no link
    vectors = None
    if data.sentence_dimensions is not None:
        vectors = _vectors(row.get(SENTENCE_VECTORS), data.sentence_dimensions, f"row {place}, {SENTENCE_VECTORS}")
        if len(vectors) != len(texts):
            expected = f"a {data.sentence_features} vector for each of {len(texts)} sentences"
            raise UsageError(f"row {place}, {SENTENCE_VECTORS}: expected {expected}, found {len(vectors)}")
        vectors = vectors[kept]
    if roles and len(roles) != len(texts):
        raise UsageError(f"row {place}, {ROLES}: expected one of each of {len(texts)} sentences, found {len(roles)}")
    regions, jpegs = None, None
    images = np.zeros((0, 0), np.float32)
    if data.image_dimensions is not None:
        images = _vectors(row[IMAGE_VECTORS], data.image_dimensions, f"row {place}, {IMAGE_VECTORS}")
    if data.region_dimensions is not None:
        regions = _regions(row, data.region_dimensions, f"row {place}")
        images = np.zeros((len(regions.images), 0), np.float32)
    if model.card.config.needs.jpegs:
        jpegs = [
            _picture(text, f"row {place}, {PICTURES}") for text in _texts(row.get(PICTURES), f"row {place}, {PICTURES}")
        ]
        images = np.zeros((len(jpegs), 0), np.float32)
    return GivenDocument(
        texts=[texts[number] for number in kept],
        image_vectors=images,
        sentence_vectors=vectors,
        roles=[roles[number] for number in kept] if roles else None,
        language=next(iter(_texts(row.get(LANGUAGE), f"row {place}, {LANGUAGE}", is_one=True)), None),
        regions=regions,
        jpegs=jpegs,
        sentence_numbers=kept,
    )


def _fields(link: PredictedLink) -> dict[str, Any]:
    """Return a link's part of an answer; relations (name -> probability) of a model that predicts them."""
    found = {name: getattr(link, name) for name in LINK_FIELDS}
    if link.relations is not None:
        found[RELATIONS] = {relation.name: relation.probability for relation in link.relations}
    return found


def inputs(model: LinkModel) -> dict[str, bool]:
    """Return the columns of a model's input, each with whether it must be given."""
    read = example(model)
    return {name: name in read for name in ALWAYS_KNOWN} | dict.fromkeys(read, True)


def example(model: LinkModel) -> dict[str, Any]:
    """Return a document that the model can link, with the columns that it reads: two sentences, one image."""
    data, reads = model.card.data, model.card.config.needs
    sentence, image, region = (
        [0.1] * (dimensions or 0)
        for dimensions in (data.sentence_dimensions, data.image_dimensions, data.region_dimensions)
    )
    values = {
        SENTENCES: ["A dog on the beach.", "Soup in a bowl."],
        SENTENCE_VECTORS: [sentence, [-number for number in sentence]] if sentence else [],
        IMAGE_VECTORS: [image] if image else [],
        REGION_VECTORS: [[region]] if region else [],
        REGION_LABELS: [["dog"]] if reads.labels else [],
        PICTURES: [base64.b64encode(_grey_picture()).decode()] if reads.jpegs else [],
        ROLES: list((TextView.of(model.card.config.reading).roles * 2)[:2]),
        LANGUAGE: reads.languages[0] if reads.languages else "",
    }
    return {name: value for name, value in values.items() if value}


def _is_absent(value: Any) -> bool:
    """Return whether a cell is empty: None, or pandas' NaN."""
    return value is None or (isinstance(value, float) and np.isnan(value))


def _items(value: Any, where: str) -> list[Any]:
    """Return a cell's list; that of an absent one is empty."""
    if _is_absent(value):
        return []
    if not isinstance(value, list | tuple | np.ndarray):
        raise UsageError(f"{where}: expected a list, found {type(value).__name__}")
    return list(value)


def _texts(value: Any, where: str, *, is_one: bool = False) -> list[str]:
    """Return a cell's list of texts, or the one text of a cell that holds one."""
    items = _items(value, where) if not is_one else [] if _is_absent(value) else [value]
    for number, item in enumerate(items):
        if not isinstance(item, str):
            raise UsageError(f"{where}{'' if is_one else f'[{number}]'}: expected text, found {type(item).__name__}")
    return items


def _vectors(value: Any, dimensions: int, where: str) -> Float32:
    rows = [_items(row, where) for row in _items(value, where)]
    sizes = {len(row) for row in rows} - {dimensions}
    if sizes:
        raise UsageError(f"{where}: expected vectors of {dimensions} numbers, found {sorted(sizes)}")
    try:
        return np.array(rows, dtype=np.float32).reshape(len(rows), dimensions)
    except (TypeError, ValueError) as problem:
        raise UsageError(f"{where}: expected numbers: {problem}") from problem


def _picture(text: str, where: str) -> bytes:
    """Return a file's bytes: in JSON, which MLflow's server takes, they are text."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as problem:
        raise UsageError(f"{where}: expected JPEG files in base64, found {problem}") from problem


def _regions(row: dict[str, Any], dimensions: int, where: str) -> RegionBank:
    """Return the regions of a document's images, which stand by falling certainty."""
    images = _items(row.get(REGION_VECTORS), f"{where}, {REGION_VECTORS}")
    vectors = [_vectors(image, dimensions, f"{where}, {REGION_VECTORS}") for image in images]
    given = row.get(REGION_LABELS)
    name = f"{where}, {REGION_LABELS}"
    labels = (
        [_texts(image, name) for image in _items(given, name)]
        if given is not None
        else [[""] * len(v) for v in vectors]
    )
    if [len(part) for part in labels] != [len(part) for part in vectors]:
        raise UsageError(f"{where}, {REGION_LABELS}: expected a label for each of {REGION_VECTORS}")
    counts = [len(part) for part in vectors]
    return RegionBank(
        images=Ragged.of(counts),
        labels=tuple(label for part in labels for label in part),
        vectors=np.concatenate([np.zeros((0, dimensions), np.float16), *vectors]).astype(np.float16),
        boxes=np.zeros((sum(counts), 4), np.float32),
        scores=np.concatenate([np.zeros(0, np.float32), *(-np.arange(count, dtype=np.float32) for count in counts)]),
    )


def _grey_picture() -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.new("RGB", (256, 256), (128, 128, 128)).save(buffer, "JPEG")
    return buffer.getvalue()
