import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.text.vocabulary import tokenize


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Don't PANIC!", ["don't", "panic", "!"]),
        ("see https://example.org/a?b=c, ok", ["see", "https://example.org/a?b=c", ",", "ok"]),
        ("www.example.org.", ["www.example.org", "."]),
        ("@Someone likes #CatsOfEarth", ["@someone", "likes", "#catsofearth"]),
        ("happy :) sad :-( <3", ["happy", ":)", "sad", ":-(", "<3"]),
        ("costs 1,200.50 or 50%", ["costs", "1,200.50", "or", "50%"]),
        ("the 3rd well-known one", ["the", "3rd", "well-known", "one"]),
        ("wait... what", ["wait", "...", "what"]),
        ("naïve Straße", ["naïve", "straße"]),
        ("🙂🙂", ["🙂", "🙂"]),
        ("[male] and (two)", ["[", "male", "]", "and", "(", "two", ")"]),
        ("mail me@example.org", ["mail", "me@example.org"]),
        (" \n\t ", []),
        ("", []),
    ],
)
def test_tokens(text: str, expected: list[str]) -> None:
    assert tokenize(text) == expected


@given(st.text())
def test_nothing_but_whitespace_is_lost(text: str) -> None:
    assert "".join(tokenize(text)) == "".join(text.lower().split())
