"""One folder for everything temporary of a run: progress, spilled collections, Beam's own files.

It is named after its process and removed at the end. What a killed process left is removed by the next run.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PREFIX = "multilink-run-"


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Make temporary files of this process and of those it starts go to a folder of their own while the block runs."""
    remove_leftovers(Path(tempfile.gettempdir()))
    folder = tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-")
    before, tempfile.tempdir = tempfile.tempdir, folder
    named = os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = folder
    try:
        yield Path(folder)
    finally:
        tempfile.tempdir = before
        os.environ.pop("TMPDIR")
        if named is not None:
            os.environ["TMPDIR"] = named
        shutil.rmtree(folder, ignore_errors=True)


def remove_leftovers(root: Path) -> None:
    """Remove the folders of runs whose process is gone."""
    for folder in root.glob(f"{_PREFIX}*"):
        process = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if process.isdigit() and not _is_running(int(process)):
            shutil.rmtree(folder, ignore_errors=True)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it is somebody else's
        return True
    return True
