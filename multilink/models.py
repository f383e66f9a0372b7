"""A registered model for programs: raw texts and pictures in, links out.

import multilink

with multilink.load("models:/multilink-diy-closed-form@champion") as model:
    for link in model.link(["Cut the boards.", "Glue them."], ["shelf/1.jpg", "shelf/2.jpg"]):
        print(link.sentence, link.image, link.similarity, link.probability)
"""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Self

import numpy as np

from multilink.links import Links, Picture, picture_bytes
from newsroom.search.reader import DocumentReader
from orchestration.inference.documents import opened, own_documents
from pipelines.config import recipe
from pipelines.embedded import on_web
from pipelines.sources.datasets.documents import read_row
from pipelines.sources.records import outcomes_of
from pipelines.sources.source import image_root
from schemas.documents import UNDETERMINED, Role
from schemas.failures import Failure
from schemas.lake import Folder
from schemas.messages import UsageError
from schemas.overrides import override
from training.data.ragged import Floats
from training.linking.links import DEFAULT_OPTIONS, LinkedDocument, LinkOptions
from training.linking.shards import fitted
from training.project import setting


class Model:
    """A model with its calibration; a context manager, since extractors keep scratch files.

    Args:
        address: models:/NAME/VERSION, models:/NAME@ALIAS, NAME (its champion), runs:/RUN/model, a folder, or
            class-names, which needs no training.
        tracking_uri: MLflow's address; by default MLFLOW_TRACKING_URI, that of `multilink.toml`, ./mlflow.db.
        settings: `key=value` of the `documents` recipe, such as paths of weights.
        options: how links are chosen. With the model's calibration, links of your own documents have words
            (`Links.caution`); with a calibration in the options, probabilities.

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
        loaded = opened(address, tracking_uri or setting("tracking_uri") or None)
        self.uri = loaded.uri
        self._linker = loaded.linker(options)
        self._scratch = tempfile.TemporaryDirectory(prefix="multilink-model-")
        self._settings = settings
        self._reader = DocumentReader(
            loaded.model.card, override(recipe("documents"), settings), Folder(self._scratch.name)
        )

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

        A link has the sentence's `text` and the picture's path or URL (`source`); `sentence` and `image` are indexes
        into the arguments. Blank sentences and unreadable pictures have no link; `left_out` has them with reasons.

        Args:
            sentences: n texts.
            images: m pictures: paths, URLs, the bytes of files, or Pillow images.
            roles: n roles of the texts, for models that use them.
            language: of the texts, as an ISO 639-1 code.

        Raises:
            UsageError: no text or no picture can be used; the message has the reason.
        """
        outcome, left_out = self._linked(sentences, images, roles, language)
        return Links(outcome.links, images, left_out, outcome.id, outcome.caution)

    def link_documents(self, address: str | Path) -> list[Links]:
        """Return the predicted links of each of your own documents; paths as for `multilink link --input`.

        Of 20 documents or more the first 200 choose the weights of the model's steps, unless `options` forbid it.

        Raises:
            UsageError: there are none, or none can be linked; the message has the reason.
        """
        config, records = own_documents(str(address), self._settings, Folder(self._scratch.name), say=lambda _: None)
        root, lost, linked = image_root(config.source), list[Failure](), list[Links]()
        linker, _, documents = fitted(self._linker, self._reader.read(records, files=root))
        for outcome in linker.link_given(documents):
            if isinstance(outcome, Failure):
                lost.append(outcome)
            else:
                names = {link.image: str(link.source) for link in outcome.links}
                shown = {number: name if "://" in name else f"{root}/{name}" for number, name in names.items()}
                linked.append(Links(outcome.links, shown, document=outcome.id, caution=outcome.caution))
        if not linked:
            raise UsageError(f"{address}: no document can be linked: {_reasons(lost)}")
        for each in linked:
            each.left_out = tuple(
                row for row in lost if each.document in (row.record_id, row.record_id.rpartition("#")[0])
            )
        return linked

    def similarity(
        self,
        sentences: Sequence[str],
        images: Sequence[Picture],
        *,
        roles: Sequence[str] | None = None,
        language: str = UNDETERMINED,
    ) -> Floats:
        """Return the n x m similarities of a document's sentences and images; NaN of those that are not read.

        Arguments and errors as of `link`.
        """
        outcome, _ = self._linked(sentences, images, roles, language)
        matrix = np.full((len(sentences), len(images)), np.nan, np.float32)
        matrix[np.ix_(outcome.sentence_numbers, np.array(outcome.image_numbers, np.int64))] = outcome.similarities
        return matrix

    def _linked(
        self, sentences: Sequence[str], images: Sequence[Picture], roles: Sequence[str] | None, language: str
    ) -> tuple[LinkedDocument, list[Failure]]:
        if roles is not None and len(roles) != len(sentences):
            raise UsageError(f"roles: expected {len(sentences)}, one of each sentence, found {len(roles)}")
        with tempfile.TemporaryDirectory(dir=self._scratch.name) as folder:
            addresses = [_address(image, Path(folder, f"{number}")) for number, image in enumerate(images)]
            record = {
                "sentences": [
                    {"text": text, "role": role}
                    for text, role in zip(sentences, map(Role, roles or [Role.SENTENCE] * len(sentences)), strict=True)
                ],
                "images": [{"url" if on_web(each) else "path": each} for each in addresses],
                "language": language,
            }
            records = outcomes_of([("document", record)], partial(read_row, dataset="documents", folder=""))
            outcomes = list(self._linker.link_given(self._reader.read(records, files="/")))
        lost = [each for each in outcomes if isinstance(each, Failure)]
        for address, image in zip(addresses, images, strict=True):
            name = str(image) if isinstance(image, str | Path) else "a picture in memory"
            lost = [replace(each, message=each.message.replace(address, name)) for each in lost]
        for outcome in outcomes:
            if isinstance(outcome, LinkedDocument):
                return outcome, lost
        raise UsageError(_reasons(lost))


def _reasons(lost: Sequence[Failure]) -> str:
    return "; ".join(f"{each.record_id}: {each.reason}: {each.message}" for each in lost[:5])


def _address(picture: Picture, path: Path) -> str:
    """Return where a picture is, below `/`; one in memory is written to `path` first."""
    if isinstance(picture, str | Path):
        return str(picture) if "://" in str(picture) else str(Path(picture).absolute()).lstrip("/")
    path.write_bytes(picture_bytes(picture))
    return str(path).lstrip("/")


load = Model  # what programs open a model by
