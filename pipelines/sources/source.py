"""What a source is to a build: settings that say what can be read of it apart, and how. A build asks nothing else.

    shards -> read, each by one worker -> select one of each id -> fetch, all by one worker -> documents, failures
                                                                 `-> complete, each by any worker -'

A source of files has `read` alone. Steps that a source does not have are None. Records that are asked of hosts are
fetched by `fetch_records`: one request each, and what is read of its answer.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from pipelines.ledger import LedgerRow, Read, append
from pipelines.settings import HttpConfig
from pipelines.sources.records import CandidateDocument, outcomes_of
from pipelines.sources.takedowns import Takedowns
from pipelines.web.client import Client, process_client, usable
from pipelines.web.pool import fetch_all
from pipelines.web.requests import Outcome, Request, Response
from schemas.configs import Settings
from schemas.failures import Failure
from schemas.lake import Folder

T = TypeVar("T")
R = TypeVar("R")
Outcomes = Iterator[CandidateDocument | Failure]


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a step of a source is given by the build, in a worker.

    Attributes:
        raw: answers of hosts.
        ledger: of the build.
        takedowns: what must not be asked for.
        min_images: an article with fewer is left out before it is parsed.
    """

    http: HttpConfig
    raw: Folder
    ledger: Folder
    takedowns: Takedowns
    min_images: int

    @property
    def client(self) -> Client:
        """Return this process's client."""
        return process_client(self.http, self.raw)

    def note(self, asked: Iterable[tuple[str, str]]) -> None:
        """Write into the ledger which record's page is asked for at which address, before it is."""
        append(self.ledger, (LedgerRow(Read.DOCUMENT, key, None, key, address) for key, address in asked))


class Source(Settings):
    """Base of the settings of a source: a frozen dataclass with `inputs` (`pipelines.sources.source`).

    Attributes:
        select: of (id, the items of this id, context), yields the item that is kept, and a failure for each other.
            Items have an `id`.
        fetch: of (items, context), yields the documents of items that are asked of a host, and failures.
        complete: of (item, context), yields the document of an item, and failures.
    """

    __slots__ = ()
    part: ClassVar[str] = "source"
    select: ClassVar[Callable[..., Iterator[Any]] | None] = None
    fetch: ClassVar[Callable[..., Outcomes] | None] = None
    complete: ClassVar[Callable[..., Outcomes] | None] = None

    @property
    def is_fixed(self) -> bool:
        """Return whether what is read follows from its settings and files alone, so that a version can be reused."""
        return False

    @property
    def environment(self) -> Sequence[str]:
        """Return the names of the environment variables that must be set."""
        return ()

    @property
    def given_features(self) -> tuple[str, str] | None:
        """Return the column and the path of the array of vectors that it brings in place of pictures, if it does."""
        return None

    def remarks(self) -> Iterator[str]:
        """Yield what a user is told of the files that are read; they are there.

        Raises:
            UsageError: none of them can be read.
        """
        return iter(())

    def shards(self) -> Sequence[str]:
        """Return names of what different workers may read."""
        return (type(self).__name__,)

    def read_shard(self, shard: str, context: Context) -> Iterator[Any]:
        """Yield what a shard begins with: documents, or items for the next step; and failures."""
        return self.read()

    def read(self) -> Outcomes:
        """Yield all documents in order, and a failure for each record that cannot be used."""
        return iter(())


def fetch_records(
    items: Iterable[tuple[str, T]],
    *,
    client: Client,
    request_of: Callable[[T], Request],
    read: Callable[[T, Response], Iterable[R | Failure]],
    note: Callable[[Iterable[tuple[str, str]]], None] | None = None,
) -> Iterator[R | Failure]:
    """Yield what is read of the answer to each item's request, or why there is none, in the order of the answers.

    Args:
        items: what failures are filed under, and the item; several may ask for the same address.
        client: fetches, with as many connections as one host may have.
        request_of: returns an item's request.
        read: returns what an answer gives; what it raises is the failure row of this item alone.
        note: is called with what failures are filed under and the address of each item before any of them is asked for.
    """
    waiting: dict[str, list[tuple[str, T]]] = {}
    requests: dict[str, Request] = {}
    for record_id, item in items:
        request = request_of(item)
        requests[request.url] = request
        waiting.setdefault(request.url, []).append((record_id, item))
    if note is not None:
        note((record_id, address) for address, group in waiting.items() for record_id, _ in group)
    threads = client.config.connections_per_host
    answers = fetch_all(client, requests.values(), connections=threads, connections_per_host=threads)
    for request, outcome in answers:

        def outcomes(item: T, _: str, outcome: Outcome = outcome) -> Iterable[R | Failure]:
            return read(item, usable(outcome))

        yield from outcomes_of(waiting.pop(request.url), outcomes)
