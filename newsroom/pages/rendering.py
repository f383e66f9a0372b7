"""From a template and what it shows to an answer, in the visitor's language.

Every template finds: `t` (texts of `texts/`), `percent`, `ui` (the interface's language), `languages`, `root` (the path
below which a proxy shows these pages, before every address), `here` (this address with some of its parameters changed),
`kept` (its parameters as fields of a form), `path`, `picture_address` (of a copy, below the root), `language_name`,
`user`, `nav()`.

The interface is in English, German and French: one file a language, `texts/<language>.toml`, a table a module.

    [articles]
    headline = "Headline"
    found = {one = "{n} picture", other = "{n} pictures"}

A text with `one` and `other` is chosen by `n`. All files have the same keys and the same names in braces (tested).
"""

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from importlib.resources import files
from typing import Any
from urllib.parse import quote, urlencode

from babel import Locale
from babel.numbers import format_decimal, format_percent
from fastapi import Request
from fastapi.responses import HTMLResponse, Response
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

LANGUAGES = {"en": "English", "de": "Deutsch", "fr": "Français"}
Translate = Callable[..., str]
OFFERED = ("de", "en", "es", "fr", "it", "nl", "pt", "pl", "sv", "da", "cs", "tr", "ru", "uk", "ar", "zh", "ja", "ko")
LANGUAGE = "ui"  # name of the parameter and the cookie of the interface's language
KEPT_S = 30 * 24 * 3600
_ACCEPTED = re.compile(r"\s*([a-zA-Z]{1,8})(?:-[\w-]+)?\s*(?:;\s*q=([01](?:\.\d+)?))?\s*")


@cache
def catalogue(language: str) -> Mapping[str, Any]:
    """Return the texts of a language: `module.key` -> a text, or texts by number."""
    tables = tomllib.loads(files("newsroom.pages").joinpath("texts", f"{language}.toml").read_text(encoding="utf-8"))
    return {f"{table}.{key}": value for table, own in tables.items() for key, value in own.items()}


def translator(language: str) -> Translate:
    """Return `t(key, **values)` of a language; a number is written as the language writes it."""
    texts = catalogue(language)

    def t(key: str, **values: object) -> str:
        text = texts[key]
        if isinstance(text, Mapping):
            is_one = values["n"] in ((0, 1) if language == "fr" else (1,))
            text = text["one" if is_one else "other"]
        written = {
            name: format_decimal(value, locale=language) if isinstance(value, int) else value
            for name, value in values.items()
        }
        return str(text.format(**written))

    return t


def preferred(accepted: str) -> str:
    """Return the first language of an `Accept-Language` header that there is; English where there is none."""
    parts = filter(None, (_ACCEPTED.fullmatch(part) for part in accepted.split(",")[:20]))
    ranked = sorted(parts, key=lambda each: -float(each[2] or 1))
    return next((name for each in ranked if (name := each[1].lower()) in LANGUAGES), "en")


def language_name(code: str, ui: str) -> str:
    """Return what a language is called in the interface's language; its code where it has no name there."""
    return str(Locale(ui).languages.get(code, code))


@cache
def environment() -> Environment:
    """Return what templates are rendered with; all they show is escaped."""
    made = Environment(
        loader=PackageLoader("newsroom.pages", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals |= {"picture_address": picture_address, "language_name": language_name}
    return made


def page(request: Request, template: str, *, status: int = 200, **content: Any) -> Response:
    """Return the page of a template of `templates/`."""
    ui = language_of(request)
    shared = {
        "t": translator(ui),
        "percent": partial(format_percent, locale=ui),
        "ui": ui,
        "languages": LANGUAGES,
        "root": root_of(request),
        "here": partial(address, request),
        "kept": partial(kept_fields, request),
        "path": inner_path(request),
        "user": getattr(request.state, "user", ""),
        "nav": request.app.state.nav,
    }
    answer = HTMLResponse(environment().get_template(template).render(**shared, **content), status)
    answer.headers["content-language"] = ui
    if request.query_params.get(LANGUAGE) in LANGUAGES:
        cookie(request, answer, LANGUAGE, ui, KEPT_S)
    return answer


def language_of(request: Request) -> str:
    """Return the interface's language: of the address, kept in a cookie, or the browser's."""
    for wanted in (request.query_params.get(LANGUAGE), request.cookies.get(LANGUAGE)):
        if wanted in LANGUAGES:
            return str(wanted)
    return preferred(request.headers.get("accept-language", ""))


def root_of(request: Request) -> str:
    """Return the path below which a proxy shows these pages; "": at the root."""
    return str(request.scope.get("root_path", ""))


def inner_path(request: Request) -> str:
    """Return the path of a request below the root."""
    return str(request.scope["path"]).removeprefix(root_of(request))


def address(request: Request, path: str | None = None, **changes: str | Sequence[str] | None) -> str:
    """Return this address, or that of another path, with parameters changed; None takes one away, a list repeats it.

    Another path keeps no parameter.
    """
    given = request.query_params.multi_items() if path is None else []
    kept = [(name, value) for name, value in given if name not in changes]
    for name, change in changes.items():
        values = [] if change is None else [change] if isinstance(change, str) else change
        kept += [(name, value) for value in values]
    query = urlencode(kept)
    return root_of(request) + (inner_path(request) if path is None else path) + (f"?{query}" if query else "")


def picture_address(reference: str, part: str, image: str) -> str:
    """Return the address of a picture's copy on the pages, below their root.

    Args:
        reference: NAME@VERSION.
        part: path of the images part that holds it.
        image: content hash.
    """
    return f"/pictures/{quote(reference)}/{quote(image)}.jpg?{urlencode({'part': part})}"


def document_pictures(reference: str, part: str, images: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the addresses of a document's pictures: its images are in the part of the same name.

    Args:
        reference: NAME@VERSION.
        part: path of the documents part.
        images: of the document's row.
    """
    return [picture_address(reference, part.replace("documents/", "images/", 1), each["hash"]) for each in images]


def kept_fields(request: Request, *without: str) -> Markup:
    """Return this address's parameters as fields of a form that asks for more, without some of them."""
    field = Markup('<input type="hidden" name="{}" value="{}">')
    pairs = request.query_params.multi_items()
    return Markup("").join(field.format(name, value) for name, value in pairs if name not in without)


def paging(number: int, total: int, per_page: int) -> dict[str, int]:
    """Return what a page of a list shows: its `number`, that of all `pages`, and its rows from `start` to `end`."""
    pages = max(1, -(-total // per_page))
    number = max(1, min(number, pages))
    return {"number": number, "pages": pages, "start": (number - 1) * per_page, "end": number * per_page}


def own_path(request: Request, target: str) -> str:
    """Return an address where it is a path of these pages, else the first page: nobody is sent elsewhere."""
    is_own = target.startswith("/") and not target.startswith(("//", "/\\")) and target.isprintable()
    return target if is_own else f"{root_of(request)}/"


def cookie(request: Request, answer: Response, name: str, value: str, seconds: int) -> None:
    """Set a cookie that only these pages get, and no script; encrypted where the visitor's connection is."""
    is_secure = request.headers.get("x-forwarded-proto", request.url.scheme) == "https"
    answer.set_cookie(name, value, max_age=seconds, httponly=True, samesite="strict", secure=is_secure, path="/")
