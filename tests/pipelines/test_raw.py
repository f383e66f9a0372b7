"""The raw store: segments an independent reader opens, found through their indexes, whole after a kill."""

from __future__ import annotations

import errno
import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from warcio.archiveiterator import ArchiveIterator

import pipelines
from pipelines import raw as module
from pipelines.raw import RawStore, recover, request_key
from schemas.errors import IntegrityError
from schemas.lake import Folder
from schemas.raw import RawEntry

ROOT = Path(pipelines.__file__).parents[1]


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
    theirs = other.find_many("web", keys)
    assert mine == theirs == store.find_many("web", keys)
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
        records = [
            (
                record.rec_type,
                record.rec_headers,
                record.http_headers,
                record.content_stream().read(),
                record.digest_checker,
            )
            for record in ArchiveIterator(stream, check_digests=True)
        ]
    assert [kind for kind, *_ in records] == ["warcinfo"] + ["response"] * 4
    assert [body for *_, body, _ in records[1:]] == [body_of(0), body_of(1), body_of(2), b"<p>" * 5000]
    assert all(checker.passed for *_, checker in records[1:])
    _, fields, sent, body, _ = records[-1]
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


@pytest.mark.parametrize("cut", [1, 8, 500, 1700])
def test_a_segment_that_was_cut_is_whole_up_to_its_last_record(raw: Folder, cut: int) -> None:
    store = RawStore(raw)
    added = fill(store, 4)
    store.close()
    (path,), (index,) = files_of(raw, ".warc.gz"), files_of(raw, ".parquet")
    index.unlink()
    path.write_bytes(path.read_bytes()[:-cut])
    recover(raw)
    again = RawStore(raw)
    left = 4 if cut == 0 else 3 if cut < 1100 else 2
    assert again.find_many("web", [entry.key for entry in added]) == [*added[:left], *[None] * (4 - left)]
    assert [again.body("web", entry) for entry in added[:left]] == [body_of(n) for n in range(left)]
    with path.open("rb") as stream:
        assert len([record.rec_type for record in ArchiveIterator(stream, check_digests="raise")]) == left + 1


def test_an_empty_or_foreign_file_is_no_segment(raw: Folder) -> None:
    for name, content in (("empty", b""), ("foreign", b"no gzip at all" * 100)):
        raw.write(f"web/{name}.warc.gz", content)
    recover(raw)
    assert RawStore(raw).find_many("web", ["0" * 64]) == [None]
    store = RawStore(raw)
    (added,) = fill(store, 1)
    store.close()
    assert RawStore(raw).find_many("web", [added.key]) == [added]


KILLED = """
import os, sys
sys.path.insert(0, sys.argv[2])
from test_raw import fill
from pipelines.raw import RawStore
from schemas.lake import Folder
store = RawStore(Folder(sys.argv[1]))
fill(store, 20)
print("filled", flush=True)
sys.stdin.read()
"""


def test_what_a_killed_process_stored_is_there(raw: Folder) -> None:
    command = [sys.executable, "-c", KILLED, raw.uri, str(Path(__file__).parent)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "filled\n"
        recover(raw)  # of a process that is alive nothing is touched
        assert files_of(raw, ".parquet") == []
        process.send_signal(signal.SIGKILL)
    recover(raw)
    store = RawStore(raw)
    keys = [request_key("image", f"http://a.example/{n}") for n in range(20)]
    found = store.find_many("web", keys)
    assert [store.body("web", entry) for entry in found if entry] == [body_of(n) for n in range(20)]
    before = files_of(raw, "")
    recover(raw)
    assert files_of(raw, "") == before


def test_a_segment_is_closed_when_it_is_large_long_or_old(raw: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOCAL_BYTES", 10_000)
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


def segments_of(far: Folder) -> list[str]:
    return [path for path in far.files() if path.endswith(".warc.gz")]


def test_on_an_object_store_a_segment_appears_when_it_is_closed(
    object_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = Folder(f"s3://lake/raw?{object_store}")
    store = RawStore(far)
    added = fill(store, 3)
    assert not segments_of(far)
    assert [store.body("web", entry) for entry in added] == [body_of(n) for n in range(3)]  # asking for one closes it
    assert len(segments_of(far)) == 1
    other = RawStore(far)
    assert other.find_many("web", [entry.key for entry in added]) == added
    assert other.body("web", added[1]) == body_of(1)
    monkeypatch.setattr(module, "AGE_S", 0.0)
    fill(store, 2, first=3)
    assert len(segments_of(far)) == 3
    far.delete(f"web/index/{added[0].segment}.parquet")
    recover(far)
    assert RawStore(far).find_many("web", [added[0].key]) == added[:1]


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


def test_a_record_that_a_full_disk_cuts_is_taken_back(raw: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    store = RawStore(raw)
    fill(store, 1)
    stream = store._segments["web"]._stream

    class Full:
        """Takes ten bytes, and no more."""

        tell, seek, truncate = stream.tell, stream.seek, stream.truncate
        left = 10

        def write(self, data: memoryview) -> int:
            if not self.left:
                raise OSError(errno.ENOSPC, "No space left on device")
            self.left = 0
            return stream.write(data[:10])

    with monkeypatch.context() as patched:
        patched.setattr(store._segments["web"], "_stream", Full())
        with pytest.raises(OSError, match="No space left"):
            fill(store, 1, first=1)
    (later,) = fill(store, 1, first=2)
    store.close()
    again = RawStore(raw)
    keys = [request_key("image", f"http://a.example/{n}") for n in range(3)]
    assert [entry is not None for entry in again.find_many("web", keys)] == [True, False, True]
    with files_of(raw, ".warc.gz")[0].open("rb") as segment:
        bodies = [record.content_stream().read() for record in ArchiveIterator(segment)]
    assert bodies[1:] == [body_of(0), body_of(2)]
    assert later.offset > 0
