"""An image address becomes bytes, and bytes become an `Image` with a 256-px copy in the store, or a failure.

http://... https://...   fetched through the one client, kept in raw/
path/of/file.jpg         read from the source's image folder, tar or zip
row:<n>                  a row of a released feature array: an image without pixels
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlsplit

from pipelines.features.given import ROW, VectorRejected, given_vectors, row_of
from pipelines.images.files import image_files
from pipelines.images.inspect import inspect_image
from pipelines.images.store import ImageStore
from pipelines.settings import FingerprintName, HttpConfig, ImagesConfig
from pipelines.web.captures import Capture, Kind
from pipelines.web.client import Client, process_client
from pipelines.web.errors import FetchFailed
from pipelines.web.fan_out import map_concurrently
from schemas.codecs import ImageRejected
from schemas.failures import Failure, Reason, Stage
from schemas.images import Image
from schemas.lake import Folder

WEB = "web"
HELD_BYTES = 1 << 20  # of a body that waits to be inspected: a larger one is read again


@dataclass(frozen=True, slots=True, kw_only=True)
class ImagePlaces:
    """Where images come from and go to.

    Attributes:
        http: settings of the client.
        raw: captured bytes.
        store: 256-px copies.
        files: folder, tar or zip that names of files are looked up in.
        features: path of a feature array for `row:` addresses, or None.
    """

    http: HttpConfig
    raw: Folder
    store: ImageStore
    files: str
    features: str | None = None


def host_of(uri: str) -> str:
    """Return the host an address is fetched from; empty for a file or a row."""
    parts = urlsplit(uri)
    return parts.netloc.lower() if parts.scheme in ("http", "https") else ""


def obtain_images(
    uris: Iterable[str], *, places: ImagePlaces, config: ImagesConfig, fingerprint: FingerprintName, threads: int
) -> Iterator[tuple[str, Image | Failure]]:
    """Yield every address with what is known of its image, as `obtain_image` does, about in the order they come.

    Several threads fetch and the calling one inspects: threads that inspect side by side take a sixth more of the
    processor for each picture, and hold as many of them.
    """
    keep = partial(keep_image, places=places, config=config, fingerprint=fingerprint)
    for uri, found in map_concurrently(partial(_brought, places=places), uris, threads=threads):
        if found is None:
            yield uri, obtain_image(uri, places=places, config=config, fingerprint=fingerprint)
        else:
            yield uri, keep(uri, found) if isinstance(found, bytes) else found


def obtain_image(
    uri: str, *, places: ImagePlaces, config: ImagesConfig, fingerprint: FingerprintName
) -> Image | Failure:
    """Return what is known of the image at an address, its 256-px copy stored; or why it cannot be had."""
    try:
        if uri.startswith(ROW):
            return _row_image(uri, places.features)
        data = _captured(uri, places) if host_of(uri) else _read_file(uri, places)
    except (FetchFailed, ImageRejected, VectorRejected) as problem:
        return failure_of(uri, problem)
    return keep_image(uri, data, places=places, config=config, fingerprint=fingerprint)


def fetch_image(uri: str, places: ImagePlaces) -> bytes | None:
    """Return the body a web address has given now; None where it was stored before, or is large: it is not held then.

    Raises:
        FetchFailed: there is none.
    """
    client, capture = _ask(uri, places)
    return None if capture.from_store or capture.body_bytes > HELD_BYTES else client.body(capture)


def keep_image(
    uri: str, data: bytes, *, places: ImagePlaces, config: ImagesConfig, fingerprint: FingerprintName
) -> Image | Failure:
    """Return what is known of the picture in an address's bytes, its 256-px copy stored; or why it is refused."""
    try:
        inspected = inspect_image(data, config=config, fingerprint=fingerprint, source=uri)
    except ImageRejected as problem:
        return failure_of(uri, problem)
    places.store.write(inspected.image.hash, inspected.jpeg)
    return inspected.image


def failure_of(uri: str, problem: FetchFailed | ImageRejected | VectorRejected) -> Failure:
    """Return the failure row of an address that gave no image."""
    if isinstance(problem, FetchFailed):
        return problem.failure(uri, stage=Stage.IMAGES)
    return Failure(Stage.IMAGES, uri, problem.reason, problem.message, type(problem).__name__)


def _brought(uri: str, *, places: ImagePlaces) -> tuple[str, bytes | Failure | None]:
    """Return what fetching a web address brings; None for all that is read where it is inspected."""
    try:
        return uri, fetch_image(uri, places) if host_of(uri) else None
    except FetchFailed as problem:
        return uri, failure_of(uri, problem)


def _captured(uri: str, places: ImagePlaces) -> bytes:
    client, capture = _ask(uri, places)
    return client.body(capture)


def _ask(uri: str, places: ImagePlaces) -> tuple[Client, Capture]:
    client = process_client(places.http, places.raw)
    return client, client.get(uri, source=WEB, kind=Kind.IMAGE)


def _read_file(path: str, places: ImagePlaces) -> bytes:
    files, max_bytes = image_files(places.files), places.http.max_bytes
    try:
        size = files.size(path)
        if size > max_bytes:
            raise ImageRejected(Reason.TOO_LARGE, f"{path}: expected at most {max_bytes} bytes, found {size}")
        return files.read(path)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as problem:
        raise ImageRejected(Reason.NOT_FOUND, f"{path}: no such image file") from problem
    except OSError as problem:
        raise ImageRejected(Reason.FORBIDDEN, f"{path}: cannot be read ({problem.strerror})") from problem


def _row_image(uri: str, features: str | None) -> Image:
    vector = given_vectors("", str(features)).vector(row_of(uri))
    return Image(hash=hashlib.sha256(f"{uri}:".encode() + vector.astype("<f2").tobytes()).hexdigest(), source=uri)


def unique_images(images: Iterable[Image]) -> Image:
    """Return the one record of images with equal bytes: the one of the smallest address, wherever they came from."""
    return min(images, key=_address)


def _address(image: Image) -> str:
    return image.source or ""
