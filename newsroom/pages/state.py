"""What the requests of one application share."""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Annotated, cast

from fastapi import Depends, Request

from newsroom.decisions.log import DecisionLog
from newsroom.pages.archives import Archives
from newsroom.pages.copies import Copies
from newsroom.pages.search_jobs import Reading
from newsroom.pages.searches import Searches
from newsroom.pages.settings import PagesSettings
from newsroom.pages.store import Store
from schemas.lake import Lake

READINGS_KEPT = 1024  # some 10 kB each


class Readings:
    """The articles that were read last, by what decides how they are read; used by one event loop."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, Reading] = OrderedDict()

    def get(self, name: Hashable) -> Reading | None:
        """Return an article's reading, None where it is not kept."""
        return self._kept.get(name)

    def keep(self, name: Hashable, reading: Reading) -> None:
        """Keep an article's reading, in place of that which was wanted longest ago."""
        self._kept[name] = reading
        self._kept.move_to_end(name)
        if len(self._kept) > READINGS_KEPT:
            self._kept.popitem(last=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pages:
    """What a page is made of.

    Attributes:
        settings: that the pages were started with.
        lake: data sets, links, indexes.
        archives: indexes that can be searched.
        searches: the processes that search them.
        copies: of the lake's pictures.
        store: what people did.
        decisions: what they decided, in the same database.
        readings: articles as models read them: the next look at one costs a search and no reading.
        secret: random bytes that seals are made with.
    """

    settings: PagesSettings
    lake: Lake
    archives: Archives
    searches: Searches
    copies: Copies
    store: Store
    decisions: DecisionLog
    secret: bytes
    readings: Readings = field(default_factory=Readings)

    def close(self) -> None:
        """Close what is open."""
        self.searches.close()
        self.store.close()


def pages(request: Request) -> Pages:
    """Return what the application of a request shares."""
    return cast(Pages, request.app.state.pages)


Shared = Annotated[Pages, Depends(pages)]  # of a function that answers a request
