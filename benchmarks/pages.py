"""The newsroom's pages under load: `multilink pages` in a process of its own, editors at work, and then it is killed.

    python -m benchmarks.pages --index FOLDER --lake LAKE [--images 100000] [--users 50] [--seconds 60] [--json]

`--index` is an index of a data set of articles that `multilink index` made. Its pictures are multiplied to 100,000 by
noise on their vectors; titles, credits, places and dates are drawn from its own. Each user opens the first page, keeps
an article made of the data set's sentences, and then does one thing after another, with a pause between that is 5 s in
the mean: another article, a word left out, a name as a filter, a facet, another order, a decision. Times are those of
whole answers as this process sees them; it runs on the same cores. Pictures themselves are not asked for: a browser
asks for each once. Afterwards users decide without any pause, the server is killed (SIGKILL), and every decision whose
answer had come must be in the log. Goals: 50 users, 95% of answers within 1 s on two cores, nothing lost.
"""

from __future__ import annotations

import argparse
import asyncio
import html
import json
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orchestration.decisions.database import open_database
from orchestration.decisions.log import DecisionLog
from schemas.indexes import (
    CELLS,
    CONFIDENCE,
    FIELDS_SCHEMA,
    MODEL,
    PARTS,
    PLACES,
    PLACES_SCHEMA,
    VECTORS,
    IndexManifest,
)
from schemas.lake import MANIFEST, Lake
from schemas.manifest import read_manifest
from schemas.parts import read_part
from training.retrieval.index import open_index
from training.retrieval.parts import write_part
from training.retrieval.records import Records, write_table
from training.retrieval.vectors import EXACT_BELOW, QUERIES, Stacked, faiss, make_cells

NOISE = 0.6  # of a picture's vector, in its own length
PAUSE_S = 5.0
KILLED_AFTER_S = 8.0
STARTS_WITHIN_S = 180
SERVER = [sys.executable, "-c", "from orchestration.__main__ import main; main()", "pages"]


def enlarge(index: Path, target: Path, images: int) -> dict[str, Any]:
    """Write an index of many pictures, made of those of another one."""
    began, rng, opened = time.perf_counter(), np.random.default_rng(0), open_index(str(index))
    own = opened.vectors.rows[np.flatnonzero(opened.records.is_live)]
    sources = rng.integers(len(own), size=images)
    noise = rng.standard_normal((images, own.shape[1]), dtype=np.float32)
    noisy = own[sources] + NOISE * noise / np.linalg.norm(noise, axis=1, keepdims=True)
    vectors = noisy / np.linalg.norm(noisy, axis=1, keepdims=True)
    name, keys = write_part([_drawn(opened.records, sources, rng)], [vectors], target / PARTS)
    places = opened.records.pictures(np.flatnonzero(opened.records.is_live)[:1].tolist())[0]
    where = [
        pa.array([places.part] * len(keys)).dictionary_encode(),
        pa.array([places.part_row] * len(keys), pa.int32()),
    ]
    write_table(pa.table(where, PLACES_SCHEMA), target / PLACES)
    rows, note = np.load(target / PARTS / name / VECTORS), None
    if images >= EXACT_BELOW:
        made, note = make_cells(Stacked([rows]), None, rows[:: images // QUERIES][:QUERIES], "pictures")
        faiss().write_index(made, str(target / CELLS))
    (target / MODEL).symlink_to((index / MODEL).resolve())
    if (index / CONFIDENCE).is_file():
        (target / CONFIDENCE).write_bytes((index / CONFIDENCE).read_bytes())
    described = {"images": images, "rows": images, "parts": (name,), "cells": note, "files": ()}
    (target / MANIFEST).write_text(replace(opened.manifest, **described).to_json())
    return {"images": images, "seconds": round(time.perf_counter() - began, 1)}


def _drawn(records: Records, sources: np.ndarray, rng: np.random.Generator) -> pa.Table:
    """Return pictures whose title, credit, place and date are each those of one of the archive's."""
    live = np.flatnonzero(records.is_live)
    first, second, third = (
        records.take(live[rows]) for rows in (sources, *rng.integers(len(live), size=(2, len(sources))))
    )
    columns = {name: first.column(name) for name in FIELDS_SCHEMA.names}
    columns |= {name: second.column(name) for name in ("credit", "place")}
    columns |= {name: third.column(name) for name in ("date", "day")}
    columns["title"] = pc.binary_join_element_wise(
        first.column("title"), second.column("title"), pa.scalar(" ", pa.large_string())
    )
    columns["key"] = pa.array(np.arange(len(sources), dtype=np.uint64) << 32)
    columns["image"] = pa.array([f"{number << 32:016x}{number:048x}" for number in range(len(sources))])
    columns["cluster"] = pa.nulls(len(sources), pa.string())
    plain = {
        name: column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column
        for name, column in columns.items()
    }
    return pa.table(plain)


@contextmanager
def served(lake: str, index: Path, store: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run the pages as the command does; give the process and its address."""
    arguments = ["--lake", lake, "--index", str(index), "--store", store, "--port", "0", "--json"]
    process = subprocess.Popen([*SERVER, *arguments], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        address = next((line for line in lines if line.startswith("{")), "")
        yield process, str(json.loads(address)["address"])
    finally:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGINT)
        process.wait(60)
        if process.stdout is not None:
            process.stdout.close()


@dataclass
class Trial:
    """What users saw: seconds of each kind of answer, and what went wrong."""

    sentences: list[str]
    seconds: dict[str, list[float]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    acknowledged: set[str] = field(default_factory=set)

    async def ask(self, client: httpx.AsyncClient, kind: str, address: str, **data: str) -> httpx.Response | None:
        began = time.perf_counter()
        try:
            sent = client.post(address, data=data) if data else client.get(address)
            answer = await sent
        except httpx.HTTPError as problem:
            self.problems.append(f"{kind}: {problem!r}")
            return None
        self.seconds.setdefault(kind, []).append(time.perf_counter() - began)
        if answer.status_code != 200:
            self.problems.append(f"{kind}: {answer.status_code}")
            return None
        return answer

    async def work(self, address: str, seed: int, until: float) -> None:
        """Be one editor until a time."""
        rng = random.Random(seed)
        async with httpx.AsyncClient(base_url=address, timeout=60, follow_redirects=True) as client:
            await asyncio.sleep(rng.random() * PAUSE_S)
            first = await self.ask(client, "first page", "/")
            token = _token(first) if first else ""
            page: httpx.Response | None = None
            while time.perf_counter() < until:
                page = await self._act(client, rng, token, page)
                await asyncio.sleep(rng.expovariate(1 / PAUSE_S))

    async def _act(
        self, client: httpx.AsyncClient, rng: random.Random, token: str, page: httpx.Response | None
    ) -> httpx.Response | None:
        kind = rng.choice(["word", "word", "name", "facet", "order", "decision", "article"]) if page else "article"
        if kind == "article" or page is None:
            return await self.article(client, rng, token)
        if kind == "decision":
            await self.decide(client, token, page, rng)
            return page
        pattern = {"word": "w-", "name": "e-", "facet": "f-", "order": "rank-"}[kind]
        found = re.findall(rf'<a [^>]*id="{pattern}[^"]*"[^>]*href="([^"]*)"', page.text)
        return await self.ask(client, kind, html.unescape(rng.choice(found))) if found else page

    async def article(self, client: httpx.AsyncClient, rng: random.Random, token: str) -> httpx.Response | None:
        """Search with a new article; where nothing is likely, have the nearest pictures shown all the same."""
        texts = {name: rng.choice(self.sentences) for name in ("headline", "lead", "caption")}
        body = " ".join(rng.choices(self.sentences, k=10))
        page = await self.ask(client, "article", "/articles", csrf=token, **texts, body=body)
        weak = re.search(r'id="show-weak" [^>]*href="([^"]*)"', page.text) if page else None
        return await self.ask(client, "weak", html.unescape(weak[1])) if weak else page

    async def decide(self, client: httpx.AsyncClient, token: str, page: httpx.Response, rng: random.Random) -> None:
        """Reject a picture with a note that no other decision has."""
        images = re.findall(r'<input type="hidden" name="image" value="([0-9a-f]{64})">', page.text)
        if not images:
            return
        note = f"note-{rng.getrandbits(80):x}"
        given = {"action": "reject", "reason": "other", "image": rng.choice(images), "note": note}
        then = str(page.url.raw_path, "ascii")
        if await self.ask(client, "decision", "/decisions", csrf=token, then=then, **given):
            self.acknowledged.add(note)

    async def decide_without_pause(self, address: str, seed: int) -> None:
        rng = random.Random(seed)
        async with httpx.AsyncClient(base_url=address, timeout=30, follow_redirects=True) as client:
            first = await self.ask(client, "first page", "/")
            token = _token(first) if first else ""
            page = await self.article(client, rng, token)
            while page is not None and not self.problems and "/decisions" in page.text:
                await self.decide(client, token, page, rng)


def _token(page: httpx.Response) -> str:
    found = re.search(r'name="csrf" value="([0-9a-f]+)"', page.text)
    return found[1] if found else ""


def sentences_of(lake: str, reference: str) -> list[str]:
    manifest, folder = read_manifest(Lake.at(lake), reference)
    parts = [entry for split in manifest.splits for entry in manifest.parts("documents", split)]
    rows = [row for entry in parts for row in read_part(folder, entry, ("sentences",)).to_pylist()]
    return [sentence["text"] for row in rows for sentence in row["sentences"]]


def quantiles(seconds: list[float]) -> dict[str, float]:
    found = np.quantile(seconds, (0.5, 0.95, 0.99)).round(3).tolist()
    return dict(zip(("p50_s", "p95_s", "p99_s"), found, strict=True)) | {"answers": len(seconds)}


async def first(address: str, sentences: list[str]) -> None:
    """Search once, before anything is measured: the index is opened, and its names and facets are counted."""
    async with httpx.AsyncClient(base_url=address, timeout=STARTS_WITHIN_S, follow_redirects=True) as client:
        token = _token(await client.get("/"))
        await Trial(sentences).article(client, random.Random(0), token)


async def load(trial: Trial, address: str, users: int, seconds: float) -> None:
    until = time.perf_counter() + seconds
    await asyncio.gather(*(trial.work(address, number, until) for number in range(users)))


async def killed(trial: Trial, address: str, process: subprocess.Popen[str], users: int) -> None:
    working = [asyncio.create_task(trial.decide_without_pause(address, 1000 + number)) for number in range(users)]
    await asyncio.sleep(KILLED_AFTER_S)
    process.kill()
    await asyncio.gather(*working)


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def lost(store: str, acknowledged: set[str]) -> tuple[int, int]:
    """Return how many decisions that were answered are not in the log, and how many the log has."""
    with DecisionLog(open_database(store)) as log:
        kept = {each.note for each in log.decisions()}
    return len(acknowledged - kept), len(kept)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--index", required=True, type=Path)
    parser.add_argument("--lake", required=True)
    parser.add_argument("--images", type=int, default=EXACT_BELOW)
    parser.add_argument("--users", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    manifest = IndexManifest.from_json((given.index / MANIFEST).read_text(encoding="utf-8"), where=str(given.index))
    trial = Trial(sentences_of(given.lake, manifest.dataset))
    with tempfile.TemporaryDirectory(prefix="multilink-load-") as scratch:
        index, store = Path(scratch, "index"), f"sqlite:///{scratch}/pages.sqlite"
        index.mkdir()
        found: dict[str, Any] = {"index": enlarge(given.index, index, given.images)}
        found["load_of_the_machine"] = round(os.getloadavg()[0], 1)
        with served(given.lake, index, store) as (process, address):
            asyncio.run(first(address, trial.sentences))
            before = processor_seconds(process.pid)
            asyncio.run(load(trial, address, given.users, given.seconds))
            answers = sum(map(len, trial.seconds.values()))
            found["all"] = quantiles([each for seconds in trial.seconds.values() for each in seconds])
            found |= {kind: quantiles(seconds) for kind, seconds in sorted(trial.seconds.items())}
            found["answers_a_second"] = round(answers / given.seconds, 1)
            found["processor_s_an_answer"] = round((processor_seconds(process.pid) - before) / answers, 4)
            found["problems"] = trial.problems[:5]
            trial.problems.clear()
            asyncio.run(killed(trial, address, process, given.users))
        missing, kept = lost(store, trial.acknowledged)
        found["killed"] = {"answered": len(trial.acknowledged), "in_the_log": kept, "lost": missing}
        with sqlite3.connect(f"{scratch}/pages.sqlite") as database:
            found["killed"]["integrity"] = database.execute("PRAGMA integrity_check").fetchone()[0]
        database.close()
    if given.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name}: {value}")


if __name__ == "__main__":
    main()
