"""Packs: rows come back by key and by reference, nothing of one shows before it is closed, and many become few."""

import hashlib
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from pathlib import Path
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from builds import PLAIN, build, quiet, tree
from hypothesis import given, settings
from hypothesis import strategies as st
from ten_documents import draw_picture

from pipelines import packs, run, sweep
from pipelines.packs import PackFolder, PackRef
from pipelines.turns import turn_of_build
from schemas.lake import Folder, Lake
from schemas.manifest import read_manifest, verify
from schemas.messages import BuildError

SCHEMA = pa.schema([pa.field("hash", pa.string()), pa.field("value", pa.int64())])


def key(value: int) -> str:
    return hashlib.sha256(str(value).encode()).hexdigest()


def folder_at(path: Path, rows_per_group: int = 4) -> PackFolder:
    return PackFolder(Folder(str(path)), SCHEMA, "hash", rows_per_group)


def rows(values: list[int]) -> dict[str, list[object]]:
    return {"hash": [key(value) for value in values], "value": list(values)}


def packed(folder: PackFolder, rows: dict[str, list[object]]) -> list[PackRef]:
    """Return the references of rows that were written into a pack of their own."""
    writer = folder.writer()
    refs = writer.add(rows)
    writer.close()
    return refs


@settings(max_examples=40)
@given(
    adds=st.lists(st.lists(st.integers(0, 10_000), max_size=9), max_size=8),
    groups=st.integers(1, 5),
    closes=st.sets(st.integers(0, 7)),
)
def test_every_row_is_found_by_its_key_and_read_by_its_reference(
    tmp_path_factory: pytest.TempPathFactory, adds: list[list[int]], groups: int, closes: set[int]
) -> None:
    folder = folder_at(tmp_path_factory.mktemp("packs"), groups)
    writer = folder.writer()
    refs: list[PackRef] = []
    values: list[int] = []
    for number, added in enumerate(adds):
        refs += writer.add(rows(added))
        values += added
        if number in closes:
            writer.close()
    writer.close()
    assert folder.read(refs[::-1], ["value"])["value"].to_pylist() == values[::-1]
    found = folder.index().find([key(value) for value in values])
    assert folder.read([ref for ref in found if ref], ["value"])["value"].to_pylist() == values
    assert folder.index().find([key(-1)]) == [None]


def test_many_packs_are_found_by_files_that_processes_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What other processes of the machine have sorted is mapped, and nothing is read again; packs come and go."""
    monkeypatch.setattr(packs, "RUN_PACKS", (6, 3))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    folder = folder_at(tmp_path / "packs")
    many(folder, 11)
    stale = tmp_path / "temporary" / f"multilink-keys-{os.getuid()}" / "stale"
    stale.parent.mkdir()
    stale.touch()
    os.utime(stale, (0, 0))
    assert values_of(folder, 11) == [*range(11), 10] and not stale.exists()
    read = Mock(side_effect=packs.read_keys)
    monkeypatch.setattr(packs, "read_keys", read)
    another = packs.PackIndex(folder.folder, "hash")
    another.refresh(0.0)
    assert another.find([key(value) for value in range(11)]) == folder.index().find([key(value) for value in range(11)])
    assert read.call_count == 2  # the packs after the two runs that were sorted before
    first = min(path for path in (tmp_path / "packs").iterdir())
    many(folder, 1)
    first.unlink()
    assert values_of(folder, 11) == [0, *range(1, 11), 0]  # the newest counts
    assert folder.index().find([key(-2)]) == [None]


def test_more_row_groups_than_are_held_at_once_are_read_in_any_order(tmp_path: Path) -> None:
    refs = packed(folder_at(tmp_path, rows_per_group=2), rows(list(range(200))))
    wanted = [(number * 77) % 200 for number in range(300)]  # some of them twice
    read = folder_at(tmp_path, rows_per_group=3).read([refs[number] for number in wanted], ["value"])
    assert read["value"].to_pylist() == wanted  # the file says how many rows a group of it has


def test_an_open_pack_is_not_seen(tmp_path: Path) -> None:
    folder = folder_at(tmp_path)
    writer = folder.writer()
    writer.add(rows(list(range(10))))
    assert folder.index().find([key(1)]) == [None] and not list(tmp_path.glob("*.parquet"))
    writer.close()
    assert folder.index().find([key(1)]) != [None]
    (pack,) = tmp_path.glob("*.parquet")
    assert pq.read_table(pack)["value"].to_pylist() == list(range(10))


def test_a_pack_is_closed_when_it_is_large_or_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folder_at(tmp_path)
    monkeypatch.setattr(packs, "PACK_BYTES", 1)
    writer = folder.writer()
    first, *_ = writer.add(rows(list(range(4))))
    second, *_ = writer.add(rows([7]))
    assert first.pack != second.pack and len(list(tmp_path.glob("*.parquet"))) == 2
    monkeypatch.setattr(packs, "PACK_BYTES", 1 << 20)
    monkeypatch.setattr(packs, "PACK_AGE_S", 0.0)
    (third,) = writer.add(rows([8]))
    assert folder.read([third], ["value"])["value"].to_pylist() == [8]


def test_a_pack_that_is_gone_is_forgotten_and_said(tmp_path: Path) -> None:
    folder = folder_at(tmp_path)
    (ref,) = packed(folder, rows([5]))
    assert folder.index().find([key(5)]) == [ref]
    (tmp_path / f"{ref.pack}.parquet").unlink()
    assert folder.index().find([key(5)]) == [None]
    with pytest.raises(BuildError, match=r"this file was removed while it was read; repeat the command"):
        folder.read([PackRef("absent", 0)], ["value"])


def test_small_packs_on_an_object_store_are_asked_for_once_each(
    object_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow build closes many. When more were in use than are held open, each was asked for again and again."""
    folder = PackFolder(Folder(f"s3://lake/small?{object_store}"), SCHEMA, "hash")
    for value in range(100):
        packed(folder, rows([value]))
    asked = Mock(side_effect=packs.read_end)
    monkeypatch.setattr(packs, "read_end", asked)
    refs = [ref for ref in folder.index().find([key(value) for value in range(100)]) if ref]
    for _ in range(2):
        assert [folder.read([ref], ["value"])["value"].to_pylist() for ref in refs] == [[value] for value in range(100)]
    assert asked.call_count == len({call.args[1] for call in asked.call_args_list}) == 100


@pytest.mark.parametrize(("block", "end"), [(64, 100), (150, 1 << 20)])
def test_a_pack_on_an_object_store_is_read_in_pieces(
    object_store: str, monkeypatch: pytest.MonkeyPatch, block: int, end: int
) -> None:
    monkeypatch.setattr(packs, "_BLOCK_BYTES", block)
    monkeypatch.setattr(packs, "_END_BYTES", end)
    folder = PackFolder(Folder(f"s3://lake/pieces-{block}?{object_store}"), SCHEMA, "hash", 3)
    refs = packed(folder, rows(list(range(50))))
    assert folder.index().find([key(value) for value in range(50)]) == refs
    assert folder.read(refs[::-1], ["value"])["value"].to_pylist() == list(range(50))[::-1]
    with pytest.raises(BuildError, match=r"this file was removed while it was read; repeat the command"):
        folder.read([PackRef("absent", 0)], ["value"])


def test_threads_share_open_packs_and_the_index(tmp_path: Path) -> None:
    folder = folder_at(tmp_path)
    refs = packed(folder, rows(list(range(200))))

    def read(value: int) -> object:
        assert folder.index().find([key(value)]) == [refs[value]]
        return folder.read([refs[value]], ["value"])["value"][0].as_py()

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(read, range(200))) == list(range(200))


def many(folder: PackFolder, number: int = 70) -> None:
    """Write small packs: each has a row of its own and one that all have, whose value is the pack's number."""
    for value in range(number):
        packed(folder, {"hash": [key(value), key(-1)], "value": [value, value]})


def values_of(folder: PackFolder, number: int = 70) -> list[object]:
    refs = [ref for ref in folder.index().find([key(value) for value in [*range(number), -1]]) if ref]
    return list(folder.read(refs, ["value"])["value"].to_pylist())


@pytest.mark.parametrize("killed_after", [None, 0, 40])
def test_many_small_packs_become_few_and_a_kill_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed_after: int | None
) -> None:
    folder, few = folder_at(tmp_path / "many"), folder_at(tmp_path / "few")
    many(folder)
    many(few, 60)
    before = values_of(folder)
    packs.merge_small(few)
    assert len(few.folder.names()) == 60
    delete, calls = Folder.delete, count()

    def dying(self: Folder, name: str) -> None:
        if next(calls) == killed_after:
            raise KeyboardInterrupt
        delete(self, name)

    with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(Folder, "delete", dying)
        packs.merge_small(folder)
    assert values_of(folder) == before  # some rows may be there twice
    packs.merge_small(folder)
    assert values_of(folder) == before == [*range(70), 69]
    if killed_after in (None, 0):
        (pack,) = folder.folder.names()
        assert pq.read_table(tmp_path / "many" / pack).num_rows == 71


def test_packs_are_merged_up_to_their_size_and_large_ones_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folder_at(tmp_path)
    many(folder)
    monkeypatch.setattr(packs, "PACK_BYTES", 20 * max(folder.small().values()))
    packs.merge_small(folder)
    assert len(folder.folder.names()) == 4 and values_of(folder) == [*range(70), 69]
    monkeypatch.setattr(packs, "SMALL_BYTES", 1)
    assert folder.small() == {}


def test_rows_are_taken_out_of_a_merged_pack_and_what_was_read_before_is_said_to_be_gone(tmp_path: Path) -> None:
    folder = folder_at(tmp_path)
    many(folder)
    refs = folder.index().find([key(5)])
    packs.merge_small(folder)
    with pytest.raises(BuildError, match="repeat the command"):
        folder.read([ref for ref in refs if ref], ["value"])
    (pack,) = folder.folder.names()
    packs.remove_rows(folder.folder, pack.removesuffix(packs.SUFFIX), "hash", packs.parse_keys([key(5), key(6)]))
    assert folder.index().find([key(5), key(6)]) == [None, None]
    assert key(5).encode() not in b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert values_of(folder) == [*range(5), *range(7, 70), 69]


def copies(lake: Path) -> list[Path]:
    return sorted((lake / "images").rglob("*.parquet"))


@pytest.mark.trial
def test_a_sweep_writes_a_pack_anew_without_its_spare_rows(
    ten_documents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other pictures leave rows that no version needs; that merged packs give what others give is in `tests/pairs`."""
    monkeypatch.setattr(packs, "MANY", 1)
    monkeypatch.setattr(run, "MANY", 1)
    lake, pictures = tmp_path / "lake", ten_documents.parent / "pictures"
    build(ten_documents, lake, *PLAIN)
    for number in range(2):  # others come: each build adds a pack
        draw_picture(pictures / f"{number}-0.png", 1000 + number)
        with turn_of_build(Lake.at(str(lake)), "other", quiet):  # nothing is merged while another build is under way
            build(ten_documents, lake, *PLAIN)
    assert len(copies(lake)) == 3
    merged = build(ten_documents, lake, *PLAIN, "splits.seed=1")
    (path,) = copies(lake)

    at, size, later = Lake.at(str(lake)), path.stat().st_size, 10 * sweep.MIN_AGE_S + path.stat().st_mtime
    for version in {*at.versions("documents")} - {merged.manifest.version}:
        sweep.delete_version(at, f"documents@{version}", needed_by={}, dry_run=False)
    sweep._sweep(at, dry_run=False, now=later)
    assert copies(lake) == [path] and path.stat().st_size == size  # two rows of 32: not worth writing it anew
    monkeypatch.setattr(sweep, "LEAST_SPARE", 0.05)
    monkeypatch.setattr(sweep, "LEAST_BYTES", 1)
    found = sweep._sweep(at, dry_run=True, now=later)
    assert found.paths == (str(path.relative_to(lake)),) and 0 < found.bytes < size / 5
    sweep._sweep(at, dry_run=False, now=later)
    (less,) = copies(lake)
    assert less != path and less.stat().st_size < size
    assert list(verify(*read_manifest(at, f"documents@{merged.manifest.version}"))) == []
    again, fresh = (build(ten_documents, each, *PLAIN, "splits.seed=3") for each in (lake, tmp_path / "fresh"))
    assert tree(again.path) == tree(fresh.path)
