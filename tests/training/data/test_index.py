"""The index of a split is made in as much memory as it takes itself."""

import os
import tracemalloc
from pathlib import Path

import pytest

import benchmarks.scale_data as made
from schemas.documents import Split
from schemas.manifest import read_manifest
from training.data.index import index_arrays
from training.data.views import ALL_SENTENCES


def peak(folder: Path, documents: int) -> int:
    """Return the bytes that making an index takes at the most, Arrow's own aside."""
    manifest, opened = read_manifest(made.make_version(folder, documents, validation=1), made.DATASET)
    tracemalloc.start()
    arrays = index_arrays(manifest, opened, Split.TRAIN, view=ALL_SENTENCES)
    _, found = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert arrays["sentences"].to_pylist()[:3] == [0, made.SENTENCES, 2 * made.SENTENCES]
    assert arrays["images"][-1].as_py() == documents * made.IMAGES
    assert arrays["usable"].to_pylist() == list(range(documents))
    return found


def test_an_index_takes_32_bytes_a_document_while_it_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(made, "IN_SHARD", 500)
    monkeypatch.setattr(os, "cpu_count", lambda: 1)  # what two threads hold at once is chance
    less, more = (peak(tmp_path / str(documents), documents) for documents in (10_000, 50_000))
    assert more - less < 40_000 * 36
