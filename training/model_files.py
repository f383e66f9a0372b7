"""The files of a model's folder: sealed when it is saved, checked before it is used.

`SHA256SUMS` lies beside the files, in the form that `sha256sum -c` reads. Its own digest stands for the whole folder:
the registry keeps it as a tag of the version.
"""

import hashlib
from pathlib import Path

from schemas.errors import IntegrityError

SUMS = "SHA256SUMS"


def file_digests(folder: Path) -> dict[str, str]:
    """Return relative path -> SHA-256 (hex) of each file below a folder, sorted; its own `SHA256SUMS` is left out."""
    digests = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path != folder / SUMS:
            with path.open("rb") as stream:
                digests[path.relative_to(folder).as_posix()] = hashlib.file_digest(stream, "sha256").hexdigest()
    return digests


def folder_digest(folder: Path) -> str:
    """Return the SHA-256 (hex) of a folder's files: of the lines that `seal` would write."""
    return hashlib.sha256(_lines(file_digests(folder)).encode()).hexdigest()


def seal(folder: Path) -> None:
    """Write the digests of a model's files beside them."""
    (folder / SUMS).write_text(_lines(file_digests(folder)), encoding="utf-8")


def check_files(folder: Path, expected: str | None = None) -> None:
    """Check that a model's files are those it was saved with.

    Args:
        folder: of the model.
        expected: digest of the folder that was recorded elsewhere, such as in the registry; None: nowhere.

    Raises:
        IntegrityError: a file was changed, lost or added, or the folder is not the one that was recorded.
    """
    if not (folder / SUMS).is_file():
        raise IntegrityError(f"{folder}: expected the digests of a model's files, found no {SUMS}")
    digests, sums = file_digests(folder), (folder / SUMS).read_bytes()
    if sums != _lines(digests).encode():
        recorded = {line[66:]: line[:64] for line in sums.decode("utf-8", "replace").splitlines()}
        names = sorted(name for name in digests | recorded if digests.get(name) != recorded.get(name))
        raise IntegrityError(f"{folder}: expected the files that were saved, found others: {', '.join(names) or SUMS}")
    digest = hashlib.sha256(sums).hexdigest()
    if expected not in (None, digest):
        raise IntegrityError(f"{folder}: expected the model that was recorded, digest {expected}, found {digest}")


def _lines(digests: dict[str, str]) -> str:
    return "".join(f"{digest}  {name}\n" for name, digest in digests.items())
