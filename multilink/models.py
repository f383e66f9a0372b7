"""A registered model for programs: raw texts and pictures in, links out.

import multilink

with multilink.load("models:/multilink-diy-closed-form@champion") as model:
    for link in model.link(["Cut the boards.", "Glue them."], ["shelf/1.jpg", "shelf/2.jpg"]):
        print(link.sentence, link.image, link.similarity, link.probability)
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import numpy as np

from multilink.links import Links, Picture, picture_bytes
from orchestration.inference.extraction import DocumentReader
from orchestration.project import remembered_store
from pipelines.config import recipe
from pipelines.sources.records import CandidateDocument, sentence
from schemas.documents import UNDETERMINED, Provenance, Role
from schemas.errors import UsageError
from schemas.failures import Failure
from schemas.lake import Folder
from schemas.overrides import override
from training.data.ragged import Floats
from training.linking.links import LinkedDocument
from training.linking.options import DEFAULT_OPTIONS, LinkOptions
from training.mlflow.loading import open_model

_DOCUMENT = "document"


class Model:
    """A model with its calibration; a context manager, since extractors keep scratch files.

    Args:
        address: models:/NAME/VERSION, models:/NAME@ALIAS, NAME (its champion), runs:/RUN/model, a folder, or
            class-names, which needs no training.
        tracking_uri: MLflow's address; by default MLFLOW_TRACKING_URI, that of `multilink.toml`, ./mlflow.db.
        settings: `key=value` of the `documents` recipe, such as where weights are.
        options: how links are chosen; its own calibration gives them their probability unless the options have one.

    Raises:
        UsageError: there is no such model, it reads features that cannot be made here, or cannot link with these
            options.
    """

    def __init__(
        self,
        address: str,
        *,
        tracking_uri: str | None = None,
        settings: Sequence[str] = (),
        options: LinkOptions = DEFAULT_OPTIONS,
    ) -> None:
        loaded = open_model(address, tracking_uri or remembered_store())
        self.uri = loaded.uri
        self._linker = loaded.linker(options)
        self._scratch = tempfile.TemporaryDirectory(prefix="multilink-model-")
        config = override(recipe("documents"), settings)
        self._reader = DocumentReader(loaded.model.card, config, Folder(self._scratch.name))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._scratch.cleanup()

    def link(
        self,
        sentences: Sequence[str],
        images: Sequence[Picture],
        *,
        roles: Sequence[str] | None = None,
        language: str = UNDETERMINED,
    ) -> Links:
        """Return the predicted links of one document, the most similar first; a notebook draws them.

        A link has the sentence's `text` and the picture's path or URL (`source`); `sentence` and `image` count from 0.

        Args:
            sentences: n texts.
            images: m pictures: paths, URLs, the bytes of files, or Pillow images.
            roles: n roles of the texts, for a model that goes by them.
            language: of the texts, as an ISO 639-1 code.

        Raises:
            UsageError: a text or a picture cannot be used; the message says which and why.
        """
        return Links(self._linked(sentences, images, roles, language).links, images)

    def similarity(
        self,
        sentences: Sequence[str],
        images: Sequence[Picture],
        *,
        roles: Sequence[str] | None = None,
        language: str = UNDETERMINED,
    ) -> Floats:
        """Return the n x m similarities of a document's sentences and images; NaN of sentences that are not read.

        Arguments and errors as of `link`.
        """
        found = self._linked(sentences, images, roles, language)
        matrix = np.full((len(sentences), len(images)), np.nan, np.float32)
        matrix[found.sentence_numbers] = found.similarities
        return matrix

    def _linked(
        self, sentences: Sequence[str], images: Sequence[Picture], roles: Sequence[str] | None, language: str
    ) -> LinkedDocument:
        if roles is not None and len(roles) != len(sentences):
            raise UsageError(f"roles: expected {len(sentences)}, one of each sentence, found {len(roles)}")
        typed = map(Role, roles or [Role.SENTENCE] * len(sentences))
        with tempfile.TemporaryDirectory(dir=self._scratch.name) as folder:
            addresses = [_address(image, Path(folder, f"{number}")) for number, image in enumerate(images)]
            candidate = CandidateDocument(
                id=_DOCUMENT,
                dataset="documents",
                sentences=tuple(map(sentence, sentences, typed)),
                image_uris=tuple(addresses),
                links=None,
                provenance=Provenance(source="documents", record_id=_DOCUMENT),
                language=language,
            )
            found = next(self._linker.link_given(self._reader.read([candidate], files="/")))
        if isinstance(found, Failure):
            message = found.message
            for address, image in zip(addresses, images, strict=True):
                message = message.replace(address, str(image)) if isinstance(image, str | Path) else message
            raise UsageError(f"{found.record_id}: {found.reason}: {message}")
        return found


def _address(picture: Picture, path: Path) -> str:
    """Return where a picture is, below `/`; one in memory is written to `path` first."""
    if isinstance(picture, str | Path):
        return str(picture) if "://" in str(picture) else str(Path(picture).absolute()).lstrip("/")
    path.write_bytes(picture_bytes(picture))
    return str(path).lstrip("/")
