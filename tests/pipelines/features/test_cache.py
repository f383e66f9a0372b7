"""An entry reads back as it was written, on any file system; one that is damaged is as good as none."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import fsspec
import numpy as np
import pyarrow.fs as pafs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.features.cache import (
    BrokenEntryError,
    FeatureCache,
    Kept,
    decode_entry,
    encode_entry,
    folder_of,
    texts_key,
)
from pipelines.features.values import Classes, Regions, Rejected
from schemas.errors import BuildError
from schemas.lake import Folder, Lake

KEY, OTHER = "ab" * 32, "cd" * 32
REGIONS = Regions(
    np.array([[0, 0, 0.5, 1], [0.25, 0, 1, 1]], np.float32),
    ("traffic light", "Bär"),
    np.array([0.9, 0.3], np.float32),
    np.arange(6, dtype=np.float32).reshape(2, 3),
)
VALUES: list[Kept] = [
    np.array([1.5, -2, 3e38], np.float32),
    np.zeros((0, 4), np.float32),
    np.arange(8, dtype=np.float32).reshape(2, 4),
    REGIONS,
    Regions(np.zeros((0, 4), np.float32), (), np.zeros(0, np.float32), np.zeros((0, 3), np.float32)),
    Classes(("tabby", "tiger cat"), np.array([0.6, 0.1], np.float32)),
    Rejected("the picture cannot be decoded"),
]


def same(found: Kept | None, expected: Kept) -> bool:
    """Whether two values are equal to the last bit."""
    if type(found) is not type(expected):
        return False
    if isinstance(found, np.ndarray) and isinstance(expected, np.ndarray):
        return found.dtype == expected.dtype and found.shape == expected.shape and bool((found == expected).all())
    if isinstance(found, Regions) and isinstance(expected, Regions):
        arrays = ((found.boxes, expected.boxes), (found.scores, expected.scores), (found.vectors, expected.vectors))
        return found.labels == expected.labels and all(same(one, other) for one, other in arrays)
    if isinstance(found, Classes) and isinstance(expected, Classes):
        return found.labels == expected.labels and same(found.probabilities, expected.probabilities)
    return found == expected


@pytest.fixture(params=["local", "object store"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Folder]:
    """Yield a folder on a local disk, and one on a store in memory behind pyarrow's interface."""
    if request.param == "local":
        yield Folder(str(tmp_path))
        return
    memory = fsspec.filesystem("memory")
    store = pafs.PyFileSystem(pafs.FSSpecHandler(memory))

    class Opener:
        @staticmethod
        def from_uri(uri: str) -> tuple[pafs.FileSystem, str]:
            return store, uri.removeprefix("memory:/")

    monkeypatch.setattr(pafs, "FileSystem", Opener)
    yield Folder("memory://lake/features")
    memory.rm("/lake", recursive=True)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_reads_back(folder: Folder, value: Kept) -> None:
    cache = FeatureCache(folder)
    assert cache.find(KEY) is None
    cache.write(KEY, value)
    assert same(cache.find(KEY), value)
    cache.write(OTHER, REGIONS)
    assert all(map(same, cache.read_all([KEY, OTHER]), [value, REGIONS]))
    assert list(folder.files()) == [f"ab/{KEY}", f"cd/{OTHER}"]


@settings(deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 7), st.sampled_from(range(len(VALUES))))
def test_no_damaged_entry_is_read(place: int, bit: int, which: int) -> None:
    data = encode_entry(VALUES[which])
    assert same(decode_entry(data), VALUES[which])
    place %= len(data)
    flipped = data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]
    for damaged in (flipped, data[:place]):
        with pytest.raises(BrokenEntryError):
            decode_entry(damaged)


def test_a_damaged_entry_is_found_missing_and_replaced(folder: Folder) -> None:
    cache = FeatureCache(folder)
    folder.write(f"ab/{KEY}", encode_entry(REGIONS)[:-1])
    assert cache.find(KEY) is None
    with pytest.raises(BuildError, match="a feature that was there is gone; build again"):
        cache.read(KEY)
    cache.write(KEY, REGIONS)
    assert same(cache.find(KEY), REGIONS)


def test_many_may_write_and_read_one_entry(tmp_path: Path) -> None:
    """A reader sees nothing or all of a value, never a part, whoever writes it meanwhile."""
    cache = FeatureCache(Folder(str(tmp_path)))
    value = np.arange(20_000, dtype=np.float32)
    broken: list[object] = []

    def write() -> None:
        for _ in range(30):
            cache.write(KEY, value)

    def read() -> None:
        for _ in range(60):
            found = cache.find(KEY)
            if found is not None and not same(found, value):
                broken.append(found)
            if (tmp_path / "ab" / KEY).exists() and cache.find(KEY) is None:
                broken.append("an entry that is there could not be read")

    threads = [threading.Thread(target=act) for act in (write, write, read, read)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert broken == []
    assert same(cache.read(KEY), value)


def test_the_folder_follows_all_that_a_value_depends_on(tmp_path: Path) -> None:
    lake = Lake.at(str(tmp_path))
    base = {"extractor": "f" * 64, "jpeg_quality": 90}
    folders = [
        folder_of(lake, "x", base),
        folder_of(lake, "x", base | {"jpeg_quality": 80}),
        folder_of(lake, "y", base),
    ]
    assert len({folder.uri for folder in folders}) == 3
    assert folders[0] == folder_of(lake, "x", dict(reversed(base.items())))
    assert folders[0].uri.startswith(f"{lake.root.uri}/features/x/")


def test_the_key_of_texts_tells_their_borders() -> None:
    assert texts_key(["a", "b"]) == texts_key(iter(("a", "b")))
    assert len({texts_key(texts) for texts in (["a", "b"], ["ab"], ["b", "a"], ["a", "b", ""], [])}) == 5
