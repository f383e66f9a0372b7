"""What the pages are started with, and what the requests of one application share."""

import os
import re
from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends, File, Form, Query, Request, UploadFile

from newsroom.decisions.store import Store
from newsroom.pages.archives import Archives
from newsroom.pages.searches import Searches
from schemas.lake import Lake
from schemas.messages import UsageError
from training.listening import is_loopback

LEAST_TOKEN = 16  # characters


@dataclass(frozen=True, slots=True, kw_only=True)
class PagesSettings:
    """The settings of `multilink pages`.

    Attributes:
        lake: path or URI.
        indexes: paths or URIs of indexes; empty: all of the lake.
        store: address of the database of texts and decisions, as SQLAlchemy writes it.
        tracking: MLflow's address; None: no model is champion or challenger.
        host: address that is listened on.
        port: of it; 0: one that is free.
        token: that a visitor must enter; "": nothing.
        user_header: header in which a reverse proxy names the visitor it let in; "": none does.
        root_path: path below which a proxy shows the pages, such as /newsroom; "": at the root.
        processes: that search at once.
        keep_days: after which uploads, and texts that nobody decided on, are removed; 0: never.
        reading: `KEY=VALUE` settings of the extractors that read queries.

    Raises:
        UsageError: others could come in without a login.
    """

    lake: str
    store: str
    indexes: tuple[str, ...] = ()
    tracking: str | None = None
    host: str = "127.0.0.1"
    port: int = 0
    token: str = ""
    user_header: str = ""
    root_path: str = ""
    processes: int = min(2, os.cpu_count() or 1)
    keep_days: int = 30
    reading: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.is_local and not self.token and not self.user_header:
            raise UsageError(
                f"--host {self.host}: others can reach it; expected --token, or --user-header of a reverse proxy"
            )
        if self.token and len(self.token) < LEAST_TOKEN:
            raise UsageError(f"--token: expected at least {LEAST_TOKEN} characters, found {len(self.token)}")
        if self.token and self.user_header:
            raise UsageError("--token, --user-header: expected one of them")
        if not re.fullmatch("(/[A-Za-z0-9._~-]+)*", self.root_path):
            raise UsageError(f"--root-path {self.root_path!r}: expected a path such as /newsroom, without / at its end")

    @property
    def is_open(self) -> bool:
        """Whether anyone is answered who is on this machine."""
        return not self.token and not self.user_header

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the pages."""
        return is_loopback(self.host)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pages:
    """What a page is made of.

    Attributes:
        settings: that the pages were started with.
        lake: data sets, links, indexes.
        archives: indexes that can be searched.
        searches: the processes that search them.
        store: what people did.
        secret: random bytes that seals are made with.
    """

    settings: PagesSettings
    lake: Lake
    archives: Archives
    searches: Searches
    store: Store
    secret: bytes


def pages(request: Request) -> Pages:
    """Return what the application of a request shares."""
    return cast(Pages, request.app.state.pages)


def visitor(request: Request) -> str:
    """Return the name that a reverse proxy gave its visitor; "": there is none."""
    return str(request.state.user)


# Of a function that answers a request.
Shared = Annotated[Pages, Depends(pages)]
Visitor = Annotated[str, Depends(visitor)]
Number = Annotated[int, Query(ge=1, alias="page")]
Field = Annotated[str, Form()]  # of the form that was sent
Upload = Annotated[UploadFile | None, File()]
