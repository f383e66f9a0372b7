"""A few processes that search, each of which can be ended: no search outlives the request that wanted it.

    request -> waits for a process -> the process opens what it has not open -> and answers
               too late, or the visitor is gone:       `-- it goes on         `-- it is ended

An index may take longer to open than a request has: an opening goes on without its request, for the next that wants it.
The time of a request counts from its arrival, waiting included. A process is chosen by what it has open. A new index is
opened in a process beside those at work, so that nobody waits for it (`prepare`). Processes are forks of one that has
imported what they need; each has a folder for temporary files that is removed with it. What a process remembers of an
index (facets, texts that were read) is found again by content and bounded.
"""

import asyncio
import logging
import multiprocessing
import multiprocessing.connection
import shutil
import signal
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

from fastapi import HTTPException, Request

from newsroom.pages.archives import Choice
from newsroom.pages.words import Gazetteer, find_entities
from newsroom.search.archive import Archive
from newsroom.search.queries import Query, QueryReader, SourceText
from pipelines.sources.text import found_language
from schemas.messages import BuildError, MultilinkError
from training.data.ragged import Float32

MOST_OPEN = 2  # champion and challenger
FACETS_KEPT, TEXTS_KEPT = 256, 1024
Job = Callable[..., Any]  # of a module: takes what is opened, then arguments; its result can be pickled
_Contents = frozenset[tuple[str, str]]  # of indexes (`Choice.content`)
TOO_LATE = "the search took too long; shorten the text, or try again"
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["newsroom.pages.decisions"])  # which imports what jobs need
log = logging.getLogger("multilink.pages")


class Opened(Archive):
    """An open index, and what is remembered of it.

    Attributes:
        gazetteer: the names that it knows.
        queries: reads queries.
        facets: of filters, counted once.
        language: of a text, found out once.
        entities: names in a text; likewise.
    """

    def __init__(self, choice: Choice, reading: Sequence[str]) -> None:
        super().__init__(choice.uri, reading)
        self.gazetteer = Gazetteer(self.index.records)
        self.queries = queries = QueryReader(self.index.model, self.reader)
        self._read = lru_cache(TEXTS_KEPT)(lambda texts, of: queries.read(Query(texts=dict(texts), language=of)))
        self.language = lru_cache(TEXTS_KEPT)(lambda text: found_language(text, queries.languages))
        self.entities = lru_cache(TEXTS_KEPT)(lambda text: find_entities(text, self.gazetteer))
        self.facets = lru_cache(FACETS_KEPT)(self.index.records.facets)

    def read(self, query: Query) -> tuple[Float32 | None, Sequence[SourceText]]:
        """Return the vector of a query's texts (None: it has none) and the texts as the model read them, once each."""
        return self._read(tuple(query.given.items()), query.language) if query.given else (None, ())


class Searches:
    """Processes that search; used by one event loop.

    Args:
        count: of processes that work at once.
        reading: settings of the extractors that read queries.
    """

    def __init__(self, count: int, reading: Sequence[str] = ()) -> None:
        self._reading, self._count = reading, count
        self._places = asyncio.Semaphore(count)
        # A search waits in one, and so does an opening, and that of a new index. asyncio's own may be fewer.
        self._threads = ThreadPoolExecutor(2 * count + 2, thread_name_prefix="searches")
        self._idle: list[_Process] = []
        self._openings: dict[_Contents, asyncio.Task[None]] = {}  # the oldest first
        self.processes: set[_Process] = set()
        self._opening: set[_Process] = set()  # of them, those that open indexes: none at work ends for one yet

    async def run(self, request: Request, job: Job, choices: Sequence[Choice], *arguments: Any) -> Any:
        """Return what `job(opened, *arguments)` returns in a process that has opened some indexes.

        Raises:
            HTTPException: 503, it was not done in the request's time, or the process died.
            MultilinkError: as the job raised it.
        """
        work = asyncio.ensure_future(self._run(job, choices, arguments))
        gone = asyncio.ensure_future(_left(request))
        left_s = request.state.until - asyncio.get_running_loop().time()
        try:
            done, _ = await asyncio.wait({work, gone}, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            if work in done and not work.cancelled():
                return work.result()
            raise HTTPException(503, TOO_LATE)
        finally:
            work.cancel()
            gone.cancel()

    async def prepare(self, choices: Sequence[Choice]) -> None:
        """Open indexes in a new process; one of those that are there already ends for it."""
        await self._open(choices, None)

    def close(self) -> None:
        """End every process."""
        for process in list(self.processes):
            self._end(process)
        self._threads.shutdown(wait=False)

    async def _run(self, job: Job, choices: Sequence[Choice], arguments: Sequence[Any]) -> Any:
        async with self._places:
            process = await self._free(choices)
            found = await self._answer(process, job, choices, arguments)
            self._give_back(process)
            return found

    async def _answer(self, process: "_Process", job: Job, choices: Sequence[Choice], arguments: Sequence[Any]) -> Any:
        """Return a job's result; where there is none the process is given back, or ended unless the job raised."""
        try:
            return await process.answer(job, choices, arguments)
        except MultilinkError:
            self._give_back(process)
            raise
        except (EOFError, OSError) as problem:
            self._end(process)
            raise HTTPException(503, "a process that searched has ended; try again") from problem
        except BaseException:  # the request is over
            self._end(process)
            raise

    async def _free(self, choices: Sequence[Choice]) -> "_Process":
        """Return an idle process that has opened some indexes; it is opened where there is none."""
        wanted = frozenset(each.content for each in choices)
        while True:
            if process := next((each for each in self._idle if each.opened >= wanted), None):
                self._idle.remove(process)
                return process
            if wanted not in self._openings:
                self._begin(choices, wanted)
            await asyncio.shield(self._openings[wanted])  # which goes on without this request

    def _begin(self, choices: Sequence[Choice], wanted: _Contents) -> None:
        """Begin to open indexes: in a new process, or in an idle one where there may be no more."""
        is_full = len(self.processes) >= self._count
        process = self._idle.pop(0) if is_full and self._idle else None  # that was used longest ago
        self._openings[wanted] = opening = asyncio.ensure_future(self._open(choices, process))
        opening.add_done_callback(lambda _: self._openings.pop(wanted))
        if len(self._openings) > self._count + 1:  # beside as many as work at once; the oldest may hang
            next(iter(self._openings.values())).cancel()

    async def _open(self, choices: Sequence[Choice], process: "_Process | None") -> None:
        """Open indexes in a process, which is idle then; where there are too many, another idle one ends for it."""
        if process is None:
            loop = asyncio.get_running_loop()
            process = await loop.run_in_executor(self._threads, _Process, self._reading, self._threads)
            self.processes.add(process)
        self._opening.add(process)
        await self._answer(process, _nothing, choices, ())
        self._opening.discard(process)
        if self._are_too_many() and self._idle:
            self._end(self._idle.pop(0))
        self._idle.append(process)

    def _are_too_many(self) -> bool:
        return len(self.processes - self._opening) > self._count

    def _give_back(self, process: "_Process") -> None:
        self._opening.discard(process)
        if self._are_too_many():
            self._end(process)
        else:
            self._idle.append(process)

    def _end(self, process: "_Process") -> None:
        self.processes.discard(process)
        self._opening.discard(process)
        process.end()


class _Process:
    """A process, and what it has open."""

    def __init__(self, reading: Sequence[str], threads: ThreadPoolExecutor) -> None:
        self._threads = threads  # in which answers are waited for
        self._scratch = tempfile.mkdtemp(prefix="multilink-search-")
        self._connection, theirs = _CONTEXT.Pipe()
        self._process = _CONTEXT.Process(target=_work, args=(theirs, reading, self._scratch), daemon=True)
        self._process.start()
        theirs.close()
        self.opened: _Contents = frozenset()

    async def answer(self, job: Job, choices: Sequence[Choice], arguments: Sequence[Any]) -> Any:
        """Return a job's result; raise what it raised, or EOFError where the process has died."""
        loop = asyncio.get_running_loop()
        answered = loop.run_in_executor(self._threads, self._answered, (job, choices, arguments))
        found, problem, self.opened = await answered
        if problem is not None:
            raise problem
        return found

    def _answered(self, question: Any) -> Any:
        """Wait for an answer, in a thread: it ends with the process, and closes its end of the connection then."""
        self._connection.send(question)
        return self._connection.recv()

    def end(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.join()
        shutil.rmtree(self._scratch, ignore_errors=True)


def _work(connection: multiprocessing.connection.Connection, reading: Sequence[str], scratch: str) -> None:
    """Answer until the other end is closed, as it is where the pages were killed."""
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process of a terminal
    torch.set_num_threads(1)  # a process takes a core: 24 ms of its time; 167 where two cores share each product
    tempfile.tempdir = scratch
    kept: OrderedDict[tuple[str, str], Opened] = OrderedDict()
    while True:
        try:
            job, choices, arguments = connection.recv()
        except (EOFError, OSError):
            return
        found: Any = None
        problem: Exception | None = None
        try:
            found = job(*(_opened(each, kept, reading) for each in choices), *arguments)
        except MultilinkError as expected:
            problem = expected
        except Exception:  # whatever it is, the next job may do better
            log.exception("a search has failed")
            problem = BuildError("the search has failed; the log of the pages has the rest")
        try:
            connection.send((found, problem, frozenset(kept)))
        except OSError:
            return


def _opened(choice: Choice, kept: "OrderedDict[tuple[str, str], Opened]", reading: Sequence[str]) -> Opened:
    """Return an index, opened; of more than MOST_OPEN, the one that was used longest ago is closed."""
    if choice.content not in kept:
        kept[choice.content] = Opened(choice, reading)
    kept.move_to_end(choice.content)
    if len(kept) > MOST_OPEN:
        kept.popitem(last=False)[1].close()
    return kept[choice.content]


def _nothing(*_: Opened) -> None:
    """Do nothing: the indexes are open."""


async def _left(request: Request) -> None:
    """Return when the visitor has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
