"""The trained unit: text tower and image tower together, with all that is needed to use them again.

Saved, loaded, evaluated and registered as one folder: `model.json` (configuration, data set, feature columns, epoch),
`weights.pt`, and `vocabulary.txt` where the text tower reads words. How it is trained is `training.loop`'s business.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from schemas.configs import resolve, restore
from schemas.errors import IntegrityError, NotFoundError, UsageError
from training.config import TrainConfig
from training.data.documents import offsets_of
from training.data.loading import DatasetIdentity
from training.encoders.registry import ImageTower, TextTower, build_image_tower, build_text_tower
from training.encoders.rows import Rows
from training.text.vocabulary import Vocabulary

Float = npt.NDArray[np.floating[Any]]
Float32 = npt.NDArray[np.float32]
CARD, WEIGHTS, VOCABULARY = "model.json", "weights.pt", "vocabulary.txt"
MODEL_FORMAT = 1
ROWS_AT_ONCE = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentInput:
    """A document to be linked.

    Attributes:
        texts: n sentences.
        sentence_vectors: n x t vectors of the model's sentence extractor; None for a model that reads words.
        image_vectors: m x v vectors of the model's image extractor.
    """

    texts: Sequence[str]
    sentence_vectors: Float | None
    image_vectors: Float


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """What a model is: configuration, data it was trained on, and the epoch it is from (from 1; 0: untrained)."""

    config: TrainConfig
    data: DatasetIdentity
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class EmbeddedDocument:
    """Unit vectors of a document, float32: n x d of its sentences, m x d of its images."""

    texts: Float32
    images: Float32

    def similarities(self) -> Float32:
        """Return the n x m cosine similarities."""
        return self.texts @ self.images.T


class LinkModel(nn.Module):
    """Both towers of one training run.

    Attributes:
        card: what the model is.
        vocabulary: words of the text tower, or None where it reads vectors.
        text: text tower, rows of sentences -> N x d.
        image: image tower, rows of images -> M x d.
    """

    def __init__(self, card: ModelCard, vocabulary: Vocabulary | None) -> None:
        super().__init__()
        self.card = card
        self.vocabulary = vocabulary
        self.text: TextTower = build_text_tower(card.config.encoder, card.data.sentence_dimensions, vocabulary)
        self.image: ImageTower = build_image_tower(card.config.encoder, card.data.image_dimensions)

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def similarities(self, documents: Iterable[DocumentInput]) -> list[Float32]:
        """Return per document the n x m matrix of cosine similarities, float32; no sentences or images: n x 0, 0 x m.

        Raises:
            UsageError: a document's vectors have another size than the model's extractors give, or are missing.
        """
        return [document.similarities() for document in self.embed(documents)]

    def embed(self, documents: Iterable[DocumentInput]) -> list[EmbeddedDocument]:
        """Return per document the unit vectors of its sentences and of its images.

        Raises:
            UsageError: as for `similarities`.
        """
        given = list(documents)
        text_offsets = offsets_of([len(document.texts) for document in given])
        image_offsets = offsets_of([len(document.image_vectors) for document in given])
        texts = self.encode_sentences(
            [text for document in given for text in document.texts],
            _stack_known([document.sentence_vectors for document in given]),
        )
        images = self.encode_images(_stack([document.image_vectors for document in given]))
        return [
            EmbeddedDocument(
                texts[text_offsets[d] : text_offsets[d + 1]], images[image_offsets[d] : image_offsets[d + 1]]
            )
            for d in range(len(given))
        ]

    def encode_sentences(self, texts: Sequence[str], vectors: Float | None) -> Float32:
        """Return N x d unit vectors of sentences, float32, without dropout."""
        return self._encode(self.text, self.text.prepare(texts, vectors))

    def encode_images(self, vectors: Float) -> Float32:
        """Return M x d unit vectors of images, float32, without dropout."""
        return self._encode(self.image, self.image.prepare(vectors))

    def save(self, directory: Path) -> None:
        """Write the model into a folder (made where it is not there)."""
        directory.mkdir(parents=True, exist_ok=True)
        weights = {name: value.detach().cpu() for name, value in self.state_dict().items()}
        torch.save(weights, directory / WEIGHTS)
        if self.vocabulary is not None:
            self.vocabulary.save(directory / VOCABULARY)
        card = {"format": MODEL_FORMAT, **resolve(self.card)}
        (directory / CARD).write_text(json.dumps(card, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, directory: Path, device: torch.device | str = "cpu") -> LinkModel:
        """Return the model of a folder, in evaluation mode.

        Raises:
            NotFoundError: the folder holds no model.
            IntegrityError: the model's format is not this code's.
        """
        path = directory / CARD
        if not path.is_file():
            raise NotFoundError(f"{directory}: expected a model, found no {CARD}")
        values = json.loads(path.read_text(encoding="utf-8"))
        if values.pop("format", None) != MODEL_FORMAT:
            raise IntegrityError(f"{path}: expected model format {MODEL_FORMAT}")
        words = directory / VOCABULARY
        model = cls(restore(ModelCard, values), Vocabulary.load(words) if words.is_file() else None)
        model.load_state_dict(torch.load(directory / WEIGHTS, map_location="cpu", weights_only=True))
        return model.to(device).eval()

    def _encode(self, tower: TextTower | ImageTower, rows: Rows) -> Float32:
        """Return the unit vectors of prepared rows, a limited number at once; training mode is put back afterwards."""
        was_training = tower.training
        tower.eval()
        starts = range(0, len(rows), ROWS_AT_ONCE)
        with torch.inference_mode():
            parts = [
                tower(rows.take(np.arange(start, min(start + ROWS_AT_ONCE, len(rows))))).cpu().numpy()
                for start in starts
            ]
        tower.train(was_training)
        return np.concatenate([np.zeros((0, self.card.config.encoder.dimensions), np.float32), *parts])


def _stack(parts: Sequence[Float]) -> Float:
    """Return the parts one after the other; they are of one width, but for parts without a row."""
    filled = [part for part in parts if len(part)]
    widths = sorted({part.shape[1] for part in filled})
    if len(widths) > 1:
        raise UsageError(f"expected feature vectors of one size, found {', '.join(map(str, widths))} numbers")
    return np.concatenate(filled) if filled else np.zeros((0, 0), np.float32)


def _stack_known(parts: Sequence[Float | None]) -> Float | None:
    """Return the parts one after the other, or None where any is missing."""
    known = [part for part in parts if part is not None]
    return _stack(known) if len(known) == len(parts) else None
