"""The raw store: segments that an independent reader opens, found through their indexes, whole or not there."""

import errno
import hashlib
import os
from pathlib import Path
from unittest.mock import Mock

import pytest
from warcio.archiveiterator import ArchiveIterator

from pipelines import raw as module
from pipelines.raw import RawStore, recover, request_key
from schemas.lake import Folder
from schemas.messages import IntegrityError
from schemas.raw import RawEntry


def entry_of(url: str, *, at: int = 0, **fields: object) -> RawEntry:
    moment = f"2026-01-01T00:00:{at:02}.000000Z"
    known = {"status": 200, "final_url": url, "media_type": "image/png", **fields}
    return RawEntry(key=request_key("image", url), kind="image", url=url, fetched_at=moment, **known)  # type: ignore[arg-type]


def body_of(number: int) -> bytes:
    return hashlib.shake_256(str(number).encode()).digest(1000 + 7 * number)


def fill(store: RawStore, count: int, *, first: int = 0) -> list[RawEntry]:
    return [
        store.add("web", entry_of(f"http://a.example/{n}"), {"content-type": "image/png"}, body_of(n))
        for n in range(first, first + count)
    ]


@pytest.fixture
def raw(tmp_path: Path) -> Folder:
    return Folder(str(tmp_path / "raw"))


def files_of(raw: Folder, ending: str) -> list[Path]:
    return sorted(Path(raw.uri).rglob(f"*{ending}"))


def test_what_is_added_is_found_at_once_and_by_others_once_closed(raw: Folder) -> None:
    store, other = RawStore(raw), RawStore(raw)
    added = fill(store, 5)
    store.note(
        "web", entry_of("http://a.example/gone", status=404, reason="not-found", message="gone", media_type=None)
    )
    keys = [request_key("image", f"http://a.example/{name}") for name in (4, "gone", 1, "never", 4)]
    mine = store.find_many("web", keys)
    assert other.find_many("web", keys) == [None] * 5
    store.close()
    assert mine == other.find_many("web", keys) == store.find_many("web", keys)
    assert [each and each.offset for each in mine] == [added[4].offset, 0, added[1].offset, None, added[4].offset]
    assert mine[1] is not None and (mine[1].reason, mine[1].segment) == ("not-found", None)
    for holder in (store, other):
        assert [holder.body("web", entry) for entry in added] == [body_of(n) for n in range(5)]


def test_the_newest_entry_of_a_key_counts(raw: Folder) -> None:
    """As processes left them, each in a segment of its own: an answer, none, and another answer."""
    url = "http://a.example/page"
    gone = entry_of(url, at=2, status=404, reason="not-found", message="gone")
    for at in (1, 2, 3):
        store = RawStore(raw)
        if at == 2:
            store.note("web", gone)
        else:
            store.add("web", entry_of(url, at=at), {}, b"body %d" % at)
        store.close()
        (found,) = RawStore(raw).find_many("web", [gone.key])
        assert found is not None and found.fetched_at == entry_of(url, at=at).fetched_at
        assert found == gone if at == 2 else RawStore(raw).body("web", found) == b"body %d" % at


def test_an_independent_reader_opens_a_segment(raw: Folder) -> None:
    store = RawStore(raw)
    fill(store, 3)
    headers = {"content-type": "text/html", "etag": '"1"', "set-cookie": "a=b", "content-encoding": "gzip"}
    page = entry_of("http://a.example/page", final_url="http://b.example/end", media_type="text/html", status=203)
    store.add("web", page, headers, b"<p>" * 5000)
    store.close()
    (path,) = files_of(raw, ".warc.gz")
    with path.open("rb") as stream:
        records = [(each, each.content_stream().read()) for each in ArchiveIterator(stream, check_digests=True)]
    assert [each.rec_type for each, _ in records] == ["warcinfo"] + ["response"] * 4
    assert [body for _, body in records[1:]] == [body_of(0), body_of(1), body_of(2), b"<p>" * 5000]
    assert all(each.digest_checker.passed for each, _ in records[1:])
    last, body = records[-1]
    fields, sent = last.rec_headers, last.http_headers
    assert fields.protocol == "WARC/1.1" and fields["WARC-Target-URI"] == "http://b.example/end"
    assert fields["WARC-Date"] == page.fetched_at
    assert sent.get_statuscode() == "203" and sent["Content-Length"] == str(len(body)) and sent["Etag"] == '"1"'
    assert "Set-Cookie" not in dict(sent.headers) and "Content-Encoding" not in dict(sent.headers)
    assert path.stat().st_size < 3 * 1100 + 15_000 / 20 + 2500  # text is compressed


def test_changed_bytes_are_noticed(raw: Folder) -> None:
    store = RawStore(raw)
    (added,) = fill(store, 1)
    store.close()
    (path,) = files_of(raw, ".warc.gz")
    content = bytearray(path.read_bytes())
    content[added.offset + added.length - 100] ^= 1
    path.write_bytes(content)
    with pytest.raises(IntegrityError, match=path.name):
        store.body("web", added)
    path.unlink()
    with pytest.raises(IntegrityError, match=path.name):
        RawStore(raw).body("web", added)


def test_what_a_kill_left_without_an_index_goes(raw: Folder) -> None:
    for name in ("empty", "foreign"):
        raw.write(f"web/{name}.warc.gz", b"no gzip at all" * 100)
    store = RawStore(raw)
    lost = fill(store, 2)
    store.close()
    kept = fill(store, 2)
    store.close()
    raw.delete(f"web/index/{lost[0].segment}.parquet")
    recover(raw)
    assert {path.name for path in files_of(raw, ".warc.gz")} == {
        "empty.warc.gz", "foreign.warc.gz", f"{kept[0].segment}.warc.gz"
    }  # fmt: skip
    assert [RawStore(raw).body("web", entry) for entry in kept] == [body_of(0), body_of(1)]


def test_a_segment_is_closed_when_it_is_large_long_or_old(raw: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SEGMENT_BYTES", 10_000)
    store = RawStore(raw)
    fill(store, 20)
    assert len(files_of(raw, ".parquet")) >= 2
    monkeypatch.setattr(module, "MAX_ENTRIES", 3)
    before = len(files_of(raw, ".parquet"))
    fill(store, 9, first=20)
    assert len(files_of(raw, ".parquet")) >= before + 3
    assert all(store.find_many("web", [request_key("image", f"http://a.example/{n}") for n in range(29)]))
    monkeypatch.setattr(module, "AGE_S", 0.0)  # a killed process leaves to others what it had before its last minute
    added = fill(store, 3, first=29)
    assert RawStore(raw).find_many("web", [entry.key for entry in added]) == added  # nobody has closed it


def segments_of(raw: Folder) -> list[str]:
    return [path for path in raw.files() if path.endswith(".warc.gz")]


@pytest.mark.parametrize("is_far", [False, True])
def test_a_segment_appears_when_it_is_closed(
    raw: Folder, is_far: bool, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_of = Folder(f"s3://lake/raw?{request.getfixturevalue('object_store')}") if is_far else raw
    store = RawStore(store_of)
    added = fill(store, 3)
    assert not segments_of(store_of)
    assert [store.body("web", entry) for entry in added] == [body_of(n) for n in range(3)]  # asking for one closes it
    assert len(segments_of(store_of)) == 1
    other = RawStore(store_of)
    assert other.find_many("web", [entry.key for entry in added]) == added
    assert other.body("web", added[1]) == body_of(1)
    monkeypatch.setattr(module, "AGE_S", 0.0)
    fill(store, 2, first=3)
    assert len(segments_of(store_of)) == 3


def test_many_lookups_list_the_store_once(raw: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    store = RawStore(raw)
    added = fill(store, 3)
    store.close()
    listed: list[str] = []
    names = Folder.names
    monkeypatch.setattr(Folder, "names", lambda folder: listed.append(folder.uri) or names(folder))
    for entry in added * 5:
        assert RawStore(raw).find_many("web", [entry.key]) == [entry]
    assert len(listed) == 1


def test_a_store_is_left_as_it_is_found(raw: Folder) -> None:
    RawStore(raw).find_many("web", ["0" * 64])
    RawStore(raw).close()
    recover(raw)
    assert not os.path.exists(raw.uri)  # noqa: PTH110


def test_a_segment_with_a_record_that_a_full_disk_cut_leaves_no_trace(
    raw: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = RawStore(raw)
    fill(store, 1)
    write = Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))
    monkeypatch.setattr(store._segments["web"]._sink.stream, "write", write)
    with pytest.raises(OSError, match="No space left"):
        fill(store, 1, first=1)
    assert [path for path in files_of(raw, "") if path.is_file()] == []
    (later,) = fill(store, 1, first=2)
    store.close()
    keys = [request_key("image", f"http://a.example/{n}") for n in range(3)]
    assert RawStore(raw).find_many("web", keys) == [None, None, later]
