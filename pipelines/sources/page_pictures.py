"""The addresses that an `img` of a page has its picture at, the best one first.

    <picture><source srcset="a.webp 800w" media="..."> <img src="a.jpg" srcset="a-300.jpg 300w, a-900.jpg 900w">
    <img src="loading.gif" data-src="a.jpg">  data-original, data-lazy-src, data-srcset, data-hi-res-src ...

Libraries that load a picture late keep its address in an attribute of their own, and a stand-in in `src`. There are too
many to name: any attribute counts whose value looks like the address of an image. Of several sizes the one comes first
that a browser takes in a window of 1,280 pixels (HTML standard 4.8.4.3). Stand-ins are none of the addresses.
"""

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

_WINDOW_PX = 1280.0
_MAX_VALUE = 20_000  # characters of an attribute that are read
_IMAGE_ENDING = re.compile(r"\.(?:jpe?g|png|webp|gif|avif|bmp|tiff?|jfif|heic)(?:$|[?#!/&;:@,)])", re.IGNORECASE)
_LATE = re.compile(r"src(?:set)?$|lazy|original|hi-?res|full|retina|-image$|-img$|-url$|^file$", re.IGNORECASE)
_NEVER = re.compile(
    r"^(?:alt|title|id|class|style|usemap|longdesc|sizes|on.*|aria-.*|itemprop|name)$|placeholder|preview|thumb|low"
    r"|fallback|error|blur|-old-|caption|credit|share|href|link|-alt|-title|-page",
    re.IGNORECASE,
)
_STAND_IN = re.compile(
    r"(?:^|[-_.])(?:blank|spacer|pixel|placeholder|loading|loader|lazy(?:load)?|gr[ea]y|transparent|trans|clear|empty"
    r"|dummy|1x1|blur|lqip|ajax-loader|no-?image|noimg|fallback)(?:$|[-_.])"
    r"|^(?:blank|spacer|pixel|placeholder|transparent)",
    re.IGNORECASE,
)
_CANDIDATE = re.compile(r"\s*,*\s*(\S*[^\s,])(?:\s+([\d.]+)([wx])(?:\s+\d+h)?)?\s*(?:,|$)")
_LENGTH = re.compile(r"([\d.]+)(px|vw|r?em|)$")
_MEDIA = re.compile(r"(min|max)-width\s*:\s*([\d.]+)(px|r?em)")
_PX = {"px": 1.0, "": 1.0, "vw": _WINDOW_PX / 100, "em": 16.0, "rem": 16.0}


def addresses_of(image: Any) -> list[str]:
    """Return the addresses of an `img` as they stand in it, the best first; empty where it has a stand-in alone.

    Args:
        image: element of lxml.
    """
    sizes = str(image.get("sizes") or image.get("data-sizes") or "")
    is_lazy = "lazy" in (image.get("class") or "").lower()
    late, sets, singles = list[str](), list[str](), list[str]()
    for name, value in image.attrib.items():
        text = str(value)[:_MAX_VALUE].strip()
        if name in ("src", "srcset") or not text or _NEVER.search(name):
            continue
        if "srcset" in name.lower() or (" " in text and "," in text and _IMAGE_ENDING.search(text)):
            late += _of_set(text, sizes)
        elif _is_address(name, text):
            (late if is_lazy or _LATE.search(name) else singles).append(text)
    sets += _of_set(str(image.get("srcset") or "")[:_MAX_VALUE], sizes)
    if not late:
        sets.append(str(image.get("src") or "").strip())
    found = [*_of_sources(image), *late, *sets, *singles]
    return [each for each in dict.fromkeys(found) if each and not is_stand_in(each)]


def is_stand_in(address: str) -> bool:
    """Return whether an address is one of a picture that is shown until the real one comes, or that nobody sees."""
    if address.lower().startswith(("data:", "about:", "blob:", "javascript:", "#")):
        return True
    try:
        name = urlsplit(address).path.rstrip("/").rpartition("/")[2]
    except ValueError:
        return True
    return _STAND_IN.search(name.rpartition(".")[0] or name) is not None


def _is_address(name: str, value: str) -> bool:
    """Return whether an attribute that is no standard one holds the address of an image, by its name and its value."""
    if re.search(r"[\s{}<>\"\\]", value):
        return False
    is_named = name.lower().endswith("src") or "original" in name.lower() or "lazy" in name.lower()
    return bool(_IMAGE_ENDING.search(value)) or (is_named and ("/" in value or "." in value))


def _of_sources(image: Any) -> Iterator[str]:
    """Yield the addresses of the sources of the `picture` that an image is in, in a window of the usual width."""
    picture = next(image.iterancestors("picture"), None)
    for source in () if picture is None else picture.iter("source"):  # to lxml an image is in the source before it
        if "svg" not in str(source.get("type") or "") and _holds(str(source.get("media") or "")):
            sizes = str(source.get("sizes") or source.get("data-sizes") or "")
            for name, value in source.attrib.items():
                if "srcset" in name.lower():
                    yield from _of_set(str(value)[:_MAX_VALUE], sizes)


def _of_set(value: str, sizes: str) -> list[str]:
    """Return the addresses of a `srcset`, the best first."""
    width = _width(sizes)
    wide, dense = list[tuple[float, str]](), list[tuple[float, str]]()
    for address, number, unit in _CANDIDATE.findall(value):
        try:
            (wide if unit == "w" else dense).append((float(number or 1), address))
        except ValueError:  # 1.2.3x
            dense.append((1.0, address))
    wide.sort(key=lambda each: (each[0] < width, abs(each[0] - width)))
    dense.sort(key=lambda each: (each[0] > 2, -each[0]))
    return [address for _, address in (*wide, *dense)]


def _width(sizes: str) -> float:
    """Return how wide an image is shown, in pixels."""
    for part in sizes.lower().split(","):
        media, _, length = part.strip().rpartition(" ")
        found = _LENGTH.match(length)
        if found and _holds(media):
            return float(found[1]) * _PX[found[2]] if found[1].count(".") < 2 else _WINDOW_PX
    return _WINDOW_PX


def _holds(media: str) -> bool:
    """Return whether a media query holds in a window of the usual width; only widths are looked at."""
    for limit, number, unit in _MEDIA.findall(media.lower()):
        width = float(number if number.count(".") < 2 else 0) * _PX[unit]
        if (limit == "min" and width > _WINDOW_PX) or (limit == "max" and width < _WINDOW_PX):
            return False
    return "print" not in media.lower()
