"""Albums of both page generations and of the API, and the drafts they make."""

import json
from typing import Any

import pytest

from pipelines.sources.imgur import (
    Album,
    AlbumEntry,
    AlbumError,
    album_api_url,
    album_page_url,
    album_to_draft,
    parse_album_api,
)
from pipelines.sources.imgur_pages import parse_album_page
from pipelines.sources.reddit import Submission, parse_submission
from schemas.documents import Link, Provenance, Sentence
from schemas.failures import Failure, Reason, Stage

BASE = "https://imgur.com/a/bbKvv"
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


def test_containers() -> None:
    album = parse_album_page(BLOCKS, base_url=BASE)
    assert album == Album(
        "bbKvv",
        (
            AlbumEntry("https://i.imgur.com/A1m.jpg", "Step 1 & 2 Cut the <wood>. Then sand it."),
            AlbumEntry("https://i.imgur.com/A2.png", None),
            AlbumEntry("https://i.imgur.com/A3.mp4", "It moves.", is_animated=True),
            AlbumEntry(None, "No picture at all."),
            AlbumEntry("https://i.imgur.com/A5.gif", None),
        ),
    )


def test_scheme_less_addresses_take_the_pages_own_scheme() -> None:
    album = parse_album_page(BLOCKS.encode(), base_url="http://imgur.com/a/bbKvv")
    assert album.entries[0].image_uri == "http://i.imgur.com/A1m.jpg"


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
    album = parse_album_page(f"<script>window.postDataJSON = {value};</script><script>x</script>", base_url=BASE)
    assert album == Album(
        "bbKvv",
        (
            AlbumEntry("https://i.imgur.com/B1.jpeg", 'One a "b" </p> it\'s'),
            AlbumEntry("https://i.imgur.com/B2.png", "caf\u00e9 & tea"),
            AlbumEntry("https://i.imgur.com/B3.gif", None, is_animated=True),
            AlbumEntry("https://i.imgur.com/B4.mp4", "Spins", is_animated=True),
            AlbumEntry("https://i.imgur.com/B5.jpeg", None),
        ),
    )


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
    ],
)
def test_pages_that_are_no_album(page: str) -> None:
    with pytest.raises(AlbumError, match="bbKvv") as caught:
        parse_album_page(page, base_url=BASE)
    assert caught.value.reason is Reason.BROKEN_RECORD


def api(images: Any, **fields: Any) -> bytes:
    return json.dumps({"data": {"id": "bbKvv", "images": images}, "success": True, "status": 200} | fields).encode()


def test_api() -> None:
    images = [
        {"id": "C1", "title": "One", "description": "two\nlines", "type": "image/jpeg", "animated": False, "link": "https://i.imgur.com/C1.jpg"},
        {"id": "C2", "title": None, "description": None, "type": "image/gif", "animated": True, "link": "https://i.imgur.com/C2.gif"},
        {"id": "C3", "title": None, "description": "Spins", "type": "video/mp4", "animated": False, "link": "https://i.imgur.com/C3.mp4"},
    ]  # fmt: skip
    assert parse_album_api(api(images)) == Album(
        "bbKvv",
        (
            AlbumEntry("https://i.imgur.com/C1.jpg", "One two lines"),
            AlbumEntry("https://i.imgur.com/C2.gif", None, is_animated=True),
            AlbumEntry("https://i.imgur.com/C3.mp4", "Spins", is_animated=True),
        ),
    )


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"data": {"error": "none"}, "success": false, "status": 404}', Reason.NOT_FOUND),
        (b"<html>", Reason.BROKEN_RECORD),
        (b"\xff\xfe\x00", Reason.BROKEN_RECORD),
        (b"[]", Reason.BROKEN_RECORD),
        (b'{"success": true}', Reason.BROKEN_RECORD),
        (api("many"), Reason.BROKEN_RECORD),
        (api([{"id": "no link"}]), Reason.BROKEN_RECORD),
        (api([{"link": 7}]), Reason.BROKEN_RECORD),
    ],
)
def test_answers_that_are_no_album(data: bytes, reason: Reason) -> None:
    with pytest.raises(AlbumError) as caught:
        parse_album_api(data)
    assert caught.value.reason is reason


def test_addresses_of_albums() -> None:
    assert album_page_url("https://imgur.com/", "bbKvv") == "https://imgur.com/a/bbKvv"
    assert album_api_url("https://api.imgur.com", "bbKvv") == "https://api.imgur.com/3/album/bbKvv"


def test_captions_link_to_the_image_they_were_written_under() -> None:
    submission = parse_submission(
        {"id": "1abc", "subreddit": "DIY", "score": 30, "title": "t", "url": "u", "permalink": "/r/DIY/comments/1abc/"},
        record_id="f:1",
    )
    assert isinstance(submission, Submission)
    album = Album(
        "bbKvv",
        (
            AlbumEntry("u0", None),
            AlbumEntry("u1", "first"),
            AlbumEntry("m2", "under a video", is_animated=True),
            AlbumEntry(None, "alone"),
            AlbumEntry("m4", None, is_animated=True),
            AlbumEntry("u5", "last"),
        ),
    )
    draft, failures = album_to_draft(submission, album)
    assert draft.image_uris == ("u0", "u1", "u5")
    assert draft.sentences == tuple(map(Sentence, ("first", "under a video", "alone", "last")))
    assert draft.links == (Link(0, 1), Link(3, 2))
    assert (draft.id, draft.dataset, draft.language, draft.split) == ("1abc", "diy", "en", None)
    assert draft.provenance == Provenance("reddit", "1abc", "https://www.reddit.com/r/DIY/comments/1abc/")
    expected = [("1abc#2", "m2"), ("1abc#4", "m4")]
    assert failures == tuple(
        Failure(Stage.IMAGES, where, Reason.ANIMATED_IMAGE, f"expected a still picture, found an animation: {uri}")
        for where, uri in expected
    )


def test_an_album_without_captions_has_known_and_empty_links() -> None:
    submission = parse_submission(
        {"id": "1", "subreddit": "DIY", "score": 30, "title": "t", "url": "u"}, record_id="f:1"
    )
    assert isinstance(submission, Submission)
    draft, _ = album_to_draft(submission, Album("x", (AlbumEntry("u0", None),)))
    assert draft.links == ()
