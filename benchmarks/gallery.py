"""The link viewer and the data set browser of the pages on a version of a million documents.

    python -m benchmarks.gallery [--documents 1000000] [--lake LAKE] [--changed NAME/VERSION] [--json]

The version is drawn (`scale_data.py`), with the links of two models, in shards of 5,000 documents and row groups of
256, as builds write them. `multilink pages` runs in a process of its own. Each page is asked for once, which may read
what later requests find in memory or mapped, and then ten times, each time for other documents. `--lake` keeps the
version, or has it. `--changed` is another version in that lake whose changes since the one before are shown. Times are
those of whole answers as this process sees them, and of the processor. Goal: 200 ms.

A million documents, 2026-11-25, two quiet cores of an AMD EPYC (virtual); the median of ten requests by the clock, and
the mean of their time of the processor, in ms. The first request for links reads what came of all documents: 2.8 s by
the clock, once a process; the first for two models 0.8 s.

    links: versions                    2      2
    links: surest right               61     87
    links: worst                      56     51
    links: by name                    33     31
    links: of a language, wrong       52     51
    links: another order each time   106    108
    links: two models                127    124
    data set; samples                  2, 26      2, 27
    failures; duplicates; leaks        4, 4, 4    2, 3, 3
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa

from benchmarks.pages import STARTS_WITHIN_S, processor_seconds, served
from benchmarks.scale_data import DATASET, IMAGES, IN_SHARD, SENTENCES, make_version, write
from schemas.lake import MANIFEST, Lake
from schemas.links import LINK_SCHEMA, LINKED_SCHEMA, LinkCounts, LinksManifest
from schemas.manifest import read_manifest
from schemas.parts import split_parts
from training.linking.shards import DOCUMENTS, LINKS
from training.shards import filled_splits

DOCUMENTS_DRAWN, ROWS_PER_GROUP, MODELS = 1_000_000, 256, ("first-1", "second-1")
TIMES = 10
LANGUAGES = ("de", "en", "fr")
ORDERS = ("best", "least-sure", "surest", "right")


def make(root: Path, documents: int) -> None:
    """Write the version, and links of all its documents by each model."""
    lake = make_version(root, documents, rows_per_group=ROWS_PER_GROUP)
    manifest, _ = read_manifest(lake, f"{DATASET}@v1")
    for seed, name in enumerate(MODELS):
        rng, folder = np.random.default_rng(seed), lake.root.child("links", DATASET, "v1", name)
        files, splits = [], {}
        for split in filled_splits(manifest):
            for number, shard in enumerate(split_parts(manifest, split)):
                start, count = number * IN_SHARD, shard.documents.rows
                ids = [f"{split}-{row:09d}" for row in range(start, start + count)]
                for kind, table in ((DOCUMENTS, _outcomes(ids, rng)), (LINKS, _links(ids, name, rng))):
                    files.append(write(folder, shard.path(kind), table))
            total = manifest.splits[split].documents
            splits[str(split)] = LinkCounts(documents=total, links=total * IMAGES, failures={})
        made = LinksManifest(
            model=f"models:/{name.replace('-', '/')}",
            dataset=manifest.reference,
            made_by=name,
            precision=None,
            splits=splits,
            files=tuple(sorted(files)),
        )
        folder.write(MANIFEST, made.to_json().encode())


def _outcomes(ids: list[str], rng: np.random.Generator) -> pa.Table:
    """Return what came of documents: a third of the links wrong, a fifth of the documents without a truth."""
    count, known = len(ids), rng.random(len(ids)) < 0.8
    wrong = rng.binomial(IMAGES, 1 / 3, count)
    truth = [[{"sentence": 0, "image": 0}, {"sentence": 2, "image": 1}] if each else None for each in known]
    columns = {
        "document": pa.array(ids),
        "language": pa.array(rng.choice(LANGUAGES, count)),
        "sentences": pa.repeat(SENTENCES, count),
        "images": pa.repeat(IMAGES, count),
        "links": pa.repeat(IMAGES, count),
        "wrong": pa.array(wrong, mask=~known),
        "missed": pa.array(wrong, mask=~known),
        "auc": pa.array(rng.uniform(40, 100, count), mask=~known),
        "confidence": pa.array(rng.uniform(0, 1, count)),
        "relations": pa.array([[]] * count, LINKED_SCHEMA.field("relations").type),
        "truth": pa.array(truth, LINKED_SCHEMA.field("truth").type),
    }
    return pa.table([columns[each.name].cast(each.type) for each in LINKED_SCHEMA], LINKED_SCHEMA)


def _links(ids: list[str], model: str, rng: np.random.Generator) -> pa.Table:
    count = len(ids) * IMAGES
    similarity = rng.uniform(0, 1, count).astype(np.float32)
    columns = {
        "document": pa.array(np.repeat(ids, IMAGES)),
        "sentence": pa.array(np.tile(np.arange(IMAGES), len(ids))),
        "image": pa.array(np.tile(np.arange(IMAGES), len(ids))),
        "similarity": pa.array(similarity),
        "rank": pa.array(np.tile(np.arange(1, IMAGES + 1), len(ids))),
        "model": pa.array([model] * count),
        "probability": pa.array(similarity),
    }
    rows = [columns.get(each.name, pa.nulls(count)).cast(each.type) for each in LINK_SCHEMA]
    return pa.table(rows, LINK_SCHEMA)


@dataclass(frozen=True)
class Asked:
    """A page, by its address for each of several requests."""

    name: str
    address: Callable[[int], str]


def pages_asked(documents: int, changed: str) -> list[Asked]:
    links, home = f"/links/{DATASET}/v1", f"/datasets/{DATASET}/v1"
    last = documents // 10

    def page(number: int) -> int:
        return 1 + number * last // (TIMES + 1)

    def other(number: int) -> str:
        return f"{links}?split=&language={LANGUAGES[number % len(LANGUAGES)]}&order={ORDERS[number % len(ORDERS)]}"

    found = [
        Asked("links: versions", lambda _: "/links"),
        Asked("links: surest right", lambda n: f"{links}?split=train&page={page(n)}"),
        Asked("links: worst", lambda n: f"{links}?split=train&order=worst&page={page(n)}"),
        Asked("links: by name", lambda n: f"{links}?split=train&order=name&page={page(n)}"),
        Asked("links: of a language, wrong", lambda n: f"{links}?language=de&errors=true&split=&page={1 + n}"),
        Asked("links: another order each time", other),
        Asked("links: two models", lambda n: f"{links}?split=train&model={MODELS[0]}&other={MODELS[1]}&page={page(n)}"),
        Asked("data sets", lambda _: "/datasets"),
        Asked("data set", lambda _: home),
        Asked("samples", lambda n: f"{home}/samples?seed={n}"),
        Asked("failures", lambda _: f"{home}/failures"),
        Asked("duplicates", lambda _: f"{home}/duplicates"),
        Asked("leaks", lambda _: f"{home}/leaks"),
    ]  # fmt: skip
    if changed:
        found.append(Asked("changes", lambda _: f"/datasets/{changed}/changes"))
    return found


def measure(lake: str, store: str, asked: list[Asked]) -> dict[str, Any]:
    found = {}
    with (
        served(lake, [], store) as (process, address),
        httpx.Client(base_url=address, timeout=STARTS_WITHIN_S, follow_redirects=True) as client,
    ):
        for each in asked:
            clock = [_seconds(client, each.address(0))]
            before = processor_seconds(process.pid)
            clock += [_seconds(client, each.address(number)) for number in range(1, TIMES + 1)]
            found[each.name] = {
                "first_ms": round(1000 * clock[0]),
                "median_ms": round(1000 * float(np.median(clock[1:]))),
                "slowest_ms": round(1000 * max(clock[1:])),
                "processor_ms": round(1000 * (processor_seconds(process.pid) - before) / TIMES),
            }
    return found


def _seconds(client: httpx.Client, address: str) -> float:
    began = time.perf_counter()
    answer = client.get(address)
    if answer.status_code != 200:
        raise SystemExit(f"{answer.url}: {answer.status_code}\n{answer.text[-500:]}")
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=DOCUMENTS_DRAWN)
    parser.add_argument("--lake", type=Path, help="a lake that has the drawn version, or that keeps it")
    parser.add_argument("--changed", default="", help="a version of that lake, NAME/VERSION")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="multilink-gallery-") as scratch:
        root = given.lake or Path(scratch, "lake")
        if not (root / "links" / DATASET).exists():
            make(root, given.documents)
        documents = read_manifest(Lake.at(str(root)), f"{DATASET}@v1")[0].splits["train"].documents
        found = measure(str(root), f"sqlite:///{scratch}/pages.sqlite", pages_asked(documents, given.changed))
    if given.json:
        print(json.dumps({"documents": documents} | found))
    else:
        print(f"documents: {documents}")
        for name, value in found.items():
            print(f"{name}: {value}")


if __name__ == "__main__":
    main()
