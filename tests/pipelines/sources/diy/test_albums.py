"""Albums of every generation of pages and of the API, what becomes of hostile ones, and the documents they make."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Literal, cast

import pytest
from candidates import after_of, uris_of

from pipelines.settings import HttpConfig
from pipelines.sources.diy.albums import AlbumHost, fetch_albums, parse_album_api, parse_album_page
from pipelines.sources.diy.submissions import AlbumEntry, Submission
from pipelines.sources.records import CandidateDocument, FieldError
from pipelines.web.client import Client
from pipelines.web.requests import FetchFailed, Kind, Request, Response
from schemas.documents import Link, Provenance, Sentence
from schemas.failures import Failure, Reason, Stage
from schemas.messages import IntegrityError
from schemas.raw import RawEntry

PageOrApi = Literal["page", "api"]
BASE = "https://imgur.com/a/bbKvv"
SUBMISSION = Submission(
    id="1abc",
    score=30,
    title="t",
    url="http://imgur.com/a/bbKvv?x",
    permalink="/r/DIY/comments/1abc/",
    author="maker",
)
BLOCKS = """
<html><body><img src="//s.imgur.com/logo.png">
<div id="A1" class="post-image-container post-image-container--spacer"><div class="post-image">
  <a href="//i.imgur.com/A1.jpg"><img itemprop="contentURL" src="//i.imgur.com/A1m.jpg" /></a></div>
  <div class="post-image-meta"><h2 class="post-image-title">Step  1 &amp; 2</h2>
  <p class="post-image-description">Cut the &lt;wood&gt;.<br/>Then
   <a href="http://x.example">sand</a> it.</p></div></div>
<div id="A2" class="post-image-container"><img itemprop="contentURL" src="//i.imgur.com/A2.png" />
  <div class="post-image-meta"><h2 class="post-image-title">&nbsp; </h2></div></div>
<div id="A3" class="post-image-container"><div class="video-container"><video poster="//i.imgur.com/A3h.jpg">
  <source src="//i.imgur.com/A3.mp4" type="video/mp4"></video></div>
  <div class="post-image-meta"><p class="post-image-description">It moves.</p></div></div>
<div id="A4" class="post-image-container"><div class="post-image-meta">
  <p class="post-image-description">No picture at all.</p></div></div>
<div id="A5" class="post-image-container"><img itemprop="contentURL" src="https://i.imgur.com/A5.gif" /></div>
<div class="post-image-containers"><img itemprop="contentURL" src="//i.imgur.com/no.png" /></div>
</body></html>"""


def parse(page: str, base_url: str = BASE) -> tuple[AlbumEntry, ...]:
    return parse_album_page(page.encode(), base_url=base_url)


def test_containers() -> None:
    assert parse(BLOCKS) == (
        AlbumEntry("https://i.imgur.com/A1m.jpg", "Step 1 & 2 Cut the <wood>. Then sand it."),
        AlbumEntry("https://i.imgur.com/A2.png", None),
        AlbumEntry("https://i.imgur.com/A3.mp4", "It moves.", is_animated=True),
        AlbumEntry(None, "No picture at all."),
        AlbumEntry("https://i.imgur.com/A5.gif", None),
    )


def test_scheme_less_addresses_take_the_pages_own_scheme() -> None:
    assert parse(BLOCKS, "http://imgur.com/a/bbKvv")[0].image_uri == "http://i.imgur.com/A1m.jpg"


POST_DATA = {
    "id": "bbKvv",
    "media": [
        {"url": "https://i.imgur.com/B1.jpeg", "metadata": {"title": "One", "description": "a \"b\" </p> it's"}},
        {"url": "//i.imgur.com/B2.png", "metadata": {"title": "", "description": "caf\u00e9 &amp; \u2028 tea"}},
        {"url": "https://i.imgur.com/B3.gif", "type": "image", "metadata": {"is_animated": True, "title": None}},
        {"url": "https://i.imgur.com/B4.mp4", "type": "video", "metadata": {"description": "Spins"}},
        {"url": "https://i.imgur.com/B5.jpeg"},
    ],
}  # fmt: skip
PLAIN = json.dumps(POST_DATA)
SINGLE = "'" + PLAIN.replace("\\", "\\\\").replace("'", "\\'").replace("<", "\\x3c") + "'"


@pytest.mark.parametrize(
    "value", [json.dumps(PLAIN).replace("</", "<\\/"), PLAIN, SINGLE], ids=["text", "object", "single"]
)
def test_post_data(value: str) -> None:
    assert parse(f"<script>window.postDataJSON = {value};</script><script>x</script>") == (
        AlbumEntry("https://i.imgur.com/B1.jpeg", 'One a "b" </p> it\'s'),
        AlbumEntry("https://i.imgur.com/B2.png", "caf\u00e9 & tea"),
        AlbumEntry("https://i.imgur.com/B3.gif", None, is_animated=True),
        AlbumEntry("https://i.imgur.com/B4.mp4", "Spins", is_animated=True),
        AlbumEntry("https://i.imgur.com/B5.jpeg", None),
    )


ITEM = (
    '{"id":"bbKvv","title":"A table; {really}","description":null,"is_album":true,"num_images":"4",'
    '"album_images":{"count":4,"images":['
    '{"hash":"D1","title":"","description":"It&#039;s cut.\\nTwice.","has_sound":false,"width":3264,"height":1836,'
    '"size":491441,"ext":".jpg?1","animated":false,"prefer_video":false,"looping":false},'
    '{"hash":"D2","title":"Glue","description":null,"width":800,"height":600,"size":1,"ext":".png","animated":false},'
    '{"hash":"D3","title":null,"description":null,"width":8,"height":6,"size":1,"ext":".gif","animated":true},'
    '{"hash":"D4","title":"Spins","description":"","width":8,"height":6,"size":1,"ext":".mp4","animated":false}'
    ']},"adConfig":{}}'
)
FIRST_BLOCKS = '<div class="post-image-container" id="D1"><img itemprop="contentURL" src="//i.imgur.com/D1h.jpg"></div>'
RUN_SLOTS = f"""<html><body>{FIRST_BLOCKS}<script type="text/javascript">
    window.runSlots = {{
        _config: {{"ads_website":"http:\\/\\/www.imgurads.com\\/","allow_nsfw":false}},
        _place: false,
        item: {ITEM}
    }};
</script></body></html>"""
MERGE_CONFIG = f"""<html><body>{FIRST_BLOCKS}<script type="text/javascript">
    widgetFactory.mergeConfig('global', {{}});
    widgetFactory.mergeConfig('gallery', {{
        sort                : 'viral',
        image               : {ITEM},
        group               : {{"x":1}},
    }});
</script></body></html>"""


@pytest.mark.parametrize("page", [RUN_SLOTS, MERGE_CONFIG], ids=["runSlots", "mergeConfig"])
def test_scripts_that_hold_all_images_of_an_album(page: str) -> None:
    assert parse(page) == (
        AlbumEntry("https://i.imgur.com/D1.jpg", "It's cut. Twice."),
        AlbumEntry("https://i.imgur.com/D2.png", "Glue"),
        AlbumEntry("https://i.imgur.com/D3.gif", None, is_animated=True),
        AlbumEntry("https://i.imgur.com/D4.mp4", "Spins", is_animated=True),
    )


def test_a_script_about_a_single_image_leaves_the_blocks() -> None:
    page = FIRST_BLOCKS + '<script>window.runSlots = {item: {"hash":"D1","album_images":false}}</script>'
    assert parse(page) == (AlbumEntry("https://i.imgur.com/D1h.jpg", None),)


def api(images: Any, **fields: Any) -> bytes:
    return json.dumps({"data": {"id": "bbKvv", "images": images}, "success": True, "status": 200} | fields).encode()


def test_api() -> None:
    images = [
        {"id": "C1", "title": "One", "description": "two\nlines", "type": "image/jpeg", "animated": False, "link": "https://i.imgur.com/C1.jpg"},
        {"id": "C2", "title": None, "description": None, "type": "image/gif", "animated": True, "link": "https://i.imgur.com/C2.gif"},
        {"id": "C3", "title": None, "description": "Spins", "type": "video/mp4", "animated": False, "link": "https://i.imgur.com/C3.mp4"},
    ]  # fmt: skip
    assert parse_album_api(api(images), base_url=BASE) == (
        AlbumEntry("https://i.imgur.com/C1.jpg", "One two lines"),
        AlbumEntry("https://i.imgur.com/C2.gif", None, is_animated=True),
        AlbumEntry("https://i.imgur.com/C3.mp4", "Spins", is_animated=True),
    )


class Host:
    """A client that has one answer, or fails."""

    config = HttpConfig()

    def __init__(self, body: bytes, problem: Exception | None = None) -> None:
        self.asked: list[Request] = []
        self._body, self._problem = body, problem

    def fetch_all(self, requests: Iterable[Request], **_: int) -> Iterator[tuple[Request, Response | FetchFailed]]:
        for request in requests:
            self.asked.append(request)
            entry = RawEntry(key="key", kind=request.kind, url=request.url, fetched_at="2026-11-22T00:00:00Z")
            answer = Response(entry, request.source, False)
            yield request, self._problem if isinstance(self._problem, FetchFailed) else answer

    def body(self, _: Response) -> bytes:
        if self._problem:
            raise self._problem
        return self._body


@pytest.fixture(autouse=True)
def without_a_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.sources.source.fetch_all", Host.fetch_all)


def fetch(host: Host, albums: PageOrApi = "page", of: Submission = SUBMISSION) -> list[CandidateDocument | Failure]:
    album_host = AlbumHost("https://imgur.com") if albums == "page" else AlbumHost("https://api.imgur.com", "key")
    return list(fetch_albums([of], client=cast(Client, host), host=album_host))


def failure(host: Host, albums: PageOrApi = "page") -> Failure:
    (found,) = fetch(host, albums)
    assert (found.stage, found.record_id) == (Stage.SOURCES, "1abc")
    return found


def test_captions_link_to_the_image_they_were_written_under() -> None:
    media: list[dict[str, Any]] = [
        {"url": "https://i.imgur.com/0.jpg"},
        {"url": "https://i.imgur.com/1.jpg", "metadata": {"title": "first"}},
        {"url": "https://i.imgur.com/2.mp4", "metadata": {"title": "under a video"}},
        {"url": "https://i.imgur.com/3.jpg", "metadata": {"title": "last"}},
    ]
    host = Host(f"<script>window.postDataJSON={json.dumps({'media': media})}</script>".encode())
    (document,) = fetch(host)
    assert isinstance(document, CandidateDocument)
    moving = "unusable:animated-image:expected a still picture, found an animation: https://i.imgur.com/2.mp4"
    first, second, *_, last = (f"https://i.imgur.com/{number}.jpg" for number in range(4))
    assert uris_of(document) == (first, second, moving, last)
    assert document.sentences == tuple(map(Sentence, ("first", "under a video", "last")))
    assert (document.links, after_of(document)) == ((Link(0, 1), Link(1, 2), Link(2, 3)), (0, 0, 1, 2))
    assert (document.id, document.dataset, document.language, document.split) == ("1abc", "diy", "en", None)
    assert document.provenance == Provenance("reddit", "1abc", "https://www.reddit.com/r/DIY/comments/1abc/")
    assert document.provenance.retrieved == "2026-11-22T00:00:00Z"
    assert host.asked == [Request("https://imgur.com/a/bbKvv", "imgur", Kind.PAGE)]


def test_two_submissions_of_one_album_ask_once_and_give_two_documents() -> None:
    host = Host(RUN_SLOTS.encode())
    twice = [SUBMISSION, replace(SUBMISSION, id="2abc")]
    outcomes = list(fetch_albums(twice, client=cast(Client, host), host=AlbumHost("https://imgur.com")))
    assert [outcome.id for outcome in outcomes if isinstance(outcome, CandidateDocument)] == ["1abc", "2abc"]
    assert len(host.asked) == 1


def test_an_album_without_captions_has_known_and_empty_links() -> None:
    host = Host(api([{"link": "https://i.imgur.com/C1.jpg"}]))
    (document,) = fetch(host, "api")
    assert document.links == ()
    key = {"Authorization": "Client-ID key"}
    assert host.asked == [Request("https://api.imgur.com/3/album/bbKvv", "imgur", Kind.API, key)]


@pytest.mark.parametrize(
    "page",
    [
        "",
        "<html><body>Imgur: the magic of the Internet</body></html>",
        '<script>window.postDataJSON="{\\"id\\":</script>',
        "<script>window.postDataJSON='never ends</script>",
        "<script>window.postDataJSON=undefined</script>",
        "<script>window.postDataJSON=[]</script>",
        '<script>window.postDataJSON={"id": "x"}</script>',
        '<script>window.postDataJSON={"media": [{"id": "no address"}]}</script>',
        '<script>window.postDataJSON={"media": [7]}</script>',
        "<script>window.postDataJSON=" + "[" * 100_000 + "</script>",
        "<script>window.postDataJSON=",
        f"<![x{FIRST_BLOCKS}",
    ],
    ids=lambda page: page[:40],
)
def test_pages_that_are_no_album_are_rows(page: str) -> None:
    assert failure(Host(page.encode())).reason in (Reason.BROKEN_RECORD, Reason.MISSING_FIELD)


@pytest.mark.parametrize(
    ("piece", "message"),
    [
        ("<div class='post-image-container'>", "nested too deep"),
        ("<a ", "never close"),
        ("<a b='", "never close"),
        ("<!--", "never close"),
    ],
)
def test_pages_that_would_take_for_ever_are_refused_before_they_are_parsed(piece: str, message: str) -> None:
    assert message in failure(Host(piece.encode() * 200_000)).message


def test_a_gallery_of_reddit_s_is_asked_of_no_host() -> None:
    host = Host(b"")
    gallery = (AlbumEntry("https://i.redd.it/a.jpg", "One."), AlbumEntry("https://i.redd.it/b.jpg", "Two."))
    (document,) = fetch(host, of=replace(SUBMISSION, gallery=gallery))
    assert uris_of(document) == ("https://i.redd.it/a.jpg", "https://i.redd.it/b.jpg")
    assert (document.links, document.provenance.retrieved) == ((Link(0, 0), Link(1, 1)), None)
    assert host.asked == []


GONE = FetchFailed(Reason.NOT_FOUND, "status 404")
ONE_PICTURE = b'window.postDataJSON={"is_album": false, "media": [{"url": "https://i.imgur.com/B1.jpeg"}]}'


@pytest.mark.parametrize(
    ("url", "host", "albums", "reason"),
    [
        ("https://imgur.com/gallery/bbKvv", ("", GONE), "page", Reason.NOT_AN_ALBUM),
        ("https://imgur.com/a/bbKvv", ("", GONE), "page", Reason.NOT_FOUND),
        ("https://imgur.com/gallery/bbKvv", (ONE_PICTURE,), "page", Reason.NOT_AN_ALBUM),
        ("https://imgur.com/r/DIY/bbKvv", (b'<script>{"is_album":false}</script>',), "page", Reason.NOT_AN_ALBUM),
        ("https://imgur.com/t/diy/bbKvv", (b'{"data": {"is_album": false}}',), "api", Reason.NOT_AN_ALBUM),
    ],
)
def test_a_single_picture_is_no_album(url: str, host: tuple[Any, ...], albums: PageOrApi, reason: Reason) -> None:
    (found,) = fetch(Host(*host), albums, of=replace(SUBMISSION, url=url))
    assert found.reason is reason


@pytest.mark.parametrize("address", ["http://[x/a.jpg", "//[x.jpg", "http://ex\u2100mple.com/x.jpg"])
def test_a_malformed_address_is_left_for_the_images_stage(address: str) -> None:
    container = f'<div class="post-image-container"><img src="{address}"></div>'
    script = f"window.postDataJSON={json.dumps({'media': [{'url': address}]})}"
    for page in (container, script):
        (document,) = fetch(Host(page.encode()))
        assert uris_of(document) == (address,)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"data": {"error": "none"}, "success": false, "status": 404}', Reason.NOT_FOUND),
        (b"<html>", Reason.BROKEN_RECORD),
        (b"\xff\xfe\x00", Reason.BROKEN_RECORD),
        (b"[]", Reason.BROKEN_RECORD),
        (b'{"success": true}', Reason.MISSING_FIELD),
        (api("many"), Reason.BROKEN_RECORD),
        (api([{"id": "no link"}]), Reason.MISSING_FIELD),
        (api([{"link": 7}]), Reason.BROKEN_RECORD),
        (b"[" * 100_000, Reason.BROKEN_RECORD),
    ],
)
def test_answers_that_are_no_album(data: bytes, reason: Reason) -> None:
    assert failure(Host(data), "api").reason is reason
    if reason is not Reason.BROKEN_RECORD:
        with pytest.raises(FieldError):
            parse_album_api(data, base_url=BASE)


def test_what_cannot_be_fetched_is_a_row_and_what_is_about_the_machine_is_not() -> None:
    gone = FetchFailed(Reason.NOT_FOUND, "status 404")
    assert failure(Host(b"", gone)) == Failure(Stage.SOURCES, "1abc", Reason.NOT_FOUND, "status 404")
    for problem in (OSError(28, "No space left on device"), MemoryError(), IntegrityError("not what came")):
        with pytest.raises(type(problem)):
            fetch(Host(b"", problem))
