"""Small lakes for training tests: a valid data set version with random or learnable synthetic features.

A document draws topics; each topic has one sentence and one image whose vectors are noisy views of one latent vector,
so that a model that is never shown a link can find it. Sentences name their topic, for the tower that reads words.
"""

import hashlib
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
import PIL.Image
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from schemas.document_rows import to_row
from schemas.documents import Document, ImageRef, Link, Provenance, Role, Sentence, Split, document_schema, image_schema
from schemas.features import NAMES_ENCODER, FeatureColumn, FeatureKind
from schemas.lake import MANIFEST, Folder, Lake
from schemas.manifest import FileEntry, Manifest, SplitStatistics, commit, read_manifest
from schemas.tables import FEATURE_PREFIX, check_schema, to_table
from training.config import LoopConfig, Select, TrainConfig
from training.data.documents import DocumentSet, GivenDocument
from training.data.loading import identify, load_training_data
from training.data.split import TrainingSplit
from training.metrics.intervals import EVALUATION_SCHEMA, Score
from training.model import LinkModel, ModelCard
from training.text.vocabulary import Vocabulary
from training.towers.vectors import LinearSettings, SentenceSettings

TEXT_EXTRACTOR, IMAGE_EXTRACTOR, DETECTOR, NAMED = "text-test", "image-test", "boxes-test", "noisy-names"
REGIONS_EACH = 2
TINY = TrainConfig(
    recipe="tiny",
    dimensions=16,
    text=SentenceSettings(dropout=0.0),
    image=LinearSettings(dropout=0.0, standardise=True),
    training=LoopConfig(epochs=4, learning_rate=1e-2, select=Select.LAST),
)


@dataclass(frozen=True, kw_only=True)
class World:
    """What a synthetic data set is made of."""

    topics: int = 40
    latent: int = 8
    text_dimensions: int = 12
    image_dimensions: int = 16
    noise: float = 0.2
    sentences: tuple[int, int] = (2, 6)
    images: tuple[int, int] = (2, 5)
    seed: int = 0


@dataclass(frozen=True)
class Made:
    """Documents with a vector per sentence, and a vector per image hash."""

    documents: tuple[Document, ...]
    sentence_vectors: Mapping[str, np.ndarray]
    image_vectors: Mapping[str, np.ndarray]


def make_documents(split: Split, count: int, world: World) -> Made:
    """Return `count` documents of a split; the first images and sentences of each share their topics and are linked."""
    rng = np.random.default_rng([world.seed, list(Split).index(split)])
    maps = np.random.default_rng(world.seed)
    latents = maps.normal(size=(world.topics, world.latent))
    to_text = maps.normal(size=(world.latent, world.text_dimensions))
    to_image = maps.normal(size=(world.latent, world.image_dimensions))
    documents: list[Document] = []
    sentence_vectors: dict[str, np.ndarray] = {}
    image_vectors: dict[str, np.ndarray] = {}
    for number in range(count):
        n, m = int(rng.integers(*world.sentences, endpoint=True)), int(rng.integers(*world.images, endpoint=True))
        topics = rng.permutation(world.topics)[: max(n, m)]
        image_order = rng.permutation(m)
        hashes = [hashlib.sha256(f"{split}/{number}/{place}".encode()).hexdigest() for place in range(m)]
        noise = rng.normal(size=(n, world.text_dimensions)) * world.noise
        key = f"{split}-{number:03d}"
        sentence_vectors[key] = latents[topics[:n]] @ to_text + noise
        for place, topic in enumerate(image_order):
            noise = rng.normal(size=world.image_dimensions) * world.noise
            image_vectors[hashes[place]] = latents[topics[topic]] @ to_image + noise
        links = tuple(Link(int(topic), place) for place, topic in enumerate(image_order) if topic < n)
        documents.append(
            Document(
                id=key,
                dataset="synthetic",
                sentences=tuple(Sentence(f"A thing{topics[i]} , seen from side{i} .") for i in range(n)),
                images=tuple(ImageRef(key) for key in hashes),
                links=tuple(sorted(links)),
                provenance=Provenance(source="test", record_id=key),
                split=split,
            )
        )
    return Made(tuple(documents), sentence_vectors, image_vectors)


def splits(world: World | None = None, **counts: int) -> dict[Split, Made]:
    """Return as many documents of each split as is said: `splits(train=60, val=20)`."""
    return {Split(name): make_documents(Split(name), count, world or World()) for name, count in counts.items()}


def in_order(made: Made, share: float) -> Made:
    """Return documents of which a share has its pictures in the order of their sentences."""
    rng, changed = np.random.default_rng(0), []
    for document in made.documents:
        sentence_of = {link.image: link.sentence for link in document.links}
        places = [sentence_of.get(image, rng.uniform(0, 9)) for image in range(len(document.images))]
        order = np.argsort(places) if rng.random() < share else np.arange(len(places))
        new = {int(old): place for place, old in enumerate(order)}
        links = tuple(sorted(Link(link.sentence, new[link.image]) for link in document.links))
        changed.append(replace(document, images=tuple(document.images[old] for old in order), links=links))
    return replace(made, documents=tuple(changed))


def with_roles(made: Made, roles: Sequence[str], language: str = "und") -> Made:
    """Return the same documents with roles given to their sentences in turn."""
    documents = tuple(
        replace(
            document,
            sentences=tuple(Sentence(s.text, Role(roles[i % len(roles)])) for i, s in enumerate(document.sentences)),
            language=language,
        )
        for document in made.documents
    )
    return replace(made, documents=documents)


def without_links(made: Made) -> Made:
    """Return the same documents with unknown links."""
    return replace(made, documents=tuple(replace(document, links=None) for document in made.documents))


def with_other_links(made: Made) -> Made:
    """Return the same documents with other, wrong links."""
    return replace(made, documents=tuple(replace(d, links=(Link(0, len(d.images) - 1),)) for d in made.documents))


def with_places(made: Made, shift: int = 0) -> Made:
    """Return the same documents, each image beside its linked sentence or so many below; unknown of others."""

    def place(document: Document, image: int) -> int | None:
        beside = next((link.sentence for link in document.links or () if link.image == image), None)
        return None if beside is None else (beside + shift) % (len(document.sentences) + 1)

    documents = (
        replace(each, after_sentence=tuple(place(each, image) for image in range(len(each.images))))
        for each in made.documents
    )
    return replace(made, documents=tuple(documents))


def with_relations(made: Made, names: Sequence[str] = ("story", "action")) -> Made:
    """Return pair documents whose relations follow from the image, every fifth label of the first unknown."""
    changed = []
    for number, document in enumerate(made.documents):
        vector = made.image_vectors[document.images[0].hash]
        labels = [(name, bool(vector[place] > 0)) for place, name in enumerate(names)]
        known = tuple((name, None if number % 5 == 0 and name == names[0] else value) for name, value in labels)
        changed.append(replace(document, links=(Link(0, 0, known),)))
    return replace(made, documents=tuple(changed))


def write_lake(
    root: str | Path,
    splits: Mapping[Split, Made],
    *,
    shards: int = 3,
    world: World | None = None,
    version: str = "v1",
    is_rich: bool = False,
    is_named: bool = False,
    said: Mapping[str, Mapping[str, object]] | None = None,
) -> Lake:
    """Write documents as a committed version of the data set `synthetic` and return the lake.

    A rich one also has pictures and two regions of each image, made of its vector. A named one has columns of class
    names (`noisy-names`) and of their encoder, with vectors of one latent space. `said` are further columns of some
    images, by their hash.
    """
    world = world or World()
    lake = Lake.at(str(root))
    writer = _Writer(lake, version, world, is_rich=is_rich, is_named=is_named, said=said or {})
    for split, made in splits.items():
        for shard in range(shards):
            writer.write_shard(split, shard, shards, made.documents[shard::shards], made)
    manifest = Manifest(
        dataset="synthetic",
        version=version,
        files=tuple(sorted(writer.files)),
        splits={str(split): statistics_of(made.documents) for split, made in splits.items()},
        failures={},
        stages={},
        features={"images": writer.images, "documents": writer.sentences},
        config={},
        inputs={},
        schema_versions={"documents": 1, "images": 1},
    )
    commit(lake, manifest)
    return lake


def learn(config: TrainConfig, lake: Lake, run: Path, *, dataset: str = "synthetic") -> Path:
    """Train on a lake in this process; return the folder of the model."""
    from training.loop.context import Context
    from training.loop.trainer import train

    data = load_training_data(lake, dataset, config.reading)
    return train(config, data, Context(), run_directory=run).model


def untrained(
    config: TrainConfig, lake: Lake, words: Sequence[str] = (), *, dataset: str = "synthetic", seed: int = 0
) -> LinkModel:
    """Return a model of a lake with random weights; towers that read words know these."""
    data = identify(*read_manifest(lake, dataset), config.reading)
    vocabulary = Vocabulary.from_counts(dict.fromkeys(words, 1), min_count=1) if words else None
    torch.manual_seed(seed)
    return LinkModel(ModelCard(config=config, data=data), vocabulary).eval()


def whole(split: TrainingSplit) -> DocumentSet:
    """Return all documents of a split, as training reads them."""
    return split.documents(np.arange(len(split.index)))


def given_documents(documents: DocumentSet) -> Iterator[GivenDocument]:
    """Yield documents of a data set as a user has them: texts, and the vectors of both sides."""
    for number, (rows, places) in enumerate(zip(documents.sentences, documents.images, strict=True)):
        yield GivenDocument(
            id=documents.ids[number],
            texts=documents.texts[rows],
            image_vectors=documents.image_bank[documents.image_rows[places]],
            sentence_vectors=documents.sentence_vectors[rows],
        )


def rewrite_parts(lake: Lake, below: str, change: Callable[[pa.Table], pa.Table]) -> None:
    """Change the tables below a path of the version, and list them in its manifest as if they had been built so."""
    manifest, folder = read_manifest(lake, "synthetic")
    entries = []
    for entry in manifest.files:
        if entry.path.startswith(below):
            table, buffer = change(pq.read_table(folder.open(entry.path))), io.BytesIO()
            pq.write_table(table, buffer)
            entries.append(_listed(folder, entry.path, buffer.getvalue(), table.num_rows))
        else:
            entries.append(entry)
    folder.write(MANIFEST, replace(manifest, files=tuple(entries)).to_json().encode())


def _listed(folder: Folder, path: str, data: bytes, rows: int) -> FileEntry:
    folder.write(path, data)
    return FileEntry(path=path, bytes=len(data), sha256=hashlib.sha256(data).hexdigest(), rows=rows)


def weights_of(model: LinkModel) -> dict[str, object]:
    """Return the weights of a model by their names, as lists, which compare as a whole."""
    return {name: value.tolist() for name, value in model.state_dict().items()}


def tree(folder: Path) -> dict[str, bytes]:
    """Return the bytes of all files below a folder, by their paths in it."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def flip_a_byte(path: Path, at: int | None = None) -> None:
    """Change the lowest bit of a byte of a file, by default of the middle one; twice leaves the file as it was."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if at is None else at] ^= 1
    path.write_bytes(bytes(data))


class _Writer:
    def __init__(
        self,
        lake: Lake,
        version: str,
        world: World,
        *,
        is_rich: bool,
        is_named: bool,
        said: Mapping[str, Mapping[str, object]],
    ) -> None:
        self.said = said
        self.to_latent = _to_latent(world) if is_named else None
        self.folder = lake.dataset("synthetic", version)
        regions = FeatureColumn(name=DETECTOR, kind=FeatureKind.REGIONS, dimensions=world.image_dimensions)
        vectors = FeatureColumn(name=IMAGE_EXTRACTOR, dimensions=world.image_dimensions)
        self.images: tuple[FeatureColumn, ...] = (regions, vectors) if is_rich else (vectors,)
        self.is_rich = is_rich
        self.sentences: tuple[FeatureColumn, ...] = (
            FeatureColumn(name=TEXT_EXTRACTOR, dimensions=world.text_dimensions),
        )
        if is_named:
            self.images += (FeatureColumn(name=NAMED, dimensions=world.latent),)
            self.sentences += (FeatureColumn(name=NAMES_ENCODER, dimensions=world.latent),)
        self.files: list[FileEntry] = []

    def write_shard(self, split: Split, shard: int, shards: int, documents: Sequence[Document], made: Made) -> None:
        name = f"{split}/part-{shard:05d}-of-{shards:05d}.parquet"
        rows = [to_row(d) | self._sentences(made.sentence_vectors[d.id]) for d in documents]
        self._write(f"documents/{name}", to_table(rows, document_schema(self.sentences)))
        hashes = dict.fromkeys(image.hash for document in documents for image in document.images)
        images = [
            _image_row(key, made.image_vectors[key], is_rich=self.is_rich) | self._said(key, made.image_vectors[key])
            for key in hashes
        ]
        self._write(f"images/{name}", to_table(images, image_schema(self.images)))

    def _sentences(self, vectors: np.ndarray) -> dict[str, object]:
        found: dict[str, object] = {FEATURE_PREFIX + TEXT_EXTRACTOR: _halves(vectors)}
        if self.to_latent is None:
            return found
        return found | {FEATURE_PREFIX + NAMES_ENCODER: _halves(vectors @ self.to_latent[0])}

    def _said(self, key: str, vector: np.ndarray) -> dict[str, object]:
        found = {**self.said.get(key, {})}
        return (
            found if self.to_latent is None else found | {FEATURE_PREFIX + NAMED: _halves(vector @ self.to_latent[1])}
        )

    def _write(self, path: str, table: pa.Table) -> None:
        self.files.append(write_table(self.folder, path, table))


def write_table(folder: Folder, path: str, table: pa.Table) -> FileEntry:
    """Write a table into a version's folder; return the entry of its manifest."""
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    return _listed(folder, path, buffer.getvalue(), table.num_rows)


def _to_latent(world: World) -> tuple[np.ndarray, np.ndarray]:
    """Return what takes the vectors of sentences and of images back to where both came from."""
    maps = np.random.default_rng(world.seed)
    maps.normal(size=(world.topics, world.latent))
    to_text = maps.normal(size=(world.latent, world.text_dimensions))
    return np.linalg.pinv(to_text), np.linalg.pinv(maps.normal(size=(world.latent, world.image_dimensions)))


def _image_row(key: str, vector: np.ndarray, *, is_rich: bool) -> dict[str, object]:
    empty = ("source", "format", "width", "height", "original_bytes", "fingerprint", "licence", "jpeg")
    row: dict[str, object] = {"hash": key, "is_flat": False} | dict.fromkeys(empty)
    row |= {FEATURE_PREFIX + IMAGE_EXTRACTOR: _halves(vector)}
    if not is_rich:
        return row
    regions = [
        {"box": [0.0, 0.0, 1.0, 1.0], "label": f"red thing{number}", "score": 1 / (1 + number), "vector": list(shifted)}
        for number, shifted in enumerate(np.roll(vector, shift).astype(np.float16) for shift in range(REGIONS_EACH))
    ]
    return row | {f"regions.{DETECTOR}": regions, "jpeg": jpeg(int(key[:8], 16))}


def jpeg(seed: int, size: tuple[int, int] = (256, 256)) -> bytes:
    """Return a picture of coarse blocks, another one for each seed."""
    blocks = np.random.default_rng(seed).integers(0, 255, (8, 8, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    PIL.Image.fromarray(blocks).resize(size).save(buffer, "JPEG")
    return buffer.getvalue()


def _halves(vectors: np.ndarray) -> list[object]:
    halves = vectors.astype(np.float16)
    return list(halves) if halves.ndim == 1 else [list(row) for row in halves]


def statistics_of(documents: Sequence[Document]) -> SplitStatistics:
    n = [len(document.sentences) for document in documents] or [0]
    m = [len(document.images) for document in documents] or [0]
    return SplitStatistics(
        documents=len(documents),
        images=sum(m),
        sentences=sum(n),
        unique_images=len({image.hash for document in documents for image in document.images}),
        median_sentences=float(np.median(n)),
        median_images=float(np.median(m)),
        mean_sentences=float(np.mean(n)),
        mean_images=float(np.mean(m)),
        max_sentences=max(n),
        max_images=max(m),
        links=sum(len(document.links or ()) for document in documents),
        documents_with_known_links=sum(document.links is not None for document in documents),
        density=None,
    )


def read_rows(path: Path) -> tuple[Score, ...]:
    """Return the rows of an evaluation's table."""
    table = pq.read_table(path)
    check_schema(table.schema, EVALUATION_SCHEMA, where=str(path))
    return tuple(Score(**row) for row in table.select([item.name for item in fields(Score)]).to_pylist())
