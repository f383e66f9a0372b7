"""Documents relinked per second, against a plain loop over the same shards and model.

    python -m benchmarks.relink [--shards 12] [--documents 48] [--clock cpu] [--json]

    plain     for each shard: its vectors read as training reads them, both towers, the matching of each document, and
              its documents written with the links. No failures, no notes, no digests, nothing can be resumed.
    relink    `multilink relink --dataset`: the function that the command calls, in this process.

Data sets and models are those of `benchmarks.linking`. Both run in one thread, by turns; the best of five times.
`--clock cpu` counts processor seconds, where other work shares the machine.

Measured on two cores with much other work beside, in processor seconds (`--shards 4 --clock cpu`):

                 plain    relink
    gru          34.1     35.0, 1.03 of it
    frozen       450      384, 0.85 of it

Where a tower is one affine map, what is counted and noted of each document takes an eighth; where towers are the work,
nothing is seen of it.
"""

from __future__ import annotations

import argparse
import io
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from benchmarks.linking import DATASET, make_models, make_version
from schemas.documents import Split
from schemas.lake import Folder, Lake
from schemas.links import PREDICTED_LINKS, RELINKED_SCHEMA
from schemas.manifest import read_manifest
from schemas.parts import split_parts
from training.data.loading import read_for_model
from training.linking.links import Linker
from training.linking.versions import link_version, prepare_linking
from training.model import LinkModel
from training.similarity.assignment import predicted_pairs

URI = "models:/benchmark/1"
TURNS = 5


def plain(model: LinkModel, lake: Lake, output: Path) -> None:
    """Relink every shard by the shortest code that does it."""
    manifest, folder = read_manifest(lake, DATASET)
    kind = RELINKED_SCHEMA.field(PREDICTED_LINKS).type
    output.mkdir()
    for number, shard in enumerate(split_parts(manifest, Split.TEST)):
        documents = read_for_model(
            model.card.config.reading, model.card.data, manifest, folder, Split.TEST, shards=[shard]
        )
        predicted = []
        for embedded in model.embed(documents):
            matrix = embedded.similarities()
            rows, columns = predicted_pairs(matrix)
            predicted.append(
                [
                    {"sentence": int(s), "image": int(i), "similarity": float(matrix[s, i]), "probability": None}
                    for s, i in sorted(zip(rows, columns, strict=True), key=lambda pair: -matrix[pair])
                ]
            )
        names = [name for name in RELINKED_SCHEMA.names if name != PREDICTED_LINKS]
        table = pq.read_table(io.BytesIO(folder.read(shard.documents.path)), columns=names)
        table = table.append_column(PREDICTED_LINKS, pa.array(predicted, kind))
        pq.write_table(table, output / f"{number}.parquet", compression="zstd")


def relink(model: LinkModel, lake: Lake, output: Path) -> None:
    linker = Linker(model=model, uri=URI)
    linking = prepare_linking(linker, lake, DATASET, output=Folder(str(output)), with_documents=True)
    link_version(model, linking, say=lambda line: None)


def predicted_links(output: Path) -> dict[str, list[tuple[int, int]]]:
    rows = pa.concat_tables(
        pq.read_table(path, columns=["id", PREDICTED_LINKS]) for path in sorted(output.rglob("*.parquet"))
    ).to_pylist()
    return {row["id"]: [(link["sentence"], link["image"]) for link in row[PREDICTED_LINKS]] for row in rows}


def seconds(
    run: Callable[[LinkModel, Lake, Path], None],
    model: LinkModel,
    lake: Lake,
    output: Path,
    clock: Callable[[], float],
) -> float:
    began = clock()
    run(model, lake, output)
    return clock() - began


def measure(options: argparse.Namespace, root: Path) -> dict[str, float]:
    clock = time.process_time if options.clock == "cpu" else time.perf_counter
    lake = make_version(root / "lake", {Split.TEST: options.shards}, options.documents)
    total, found = options.shards * options.documents, dict[str, float]()
    for name, model in make_models(lake).items():
        times: dict[str, list[float]] = {"plain": [], "relink": []}
        for turn in range(TURNS):
            times["plain"].append(seconds(plain, model, lake, root / f"{name}-plain-{turn}", clock))
            times["relink"].append(seconds(relink, model, lake, root / f"{name}-relink-{turn}", clock))
        if predicted_links(root / f"{name}-plain-0") != predicted_links(root / f"{name}-relink-0" / "relinked"):
            raise SystemExit(f"{name}: both predict other links")
        rates = {which: total / min(each) for which, each in times.items()}
        found |= {f"{name} {which}": rate for which, rate in rates.items()}
        share = rates["relink"] / rates["plain"]
        print(f"{name}: plain {rates['plain']:.0f} documents/s, relink {rates['relink']:.0f}, {share:.2f} of it")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=int, default=12)
    parser.add_argument("--documents", type=int, default=48, help="of a shard")
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON in the last line")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="multilink-relink-") as scratch:
        found = measure(options, Path(scratch))
    if options.json:
        print(json.dumps({name: round(value, 1) for name, value in found.items()}))


if __name__ == "__main__":
    main()
