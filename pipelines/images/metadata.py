"""What a picture's file says of it in words, and of its rights: XMP, IPTC and EXIF, by Pillow.

XMP, IPTC and EXIF are trusted in this order: XMP is the youngest of the three and Unicode, IPTC is what agencies write,
EXIF what cameras do. Each field is taken from the first that has it. All three are untrusted: every part is bounded
before it is parsed, XML passes through `defusedxml` (no entities), and a part that cannot be read counts as absent: it
never costs the picture. Places are names; coordinates are not read, since they tell where people live.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from PIL import ExifTags, ImageFile, IptcImagePlugin

from schemas.codecs import open_picture
from schemas.failures import is_about_machine
from schemas.metadata import Metadata, Rights, day_of, keywords_of, plain_text

MAX_BLOCK_BYTES = 256 * 2**10  # of XMP or IPTC
# XMP properties by their local name; the first that is there counts.
_XMP: Mapping[str, Sequence[str]] = {
    "title": ("Headline", "title"),
    "caption": ("description",),
    "credit": ("Credit", "creator"),
    "rights": ("UsageTerms", "license", "rights", "WebStatement"),
    "date": ("DateCreated", "DateTimeOriginal", "CreateDate"),
    "keywords": ("subject",),
    "rights.creator": ("creator",),
    "rights.credit": ("Credit",),
    "rights.copyright": ("rights",),
    "rights.licence": ("license", "WebStatement"),
    "rights.terms": ("UsageTerms",),
    "rights.source_type": ("DigitalSourceType",),
    "rights.data_mining": ("DataMining",),
}
_XMP_PLACE = ("Location", "City", "State", "Country")
# IPTC-IIM datasets of record 2.
_IPTC: Mapping[str, Sequence[int]] = {
    "title": (105, 5),  # headline, object name
    "caption": (120,),
    "credit": (110, 80),  # credit, by-line
    "rights": (116,),
    "date": (55,),
    "keywords": (25,),
    "rights.creator": (80,),
    "rights.credit": (110,),
    "rights.copyright": (116,),
}
_IPTC_PLACE = (92, 90, 95, 101)  # sub-location, city, state, country
_EXIF: Mapping[str, ExifTags.Base] = {
    "caption": ExifTags.Base.ImageDescription,
    "credit": ExifTags.Base.Artist,
    "rights": ExifTags.Base.Copyright,
    "rights.creator": ExifTags.Base.Artist,
    "rights.copyright": ExifTags.Base.Copyright,
}
_OF_RIGHTS = "rights."  # before the name of a field of `Rights`; the others are of `Metadata`
_TERMS = ("rights.source_type", "rights.data_mining")  # terms of a vocabulary: the last part of their URI
_MAKERS = re.compile(r"(olympus|sony|samsung|minolta|konica|kodak|digital ?camera|asus) .*|default|untitled", re.I)


def read_metadata(data: bytes) -> tuple[Metadata | None, Rights | None]:
    """Return what the file of a decodable picture says of it, and of its rights; None where it says nothing."""
    found: dict[str, Any] = {}
    with open_picture(data) as picture:
        for read in (_xmp, _iptc, _exif):
            try:
                part = {name: value for name, value in read(picture) if value}
            except Exception as problem:  # parsers of untrusted bytes raise what they like
                if is_about_machine(problem):
                    raise
                continue
            found = part | found
    words = {name: value for name, value in found.items() if not name.startswith(_OF_RIGHTS)}
    rights = {name.removeprefix(_OF_RIGHTS): value for name, value in found.items() if name.startswith(_OF_RIGHTS)}
    return Metadata(**words) if words else None, Rights(**rights) if rights else None


def _xmp(picture: ImageFile.ImageFile) -> Iterator[tuple[str, Any]]:
    """Yield the fields of XMP."""
    block = picture.info.get("xmp") or b""
    if not 0 < len(block) <= MAX_BLOCK_BYTES:
        return
    properties = dict(_properties(picture.getxmp()))
    for name, names in _XMP.items():
        values = next((value for wanted in names if (value := properties.get(wanted))), ())
        yield name, _field(name, values)
    yield "place", _place(properties.get(name, ("",))[0] for name in _XMP_PLACE)


def _properties(tree: Any) -> Iterator[tuple[str, list[str]]]:
    """Yield each property of the descriptions in an XMP packet with its values: attributes, elements and lists."""
    packet = tree.get("xmpmeta") or tree.get("xapmeta") or tree
    descriptions = packet.get("RDF", {}).get("Description", [])
    for description in descriptions if isinstance(descriptions, list) else [descriptions]:
        for name, value in description.items() if isinstance(description, Mapping) else ():
            yield name, list(_values(value))


def _values(value: Any) -> Iterator[str]:
    """Yield the texts of a property: its own, or those of its `Alt`, `Bag` or `Seq`, the default language first."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        by_default = sorted(value, key=lambda item: not isinstance(item, Mapping) or item.get("lang") != "x-default")
        for item in by_default:
            yield from _values(item)
    elif isinstance(value, Mapping):
        for key in ("text", "Alt", "Bag", "Seq", "li", "resource"):
            yield from _values(value.get(key))


def _iptc(picture: ImageFile.ImageFile) -> Iterator[tuple[str, Any]]:
    """Yield the fields of IPTC-IIM."""
    photoshop = picture.info.get("photoshop")
    if isinstance(photoshop, Mapping) and len(photoshop.get(0x0404) or b"") > MAX_BLOCK_BYTES:
        return
    found = IptcImagePlugin.getiptcinfo(picture)
    if not found:
        return

    def texts(number: int) -> list[str]:
        value = found.get((2, number), [])
        return [_decoded(item) for item in (value if isinstance(value, list) else [value])]

    for name, numbers in _IPTC.items():
        yield name, _field(name, next((value for number in numbers if (value := texts(number))), []))
    yield "place", _place(next(iter(texts(number)), "") for number in _IPTC_PLACE)


def _exif(picture: ImageFile.ImageFile) -> Iterator[tuple[str, Any]]:
    """Yield the fields of EXIF; what cameras write by themselves into the description is none."""
    exif = picture.getexif()
    if not exif:
        return
    for name, tag in _EXIF.items():
        value = exif.get(tag)
        text = _field(name, [_decoded(value.encode("latin-1", "replace"))] if isinstance(value, str) else [])
        yield name, None if name == "caption" and text and _MAKERS.fullmatch(text) else text
    taken = exif.get_ifd(ExifTags.IFD.Exif).get(ExifTags.Base.DateTimeOriginal)
    yield "date", _field("date", [taken] if isinstance(taken, str) else [])


def _field(name: str, values: Sequence[str]) -> Any:
    """Return a field of its values: one text, one date, or all keywords; None or () where nothing is left."""
    if name == "keywords":
        return keywords_of(values)
    if name == "rights.creator":
        return plain_text("; ".join(keywords_of(values)))
    if name in _TERMS:
        return plain_text(values[0].rstrip("/").rpartition("/")[2]) if values else None
    text = plain_text(values[0]) if values else None
    return day_of(text) if name == "date" and text else text


def _place(parts: Iterator[str]) -> str | None:
    """Return the parts of a place from small to large, each once."""
    return plain_text(", ".join(dict.fromkeys(text for part in parts if (text := plain_text(part)))))


def _decoded(value: bytes) -> str:
    """Return bytes as UTF-8, or where they are not, as Windows-1252: IPTC and EXIF rarely say which."""
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value.decode("cp1252", "replace")
