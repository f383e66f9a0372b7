"""imgur.com and api.imgur.com: album pages of two generations, and version 3 of the API.

The page of containers has a `div` with the class token `post-image-container` for each image; the later page has the
album as escaped JSON in `window.postDataJSON` and no containers. The API wants a client identifier and
reports its limits in headers. Image files are in `image_host.py`. Standard library only.
"""

import html
import itertools
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from behaviours import Behaviour, PageStyle
from replies import Reply, Request, json_reply, robots_reply, text_reply

CLIENT_LIMIT = 12_500
USER_LIMIT = 500
RESET_UTC = 1_500_000_000
ALBUM_PATH = re.compile(r"/a/(\w+)(?:/layout/blog|/embed|/)?")
API_PATH = re.compile(r"/3/album/(\w+)/?")
ABSENT = (Behaviour.NOT_FOUND, Behaviour.GONE, Behaviour.OPTED_OUT, Behaviour.RESERVED)
"""Of albums that the API does not know."""
LINK = re.compile(r"https?://\S+")


Json = dict[str, Any]  # an album of `albums.json`, or an image in it


def load_albums(recording: Path) -> dict[str, Json]:
    """The recorded albums by identifier."""
    albums: dict[str, Json] = json.loads((recording / "albums.json").read_text(encoding="utf-8"))
    return albums


class ImgurPages:
    """imgur.com: `/a/<id>`."""

    def __init__(self, recording: Path) -> None:
        self._albums = load_albums(recording)
        self._asked: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)

    def answer(self, request: Request) -> Reply:
        """The album's page, or a page that says why not."""
        if request.path == "/robots.txt":
            return robots_reply("/user/", "/search", "/account/")
        found = ALBUM_PATH.fullmatch(request.path)
        album = self._albums.get(found[1]) if found else None
        if found is None or album is None or album["behaviour"] == Behaviour.NOT_FOUND:
            return page(404, "imgur: the simple 404 page", "<p>Zoinks! You've taken a wrong turn.</p>")
        if album["behaviour"] == Behaviour.GONE:
            return page(410, "imgur", "<p>This album was deleted.</p>")
        if album["behaviour"] == Behaviour.OPTED_OUT:
            return page(200, "An album", "<p>Look, do not learn.</p>", head='<meta name="robots" content="noai">')
        if album["behaviour"] == Behaviour.RESERVED:
            reply = page(200, "An album", "<p>Ask first.</p>")
            reserved = {"tdm-reservation": "1", "tdm-policy": "http://imgur.com/tdm-policy.json"}
            return replace(reply, headers={**reply.headers, **reserved})
        if album["behaviour"] == Behaviour.UNAVAILABLE_FIRST and next(self._asked[found[1]]) == 0:
            return page(503, "imgur is over capacity!", "<p>Please try again.</p>")
        title = album["title"] or "Imgur Album"
        if album["style"] == PageStyle.POST_DATA:
            return page(200, title, post_data_script(found[1], album))
        return page(200, title, containers(album))


def page(status: int, title: str, body: str, *, head: str = "") -> Reply:
    """An HTML page."""
    head = f'<head><meta charset="utf-8">{head}<title>{html.escape(title)} - Album on Imgur</title></head>'
    return text_reply(status, f"<!DOCTYPE html>\n<html>{head}\n<body>\n{body}\n</body></html>\n", kind="text/html")


def containers(album: Json) -> str:
    """The older page's body: one container an image."""
    blocks = "\n".join(container(medium) for medium in album["media"])
    heading = html.escape(album["title"] or "")
    header = f'<div class="post-header"><h1 class="post-title">{heading}</h1></div>'
    return f'{header}\n<div class="post-images">\n{blocks}\n</div>'


def container(medium: Json) -> str:
    """One image's block; an animation is a video with a source."""
    identifier = medium["id"]
    if medium["animated"]:
        picture = (
            f'<div class="video-container"><video poster="//i.imgur.com/{identifier}h.jpg" loop="loop" muted="muted">'
            f'<source src="//i.imgur.com/{identifier}.mp4" type="video/mp4"></video></div>'
        )
    else:
        picture = f'<img alt="" src="//i.imgur.com/{identifier}.{medium["ext"]}" itemprop="contentURL" />'
    return (
        f'<div id="{identifier}" class="post-image-container post-image-container--spacer" itemscope '
        f'itemtype="http://schema.org/ImageObject">\n<div class="post-image">{picture}</div>\n'
        f'<div class="post-image-meta">{meta(medium)}</div>\n</div>'
    )


def meta(medium: Json) -> str:
    """Title and description, where there are any."""
    parts = []
    if medium["title"]:
        parts.append(f'<h2 class="post-image-title">{html.escape(medium["title"])}</h2>')
    if medium["description"]:
        text = LINK.sub(r'<a href="\g<0>" target="_blank">\g<0></a>', html.escape(medium["description"], quote=False))
        parts.append(f'<p class="post-image-description">{text.replace(chr(10), "<br />")}</p>')
    return "".join(parts)


def post_data_script(identifier: str, album: Json) -> str:
    """The later page's body: the album as JSON, escaped once more as a JavaScript string."""
    media = [
        {
            "id": medium["id"],
            "type": "image",
            "mime_type": medium["mime"],
            "url": f"http://i.imgur.com/{medium['id']}.{medium['ext']}",
            "ext": medium["ext"],
            "width": medium["width"],
            "height": medium["height"],
            "size": medium["size"],
            "metadata": {
                "title": medium["title"] or "",
                "description": medium["description"] or "",
                "is_animated": medium["animated"],
            },
        }
        for medium in album["media"]
    ]
    data = {
        "id": identifier,
        "title": album["title"] or "",
        "is_album": True,
        "image_count": len(media),
        "media": media,
    }
    literal = json.dumps(json.dumps(data)).replace("</", "<\\/")
    return f'<div id="root"></div>\n<script>window.postDataJSON={literal}</script>'


class ImgurApi:
    """api.imgur.com: `/3/album/<id>`."""

    def __init__(self, recording: Path) -> None:
        self._albums = load_albums(recording)
        self._count = itertools.count(1)

    def answer(self, request: Request) -> Reply:
        """The album as JSON, with the limits that are left."""
        scheme, _, client = request.headers.get("authorization", "").partition(" ")
        if not scheme:
            return self._failure(request, 401, "Authentication required")
        if scheme.lower() not in ("client-id", "bearer") or not client.strip():
            return self._failure(request, 403, "Invalid client_id")
        found = API_PATH.fullmatch(request.path)
        album = self._albums.get(found[1]) if found else None
        if found is None or album is None or album["behaviour"] in ABSENT:
            return self._failure(request, 404, "Unable to find an album with the id")
        images = [api_image(medium) for medium in album["media"]]
        link = f"http://imgur.com/a/{found[1]}"
        whole = {"id": found[1], "title": album["title"], "description": None, "link": link}
        return self._reply(200, whole | {"images_count": len(images), "images": images})

    def _failure(self, request: Request, status: int, message: str) -> Reply:
        return self._reply(status, {"error": message, "request": request.path, "method": request.method})

    def _reply(self, status: int, data: object) -> Reply:
        spent = next(self._count)
        limits = {
            "X-RateLimit-ClientLimit": str(CLIENT_LIMIT),
            "X-RateLimit-ClientRemaining": str(max(0, CLIENT_LIMIT - spent)),
            "X-RateLimit-UserLimit": str(USER_LIMIT),
            "X-RateLimit-UserRemaining": str(max(1, USER_LIMIT - spent)),
            "X-RateLimit-UserReset": str(RESET_UTC),
        }
        return json_reply(status, {"data": data, "success": status == 200, "status": status}, headers=limits)


def api_image(medium: Json) -> dict[str, object]:
    """An image as the API lists it."""
    return {
        "id": medium["id"],
        "title": medium["title"],
        "description": medium["description"],
        "type": medium["mime"],
        "animated": medium["animated"],
        "width": medium["width"],
        "height": medium["height"],
        "size": medium["size"],
        "link": f"http://i.imgur.com/{medium['id']}.{medium['ext']}",
    }
