"""Pictures by which hosts stand in for those that are gone: "this image is no longer available", with status 200.

They are known by what many dead addresses share: the bytes that one host gives for all of them, or the one address that
all of them lead to. A picture that many pages show from one address is none. Some are known by name
(`images.placeholders`). What is decided follows from the addresses and pictures of a build, and not from their order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from heapq import nsmallest

from pipelines.images.packed import PackedImage
from pipelines.settings import ImagesConfig
from pipelines.sources.takedowns import url_key
from pipelines.web.requests import host_of
from schemas.failures import Failure, Reason, Stage

COUNTED = 1 << 16  # addresses of a sign; there may be more
_DIGEST_BYTES = 8

Found = PackedImage | Failure


def signs_of(uri: str, found: Found) -> Iterator[tuple[str, str]]:
    """Yield what the picture of an address would share with those of others, were they all gone, and that in words."""
    host = host_of(uri) if isinstance(found, PackedImage) else None
    if host is not None and isinstance(found, PackedImage):
        yield f"{host} {found.image.hash}", f"addresses of {host} give the same"
        if found.landed is not None:
            yield url_key(found.landed), f"addresses lead to {found.landed}"


def keyed_signs(outcome: tuple[str, Found]) -> Iterator[tuple[str, frozenset[int]]]:
    """Yield each sign of an outcome with a number for its address, the same for every spelling of it."""
    uri, found = outcome
    for sign, _ in signs_of(uri, found):
        yield sign, frozenset((_number(url_key(uri)),))


def merge_addresses(addresses: Iterable[frozenset[int]]) -> frozenset[int]:
    """Return the numbers of all addresses, the smallest where there are more than COUNTED."""
    found = frozenset[int]().union(*addresses)
    return found if len(found) <= COUNTED else frozenset(nsmallest(COUNTED, found))


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
    return uri, Failure(Stage.IMAGES, uri, Reason.REMOVED_IMAGE, f"expected a picture of its own: {why}")


@lru_cache(maxsize=4)
def known_keys(config: ImagesConfig) -> frozenset[str]:
    """Return what is known of placeholders by name, in one spelling."""
    return frozenset(url_key(name) if "/" in name else f"sha256:{name.lower()}" for name in config.placeholders)


def _number(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).digest(), "big")
