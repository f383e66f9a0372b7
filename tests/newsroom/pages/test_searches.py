"""The processes that search, with real ones: a limit that includes waiting, visitors who leave, deaths, a new index."""

import asyncio
import multiprocessing
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import HTTPException
from running_newsroom import ARTICLES, Newsroom, until

from newsroom.pages.archives import Choice
from newsroom.pages.searches import Opened, Searches
from schemas.indexes import IndexManifest
from schemas.lake import MANIFEST
from schemas.messages import BuildError, UsageError

NEVER_S = 600.0
START_S = 60.0


def sleep(folder: str, seconds: float) -> None:
    """Say that this is at work, as long as it is."""
    Path(folder, str(os.getpid())).touch()
    time.sleep(seconds)


def wait_for_others(folder: str, count: int) -> None:
    """Say that this is at work, until that many are."""
    Path(folder, str(os.getpid())).touch()
    while len(list(Path(folder).iterdir())) < count:
        time.sleep(0.01)


def fail(problem: str) -> None:
    if problem == "usage":
        raise UsageError("it cannot be read")
    if problem == "death":
        os._exit(1)
    raise ValueError(problem)


def process() -> int:
    return os.getpid()


def count(opened: Opened) -> tuple[int, int]:
    return os.getpid(), opened.index.records.count


class SlowChoice(Choice):
    """An index that opens when the file named by its alias is there; beside that stands which processes began it."""

    @property
    def content(self) -> tuple[str, str]:
        found = super().content
        if multiprocessing.parent_process() is not None:
            go = Path(self.aliases[0])
            go.with_name(str(os.getpid())).touch()
            while not go.exists():
                time.sleep(0.01)
        return found


class Visitor:
    """In place of a request: has a limit of time, and may leave."""

    def __init__(self, seconds: float) -> None:
        self.state = SimpleNamespace(until=asyncio.get_running_loop().time() + seconds)
        self.left = asyncio.Event()

    async def receive(self) -> dict[str, str]:
        await self.left.wait()
        return {"type": "http.disconnect"}


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").exists() and " Z " not in Path(f"/proc/{pid}/stat").read_text()


def scene(act: Any, processes: int = 2) -> Any:
    """Run a coroutine function with processes, which end with it."""

    async def run() -> Any:
        searches = Searches(processes)
        try:
            return await act(searches)
        finally:
            searches.close()

    return asyncio.run(run())


def test_fifty_slow_searches_on_four_places_leave_none_at_work(tmp_path: Path) -> None:
    async def act(searches: Searches) -> list[Any]:
        await asyncio.gather(*(searches.run(Visitor(START_S), process, []) for _ in range(4)))
        slow = (searches.run(Visitor(1.0), sleep, [], str(tmp_path), NEVER_S) for _ in range(50))
        answers = await asyncio.gather(*slow, return_exceptions=True)
        assert await searches.run(Visitor(START_S), process, [])  # and it goes on
        return answers

    answers = scene(act, processes=4)
    assert {(type(each), each.status_code) for each in answers} == {(HTTPException, 503)}
    worked = [int(path.name) for path in tmp_path.iterdir()]
    assert 1 <= len(worked) <= 8 and not any(map(is_alive, worked))  # those that waited never began


def test_as_many_searches_work_at_once_as_there_are_processes_whatever_else_waits_in_threads(tmp_path: Path) -> None:
    async def act(searches: Searches) -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        meet = (searches.run(Visitor(NEVER_S), wait_for_others, [], str(tmp_path), 3) for _ in range(3))
        await asyncio.gather(*meet)

    scene(act, processes=3)


def test_a_search_ends_with_the_visitor_who_wanted_it(tmp_path: Path) -> None:
    async def act(searches: Searches) -> None:
        visitor = Visitor(NEVER_S)
        waiting = asyncio.create_task(searches.run(visitor, sleep, [], str(tmp_path), NEVER_S))
        await until(lambda: list(tmp_path.iterdir()))
        visitor.left.set()
        with pytest.raises(HTTPException):
            await waiting
        (pid,) = (int(path.name) for path in tmp_path.iterdir())
        await until(lambda: not is_alive(pid))

    scene(act)


def test_what_a_search_raises_is_raised_and_the_process_stays() -> None:
    async def act(searches: Searches) -> None:
        first = await searches.run(Visitor(START_S), process, [])
        with pytest.raises(UsageError, match="it cannot be read"):
            await searches.run(Visitor(START_S), fail, [], "usage")
        with pytest.raises(BuildError, match="the search has failed"):
            await searches.run(Visitor(START_S), fail, [], "anything")
        assert await searches.run(Visitor(START_S), process, []) == first
        with pytest.raises(HTTPException, match="has ended; try again"):
            await searches.run(Visitor(START_S), fail, [], "death")
        assert await searches.run(Visitor(START_S), process, []) != first

    scene(act, processes=1)


def choice_of(newsroom: Newsroom, name: str) -> Choice:
    (folder,) = Path(newsroom.folder).parents[2].glob(f"*/{name.split('~')[1]}*/searcher-1")
    return Choice(uri=str(folder), manifest=IndexManifest.from_json((folder / MANIFEST).read_text(), where=str(folder)))


@pytest.mark.slow
@pytest.mark.parametrize("is_open", [True, False])
def test_an_index_that_opens_slower_than_a_visitor_waits_is_open_for_the_next(
    newsroom: Newsroom, tmp_path: Path, is_open: bool
) -> None:
    """Whether the next comes while it is opened or afterwards; and no search of before is in its way."""
    go = tmp_path / "go"
    news, other = choice_of(newsroom, newsroom.news), choice_of(newsroom, newsroom.evil)
    slow = SlowChoice(uri=news.uri, manifest=news.manifest, aliases=(str(go),))

    def begun() -> list[int]:
        return [int(path.name) for path in tmp_path.iterdir() if path != go]

    async def act(searches: Searches) -> None:
        visitor = Visitor(NEVER_S)
        first = asyncio.create_task(searches.run(visitor, count, [slow]))
        await until(begun)
        visitor.left.set()
        with pytest.raises(HTTPException, match="took too long"):
            await first
        assert (await searches.run(Visitor(START_S), count, [other]))[1] == 3
        for _ in range(3):  # more who do not wait
            with pytest.raises(HTTPException, match="took too long"):
                await searches.run(Visitor(0.1), count, [slow])
        if is_open:
            go.touch()
            await until(lambda: any(slow.content in each.opened for each in searches.processes))
        following = asyncio.create_task(searches.run(Visitor(START_S), count, [slow]))
        await asyncio.sleep(0.1)
        go.touch()
        pid, images = await following
        assert images == len(ARTICLES) and begun() == [pid]
        assert len(searches.processes) == 1

    scene(act, processes=1)


@pytest.mark.slow
def test_an_index_is_opened_beside_the_one_in_use(newsroom: Newsroom, tmp_path: Path) -> None:
    """Whoever searches the first goes on while the second is opened, and each is searched where it is open."""
    go = tmp_path / "go"
    first, second = (choice_of(newsroom, name) for name in (newsroom.news, newsroom.evil))
    slow = SlowChoice(uri=second.uri, manifest=second.manifest, aliases=(str(go),))

    async def act(searches: Searches) -> None:
        await searches.prepare([first])
        old, images = await searches.run(Visitor(START_S), count, [first])
        assert images == len(ARTICLES) and len(searches.processes) == 1
        opening = asyncio.create_task(searches.prepare([slow, first]))
        await until(lambda: list(tmp_path.iterdir()))
        assert [await searches.run(Visitor(START_S), count, [first]) for _ in range(20)] == [(old, len(ARTICLES))] * 20
        go.touch()
        await opening
        assert len(searches.processes) == 1  # the one before has ended: this machine may have no more at once
        new, images = await searches.run(Visitor(START_S), count, [second])
        assert images == 3 and new != old and not is_alive(old)
        assert await searches.run(Visitor(START_S), count, [first]) == (new, len(ARTICLES))

    scene(act, processes=1)
