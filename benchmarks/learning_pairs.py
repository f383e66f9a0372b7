"""Pairs with relations, for the coherence-aware objective: one picture and its caption each, split as the posts are.

pairs                      400 training pairs of known relations: what the album is about ("animals", "food", ...),
                           known for the albums on one theme and unknown for the mixed ones
pairs, relations shuffled  the same, each with the relations of another
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.held_split import HeldSplit
from benchmarks.learning_columns import SENTENCES, VECTORS
from benchmarks.learning_data import LakeData
from orchestration.demo.recorded_web import recording_at
from schemas.documents import Split
from schemas.manifest import read_manifest
from training.config import TrainConfig
from training.data.documents import DocumentSet
from training.data.lake import Columns, read_split
from training.data.loading import DatasetIdentity, TrainingData
from training.data.ragged import Ragged, stream
from training.model import LinkModel

THEME = re.compile(r"(\w+)(?:: [\w ]+)? on painted canvas")
MIN_THEME_PAIRS = 30  # in the training split; a rarer theme is no relation
MIXED = "Mixed"
PAIRS_SEEN = 400  # training pairs: with many, what an album is about is learnt without being told


@dataclass(frozen=True)
class PairsData:
    """Pairs held in memory; `identity` says what their vectors are."""

    identity: DatasetIdentity
    splits: Mapping[Split, DocumentSet]
    split: int
    is_shuffled: bool = False

    @property
    def key(self) -> str:
        return f"{self.identity.reference}{', relations shuffled' if self.is_shuffled else ''}"

    def training(self, config: TrainConfig) -> TrainingData:
        training = self.splits[Split.TRAIN]
        if not config.needs.relations:
            training = replace(training, relations=None)
        return TrainingData(
            identity=self.identity, training=HeldSplit(training), validation=HeldSplit(self.splits[Split.VAL])
        )

    def documents(self, model: LinkModel, split: Split) -> DocumentSet:
        return self.splits[split]

    def size(self, split: Split) -> int:
        return len(self.splits[split])

    def with_shuffled_relations(self) -> PairsData:
        """Return the same pairs with the relations of others: what the loss alone gives, without what it knows."""
        training = self.splits[Split.TRAIN]
        order = stream("shuffled relations", 0).permutation(len(training))
        relations = tuple((training.relations or ())[place] for place in order)
        splits = {**self.splits, Split.TRAIN: replace(training, relations=relations)}
        return replace(self, splits=splits, is_shuffled=True)


def make_pairs(posts: LakeData) -> PairsData:
    """Return the posts' linked captions and pictures as pairs with relations."""
    manifest, folder = read_manifest(posts.lake, posts.reference)
    read = {
        split: read_split(manifest, folder, split, Columns(images=VECTORS, sentences=SENTENCES, links=True))
        for split in Split
    }
    themes = _themes()
    relations = _common_themes(read[Split.TRAIN], themes)
    identity = DatasetIdentity(
        dataset="pairs",
        version=manifest.version,
        manifest_digest="0" * 64,
        image_features=VECTORS,
        image_dimensions=manifest.extractors("images")[VECTORS],
        sentence_features=SENTENCES,
        sentence_dimensions=manifest.extractors("documents")[SENTENCES],
    )
    splits = {split: _pairs(read[split], themes, relations) for split in Split}
    return PairsData(identity, {**splits, Split.TRAIN: _labelled(splits[Split.TRAIN], PAIRS_SEEN)}, posts.split)


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
    sentences = np.array([documents.sentences.offsets[d] + sentence for d, sentence, _ in places], np.int64)
    images = np.array([documents.image_rows[documents.images.offsets[d] + image] for d, _, image in places], np.int64)
    vectors = documents.sentence_vectors
    own = Ragged.of(np.ones(len(places), np.int64))
    return replace(
        documents,
        ids=tuple(f"{documents.ids[d]}/{sentence}-{image}" for d, sentence, image in places),
        texts=tuple(documents.texts[row] for row in sentences),
        sentences=own,
        sentence_numbers=own.numbers,
        sentence_vectors=None if vectors is None else vectors[sentences],
        image_rows=images,
        images=own,
        links=tuple(np.zeros((1, 2), np.int64) for _ in places),
        roles=None,
        languages=tuple((documents.languages or ())[d] for d, _, _ in places),
        relations=tuple(_labels(themes.get(documents.ids[d]), relations) for d, _, _ in places),
    )


def _labelled(pairs: DocumentSet, count: int) -> DocumentSet:
    """Return some pairs of those whose relations are known, drawn once for all."""
    known = [place for place, labels in enumerate(pairs.relations or ()) if None not in labels.values()]
    return pairs.take_documents(np.array(known)[stream("few pairs", 0).permutation(len(known))[:count]])


def _labels(theme: str | None, relations: Sequence[str]) -> Mapping[str, bool | None]:
    return {name: None if theme is None else name == theme for name in relations}


def _common_themes(documents: DocumentSet, themes: Mapping[str, str]) -> list[str]:
    """Return the themes of at least `MIN_THEME_PAIRS` links."""
    counts: Counter[str] = Counter()
    for id_, links in zip(documents.ids, documents.links or (), strict=True):
        if id_ in themes and links is not None:
            counts[themes[id_]] += len(links)
    return sorted(name for name, count in counts.items() if count >= MIN_THEME_PAIRS)
