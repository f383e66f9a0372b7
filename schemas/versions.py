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
import re
from collections.abc import Hashable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, cast

DISTRIBUTION = "multilink-pipeline"  # what the package index knows this project by; `multilink` there is another
PACKAGES = ("schemas", "pipelines", "networks")  # whose modules make a version
_SCALARS = frozenset({str, int, float, bool, type(None)})
_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n#]+)|import[ \t]+([^\n#]+))", re.MULTILINE
)


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
    return files_digest({name: path for package in packages for name, path in _modules(package).items()})


def code_reached(*modules: str, beside: str = "") -> Mapping[str, Path]:
    """Return the source file of every module that these modules import, by name: itself, its packages, and so on.

    Imports in functions count, for what they bring makes bytes too. Modules of other packages than `PACKAGES` and those
    of the given modules do not: libraries are named by their versions. Nor do those of the package `beside`.
    """
    known = dict[str, Path]()
    for package in {*PACKAGES, *(name.partition(".")[0] for name in modules)}:
        known |= _modules(package)
    reached, waiting = dict[str, Path](), [*modules]
    while waiting:
        name = waiting.pop()
        if name in known.keys() - reached.keys() and not (beside and f"{name}.".startswith(f"{beside}.")):
            reached[name] = known[name]
            waiting += [name.rpartition(".")[0], *_imported(name, known[name])]
    return reached


@cache
def reached_digest(*modules: str, beside: str = "") -> str:
    """Return the SHA-256 (hex) of what `code_reached` returns, as it was when this process first asked."""
    return files_digest(code_reached(*modules, beside=beside))


@cache
def digest_within(module: str, *within: str, beside: str = "") -> str:
    """Return the SHA-256 (hex) of what `code_reached` returns for a module, of some modules and packages alone."""
    files = code_reached(module, beside=beside)
    return files_digest({name: path for name, path in files.items() if f"{name}.".startswith(tuple(within))})


def files_digest(files: Mapping[str, Path]) -> str:
    """Return the SHA-256 (hex) of files with their names, in the order of the names."""
    digest = hashlib.sha256()
    for name, path in sorted(files.items()):
        data = path.read_bytes()
        digest.update(f"{name} {len(data)}\n".encode() + data)
    return digest.hexdigest()


def _modules(package: str) -> dict[str, Path]:
    """Return the source files of a top-level package, or of a module that is one file, by the names of modules.

    Raises:
        ModuleNotFoundError: there is no such package here.
    """
    try:
        spec = importlib.util.find_spec(package)
    except ValueError:  # what runs as a script, or was made in memory: other processes cannot import it
        return {}
    if spec is None:
        raise ModuleNotFoundError(f"{package}: no such package here")
    if not spec.submodule_search_locations:
        return {package: Path(str(spec.origin))}
    folder = Path(spec.submodule_search_locations[0])
    names = {path: [package, *path.relative_to(folder).with_suffix("").parts] for path in folder.rglob("*.py")}
    return {".".join(parts).removesuffix(".__init__"): path for path, parts in names.items()}


@cache
def _imported(name: str, path: Path) -> frozenset[str]:
    """Return the names that a module imports: of `from a import b` both `a` and `a.b`, whichever is a module.

    A pattern does, for a syntax tree of all files takes half a second, and each worker needs their names.
    """
    package, found = name if path.stem == "__init__" else name.rpartition(".")[0], set[str]()
    for origin, names, plain in _IMPORT.findall(path.read_text(encoding="utf-8")):
        if origin:
            module = importlib.util.resolve_name(origin, package)
            found |= {module, *(f"{module}.{each}" for each in re.findall(r"\w+", names))}
        found |= {*re.findall(r"[\w.]+", plain)}
    return frozenset(found)
