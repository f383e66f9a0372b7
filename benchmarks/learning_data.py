"""The three data sets of `benchmarks/learning.py`, all of the recorded web's pictures.

    posts    the demo's data set: posts with their albums, as the `diy` recipe builds it from the recorded web, with
             regions (`grid`) and classes beside the vectors
    scenes   documents in the MSCOCO manner, built by the `mscoco` recipe from the pictures and captions of the posts
             that are not in the test split: three captioned pictures, three whose captions are withheld, three
             distractors (five of each would leave too few documents)
    pairs    one picture and its caption each, from `posts`, split as the posts are, with relations: what the album is
             about ("animals", "food", ...), known for the albums on one theme and unknown for the mixed ones

A caption of a picture of two things is two sentences; in `scenes` each of them, and both together, are captions of it.
"""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from orchestration.recorded_web import build_settings, recording_at, serving
from pipelines.config import BuildConfig
from pipelines.datasets import build_dataset
from pipelines.recipes import recipe
from pipelines.sources.credentials import Credentials
from schemas.configs import override
from schemas.documents import Split
from schemas.lake import Lake
from schemas.manifest import read_manifest
from training.config import TrainConfig
from training.data.documents import DocumentSet, HeldSplit, SplitIndex, offsets_of
from training.data.loading import DatasetIdentity, TrainingData, load_training_data
from training.data.reading import read_split
from training.data.streams import stream
from training.evaluation.evaluate import read_documents
from training.model import LinkModel

VECTORS, REGIONS, CLASSES, SENTENCES = "efficientnet-lite0", "grid", "efficientnet-lite0-classes", "use-multilingual"
COLUMNS = f"features.images={VECTORS},{REGIONS},{CLASSES}"
POSTS_SETTINGS = ("splits.val=0.1", "splits.test=0.2")  # the demo's test split, doubled: intervals are over documents
SCENES_SETTINGS = ("source.true_images=3", "source.fake_images=3", "source.distractors=3")
THEME = re.compile(r"(\w+)(?:: [\w ]+)? on painted canvas")
MIN_THEME_PAIRS = 30  # in the training split; a rarer theme is no relation
MIXED = "Mixed"
PAIRS_SEEN = (
    400  # training pairs, all of known relations: with many, what an album is about is learnt without being told
)
SENTENCE_END = re.compile(r"(?<=[.!?]) (?=[A-Z])")


@dataclass(frozen=True)
class LakeData:
    """A built data set version."""

    lake: Lake
    reference: str

    def training(self, config: TrainConfig) -> TrainingData:
        return load_training_data(self.lake, self.reference, config)

    def documents(self, model: LinkModel, split: Split) -> DocumentSet:
        return read_documents(model, self.lake, self.reference, split)

    def classified(self, split: Split) -> DocumentSet:
        """Return a split with its links and the classes of its images."""
        manifest, folder = read_manifest(self.lake, self.reference)
        return read_split(manifest, folder, split, image_features=None, class_features=CLASSES, with_links=True)

    def size(self, split: Split) -> int:
        return read_manifest(self.lake, self.reference)[0].splits[str(split)].documents


@dataclass(frozen=True)
class PairsData:
    """Pairs held in memory; `identity` says what their vectors are."""

    identity: DatasetIdentity
    splits: Mapping[Split, DocumentSet]

    def training(self, config: TrainConfig) -> TrainingData:
        training = self.splits[Split.TRAIN]
        if not config.objective.reads_relations:
            training = replace(training, relations=None)
        return TrainingData(identity=self.identity, training=_held(training), validation=_held(self.splits[Split.VAL]))

    def documents(self, model: LinkModel, split: Split) -> DocumentSet:
        return self.splits[split]

    def size(self, split: Split) -> int:
        return len(self.splits[split])

    def with_shuffled_relations(self) -> PairsData:
        """Return the same pairs with the relations of others: what the loss alone gives, without what it knows."""
        training = self.splits[Split.TRAIN]
        order = stream("shuffled relations", 0).permutation(len(training))
        relations = tuple((training.relations or ())[place] for place in order)
        return replace(self, splits={**self.splits, Split.TRAIN: replace(training, relations=relations)})


def build_posts(lake: Lake) -> LakeData:
    """Build, or find, the demo's data set with all feature columns."""
    recording = recording_at()
    with serving(recording) as port:
        config = override(recipe("diy"), [*build_settings(recording, port), *POSTS_SETTINGS, COLUMNS])
        return _built(config, lake)


def build_scenes(posts: LakeData, folder: Path) -> LakeData:
    """Write the posts' pictures and captions as a COCO captions file, and build the `mscoco` documents from it."""
    captions = write_captions(posts, folder)
    settings = [f"source.captions={captions}", f"source.images={folder / 'pictures'}", *SCENES_SETTINGS, COLUMNS]
    return _built(override(recipe("mscoco"), settings), posts.lake)


def make_pairs(posts: LakeData) -> PairsData:
    """Return the posts' linked captions and pictures as pairs with relations."""
    manifest, folder = read_manifest(posts.lake, posts.reference)
    read = {
        split: read_split(manifest, folder, split, image_features=VECTORS, sentence_features=SENTENCES, with_links=True)
        for split in Split
    }
    themes = _themes()
    relations = _common_themes(read[Split.TRAIN], themes)
    identity = DatasetIdentity(
        dataset="pairs",
        version=manifest.version,
        manifest_digest="0" * 64,
        image_features=VECTORS,
        image_dimensions=manifest.image_extractors[VECTORS],
        sentence_features=SENTENCES,
        sentence_dimensions=manifest.sentence_extractors[SENTENCES],
    )
    splits = {split: _pairs(read[split], themes, relations) for split in Split}
    return PairsData(identity, {**splits, Split.TRAIN: _labelled(splits[Split.TRAIN], PAIRS_SEEN)})


def write_captions(posts: LakeData, folder: Path) -> Path:
    """Write `captions.json` (COCO's form) and `pictures/` of the posts outside the test split; returns the file."""
    pictures = folder / "pictures"
    pictures.mkdir(parents=True, exist_ok=True)
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for texts, jpeg in _captioned(posts):
        number = len(images) + 1
        name = f"{number:06d}.jpg"
        (pictures / name).write_bytes(jpeg)
        images.append({"id": number, "file_name": name})
        annotations += [{"id": len(annotations) + i, "image_id": number, "caption": t} for i, t in enumerate(texts)]
    target = folder / "captions.json"
    target.write_text(json.dumps({"images": images, "annotations": annotations}), encoding="utf-8")
    return target


def captions_of(text: str) -> list[str]:
    """Return a caption, and where it is of several sentences, each of them: all describe the same picture."""
    parts = SENTENCE_END.split(text)
    return [text, *parts] if len(parts) > 1 else [text]


def _built(config: BuildConfig, lake: Lake) -> LakeData:
    summary = build_dataset(config, lake=lake, credentials=Credentials(), workers=1, say=_say)
    return LakeData(lake, f"{summary.manifest.dataset}@{summary.manifest.version}")


def _say(line: str) -> None:
    """Keep a build's progress out of the table."""


def _captioned(posts: LakeData) -> Iterator[tuple[list[str], bytes]]:
    """Yield the captions and the picture of every linked image outside the test split, once."""
    manifest, folder = read_manifest(posts.lake, posts.reference)
    seen: set[str] = set()
    for split in (Split.TRAIN, Split.VAL):
        for part in manifest.parts("documents", split):
            rows = pq.read_table(
                io.BytesIO(folder.read(part.path)), columns=["sentences", "images", "links"]
            ).to_pylist()
            where = part.path.replace("documents/", "images/", 1)
            table = pq.read_table(io.BytesIO(folder.read(where)), columns=["hash", "jpeg"])
            jpegs = dict(zip(*table.to_pydict().values(), strict=True))
            for row in rows:
                for link in row["links"]:
                    key = row["images"][link["image"]]["hash"]
                    if key not in seen and jpegs[key] is not None:
                        seen.add(key)
                        yield captions_of(row["sentences"][link["sentence"]]["text"]), jpegs[key]


def _themes() -> dict[str, str]:
    """Return post id -> what its album is about, of the posts whose title says so."""
    posts = json.loads((recording_at() / "posts.json").read_text(encoding="utf-8"))
    found = {post["id"]: THEME.match(post["title"]) for post in posts.values()}
    return {id_: match[1].lower() for id_, match in found.items() if match is not None and match[1] != MIXED}


def _pairs(documents: DocumentSet, themes: Mapping[str, str], relations: Sequence[str]) -> DocumentSet:
    """Return a document for each link of some documents; its relations follow from the theme of where it is from."""
    places = [
        (d, *link) for d, links in enumerate(documents.links or ()) if links is not None for link in links.tolist()
    ]
    sentences = np.array([documents.sentence_offsets[d] + sentence for d, sentence, _ in places], np.int64)
    images = np.array([documents.image_rows[documents.image_offsets[d] + image] for d, _, image in places], np.int64)
    vectors = documents.sentence_vectors
    own = offsets_of(np.ones(len(places), np.int64))
    return replace(
        documents,
        ids=tuple(f"{documents.ids[d]}/{sentence}-{image}" for d, sentence, image in places),
        texts=tuple(documents.texts[row] for row in sentences),
        sentence_offsets=own,
        sentence_vectors=None if vectors is None else vectors[sentences],
        image_rows=images,
        image_offsets=own,
        image_sets=tuple(documents.image_hashes[row] for row in images),
        links=tuple(np.zeros((1, 2), np.int64) for _ in places),
        roles=(),
        languages=tuple(documents.languages[d] for d, _, _ in places),
        relations=tuple(_labels(themes.get(documents.ids[d]), relations) for d, _, _ in places),
    )


def _labelled(pairs: DocumentSet, count: int) -> DocumentSet:
    """Return some pairs of those whose relations are known, drawn once for all."""
    known = [place for place, labels in enumerate(pairs.relations or ()) if None not in labels.values()]
    rows = np.array(known)[stream("few pairs", 0).permutation(len(known))[:count]]
    own = offsets_of(np.ones(len(rows), np.int64))
    return replace(
        pairs,
        ids=tuple(pairs.ids[row] for row in rows),
        texts=tuple(pairs.texts[row] for row in rows),
        sentence_offsets=own,
        sentence_vectors=None if pairs.sentence_vectors is None else pairs.sentence_vectors[rows],
        image_rows=pairs.image_rows[rows],
        image_offsets=own,
        image_sets=tuple(pairs.image_sets[row] for row in rows),
        links=tuple((pairs.links or ())[row] for row in rows),
        languages=tuple(pairs.languages[row] for row in rows),
        relations=tuple((pairs.relations or ())[row] for row in rows),
    )


def _labels(theme: str | None, relations: Sequence[str]) -> Mapping[str, bool | None]:
    return {name: None if theme is None else name == theme for name in relations}


def _common_themes(documents: DocumentSet, themes: Mapping[str, str]) -> list[str]:
    """Return the themes of at least `MIN_THEME_PAIRS` links."""
    counts: Counter[str] = Counter()
    for id_, links in zip(documents.ids, documents.links or (), strict=True):
        if id_ in themes and links is not None:
            counts[themes[id_]] += len(links)
    return sorted(name for name, count in counts.items() if count >= MIN_THEME_PAIRS)


def _held(documents: DocumentSet) -> HeldSplit:
    index = SplitIndex(
        ids=documents.ids,
        image_sets=documents.image_sets,
        shards=np.zeros(len(documents), np.int64),
        sentence_counts=documents.sentence_counts,
        image_counts=documents.image_counts,
    )
    return HeldSplit(index=index, documents=documents, local=np.arange(len(documents), dtype=np.int64))
