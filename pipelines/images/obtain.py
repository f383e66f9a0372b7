"""From addresses to images: what is at hand is read, what is not is fetched, and what is new is inspected and packed.

Some are pictures by which hosts stand in for those that are gone: "this image is no longer available", with status 200.

They are known by what many dead addresses share: the bytes that one host gives for all of them, or the one address that
all of them lead to. A picture that many pages show from one address is none. Some are known by name
(`images.placeholders`). What is decided follows from the addresses and pictures of a build, and not from their order.

    http://... https://...   fetched through the client, once: its answer is in raw/
    row:<n>                  a row of a released feature array: an image without pixels
    any other                read from a file (`embedded.py`)

A picture whose copy is in the packs is not decoded again. Plain functions; `transforms.py` spreads them over workers.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, TypeVar

import msgspec

from pipelines.embedded import FeatureRow, Unusable, on_web, parse_address, read_picture, reading_order
from pipelines.images.inspect import PackedImage, given_vector, inspect_image
from pipelines.ledger import LedgerRow, Read, append
from pipelines.named_files import FileRejected
from pipelines.packs import PackFolder
from pipelines.settings import FingerprintName, HttpConfig, ImagesConfig
from pipelines.sources.takedowns import NO_TAKEDOWNS, Takedowns, taken_down, url_key
from pipelines.web.client import Client, process_client
from pipelines.web.pool import Crew
from pipelines.web.requests import FetchFailed, Kind, Outcome, Request, Response, Task, host_of
from schemas.codecs import ImageRejected
from schemas.documents import COPY_SCHEMA, KNOWN_COLUMNS, Image
from schemas.failures import Failure, Reason, Stage, unexpected
from schemas.lake import Folder
from schemas.tables import row_of

_NUMBER = re.compile(r"\d+(?=[^.]*\.[^.]+\.\S*\D$)")  # of the machines of a host: img1.host.org, img2.host.org
Found = PackedImage | Failure
WEB = "web"  # the folder of images in the raw store
RECENT = 1000  # images packed last, whose bytes another address may show, too
LOOKED_UP = 200  # pictures whose copies are looked up at once: no exchange is begun meanwhile
HELD_BYTES = 64 << 20  # of files whose copies are looked up at once
T = TypeVar("T")


def signs_of(uri: str, found: Found) -> Iterator[tuple[str, str]]:
    """Yield what the picture of an address would share with those of others, were they all gone, and that in words."""
    host = host_of(uri) if isinstance(found, PackedImage) else None
    if host is not None and isinstance(found, PackedImage):
        for each in dict.fromkeys((host, host_of(found.landed or uri) or host)):  # where asked, and where it answers
            yield f"{_NUMBER.sub('', each)} {found.image.hash}", f"addresses of {each} give the same"
        if found.landed is not None:
            yield url_key(found.landed), f"addresses lead to {found.landed}"


def keyed_signs(outcome: tuple[str, Found]) -> Iterator[tuple[str, str]]:
    """Yield each sign of an outcome with a key of its address, the same for every spelling of it."""
    uri, found = outcome
    for sign, _ in signs_of(uri, found):
        yield sign, url_key(uri)


def judge(outcome: tuple[str, Found], shared: Mapping[str, int], config: ImagesConfig) -> tuple[str, Found]:
    """Return an outcome, a failure in place of a picture that stands in for one that is gone.

    Args:
        outcome: of an address.
        shared: by how many addresses a sign is shared, where these are `images.placeholder_addresses` or more.
        config: which are known.
    """
    uri, found = outcome
    if isinstance(found, Failure):
        return outcome
    if {f"sha256:{found.image.hash}", url_key(found.landed or uri)} & known_keys(config):
        why = "it is in images.placeholders"
    elif not (why := next((f"{shared[sign]} {what}" for sign, what in signs_of(uri, found) if sign in shared), "")):
        return outcome
    return uri, Failure(Stage.IMAGES, uri, Reason.REMOVED_IMAGE, f"expected a different picture: {why}")


@lru_cache(maxsize=4)
def known_keys(config: ImagesConfig) -> frozenset[str]:
    """Return what is known of placeholders by name, in one spelling."""
    return frozenset(url_key(name) if "/" in name else f"sha256:{name.lower()}" for name in config.placeholders)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageAccess:
    """Where images come from and go to, and which are accepted.

    Attributes:
        raw: answers of hosts.
        copies: packs of 256-px copies.
        files: folder, tar or zip that names of files are looked up in.
        features: path of a feature array for `row:` addresses, or None.
        ledger: of the build; None: nobody keeps one.
    """

    http: HttpConfig
    raw: Folder
    copies: PackFolder
    files: str
    features: str | None = None
    config: ImagesConfig
    fingerprint: FingerprintName
    takedowns: Takedowns = NO_TAKEDOWNS
    ledger: Folder | None = None


class Inspector:
    """Makes images of bytes in one process; the copies of new ones are visible once it is closed, not for good."""

    def __init__(self, access: ImageAccess) -> None:
        self._access = access
        self._writer = access.copies.writer()
        self._index = access.copies.index()
        self._recent: OrderedDict[str, PackedImage] = OrderedDict()
        self._given: list[LedgerRow] = []

    def close(self) -> None:
        """Make the new copies visible to other processes, and write into the ledger which address gave which image."""
        if self._access.ledger is not None:
            append(self._access.ledger, self._given)
        self._given = []
        self._writer.close()

    def image_of(
        self,
        digest: str,
        read: Callable[[], bytes],
        uri: str,
        *,
        retrieved: str | None = None,
        landed: str | None = None,
    ) -> Found:
        """Return the image of an address by the SHA-256 of its bytes, which are read only where it was not looked up.

        Raises:
            ImageRejected: the bytes are no acceptable picture.
        """
        self._given.append(LedgerRow(Read.IMAGE, digest, uri))
        if entry := self._access.takedowns.matches_image(digest, uri, landed or ""):
            return taken_down(Stage.IMAGES, entry, uri)
        if digest not in self._recent:
            image, jpeg = inspect_image(read(), config=self._access.config, fingerprint=self._access.fingerprint)
            known = row_of(image) | {"jpeg": jpeg}
            (copy,) = self._writer.add({name: [known[name]] for name in COPY_SCHEMA.names})
            self._remember(PackedImage(image, copy))
        found = self._recent[digest]
        return PackedImage(replace(found.image, source=uri), found.copy, retrieved, landed)

    def look_up(self, digests: Sequence[str]) -> None:
        """Read what the packs know of some images, at most RECENT, for `image_of`."""
        new = [digest for digest in digests if digest not in self._recent]
        refs = [ref for ref in self._index.find(new) if ref is not None]
        known = self._access.copies.read(refs, KNOWN_COLUMNS).to_pylist() if refs else []
        for ref, row in zip(refs, known, strict=True):
            self._remember(PackedImage(msgspec.convert(row, Image), ref))

    def _remember(self, found: PackedImage) -> None:
        self._recent[found.image.hash] = found
        if len(self._recent) > RECENT:
            self._recent.popitem(last=False)


def read_at_hand(uris: Iterable[str], access: ImageAccess, inspector: Inspector) -> Iterator[tuple[str, Found]]:
    """Yield the image of each address that is not to be fetched, or why there is none, file by file.

    The copies of some pictures are looked up together: one by one, that takes half the time of a rebuild.
    """
    pictures, held_bytes = dict[str, bytes](), 0
    for uri in sorted(uris, key=reading_order):
        read = _found(uri, partial(_read, uri, access))
        if isinstance(read, bytes):
            pictures[uri], held_bytes = read, held_bytes + len(read)
        else:
            yield uri, read
        if len(pictures) >= LOOKED_UP or held_bytes >= HELD_BYTES:
            yield from _inspected(pictures, inspector)
            pictures, held_bytes = {}, 0
    yield from _inspected(pictures, inspector)


def _inspected(pictures: Mapping[str, bytes], inspector: Inspector) -> Iterator[tuple[str, Found]]:
    """Yield the image of each file by its address, or why there is none."""
    digests = {uri: hashlib.sha256(data).hexdigest() for uri, data in pictures.items()}
    inspector.look_up([*digests.values()])
    for uri, digest in digests.items():
        yield uri, _found(uri, partial(inspector.image_of, digest, partial(pictures.__getitem__, uri), uri))


def _read(uri: str, access: ImageAccess) -> Found | bytes:
    """Return the bytes of a picture, or what is known without them."""
    address = parse_address(uri)
    if isinstance(address, Unusable):
        return Failure(Stage.IMAGES, uri, address.reason, address.why)
    if access.features is not None and isinstance(address, FeatureRow):
        vector = given_vector(address.number, access.features).astype("<f2")
        return PackedImage(Image(hash=hashlib.sha256(f"{uri}:".encode() + vector.tobytes()).hexdigest(), source=uri))
    return read_picture(access.files, uri, max_bytes=access.http.max_bytes)


def _found(uri: str, obtain: Callable[[], T]) -> T | Failure:
    """Return what a function gives, or the failure row of what it raises: the border of the stage."""
    try:
        return obtain()
    except (FileRejected, ImageRejected) as problem:
        return Failure(Stage.IMAGES, uri, problem.reason, problem.message, type(problem).__name__)
    except Exception as error:  # noqa: BLE001
        return unexpected(error, stage=Stage.IMAGES, record_id=uri)


def locate_stored(uris: Sequence[str], access: ImageAccess) -> Iterator[tuple[str, str]]:
    """Yield each address on the web behind the segment that holds what its host answered; empty: none does."""
    client, requests = process_client(access.http, access.raw), list(map(_request, uris))
    yield from zip(client.locate(requests), uris, strict=True)


def read_stored(uris: Iterable[str], access: ImageAccess, inspector: Inspector) -> Iterator[tuple[str, Found | None]]:
    """Yield what the raw store knows of each address on the web: its image, or why not; None: nothing."""
    client, requests = process_client(access.http, access.raw), list(map(_request, uris))
    return _come_of(zip(requests, client.look_up(requests), strict=True), client, access, inspector)


def crew_of(access: ImageAccess) -> Crew:
    """Return the threads that fetch for one worker; what was begun with one list of addresses goes on with the next."""
    http = access.http
    client = process_client(http, access.raw)
    return Crew(client, connections=http.connections, connections_per_host=http.connections_per_host)


def fetch(
    uris: Iterable[str], crew: Crew, access: ImageAccess, inspector: Inspector, *, carried: int = 0
) -> Iterator[tuple[str, Found]]:
    """Yield the images of addresses on the web, or why there is none, as the answers come, earlier ones among them.

    Threads fetch and the calling one inspects: threads that inspect side by side would take more of the processor.

    Args:
        uris: of hosts that no other worker asks meanwhile.
        crew: of this worker.
        access: where images come from and go to.
        inspector: of this worker.
        carried: that many may be under way at the end, so that a slow host does not hold up the next list.
    """
    outcomes = crew.results(map(_request, uris), carried=carried)
    return _come_of(outcomes, process_client(access.http, access.raw), access, inspector)


def _request(uri: str) -> Request:
    return Request(uri, WEB, Kind.IMAGE)


def _come_of(
    outcomes: Iterable[tuple[Request, Outcome | Task]], client: Client, access: ImageAccess, inspector: Inspector
) -> Iterator[tuple[str, Any]]:
    """Yield the image of each address, or why there is none; None for one that is still to be asked."""
    stored: list[tuple[str, Response]] = []
    for request, outcome in outcomes:
        if isinstance(outcome, Task):
            yield request.url, None
        elif isinstance(outcome, FetchFailed):
            yield request.url, outcome.failure(request.url, stage=Stage.IMAGES)
        elif outcome.from_store:
            stored.append((request.url, outcome))
        else:
            yield from _answered([(request.url, outcome)], client, inspector)
        if len(stored) >= LOOKED_UP:
            yield from _answered(stored, client, inspector)
            stored = []
    yield from _answered(stored, client, inspector)


def _answered(
    responses: Sequence[tuple[str, Response]], client: Client, inspector: Inspector
) -> Iterator[tuple[str, Found]]:
    """Yield the image of each answer; those whose copies are in the packs are looked up together."""
    inspector.look_up([str(response.entry.digest) for _, response in responses])
    for uri, response in responses:
        read, digest = partial(client.body, response), str(response.entry.digest)
        landed = None if response.final_url == response.entry.url else response.final_url
        obtain = partial(inspector.image_of, digest, read, uri, retrieved=response.fetched_at, landed=landed)
        yield uri, _found(uri, obtain)


def obtain_images(uris: Iterable[str], access: ImageAccess) -> Iterator[tuple[str, Found]]:
    """Yield the image of each address, or why there is none, in one process; copies are visible at the end."""
    inspector = Inspector(access)
    wanted = [*uris]
    yield from read_at_hand([uri for uri in wanted if not on_web(uri)], access, inspector)
    if fetched := [uri for uri in wanted if on_web(uri)]:
        with contextlib.closing(crew_of(access)) as crew:
            yield from fetch(fetched, crew, access, inspector)
    inspector.close()
