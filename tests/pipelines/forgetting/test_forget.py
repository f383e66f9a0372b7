"""What is forgotten is nowhere in the lake's bytes, what is not is as it was, and a kill in between does no harm."""

import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from builds import quiet, tree
from forked import run_code
from lake_bytes import bytes_of, rows_of
from recorded_lakes import RECORDING, RecordedWeb, built

from pipelines.forgetting.forget import Forgotten, forget
from pipelines.forgetting.holdings import find_holdings
from pipelines.ledger import VERSIONS
from pipelines.raw import RawStore, index_of, request_key
from pipelines.sources.diy.albums import parse_album_page
from pipelines.sources.takedowns import Takedowns, parse_takedowns
from schemas.lake import LATEST, Lake
from schemas.manifest import read_manifest, verify
from schemas.messages import BuildError
from schemas.raw import RawEntry


def listed(*lines: str) -> Takedowns:
    return parse_takedowns([line.encode() for line in lines], name="list")


def run(lake: Lake, *lines: str, dry_run: bool = False) -> Forgotten:
    return forget(lake, listed(*lines), dry_run=dry_run, say=quiet)


def victim(lake: Lake) -> dict[str, Any]:
    """Return a document with several images and long sentences."""
    rows = rows_of(lake, str(lake.latest("diy")), "documents")
    return max(rows, key=lambda row: (len(row["images"]), row["id"]))


def answers(lake: Lake) -> dict[str, bytes]:
    """Return the body of every answer that the raw store finds, by its key."""
    store, found = RawStore(lake.raw), dict[str, bytes]()
    for source in lake.raw.names():
        index = index_of(lake.raw.child(source)).folder
        keys = {key for name in index.names() for key in pq.read_table(index.open(name))["key"].to_pylist()}
        for entry in store.find_many(source, sorted(keys)):
            if entry is not None and entry.reason is None:
                found[entry.key] = store.body(source, entry)
    return found


def are_intact(lake: Lake) -> bool:
    return not [each for name in lake.versions("diy") for each in verify(*read_manifest(lake, f"diy@{name}"))]


def traces(lake: Lake, needles: list[bytes]) -> set[str]:
    return {path for path, data in bytes_of(lake).items() if any(needle in data for needle in needles)}


def are_there(lake: Lake, needles: list[bytes]) -> bool:
    """Return whether a lake holds all of them: a needle that is nowhere proves nothing."""
    held = b"\n".join(bytes_of(lake).values())
    return all(needle in held for needle in needles)


def needles_of(lake: Lake, row: dict[str, Any]) -> list[bytes]:
    """Return what a document leaves in a lake: sentences, pictures and their copies, addresses, its id."""
    store, needles = RawStore(lake.raw), list[bytes]()
    needles += [part.encode() for each in row["sentences"] if len(part := each["text"]) > 25]
    hashes = [image["hash"] for image in row["images"]]
    keys = [request_key("image", image["source"]) for image in row["images"]]
    needles += [store.body("web", entry) for entry in store.find_many("web", keys) if entry is not None]
    needles += [each["jpeg"] for each in rows_of(lake, str(lake.latest("diy")), "images") if each["hash"] in hashes]
    needles += [image["source"].encode() for image in row["images"]]
    needles += [bytes.fromhex(key) for key in hashes] + [key.encode() for key in hashes]
    assert len(needles) > 3 * len(hashes)
    return [*needles, row["id"].encode()]


@pytest.mark.parametrize("is_far", [False, pytest.param(True, marks=pytest.mark.trial)])
def test_a_document_is_nowhere_in_the_lake(lake: Lake, is_far: bool, request: pytest.FixtureRequest) -> None:
    if is_far:
        near, lake = lake, Lake.at(f"s3://lake/far?{request.getfixturevalue('object_store')}")
        for path in near.root.files():
            lake.root.write(path, near.root.read(path))
    row = victim(lake)
    needles = needles_of(lake, row)
    assert are_there(lake, [needle for needle in needles if len(needle) != 32])
    before, old = answers(lake), lake.versions("diy")
    others = {
        each["id"]: each for each in rows_of(lake, str(lake.latest("diy")), "documents") if each["id"] != row["id"]
    }
    done = run(lake, f"id:{row['id']}")
    assert traces(lake, needles) == set()
    assert {holding.version for holding in done.found.holdings} == set(old)
    assert len(lake.versions("diy")) == 2 and not set(lake.versions("diy")) & set(old)
    assert {each["id"]: each for each in rows_of(lake, str(lake.latest("diy")), "documents")} == others
    assert are_intact(lake)
    after = answers(lake)
    gone = before.keys() - after.keys()
    assert len(gone) == len(row["images"]) + 1  # its page
    assert after == {key: body for key, body in before.items() if key not in gone}
    assert find_holdings(lake, listed(f"id:{row['id']}")).holdings == ()
    told = read_manifest(lake, "diy")[0].config["forgotten"]
    assert (told["documents"], told["images"]) == (1, len(row["images"]))


def test_a_dry_run_changes_nothing_and_says_what_would_go(lake: Lake) -> None:
    row = victim(lake)
    before = tree(lake.root.uri)
    told = run(lake, f"id:{row['id']}", dry_run=True)
    assert tree(lake.root.uri) == before
    assert told.found.images == {image["hash"] for image in row["images"]}
    assert {each.source: each.records for each in told.captures} == {"imgur": 1, "web": len(row["images"])}
    assert told.packs and not any(new for _, new in told.replaced)


def test_an_image_goes_from_the_documents_that_show_it(lake: Lake) -> None:
    row = victim(lake)
    gone = row["images"][1]
    needles = [gone["hash"].encode(), gone["source"].encode()]
    run(lake, gone["source"])
    assert traces(lake, needles) == set()
    (left,) = (each for each in rows_of(lake, str(lake.latest("diy")), "documents") if each["id"] == row["id"])
    links = [link for link in row["links"] if link["image"] != 1]
    expected = {
        "images": [image for image in row["images"] if image != gone],
        "sentences": row["sentences"],
        "links": [{**link, "image": link["image"] - (link["image"] > 1)} for link in links],
        "after_sentence": [place for number, place in enumerate(row["after_sentence"]) if number != 1],
    }
    assert {name: left[name] for name in expected} == expected


def test_a_domain_takes_all_and_leaves_no_version(lake: Lake) -> None:
    run(lake, "domain:imgur.com")
    assert lake.versions("diy") == []
    assert not lake.root.child("datasets", "diy").exists(LATEST)
    assert all(path.startswith("raw/robots/") for path in traces(lake, [b"i.imgur.com/"]))  # the host's own files


def test_nothing_is_removed_where_nothing_is_named(lake: Lake) -> None:
    before = tree(lake.root.uri)
    assert run(lake, "id:nosuch", "sha256:" + "0" * 64).found.holdings == ()
    assert tree(lake.root.uri) == before


def test_links_and_indexes_of_its_versions_go(lake: Lake) -> None:
    row, version = victim(lake), str(lake.latest("diy"))
    for folder in (lake.links("diy", version, "m", "1"), lake.index("diy", version, "m-1")):
        folder.write("manifest.json", b"{}")
        folder.write("data", row["sentences"][0]["text"].encode())
    found = find_holdings(lake, listed(f"id:{row['id']}"))
    (holding,) = (each for each in found.holdings if each.version == version)
    assert (holding.links, holding.indexes) == ((f"links/diy/{version}/m-1",), (f"indexes/diy/{version}/m-1",))
    run(lake, f"id:{row['id']}")
    assert not [path for path in lake.root.files() if path.startswith(("links/", "indexes/"))]


def test_an_older_answer_of_the_same_page_goes_too(lake: Lake) -> None:
    """It is in the segment, and no row of the index points at it any more."""
    row, store = victim(lake), RawStore(lake.raw)
    body = f"<html>{' '.join(each['text'] for each in row['sentences'])}</html>".encode()
    (url,) = {each["captured"] for each in ledger_of(lake) if each["key"] == row["id"]}
    entry = RawEntry(key=request_key("page", url), kind="page", url=url, fetched_at="2024-01-01T00:00:00Z", status=200)
    store.add("imgur", entry, {"content-type": "text/html"}, body)
    store.add("imgur", entry, {"content-type": "text/html"}, b"<html>Nothing.</html>")
    store.close()
    run(lake, f"id:{row['id']}")
    assert traces(lake, [row["sentences"][0]["text"].encode()]) == set()
    assert RawStore(lake.raw).find_many("imgur", [entry.key]) == [None]
    assert traces(lake, [b"<html>Nothing.</html>"]) == set()


def test_an_answer_found_unchanged_points_at_its_new_place(lake: Lake) -> None:
    row, store = victim(lake), RawStore(lake.raw)
    index = index_of(lake.raw.child("imgur")).folder
    rows = [each for name in index.names() for each in pq.read_table(index.open(name)).to_pylist()]
    kept = next(each for each in rows if each["segment"] and each["kind"] == "page" and not each["reason"])
    before = store.body("imgur", RawEntry(**kept))
    store.note("imgur", RawEntry(**{**kept, "fetched_at": "2999-01-01T00:00:00Z"}))
    store.close()
    run(lake, f"id:{row['id']}", "url:http://imgur.com/a/nosuch")
    (found,) = RawStore(lake.raw).find_many("imgur", [kept["key"]])
    if found is not None:  # unless it was the document's own page
        assert found.fetched_at == "2999-01-01T00:00:00Z"
        assert RawStore(lake.raw).body("imgur", found) == before


# The function at whose n-th call the process ends, as if it was killed.
KILLS = (
    ("pipelines.forgetting.captures", "write_index", 2),
    ("pipelines.forgetting.forget", "_remove_packed", 1),
    ("pipelines.forgetting.forget", "write_subset", 2),
    ("pipelines.forgetting.forget", "_keep_times", 1),
    *(("schemas.lake.Folder", "delete", calls) for calls in (1, 2, 3, 5, 7)),
    ("schemas.lake.Folder", "remove", 1),
    ("schemas.lake.Folder", "remove", 4),
)
KILLED = """
import importlib, os, sys
from pipelines.forgetting.forget import forget
from pipelines.sources.takedowns import parse_takedowns
from schemas.lake import Folder, Lake

uri, entry, home, name, calls = sys.argv[1:]
place = Folder if home == "schemas.lake.Folder" else importlib.import_module(home)
original, left = getattr(place, name), [int(calls)]

def ending(*args, **options):
    left[0] -= 1
    if left[0] == 0:
        os._exit(9)
    return original(*args, **options)

setattr(place, name, ending)
forget(Lake.at(uri), parse_takedowns([entry.encode()], name="list"), dry_run=False, say=print)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("home", "name", "calls"), [*KILLS[-2:], *(pytest.param(*kill, marks=pytest.mark.trial) for kill in KILLS[:-2])]
)
def test_what_was_killed_goes_on(lake: Lake, tmp_path: Path, home: str, name: str, calls: int) -> None:
    row = victim(lake)
    needles, entry = needles_of(lake, row), f"id:{row['id']}"
    calm = Lake.at(str(tmp_path / "calm"))
    shutil.copytree(lake.root.uri, calm.root.uri)
    run(calm, entry)
    assert run_code(KILLED, lake.root.uri, entry, home, name, str(calls), folder=tmp_path).status == 9
    run(lake, entry)
    assert traces(lake, needles) == set()
    assert sorted(lake.versions("diy")) == sorted(calm.versions("diy"))
    assert answers(lake) == answers(calm)
    assert are_intact(lake)


def ledger_of(lake: Lake, build: str = "") -> list[dict[str, Any]]:
    """Return what the ledger has of a build, by default of the one that made the latest version."""
    made = build or lake.ledger("diy", VERSIONS).read(str(lake.latest("diy"))).decode().strip()
    folder = lake.ledger("diy", made)
    return [row for name in folder.files() for row in pq.read_table(folder.open(name)).to_pylist()]


def test_a_document_that_was_rejected_is_nowhere_in_the_lake(strict: Lake) -> None:
    """Neither its id, nor its page, nor its pictures and their copies."""
    failures = rows_of(strict, str(strict.latest("diy")), "failures")
    key = min(row["record_id"] for row in failures if row["reason"] == "too-many-images")
    (row,) = (row for row in ledger_of(strict) if row["key"] == key and row["text"])
    ways = {each["url"]: each["key"] for each in ledger_of(strict) if each["kind"] == "image"}
    gone = {ways[url]: url for url in row["addresses"] if url in ways}
    needles = [key.encode(), *(text.encode() for pair in gone.items() for text in pair)]
    store = RawStore(strict.raw)
    keys = [request_key("image", url) for url in gone.values()]
    needles += [store.body("web", entry) for entry in store.find_many("web", keys) if entry is not None]
    assert len(gone) > 4 and are_there(strict, needles)
    before, documents = answers(strict), rows_of(strict, str(strict.latest("diy")), "documents")
    done = run(strict, f"id:{key}")
    assert (done.found.documents, done.found.images) == ({key}, gone.keys())
    assert traces(strict, needles) == set()
    assert rows_of(strict, str(strict.latest("diy")), "documents") == documents
    pages = {request_key("page", row["captured"])}
    assert before.keys() - answers(strict).keys() == pages | {request_key("image", url) for url in gone.values()}


def test_an_image_of_a_rejected_document_goes_by_its_address(strict: Lake) -> None:
    held = {image["hash"] for image in rows_of(strict, str(strict.latest("diy")), "images")}
    rows = [row for row in ledger_of(strict) if row["kind"] == "image" and row["key"] not in held]
    row = min(rows, key=lambda row: row["key"])
    needles, versions = [row["key"].encode(), row["url"].encode()], strict.versions("diy")
    assert traces(strict, needles)
    run(strict, row["url"])
    assert traces(strict, needles) == set()
    assert strict.versions("diy") == versions  # none of which holds it


def test_a_version_that_names_it_in_its_failures_alone_is_replaced(strict: Lake) -> None:
    version = str(strict.latest("diy"))
    key = min(row["record_id"] for row in rows_of(strict, version, "failures") if row["reason"] == "low-score")
    assert {path.split("/")[0] for path in traces(strict, [key.encode()])} == {"datasets"}
    run(strict, f"id:{key}")
    assert traces(strict, [key.encode()]) == set()


def pages_of(lake: Lake) -> dict[str, bytes]:
    """Return the answers that pages of albums had, by their addresses."""
    index, store, found = index_of(lake.raw.child("imgur")).folder, RawStore(lake.raw), dict[str, bytes]()
    for name in index.names():
        for row in pq.read_table(index.open(name)).to_pylist():
            if row["kind"] == "page" and row["reason"] is None:
                found[row["url"]] = store.body("imgur", RawEntry(**row))
    return found


def test_a_page_that_was_no_album_goes_by_the_id_of_its_record(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was fetched, and its parse failed: no document has its address."""
    odd, lake = sorted(pages_of(lake))[:1], Lake.at(str(tmp_path / "other"))

    def broken(page: bytes, *, base_url: str) -> Any:
        if base_url == odd[0]:
            raise ValueError("no album")
        return parse_album_page(page, base_url=base_url)

    monkeypatch.setattr("pipelines.sources.diy.albums.parse_album_page", broken)
    with RecordedWeb(RECORDING) as web:
        built(tmp_path / "other", web.port)
    (row,) = (row for row in ledger_of(lake) if row["captured"] == odd[0])
    assert row["text"] is None and odd[0] in pages_of(lake)
    assert row["key"] in {each["record_id"] for each in rows_of(lake, str(lake.latest("diy")), "failures")}
    run(lake, f"id:{row['key']}")
    assert odd[0] not in pages_of(lake)
    assert traces(lake, [row["key"].encode(), odd[0].encode()]) == set()


def test_what_a_build_captured_that_ended_early_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its pages and pictures are there, and no version of it: once it ends before pictures, once after them."""
    lake = Lake.at(str(tmp_path / "lake"))

    def ending(item: Any, access: Any = None) -> Any:
        raise BuildError("the power is out")

    with RecordedWeb(RECORDING) as web:
        for place in ("pipelines.images.transforms.locate_stored", "pipelines.build.content_digest"):
            with monkeypatch.context() as patch, pytest.raises(BuildError, match="the power is out"):
                patch.setattr(place.replace("pipelines.build.content", "pipelines.shards.transforms.content"), ending)
                built(tmp_path / "lake", web.port)
    rows = [row for build in lake.root.child("ledger", "diy").names() for row in ledger_of(lake, build)]
    row = max((row for row in rows if row["text"]), key=lambda row: (len(row["addresses"]), row["key"]))
    needles = [row["key"].encode(), row["captured"].encode(), *(address.encode() for address in row["addresses"])]
    copies = {each["key"] for each in rows if each["kind"] == "image" and each["url"] in row["addresses"]}
    assert lake.versions("diy") == [] and len(copies) > 1
    assert are_there(lake, needles)
    run(lake, f"id:{row['key']}")
    assert traces(lake, [*needles, *map(str.encode, copies)]) == set()


def test_a_build_of_a_version_that_is_there_keeps_no_second_ledger(lake: Lake) -> None:
    builds = set(lake.root.child("ledger", "diy").names())
    assert len(builds) == 3 and VERSIONS in builds
    with RecordedWeb(RECORDING) as web:
        again = built(Path(str(lake.root.local)), web.port)
    assert again.is_reused
    assert set(lake.root.child("ledger", "diy").names()) == builds
