"""What tests of the pipelines share: ten documents."""

from pathlib import Path

import pytest
from ten_documents import write_ten


@pytest.fixture
def ten_documents(tmp_path: Path) -> Path:
    """Write `own/documents.jsonl` of ten documents."""
    return write_ten(tmp_path / "own")
