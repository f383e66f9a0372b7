"""A registered model as MLflow's `python_function`: data frame of documents in, data frame of similarities out.

MLflow imports this module by name and calls `_load_pyfunc`, wherever the package is installed; no code is pickled or
copied. Everything a document is computed from is `LinkModel`'s; here lists become arrays and back.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from schemas.errors import UsageError
from training.model import DocumentInput, LinkModel

SENTENCES, SENTENCE_VECTORS, IMAGE_VECTORS = "sentences", "sentence_vectors", "image_vectors"
SIMILARITIES = "similarities"


class LinkPredictor:
    """What `mlflow.pyfunc.load_model` wraps."""

    def __init__(self, model: LinkModel) -> None:
        self.model = model

    def predict(self, documents: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """Return `similarities`, a row a document: n lists of m cosines.

        Args:
            documents: `sentences` (n texts), `image_vectors` (m vectors of the model's image extractor) and, for a
                model that reads them, `sentence_vectors` (n vectors); lists may be empty and differ in length.
            params: none are known.

        Raises:
            UsageError: vectors are missing or have another size than the model's extractors give.
        """
        rows = documents.to_dict("records")
        matrices = self.model.similarities([self._input(row, place) for place, row in enumerate(rows)])
        return pd.DataFrame({SIMILARITIES: [matrix.astype(np.float64).tolist() for matrix in matrices]})

    def _input(self, row: dict[str, Any], place: int) -> DocumentInput:
        data = self.model.card.data
        texts = _items(row[SENTENCES])
        vectors = None
        if data.sentence_dimensions is not None:
            vectors = _vectors(row.get(SENTENCE_VECTORS), data.sentence_dimensions, f"row {place}, {SENTENCE_VECTORS}")
            if len(vectors) != len(texts):
                wanted = f"a {data.sentence_features} vector for each of {len(texts)} sentences"
                raise UsageError(f"row {place}, {SENTENCE_VECTORS}: expected {wanted}, found {len(vectors)}")
        images = _vectors(row[IMAGE_VECTORS], data.image_dimensions, f"row {place}, {IMAGE_VECTORS}")
        return DocumentInput(texts=texts, sentence_vectors=vectors, image_vectors=images)


def example(model: LinkModel) -> pd.DataFrame:
    """Return a document the model can link: two sentences, one image."""
    data = model.card.data
    row: dict[str, Any] = {SENTENCES: ["A dog on the beach.", "Soup in a bowl."]}
    if data.sentence_dimensions is not None:
        row[SENTENCE_VECTORS] = [[0.1] * data.sentence_dimensions, [-0.1] * data.sentence_dimensions]
    row[IMAGE_VECTORS] = [[0.1] * data.image_dimensions]
    return pd.DataFrame([row])


def _load_pyfunc(path: str) -> LinkPredictor:
    return LinkPredictor(LinkModel.load(Path(path)))


def _items(value: Any) -> list[Any]:
    """Return a cell's list; an absent one (None, or pandas' NaN) is empty."""
    return list(value) if isinstance(value, list | tuple | np.ndarray) else []


def _vectors(value: Any, dimensions: int, where: str) -> npt.NDArray[np.float32]:
    rows = _items(value)
    sizes = {len(row) for row in rows} - {dimensions}
    if sizes:
        raise UsageError(f"{where}: expected vectors of {dimensions} numbers, found {sorted(sizes)}")
    return np.array([list(row) for row in rows], dtype=np.float32).reshape(len(rows), dimensions)
