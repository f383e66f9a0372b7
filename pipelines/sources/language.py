"""Which language a text is in, found out on this machine (py3langid)."""

from collections.abc import Sequence
from functools import cache
from typing import Any

from schemas.documents import UNDETERMINED

LEAST_CONFIDENCE = 0.2  # below, a language is undetermined
NO_LANGUAGE = "zxx"  # numbers, identifiers


def found_language(text: str, known: Sequence[str] = ()) -> str:
    """Return the language of a text, `und` where that is not clear.

    Args:
        text: of any length.
        known: languages that it can be in; empty: any of 139.
    """
    language, _ = _identifier(tuple(sorted(known))).classify(text)
    return UNDETERMINED if language == NO_LANGUAGE else str(language)


@cache
def _identifier(known: tuple[str, ...]) -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    made = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True, min_confidence=LEAST_CONFIDENCE)
    if known:
        made.set_languages(list(known))
    return made
