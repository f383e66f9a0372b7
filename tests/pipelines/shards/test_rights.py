"""Tables of rights stay small, whatever is stated and whatever is merged first."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from pipelines.shards.rights import MOST, OTHERS, merge_rights


@given(st.dictionaries(st.text(max_size=3), st.integers(1, 9), max_size=200), st.randoms(), st.integers(1, 9))
def test_the_commonest_statements_are_kept_in_any_order(numbers: dict[str, int], random: object, parts: int) -> None:
    numbers.pop(OTHERS, None)
    statements = list(numbers.items())
    random.shuffle(statements)  # type: ignore[attr-defined]
    merged = merge_rights(merge_rights({name: n} for name, n in statements[part::parts]) for part in range(parts))
    order = sorted(numbers, key=lambda name: (-numbers[name], name))
    rest = sum(numbers[name] for name in order[MOST:])
    assert merged == {name: numbers[name] for name in order[:MOST]} | ({OTHERS: rest} if rest else {})
    assert Counter(merged).total() == sum(numbers.values()) and len(merged) <= MOST + 1
