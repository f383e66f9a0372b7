"""What a source is to a build: settings that say what can be read of it apart, and how. A build asks nothing else.

    shards -> read, each by one worker -> select one of each id -> fetch, all by one worker -> documents, failures
                                                                 `-> complete, each by any worker -'

A source of files has `read` alone. Steps that a source does not have are None.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pipelines.settings import HttpConfig
from pipelines.sources.records import CandidateDocument
from pipelines.sources.takedowns import Takedowns
from pipelines.web.client import Client, process_client
from schemas.configs import Settings
from schemas.failures import Failure
from schemas.lake import Folder
from schemas.ledger import LedgerRow, Read, append

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
    """Base of the settings of a source: a frozen dataclass with `inputs` (`pipelines.sources.inputs`).

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

    def shards(self) -> Sequence[str]:
        """Return names of what different workers may read."""
        return (type(self).__name__,)

    def read_shard(self, shard: str, context: Context) -> Iterator[Any]:
        """Yield what a shard begins with: documents, or items for the next step; and failures."""
        return self.read()

    def read(self) -> Outcomes:
        """Yield all documents in order, and a failure for each record that cannot be used."""
        return iter(())
