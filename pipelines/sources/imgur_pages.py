r"""Imgur's album pages: the older ones hold the blocks as containers, the later ones as JSON in a script.

    <div class="post-image-container" id="Abc1234">            window.postDataJSON = "{\"media\": [...]}"
      <img itemprop="contentURL" src="//i.imgur.com/...">
      <div class="post-image-meta">  title, description

A page that has neither is not an album.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urljoin, urlsplit

from bs4 import BeautifulSoup, Tag

from pipelines.sources.fields import checked, optional, required
from pipelines.sources.imgur import ANIMATED_EXTENSIONS, Album, AlbumEntry, AlbumError, join_caption, json_caption

_POST_DATA = re.compile(r"window\.postDataJSON\s*=\s*")
_JAVASCRIPT_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_ALBUM_PATH = re.compile(r"/a/(?:[^/]*-)?([A-Za-z0-9]+)")


def parse_album_page(page: str | bytes, *, base_url: str) -> Album:
    """Return the album on a page of either generation.

    Args:
        page: HTML; bytes are read as UTF-8, whatever is not becoming U+FFFD.
        base_url: the page's own address: it completes the images' addresses, and ends in the album's id.

    Raises:
        AlbumError: the page holds no album, or its data is not the published form.
    """
    text = page.decode("utf-8", errors="replace") if isinstance(page, bytes) else page
    found = _ALBUM_PATH.match(urlsplit(base_url).path)
    album_id = found.group(1) if found else ""
    post_data = _POST_DATA.search(text)
    if post_data is not None:
        return _from_post_data(text[post_data.end() :], base_url, album_id)
    soup = BeautifulSoup(text, "html.parser")
    containers = soup.find_all("div", class_="post-image-container")
    if not containers:
        raise AlbumError(f"{base_url}: expected post-image-container blocks or postDataJSON, found neither")
    return Album(album_id, tuple(_container_entry(container, base_url) for container in containers))


def _container_entry(container: Tag, base_url: str) -> AlbumEntry:
    image = container.find("img", attrs={"itemprop": "contentURL"}) or container.find("img")
    moving = container.find("source") or container.find("video")
    address = _source(image) or _source(moving)
    is_animated = moving is not None or _is_animated_address(address)
    caption = join_caption(_text(container, "post-image-title"), _text(container, "post-image-description"))
    return AlbumEntry(urljoin(base_url, address) if address else None, caption, is_animated)


def _source(tag: Tag | None) -> str | None:
    value = (tag.get("src") or tag.get("data-src")) if tag is not None else None
    return value if isinstance(value, str) and value.strip() else None


def _text(container: Tag, class_name: str) -> str | None:
    found = container.find(class_=class_name)
    if found is None:
        return None
    for line_break in found.find_all("br"):
        line_break.replace_with("\n")
    return found.get_text()


def _from_post_data(text: str, base_url: str, album_id: str) -> Album:
    """Return the album in the value at the start of a script's text: an object, or a string that spells one."""
    try:
        data = checked(_read_value(text), dict, "postDataJSON")
        media = required(data, "media", list)
        entries = tuple(_media_entry(checked(medium, dict, "a medium"), base_url) for medium in media)
        return Album(optional(data, "id", album_id), entries)
    except (ValueError, RecursionError) as error:  # FieldError and JSON's own are among them
        raise AlbumError(f"{base_url}: postDataJSON: {error}") from error


def _read_value(text: str) -> Any:
    if text.startswith(("'", '"')):
        return json.loads(_javascript_string(text))
    return json.JSONDecoder().raw_decode(text)[0]


def _javascript_string(text: str) -> str:
    """Return the value of the JavaScript string literal that a text begins with, in either kind of quotes."""
    mark = text[0]
    literal = re.match(rf"{mark}((?:[^{mark}\\]|\\.)*){mark}", text, re.DOTALL)
    if literal is None:
        raise json.JSONDecodeError("a string that does not end", text[:40], 0)
    inner = literal.group(1).replace('"', '\\"') if mark == "'" else literal.group(1)
    return str(json.loads('"' + _JAVASCRIPT_ESCAPE.sub(_json_escape, inner) + '"', strict=False))


def _json_escape(match: re.Match[str]) -> str:
    r"""Return the JSON escape of a JavaScript one (JSON has neither `\x` nor escapes of ordinary characters)."""
    code, character = match.groups()
    if code is not None:
        return f"\\u00{code}"
    return f"\\{character}" if character in '"\\/bfnrtu' else str(character)


def _media_entry(medium: Mapping[str, Any], base_url: str) -> AlbumEntry:
    metadata: dict[str, Any] = optional(medium, "metadata", {})
    address = required(medium, "url", str)
    is_video = optional(medium, "type", "image") == "video" or optional(medium, "mime_type", "").startswith("video/")
    return AlbumEntry(
        image_uri=urljoin(base_url, address),
        caption=json_caption(metadata),
        is_animated=is_video or optional(metadata, "is_animated", False),
    )


def _is_animated_address(address: str | None) -> bool:
    return address is not None and urlsplit(address).path.lower().endswith(ANIMATED_EXTENSIONS)
