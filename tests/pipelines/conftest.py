"""What tests of the pipelines share: ten documents, as files and built, and a build's printer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ten_documents import write_ten


@pytest.fixture
def ten_documents(tmp_path: Path) -> Path:
    """Write `own/documents.jsonl` of ten documents."""
    return write_ten(tmp_path / "own")


@pytest.fixture(scope="session")
def ten_built(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Give the version of ten documents without vectors; its lake is one of its tests alone."""
    from builds import PLAIN, build

    folder = tmp_path_factory.mktemp("ten")
    return build(write_ten(folder / "own"), folder / "lake", *PLAIN)
