"""The indexes that can be searched on the pages: which there are, and what their models are.

A model is champion or challenger by MLflow's registry; where there is none, indexes are named by their models. Indexes
are opened by the processes that search them (`searches.py`).
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from newsroom.archive.index import index_folder
from newsroom.archive.records import Picture
from newsroom.labels.linked import readable
from newsroom.pages.rendering import picture_address
from schemas.indexes import IndexManifest
from schemas.lake import MANIFEST, Folder, Lake
from schemas.messages import NotFoundError

AliasesOf = Callable[[str], Mapping[str, str]]  # of a registered model: alias -> version
ALIASES = ("champion", "challenger")  # in the order in which they are offered
_REGISTERED = re.compile(r"models:/([^/@]+)/(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """An index that can be chosen.

    Attributes:
        uri: its folder.
        manifest: what it is.
        aliases: those that its model's version has.
        made_ns: when its manifest was written, nanoseconds since 1970 by the store's clock.
    """

    uri: str
    manifest: IndexManifest
    aliases: tuple[str, ...] = ()
    made_ns: int = 0

    @property
    def key(self) -> str:
        """Return its name in addresses."""
        name, _, version = self.manifest.dataset.partition("@")
        last = self.uri.partition("?")[0].rstrip("/").rpartition("/")[2]
        return f"{name}~{version[:8]}~{last}"

    @property
    def model(self) -> str:
        """Return the model's name and version as a person reads it."""
        found = _REGISTERED.fullmatch(self.manifest.model)
        return f"{found[1]} {found[2]}" if found else self.key.rpartition("~")[2]

    @property
    def standing(self) -> int:
        """Return 0 for a champion's, 1 for a challenger's, 2 for others."""
        return min((ALIASES.index(alias) for alias in self.aliases), default=len(ALIASES))

    @property
    def has_titles(self) -> bool:
        """Return whether at least half of its pictures have a title or a caption."""
        described = self.manifest.described
        return 2 * max(described.get("title", 0), described.get("caption", 0)) >= self.manifest.images

    def copy_of(self, picture: Picture) -> str:
        """Return the address, below the root, of the copy of a picture of it."""
        return picture_address(self.manifest.dataset, picture.part, picture.image)

    @property
    def content(self) -> tuple[str, str]:
        """Return what tells it from an index that was made again in its place."""
        return self.uri, self.manifest.made_by


class Archives:
    """The indexes of a lake, or those that are named.

    Attributes:
        choices: pictures with titles first, of these champions first, newest first.

    Raises:
        NotFoundError: an index that is named is not there.
    """

    def __init__(self, lake: Lake, indexes: Sequence[str], aliases_of: AliasesOf) -> None:
        self._lake, self._indexes, self._aliases_of = lake, indexes, aliases_of
        self.choices = self.look()

    def look(self) -> list[Choice]:
        """Return the indexes that are there now; the lake and the registry are read."""
        named = [_choice(index_folder(uri), self._aliases_of) for uri in self._indexes]
        read, remedy = partial(_choice, aliases_of=self._aliases_of), "`multilink index` makes it again"
        found = named or list(readable(_folders(self._lake), read, remedy=remedy))
        return sorted(found, key=lambda each: (not each.has_titles, each.standing, -each.made_ns, each.key))

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
        raise NotFoundError(f"no index {str(key)[:120]!r}; indexes: {', '.join(each.key for each in self.choices)}")


def _folders(lake: Lake) -> Iterator[Folder]:
    root = lake.root.child("indexes")
    versions = ((name, version) for name in root.names() for version in root.child(name).names())
    folders = (root.child(*path, model) for path in versions for model in root.child(*path).names())
    return (folder for folder in folders if folder.exists(MANIFEST))


def _choice(folder: Folder, aliases_of: AliasesOf) -> Choice:
    manifest = IndexManifest.from_json(folder.read(MANIFEST).decode(), where=folder.uri)
    found = _REGISTERED.fullmatch(manifest.model)
    versions = aliases_of(found[1]) if found else {}
    aliases = tuple(alias for alias in ALIASES if found and str(versions.get(alias)) == found[2])
    return Choice(uri=folder.uri, manifest=manifest, aliases=aliases, made_ns=folder.stamp(MANIFEST)[1])
