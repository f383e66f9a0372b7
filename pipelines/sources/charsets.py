"""The text of an HTML page: which character set its bytes are in, in the order of the HTML standard (13.2.3).

    byte order mark -> charset of the Content-Type header -> meta element -> guess

Names are those of the WHATWG Encoding Standard, with all their aliases. A declared character set that cannot decode the
page gives way to the next declaration. Bytes that are UTF-8 by form are UTF-8, whatever single-byte set is declared:
such a declaration decodes anything, and decodes this wrongly.
"""

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass

import webencodings

_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16le"), (codecs.BOM_UTF16_BE, "utf-16be"))
_HEAD_BYTES = 2**17  # that are searched for a declaration; browsers, too, read one behind their first 1,024 bytes
_COMMENT = re.compile(rb"<!--.*?-->", re.DOTALL)
_META = re.compile(rb"<meta\b[^>]{0,2000}?\bcharset\s*=\s*[\"']?\s*([^\s\"'/>;]{1,64})", re.IGNORECASE)
_XML = re.compile(rb"\A\s*<\?xml\b[^>]{0,200}?\bencoding\s*=\s*[\"']([^\"']{1,64})")
_HEADER = re.compile(r"\bcharset\s*=\s*[\"']?\s*([^\s\"';,]{1,64})", re.IGNORECASE)
_LANGUAGE = re.compile(rb"<html\b[^>]{0,2000}?\blang\s*=\s*[\"']?([A-Za-z]{2,3})", re.IGNORECASE)
_MULTIBYTE = re.compile(rb"[\xc2-\xf4][\x80-\xbf]+")
_SURE = 3  # sequences of UTF-8 beyond ASCII that no other set has by chance
# Of the table of suggested defaults in the HTML standard (13.2.3.2); any other language has windows-1252.
_BY_LANGUAGE = {
    "ar": "windows-1256", "az": "windows-1254", "ba": "windows-1251", "be": "windows-1251", "bg": "windows-1251",
    "cs": "windows-1250", "el": "iso-8859-7", "et": "windows-1257", "fa": "windows-1256", "he": "windows-1255",
    "hr": "windows-1250", "hu": "iso-8859-2", "ja": "shift_jis", "kk": "windows-1251", "ko": "euc-kr",
    "ku": "windows-1254", "ky": "windows-1251", "lt": "windows-1257", "lv": "windows-1257", "mk": "windows-1251",
    "pl": "iso-8859-2", "ru": "windows-1251", "sah": "windows-1251", "sk": "windows-1250", "sl": "iso-8859-2",
    "sr": "windows-1251", "tg": "windows-1251", "th": "windows-874", "tr": "windows-1254", "tt": "windows-1251",
    "uk": "windows-1251", "vi": "windows-1258", "zh": "gb18030",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Decoded:
    """A page's text, and the character set that gave it.

    Attributes:
        charset: by its name in the Encoding Standard.
        is_guessed: whether no declaration could decode the page.
    """

    text: str
    charset: str
    is_guessed: bool


def decode_page(body: bytes, content_type: str | None = None) -> Decoded:
    """Return the text of a page.

    Args:
        body: of the page.
        content_type: value of the answer's header; None: there is none.
    """
    for mark, name in _BOMS:
        if body.startswith(mark):
            return Decoded(_codec(name).decode(body[len(mark) :], "replace")[0], name, False)
    declared = list(_declared(body, content_type))
    if (text := _strict(body, "utf-8")) is not None:
        is_certain = "utf-8" in declared or len(_MULTIBYTE.findall(body[:_HEAD_BYTES])) >= _SURE
        if is_certain or (not declared and text.isascii()):
            return Decoded(text, "utf-8", False)
    for name in declared:
        if (text := _strict(body, name)) is not None:
            return Decoded(text, name, False)
    return _guessed(body)


def _declared(body: bytes, content_type: str | None) -> Iterator[str]:
    """Yield the known names of character sets that a page declares, in the order of the standard."""
    head = _COMMENT.sub(b"", body[:_HEAD_BYTES])
    header = _HEADER.search(content_type or "")
    if header and (known := webencodings.lookup(header[1])):
        yield known.name
    for found in (_META.search(head), _XML.search(head)):
        if found and (known := webencodings.lookup(found[1].decode("ascii", "replace"))):
            yield "utf-8" if known.name.startswith("utf-16") else known.name  # it could not have been read, else


def _guessed(body: bytes) -> Decoded:
    """Return the text by what its bytes look like, and by the language that it names."""
    from charset_normalizer import from_bytes

    language = _LANGUAGE.search(body[:_HEAD_BYTES])
    names = ["utf-8", _BY_LANGUAGE.get(language[1].decode().lower(), "windows-1252") if language else ""]
    best = None if language else from_bytes(body[:_HEAD_BYTES]).best()
    names += [best.encoding if best else "", "windows-1252"]
    for name in filter(None, names):
        known = webencodings.lookup(name.replace("_", "-")) or webencodings.lookup(name)
        if known is not None and (text := _strict(body, known.name)) is not None:
            return Decoded(text, known.name, True)
    return Decoded(body.decode("utf-8", "replace"), "utf-8", True)


def _strict(body: bytes, name: str) -> str | None:
    """Return the text of a body, None where a character set cannot have made it."""
    try:
        text = _codec(name).decode(body, "strict")[0]
    except (UnicodeError, LookupError):
        return None
    return text if "<" in text or b"<" not in body else None  # a page in UTF-16 that is none


def _codec(name: str) -> codecs.CodecInfo:
    return codecs.lookup("gb18030") if name == "gbk" else webencodings.lookup(name).codec_info
