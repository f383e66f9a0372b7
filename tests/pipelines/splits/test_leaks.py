"""What splits share is found, whoever reads first; what goes is the weaker end."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.settings import SharedThing, SplitsConfig
from pipelines.splits.leaks import (
    LeakCount,
    count_leaks,
    count_lines,
    documents_to_drop,
    find_leaks,
    refuse_leaks,
)
from pipelines.splits.traces import ImageTrace, Trace, normalise, trace_of
from schemas.documents import Document, ImageRef, Provenance, Sentence, Split
from schemas.errors import BuildError
from schemas.images import Image
from schemas.leaks import LEAK_SCHEMA, Leak, LeakKind, leak_row
from schemas.tables import to_table

TRAIN, VAL, TEST = Split.TRAIN, Split.VAL, Split.TEST
EXACT, NEAR = LeakKind.EXACT_IMAGE, LeakKind.NEAR_IMAGE
ZERO, ONE_BIT, THREE_BITS, FAR = "0" * 16, "0" * 15 + "1", "0" * 15 + "7", "f" * 16


def trace(document: str, split: Split, *images: str, texts: tuple[str, ...] = (), **fingerprints: str) -> Trace:
    """Return a trace whose images have no fingerprint but those given by name."""
    return Trace(document, split, tuple(ImageTrace(image, fingerprints.get(image)) for image in images), texts)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("  Cut the\tBoard. ", "cut the board"),
        ("Don't, don’t!", "dont dont"),
        ("STRASSE Straße", "strasse strasse"),
        ("ﬁnished ２×4", "finished 2 4"),
        ("well-known/unknown", "well known unknown"),
        ("हिन्दी में", "हिन्दी में"),
        ("...", ""),
    ],
)
def test_a_text_is_its_words(text: str, words: str) -> None:
    assert normalise(text) == words


def test_an_image_in_two_splits_has_a_row_at_each_end() -> None:
    traces = [trace("a", TRAIN, "x", "x"), trace("b", TEST, "x"), trace("c", TEST, "y"), trace("d", TRAIN, "z")]
    assert find_leaks(traces, radius=0) == [
        Leak(EXACT, TEST, TRAIN, "x", "b", "a", "x"),
        Leak(EXACT, TRAIN, TEST, "x", "a", "b", "x"),
    ]


def test_an_image_twice_in_one_split_is_no_leak() -> None:
    assert find_leaks([trace("a", TRAIN, "x"), trace("b", TRAIN, "x", x=ZERO)], radius=3) == []


def test_each_document_names_the_first_one_of_each_other_split() -> None:
    traces = [trace("t2", TEST, "x"), trace("t1", TEST, "x"), trace("a", TRAIN, "x"), trace("v", VAL, "x")]
    found = [(leak.document, leak.other_document) for leak in find_leaks(traces, radius=0)]
    assert sorted(found) == [("a", "t1"), ("a", "v"), ("t1", "a"), ("t1", "v"), ("t2", "a"), ("t2", "v"), ("v", "a"),
                             ("v", "t1")]  # fmt: skip


def test_near_images_are_within_the_radius_and_not_the_same_bytes() -> None:
    traces = [
        trace("a", TRAIN, "x", x=ZERO),
        trace("b", TEST, "y", y=THREE_BITS),
        trace("c", TEST, "z", z=ONE_BIT),
        trace("d", TEST, "w", w=FAR),
    ]
    assert find_leaks(traces, radius=0) == []
    assert find_leaks(traces, radius=1) == [
        Leak(NEAR, TEST, TRAIN, "z", "c", "a", "x", 1),
        Leak(NEAR, TRAIN, TEST, "x", "a", "c", "z", 1),
    ]
    assert find_leaks(traces, radius=3) == [
        Leak(NEAR, TEST, TRAIN, "y", "b", "a", "x", 3),
        Leak(NEAR, TEST, TRAIN, "z", "c", "a", "x", 1),
        Leak(NEAR, TRAIN, TEST, "x", "a", "c", "z", 1),
    ]


def test_equal_bytes_are_exact_and_not_near_but_equal_looks_are_near() -> None:
    traces = [trace("a", TRAIN, "x", x=ZERO), trace("b", TEST, "x", x=ZERO), trace("c", TEST, "y", y=ZERO)]
    near = [leak for leak in find_leaks(traces, radius=0) if leak.kind is NEAR]
    assert near == [Leak(NEAR, TEST, TRAIN, "y", "c", "a", "x", 0), Leak(NEAR, TRAIN, TEST, "x", "a", "c", "y", 0)]


def test_a_sentence_of_five_words_leaks_and_one_of_four_does_not() -> None:
    traces = [
        trace("a", TRAIN, texts=("Sand the board with care.", "Let it dry overnight.", "A one.")),
        trace("b", VAL, texts=("Let it dry overnight.", "sand the board, WITH care")),
    ]
    assert find_leaks(traces, radius=3) == [
        Leak(LeakKind.SENTENCE, TRAIN, VAL, "sand the board with care", "a", "b", "sand the board with care", tokens=5),
        Leak(LeakKind.SENTENCE, VAL, TRAIN, "sand the board with care", "b", "a", "sand the board with care", tokens=5),
    ]


def test_a_document_of_the_same_sentences_leaks_whatever_their_order() -> None:
    traces = [
        trace("a", TRAIN, texts=("Cut it.", "", "Sand and paint it.")),
        trace("b", TEST, texts=("Sand and paint it!", "cut it")),
        trace("c", TRAIN, texts=("One two", "three four")),
        trace("d", TEST, texts=("one two", "three four")),
    ]
    whole = "cut it sand and paint it"
    assert find_leaks(traces, radius=3) == [
        Leak(LeakKind.DOCUMENT_TEXT, TEST, TRAIN, whole, "b", "a", whole, tokens=6),
        Leak(LeakKind.DOCUMENT_TEXT, TRAIN, TEST, whole, "a", "b", whole, tokens=6),
    ]


def test_long_texts_are_compared_whole_and_shown_short() -> None:
    long, longer = "word " * 100 + "end", "word " * 100 + "other"
    traces = [trace("a", TRAIN, texts=(long, longer)), trace("b", TEST, texts=(long,)), trace("c", TEST, texts=("no",))]
    (leak,) = [leak for leak in find_leaks(traces, radius=3) if leak.document == "b" and leak.split is TEST]
    assert leak.key.startswith("word " * 24 + "... ")
    traces[2] = trace("c", TEST, texts=(longer, "another sentence"))
    keys = {leak.key for leak in find_leaks(traces, radius=3)}
    assert len(keys) == 2


def test_counts_are_of_distinct_things_and_documents() -> None:
    traces = [
        trace("a", TRAIN, "x", "y"), trace("b", TRAIN, "x"), trace("c", TEST, "x", "y"), trace("d", TEST, "z"),
    ]  # fmt: skip
    counts = count_leaks(find_leaks(traces, radius=0))
    assert counts == [LeakCount(EXACT, TEST, TRAIN, 2, 1), LeakCount(EXACT, TRAIN, TEST, 2, 2)]
    assert count_lines(counts) == ["exact-image: 2 of test (1 documents) are in train"]


def test_the_weaker_split_loses() -> None:
    traces = [
        trace("train-val", TRAIN, "x"), trace("val", VAL, "x"),
        trace("train-test", TRAIN, "y"), trace("test", TEST, "y", "z"),
        trace("val-test", VAL, "z"), trace("clean", TRAIN, "w"),
    ]  # fmt: skip
    assert documents_to_drop(find_leaks(traces, radius=0), SplitsConfig()) == {"train-val", "train-test", "val-test"}


def test_refusing_names_what_leaks() -> None:
    refuse_leaks([])
    with pytest.raises(BuildError, match=r"exact-image: 2 of test \(1 documents\) are in train; drop them"):
        refuse_leaks([LeakCount(EXACT, TEST, TRAIN, 2, 1), LeakCount(EXACT, TRAIN, TEST, 2, 2)])


def test_a_trace_leaves_flat_images_out() -> None:
    document = Document(
        id="d", dataset="diy", sentences=(Sentence("A."),), images=(ImageRef("x"), ImageRef("white")), links=None,
        provenance=Provenance("reddit", "d"), split=VAL,
    )  # fmt: skip
    images = {"x": Image("x", fingerprint=ZERO), "white": Image("white", fingerprint=FAR, is_flat=True)}
    assert trace_of(document, images) == Trace("d", VAL, (ImageTrace("x", ZERO),), ("A.",))


def test_leaks_are_rows_of_their_table() -> None:
    leak = Leak(NEAR, TEST, TRAIN, "y", "b", "a", "x", 3)
    assert to_table([leak_row(leak)], LEAK_SCHEMA).to_pylist() == [
        {"kind": "near-image", "split": "test", "other_split": "train", "key": "y", "document": "b",
         "other_document": "a", "other_key": "x", "distance": 3, "tokens": 0}
    ]  # fmt: skip


_IMAGES = st.lists(st.sampled_from(range(6)), max_size=3)


@given(st.lists(st.tuples(st.sampled_from(Split), _IMAGES), max_size=8), st.integers(0, 3), st.randoms())
def test_all_pairs_compared_give_the_same_ends(
    documents: list[tuple[Split, list[int]]], radius: int, shuffler: random.Random
) -> None:
    code = {0: 0b0, 1: 0b1, 2: 0b111, 3: 0b11111, 4: 0b0, 5: 0xFFFF}
    traces = [
        Trace(f"d{number}", split, tuple(ImageTrace(f"h{i}", f"{code[i]:016x}") for i in images), ())
        for number, (split, images) in enumerate(documents)
    ]
    expected: dict[tuple[object, ...], list[tuple[int, str, str]]] = {}
    for one in traces:
        for two in traces:
            for x in one.images:
                for y in two.images:
                    distance = (code[int(x.hash[1])] ^ code[int(y.hash[1])]).bit_count()
                    if one.split != two.split and distance <= radius:
                        kind = EXACT if x.hash == y.hash else NEAR
                        end = (kind, one.split, two.split, x.hash, one.document)
                        expected.setdefault(end, []).append((distance, y.hash, two.document))
    found = find_leaks(traces, radius=radius)
    ends = {(k.kind, k.split, k.other_split, k.key, k.document): k for k in found}
    assert len(ends) == len(found)
    assert {end: (k.distance, k.other_key, k.other_document) for end, k in ends.items()} == {
        end: min(others) for end, others in expected.items()
    }
    shuffler.shuffle(traces)
    assert find_leaks(traces, radius=radius) == found


def test_what_is_heeded_is_a_setting() -> None:
    short, long = "Sand the board with care.", "Sand the board with care, then oil it twice and wait."
    traces = [
        trace("exact", TRAIN, "x"),
        trace("near", TRAIN, "y", y=ONE_BIT),
        trace("short", TRAIN, texts=(short,)),
        trace("long", TRAIN, texts=(long,)),
        trace("t", TEST, "x", "z", texts=(short, long), z=ZERO),
    ]
    leaks = find_leaks(traces, radius=1)
    assert {leak.document for leak in leaks} == {"exact", "near", "short", "long", "t"}
    assert documents_to_drop(leaks, SplitsConfig()) == {"exact", "near", "long"}
    assert documents_to_drop(leaks, SplitsConfig(leak_min_tokens=5)) == {"exact", "near", "short", "long"}
    assert documents_to_drop(leaks, SplitsConfig(leak_min_tokens=12)) == {"exact", "near"}
    for kind, document in zip(SharedThing, ("exact", "near", "long"), strict=True):
        assert documents_to_drop(leaks, SplitsConfig(leak_kinds=(kind,))) == {document}
    assert documents_to_drop(leaks, SplitsConfig(leak_kinds=())) == frozenset()
