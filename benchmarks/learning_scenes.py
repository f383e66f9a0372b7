"""Documents in the MSCOCO manner, made of the pictures and captions of the posts that are not in the test split.

    scenes             what the `mscoco` recipe builds of them: three captioned pictures, three whose captions are
                       withheld, three distractors (five of each would leave too few test documents)
    composed 4 times   the same validation and test documents; the training pictures composed again, by the same rules
                       with another seed: other company, other halves, other distractors
    in order           the same documents; in a share of them the captions follow the order of their pictures, among
                       the other captions. Links do not depend on layout: a model may learn the order

A picture of two things is captioned by a sentence on each; in `scenes` each of them, and both together, are captions
of it. MSCOCO's 82,783 images of five captions each make 4,968 training groups in five versions. The posts' pictures,
half of which have one caption, make some 170 training groups, most of them in one version. Composing the training
pictures again is how as many documents come of few pictures; docs/explanation/learning.md has what that changes.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from benchmarks.held_split import HeldSplit
from benchmarks.learning_data import LakeData, built, columns_in, digest_of_code
from pipelines.config import recipe
from pipelines.features.catalogue import extractors
from pipelines.settings import FeaturesConfig
from pipelines.sources.datasets.mscoco import MscocoSource
from pipelines.sources.records import CandidateDocument
from schemas.documents import Split
from schemas.features import several
from schemas.manifest import read_manifest
from schemas.overrides import override
from training.config import TrainConfig
from training.data.documents import DocumentSet
from training.data.lake import Columns, read_split
from training.data.loading import TrainingData, columns_of
from training.data.ragged import Ragged
from training.model import LinkModel

CAPTIONS, TRAINING = "captions.json", "training-captions.json"
SCENES_SETTINGS = ("true_images=3", "fake_images=3", "distractors=3")
BUILT_BY = ("schemas/**/*.py", "pipelines/**/*.py", "benchmarks/learning_data.py", "benchmarks/learning_scenes.py")
SENTENCE_END = re.compile(r"(?<=[.!?]) (?=[A-Z])")


def build_scenes(posts: LakeData, folder: Path) -> LakeData:
    """Return the `mscoco` documents of the posts' pictures, built unless the folder names what the same code built."""
    note = folder / "built.json"
    of = {"posts": posts.reference, "code": digest_of_code(*BUILT_BY)}
    known = json.loads(note.read_text(encoding="utf-8")) if note.exists() else {}
    if known.get("of") == of:
        return LakeData(posts.lake, known["reference"], posts.split)
    captions = write_captions(posts, folder)
    settings = [
        f"source.captions={captions}",
        f"source.images={folder / 'pictures'}",
        *(f"source.{each}" for each in (*SCENES_SETTINGS, f"seed={posts.split}")),
        *columns_in(posts.lake),
    ]
    found = built(override(recipe("mscoco"), settings), posts.lake, posts.split)
    note.write_text(json.dumps({"of": of, "reference": found.reference}), encoding="utf-8")
    return found


@dataclass(frozen=True)
class ComposedScenes:
    """`scenes` with more training documents, of the same training pictures.

    Attributes:
        scenes: what is built; its training documents are the first composition.
        times: compositions in all.
        more: the documents of the others.
    """

    scenes: LakeData
    times: int
    more: tuple[CandidateDocument, ...]

    @property
    def split(self) -> int:
        return self.scenes.split

    @property
    def key(self) -> str:
        return f"{self.scenes.key} composed {self.times} times"

    def training(self, config: TrainConfig) -> TrainingData:
        found = self.scenes.training(config)
        return replace(found, training=HeldSplit(self.training_documents(columns_of(config.reading, found.identity))))

    def documents(self, model: LinkModel, split: Split) -> DocumentSet:
        return self.scenes.documents(model, split)

    def classified(self, split: Split) -> DocumentSet:
        return self.scenes.classified(split)

    def size(self, split: Split) -> int:
        return self.scenes.size(split) + (len(self.more) if split is Split.TRAIN else 0)

    def training_documents(self, columns: Columns) -> DocumentSet:
        """Return the documents of all compositions, without links."""
        manifest, folder = read_manifest(self.scenes.lake, self.scenes.reference)
        first = read_split(manifest, folder, Split.TRAIN, columns)
        rows = {hash_: row for row, hash_ in enumerate(first.image_hashes)}
        places = {name: rows[hash_] for name, hash_ in training_pictures(self.scenes)}
        return _joined(first, self.more, places, several(columns.sentences))


@dataclass(frozen=True)
class OrderedScenes:
    """`scenes` in a share of whose documents the captions follow the order of their pictures; no link is known."""

    scenes: LakeData
    share: float

    @property
    def split(self) -> int:
        return self.scenes.split

    @property
    def key(self) -> str:
        return f"{self.scenes.key}, {self.share:.0%} in order"

    def training(self, config: TrainConfig) -> TrainingData:
        found = self.scenes.training(config)
        columns = replace(columns_of(config.reading, found.identity), links=True)
        manifest, folder = read_manifest(self.scenes.lake, self.scenes.reference)
        held = in_order(read_split(manifest, folder, Split.TRAIN, columns), self.share, self.split)
        return replace(found, training=HeldSplit(replace(held, links=None)), knows_links=False)

    def documents(self, model: LinkModel, split: Split) -> DocumentSet:
        return in_order(self.scenes.documents(model, split), self.share, self.split)

    def size(self, split: Split) -> int:
        return self.scenes.size(split)


def in_order(documents: DocumentSet, share: float, seed: int) -> DocumentSet:
    """Return documents with their sentences at random places; in a share, linked ones by the order of their images."""
    draws, rows, links = np.random.default_rng(seed), list[np.ndarray](), list[np.ndarray]()
    for part, known in zip(documents.sentences, documents.links or (), strict=True):
        pairs = np.zeros((0, 2), np.int64) if known is None else known
        order = draws.permutation(part.stop - part.start)
        if draws.random() < share:
            linked = list(dict.fromkeys(pairs[np.argsort(pairs[:, 1], kind="stable"), 0].tolist()))
            order[np.isin(order, linked)] = linked
        rows.append(part.start + order)
        links.append(np.stack([np.argsort(order)[pairs[:, 0]], pairs[:, 1]], axis=1))
    found = documents.take_sentences(np.concatenate(rows), documents.sentences)
    return replace(found, links=tuple(links), sentence_numbers=documents.sentences.numbers)


def compose(scenes: LakeData, folder: Path, times: int) -> ComposedScenes:
    """Return `scenes` with its training pictures composed `times` times; `folder` is what `build_scenes` wrote to."""
    names = {name for name, _ in training_pictures(scenes)}
    written = json.loads((folder / CAPTIONS).read_text(encoding="utf-8"))
    images = [image for image in written["images"] if image["file_name"] in names]
    numbers = {image["id"] for image in images}
    annotations = [each for each in written["annotations"] if each["image_id"] in numbers]
    source = override(MscocoSource(), [*SCENES_SETTINGS, f"captions={_write(images, annotations, folder / TRAINING)}"])
    seeds = range(scenes.split * times + 1, (scenes.split + 1) * times)
    drafts = (draft for seed in seeds for draft in replace(source, val=0.0, test=0.0, seed=seed).read())
    return ComposedScenes(scenes, times, tuple(draft for draft in drafts if isinstance(draft, CandidateDocument)))


def training_pictures(scenes: LakeData) -> Iterator[tuple[str, str]]:
    """Yield file name and content hash of the pictures of the training documents."""
    manifest, folder = read_manifest(scenes.lake, scenes.reference)
    for part in manifest.parts("documents", Split.TRAIN):
        for row in pq.read_table(io.BytesIO(folder.read(part.path)), columns=["images"]).to_pylist():
            yield from ((image["source"], image["hash"]) for image in row["images"])


def write_captions(posts: LakeData, folder: Path) -> Path:
    """Write the captions (COCO's form) and `pictures/` of the posts outside the test split; returns the file."""
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
    return _write(images, annotations, folder / CAPTIONS)


def captions_of(text: str) -> list[str]:
    """Return a caption, and where it is of several sentences, each of them: all describe the same picture."""
    parts = SENTENCE_END.split(text)
    return [text, *parts] if len(parts) > 1 else [text]


def _write(images: Sequence[Mapping[str, Any]], annotations: Sequence[Mapping[str, Any]], path: Path) -> Path:
    path.write_text(json.dumps({"images": images, "annotations": annotations}), encoding="utf-8")
    return path


@lru_cache(maxsize=4)
def _vectors(texts: tuple[str, ...], encoders: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Return the vectors of different texts by each encoder, one after the other."""
    columns = [extractors([name], "documents", FeaturesConfig())[0].extract([texts])[0][0] for name in encoders]
    return dict(zip(texts, np.concatenate(columns, axis=1).astype(np.float16), strict=True))


def _joined(
    documents: DocumentSet, drafts: Sequence[CandidateDocument], rows: Mapping[str, int], encoders: tuple[str, ...]
) -> DocumentSet:
    """Return documents and, after them, drafts of the same pictures; `rows` has a picture's place by its name."""
    texts = [sentence.text for draft in drafts for sentence in draft.sentences]
    vectors = _vectors(tuple(dict.fromkeys(texts)), encoders) if documents.sentence_vectors is not None else {}
    places = [[rows[image.uri] for image in draft.images] for draft in drafts]
    known = documents.sentence_vectors
    sentences = Ragged.of([*documents.sentences.counts, *(len(draft.sentences) for draft in drafts)])
    return replace(
        documents,
        ids=(*documents.ids, *(draft.id for draft in drafts)),
        texts=(*documents.texts, *texts),
        sentences=sentences,
        sentence_numbers=sentences.numbers,
        roles=None,
        sentence_vectors=None if known is None else np.stack([*known, *(vectors[text] for text in texts)]),
        image_rows=np.concatenate([documents.image_rows, np.array(list(chain.from_iterable(places)), np.int64)]),
        images=Ragged.of([*documents.images.counts, *map(len, places)]),
        after_sentence=None,
        languages=(*(documents.languages or ()), *(draft.language for draft in drafts)),
    )


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
