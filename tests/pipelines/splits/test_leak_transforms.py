"""The Beam path of leak search gives what the plain path gives."""

from __future__ import annotations

import random

from apache_beam import Create
from apache_beam.testing import test_pipeline as beam_testing
from apache_beam.testing.util import assert_that, equal_to

from pipelines.dedupe.transforms import FindDuplicates
from pipelines.documents.settle import SettledDocument
from pipelines.images.packed import PackedImage
from pipelines.settings import Policy
from pipelines.splits.leaks import find_leaks
from pipelines.splits.traces import trace_of
from pipelines.splits.transforms import FindLeaks
from schemas.documents import Document, ImageRef, Provenance, Sentence, Split
from schemas.images import Image
from schemas.leaks import LeakKind

RADIUS = 3
BLIND = "b" * 64
WORDS = ("sand", "oil", "cut", "glue", "paint")


def made_up() -> tuple[list[Document], dict[str, Image]]:
    """Return 60 documents in three splits over few images, near, equal, flat and without pixels, and few texts."""
    chance = random.Random(5)
    images: dict[str, Image] = {BLIND: Image(BLIND)}
    for centre in range(8):
        code = chance.getrandbits(64)
        for step in range(4):
            name = f"{centre}{step}".ljust(64, "0")
            near = code ^ sum(1 << bit for bit in chance.sample(range(64), step))
            images[name] = Image(name, fingerprint=f"{near:016x}", is_flat=centre == 7)
    documents = []
    for number in range(60):
        shown = chance.sample(sorted(images), 2)
        text = " ".join(chance.choices(WORDS, k=chance.choice((2, 5, 6))))
        documents.append(
            Document(
                f"d{number:02}",
                "made-up",
                (Sentence(text), Sentence(f"only in {number}, whatever else there may be")),
                tuple(ImageRef(name) for name in shown),
                None,
                Provenance("made-up", str(number)),
                split=chance.choice(tuple(Split)),
            )
        )
    again = documents[0]
    documents.append(Document("again", "made-up", again.sentences[::-1], (), None, again.provenance, split=Split.TEST))
    documents[0] = Document(
        again.id, "made-up", again.sentences, again.images, None, again.provenance, split=Split.TRAIN
    )
    return documents, images


def test_the_beam_path_is_the_plain_path() -> None:
    documents, images = made_up()
    expected = find_leaks([trace_of(document, images) for document in documents], radius=RADIUS)
    assert {leak.kind for leak in expected} == set(LeakKind)
    settled = [
        SettledDocument(document, tuple(PackedImage(images[ref.hash]) for ref in document.images))
        for document in documents
    ]
    with beam_testing.TestPipeline(runner="FnApiRunner") as pipeline:
        found = (
            pipeline
            | "documents" >> Create(documents)
            | FindLeaks(
                RADIUS,
                pipeline | "images" >> Create(sorted(images.items())),
                (pipeline | "settled" >> Create(settled) | FindDuplicates(RADIUS, Policy.KEEP_ALL)).duplicates,
            )
        )
        assert_that(found, equal_to(expected))
