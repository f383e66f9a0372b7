"""The interface in English, German and French: one file a language, `texts/<language>.toml`, a table a module.

    [articles]
    headline = "Headline"
    found = {one = "{n} picture", other = "{n} pictures"}

A text with `one` and `other` is chosen by `n`. All files have the same keys and the same names in braces (tested).
"""

import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

LANGUAGES = {"en": "English", "de": "Deutsch", "fr": "Français"}
Translate = Callable[..., str]


@cache
def catalogue(language: str) -> Mapping[str, Any]:
    """Return the texts of a language: `module.key` -> a text, or texts by number."""
    text = files("newsroom.pages").joinpath("texts", f"{language}.toml").read_text(encoding="utf-8")
    tables = tomllib.loads(text)
    return {f"{table}.{key}": value for table, own in tables.items() for key, value in own.items()}


def translator(language: str) -> Translate:
    """Return `t(key, **values)` of a language; a number is written as the language writes it."""
    texts = catalogue(language)

    def t(key: str, **values: object) -> str:
        text = texts[key]
        if isinstance(text, Mapping):
            is_one = values["n"] in ((0, 1) if language == "fr" else (1,))
            text = text["one" if is_one else "other"]
        written = {name: number(value, language) if isinstance(value, int) else value for name, value in values.items()}
        return str(text.format(**written))

    return t


def number(value: int, language: str) -> str:
    """Return a whole number with its thousands set apart."""
    return f"{value:,}".replace(",", {"en": ",", "de": ".", "fr": "\u202f"}[language])


def percent(value: float, language: str) -> str:
    """Return a share as a whole percentage."""
    return f"{value:.0%}" if language == "en" else f"{100 * value:.0f}\u202f%"


def preferred(accepted: str) -> str:
    """Return the first language of an `Accept-Language` header that there is; English where there is none."""
    ranked = []
    for position, part in enumerate(accepted.split(",")[:20]):
        name, _, weight = part.strip().partition(";q=")
        try:
            ranked.append((-float(weight or 1), position, name.lower().partition("-")[0]))
        except ValueError:
            continue
    return next((name for _, _, name in sorted(ranked) if name in LANGUAGES), "en")
