"""The newsroom's pages under load: `multilink pages` in a process of its own, editors at work, and then it is killed.

    python -m benchmarks.pages --index FOLDER --lake LAKE [--archive LAKE] [--images 100000] [--users 50] [--pause 5]
                               [--arrival 60] [--seconds 60] [--decisions 60000] [--browser] [--json]

`--index` is a small index of a data set of articles of `--lake`, by a model that reads texts: that of `multilink demo
--news`. What is searched is the drawn archive of `benchmarks.retrieval`, by that model (`pages_archive.py`);
`--archive` is a lake that has it, or that keeps it. Each user opens the first page, keeps an article, and then does one
thing after another, with a pause between (`--pause`, the mean): another article, a word left out, a name as a filter,
a facet, another order, a decision. An article has a headline, a lead and a caption of the data set's sentences, and a
body of 100 to 2,000 words (half have more than 400) with names of the archive. Copies of pictures are asked for as a
browser does, each once for each user. Users begin one after another, over the time of `--arrival`; then all are there,
and answers are measured for `--seconds`. Times are those of whole answers as this process sees them; it runs on the
same cores.

Afterwards 20 users decide without any pause, the server is killed (SIGKILL), and every decision whose answer had come
must be in the log. Then the pages are started with so many decisions in the log, and each page is asked for again and
again: the time of the processor is that of the server and the processes that search. `--browser` has an editor's task
done by keys in Chromium (`editor.py`) with these decisions there.

Goals: on two cores, 95% of answers within 1 s for 50 users and 100,000 pictures, and for 200 users and a million;
nothing lost; with 60,000 decisions any page within 50 ms of the processor.

1,011,000 pictures, 200 users, 2026-11-25, two cores of an AMD EPYC (virtual), which the users share; answers of whole
pages, and the processor's time of an answer:

    pause 20 s    10.5 answers/s    p50 0.09 s, p95 0.34 s    81 ms
    pause 14 s    14.8 answers/s    p50 0.11 s, p95 0.65 s    76 ms
    pause 10 s    18.9 answers/s    p50 0.76 s, p95 3.0 s     missed: two cores give 19 answers/s, two thirds of
                                                              their time to the sentence encoder

Killed after 760, 854 and 825 answered decisions: none lost. With 60,000 decisions, ms of the processor: an article that
is new 104, a word left out 85, a comparison of a new article 163 (all three read a text by the encoder: missed); an
article seen before 22 (48 with 600 decisions of its own), a facet 38, a decision 7, the log 7, placement 20, others
44 at most. By keys in Chromium: paste 0.51 s, filter 0.32, choose 0.06, undo 0.19, compare 2.2, choose blind 0.05,
place 0.44, move 0.19, export 0.15.
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks.archive_data import DATASET, Language, make_versions
from benchmarks.pages_archive import make_indexes
from benchmarks.pages_log import fill_log, pages_asked
from newsroom.decisions.database import open_database
from newsroom.decisions.log import DecisionLog
from schemas.indexes import IndexManifest
from schemas.lake import MANIFEST, Lake
from schemas.manifest import read_manifest
from schemas.parts import read_part

DECIDING, KILLED_AFTER_S = 20, 8.0  # users at once without a pause; from so many decisions on
STARTS_WITHIN_S, MOST_FIRST = 180, 5
WORDS, SPREAD, FEWEST, MOST = 400, 0.6, 100, 2_000  # of a body: the median and the spread of its logarithm
PICTURE = "picture"
HTMX = {"HX-Request": "true"}  # the answer is a part of a page, as a browser with a script asks for it
SERVER = [sys.executable, "-c", "from orchestration.__main__ import main; main()", "pages"]


@contextmanager
def served(lake: str, indexes: Sequence[Path], store: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run the pages as the command does; give the process and its address."""
    arguments = ["--lake", lake, "--store", store, "--port", "0", "--json"]
    arguments += [part for index in indexes for part in ("--index", str(index))]
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
class Articles:
    """Where articles are drawn from."""

    sentences: list[str]
    language: Language

    def draw(self, seed: int) -> dict[str, str]:
        """Return the texts of an article, the same ones for the same seed."""
        rng, chosen = np.random.default_rng([9, seed]), random.Random(seed)
        texts = {name: chosen.choice(self.sentences) for name in ("headline", "lead", "caption")}
        words = int(np.clip(WORDS * np.exp(SPREAD * rng.standard_normal()), FEWEST, MOST))
        body = self.language.article(rng, words).split(". ")
        paragraphs = [". ".join(body[start : start + 5]) for start in range(0, len(body), 5)]
        return texts | {"body": "\n\n".join([" ".join(chosen.sample(self.sentences, 3)), *paragraphs])}


@dataclass
class Trial:
    """What users saw: seconds of each kind of answer once all were there, and what went wrong at any time."""

    articles: Articles
    pause_s: float = 0.0
    arrival_s: float = 0.0
    is_measuring: bool = False
    seconds: dict[str, list[float]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    acknowledged: set[str] = field(default_factory=set)

    async def ask(self, client: httpx.AsyncClient, kind: str, address: str, **data: str) -> httpx.Response | None:
        began = time.perf_counter()
        headers = HTMX if kind == "decision" else {}
        try:
            sent = client.post(address, data=data, headers=headers) if data else client.get(address)
            answer = await sent
        except httpx.HTTPError as problem:
            self.problems.append(f"{kind}: {problem!r}")
            return None
        if self.is_measuring:
            self.seconds.setdefault(kind, []).append(time.perf_counter() - began)
        if answer.status_code != 200:
            self.problems.append(f"{kind}: {answer.status_code}")
            return None
        return answer

    def quantiles(self, *kinds: str) -> dict[str, float]:
        seconds = [each for kind in kinds for each in self.seconds[kind]]
        found = np.quantile(seconds, (0.5, 0.95, 0.99)).round(3).tolist()
        return dict(zip(("p50_s", "p95_s", "p99_s"), found, strict=True)) | {"answers": len(seconds)}


@dataclass
class User:
    """An editor at work.

    Attributes:
        trial: keeps what was seen.
        client: of the pages.
        rng: decides what is done.
        page: that is shown.
        decided: pictures of it that were decided on.
        seen: addresses of copies that the browser keeps.
    """

    trial: Trial
    client: httpx.AsyncClient
    rng: random.Random
    page: httpx.Response | None = None
    decided: set[str] = field(default_factory=set)
    seen: set[str] = field(default_factory=set)

    async def work(self, until: float) -> None:
        await asyncio.sleep(self.rng.random() * self.trial.arrival_s)
        await self.trial.ask(self.client, "first page", "/")
        while time.perf_counter() < until:
            await self._act()
            await asyncio.sleep(self.rng.expovariate(1 / self.trial.pause_s))

    async def decide_without_pause(self) -> None:
        while not self.trial.problems:
            if self.page is None or not await self.decide():
                await self.article()

    async def _act(self) -> None:
        kind = self.rng.choice(["word", "word", "name", "facet", "order", "decision", "article"])
        if self.page is None or kind == "article":
            await self.article()
        elif kind == "decision":
            await self.decide()
        elif kind == "word":
            if words := re.findall(r'name="leave" value="([a-z]+\.\d+)"', self.page.text):
                await self._show(kind, str(self.page.url.copy_add_param("leave", self.rng.choice(words))))
        else:
            pattern = {"name": "e-", "facet": "f-", "order": "rank-"}[kind]
            if found := re.findall(rf'<a [^>]*id="{pattern}[^"]*"[^>]*href="([^"]*)"', self.page.text):
                await self._show(kind, html.unescape(self.rng.choice(found)))

    async def article(self) -> None:
        """Search with a new article; where nothing is likely, have the nearest pictures shown all the same."""
        texts = self.trial.articles.draw(self.rng.getrandbits(40))
        await self._show("article", "/articles", **texts)
        weak = re.search(r'id="show-weak" [^>]*href="([^"]*)"', self.page.text) if self.page else None
        if weak:
            await self._show("weak", html.unescape(weak[1]))

    async def decide(self) -> bool:
        """Reject a picture with a note that no other decision has; return whether there was one that can be."""
        text = self.page.text if self.page else ""
        sealed = re.search(r'name="shown" value="([^"]+)"', text)
        buttons = [each for each in re.findall(r'value="(reject:[0-9a-f]{64}:\d+)"', text) if each not in self.decided]
        if not buttons or sealed is None:
            return False
        note, button = f"note-{self.rng.getrandbits(80):x}", self.rng.choice(buttons)
        self.decided.add(button)
        given = {"shown": html.unescape(sealed[1]), "decide": button, "reason": "other", "note": note}
        if await self.trial.ask(self.client, "decision", "/decisions", **given):
            self.trial.acknowledged.add(note)
        return True

    async def _show(self, kind: str, address: str, **data: str) -> None:
        """Have another page, and the copies of its pictures."""
        self.page, self.decided = await self.trial.ask(self.client, kind, address, **data) or self.page, set()
        shown = re.findall(r'<img src="([^"]*/pictures/[^"]*)"', self.page.text) if self.page else []
        new = {html.unescape(each) for each in shown} - self.seen
        self.seen |= new
        await asyncio.gather(*(self.trial.ask(self.client, PICTURE, each) for each in sorted(new)))


def browser(address: str) -> httpx.AsyncClient:
    """Return a client that asks as a browser does: through six connections, links followed.

    It gives up an idle connection before the server does, after 5 s: it does not ask again where both are at once.
    """
    limits = httpx.Limits(max_connections=6, max_keepalive_connections=6, keepalive_expiry=3)
    return httpx.AsyncClient(base_url=address, timeout=STARTS_WITHIN_S, follow_redirects=True, limits=limits)


async def first(trial: Trial, address: str) -> None:
    """Search a few times before anything is measured, until every process has opened the index."""

    async def one(seed: int) -> None:
        async with browser(address) as client:
            await User(trial, client, random.Random(10_000 + seed)).article()

    for _ in range(MOST_FIRST):
        trial.problems.clear()
        await asyncio.gather(*map(one, range(4)))
        if not trial.problems:
            return


async def load(trial: Trial, address: str, pid: int, users: int, seconds: float) -> dict[str, float]:
    """Have users at work; return the time of the processor of each program while all were there."""
    until = time.perf_counter() + trial.arrival_s + seconds

    async def one(seed: int) -> None:
        async with browser(address) as client:
            await User(trial, client, random.Random(seed)).work(until)

    working = [asyncio.create_task(one(seed)) for seed in range(users)]
    await asyncio.sleep(trial.arrival_s)
    trial.is_measuring = True
    before = processor_seconds(pid), time.process_time(), busy_seconds()
    await asyncio.sleep(seconds)
    after = processor_seconds(pid), time.process_time(), busy_seconds()
    await asyncio.gather(*working)
    trial.is_measuring = False
    server, own, busy = (end - start for start, end in zip(before, after, strict=True))
    return {"server": server, "users": own, "other programs": busy - server - own}


async def killed(trial: Trial, address: str, process: subprocess.Popen[str], users: int) -> None:
    async def one(seed: int) -> None:
        async with browser(address) as client:
            await User(trial, client, random.Random(1000 + seed)).decide_without_pause()

    working = [asyncio.create_task(one(seed)) for seed in range(min(users, DECIDING))]
    before = len(trial.acknowledged)
    while len(trial.acknowledged) < before + DECIDING and not trial.problems:
        await asyncio.sleep(0.1)
    await asyncio.sleep(KILLED_AFTER_S)
    process.kill()
    await asyncio.gather(*working)


def sentences_of(lake: str, reference: str) -> list[str]:
    manifest, folder = read_manifest(Lake.at(lake), reference)
    parts = [entry for split in manifest.splits for entry in manifest.parts("documents", split)]
    rows = [row for entry in parts for row in read_part(folder, entry, ("sentences",)).to_pylist()]
    return [sentence["text"] for row in rows for sentence in row["sentences"]]


def lost(store: str, acknowledged: set[str]) -> dict[str, Any]:
    """Return how many decisions that were answered are not in the log, how many it has, and whether it is whole."""
    with DecisionLog(open_database(store)) as log:
        kept = {each.note for each in log.decisions()}
    found: dict[str, Any] = {
        "answered": len(acknowledged), "in_the_log": len(kept), "lost": len(acknowledged - kept),
    }  # fmt: skip
    with sqlite3.connect(store.removeprefix("sqlite:///")) as database:
        found["integrity"] = database.execute("PRAGMA integrity_check").fetchone()[0]
    database.close()
    return found


def processor_seconds(pid: int) -> float:
    """Return the time that a process, its threads and its children have had of the processor."""
    parents: dict[int, int] = {}
    times: dict[int, float] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            parents[int(path.parent.name)] = int(fields[1])
            times[int(path.parent.name)] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    found, more = {pid}, {pid}
    while more:
        more = {child for child, parent in parents.items() if parent in more}
        found |= more
    return sum(times.get(each, 0.0) for each in found)


@dataclass(frozen=True)
class Setup:
    """What is served: indexes of a lake, and articles that are searched with; the store is a new one each time."""

    articles: Articles
    lake: str
    indexes: Sequence[Path]
    scratch: Path

    def under_load(self, users: int, pause_s: float, arrival_s: float, seconds: float) -> Iterator[tuple[str, Any]]:
        """Yield what users saw, and what was lost when the server was killed."""
        trial, store = Trial(self.articles, pause_s, arrival_s), f"sqlite:///{self.scratch}/pages.sqlite"
        with served(self.lake, self.indexes[:1], store) as (process, address):
            asyncio.run(first(Trial(self.articles), address))
            taken = asyncio.run(load(trial, address, process.pid, users, seconds))
            kinds = sorted(trial.seconds.keys() - {PICTURE})
            answers = sum(len(trial.seconds[kind]) for kind in kinds)
            yield "all but pictures", trial.quantiles(*kinds)
            for kind in [*kinds, PICTURE]:
                yield kind, trial.quantiles(kind)
            yield "answers_a_second", round(answers / seconds, 1)
            yield "processor_s_an_answer", round(taken["server"] / answers, 4)
            yield f"cores_used_of_{os.cpu_count()}", {name: round(each / seconds, 2) for name, each in taken.items()}
            yield "problems", {"number": len(trial.problems), "first": trial.problems[:5]}
            trial.problems.clear()
            asyncio.run(killed(trial, address, process, users))
        yield "killed", lost(store, trial.acknowledged)

    def with_decisions(self, count: int, *, is_in_browser: bool) -> Iterator[tuple[str, Any]]:
        """Yield the time of the processor for each page with many decisions in the log; and an editor's task."""
        store, draw = f"sqlite:///{self.scratch}/decided.sqlite", self.articles.draw
        filled = fill_log(store, self.indexes, count, draw)
        yield "decisions in the log", filled.count
        with served(self.lake, self.indexes, store) as (process, address):
            asyncio.run(first(Trial(self.articles), address))
            with httpx.Client(base_url=address, timeout=STARTS_WITHIN_S, follow_redirects=True) as client:
                if is_in_browser:
                    yield "an editor's task by keys", in_a_browser(address, draw(1), self.scratch)
                for name, ask in pages_asked(client, filled, draw):
                    yield f"with decisions, {name}", {"processor_ms": round(1000 * each_time(process.pid, ask), 1)}


def in_a_browser(address: str, texts: dict[str, str], scratch: Path) -> dict[str, Any]:
    """Return the seconds of each step of an editor's task, and its presses of Tab."""
    import shutil

    from playwright.sync_api import sync_playwright

    from benchmarks.editor import EditorTask

    with sync_playwright() as playwright:
        options = {"executable_path": shutil.which("chromium"), "args": ["--no-sandbox", "--disable-gpu"]}
        browser = playwright.chromium.launch(**options)  # type: ignore[arg-type]
        task = EditorTask(browser.new_page(viewport={"width": 1400, "height": 1000}))
        task.run(address, texts, scratch / "article.html")
        browser.close()
    seconds = {f"{name}_s": round(value, 3) for name, value in task.seconds.items()}
    return {"seconds": seconds, "tabs": task.tabs}


def each_time(pid: int, ask: Callable[[int], None], times: int = 20) -> float:
    """Return the mean time of the processor that a request takes, once it has been made twice."""
    for number in range(2):
        ask(number)
    before = processor_seconds(pid)
    for number in range(2, 2 + times):
        ask(number)
    return (processor_seconds(pid) - before) / times


def busy_seconds() -> float:
    """Return the time of all processors that some process has had since the machine was started."""
    user, nice, system, _, _, *others = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:])
    return (user + nice + system + sum(others[:2])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--index", type=Path, help="that articles and pictures are taken from")
    parser.add_argument("--lake", help="of that index")
    parser.add_argument("--archive", type=Path, help="a lake that has the drawn archive, or that keeps it")
    parser.add_argument("--images", type=int, default=100_000, help="of the archive, where it is not there yet")
    parser.add_argument("--users", type=int, default=50, help="0: none; the log and the browser alone")
    parser.add_argument("--pause", type=float, default=5, help="seconds between what a user does, in the mean")
    parser.add_argument("--arrival", type=float, default=60, help="seconds until all users are there")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--decisions", type=int, default=60_000)
    parser.add_argument("--browser", action="store_true", help="have an editor's task done in Chromium")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if given.index is None or given.lake is None:
        missing = "name an index and its lake: --index demo/lake/indexes/... --lake demo/lake"
        if not given.json:
            parser.error(missing)
        print(missing, "{}", sep="\n")  # `make bench` goes on
        return
    manifest = IndexManifest.from_json((given.index / MANIFEST).read_text(encoding="utf-8"), where=str(given.index))
    articles = Articles(sentences_of(given.lake, manifest.dataset), Language.make())
    with tempfile.TemporaryDirectory(prefix="multilink-load-") as scratch:
        root = given.archive or Path(scratch, "archive")
        if not (root / "datasets" / DATASET).exists():
            make_versions(root, given.images)
        lake = Lake.at(str(root))
        began = time.perf_counter()
        indexes = make_indexes(given.index, lake)
        large = IndexManifest.from_json((indexes[0] / MANIFEST).read_text(encoding="utf-8"), where=str(indexes[0]))
        setup = Setup(articles, str(root), indexes, Path(scratch))
        measured: list[Iterator[tuple[str, Any]]] = [iter([("images", large.images)])]
        measured.append(iter([("indexes_made_s", round(time.perf_counter() - began, 1))]))
        measured += [setup.under_load(given.users, given.pause, given.arrival, given.seconds)] * (given.users > 0)
        measured += [setup.with_decisions(given.decisions, is_in_browser=given.browser)] * (given.decisions > 0)
        found = {}
        for name, value in chain(*measured):
            found[name] = value
            if not given.json:
                print(f"{name}: {value}", flush=True)
    if given.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
