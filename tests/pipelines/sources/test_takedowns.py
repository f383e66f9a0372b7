"""A takedown list is read line by line, says which line is wrong, and matches what it names."""

import pickle
from dataclasses import replace
from pathlib import Path

import pytest
from candidates import candidate_of, uris_of

from pipelines.sources.records import CandidateDocument, CandidateImage
from pipelines.sources.takedowns import Takedowns, named, parse_takedowns, read_takedowns, taken_down, without_listed
from schemas.documents import Provenance, Sentence
from schemas.failures import Failure, Reason, Stage
from schemas.lake import Folder
from schemas.messages import NotFoundError, UsageError

HASH = "0123456789abcdef" * 4


def parse(*lines: str) -> Takedowns:
    return parse_takedowns([line.encode() for line in lines], name="list.txt")


def make_draft(url: str | None = "https://imgur.com/a/AbC") -> CandidateDocument:
    return candidate_of(
        id="diy-3x9k2f",
        dataset="diy",
        sentences=(Sentence("Cut it."),),
        image_uris=("http://i.imgur.com/x.jpg",),
        links=None,
        provenance=Provenance("reddit", "3x9k2f", url=url),
    )


def test_entries_are_canonical_sorted_and_once() -> None:
    lines = ("# of 21 November", "", "id: 3x9k2f   # asked by its author", "ID:3x9k2f")
    found = parse(*lines, "url:HTTP://Imgur.com:80/a/AbC/#top", f"sha256:{HASH.upper()}")
    assert found.entries == ("id:3x9k2f", f"sha256:{HASH}", "url:https://imgur.com/a/AbC")


@pytest.mark.parametrize(
    ("line", "entry"),
    [
        ("id:album#3", "id:album#3"),
        ("id:my doc #3", "id:my doc #3"),
        ("ID: my doc #3  # a comment", "id:my doc #3"),
        ("id:a#b#c #", "id:a#b#c"),
        ("https://a.example/x#part #3", "url:https://a.example/x"),
        ("https://A.example/x/", "url:https://a.example/x"),
        ("HTTP://a.example", "url:https://a.example"),
        ("A" * 64, f"sha256:{'a' * 64}"),
        ("domain: Example.ORG", "domain:example.org"),
    ],
)
def test_a_line_is_an_id_as_a_whole_or_speaks_for_itself(line: str, entry: str) -> None:
    assert parse(line).entries == (entry,)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("3x9k2f", "list.txt:2: expected id:, url:, domain:, sha256: and a value, found '3x9k2f'"),
        (
            "ftp://imgur.com/a/b",
            "expected id:, url:, domain:, sha256: and a value, found 'ftp://imgur.com/a/b'",
        ),
        ("id:", "list.txt:2: expected a value after 'id:', found nothing"),
        ("id:  # none", "list.txt:2: expected a value after 'id:', found nothing"),
        ("url:imgur.com/a/b", "url: expected an http or https URL, found 'imgur.com/a/b'"),
        ("url:https:///a", "url: expected an http or https URL, found 'https:///a'"),
        ("url:http://[::1/a", "list.txt:2: url: expected an http or https URL"),
        ("sha256:abc", "list.txt:2: sha256: expected 64 hexadecimal digits, found 'abc'"),
        ("phash:c3d4e5f60718293a", "expected id:, url:, domain:, sha256: and a value"),
        ("example.org", "expected id:, url:, domain:, sha256: and a value, found 'example.org'"),
        ("domain:", "list.txt:2: expected a value after 'domain:', found nothing"),
        ("id:\xff", "list.txt:2: expected UTF-8, found byte 0xff"),
        *(
            (f"domain:{name}", "list.txt:2: domain: expected a host name")
            for name in ("https://a.example", "a b", "a/b", "a:81", ".", "a\uff0fb")
        ),
    ],
)
def test_a_wrong_line_is_named(line: str, message: str) -> None:
    with pytest.raises(UsageError) as problem:
        parse_takedowns([b"id:fine", line.encode("latin-1" if "\xff" in line else "utf-8")], name="list.txt")
    assert message in str(problem.value)


def test_a_file_is_read_with_its_byte_order_mark_and_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "takedowns.txt"
    path.write_bytes(b"\xef\xbb\xbfid:a\r\n# two\r\nid:b")
    assert read_takedowns(path).entries == ("id:a", "id:b")
    with pytest.raises(NotFoundError, match="no such file"):
        read_takedowns(tmp_path / "absent.txt")
    with pytest.raises(UsageError, match="cannot be read"):
        read_takedowns(tmp_path)


@pytest.mark.parametrize(
    ("entry", "matched"),
    [
        ("id:diy-3x9k2f", "id:diy-3x9k2f"),
        ("id:3x9k2f", "id:3x9k2f"),
        ("id:3X9K2F", None),
        ("url:http://imgur.com/a/AbC/", "url:https://imgur.com/a/AbC"),
        ("url:https://imgur.com/a/abc", None),
        ("url:https://imgur.com/a/AbC?page=2", None),
        ("url:http://i.imgur.com/x.jpg", None),  # the image goes, not the document
    ],
)
def test_a_draft_is_matched_by_id_record_or_page(entry: str, matched: str | None) -> None:
    assert parse(entry).matches_candidate(make_draft()) == matched
    assert parse(entry).matches_candidate(make_draft(url=None)) == (None if matched and "imgur" in matched else matched)


def test_an_address_is_matched_before_it_is_fetched() -> None:
    entry = "url:https://i.imgur.com/x.jpg"
    listed = parse(entry)
    assert listed.matches_address("http://I.imgur.com/x.jpg#1") == entry
    assert listed.matches_address("http://a.example/", "http://i.imgur.com/x.jpg") == entry  # where it redirects to
    others = ("http://i.imgur.com/y.jpg", "pictures/x.jpg", "row:3", "", "http://[::1/x.jpg")
    assert [listed.matches_address(other) for other in others] == [None] * 5


@pytest.mark.parametrize(
    ("listed", "address"),
    [
        ("https://x.example/a-b.jpg", "http://x.example/a%2Db.jpg"),
        ("https://x.example/a%2Db.jpg", "https://X.example:443/a-b.jpg"),
        ("https://x.example/caf\u00e9.jpg", "https://x.example/caf%c3%a9.jpg"),
        ("https://x.example/a b", "https://x.example/a%20b/"),
        ("https://x.example/?q=%7e", "http://x.example?q=~"),
    ],
)
def test_another_spelling_is_the_same_address(listed: str, address: str) -> None:
    assert parse(f"url:{listed}").matches_address(address) is not None
    assert parse(f"url:{address}").matches_address(listed) is not None
    assert parse(f"url:{listed}").matches_address(address + "x") is None


@pytest.mark.parametrize(
    ("entry", "is_matched"),
    [
        (f"sha256:{HASH}", True),
        (f"sha256:{'0' * 64}", False),
        ("url:https://i.imgur.com/x.jpg", True),
    ],
)
def test_an_image_is_matched_by_hash_or_address(entry: str, is_matched: bool) -> None:
    assert (parse(entry).matches_image(HASH, "http://i.imgur.com/x.jpg") is not None) == is_matched


def test_an_address_on_the_list_is_none_that_can_be_used() -> None:
    listed = parse("url:https://i.imgur.com/x.jpg", "domain:gone.example")
    uris = ("http://i.imgur.com/x.jpg", "https://i.imgur.com/y.jpg", "a.tar!/bytes=0-9", "b.tar!/bytes=0-9")
    sources = (None, None, "https://www.gone.example/z.png", None)
    (found,) = without_listed([replace(make_draft(), images=tuple(map(CandidateImage, uris, sources)))], listed)
    assert [uri.startswith(f"unusable:{Reason.TAKEN_DOWN}:") for uri in uris_of(found)] == [True, False, True, False]
    assert not any(word in "".join(uris_of(found)[::2]) for word in ("imgur", "gone.example", "a.tar"))


def test_what_repeats_the_id_of_a_listed_document_later_does_not_name_it() -> None:
    other = replace(make_draft(url=None), id="other")
    repeated = Failure(Stage.SOURCES, "diy-3x9k2f", Reason.ID_TAKEN)
    first, kept, again = without_listed([make_draft(), other, repeated], parse("url:https://imgur.com/a/AbC"))
    assert first == taken_down(Stage.SOURCES, "url:") and kept == other and again == first


def test_the_fingerprint_is_of_what_is_listed() -> None:
    one = parse("id:a", "id:b")
    assert one.fingerprint == parse("# said otherwise", "id:b", "id:a").fingerprint
    assert one.fingerprint != parse("id:a").fingerprint
    assert Takedowns().fingerprint == parse("# empty").fingerprint == ""


def test_a_list_that_is_kept_in_a_file_is_read_once_a_process(tmp_path: Path) -> None:
    listed = parse(f"sha256:{HASH}", "id:a").kept_in(Folder(str(tmp_path)), "list.json")
    data = pickle.dumps(listed)
    assert HASH.encode() not in data
    travelled = pickle.loads(data)
    assert travelled == listed and travelled.matches_image(HASH) and travelled is pickle.loads(data)
    assert Takedowns().kept_in(Folder(str(tmp_path)), "none.json") == Takedowns()
    assert [path.name for path in tmp_path.iterdir()] == ["list.json"]


@pytest.mark.parametrize(
    ("address", "is_listed"),
    [
        ("https://example.org/a.jpg", True),
        ("http://cdn.example.org:8080/a.jpg?x", True),
        ("https://example.org.other/a.jpg", False),
        ("https://notexample.org/", False),
        ("pictures/example.org.jpg", False),
        ("http://bucher15.test/", False),
        ("http://deep.t09.test./pic.png", True),
        ("http://xt09.test/", False),
        ("http://t09.test.example/", False),
        ("http://t09.tes/", False),
    ],
)
def test_a_domain_takes_out_its_hosts(address: str, is_listed: bool) -> None:
    listed = parse("domain:example.org", "domain:bücher15.test", "domain:t09.test")
    assert (listed.matches_address(address) is not None) is is_listed


def test_what_a_person_names_is_an_id_unless_it_says_otherwise() -> None:
    assert [named(text) for text in ("3x9k2f", "id:a", "https://a.example/b", "b" * 64, "domain:a.example")] == [
        "id:3x9k2f", "id:a", "https://a.example/b", "b" * 64, "domain:a.example"
    ]  # fmt: skip


@pytest.mark.parametrize(
    "entry",
    [
        "domain:bücher15.test", "domain:BÜCHER15.TEST", "domain:xn--bcher15-n2a.test", "domain:bücher15.test.",
        "domain:ｂücher15.test", "domain:*.bücher15.test", "domain:.bücher15.test", "domain:bücher15.test:443",
        "domain:Test", "url:http://bücher15.test/pic.png", "url:https://xn--bcher15-n2a.test.:443/pic.png",
        "http://B%C3%BCcher15.test:80/pic.png#x",
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "address",
    [
        "http://xn--bcher15-n2a.test/pic.png", "https://bücher15.test/pic.png", "HTTP://BÜCHER15.test.:80/pic.png",
        "https://xn--BCHER15-n2a.test:443/pic.png", "http://ｂüｃｈｅｒ15.test/pic.png", "http://bücher15。test/pic.png",
    ],
)  # fmt: skip
def test_every_spelling_of_a_host_is_one_on_both_sides(entry: str, address: str) -> None:
    assert parse(entry).matches_address(address) is not None
