"""What the ledger knows of what is named, each build by its own addresses; and the captures that go."""

import json
from pathlib import Path

import pytest

from pipelines.forgetting.captures import Marks, Removal, find_named, remove_captures, take_out, versions_without_ledger
from pipelines.forgetting.holdings import find_holdings
from pipelines.ledger import VERSIONS, LedgerRow, Read, append
from pipelines.raw import RawStore, request_key
from pipelines.sources.takedowns import Takedowns, parse_takedowns
from schemas.lake import Folder, Lake
from schemas.raw import RawEntry

WEB = "https://x.example/1.jpg"


def listed(*lines: str) -> Takedowns:
    return parse_takedowns([line.encode() for line in lines], name="list")


def document(key: str, *addresses: str, sources: tuple[str, ...] = ()) -> LedgerRow:
    return LedgerRow(Read.DOCUMENT, key, None, key, None, "text", addresses, sources)


def image(letter: str, address: str) -> LedgerRow:
    return LedgerRow(Read.IMAGE, letter * 64, address)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.at(str(tmp_path / "lake"))


SHARED_RECORD = [
    LedgerRow(Read.DOCUMENT, key, None, "13_3", None, "text", (f"{key}.png",)) for key in ("all-7", "all-8")
]
IN_FILE = "a.tar!/1.jpg"
ORIGINAL = f"sha256:{'c' * 64}"
ONE_NAME = {
    ("aaa", "1"): [document("X0", "0.png"), image("a", "0.png")],
    ("bbb", "1"): [document("Y0", "0.png"), image("b", "0.png")],
}


def two_pictures(address: str, second: str) -> dict[tuple[str, str], list[LedgerRow]]:
    """Return two builds, in the second of which an address of another document gave another picture."""
    first = [document("X0", address), image("a", address)]
    return {("aaa", "1"): first, ("aaa", "2"): [document(second, address), image("b", address)]}


@pytest.mark.parametrize(
    ("builds", "named", "gone", "shared"),
    [
        pytest.param(ONE_NAME, "id:X0", "a", "", id="one name in two folders, the first"),
        pytest.param(ONE_NAME, "id:Y0", "b", "", id="one name in two folders, the second"),
        pytest.param(two_pictures("0.png", "X0"), "id:X0", "ab", "", id="a file that was two pictures"),
        pytest.param(two_pictures(WEB, "X0"), "id:X0", "ab", "", id="an address that gave two pictures"),
        # The picture changed after the document was gone; the one of now is another document's.
        pytest.param(two_pictures("1.png", "Y0"), "id:X0", "a", "", id="an address of another build"),
        pytest.param(
            {("aaa", "1"): [document("X0", IN_FILE, sources=(WEB,)), image("a", IN_FILE)]}, WEB, "a", "",
            id="the address that a picture in a file came from",
        ),
        pytest.param(
            {("aaa", "1"): [document("X0", IN_FILE, IN_FILE, sources=(WEB, ORIGINAL)), image("a", IN_FILE)]},
            ORIGINAL, "ac", "", id="the original of a copy in a file",
        ),
        pytest.param(
            {("cite", "1"): [*SHARED_RECORD, image("a", "all-7.png"), image("b", "all-8.png")]}, "id:all-7", "a", "",
            id="an id of a record that documents share",
        ),
        pytest.param(
            {
                ("aaa", "1"): [document("X0", WEB, "2.png"), image("a", WEB), image("b", "2.png")],
                ("bbb", "7"): [document("Y0", "other.png"), image("a", "other.png")],
            },
            "id:X0", "b", "a", id="what another document shows in any build stays",
        ),
    ],
)  # fmt: skip
def test_images_that_go(
    lake: Lake, builds: dict[tuple[str, str], list[LedgerRow]], named: str, gone: str, shared: str
) -> None:
    for build, rows in builds.items():
        append(lake.ledger(*build), rows)
    found = find_holdings(lake, listed(named))
    assert [{key[0] for key in keys} for keys in (found.images, found.shared)] == [{*gone}, {*shared}]


def test_a_page_that_was_asked_for_in_vain_is_known_by_its_record(lake: Lake) -> None:
    page, files = "https://w.example/page/Auk/html", "https://w.example/w/api.php?titles=Auk"
    asked = [LedgerRow(Read.DOCUMENT, "Auk", None, "Auk", address) for address in (page, files)]
    append(lake.ledger("wiki", "1"), asked)
    assert find_named(lake, listed("id:Auk")).pages == {page, files}
    read = LedgerRow(Read.DOCUMENT, "7", "https://w.example/wiki/Auk", "Auk", page, "text")
    append(lake.ledger("wiki", "1"), [read])
    named = find_named(lake, listed("id:7"))
    assert (named.documents, named.pages - {read.url}) == ({"7", "Auk"}, {page, files})


def test_what_a_killed_build_had_captured_is_found_by_its_address(lake: Lake) -> None:
    """It had noted its documents; their pictures were in the raw store, and in no row yet."""
    append(lake.ledger("aaa", "killed"), [document("X0", WEB), document("Y0", "https://x.example/2.jpg")])
    store = RawStore(lake.raw)
    for url in (WEB, "https://x.example/2.jpg"):
        moment = "2026-01-01T00:00:00.000000Z"
        entry = RawEntry(key=request_key("image", url), kind="image", url=url, fetched_at=moment, status=200)
        store.add("web", entry, {}, url.encode())
    store.close()
    found = find_holdings(lake, listed("id:X0"))
    assert (len(found.images), found.addresses) == (1, {WEB})


def test_rows_and_addresses_are_taken_out(lake: Lake) -> None:
    append(lake.ledger("aaa", "1"), [document("X0", WEB), document("Z0", WEB, "2.png"), image("a", WEB)])
    copied = document("Y0", "1.png", "1.png", sources=("1.png", ORIGINAL))
    append(lake.ledger("bbb", "1"), [copied, image("b", "1.png")])
    goes = frozenset(["X0"]), frozenset(["a" * 64, "c" * 64])
    assert take_out(lake, *goes, dry_run=True) == 2
    assert find_named(lake, listed("id:X0")).documents == {"X0"}
    assert take_out(lake, *goes, dry_run=False) == 2
    left = find_named(lake, listed("id:X0", "id:Z0", "id:Y0"))
    assert left.documents == {"Z0", "Y0"}
    assert {key[0]: places for key, places in left.shown.items()} == {"b": {"1.png"}}
    assert not find_named(lake, listed(ORIGINAL)).images


def test_versions_of_builds_without_a_ledger_are_named(lake: Lake) -> None:
    for version in ("of-old", "by-version", "by-build"):
        lake.dataset("aaa", version).write("manifest.json", b"{}")
    append(lake.ledger("aaa", "by-version"), [document("X0")])
    append(lake.ledger("aaa", "0123"), [document("X0")])
    lake.ledger("aaa", VERSIONS).write("by-build", b"0123\n")
    assert versions_without_ledger(lake) == ["aaa@of-old"]


QUERY = "https://w.example/w/api.php?action=query&titles=Auk&format=json"
LISTED = {"query": {"categorymembers": [{"pageid": 7, "ns": 0, "title": "Auk"}, {"pageid": 12, "title": "Dodo"}]}}


def stored(raw: Folder, kind: str, url: str, body: bytes) -> None:
    store = RawStore(raw)
    entry = RawEntry(
        key=request_key(kind, url),
        kind=kind,
        url=url,
        fetched_at="2026-01-01T00:00:00.000000Z",
        final_url=url,
        status=200,
        media_type="text/html",
    )
    store.add("web", entry, {"content-type": "text/html"}, body)
    store.close()


@pytest.mark.parametrize(
    ("kind", "url", "body", "goes"),
    [
        ("page", "https://a.example/page", b"<p>Anything.</p>", True),
        ("page", "https://a.example/page/2", b"<p>Anything.</p>", False),
        ("api", QUERY, b"{}", True),
        ("api", f"{QUERY}&gimcontinue=b&continue=a%7C%7C", b"{}", True),
        ("api", f"{QUERY}2", b"{}", False),
        ("api", "https://w.example/members", json.dumps(LISTED).encode(), True),
        ("api", "https://w.example/others", json.dumps(LISTED).replace("Auk", "Puffin").encode(), False),
        ("api", "https://w.example/broken", b"{ no json, Auk", False),
        ("page", "https://a.example/other", b"A page of another author about Auk.", False),
        ("robots", "https://a.example/page", b"", False),
    ],
)
def test_what_goes_of_the_raw_store(kind: str, url: str, body: bytes, goes: bool, tmp_path: Path) -> None:
    raw = Folder(str(tmp_path / "raw"))
    stored(raw, kind, url, body)
    addresses = frozenset(["https://a.example/page", QUERY])
    marks = Marks(parse_takedowns([b"id:Auk"], name="list"), addresses=addresses, records=frozenset(["Auk"]))
    assert list(remove_captures(raw, marks, dry_run=True)) == ([Removal("web", 1, 0)] if goes else [])


def test_records_go_from_listings_of_reddit(tmp_path: Path) -> None:
    raw = Folder(str(tmp_path / "raw"))
    submissions = [
        {"id": "1abc", "title": "my private title", "author": "someone", "url": "https://imgur.com/a/zzz"},
        {"id": "2abc", "title": "mine", "author": "someone", "url": "https://imgur.com/a/named"},
        {"id": "3abc", "title": "mine, too", "author": "x", "url": "u", "permalink": "/r/DIY/comments/3abc/t/"},
        {"id": "4abc", "title": "of another", "author": "else", "url": "https://imgur.com/a/other"},
    ]
    folder = raw.child("reddit", "listings")
    folder.write("diy-top-1000-host.json", json.dumps({"fetched_s": 1, "submissions": submissions}).encode())
    named = [b"id:1abc", b"https://imgur.com/a/named", b"https://www.reddit.com/r/DIY/comments/3abc/t"]
    marks = Marks(parse_takedowns(named, name="list"), records=frozenset(["1abc"]))
    expected = [Removal("reddit/listings/diy-top-1000-host.json", 3, 0)]
    before = folder.read("diy-top-1000-host.json")
    assert list(remove_captures(raw, marks, dry_run=True)) == expected
    assert folder.read("diy-top-1000-host.json") == before
    assert list(remove_captures(raw, marks, dry_run=False)) == expected
    assert json.loads(folder.read("diy-top-1000-host.json")) == {"fetched_s": 1, "submissions": submissions[3:]}
    assert list(remove_captures(raw, marks, dry_run=False)) == []
