"""What splits share is found, whoever reads first, as a comparison of all with all finds it; the weaker end goes.

Splits and shards are functions of the id: stable, in proportion, never empty where they need not be.
"""

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, get_args

import apache_beam as beam
import pytest
from all_with_all import bits_apart, hashed, settled
from apache_beam.testing.util import assert_that, equal_to
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.dedupe.transforms import FindDuplicates, by_hash
from pipelines.documents.rules import SettledDocument
from pipelines.launch import run_pipeline
from pipelines.partitions.columns import from_hex
from pipelines.settings import Policy, Runner, ShardsConfig, SharedThing, SplitsConfig
from pipelines.splits.assign import final_split, merge_surveys, shard_count, shard_of, survey_one
from pipelines.splits.shared import (
    ClusterOfImage,
    Items,
    is_heeded,
    is_weaker_end,
    leak_counts,
    leaks_of_images,
    leaks_of_items,
    meet_clusters,
    normalise,
    pack_shown,
    pack_texts,
)
from pipelines.splits.transforms import AssignSplits, FindLeaks, ListLeaks
from pipelines.transforms import CountThings
from schemas.documents import Image, Split
from schemas.duplicates import Leak, LeakKind

TRAIN, VAL, TEST = Split.TRAIN, Split.VAL, Split.TEST
EXACT, NEAR = LeakKind.EXACT_IMAGE, LeakKind.NEAR_IMAGE
ZERO, ONE_BIT, THREE_BITS, FAR = "0" * 16, "0" * 15 + "1", "0" * 15 + "7", "f" * 16
WORDS = ("sand", "oil", "cut", "glue", "paint")


def shows(document: str, split: Split, *names: str, texts: Sequence[str] = (), **fingerprints: str) -> SettledDocument:
    """Return a document whose images have no fingerprint but those given by name."""
    images = [Image(hashed(name), fingerprint=fingerprints.get(name)) for name in names]
    return settled(document, images, split, texts)


def clusters_of(documents: Sequence[SettledDocument], radius: int) -> dict[str, str]:
    """Return the cluster of each image that has a duplicate, by comparing all images with all until nothing changes."""
    shown = [found.image for each in documents for found in each.images if not found.image.is_flat]
    images = {image.hash: image for image in shown}
    clusters = {key: key for key, times in Counter(image.hash for image in shown).items() if times > 1}
    distances = [(pair, bits_apart(*pair)) for pair in combinations(images.values(), 2)]
    near = [pair for pair, distance in distances if distance is not None and distance <= radius]
    clusters |= {image.hash: image.hash for pair in near for image in pair}
    while joined := [pair for pair in near if clusters[pair[0].hash] != clusters[pair[1].hash]]:
        for pair in joined:
            smallest = min(clusters[image.hash] for image in pair)
            clusters |= dict.fromkeys((image.hash for image in pair), smallest)
    return clusters


def find(documents: Sequence[SettledDocument], *, radius: int) -> list[Leak]:
    """Return what the steps find in one partition."""
    texts, clusters = Items.concatenate(pack_texts(documents)), clusters_of(documents, radius)
    known = ClusterOfImage(from_hex([*clusters]), from_hex([*clusters.values()]))
    images = meet_clusters(pack_shown(documents), [known]) if clusters else None
    return sorted([*leaks_of_items(texts), *(leaks_of_images(images) if images is not None else ())])


def brute_force(
    documents: Sequence[SettledDocument], *, radius: int, deduped: Sequence[SettledDocument] = ()
) -> list[Leak]:
    """Return the leaks by comparing all documents with all; near images are in a cluster of what dedupe was given."""
    found: dict[tuple[LeakKind, Split, Split, str, str], tuple[str, str]] = {}
    tokens: dict[tuple[LeakKind, str], int] = {}
    clusters = clusters_of(deduped or documents, radius)
    for one in documents:
        for two in documents:
            if one.document.split is two.document.split or one.document.split is None or two.document.split is None:
                continue
            for kind, key, other_key, words in shared(one, two, clusters):
                end = (kind, one.document.split, two.document.split, key, one.document.id)
                found[end] = min(found.get(end, ("~", "")), (two.document.id, other_key))
                tokens[kind, key] = words
    return sorted(
        Leak(*end, document, other_key, tokens[end[0], end[3]]) for end, (document, other_key) in found.items()
    )


def shared(
    one: SettledDocument, two: SettledDocument, clusters: Mapping[str, str]
) -> Iterator[tuple[LeakKind, str, str, int]]:
    """Yield what two documents share: kind, key, the other's key, words."""
    for x in (found.image.hash for found in one.images if not found.image.is_flat):
        for y in (found.image.hash for found in two.images if not found.image.is_flat):
            if x == y:
                yield EXACT, x, x, 0
            elif x in clusters and clusters[x] == clusters.get(y):
                yield NEAR, x, y, 0
    first, second = ([normalise(sentence.text) for sentence in each.document.sentences] for each in (one, two))
    for text in set(first) & set(second):
        if len(text.split()) >= 5:
            yield LeakKind.SENTENCE, text, text, len(text.split())
    words = " ".join(first).split()
    if sorted(filter(None, first)) == sorted(filter(None, second)) and len(words) >= 5:
        text = " ".join(sorted(filter(None, first)))
        yield LeakKind.DOCUMENT_TEXT, text, text, len(words)


def to_drop(leaks: Iterable[Leak], config: SplitsConfig) -> set[str]:
    return {leak.document for leak in leaks if is_heeded(leak, config) and is_weaker_end(leak)}


def count(leaks: Iterable[Leak]) -> list[dict[str, Any]]:
    ends: dict[tuple[LeakKind, Split, Split], list[Leak]] = {}
    for leak in leaks:
        ends.setdefault((leak.kind, leak.split, leak.other_split), []).append(leak)
    return [
        {
            **dict(zip(("kind", "split", "other_split"), end, strict=True)),
            "keys": len({leak.key for leak in some}),
            "documents": len({leak.document for leak in some}),
        }
        for end, some in sorted(ends.items())
    ]


def made_up(seed: int, documents: int = 60) -> list[SettledDocument]:
    """Return documents in three splits over few images, near, equal, flat and without pixels, and few texts."""
    chance = random.Random(seed)
    images = [Image(hashed("blind"))]
    for centre in range(8):
        code = chance.getrandbits(64)
        for step in range(4):
            near = code ^ sum(1 << bit for bit in chance.sample(range(64), step))
            images.append(Image(hashed(f"{centre}-{step}"), fingerprint=f"{near:016x}", is_flat=centre == 7))
    found = []
    for number in range(documents):
        text = " ".join(chance.choices(WORDS, k=chance.choice((2, 5, 6))))
        texts = [text, f"only in {number}, whatever else there may be"]
        split, shown = chance.choice(tuple(Split)), chance.choices(images, k=2)
        found.append(settled(f"d{number:02}", shown, split, texts))
    if found:
        first = found[0].document
        found.append(settled("again", (), TEST, [sentence.text for sentence in first.sentences[::-1]]))
        found[0] = settled(first.id, images[:2], TRAIN, [sentence.text for sentence in first.sentences])
    return found


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


def test_a_sentence_of_five_words_leaks_and_one_of_four_does_not() -> None:
    documents = [
        shows("a", TRAIN, texts=("Sand the board with care.", "Let it dry overnight.", "A one.")),
        shows("b", VAL, texts=("Let it dry overnight.", "sand the board, WITH care")),
    ]
    text = "sand the board with care"
    assert find(documents, radius=3) == [
        Leak(LeakKind.SENTENCE, TRAIN, VAL, text, "a", "b", text, tokens=5),
        Leak(LeakKind.SENTENCE, VAL, TRAIN, text, "b", "a", text, tokens=5),
    ]


def test_a_document_of_the_same_sentences_leaks_whatever_their_order() -> None:
    documents = [
        shows("a", TRAIN, texts=("Cut it.", "", "Sand and paint it.")),
        shows("b", TEST, texts=("Sand and paint it!", "cut it")),
        shows("c", TRAIN, texts=("One two", "three four")),
        shows("d", TEST, texts=("one two", "three four")),
    ]
    whole = "cut it sand and paint it"
    assert find(documents, radius=3) == [
        Leak(LeakKind.DOCUMENT_TEXT, TEST, TRAIN, whole, "b", "a", whole, tokens=6),
        Leak(LeakKind.DOCUMENT_TEXT, TRAIN, TEST, whole, "a", "b", whole, tokens=6),
    ]


def test_long_texts_are_compared_whole_and_shown_short() -> None:
    long, longer = "word " * 100 + "end", "word " * 100 + "other"
    documents = [
        shows("a", TRAIN, texts=(long, longer)),
        shows("b", TEST, texts=(long,)),
        shows("c", TEST, texts=["no"]),
    ]
    (leak,) = [leak for leak in find(documents, radius=3) if leak.document == "b" and leak.split is TEST]
    assert leak.key.startswith("word " * 24 + "... ")
    documents[2] = shows("c", TEST, texts=(longer, "another sentence"))
    assert len({leak.key for leak in find(documents, radius=3)}) == 2


def test_the_weaker_split_loses() -> None:
    documents = [
        shows("train-val", TRAIN, "x"), shows("val", VAL, "x"),
        shows("train-test", TRAIN, "y"), shows("test", TEST, "y", "z"),
        shows("val-test", VAL, "z"), shows("clean", TRAIN, "w"),
    ]  # fmt: skip
    assert to_drop(find(documents, radius=0), SplitsConfig()) == {"train-val", "train-test", "val-test"}


def test_what_is_heeded_is_a_setting() -> None:
    short, long = "Sand the board with care.", "Sand the board with care, then oil it twice and wait."
    documents = [
        shows("exact", TRAIN, "x"),
        shows("near", TRAIN, "y", y=ONE_BIT),
        shows("short", TRAIN, texts=(short,)),
        shows("long", TRAIN, texts=(long,)),
        shows("t", TEST, "x", "z", texts=(short, long), z=ZERO),
    ]
    leaks = find(documents, radius=1)
    assert {leak.document for leak in leaks} == {"exact", "near", "short", "long", "t"}
    assert to_drop(leaks, SplitsConfig()) == {"exact", "near", "long"}
    assert to_drop(leaks, SplitsConfig(leak_min_tokens=5)) == {"exact", "near", "short", "long"}
    assert to_drop(leaks, SplitsConfig(leak_min_tokens=12)) == {"exact", "near"}
    for kind, document in zip(get_args(SharedThing), ("exact", "near", "long"), strict=True):
        assert to_drop(leaks, SplitsConfig(leak_kinds=(kind,))) == {document}
    assert to_drop(leaks, SplitsConfig(leak_kinds=())) == set()


_IMAGES = st.lists(st.sampled_from(range(7)), max_size=3)
_CODES = [f"{code:016x}" for code in (0b0, 0b1, 0b111, 0b11111, 0b0, 0xFFFF)]


@given(st.lists(st.tuples(st.sampled_from(Split), _IMAGES), max_size=8), st.integers(0, 3), st.randoms())
def test_images_leak_as_comparing_all_with_all_says(
    shown: list[tuple[Split, list[int]]], radius: int, shuffler: random.Random
) -> None:
    images = [*(Image(hashed(f"h{n}"), fingerprint=code) for n, code in enumerate(_CODES)), Image(hashed("blind"))]
    documents = [settled(f"d{n}", [images[i] for i in some], split) for n, (split, some) in enumerate(shown)]
    expected = brute_force(documents, radius=radius)
    assert find(documents, radius=radius) == expected
    shuffler.shuffle(documents)
    assert find(documents, radius=radius) == expected


@given(st.integers(0, 10**6), st.integers(0, 12))
@settings(max_examples=25)
def test_documents_leak_as_comparing_all_with_all_says(seed: int, radius: int) -> None:
    documents = made_up(seed)
    assert find(documents, radius=radius) == brute_force(documents, radius=radius)


def counted(leaks: beam.PCollection) -> beam.PCollection:
    facts = leaks | ListLeaks() | CountThings()
    return facts | beam.Values() | beam.combiners.ToList() | beam.FlatMap(leak_counts)


@pytest.mark.parametrize(("rows", "workers"), [(1 << 16, 1), (9, 2)])
def test_the_stage_finds_and_counts_the_same(rows: int, workers: int) -> None:
    """Whatever the number of partitions and of processes, in which duplicates are found, too."""
    documents = made_up(5)
    expected = brute_force(documents, radius=3)
    assert {leak.kind for leak in expected} == set(LeakKind)

    def assemble(root: beam.Pipeline) -> None:
        given = root | beam.Create(documents)
        duplicates = given | "dedupe" >> FindDuplicates(by_hash(3, rows=rows), Policy.KEEP_ALL, rows)
        leaks = given | "leaks" >> FindLeaks(duplicates.duplicates, rows)
        assert_that(leaks, equal_to(expected), label="leaks")
        assert_that(counted(leaks), equal_to(count(expected)), label="counts")

    run_pipeline(assemble, runner=Runner.LOCAL, workers=workers)


def test_documents_that_were_dropped_leak_nothing() -> None:
    documents = made_up(6)
    kept = documents[::3]

    def assemble(root: beam.Pipeline) -> None:
        duplicates = root | "all" >> beam.Create(documents) | "dedupe" >> FindDuplicates(by_hash(3), Policy.KEEP_ALL)
        leaks = root | "kept" >> beam.Create(kept) | "leaks" >> FindLeaks(duplicates.duplicates)
        assert_that(leaks, equal_to(brute_force(kept, radius=3, deduped=documents)))

    run_pipeline(assemble, runner=Runner.LOCAL, workers=1)


@pytest.mark.parametrize("number", [2, 40])
def test_every_document_gets_a_split_and_none_is_empty_that_need_not_be(number: int) -> None:
    documents = [settled(f"d{n}", ()) for n in range(number)]

    def check(found: list[SettledDocument]) -> None:
        splits = {each.document.id: each.document.split for each in found}
        assert sorted(splits) == sorted(each.document.id for each in documents)
        assert None not in splits.values() and len(set(splits.values())) == min(number, 3)

    def assemble(root: beam.Pipeline) -> None:
        assert_that(root | beam.Create(documents) | AssignSplits(SplitsConfig()), check)

    run_pipeline(assemble, runner=Runner.LOCAL, workers=1)


CONFIG = SplitsConfig()


def assign(ids: list[str], config: SplitsConfig = CONFIG) -> dict[str, Split]:
    moves = merge_surveys([survey_one(i, None, config) for i in ids]).moves(config)
    return {i: final_split(i, None, config, moves) for i in ids}


def test_shares_are_kept() -> None:
    counts = Counter(assign([f"doc{i}" for i in range(20_000)]).values())
    assert [counts[split] / 20_000 for split in (VAL, TEST)] == pytest.approx([0.1, 0.1], abs=0.01)


def test_later_documents_move_none_that_were_there() -> None:
    ids = [f"doc{i}" for i in range(500)]
    after = assign([*ids, *(f"new{i}" for i in range(500))])
    assert assign(ids) == {i: after[i] for i in ids}


@given(st.lists(st.text(min_size=1, max_size=8), min_size=3, max_size=40, unique=True), st.integers(0, 9))
def test_no_split_is_empty_and_order_does_not_matter(ids: list[str], rotation: int) -> None:
    assigned = assign(ids)
    assert set(assigned.values()) == set(Split)
    at = rotation % len(ids)
    assert assign(ids[at:] + ids[:at]) == assigned


def test_a_split_the_source_gives_is_kept_and_nothing_is_moved() -> None:
    assert merge_surveys([survey_one(f"d{i}", Split.TRAIN, CONFIG) for i in range(5)]).moves(CONFIG) == {}
    assert final_split("d0", Split.TEST, CONFIG, {}) is Split.TEST


@given(st.text(), st.integers(1, 64))
def test_a_shard_is_in_range_and_stable(document_id: str, count: int) -> None:
    assert 0 <= shard_of(document_id, count=count) < count
    assert shard_of(document_id, count=count) == shard_of(document_id, count=count)


def test_shards_follow_the_number_of_documents() -> None:
    config = ShardsConfig(documents=128)
    assert [shard_count(n, config) for n in (0, 1, 128, 129, 1280)] == [1, 1, 1, 2, 10]
    assert shard_count(100_000_000, config) == shard_count(128 * 16_384, config) == 16_384
