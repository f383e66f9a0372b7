"""Builds of the data sets of published files, from the fixtures in small; every picture is drawn here."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from candidates import uris_of
from PIL import Image

from pipelines.config import recipe
from pipelines.recipe import BuildConfig
from pipelines.sources.datasets.wikipedia import ImageclefSource, read_articles, with_sentences
from pipelines.sources.records import CandidateDocument, with_addresses
from schemas.failures import Failure
from schemas.overrides import override

FIXTURES = Path(__file__).resolve().parent / "fixtures"
SETTINGS = {
    "mscoco": {"captions": "mscoco/captions_train2014.json"},
    "story-dii": {
        "train": "vist/train.description-in-isolation.json",
        "test": "vist/test.description-in-isolation.json",
    },
    "story-sis": {"val": "vist/val.story-in-sequence.json"},
    "dii-stress": {
        "train": "vist/train.description-in-isolation.json",
        "test": "vist/test.description-in-isolation.json",
    },
    "rqa": {"train": "recipeqa/train.json", "val": "recipeqa/val.json"},
    "cite": {"train": "cite/data.csv"},
    "clue": {
        "train": "clue/conceptual_train_dis.csv",
        "test": "clue/conceptual_test_dis.csv",
        "numbers": "clue/img2idxmap.json",
    },
    "wiki": {"texts": "imageclef/all_text"},
    "news": {"articles": "news/articles.jsonl"},
}


def config_of(dataset: str, images: str) -> BuildConfig:
    settings = [f"source.{name}={FIXTURES / path}" for name, path in SETTINGS[dataset].items()]
    few = ["documents.min_sentences=1", "documents.min_images=1", "max_failure_share=1"]  # fixtures are small
    if dataset == "dii-stress":
        few.append("source.distractors=2")
    plain = ["features.images=", "features.sentences="]
    return override(recipe(dataset), [*settings, *few, *plain, f"source.images={images}"])


def candidates_of(config: BuildConfig) -> list[CandidateDocument]:
    """Return the documents whose images are all files."""
    found = [item for item in outcomes_of(config) if isinstance(item, CandidateDocument)]
    return [draft for draft in found if not any(uri.startswith("http") for uri in uris_of(draft))]


def draw_all(drafts: list[CandidateDocument], root: Path, *, different: int) -> None:
    """Draw a picture for every image name: one of so many different ones."""
    for place, name in enumerate(sorted({uri for draft in drafts for uri in uris_of(draft)})):
        number = place % different
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        colour = (37 * number % 256, 91 * number % 256, 53 * number % 256)
        picture = Image.new("RGB", (40, 30), colour)
        picture.putpixel((number % 40, number // 40), (255 - colour[0], 0, 0))
        picture.save(path, "PNG")


def read_source(source: Any) -> Iterator[CandidateDocument | Failure]:
    """Yield the documents and failures of a source of files."""
    return with_addresses(source.read(), getattr(source, "images", ""))


def outcomes_of(config: BuildConfig) -> Iterator[CandidateDocument | Failure]:
    source = config.source
    if not isinstance(source, ImageclefSource):
        yield from read_source(source)
        return
    for article in read_articles(source, min_images=config.documents.min_images):
        yield from () if isinstance(article, Failure) else with_sentences(article, source=source)
