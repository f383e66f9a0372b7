"""The data set `captions`: a CSV file of albums, a picture and its caption in each row.

album,picture,caption
shelf,shelf/1.jpg,Cut the boards.

multilink build captions --set source.documents=albums.csv --lake lake
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar

from pipelines.files import read_lines
from pipelines.recipe import BuildConfig
from pipelines.settings import DedupeConfig, DocumentsConfig, Policy
from pipelines.sources.records import CandidateDocument, CandidateImage, rejected, sentence, utf8
from pipelines.sources.source import IMAGES, Input, Outcomes, Source, input_path
from schemas.documents import Link, Provenance
from schemas.failures import Reason

DATASET = "captions"


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptionsSource(Source):
    """A CSV file of albums.

    Attributes:
        documents: path of the file.
        images: folder of the pictures; empty: what the file itself is in.
    """

    inputs: ClassVar = (Input("documents", published=("*.csv",), is_needed=True), IMAGES)
    documents: str = input_path("")
    images: str = input_path("")

    def read(self) -> Outcomes:
        """Yield a document an album; its rows stand together. A row without a caption is a failure, and is left out."""
        text = "\n".join(utf8(line) for _, line in read_lines(self.documents))
        rows = enumerate(csv.DictReader(io.StringIO(text)), start=2)
        for album, numbered in groupby(rows, key=lambda pair: pair[1]["album"]):
            kept = []
            for line, row in numbered:
                if (row["caption"] or "").strip():
                    kept.append(row)
                else:
                    yield rejected(f"{self.documents}:{line}", Reason.EMPTY_SENTENCE, "the row has no caption")
            if kept:
                yield CandidateDocument(
                    id=album,
                    dataset=DATASET,
                    sentences=tuple(sentence(row["caption"]) for row in kept),
                    images=tuple(CandidateImage(row["picture"]) for row in kept),
                    links=tuple(Link(number, number) for number in range(len(kept))),
                    provenance=Provenance(DATASET, album),
                )


def captions() -> BuildConfig:
    """Albums of captioned pictures, all of them."""
    thresholds = DocumentsConfig(min_long_sentences=0, min_images=1, long_sentence_tokens=1)
    return BuildConfig(
        dataset=DATASET, source=CaptionsSource(), documents=thresholds, dedupe=DedupeConfig(policy=Policy.KEEP_ALL)
    )


RECIPES = {DATASET: captions}
