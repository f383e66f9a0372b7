"""The active claim of C2PA in a picture's file, read by c2pa-python where that is installed (extra `claims`).

Nothing is fetched: a manifest that is elsewhere, and lists of revoked certificates, are not asked for. The result
depends on the bytes alone, so what concerns dates and trust of certificates does not count (`schemas.rights`).
"""

import importlib.metadata
import importlib.util
import io
import json
import os
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from schemas.failures import is_about_machine
from schemas.metadata import plain_text
from schemas.rights import Claim

_LIBRARY = "c2pa-python"
_MARKS = (b"jumb", b"c2pa")  # every manifest store has both
_TYPES = {name: f"image/{name.lower()}" for name in ("AVIF", "GIF", "JPEG", "PNG", "TIFF", "WEBP")}  # Pillow's names
_OF_CERTIFICATES = ("signingCredential.", "timeStamp.", "claimSignature.outsideValidity")
_MOST_USES = 16
_SHORT = 200  # characters


def claim_libraries() -> dict[str, str]:
    """Return the version of the library that claims are read with; without it they are not."""
    found = importlib.util.find_spec("c2pa")
    return {} if found is None else {_LIBRARY: importlib.metadata.version(_LIBRARY)}


def read_claim(data: bytes, kind: str) -> Claim | None:
    """Return the claim in a picture's file; None where there is none, or none that can be read.

    Args:
        data: the file.
        kind: its format, as Pillow names it.
    """
    if kind not in _TYPES or not all(mark in data for mark in _MARKS) or not claim_libraries():
        return None
    try:
        store = _store(data, _TYPES[kind])
        return _claim(store["manifests"][store["active_manifest"]], store.get("validation_results", {}))
    except Exception as problem:  # a parser of untrusted bytes raises what it likes
        if is_about_machine(problem):
            raise
        return None


def _store(data: bytes, media_type: str) -> dict[str, Any]:
    import c2pa

    with c2pa.Reader(media_type, io.BytesIO(data), context=_context(os.getpid())) as reader:
        found: dict[str, Any] = json.loads(reader.json())
    return found


@lru_cache(maxsize=1)
def _context(_process: int) -> Any:
    import c2pa

    offline = {"verify": {"remote_manifest_fetch": False, "ocsp_fetch": False, "verify_trust": False}}
    return c2pa.Context(settings=c2pa.Settings.from_dict(offline))


def _claim(manifest: Mapping[str, Any], results: Mapping[str, Any]) -> Claim:
    failed = [each["code"] for each in results["activeManifest"]["failure"]]
    signature = manifest.get("signature_info", {})
    generators = manifest.get("claim_generator_info") or [{"name": manifest.get("claim_generator", "")}]
    assertions = [(each["label"], each["data"]) for each in manifest.get("assertions", ())]
    types = [kind for label, data in assertions if label.startswith("c2pa.actions") for kind in _source_types(data)]
    uses = sorted(use for label, data in assertions if label.endswith(".training-mining") for use in _uses(data))
    return Claim(
        generator=_text(" ".join(str(generators[0].get(name, "")) for name in ("name", "version"))),
        issuer=_text(signature.get("issuer")),
        is_intact="claimSignature.validated" in {each["code"] for each in results["activeManifest"]["success"]}
        and all(code.startswith(_OF_CERTIFICATES) for code in failed),
        source_type=types[0] if types else None,
        training=tuple(uses[:_MOST_USES]),
    )


def _source_types(data: Mapping[str, Any]) -> Iterator[str]:
    """Yield the digital source types of actions, in their order."""
    for action in data.get("actions", ()):
        if kind := _text(str(action.get("digitalSourceType") or "").rstrip("/").rpartition("/")[2]):
            yield kind


def _uses(data: Mapping[str, Any]) -> Iterator[str]:
    for name, entry in data.get("entries", {}).items():
        if use := _text(f"{name}: {entry.get('use', '')}"):
            yield use


def _text(value: object) -> str | None:
    return plain_text(value, _SHORT) if isinstance(value, str) else None
