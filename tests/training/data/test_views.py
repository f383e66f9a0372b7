from pathlib import Path

import lakes
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from schemas.documents import Document, ImageRef, Link, Provenance, Role, Sentence, Split
from schemas.manifest import read_manifest
from training.data.documents import DocumentSet
from training.data.index import read_index
from training.data.lake import Columns, read_split
from training.data.ragged import Ragged, sample_rows
from training.data.views import ALL_SENTENCES, TextView, viewed

SENTENCES = ((Role.HEADLINE, "h"), (Role.BODY, "b1"), (Role.CAPTION, "c"), (Role.BODY, "b2"))


def documents() -> DocumentSet:
    """A document with all but a lead, one with two captions, one without text."""
    roles = ("headline", "body", "caption", "body", "caption", "caption")
    return DocumentSet(
        ids=("a", "b", "c"),
        texts=("h", "b1", "c", "b2", "c1", "c2"),
        roles=roles,
        languages=("de", "fr", "de"),
        sentences=Ragged.of([4, 2, 0]),
        sentence_numbers=np.array([0, 1, 2, 3, 0, 1]),
        sentence_vectors=np.arange(6, dtype=np.float16)[:, None],
        image_rows=np.arange(3),
        images=Ragged.of([1, 1, 1]),
        image_hashes=("x", "y", "z"),
        image_bank=np.zeros((3, 1), np.float16),
        links=(np.array([[2, 0], [3, 0]]), None, np.zeros((0, 2), np.int64)),
    )


def test_sentences_of_some_roles_keep_their_vectors_and_links() -> None:
    found = viewed(documents(), TextView(roles=("caption",)))
    assert found.texts == ("c", "c1", "c2") and set(found.roles) == {"caption"}
    assert found.sentences.offsets.tolist() == [0, 1, 3, 3]
    assert found.sentence_vectors is not None and found.sentence_vectors[:, 0].tolist() == [2, 4, 5]
    assert found.links[0].tolist() == [[0, 0]] and found.links[1] is None and found.links[2].shape == (0, 2)


def test_fused_sources_are_one_row_a_document() -> None:
    found = viewed(documents(), TextView(roles=("headline", "lead", "caption", "body"), is_fused=True))
    assert found.sources == (("h", "", "c", "b1 b2"), ("", "", "c1 c2", ""))
    assert found.sentences.offsets.tolist() == [0, 1, 2, 2]
    assert found.texts == ("h", "c1 c2")
    assert found.links is not None and found.links[0] is not None and found.links[0].tolist() == [[0, 0]]
    given = documents()
    assert viewed(given, ALL_SENTENCES) is given


def test_the_index_counts_what_the_reader_gives(tmp_path: Path) -> None:
    made = lakes.make_documents(Split.TRAIN, 3, lakes.World(sentences=(4, 4)))
    kept = []
    for number, document in enumerate(made.documents):
        sentences = tuple(Sentence(text, role) for role, text in SENTENCES[: 4 - number])
        vectors = made.sentence_vectors[document.id][: len(sentences)]
        made.sentence_vectors[document.id] = vectors
        kept.append(
            Document(
                id=document.id,
                dataset="synthetic",
                sentences=sentences,
                images=tuple(ImageRef(image.hash) for image in document.images),
                links=(Link(0, 0),),
                provenance=Provenance(source="test", record_id=document.id),
                language=("de", "fr", "und")[number],
                split=Split.TRAIN,
            )
        )
    lake = lakes.write_lake(
        tmp_path, {Split.TRAIN: type(made)(tuple(kept), made.sentence_vectors, made.image_vectors)}, shards=1
    )
    manifest, folder = read_manifest(lake, "synthetic")
    for view in (ALL_SENTENCES, TextView(roles=("body",)), TextView(roles=("caption", "body"), is_fused=True)):
        index = read_index(manifest, folder, Split.TRAIN, view=view)
        found = read_split(manifest, folder, Split.TRAIN, Columns(images="auto"), view=view)
        assert index.sentences.counts.tolist() == found.sentences.counts.tolist()
        assert found.languages == ("de", "fr", "und")


@given(st.lists(st.tuples(st.integers(1, 15), st.integers(1, 15)), min_size=1, max_size=5), st.integers(1, 9))
def test_samples_are_rows_of_their_own_document(sizes: list[tuple[int, int]], most: int) -> None:
    n, m = ([size[i] for size in sizes] for i in (0, 1))
    made = DocumentSet(
        ids=tuple(map(str, range(len(sizes)))),
        texts=("",) * sum(n),
        sentences=Ragged.of(n),
        sentence_numbers=Ragged.of(n).numbers,
        sentence_vectors=None,
        image_rows=np.arange(sum(m)),
        images=Ragged.of(m),
        image_hashes=(),
        image_bank=np.zeros((0, 0), np.float16),
    )
    rows = np.arange(len(sizes))[::-1].copy()
    found = sample_rows(made, rows, max_rows=most, seed=0, epoch=1, step=2)
    for place, row in enumerate(rows):
        for sets, chosen, kept in (
            (made.sentences, found.sentence_rows, found.sentences),
            (made.images, found.image_rows, found.images),
        ):
            own, rows_of = chosen[kept.rows(place)], sets.rows(int(row))
            size = rows_of.stop - rows_of.start
            assert len(set(own)) == len(own) == min(most, size)
            assert ((own >= rows_of.start) & (own < rows_of.stop)).all()
    alone = sample_rows(made, rows[:1], max_rows=most, seed=0, epoch=1, step=2)
    assert alone.sentence_rows.tolist() == found.sentence_rows[: found.sentences.offsets[1]].tolist()
