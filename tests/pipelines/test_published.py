"""Every data set of published files, from its fixture to shards: what a source reads is what the shards hold.

What each source should read is worked out by hand in its own tests; here its documents meet pictures and Beam.
"""

from __future__ import annotations

import tarfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from PIL import Image

from pipelines.config import BuildConfig, recipe
from pipelines.run import build_dataset
from pipelines.sources.diy.submissions import Credentials
from pipelines.sources.inputs import read_source
from pipelines.sources.records import CandidateDocument
from pipelines.sources.wikipedia.imageclef import ImageclefSource, read_articles, with_sentences
from schemas.configs import override
from schemas.documents import Link, Split
from schemas.failures import Failure
from schemas.lake import Lake

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
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


def draw_all(drafts: list[CandidateDocument], root: Path) -> None:
    """Draw a picture of its own for every image name."""
    for number, name in enumerate(sorted({uri for draft in drafts for uri in draft.image_uris})):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        colour = (37 * number % 256, 91 * number % 256, 53 * number % 256)
        picture = Image.new("RGB", (40, 30), colour)
        picture.putpixel((number % 40, number // 40), (255 - colour[0], 0, 0))
        picture.save(path, "PNG")


def outcomes_of(config: BuildConfig) -> Iterator[CandidateDocument | Failure]:
    source = config.source
    if not isinstance(source, ImageclefSource):
        yield from read_source(source)
        return
    for article in read_articles(source, min_images=config.documents.min_images):
        yield from () if isinstance(article, Failure) else with_sentences(article, source=source)


@pytest.mark.parametrize("dataset", sorted(SETTINGS))
def test_what_is_read_is_what_the_shards_hold(dataset: str, tmp_path: Path, quiet: Callable[[str], None]) -> None:
    root = tmp_path / "images"
    root.mkdir()
    drafts = [item for item in outcomes_of(config_of(dataset, str(root))) if isinstance(item, CandidateDocument)]
    drafts = [draft for draft in drafts if not any(uri.startswith("http") for uri in draft.image_uris)]
    assert drafts
    draw_all(drafts, root)
    with tarfile.open(tmp_path / "images.tar", "w") as archive:
        archive.add(root, arcname=".")
    summary = build_dataset(
        config_of(dataset, str(tmp_path / "images.tar")),
        lake=Lake.at(str(tmp_path / "lake")),
        credentials=Credentials(),
        say=quiet,
    )
    built: dict[str, dict[str, Any]] = {}
    for split in Split:
        for entry in summary.manifest.parts("documents", split):
            for row in pq.read_table(Path(summary.path) / entry.path).to_pylist():
                built[row["id"]] = row
    assert built.keys() == {draft.id for draft in drafts if draft.sentences}
    times = Counter(draft.id for draft in drafts)
    for draft in (draft for draft in drafts if times[draft.id] == 1 and draft.sentences):
        row = built[draft.id]
        assert row["dataset"] == dataset
        assert [(sentence["text"], sentence["role"]) for sentence in row["sentences"]] == [
            (sentence.text, sentence.role) for sentence in draft.sentences
        ]
        assert [image["source"] for image in row["images"]] == list(draft.image_uris)
        assert links_of(row) == draft.links
        assert draft.split in (None, row["split"])


def links_of(row: dict[str, Any]) -> tuple[Link, ...] | None:
    """Return the links of a row of a documents part."""
    if row["links"] is None:
        return None
    return tuple(
        Link(link["sentence"], link["image"], tuple((r["name"], r["value"]) for r in link["relations"]))
        for link in row["links"]
    )
