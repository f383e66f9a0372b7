"""A picture archive: pictures with their descriptions, and no articles; what `multilink index` makes searchable.

    archive.jsonl   {"id": "p-1", "image": "pictures/1.jpg", "licence": "CC-BY-4.0", "title": "..", "caption": "..",
                     "credit": "..", "rights": "..", "date": "2019-05-01", "place": "..", "keywords": [".."]}
    pictures        a folder, a tar or a zip without such a file: every picture in it, its path being its id

A document is one picture and no sentence: there is nothing to train on. `id` and `image` (a path relative to the file's
folder or `source.images`, or a URL) must be there; the other fields are metadata (`schemas.metadata`) and go, together
with what the picture's own file says, into the images table. Where both say something, the record counts.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

import msgspec

from pipelines.files import file_names
from pipelines.named_files import EXTENSIONS
from pipelines.recipe import EVERY_DOCUMENT, BuildConfig, without_limits
from pipelines.settings import FeaturesConfig, SplitsConfig
from pipelines.sources.fields import described, identifier, misspelt, typed
from pipelines.sources.inputs import IMAGES, Input, input_path
from pipelines.sources.records import CandidateDocument, CandidateImage, json_lines, outcomes_of, stated_address
from pipelines.sources.source import Outcomes, Source
from schemas.documents import Provenance
from schemas.failures import Failure
from schemas.metadata import Metadata

DATASET = "archive"


class _Record(msgspec.Struct):
    image: str
    licence: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveSource(Source):
    """A picture archive.

    Attributes:
        archive: path of its JSON Lines file; empty: there is none, and every picture of `images` is taken.
        images: folder, tar or zip with the pictures, or the URL of a folder; empty: what the file itself is in.
    """

    archive: str = input_path("")
    images: str = input_path("")

    @property
    def inputs(self) -> tuple[Input, ...]:
        """Return the settings that name what is read."""
        return Input("archive", published=("archive.jsonl", "*.jsonl"), is_needed=not self.images), IMAGES

    def read(self) -> Outcomes:
        """Yield a document a picture, in order, and a failure for each record that cannot be used.

        Raises:
            NotFoundError: there is no such file.
        """
        if self.archive:
            yield from outcomes_of(json_lines(self.archive), _outcomes, identifier)
            return
        for name in sorted(file_names(self.images)):
            if PurePosixPath(name).suffix in EXTENSIONS:
                yield _document(name, CandidateImage(name))


def _outcomes(record: Mapping[str, Any], record_id: str) -> Iterator[CandidateDocument | Failure]:
    row = typed(record, _Record)
    description, failures = described(record, record_id)
    address = stated_address(row.image, "$.image")
    yield _document(record_id, CandidateImage(address, None, row.licence, description))
    yield from failures
    yield from misspelt(record, _Record, Metadata, record_id=record_id)


def _document(record_id: str, image: CandidateImage) -> CandidateDocument:
    return CandidateDocument(
        id=record_id,
        dataset=DATASET,
        sentences=(),
        images=(image,),
        links=None,
        provenance=Provenance(DATASET, record_id, licence=image.licence),
    )


def archive() -> BuildConfig:
    """A picture archive to be searched: one picture a document, no sentence, all in one split."""
    thresholds = replace(EVERY_DOCUMENT, min_sentences=0)
    config = without_limits("archive", ArchiveSource(), thresholds)
    return replace(config, features=FeaturesConfig(sentences=()), splits=SplitsConfig(val=0.0, test=0.0))


RECIPES = {"archive": archive}
