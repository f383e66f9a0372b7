"""A few processes that search, each of which can be ended: nothing outlives the request that wanted it.

    request -> waits for a process -> the process opens what it has not open, and answers
               `-- too late, or the visitor is gone: the process is ended, and another starts when one is wanted

The time of a request counts from its arrival, waiting included. A process is chosen by what it has open. A new index is
opened in a process beside those at work, so that nobody waits for it (`prepare`). Processes are forks of one that has
imported what they need; each has a folder for temporary files that is removed with it.
"""

import asyncio
import logging
import multiprocessing
import multiprocessing.connection
import shutil
import signal
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

from fastapi import HTTPException, Request

from orchestration.pages.archives import Choice
from orchestration.pages.opened import OpenArchives, Opened
from schemas.errors import BuildError, MultilinkError

Job = Callable[..., Any]  # of a module: takes what is opened, then arguments; its result can be pickled
TOO_LATE = "the search took too long; shorten the text, or try again"
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["orchestration.pages.search_jobs"])
log = logging.getLogger("multilink.pages")


class Searches:
    """Processes that search; used by one event loop.

    Args:
        count: of processes that work at once.
        reading: settings of the extractors that read queries.
    """

    def __init__(self, count: int, reading: Sequence[str] = ()) -> None:
        self._reading, self._count = reading, count
        self._folder = tempfile.gettempdir()  # of now: a build in this program has one of its own while it runs
        self._places = asyncio.Semaphore(count)
        self._idle: list[_Process] = []
        self.processes: set[_Process] = set()

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
            if work in done:
                return work.result()
            raise HTTPException(503, TOO_LATE)
        finally:
            work.cancel()
            gone.cancel()

    async def prepare(self, choices: Sequence[Choice]) -> None:
        """Open indexes in a new process; one of those that are there already ends for it."""
        process = await asyncio.to_thread(_Process, self._reading, self._folder)
        try:
            await process.answer(_open, choices, ())
        except BaseException:
            process.end()
            raise
        self.processes.add(process)
        self._idle.append(process)
        if len(self.processes) > self._count and self._idle[0] is not process:
            self._end(self._idle.pop(0))

    def close(self) -> None:
        """End every process."""
        for process in list(self.processes):
            self._end(process)

    async def _run(self, job: Job, choices: Sequence[Choice], arguments: Sequence[Any]) -> Any:
        async with self._places:
            process = await self._free(choices)
            try:
                found = await process.answer(job, choices, arguments)
            except MultilinkError:
                self._give_back(process)
                raise
            except (EOFError, OSError) as problem:
                self._end(process)
                raise HTTPException(503, "a process that searched has ended; try again") from problem
            except BaseException:  # the request is over
                self._end(process)
                raise
            self._give_back(process)
            return found

    async def _free(self, choices: Sequence[Choice]) -> "_Process":
        """Return an idle process that has opened most of some indexes; a new one where there may be more."""
        wanted = {each.content for each in choices}
        best = max(self._idle, key=lambda each: len(each.opened & wanted), default=None)
        if best is None or (not best.opened >= wanted and len(self.processes) < self._count):
            best = await asyncio.to_thread(_Process, self._reading, self._folder)
            self.processes.add(best)
        else:
            self._idle.remove(best)
        return best

    def _give_back(self, process: "_Process") -> None:
        if len(self.processes) > self._count:
            self._end(process)
        else:
            self._idle.append(process)

    def _end(self, process: "_Process") -> None:
        self.processes.discard(process)
        process.end()


class _Process:
    """A process, and what it has open."""

    def __init__(self, reading: Sequence[str], folder: str) -> None:
        self._scratch = tempfile.mkdtemp(prefix="multilink-search-", dir=folder)
        self._connection, theirs = _CONTEXT.Pipe()
        self._process = _CONTEXT.Process(target=_work, args=(theirs, reading, self._scratch), daemon=True)
        self._process.start()
        theirs.close()
        self.opened: frozenset[tuple[str, str]] = frozenset()  # the content of each index

    async def answer(self, job: Job, choices: Sequence[Choice], arguments: Sequence[Any]) -> Any:
        """Return a job's result; raise what it raised, or EOFError where the process has died."""
        found, problem, self.opened = await asyncio.to_thread(self._answered, (job, choices, arguments))
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
    archives = OpenArchives(reading)
    while True:
        try:
            job, choices, arguments = connection.recv()
        except (EOFError, OSError):
            return
        found: Any = None
        problem: Exception | None = None
        try:
            found = job(*(archives.opened(each) for each in choices), *arguments)
        except MultilinkError as expected:
            problem = expected
        except Exception:  # whatever it is, the next job may do better
            log.exception("a search has failed")
            problem = BuildError("the search has failed; the log of the pages has the rest")
        try:
            connection.send((found, problem, archives.contents))
        except OSError:
            return


def _open(*_: Opened) -> None:
    """Do nothing: the indexes are open."""


async def _left(request: Request) -> None:
    """Return when the visitor has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
