"""Documents to Arrow arrays and back: what is mapped of a shard is a `DocumentSet` whose columns lie in a file.

Texts become Python objects one by one, when a document is taken; vectors are never copied but then.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import numpy as np
import pyarrow as pa

from training.data.documents import DocumentSet, RegionBank
from training.data.mapped import Arrays, Column, matrix, numbers
from training.data.ragged import Ragged

_Codec = tuple[Callable[[Any], pa.Array], Callable[[pa.Array], Any]]
_REGION, _IMAGES = "region ", "images"


def _pairs(links: Any) -> Any:
    return None if links is None else np.array(links, np.int64).reshape(-1, 2)


def _links(values: Any) -> pa.Array:
    rows = [None if links is None else links.tolist() for links in values]
    return pa.array(rows, pa.list_(pa.list_(pa.int64())))


def _as_json(values: Any) -> pa.Array:
    return pa.array([json.dumps(value) for value in values], pa.large_string())


def _vectors(values: Any) -> pa.Array:
    """Return a matrix; one without columns as that many nulls."""
    return matrix(values) if values.shape[1] else pa.nulls(len(values))


def _numbers(array: pa.Array) -> Any:
    return np.zeros((len(array), 0), np.float16) if pa.types.is_null(array.type) else numbers(array)


_TEXTS: _Codec = (lambda values: pa.array(values, pa.large_string()), Column)
_SETS: _Codec = (lambda values: pa.array(values.offsets), lambda array: Ragged(numbers(array)))
_NUMBERS: _Codec = (pa.array, _numbers)
_VECTORS: _Codec = (_vectors, _numbers)
_CODECS: Mapping[str, _Codec] = {
    "ids": _TEXTS,
    "texts": _TEXTS,
    "sentences": _SETS,
    "sentence_numbers": _NUMBERS,
    "sentence_vectors": _VECTORS,
    "images": _SETS,
    "image_rows": _NUMBERS,
    "image_hashes": _TEXTS,
    "image_bank": _VECTORS,
    "links": (_links, lambda array: Column(array, _pairs)),
    "roles": _TEXTS,
    "languages": _TEXTS,
    "image_jpegs": (lambda values: pa.array(values, pa.large_binary()), Column),
    "relations": (_as_json, lambda array: Column(array, json.loads)),
}
_OF_REGIONS: Mapping[str, _Codec] = {
    _IMAGES: _SETS,
    "labels": _TEXTS,
    "vectors": _VECTORS,
    "boxes": _VECTORS,
    "scores": _NUMBERS,
}


def to_arrays(documents: DocumentSet) -> Arrays:
    """Return the columns of documents, as they are read for training (classes and places of images are not)."""
    values = {name: getattr(documents, name) for name in _CODECS}
    found = {name: _CODECS[name][0](value) for name, value in values.items() if value is not None}
    if documents.regions is not None:
        parts = {name: getattr(documents.regions, name) for name in _OF_REGIONS}
        found |= {_REGION + name: _OF_REGIONS[name][0](value) for name, value in parts.items()}
    return found


def from_arrays(arrays: Arrays) -> DocumentSet:
    """Return documents over the columns of `to_arrays`."""
    known = {each.name: None for each in fields(DocumentSet) if each.name in _CODECS}
    found: dict[str, Any] = known | {name: _CODECS[name][1](arrays[name]) for name in _CODECS if name in arrays}
    if _REGION + _IMAGES in arrays:
        found["regions"] = RegionBank(**{name: codec[1](arrays[_REGION + name]) for name, codec in _OF_REGIONS.items()})
    return DocumentSet(**found)
