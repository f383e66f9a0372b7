"""Documents linked per second, by one and by two workers, against both towers alone on the same rows.

    python -m benchmarks.linking [--shards 4] [--documents 256] [--models frozen] [--clock cpu] [--json]

    bound      both towers' forward pass in one process and one thread over rows that lie prepared in memory: nothing is
               read, tokenised, matched or written.
    loop       the whole job as one would write it by hand for this data set alone (`loop_links`): Parquet to towers to
               an assignment a document to a table of links. It checks no digest, and keeps no outcome of a document.
    1 worker   `training.linking.versions.link_version` in this process: shards on disk to links on disk.
    2 workers  the same by two Ray tasks at a time. From the first shard done to the last, and with Ray's start.

Documents have 8-22 sentences of 6-30 words and 8-24 images; two models, d = 1024: `gru` reads words (300-d, GRU),
`frozen` sentence vectors of 512 numbers; both read image vectors of 1280. Weights are random. The bytes of one and of
two workers are compared. `--clock cpu` counts processor seconds, of the bound, the loop and one worker alone.

Measured in processor time with shards of 256 documents, the default of builds, on a busy machine:

                 bound   loop   1 worker
    gru          52      49     51, 0.99 of the bound, 1.04 of the loop
    frozen       1952    768    725, 0.37 of the bound, 0.94 of the loop (0.97 with 400 documents a shard)

On 2026-11-24 at a load of 7, 2 shards of 256 documents, the best of six turns: `frozen` bound 1297, loop 633, 1 worker
611, 0.97 of the loop; of `gru`, 4 shards at a load of 2 to 8, bound 35, loop 35, 1 worker 36, 1.02 of the loop. The
goal is 0.95.

By the clock two workers linked 1.26 times (`gru`) and 1.65 times (`frozen`) as fast as one on two busy cores, after 12
to 22 seconds of Ray's start: they pay where a version takes minutes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from scipy.optimize import linear_sum_assignment

from benchmarks.scale_data import write
from schemas.document_rows import to_row
from schemas.documents import Document, ImageRef, Provenance, Sentence, Split, document_schema, image_schema
from schemas.features import FeatureColumn
from schemas.lake import Folder, Lake
from schemas.manifest import FileEntry, Manifest, SplitStatistics, commit, read_manifest
from schemas.parts import Shard, split_parts
from schemas.tables import FEATURE_PREFIX, to_table
from training.config import TrainConfig
from training.data.loading import identify, read_for_model
from training.linking.links import Linker
from training.linking.versions import link_version, prepare_linking
from training.model import LinkModel, ModelCard
from training.ray.shards import RayWorkers
from training.shards import RunShards, run_here, shards_run_by
from training.text.vocabulary import PAD, UNKNOWN, Vocabulary
from training.towers.image.linear import LinearSettings
from training.towers.inputs import ImageInput, TextInput, image_input, text_input
from training.towers.text.gru import GruSettings
from training.towers.text.sentence import SentenceSettings

TEXT_DIMENSIONS, IMAGE_DIMENSIONS, VOCABULARY = 512, 1280, 5000
DATASET, TEXT, IMAGE = "benchmark", "sentence-vectors", "image-vectors"
FEATURES = {
    "images": (FeatureColumn(name=IMAGE, dimensions=IMAGE_DIMENSIONS),),
    "documents": (FeatureColumn(name=TEXT, dimensions=TEXT_DIMENSIONS),),
}
KNOWN = Vocabulary((PAD, UNKNOWN, *(f"w{number}" for number in range(VOCABULARY - 2))))


@dataclass(frozen=True, slots=True)
class Shape:
    """Bounds of a document's sentences, of a sentence's words and of a document's images."""

    sentences: tuple[int, int] = (8, 22)
    words: tuple[int, int] = (6, 30)
    images: tuple[int, int] = (8, 24)


def make_version(root: Path, splits: Mapping[Split, int], documents: int, shape: Shape = Shape()) -> Lake:
    """Write and commit a version whose splits have so many shards of `documents` documents."""
    lake, rng = Lake.at(str(root)), np.random.default_rng(0)
    folder = lake.dataset(DATASET, "v1")
    files: list[FileEntry] = []
    for split, shard in ((split, shard) for split, shards in splits.items() for shard in range(shards)):
        made = [make_document(rng, f"{split}-{shard:03d}-{number:04d}", split, shape) for number in range(documents)]
        name = f"{split}/part-{shard:05d}-of-{splits[split]:05d}.parquet"
        rows = [
            to_row(each) | {FEATURE_PREFIX + TEXT: vectors(rng, len(each.sentences), TEXT_DIMENSIONS)} for each in made
        ]
        files.append(write(folder, f"documents/{name}", to_table(rows, document_schema(FEATURES["documents"]))))
        looks = [image_row(rng, image.hash) for each in made for image in each.images]
        files.append(write(folder, f"images/{name}", to_table(looks, image_schema(FEATURES["images"]))))
    counted = {str(split): count(shards * documents, shape) for split, shards in splits.items()}
    manifest = Manifest(
        dataset=DATASET,
        version="v1",
        files=tuple(sorted(files)),
        splits=counted,
        failures={},
        stages={},
        features=FEATURES,
        config={},
        inputs={},
        schema_versions={"documents": 1, "images": 1},
    )
    commit(lake, manifest)
    return lake


def count(documents: int, shape: Shape) -> SplitStatistics:
    """Return the statistics of a split, as far as they are read."""
    return SplitStatistics(
        documents=documents,
        images=0,
        sentences=0,
        unique_images=0,
        median_sentences=0,
        median_images=0,
        mean_sentences=0,
        mean_images=0,
        max_sentences=shape.sentences[1],
        max_images=shape.images[1],
        links=0,
        documents_with_known_links=0,
        density=None,
    )


def make_document(rng: np.random.Generator, key: str, split: Split, shape: Shape) -> Document:
    texts = [
        " ".join(KNOWN.words[word] for word in rng.integers(2, VOCABULARY, rng.integers(*shape.words, endpoint=True)))
        for _ in range(rng.integers(*shape.sentences, endpoint=True))
    ]
    hashes = [
        hashlib.sha256(f"{key}/{place}".encode()).hexdigest()
        for place in range(rng.integers(*shape.images, endpoint=True))
    ]
    return Document(
        id=key,
        dataset=DATASET,
        sentences=tuple(map(Sentence, texts)),
        images=tuple(map(ImageRef, hashes)),
        links=None,
        provenance=Provenance(source="benchmark", record_id=key),
        split=split,
    )


def image_row(rng: np.random.Generator, key: str) -> dict[str, object]:
    empty = ("source", "format", "width", "height", "original_bytes", "fingerprint", "licence", "jpeg")
    vector = vectors(rng, 1, IMAGE_DIMENSIONS)[0]
    return {"hash": key, "is_flat": False, FEATURE_PREFIX + IMAGE: vector} | dict.fromkeys(empty)


def vectors(rng: np.random.Generator, count: int, dimensions: int) -> list[np.ndarray]:
    return list(rng.normal(size=(count, dimensions)).astype(np.float16))


def make_models(lake: Lake) -> dict[str, LinkModel]:
    """Return one model that reads words and one that reads sentence vectors, with random weights."""
    manifest, folder = read_manifest(lake, DATASET)
    found = {}
    for name, text in (("gru", GruSettings()), ("frozen", SentenceSettings())):
        torch.manual_seed(0)
        image = LinearSettings(standardise=name == "frozen")
        config = TrainConfig(recipe="benchmark", text=text, image=image)
        card = ModelCard(config=config, data=identify(manifest, folder, config.reading))
        found[name] = LinkModel(card, KNOWN if name == "gru" else None).eval()
    return found


@dataclass(frozen=True, slots=True)
class Timed:
    """Links shards and notes when each was done."""

    run: RunShards
    clock: Callable[[], float]
    done: list[float]

    def __call__(self, model: LinkModel, task: Callable[..., Any], shards: Sequence[Shard]) -> Iterator[Any]:
        self.done.append(self.clock())
        for found in self.run(model, task, shards):
            self.done.append(self.clock())
            yield found


def tower_seconds(model: LinkModel, lake: Lake, clock: Callable[[], float]) -> float:
    """Return how long both towers take over all rows, the better of two times."""
    manifest, folder = read_manifest(lake, DATASET)
    parts = [
        read_for_model(model.card.config.reading, model.card.data, manifest, folder, Split.TEST, shards=[shard])
        for shard in split_parts(manifest, Split.TEST)
    ]
    rows = [(model.text.prepare(text_input(part)), model.image.prepare(image_input(part))) for part in parts]
    found = []
    for _ in range(2):
        began = clock()
        with torch.inference_mode():
            for texts, images in rows:
                model.text(texts)
                model.image(images)
        found.append(clock() - began)
    return min(found)


def loop_seconds(model: LinkModel, lake: Lake, output: Path, clock: Callable[[], float]) -> float:
    """Return how long the job takes as somebody would write it by hand for this data set alone."""
    manifest, folder = read_manifest(lake, DATASET)
    output.mkdir(parents=True, exist_ok=True)
    began = clock()
    for shard in split_parts(manifest, Split.TEST):
        found = list(loop_links(model, f"{folder.local}/{shard.documents.path}", f"{folder.local}/{shard.images.path}"))
        columns = dict(zip(("document", "sentence", "image", "similarity"), zip(*found, strict=True), strict=True))
        pq.write_table(pa.table(columns), output / shard.name, compression="zstd")
    return clock() - began


def loop_links(model: LinkModel, documents: str, images: str) -> Iterator[tuple[str, int, int, float]]:
    """Yield the links of a shard: both towers over all of its rows, then an assignment a document."""
    is_frozen, text, image = model.vocabulary is None, FEATURE_PREFIX + TEXT, FEATURE_PREFIX + IMAGE
    table = pq.read_table(documents, columns=["id", "sentences", "images", *([text] if is_frozen else [])])
    bank = pq.read_table(images, columns=["hash", image])
    row_of = {key: number for number, key in enumerate(bank["hash"].to_pylist())}
    rows = table.select(["id", "sentences", "images"]).to_pylist()
    texts = [sentence["text"] for row in rows for sentence in row["sentences"]]
    vectors = matrix_of(table[text].combine_chunks().flatten()) if is_frozen else None
    with torch.inference_mode():
        left = model.text(model.text.prepare(TextInput(texts=texts, vectors=vectors))).numpy()
        right = model.image(model.image.prepare(ImageInput(vectors=matrix_of(bank[image].combine_chunks())))).numpy()
    start = 0
    for row in rows:
        stop, places = start + len(row["sentences"]), [row_of[each["hash"]] for each in row["images"]]
        similarities = left[start:stop] @ right[places].T
        for number, place in zip(*linear_sum_assignment(-similarities.clip(0)), strict=True):
            if similarities[number, place] >= 0:
                yield row["id"], int(number), int(place), float(similarities[number, place])
        start = stop


def matrix_of(vectors: pa.Array) -> np.ndarray:
    return vectors.flatten().to_numpy(zero_copy_only=False).astype(np.float32).reshape(len(vectors), -1)


def run(model: LinkModel, lake: Lake, output: Path, runner: RunShards, clock: Callable[[], float]) -> list[float]:
    """Link the version; return when it began and when each shard was done."""
    linking = prepare_linking(Linker(model=model, uri="models:/benchmark/1"), lake, DATASET, output=Folder(str(output)))
    done: list[float] = []
    with shards_run_by(Timed(runner, clock, done)):
        link_version(model, linking, say=print)
    return done


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def measure(options: argparse.Namespace, root: Path) -> dict[str, float]:
    clock = time.process_time if options.clock == "cpu" else time.perf_counter
    lake = make_version(root / "lake", {Split.TEST: options.shards}, options.documents)
    total = options.shards * options.documents
    found: dict[str, float] = {}
    for name, model in make_models(lake).items():
        if name not in options.models:
            continue
        bound = total / tower_seconds(model, lake, clock)
        loops, times = [], []
        for turn in range(options.turns):
            loops.append(loop_seconds(model, lake, root / name / "loop", clock))
            alone = run(model, lake, root / name / ("one" if not turn else f"one-{turn}"), run_here, clock)
            times.append(alone[-1] - alone[0])
        loop, one = total / min(loops), total / min(times)
        found |= {f"{name} bound": bound, f"{name} loop": loop, f"{name} 1 worker": one}
        print(
            f"{name}: bound {bound:.0f} documents/s; a loop by hand {loop:.0f}; 1 worker {one:.0f}, "
            f"{one / bound:.2f} of the bound, {one / loop:.2f} of the loop"
        )
        if options.clock == "cpu":
            continue
        with RayWorkers(2) as workers:
            done = run(model, lake, root / name / "two", workers, clock)
        if tree(root / name / "one") != tree(root / name / "two"):
            raise SystemExit(f"{name}: two workers wrote other bytes than one")
        steady = options.documents * (len(done) - 2) / (done[-1] - done[1])
        whole = total / (done[-1] - done[0])
        found |= {f"{name} 2 workers": steady, f"{name} 2 workers with Ray's start": whole}
        print(
            f"{name}: 2 workers {steady:.0f} documents/s, {steady / bound:.2f} of the bound, "
            f"{steady / one:.2f} x 1 worker"
        )
        print(f"{name}: with Ray's start of {done[1] - done[0]:.1f} s to the first shard {whole:.0f} documents/s")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--documents", type=int, default=256, help="of a shard")
    parser.add_argument("--models", choices=["gru", "frozen"], nargs="+", default=["gru", "frozen"])
    parser.add_argument("--turns", type=int, default=2, help="of the loop and of one worker; the best counts")
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON in the last line")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="multilink-linking-") as scratch:
        found = measure(options, Path(scratch))
    if options.json:
        print(json.dumps({name: round(value, 1) for name, value in found.items()}))


if __name__ == "__main__":
    main()
