"""What the requests of one application share."""

from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends, Request

from orchestration.decisions.log import DecisionLog
from orchestration.pages.archives import Archives
from orchestration.pages.copies import Copies
from orchestration.pages.searches import Searches
from orchestration.pages.settings import PagesSettings
from orchestration.pages.store import Store
from schemas.lake import Lake


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

    def close(self) -> None:
        """Close what is open."""
        self.searches.close()
        self.store.close()


def pages(request: Request) -> Pages:
    """Return what the application of a request shares."""
    return cast(Pages, request.app.state.pages)


Shared = Annotated[Pages, Depends(pages)]  # of a function that answers a request
