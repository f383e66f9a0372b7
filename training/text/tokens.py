"""Tokens of a sentence: lower-cased and tweet-style (Hessel 2019, supplement).

Addresses, mentions, hashtags and emoticons stay whole. One regular expression, alternatives tried in order; a
character that none matches (a lone symbol, an emoji) is a token of its own. Whitespace is never in a token.
"""

from __future__ import annotations

import re

_URL = r"(?:https?://|www\.)[^\s<>\"]*[^\s<>\".,;:!?)\]}']"
_EMAIL = r"[\w.+-]+@[\w-]+\.(?:[\w-]\.?)+[\w-]"
_MENTION = r"@\w+"
_HASHTAG = r"\#\w*[^\W\d]\w*"
_EMOTICON = r"(?:[<>]?[:;=8][\-o*']?[)\](\[dp/\\|}{@](?!\w))|(?:[)\](\[/\\|}{][\-o*']?[:;=8](?!\w))|<3"
_NUMBER = r"[+-]?\d+(?:[.,/:]\d+)*(?:st|nd|rd|th)?%?"
_WORD = r"[^\W\d_](?:\w|['’\-](?=\w))*"
_ELLIPSIS = r"\.{2,}|…"
_TOKEN = re.compile("|".join([_URL, _EMAIL, _MENTION, _HASHTAG, _EMOTICON, _NUMBER, _WORD, _ELLIPSIS, r"\w+|\S"]))


def tokenize(text: str) -> list[str]:
    """Return the lower-cased tokens of a sentence, in order; empty or blank text has none."""
    return _TOKEN.findall(text.lower())
