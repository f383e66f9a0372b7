"""A few processes that search, each of which can be ended: no search outlives the request that wanted it.

    request -> waits for a process -> the process opens what it has not open -> and answers
               too late, or the visitor is gone:       `-- it goes on         `-- it is ended

What was opened for a request that is over is taken by the next that wants it: an index may take longer to open than a
request has. The time of a request counts from its arrival, waiting included. A process is chosen by what it has open. A
new index is opened in a process beside those at work, so that nobody waits for it (`prepare`). Processes are forks of
one that has imported what they need; each has a folder for temporary files that is removed with it.
"""

import asyncio
import logging
import multiprocessing
import multiprocessing.connection
import shutil
import signal
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fastapi import HTTPException, Request

from newsroom.pages.archives import Choice
from newsroom.pages.opened import OpenArchives, Opened
from schemas.errors import BuildError, MultilinkError

Job = Callable[..., Any]  # of a module: takes what is opened, then arguments; its result can be pickled
_Contents = frozenset[tuple[str, str]]  # of indexes (`Choice.content`)
TOO_LATE = "the search took too long; shorten the text, or try again"
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["newsroom.pages.search_jobs"])
log = logging.getLogger("multilink.pages")


class Searches:
    """Processes that search; used by one event loop.

    Args:
        count: of processes that work at once.
        reading: settings of the extractors that read queries.
    """

    def __init__(self, count: int, reading: Sequence[str] = ()) -> None:
        self._reading, self._count = reading, count
        self._places = asyncio.Semaphore(count)
        # A search waits in one; one more for an opening that is left, one for a new index. asyncio's own may be fewer.
        self._threads = ThreadPoolExecutor(count + 2, thread_name_prefix="searches")
        self._idle: list[_Process] = []
        self._left: dict[_Contents, asyncio.Task[_Process]] = {}  # an opening whose request is over: one at most
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
        process = await self._start()
        try:
            await process.answer(_open, choices, ())
        except BaseException:
            process.end()
            raise
        self.processes.add(process)
        self._keep(process)

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
        """Return a process that has opened some indexes: an idle one, or one that opens them."""
        wanted = frozenset(each.content for each in choices)
        for process in self._idle:
            if process.opened >= wanted:
                self._idle.remove(process)
                return process
        opening = self._left.pop(wanted, None) or asyncio.ensure_future(self._opened(choices, wanted))
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            self._leave(wanted, opening)
            raise

    def _leave(self, wanted: _Contents, opening: "asyncio.Task[_Process]") -> None:
        """Let an opening go on without its request, unless another one does."""
        if opening.done():
            self._keep_opened(opening)
        elif self._left:
            opening.cancel()
        else:
            self._left[wanted] = opening

            def done(_: object) -> None:
                if self._left.get(wanted) is opening:  # nobody has taken it
                    del self._left[wanted]
                    self._keep_opened(opening)

            opening.add_done_callback(done)

    def _keep_opened(self, opening: "asyncio.Task[_Process]") -> None:
        if not opening.cancelled() and opening.exception() is None:
            self._keep(opening.result())

    async def _opened(self, choices: Sequence[Choice], wanted: _Contents) -> "_Process":
        """Open indexes in a new process, or in the idle one that has most of them where there may be no more."""
        best = max(self._idle, key=lambda each: len(each.opened & wanted), default=None)
        if best is None or len(self.processes) < self._count:
            best = await self._start()
            self.processes.add(best)
        else:
            self._idle.remove(best)
        await self._answer(best, _open, choices, ())
        return best

    async def _start(self) -> "_Process":
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, _Process, self._reading, self._threads)

    def _keep(self, process: "_Process") -> None:
        """Make a process that has opened an index idle; where there are too many, another idle one ends for it."""
        self._idle.append(process)
        if len(self.processes) > self._count and self._idle[0] is not process:
            self._end(self._idle.pop(0))

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
