"""What languages are called, and which of them the pages offer."""

from babel import Locale

OFFERED = ("de", "en", "es", "fr", "it", "nl", "pt", "pl", "sv", "da", "cs", "tr", "ru", "uk", "ar", "zh", "ja", "ko")


def language_name(code: str, ui: str) -> str:
    """Return what a language is called in the interface's language; its code where it has no name there."""
    return str(Locale(ui).languages.get(code, code))
