"""The trained unit: text tower and image tower together, with all that is needed to use them again.

Saved, loaded, evaluated and registered as one folder: `model.json` (configuration, data set, feature columns, epoch),
`weights.pt`, and `vocabulary.txt` where the text tower reads words. How it is trained is `training.loop`'s business.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from schemas.configs import resolve, restore
from schemas.errors import IntegrityError, NotFoundError, UsageError
from training.config import TrainConfig
from training.data.documents import RegionBank, join_regions, offsets_of
from training.data.loading import DatasetIdentity
from training.data.roles import fuse
from training.encoders.dropout import salt_dropouts
from training.encoders.inputs import ImageInput, TextInput
from training.encoders.multi_source import MultiSourceTower
from training.encoders.registry import Features, ImageTower, TextTower, build_towers
from training.encoders.rows import Rows
from training.relations import RelationHead
from training.text.vocabulary import Vocabulary

Float = npt.NDArray[np.floating[Any]]
Float32 = npt.NDArray[np.float32]
CARD, WEIGHTS, VOCABULARY = "model.json", "weights.pt", "vocabulary.txt"
MODEL_FORMAT = 1
ROWS_AT_ONCE = 4096
WORD_TABLES = frozenset({"text.embedding.weight", "text.embedding.table.weight"})  # names of the parameters
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentInput:
    """A document to be linked.

    Attributes:
        texts: n sentences.
        sentence_vectors: n x t vectors of the model's sentence extractor; None for a model that reads words.
        image_vectors: m x v vectors of the model's image extractor; of a model that reads regions or pictures only m
            counts, and m x 0 will do.
        roles: n roles of the texts, for a model that fuses several sources; such a model has one row a document.
        language: of the texts, for a model of several languages.
        regions: of the m images, for a model that reads regions.
        jpegs: m pictures, for a model that reads pictures.
    """

    texts: Sequence[str]
    sentence_vectors: Float | None
    image_vectors: Float
    roles: Sequence[str] | None = None
    language: str | None = None
    regions: RegionBank | None = None
    jpegs: Sequence[bytes] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """What a model is: configuration, data it was trained on, and the epoch it is from (from 1; 0: untrained).

    `relations` are the names of those that it predicts; none unless its objective reads relations.
    """

    config: TrainConfig
    data: DatasetIdentity
    epoch: int = 0
    relations: tuple[str, ...] = ()


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
        relations: head that predicts the relations of a text and an image, or None where none were trained.
    """

    def __init__(self, card: ModelCard, vocabulary: Vocabulary | None) -> None:
        super().__init__()
        self.card = card
        self.vocabulary = vocabulary
        features = Features(
            sentence=card.data.sentence_dimensions,
            image=card.data.image_dimensions,
            region=card.data.region_dimensions,
        )
        towers = build_towers(card.config.encoder, features, vocabulary)
        self.text: TextTower = towers[0]
        self.image: ImageTower = towers[1]
        self.relations = RelationHead(len(card.relations), card.config.encoder.dimensions) if card.relations else None
        salt_dropouts(self)

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def similarities(self, documents: Iterable[DocumentInput]) -> list[Float32]:
        """Return per document the n x m matrix of cosine similarities, float32; no sentences or images: n x 0, 0 x m.

        A model that fuses several sources has one row a document (none without a text of a source): 1 x m.

        Raises:
            UsageError: a document lacks what the model reads, or its vectors have another size.
        """
        return [document.similarities() for document in self.embed(documents)]

    def embed(self, documents: Iterable[DocumentInput]) -> list[EmbeddedDocument]:
        """Return per document the unit vectors of its sentences and of its images.

        Raises:
            UsageError: as for `similarities`.
        """
        given = list(documents)
        rows = [self._text_input(document) for document in given]
        text_offsets = offsets_of([len(row.texts) for row in rows])
        image_offsets = offsets_of([len(document.image_vectors) for document in given])
        texts = self.encode_sentences(_joined_texts(rows))
        images = self.encode_images(_joined_images(given))
        return [
            EmbeddedDocument(
                texts[text_offsets[d] : text_offsets[d + 1]], images[image_offsets[d] : image_offsets[d + 1]]
            )
            for d in range(len(given))
        ]

    def encode_sentences(self, given: TextInput) -> Float32:
        """Return N x d unit vectors of sentences, float32, without dropout."""
        return self._encode(self.text, self.text.prepare(given))

    def encode_images(self, given: ImageInput) -> Float32:
        """Return M x d unit vectors of images, float32, without dropout."""
        return self._encode(self.image, self.image.prepare(given))

    def _text_input(self, document: DocumentInput) -> TextInput:
        """Return a document's rows as the text tower reads them: its sentences, or its sources fused."""
        count = len(document.texts)
        languages = None if document.language is None else (document.language,) * count
        if not isinstance(self.text, MultiSourceTower):
            return TextInput(texts=document.texts, vectors=document.sentence_vectors, languages=languages)
        if document.roles is None:
            raise UsageError(
                f"this model reads a text for each of {', '.join(self.text.sources)}; the texts have no roles"
            )
        fused = fuse(document.texts, document.roles, self.text.sources)
        rows = [fused] if any(role in self.text.sources for role in document.roles) else []
        return TextInput(
            texts=[" ".join(row) for row in rows], sources=rows, languages=languages and languages[: len(rows)]
        )

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

    def digest(self) -> str:
        """Return the SHA-256 (hex) of all that decides what the model says: card, vocabulary and weights."""
        words = () if self.vocabulary is None else self.vocabulary.words
        digest = hashlib.sha256(json.dumps([resolve(self.card), words], sort_keys=True).encode())
        for name, value in sorted(self.state_dict().items()):
            digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
            digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
        return digest.hexdigest()

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


def _joined_texts(rows: Sequence[TextInput]) -> TextInput:
    """Return the documents' rows one after the other; what any of them lacks is None."""
    languages = [row.languages for row in rows if row.languages is not None or not row.texts]
    sources = [row.sources for row in rows if row.sources is not None]
    return TextInput(
        texts=[text for row in rows for text in row.texts],
        vectors=_stack_known([row.vectors for row in rows]),
        languages=_flat(languages) if len(languages) == len(rows) else None,
        sources=_flat(sources) if len(sources) == len(rows) else None,
    )


def _joined_images(documents: Sequence[DocumentInput]) -> ImageInput:
    """Return the documents' images one after the other; what any of them lacks is None."""
    for document in documents:
        given = {
            "regions": document.regions and len(document.regions.offsets) - 1,
            "pictures": None if document.jpegs is None else len(document.jpegs),
        }
        for what, count in given.items():
            if count is not None and count != len(document.image_vectors):
                raise UsageError(f"expected {what} of {len(document.image_vectors)} images, found {count}")
    regions = [document.regions for document in documents if document.regions is not None]
    jpegs = [document.jpegs for document in documents if document.jpegs is not None]
    return ImageInput(
        vectors=_stack([document.image_vectors for document in documents]),
        regions=join_regions(regions) if len(regions) == len(documents) else None,
        jpegs=_flat(jpegs) if len(jpegs) == len(documents) else None,
    )


def _flat(parts: Iterable[Sequence[Item] | None]) -> list[Item]:
    return [item for part in parts for item in part or ()]
