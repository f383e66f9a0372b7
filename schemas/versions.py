"""Fingerprints of configurations, contents and code: how a version gets its name.

A fingerprint is the SHA-256 of canonical JSON (sorted keys, no spaces, UTF-8). The same values give the same
fingerprint on every machine; nothing that depends on time, file paths or the number of workers goes in.
"""

import dataclasses
import enum
import hashlib
import importlib.metadata
import importlib.util
import json
from collections.abc import Hashable
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, cast

DISTRIBUTION = "multilink-pipeline"  # what the package index knows this project by; `multilink` there is another
_SCALARS = frozenset({str, int, float, bool, type(None)})
_SOURCES = ("*.py", "*.j2")


def canonical_json(value: Any) -> str:
    """Return the one JSON text that stands for a JSON-ready value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def fingerprint(value: Any) -> str:
    """Return the full SHA-256 hex digest of a JSON-ready value."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def plain(value: Any) -> Any:
    """Return a record or a configuration (dataclasses, enumerations, tuples, scalars) as a JSON-ready value."""
    if type(value) in _SCALARS:
        return value
    if (names := _fields(cast(Hashable, type(value)))) is not None:
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, enum.Enum):
        return value.value
    return [plain(item) for item in value] if isinstance(value, tuple | list) else value


@cache
def _fields(kind: Hashable) -> list[str] | None:
    """Return the names of the fields of a dataclass, None of another class."""
    return [field.name for field in dataclasses.fields(cast(Any, kind))] if dataclasses.is_dataclass(kind) else None


def content(value: Any) -> Any:
    """Return a record as `plain` does, without the fields that are not compared and those that have their default.

    So a new field with a default changes no fingerprint of the records that do not use it.
    """
    if not dataclasses.is_dataclass(value):
        return [content(item) for item in value] if isinstance(value, tuple) else plain(value)
    return {
        n: content(found)
        for n, default in _compared(cast(Hashable, type(value)))
        if (found := getattr(value, n)) != default
    }


@cache
def _compared(kind: Hashable) -> list[tuple[str, Any]]:
    """Return the names and defaults of the fields of a dataclass that are compared."""
    return [(field.name, field.default) for field in dataclasses.fields(cast(Any, kind)) if field.compare]


def digest_stream(stream: BinaryIO) -> str:
    """Return the SHA-256 hex digest of what is left in a binary stream."""
    return hashlib.file_digest(stream, "sha256").hexdigest()  # type: ignore[arg-type]  # BinaryIO has no `readinto` in typeshed


def code_version() -> str:
    """Return the version of the installed distribution."""
    return importlib.metadata.version(DISTRIBUTION)


@cache
def code_digest(*packages: str) -> str:
    """Return the SHA-256 (hex) of the source files of packages, with their names."""
    digest = hashlib.sha256()
    for package in packages:
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError(f"{package}: no such package here")
        folder = Path(spec.origin).parent
        for path in sorted(path for pattern in _SOURCES for path in folder.rglob(pattern)):
            content = path.read_bytes()
            digest.update(f"{package}/{path.relative_to(folder).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()
