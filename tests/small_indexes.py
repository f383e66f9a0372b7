"""Indexes of small lakes, and the vectors of what is searched for in them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from builds import quiet

from newsroom.archive.build import BuiltIndex, build_index
from newsroom.search.queries import RawDocument
from schemas.lake import Lake
from training.data.documents import GivenDocument
from training.model import LinkModel


def made_index(model: LinkModel, lake: Lake, dataset: str = "synthetic", **options: Any) -> BuiltIndex:
    """Make the index of a data set; the model is version 1 of `m` where nothing else is said."""
    return build_index(model, lake, dataset, **{"uri": "models:/m/1", "name": "m-1", "say": quiet} | options)


def given_documents(
    documents: Sequence[RawDocument],
    vector_of: Callable[[str], np.ndarray],
    pictures: Mapping[str, np.ndarray] | None = None,
) -> list[GivenDocument]:
    """Return raw documents with vectors: of texts those that a function gives, of pictures those that are known."""
    return [
        GivenDocument(
            texts=[text for _, text in each.texts],
            sentence_vectors=np.array([vector_of(text) for _, text in each.texts], np.float16).reshape(-1, 12),
            image_vectors=np.array([pictures[each.picture]] if each.picture else [], np.float16).reshape(-1, 16),
            roles=[role for role, _ in each.texts],
            language=each.language,
        )
        for each in documents
    ]
