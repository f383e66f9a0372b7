"""Tables of rights stay small, whatever is stated."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from pipelines.card.show import MOST, OTHERS, commonest


@given(st.dictionaries(st.text(max_size=3), st.integers(1, 9), max_size=200), st.integers(0, 9))
def test_the_commonest_statements_are_kept(numbers: dict[str, int], others: int) -> None:
    numbers.pop(OTHERS, None)
    order = sorted(numbers, key=lambda name: (-numbers[name], name))
    rest = sum(numbers[name] for name in order[MOST:]) + others
    expected = {name: numbers[name] for name in order[:MOST]} | ({OTHERS: rest} if rest else {})
    assert commonest(Counter(numbers | {OTHERS: others}), MOST) == expected
