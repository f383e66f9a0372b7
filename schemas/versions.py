"""Fingerprints of configurations and inputs: how a version gets its name.

A fingerprint is the SHA-256 of canonical JSON (sorted keys, no spaces, UTF-8). The same values give the same
fingerprint on every machine; nothing that depends on time, place or worker count goes in.
"""

import hashlib
import importlib.metadata
import json
from collections.abc import Callable
from typing import Any, BinaryIO

VERSION_LENGTH = 16
CHUNK_BYTES = 1 << 20


def canonical_json(value: Any) -> str:
    """Return the one JSON text that stands for a JSON-ready value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def fingerprint(value: Any) -> str:
    """Return the full SHA-256 hex digest of a JSON-ready value."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def version_of(value: Any) -> str:
    """Return a version name: the first 16 hex digits of the fingerprint."""
    return fingerprint(value)[:VERSION_LENGTH]


def digest_stream(stream: BinaryIO, *, advance: Callable[[int], None] | None = None) -> str:
    """Return the SHA-256 hex digest of what is left in a binary stream."""
    digest = hashlib.sha256()
    while chunk := stream.read(CHUNK_BYTES):
        digest.update(chunk)
        if advance is not None:
            advance(len(chunk))
    return digest.hexdigest()


def code_version() -> str:
    """Return the version of the installed distribution."""
    return importlib.metadata.version("multilink")
