"""An archive of a million pictures: its index made and grown, and searched as `multilink search` and the pages do.

    python -m benchmarks.retrieval [--images 1000000] [--json]

No archive of that size is at hand, so one is drawn (`archive_data.py`). Goals on one core: made in 3 minutes, 1% more
in 5 s; half of the vector searches within 8 ms with recall of the first 50 of 0.98, filters of 1% and of 10% within
15 ms, words within 5 ms, facets within 20 ms, the names of an article of 2,000 words within 20 ms.

Making is `multilink index` but for reading the model: the version is read, vectors are mapped by the identity, all is
written. Each step is a process of its own, so that its memory is known. Times are of the processor and, beside them, of
the clock, which other work on the machine lengthens.

A million, 2026-11-25, one of two cores (AMD EPYC, virtual) at a load of 6 to 7, which lengthens the clock's times and
hardly the processor's. Processor time, p50 where there are many:

    made                              169 s (282 by the clock), 1.9 GB, 3.3 GB of memory
    1% more                           11.6 s (18 by the clock)                            missed: 5 s
    vector; recall of the first 50    9.1 ms; 0.997 (new texts), 0.987 (the version's)    missed: 8 ms (quiet: 6.5)
    product with all rows, in numpy   66 ms
    filter of 1%, of 10%, and vector  5.3, 10.6 ms
    words of a text of 10, 200, 2000  5.6, 8.4, 12.2 ms                                   missed: 5 ms
    facets; within 1%, 10%            14.4; 2.7, 6.3 ms
    names of a text of 2,000 words    7.1 ms
    56 records                        1.8 ms
    memory of a process that searches 423 MB of its own

How many lists are looked at is chosen by the version's own texts, whose pictures are in the archive: about 460 of
2,048. Of 1% more, two thirds are what is read of all pictures to know which are new or have changed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.archive_data import DATASET, DIMENSIONS, Language, World, make_versions
from newsroom.archive.build import build_index
from newsroom.archive.filters import parse_filters
from newsroom.archive.index import Index, open_index
from newsroom.archive.vectors import RECALL_OF, RERANKED, faiss
from newsroom.pages.entities import Gazetteer, find_entities
from schemas.lake import Lake
from schemas.manifest import read_manifest
from training.config import TrainConfig
from training.data.loading import identify
from training.model import LinkModel, ModelCard
from training.towers.image.linear import LinearSettings
from training.towers.text.sentence import SentenceSettings

IMAGES, QUERIES, TRUTHS = 1_000_000, 200, 60
FILTERS = {"1%": ("date>=2010-03-01", "date<2010-06"), "10%": ("date>=2010", "date<=2012-06-17")}


def identity(lake: Lake) -> LinkModel:
    """Return a model whose vectors are those of the version."""
    import torch

    settings = {"dropout": 0.0}
    config = TrainConfig(
        dimensions=DIMENSIONS,
        text=SentenceSettings(**settings),
        image=LinearSettings(**settings),  # type: ignore[arg-type]
    )
    manifest, source = read_manifest(lake, f"{DATASET}@v1")
    model = LinkModel(ModelCard(config=config, data=identify(manifest, source, config.reading)), None).eval()
    for tower in (model.text, model.image):
        tower.set_map(torch.eye(DIMENSIONS), torch.zeros(DIMENSIONS))
    return model


def make(root: str, version: str) -> dict[str, Any]:
    """Make the index of a version as `multilink index` does."""
    lake = Lake.at(root)
    model = identity(lake)
    clock, processor = time.perf_counter(), time.process_time()
    made = build_index(model, lake, f"{DATASET}@{version}", uri="identity", name="identity", say=lambda line: None)
    cells = made.manifest.cells
    return {
        "clock_s": time.perf_counter() - clock,
        "processor_s": time.process_time() - processor,
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "bytes": made.to_json()["bytes"],
        "images": made.manifest.images,
        "parts": len(made.manifest.parts),
        "recall_when_made": cells and cells.recall,
        "uri": made.folder.uri,
    }


def measure(uri: str) -> dict[str, Any]:
    """Search an index in every way that a page does."""
    faiss().omp_set_num_threads(1)
    before = memory_mb()
    clock = time.perf_counter()
    index = open_index(uri)
    found: dict[str, Any] = {"open, first time": {"clock_ms": 1000 * (time.perf_counter() - clock)}}
    clock = time.perf_counter()
    index = open_index(uri)
    found["open"] = {"clock_ms": 1000 * (time.perf_counter() - clock)}
    for name, figures in (*vector_searches(index), *word_searches(index), *of_records(index), *names(index)):
        found[name] = figures
    return found | {"memory of its own": {"mb": memory_mb() - before}}


def vector_searches(index: Index) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield the times of searches by vector, with their recall."""
    world, count = World.make(), len(index.vectors.rows)
    queries = world.texts(1, world.rows(777, QUERIES))
    yield "vector", timed(queries, lambda query: index.vectors.nearest(query, RERANKED))
    yield "vector, product with all rows", timed(queries[:20], lambda query: index.vectors.rows @ query)
    shares = []
    for query in queries[:TRUTHS]:
        true = np.argsort(-(index.vectors.rows @ query), kind="stable")
        live = true[index.records.is_live[true]][:RECALL_OF]
        shares.append(np.isin(live, index.vectors.nearest(query, RECALL_OF).rows).mean())
    yield "vector, recall", {"recall": float(np.mean(shares))}
    for name, where in FILTERS.items():
        filters = parse_filters(where)
        left = index.records.select(filters)
        assert left is not None
        share = {"share": len(left) / count}
        yield f"filter {name}, rows", share | timed(range(20), lambda _, filters=filters: index.records.select(filters))
        yield (
            f"filter {name} and vector",
            timed(queries, lambda q, f=filters: index.vectors.nearest(q, RERANKED, index.records.select(f))),
        )


def word_searches(index: Index) -> Iterator[tuple[str, dict[str, float]]]:
    language, rng = Language.make(), np.random.default_rng(5)
    texts = {size: [language.text(rng, size) for _ in range(QUERIES // 2)] for size in (10, 200, 2_000)}
    for size, some in texts.items():
        yield f"words, text of {size}", timed(some, lambda text: index.words.rank(text, RERANKED))
    for name, where in FILTERS.items():
        filters = parse_filters(where)
        yield f"words, filter {name}", timed(texts[10], lambda text, f=filters: index.words.rank(text, RERANKED, f))
    place = language.places[0].partition(",")[0]
    for name, phrase in {"commonest place": place, "a person": language.persons[0]}.items():
        filters = parse_filters(entities=[phrase])
        number = {"pictures": index.records.number(filters)}
        yield f"phrase, {name}, rows", number | timed(range(9), lambda _, f=filters: index.records.select(f))
        yield f"phrase, {name}, number", timed(range(9), lambda _, f=filters: index.records.number(f))


def of_records(index: Index) -> Iterator[tuple[str, dict[str, float]]]:
    yield "facets", timed(range(20), lambda _: index.records.facets())
    for name, where in FILTERS.items():
        yield f"facets, filter {name}", timed(range(20), lambda _, w=where: index.records.facets(parse_filters(w)))
    rows = np.random.default_rng(6).choice(index.records.count, 56, replace=False)
    yield "56 pictures", timed(range(20), lambda _: index.records.pictures(rows.tolist()))


def names(index: Index) -> Iterator[tuple[str, dict[str, float]]]:
    clock = time.process_time()
    gazetteer = Gazetteer(index.records)
    yield "names, made ready", {"processor_ms": 1000 * (time.process_time() - clock)}
    rng, language = np.random.default_rng(7), Language.make()
    articles = [language.article(rng) for _ in range(20)]
    number = {"found": float(np.mean([len(find_entities(text, "de", gazetteer)[0]) for text in articles]))}
    yield "names of a text of 2,000 words", number | timed(articles, lambda text: find_entities(text, "de", gazetteer))
    typed = [str(name)[:3] + str(name)[4:] for name in language.persons[:20]]
    yield "names that come near one that was typed", timed(typed, gazetteer.proposed)


def timed(given: Sequence[Any] | np.ndarray, search: Callable[[Any], object]) -> dict[str, float]:
    """Return the median and the 95th percentile of the processor's and the clock's time of each, in ms."""
    for each in given[: max(1, len(given) // 4)]:
        search(each)
    clock, processor = [], []
    for each in given:
        before, used = time.perf_counter(), time.thread_time()
        search(each)
        clock.append(1000 * (time.perf_counter() - before))
        processor.append(1000 * (time.thread_time() - used))
    times = {"processor": processor, "clock": clock}
    return {f"{name}_p{share}_ms": float(np.percentile(of, share)) for name, of in times.items() for share in (50, 95)}


def memory_mb() -> float:
    """Return this process's own memory, without what it maps of files."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
    return int(lines["RssAnon"].split()[0]) / 1024


def alone(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function gives in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=IMAGES)
    parser.add_argument("--lake", type=Path, help="keep the drawn versions and their indexes here, or use those")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON in the last line")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="multilink-bench-") as scratch:
        root = options.lake or Path(scratch)
        if not (root / "datasets").exists():
            alone(make_versions, root, options.images)
        found: dict[str, Any] = {}
        for name, version in (("made", "v1"), ("1% more", "v2")):
            found[name] = alone(make, str(root), version)
            print(f"{name}: {shown(found[name])}", flush=True)
        for name, figures in alone(measure, found["1% more"]["uri"]).items():
            found[name] = figures
            print(f"{name}: {shown(figures)}", flush=True)
    if options.json:
        print(json.dumps(found))


def shown(figures: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in figures.items() if isinstance(value, int | float))


if __name__ == "__main__":
    main()
