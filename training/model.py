"""The trained unit: text tower and image tower together, with all that is needed to use them again.

Saved, loaded, evaluated and registered as one folder: `model.json` (configuration, data set, feature columns, epoch),
`weights.pt`, `vocabulary.txt` where the text tower reads words, and their digests. How it is trained is
`training.loop`'s business.

The files of a model's folder are sealed when it is saved, and checked before it is used: `SHA256SUMS` lies beside them,
in the form that `sha256sum -c` reads. Its own digest stands for the whole folder: the registry keeps it as a tag of the
version.

`RelationHead` predicts relations of a text and an image (Alikhani 2022). The head is part of the model and saved with
it; its loss is `training.objectives.labelled`.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError

import numpy as np
import torch
from torch import Tensor, nn

from schemas.configs import resolve, restore
from schemas.messages import IntegrityError, NotFoundError, UsageError
from training.config import TrainConfig
from training.data.documents import DocumentSet, GivenDocument, TextView, document_set, viewed
from training.data.loading import DatasetIdentity
from training.data.ragged import Float32, Floats, Int64
from training.link_steps import PLAN, LinkSteps
from training.parts import LinkStep
from training.text.vocabulary import Vocabulary
from training.towers.inputs import ImageInput, Rows, Sizes, TextInput, Tower, image_input, text_input

Labels = Mapping[str, bool | None]
ALL = "all"
_TRUE, _FALSE = "true ", "false "


class RelationHead(nn.Module):
    """N text and N image vectors of `dimensions` numbers -> N x R logits: one affine map of both (Alikhani 2022, 3).

    `weights` (R, saved with it) are the reciprocals of the relations' rates in the training split.
    """

    weights: Tensor

    def __init__(self, relations: int, dimensions: int) -> None:
        super().__init__()
        self.affine = nn.Linear(2 * dimensions, relations)
        self.register_buffer("weights", torch.ones(relations))

    def set_rates(self, rates: Sequence[float]) -> None:
        """Take the shares of true labels, all above 0, as what the loss is balanced by."""
        self.weights.copy_(1 / torch.tensor(rates))

    def forward(self, texts_ND: Tensor, images_ND: Tensor) -> Tensor:
        logits_NR: Tensor = self.affine(torch.cat([texts_ND, images_ND], dim=1)).float()
        return logits_NR


def label_matrix(relations: Sequence[Labels], names: Sequence[str]) -> Float32:
    """Return D x R labels: 1 true, 0 false, NaN unknown or not given."""
    rows = [[np.nan if (value := row.get(name)) is None else float(value) for name in names] for row in relations]
    return np.array(rows, dtype=np.float32).reshape(len(relations), len(names))


def count_labels(relations: Sequence[Labels]) -> Counter[str]:
    """Return how often each relation is true and how often it is false, as one flat table that can be summed."""
    return Counter(
        (_TRUE if value else _FALSE) + name for row in relations for name, value in row.items() if value is not None
    )


def known_rates(counts: Mapping[str, int], *, wanted: str, reference: str) -> dict[str, float]:
    """Return the share of true labels of each relation that is predicted, by name, in alphabetical order.

    Args:
        counts: as `count_labels` gives them, over the whole training split.
        wanted: `all`, or one name. With `all`, a relation that is never true is left out: it has no weight.
        reference: data set, for the error.

    Raises:
        UsageError: no relation is left, or the one asked for is not there or never true.
    """
    true = {key.removeprefix(_TRUE): count for key, count in counts.items() if key.startswith(_TRUE)}
    rates = {name: true[name] / (true[name] + counts.get(_FALSE + name, 0)) for name in sorted(true)}
    if wanted != ALL and wanted not in rates:
        available = ", ".join(rates) or "none"
        raise UsageError(
            f"objective.relations = '{wanted}': no training document of {reference} has it; it has {available}"
        )
    if not rates:
        raise UsageError(
            f"objective 'coherence': no training document of {reference} has a relation; train on one that has "
            "(cite, clue), or set objective.name=triplet-hardest"
        )
    return rates if wanted == ALL else {wanted: rates[wanted]}


CARD, WEIGHTS, VOCABULARY = "model.json", "weights.pt", "vocabulary.txt"
MODEL_FORMAT = 3
SUMS = "SHA256SUMS"
ROWS_AT_ONCE = 4096
UNREADABLE = (
    OSError,
    EOFError,
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    RuntimeError,
    UsageError,
    UnpicklingError,
)


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
    """Unit vectors of a document, float32: n x d of its sentences, m x d of its images; and the model's steps.

    `names` are the n x m cosines of the sentences with the names of the images' classes, `bins` where pairs stand, each
    where the steps read them.
    """

    texts: Float32
    images: Float32
    steps: LinkSteps | None = None
    names: Float32 | None = None
    bins: Int64 | None = None

    def similarities(self) -> Float32:
        """Return the n x m similarities: cosines, or what the steps make of them."""
        if self.steps is None:
            return self.texts @ self.images.T
        return self.steps.similarities(self.texts, self.images, self.names, self.bins)

    def terms(self) -> dict[str, Floats]:
        """Return the terms of the n x m similarities, by what they come from; none where they are cosines."""
        if self.steps is None:
            return {}
        terms = self.steps.terms(self.texts, self.images, self.names, self.bins)
        rest = {PLAN: self.similarities() - sum(terms.values())}
        return terms | rest if LinkStep.HALF_SINKHORN in self.steps.settings.steps else terms


class LinkModel(nn.Module):
    """Both towers of one training run.

    Attributes:
        card: what the model is.
        vocabulary: words of the text tower, or None where it reads vectors.
        text: text tower, rows of sentences -> N x d.
        image: image tower, rows of images -> M x d.
        relations: head that predicts the relations of a text and an image, or None where none were trained.
        steps: at link time, or None where similarities are cosines.
    """

    def __init__(self, card: ModelCard, vocabulary: Vocabulary | None) -> None:
        super().__init__()
        self.card = card
        self.vocabulary = vocabulary
        sizes = Sizes(
            dimensions=card.config.dimensions,
            sentence=card.data.sentence_dimensions,
            image=card.data.image_dimensions,
            region=card.data.region_dimensions,
        )
        self.text = card.config.text.build(sizes, vocabulary)
        self.image = card.config.image.build(sizes, self.text)
        self.relations = RelationHead(len(card.relations), sizes.dimensions) if card.relations else None
        link = card.config.link
        has_steps = link.steps or link.order != "off"
        self.steps = LinkSteps(link, sizes.dimensions, card.data.named_columns) if has_steps else None
        if any(term.drops_signs for term in card.config.objective):
            for tower in (self.text, self.image):
                tower.register_forward_hook(_without_signs)

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @property
    def word_tables(self) -> frozenset[str]:
        """Return the names of the parameters that hold a vector a word."""
        return frozenset(f"text.{name}" for name in self.text.word_tables)

    def read(self, documents: Sequence[GivenDocument]) -> DocumentSet:
        """Return a user's documents as the model reads those of a data set.

        Raises:
            UsageError: a document's parts do not fit together, or its roles are not known and the model goes by them.
        """
        return viewed(document_set(documents), TextView.of(self.card.config.reading))

    def similarities(self, documents: DocumentSet) -> list[Float32]:
        """Return per document its n x m similarities by `link.steps`, float32; no sentences or images: n x 0, 0 x m.

        The rows are those of the documents as the model reads them (`DocumentSet.sentence_numbers` says which sentences
        they are); a model that fuses several sources has one row a document.

        Raises:
            UsageError: the documents lack what the model reads, or their vectors have another size.
        """
        return [document.similarities() for document in self.embed(documents)]

    def embed(self, documents: DocumentSet, steps: LinkSteps | None = None) -> list[EmbeddedDocument]:
        """Return per document the unit vectors of its rows and of its images; each different image is encoded once.

        `steps` take the place of the model's.

        Raises:
            UsageError: as for `similarities`.
        """
        texts, images = self.encode(documents)
        return embedded(documents, texts.cpu().numpy(), images.cpu().numpy(), steps or self.steps)

    def encode(self, documents: DocumentSet) -> tuple[Tensor, Tensor]:
        """Return N x d unit vectors of documents' rows and U x d of their different images, on the model's device.

        Raises:
            UsageError: as for `similarities`.
        """
        texts = self._encode(self.text, self.text.prepare(text_input(documents)))
        return texts, self._encode(self.image, self.image.prepare(image_input(documents)))

    def encode_sentences(self, inputs: TextInput) -> Float32:
        """Return N x d unit vectors of sentences, float32, without dropout."""
        return self._encode(self.text, self.text.prepare(inputs)).cpu().numpy()

    def encode_images(self, inputs: ImageInput, rows: Int64 | None = None) -> Float32:
        """Return M x d unit vectors of images, float32, without dropout; of some rows alone where they are given."""
        prepared = self.image.prepare(inputs)
        return self._encode(self.image, prepared if rows is None else prepared.take(rows)).cpu().numpy()

    def save(self, directory: Path) -> None:
        """Write the model into a folder (made where it is not there)."""
        directory.mkdir(parents=True, exist_ok=True)
        torch.save({name: value.detach().cpu() for name, value in self.state_dict().items()}, directory / WEIGHTS)
        if self.vocabulary is not None:
            self.vocabulary.save(directory / VOCABULARY)
        card = {"format": MODEL_FORMAT, **resolve(self.card)}
        (directory / CARD).write_text(json.dumps(card, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        seal(directory)

    @classmethod
    def load(cls, directory: Path, device: torch.device | str = "cpu") -> LinkModel:
        """Return the model of a folder, in evaluation mode.

        Raises:
            NotFoundError: the folder holds no model.
            IntegrityError: its files are not those that were saved, or unreadable, or a weight is not finite.
        """
        if not (directory / CARD).is_file():
            raise NotFoundError(f"{directory}: expected a model, found no {CARD}")
        check_files(directory)
        try:
            values = json.loads((directory / CARD).read_text(encoding="utf-8"))
            if (written := values.pop("format", None)) != MODEL_FORMAT:
                raise IntegrityError(f"{directory / CARD}: expected model format {MODEL_FORMAT}, found {written}")
            words = directory / VOCABULARY
            model = cls(restore(ModelCard, values), Vocabulary.load(words) if words.is_file() else None)
            model.load_state_dict(torch.load(directory / WEIGHTS, map_location="cpu", weights_only=True))
        except UNREADABLE as problem:
            why = (str(problem).splitlines() or [""])[0]
            raise IntegrityError(f"{directory}: not a readable model: {type(problem).__name__}: {why}") from problem
        odd = [name for name, value in model.state_dict().items() if not value.isfinite().all()]
        if odd:
            raise IntegrityError(f"{directory / WEIGHTS}: expected finite numbers, found others in {', '.join(odd)}")
        return model.to(device).eval()

    def described(self) -> dict[str, str]:
        """Return how the model was trained and what its similarities are, for cards and reports."""
        data, is_solved = self.card.data, self.card.config.is_solved
        lines = {
            "Trained": "closed form, solved for without a gradient" if is_solved else "by steps along a gradient",
            "Columns of sentences": (data.sentence_features or "").replace("+", ", "),
            "Columns of images": (data.image_features or "").replace("+", ", "),
            "Similarity of a pair": ", then ".join(
                filter(None, ["cosine", self.steps.described() if self.steps else ""])
            ),
        }
        return {name: value for name, value in lines.items() if value}

    def digest(self) -> str:
        """Return the SHA-256 (hex) of all that decides what the model says: card, vocabulary and weights."""
        words = () if self.vocabulary is None else self.vocabulary.words
        digest = hashlib.sha256(json.dumps([resolve(self.card), words], sort_keys=True).encode())
        for name, value in sorted(self.state_dict().items()):
            digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
            digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
        return digest.hexdigest()

    def _encode(self, tower: Tower, rows: Rows) -> Tensor:
        """Return the unit vectors of prepared rows, a limited number at once; training mode is put back afterwards."""
        was_training = tower.training
        tower.eval()
        starts = range(0, len(rows), ROWS_AT_ONCE)
        with torch.inference_mode():
            parts = [tower(rows.take(np.arange(start, min(start + ROWS_AT_ONCE, len(rows))))) for start in starts]
            tower.train(was_training)
            return torch.cat([torch.zeros((0, self.card.config.dimensions), device=self.device), *parts])


def _without_signs(tower: nn.Module, inputs: object, vectors_ND: Tensor) -> Tensor:
    """Return the absolute values of a tower's vectors, as order embeddings have them (Vendrov et al. 2016, 3.1)."""
    return vectors_ND.abs()


def embedded(
    documents: DocumentSet, texts: Float32, images: Float32, steps: LinkSteps | None = None
) -> list[EmbeddedDocument]:
    """Return each document's vectors, out of N x d of the rows and U x d of the different images."""
    if steps is None:
        parts = zip(documents.sentences, documents.images, strict=True)
        return [EmbeddedDocument(texts[rows], images[documents.image_rows[image_slice]]) for rows, image_slice in parts]
    named, binned = steps.namer(documents), steps.binner(documents)
    return [
        EmbeddedDocument(texts[rows], images[shown], steps, named(rows, shown), binned(rows, image_slice))
        for rows, image_slice in zip(documents.sentences, documents.images, strict=True)
        for shown in [documents.image_rows[image_slice]]
    ]


def file_digests(folder: Path) -> dict[str, str]:
    """Return relative path -> SHA-256 (hex) of each file below a folder, sorted; its own `SHA256SUMS` is left out."""
    digests = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path != folder / SUMS:
            with path.open("rb") as stream:
                digests[path.relative_to(folder).as_posix()] = hashlib.file_digest(stream, "sha256").hexdigest()
    return digests


def folder_digest(folder: Path) -> str:
    """Return the SHA-256 (hex) of a folder's files: of the lines that `seal` would write."""
    return hashlib.sha256(_lines(file_digests(folder)).encode()).hexdigest()


def seal(folder: Path) -> None:
    """Write the digests of a model's files beside them."""
    (folder / SUMS).write_text(_lines(file_digests(folder)), encoding="utf-8")


def check_files(folder: Path, expected: str | None = None) -> None:
    """Check that a model's files are those it was saved with.

    Args:
        folder: of the model.
        expected: digest of the folder that was recorded elsewhere, such as in the registry; None: nowhere.

    Raises:
        IntegrityError: a file was changed, lost or added, or the folder is not the one that was recorded.
    """
    if not (folder / SUMS).is_file():
        raise IntegrityError(f"{folder}: expected the digests of a model's files, found no {SUMS}")
    digests, sums = file_digests(folder), (folder / SUMS).read_bytes()
    if sums != _lines(digests).encode():
        recorded = {line[66:]: line[:64] for line in sums.decode("utf-8", "replace").splitlines()}
        names = sorted(name for name in digests | recorded if digests.get(name) != recorded.get(name))
        raise IntegrityError(f"{folder}: expected the files that were saved, found others: {', '.join(names) or SUMS}")
    digest = hashlib.sha256(sums).hexdigest()
    if expected not in (None, digest):
        raise IntegrityError(f"{folder}: expected the model that was recorded, digest {expected}, found {digest}")


def _lines(digests: dict[str, str]) -> str:
    return "".join(f"{digest}  {name}\n" for name, digest in digests.items())
