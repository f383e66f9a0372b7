"""The indexes that can be searched on the pages: which there are, what their models are, and each opened once.

A model is champion or challenger by MLflow's registry; where none is to be had, indexes are named by their models.
"""

import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache, lru_cache

from orchestration.inference.archive import Archive
from orchestration.pages.entities import Gazetteer
from schemas.errors import IntegrityError, MultilinkError, NotFoundError
from schemas.indexes import IndexManifest
from schemas.lake import MANIFEST, Folder, Lake
from training.retrieval.filters import NO_FILTERS, Filters

LOOK_AGAIN_S = 15.0  # for new indexes, and for who is champion
log = logging.getLogger("multilink.pages")
AliasesOf = Callable[[str], Mapping[str, str]]  # of a registered model: alias -> version
KEPT_FACETS = 512  # of different filters
ALIASES = ("champion", "challenger")  # in the order in which they are offered
_REGISTERED = re.compile(r"models:/([^/@]+)/(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Choice:
    """An index that can be chosen.

    Attributes:
        key: its name in addresses.
        uri: its folder.
        manifest: what it is.
        aliases: those that its model's version has.
        made_ns: when its manifest was written, nanoseconds since 1970 by the store's clock.
    """

    key: str
    uri: str
    manifest: IndexManifest
    aliases: tuple[str, ...] = ()
    made_ns: int = 0

    @property
    def model(self) -> str:
        """Return the model's name and version as a person reads it."""
        found = _REGISTERED.fullmatch(self.manifest.model)
        return f"{found[1]} {found[2]}" if found else self.key.rpartition("~")[2]

    @property
    def standing(self) -> int:
        """Return 0 for a champion's, 1 for a challenger's, 2 for others."""
        return min((ALIASES.index(alias) for alias in self.aliases), default=len(ALIASES))


class Archives:
    """The indexes of a lake, or those that are named; each is opened when it is first searched, and then kept.

    Raises:
        NotFoundError: an index that is named is not there.
    """

    def __init__(self, lake: Lake, indexes: Sequence[str], aliases_of: AliasesOf, reading: Sequence[str]) -> None:
        self._reading = reading
        self._opening, self._open = threading.Lock(), ExitStack()
        self._archives: dict[str, Archive] = {}
        self._gazetteers: dict[str, Gazetteer] = {}
        self.facets = lru_cache(KEPT_FACETS)(self._facets)
        self._lake, self._indexes, self._aliases_of = lake, indexes, aliases_of
        self._looking = threading.Lock()
        self._look()

    @property
    def choices(self) -> list[Choice]:
        """Return the indexes, champions first, newest first; after the last look another one begins in time."""
        if time.monotonic() - self._looked_at > LOOK_AGAIN_S and self._looking.acquire(blocking=False):
            threading.Thread(target=self._look_again, name="indexes", daemon=True).start()
        return self._choices

    def _look(self) -> None:
        named = [_choice(_folder(uri), self._aliases_of) for uri in self._indexes]
        found = named or list(_readable(_folders(self._lake), self._aliases_of))
        self._choices = sorted(found, key=lambda each: (each.standing, -each.made_ns, each.key))
        self._looked_at = time.monotonic()

    def _look_again(self) -> None:
        try:
            self._look()
        except Exception as problem:  # noqa: BLE001 - of whichever store or registry; the next look may do better
            self._looked_at = time.monotonic()
            log.warning("indexes cannot be looked for: %s", problem)
        finally:
            self._looking.release()

    def choice(self, key: str | None) -> Choice:
        """Return the index of a key, or the first.

        Raises:
            NotFoundError: there is none.
        """
        if not self.choices:
            raise NotFoundError("no index: make one with `multilink index`")
        for each in self.choices:
            if key in (None, "", each.key):
                return each
        raise NotFoundError(f"index {key!r}: these pages have none of that name")

    def open_first(self) -> None:
        """Open the first index and read its names and facets; where that fails, the first search says why."""
        try:
            if self.choices:
                self.gazetteer(self.choices[0])
                self.facets(self.choices[0], NO_FILTERS)
        except MultilinkError as problem:
            log.warning("the first index cannot be opened: %s", problem)

    def opened(self, choice: Choice) -> Archive:
        """Return an index, opened."""
        with self._opening:
            if choice.key not in self._archives:
                self._archives[choice.key] = self._open.enter_context(Archive(choice.uri, self._reading))
            return self._archives[choice.key]

    def gazetteer(self, choice: Choice) -> Gazetteer:
        """Return the names that an index knows."""
        records = self.opened(choice).index.records
        with self._opening:
            if choice.key not in self._gazetteers:
                self._gazetteers[choice.key] = Gazetteer(records)
            return self._gazetteers[choice.key]

    def _facets(self, choice: Choice, filters: Filters) -> dict[str, list[tuple[str, int]]]:
        return self.opened(choice).index.records.facets(filters)

    def close(self) -> None:
        """Close what was opened."""
        self._open.close()


def _folder(uri: str) -> Folder:
    folder = Lake.at(uri).root
    if not folder.exists(MANIFEST):
        raise NotFoundError(f"--index {uri}: expected the folder of an index, found no {MANIFEST}; `multilink index`")
    return folder


def _folders(lake: Lake) -> Iterator[Folder]:
    root = lake.root.child("indexes")
    for name in root.names():
        for version in root.child(name).names():
            for model in root.child(name, version).names():
                folder = root.child(name, version, model)
                if folder.exists(MANIFEST):
                    yield folder


def _readable(folders: Iterable[Folder], aliases_of: AliasesOf) -> Iterator[Choice]:
    """Yield what can be chosen; an index that another version of this program made is told and left out."""
    for folder in folders:
        try:
            yield _choice(folder, aliases_of)
        except IntegrityError as problem:
            _warn_once(f"{problem}; `multilink index` makes it anew")


@cache
def _warn_once(line: str) -> None:
    log.warning(line)  # indexes are looked for again and again


def _choice(folder: Folder, aliases_of: AliasesOf) -> Choice:
    manifest = IndexManifest.from_json(folder.read(MANIFEST).decode(), where=folder.uri)
    name, _, version = manifest.dataset.partition("@")
    last = folder.uri.partition("?")[0].rstrip("/").rpartition("/")[2]
    key = f"{name}~{version[:8]}~{last}"
    aliases, made_ns = _aliases(manifest.model, aliases_of), folder.stamp(MANIFEST)[1]
    return Choice(key=key, uri=folder.uri, manifest=manifest, aliases=aliases, made_ns=made_ns)


def _aliases(model: str, aliases_of: AliasesOf) -> tuple[str, ...]:
    found = _REGISTERED.fullmatch(model)
    aliases = {} if found is None else aliases_of(found[1])
    return tuple(alias for alias in ALIASES if found is not None and str(aliases.get(alias)) == found[2])
