"""From a template and what it shows to an answer, in the visitor's language.

Every template finds: `t` (texts of `texts/`), `percent`, `ui` (the interface's language), `languages`, `here`
(this address with some of its parameters changed), `kept` (its parameters as fields of a form), `csrf` and `csrf_field`
(what a write must carry), `user`, `nav`.
"""

from collections.abc import Sequence
from functools import cache, partial
from typing import Any
from urllib.parse import urlencode

from fastapi import Request
from fastapi.responses import HTMLResponse, Response
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from orchestration.pages.catalogue import LANGUAGES, percent, preferred, translator
from orchestration.pages.writes import COOKIE, FIELD, KEPT_S, cookie, is_secure, number_of, token_of

LANGUAGE = "ui"  # name of the parameter and the cookie of the interface's language


@cache
def environment() -> Environment:
    """Return what templates are rendered with; all they show is escaped."""
    return Environment(
        loader=PackageLoader("orchestration.pages", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def page(request: Request, template: str, *, status: int = 200, **content: Any) -> Response:
    """Return the page of a template of `templates/`."""
    ui, number = language_of(request), number_of(request)
    token = token_of(number, request.app.state.pages.secret)
    shared = {
        "t": translator(ui),
        "percent": partial(percent, language=ui),
        "ui": ui,
        "languages": LANGUAGES,
        "here": partial(address, request),
        "kept": partial(kept_fields, request),
        "path": request.url.path,
        "csrf": token,
        "csrf_field": lambda: Markup('<input type="hidden" name="{}" value="{}">').format(FIELD, token),
        "user": getattr(request.state, "user", ""),
        "nav": request.app.state.nav,
    }
    answer = HTMLResponse(environment().get_template(template).render(**shared, **content), status)
    answer.headers["content-language"] = ui
    if COOKIE not in request.cookies:
        cookie(answer, COOKIE, number, KEPT_S, is_secure=is_secure(request))
    if request.query_params.get(LANGUAGE) in LANGUAGES:
        cookie(answer, LANGUAGE, ui, KEPT_S, is_secure=is_secure(request))
    return answer


def language_of(request: Request) -> str:
    """Return the interface's language: asked for in the address, kept in a cookie, or the browser's."""
    for wanted in (request.query_params.get(LANGUAGE), request.cookies.get(LANGUAGE)):
        if wanted in LANGUAGES:
            return str(wanted)
    return preferred(request.headers.get("accept-language", ""))


def address(request: Request, path: str | None = None, **changes: str | Sequence[str] | None) -> str:
    """Return this address, or that of another path, with parameters changed; None takes one away, a list repeats it."""
    kept = [(name, value) for name, value in request.query_params.multi_items() if name not in changes]
    for name, change in changes.items():
        values = [] if change is None else [change] if isinstance(change, str) else change
        kept += [(name, value) for value in values]
    query = urlencode(kept)
    return (path or request.url.path) + (f"?{query}" if query else "")


def kept_fields(request: Request, *without: str) -> Markup:
    """Return this address's parameters as fields of a form that asks for more, without some of them."""
    field = Markup('<input type="hidden" name="{}" value="{}">')
    pairs = request.query_params.multi_items()
    return Markup("").join(field.format(name, value) for name, value in pairs if name not in without)


def own_path(target: str) -> str:
    """Return an address where it is a path of these pages, else the first page: nobody is sent elsewhere."""
    is_own = target.startswith("/") and not target.startswith(("//", "/\\")) and target.isprintable()
    return target if is_own else "/"
