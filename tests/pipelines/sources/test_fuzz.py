"""Whatever a published file holds, a source gives documents, failure rows, or one of the project's own errors.

Each fixture is mutated as bytes and, where it is JSON, as values; some mutants go into an archive, whose bytes are
mutated in turn. Pages, the answers of APIs and dumps are mutated alike and go through their parsers as the stage calls
them. Seeded: a mutant that fails fails again.
"""

import contextlib
import copy
import gzip
import io
import json
import random
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import webdataset
from candidates import uris_of
from corpus_files import flat, tar_of, warc_of
from published import read_source

from pipelines.config import recipe
from pipelines.documents.rules import check_candidate
from pipelines.embedded import read_picture
from pipelines.files import BrokenInputError, read_tree
from pipelines.named_files import FileRejected
from pipelines.shards.writing import content_digest
from pipelines.sources.corpora.compose import INTERLEAVED_SCHEMA
from pipelines.sources.datasets.coherence import CiteSource, ClueSource
from pipelines.sources.datasets.corpora import CorpusSource, Format
from pipelines.sources.datasets.documents import DocumentsSource
from pipelines.sources.datasets.hessel import MultiRetrievalSource, RecipeqaSource
from pipelines.sources.datasets.mscoco import MscocoSource
from pipelines.sources.datasets.news import NewsSource
from pipelines.sources.datasets.vist import VistSource
from pipelines.sources.datasets.wikipedia import article_wikitext, parse_metadata
from pipelines.sources.diy.albums import parse_album_api, parse_album_page
from pipelines.sources.diy.submissions import find_album, read_dump, reject_submission
from pipelines.sources.html import read_page
from pipelines.sources.records import CandidateDocument, outcomes_of
from pipelines.sources.takedowns import Takedowns
from pipelines.sources.wikipedia.articles import parse_article, strip_markup
from schemas.failures import Failure
from schemas.messages import BuildError, UsageError
from schemas.versions import canonical_json, content

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
# Of each source: what a trial tries are others.
MUTANTS = [range(40), pytest.param(range(40, 400), marks=pytest.mark.trial)]
EVERY = recipe("documents").documents
FEW = {"true_images": 2, "fake_images": 1, "distractors": 1, "val": 0.0, "test": 0.0}
SOURCES: dict[str, tuple[Path, Callable[[str], Any]]] = {
    "mscoco": (FIXTURES / "mscoco/captions_train2014.json", lambda path: MscocoSource(captions=(path,), **FEW)),
    "dii": (FIXTURES / "vist/train.description-in-isolation.json", lambda path: VistSource(train=path)),
    "sis": (FIXTURES / "vist/val.story-in-sequence.json", lambda path: VistSource(kind="sis", val=path)),
    "stress": (
        FIXTURES / "vist/train.description-in-isolation.json",
        lambda path: VistSource(kind="dii-stress", train=path, distractors=2),
    ),
    "recipeqa": (FIXTURES / "recipeqa/train.json", lambda path: RecipeqaSource(train=path, val=path)),
    "cite": (FIXTURES / "cite/data.csv", lambda path: CiteSource(train=path)),
    "cite++": (FIXTURES / "cite/train.csv", lambda path: CiteSource(train=path, test=str(FIXTURES / "cite/test.csv"))),
    "clue": (FIXTURES / "clue/conceptual_train_dis.csv", lambda path: ClueSource(train=path)),
    "clue's numbers": (
        FIXTURES / "clue/img2idxmap.json",
        lambda path: ClueSource(
            train=str(FIXTURES / "clue/conceptual_train_dis.csv"), numbers=path, images=str(FIXTURES)
        ),
    ),
    "news": (FIXTURES / "news/articles.jsonl", lambda path: NewsSource(articles=path)),
}
DOCUMENT = {
    "id": "a",
    "language": "en",
    "split": "train",
    "sentences": ["One.", {"text": "Two", "role": "body"}],
    "images": [{"path": "a.jpg"}, {"url": "https://h/b.jpg"}],
    "links": [[0, 1]],
}
RELEASED = {"train": [[[["i0", 1], ["i1", -1]], [["a", -1], ["b", 0]], {"id": "x"}]], "val": [], "test": None}
SHOWN = {"image_name": "a.jpg", "raw_url": "https://h/a.jpg", "matched_text_index": 1, "matched_sim": 0.25}
MATCHED = {
    "text_list": ["One.", "Two."],
    "image_info": [SHOWN],
    "similarity_matrix": [[0.5, 0.25]],
    "url": "https://h/",
}
WRITTEN = {
    "documents": json.dumps(DOCUMENT) + '\n{"id": 2}\n',
    "multi-retrieval": json.dumps(RELEASED),
    "mmc4": f"{json.dumps(MATCHED)}\n" * 4,
}
ODD_TEXTS = [
    "",
    "\0",
    "\ud800",
    "\ufeff",
    "\u202e\u0301",
    "../" * 9,
    "/etc/passwd",
    "http://[",
    "row:1",
    "&#xD800;&lt;",
    "x" * 9000,
]
ODD_VALUES = [None, True, -1, 0, 10**30, 1e308, float("nan"), [], {}, [[]], {"id": {}}, *ODD_TEXTS]


def flip(data: bytes, draw: random.Random) -> bytes:
    mutant = bytearray(data)
    for _ in range(draw.choice((1, 2, 8, 64))):
        if mutant:
            mutant[draw.randrange(len(mutant))] = draw.choice((0, 10, 34, 44, 92, 124, 255, draw.randrange(256)))
    return bytes(mutant)


def cut(data: bytes, draw: random.Random) -> bytes:
    start, end = sorted(draw.randrange(len(data) + 1) for _ in range(2))
    return data[:start] + data[end:] if draw.random() < 0.5 else data[:end]


def repeat(data: bytes, draw: random.Random) -> bytes:
    start, end = sorted(draw.randrange(len(data) + 1) for _ in range(2))
    return data[:end] + data[start:end] * draw.choice((1, 2, 20)) + data[end:]


def enlarge(data: bytes, draw: random.Random) -> bytes:
    """Return the data with a number made huge."""
    digits = [index for index, byte in enumerate(data) if 48 <= byte <= 57] or [0]
    index = draw.choice(digits)
    return data[:index] + draw.choice((b"9" * 30, b"9" * 5000, b"-1", b"1e999", b"0x1")) + data[index + 1 :]


def deepen(data: bytes, draw: random.Random) -> bytes:
    """Return the data with something nested where a value may be."""
    places = [index for index, byte in enumerate(data) if byte in b":[,"] or [0]
    index = draw.choice(places) + 1
    opening = draw.choice((b"[", b'{"a":', b"{", b'"', b"<b>"))
    return data[:index] + opening * draw.choice((1, 50, 20_000)) + data[index:]


def revalue(data: bytes, draw: random.Random) -> bytes:
    """Return JSON with a few values changed for odd ones, or dropped; other data with odd bytes in it."""
    try:
        lines = [json.loads(line) for line in (data.splitlines() if draw.random() < 0.5 else [data]) if line.strip()]
    except (ValueError, RecursionError):
        index = draw.randrange(len(data) + 1)
        return data[:index] + draw.choice(ODD_TEXTS).encode("utf-8", "surrogatepass") + data[index:]
    for _ in range(draw.choice((1, 3, 9))):
        holders = [holder for line in lines for holder in _holders(line) if holder]
        if holders:
            holder = draw.choice(holders)
            key = draw.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
            holder[key] = copy.deepcopy(draw.choice(ODD_VALUES))
            if draw.random() < 0.2:
                del holder[key]
    return "\n".join(map(json.dumps, lines)).encode()


def _holders(value: Any) -> Iterator[Any]:
    if isinstance(value, (dict, list)):
        yield value
        for part in value.values() if isinstance(value, dict) else value:
            yield from _holders(part)


MUTATIONS = (flip, cut, repeat, enlarge, deepen, revalue, revalue, revalue)


def mutated(data: bytes, draw: random.Random) -> bytes:
    for _ in range(draw.choice((1, 1, 2, 4))):
        data = draw.choice(MUTATIONS)(data, draw)[: 2**20]
    return data


def packed(data: bytes, name: str, draw: random.Random) -> tuple[bytes, str]:
    """Return a file in an archive or compressed, now and then with damaged bytes, and what follows its name."""
    stream = io.BytesIO()
    kind = draw.choice(("zip", "tar", "tgz", "gz"))
    if kind == "zip":
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(name, data)
    elif kind == "gz":
        stream.write(gzip.compress(data))
    else:
        stream.write(tar_of({name: data}, "w:gz" if kind == "tgz" else "w"))
    made = stream.getvalue()
    return draw.choice((bytes, partial(flip, draw=draw), partial(cut, draw=draw)))(made), f".{kind}"


def check(outcome: object) -> None:
    """Assert that an outcome is one, that its texts can be stored, and that what becomes of it has a digest."""
    assert isinstance(outcome, CandidateDocument | Failure)
    if isinstance(outcome, CandidateDocument):
        checked = check_candidate(outcome, config=EVERY)
        assert isinstance(checked, Failure) or canonical_json(content(checked)).encode()
    else:
        assert content_digest(outcome)
    texts = [str(getattr(outcome, field.name)) for field in fields(outcome)]
    assert all(text.encode() for text in texts)
    if isinstance(outcome, CandidateDocument):
        assert outcome.id.strip()
        "".join((*uris_of(outcome), *(sentence.text for sentence in outcome.sentences))).encode()
        assert all(0 <= link.sentence < len(outcome.sentences) for link in outcome.links or ())
        assert all(0 <= link.image < len(uris_of(outcome)) for link in outcome.links or ())


@pytest.mark.parametrize("seeds", MUTANTS)
@pytest.mark.parametrize("name", [*SOURCES, *WRITTEN])
def test_no_file_stops_a_source(name: str, seeds: range, tmp_path: Path) -> None:
    (tmp_path / "id2row.json").write_text('{"i0": 1, "i1": 2}')
    made: dict[str, Callable[[str], Any]] = {
        "documents": lambda path: DocumentsSource(documents=path),
        "mmc4": lambda path: CorpusSource(documents=(path,)),
        "multi-retrieval": lambda path: MultiRetrievalSource(documents=path, id2row=str(tmp_path / "id2row.json")),
    }
    fixture, make = SOURCES.get(name) or (tmp_path / "documents.json", made[name])
    original = WRITTEN[name].encode() if name in WRITTEN else fixture.read_bytes()
    read = 0
    for seed in seeds:
        draw = random.Random(f"{name} {seed}")
        data, path = mutated(original, draw), tmp_path / fixture.name
        address = str(path)
        if draw.random() < 0.2:
            data, suffix = packed(data, fixture.name, draw)
            path = tmp_path / f"{fixture.name}{suffix}"
            address = f"{path}!/{fixture.name}" if suffix != ".gz" else str(path)
        path.write_bytes(data)
        try:
            for outcome in read_source(make(address)):
                check(outcome)
                read += isinstance(outcome, CandidateDocument)
        except (BuildError, UsageError) as problem:
            assert str(problem)
    assert read > len(seeds) / 20, "some mutants should get as far as the records"


def warc(suffix: str, host: str = "h") -> bytes:
    """Return a crawl of four pages with a picture each."""
    text = "".join(f"<p>Cut the boards to the right length with a sharp saw, number {n}.</p>" for n in range(5))
    answers = {}
    for number in range(4):
        page = f"<html lang=en><body><article>{text}<img src='/{number}.jpg'>{text}</article></body></html>"
        url = f"https://{host}{number}.example/"
        answers |= {url: ("text/html", page.encode()), f"{url}{number}.jpg": ("image/jpeg", flat(number))}
    return warc_of(answers, gzip=suffix == "warc.gz")


def tar_of_samples(draw: random.Random) -> bytes:
    """Return pairs and documents, as webdataset writes them, with odd values in their JSON."""
    stream = io.BytesIO()
    with webdataset.TarWriter(stream) as writer:
        for number in range(4):
            about = {"texts": ["One.", None, "Two."], "images": [None, "0.png", None], "url": "https://h.example/"}
            told = about if number % 2 else {"caption": "A cat.", "url": "https://h.example/"}
            json_bytes = revalue(json.dumps(told).encode(), draw) if number > 1 else json.dumps(told).encode()
            writer.write({"__key__": f"k{number}", "0.png" if number % 2 else "png": flat(number), "json": json_bytes})
    return stream.getvalue()


def table(rows: list[dict[str, Any]], arrow: bool, schema: pa.Schema | None = None) -> bytes:
    stream = io.BytesIO()
    made = pa.Table.from_pylist(rows, schema=schema)
    if arrow:
        with pa.ipc.new_stream(stream, made.schema) as writer:
            writer.write_table(made, 2)
    else:
        pq.write_table(made, stream, row_group_size=2, compression="none")
    return stream.getvalue()


def odd_json(value: Any, draw: random.Random) -> str:
    return revalue(json.dumps(value).encode(), draw).decode("utf-8", "replace")


def rows_of_obelics(draw: random.Random) -> bytes:
    about = [{"alt_text": "A"}, None, None]
    row = {"images": ["a.png", None, None], "texts": [None, "One. Two.", "Three."]}
    return table(
        [row | {"metadata": odd_json(about, draw), "general_metadata": odd_json({"url": "u"}, draw)} for _ in range(4)],
        arrow=False,
    )


def rows_of_nemo(draw: random.Random) -> bytes:
    source = {"path": "a.tar", "member": "1.png", "byte_offset": 1, "byte_size": 4, "frame_index": 0}
    rows = []
    for sample in ("a", "b", "c"):
        row = {"sample_id": sample, "position": 0, "modality": "text", "text_content": "One. Two."}
        rows += [
            row,
            row | {"position": -1, "modality": "metadata", "text_content": odd_json({"url": "u"}, draw)},
            row | {"position": 1, "modality": "image", "binary_content": flat(1)},
            row | {"position": 2, "modality": "image", "source_ref": odd_json(source, draw)},
        ]
    return table(draw.sample(rows, len(rows)), False, INTERLEAVED_SCHEMA)


EXTRAS = {
    "id": "x", "language": "en", "split": "train", "roles": ["sentence", "body"], "images": [{"source": "s"}],
    "links": [{"sentence": 0, "image": 0, "relations": [{"name": "r", "value": True}]}], "after_sentence": [1],
    "given_links": [{"sentence": 0, "image": 0, "similarity": 0.5}], "given_similarities": [0.5, 0.25],
    "provenance": {"source": "s", "record_id": "r"},
}  # fmt: skip


def rows_of_hugging_face(draw: random.Random) -> bytes:
    row = {"images": [{"bytes": flat(1), "path": "1.png"}], "texts": ["One.", "Two."], "id": 3}
    return table(
        [row | {"multilink": odd_json(EXTRAS, draw) if n % 2 else None} for n in range(4)], draw.random() < 0.5
    )


CORPORA: dict[str, tuple[Format, str, Callable[[random.Random], bytes]]] = {
    "pairs and documents of a tar": ("webdataset", "a.tar", tar_of_samples),
    "rows of OBELICS": ("obelics", "a.parquet", rows_of_obelics),
    "rows of NeMo": ("interleaved", "a.parquet", rows_of_nemo),
    "rows of Hugging Face in Parquet": ("hf", "a.parquet", rows_of_hugging_face),
    "rows of Hugging Face in Arrow": ("hf", "a.arrow", rows_of_hugging_face),
    "a crawl": ("web", "a.warc", lambda draw: warc("warc")),
    "a compressed crawl": ("web", "a.warc.gz", lambda draw: warc("warc.gz")),
}


@pytest.mark.parametrize("seeds", MUTANTS)
@pytest.mark.parametrize("name", CORPORA)
def test_no_shard_stops_a_corpus_or_another_shard(name: str, seeds: range, tmp_path: Path) -> None:
    form, file, make = CORPORA[name]
    (tmp_path / "good").mkdir()
    good, read = tmp_path / "good" / file, 0
    whole = make(random.Random(0))
    if form == "hf":  # of Arrow or Parquet, by its name
        whole = table([{"images": [{"bytes": flat(1), "path": None}], "texts": ["One."]}], file.endswith("arrow"))
    if form == "web":  # captures of other pages: a shard may say that a page of another one is gone
        whole = warc(file.removeprefix("a."), host="g")
    good.write_bytes(whole)
    expected = sum(
        isinstance(each, CandidateDocument) for each in CorpusSource(format=form, documents=(str(good),)).read()
    )
    assert expected
    for seed in seeds:
        draw = random.Random(f"{name} {seed}")
        data = make(draw)
        if draw.random() < 0.7:
            data = draw.choice((flip, cut, repeat))(data, draw)
        (tmp_path / file).write_bytes(data)
        found = list(read_source(CorpusSource(format=form, documents=(str(tmp_path / file), str(good)))))
        for outcome in found:
            check(outcome)
        documents = [outcome for outcome in found if isinstance(outcome, CandidateDocument)]
        assert len(documents) >= expected
        read += len(documents) - expected
        for uri in {uri for document in documents[:-expected] for uri in uris_of(document) if "!/" in uri}:
            with contextlib.suppress(FileRejected):
                assert isinstance(read_picture(str(tmp_path), uri, max_bytes=10**6), bytes)
    assert read > len(seeds) / 20, "some mutants should get as far as the records"


@pytest.mark.parametrize("seeds", MUTANTS)
def test_no_archive_stops_a_tree(seeds: range, tmp_path: Path) -> None:
    files = {path.name: path.read_bytes() for path in (FIXTURES / "imageclef").rglob("*.xml")}
    for seed in seeds:
        draw = random.Random(seed)
        stream = io.BytesIO()
        if seed % 2:
            with zipfile.ZipFile(stream, "w", draw.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
                for name, data in files.items():
                    archive.writestr(name, data)
        else:
            stream.write(tar_of(files, draw.choice(("w", "w:gz", "w:bz2", "w:xz"))))
        path = tmp_path / f"a{'.zip' if seed % 2 else '.tar'}"
        path.write_bytes(draw.choice((flip, cut, repeat))(stream.getvalue(), draw))
        try:
            for _, found in read_tree(str(path), wanted=lambda name: True):
                assert isinstance(found, (bytes, BrokenInputError))
        except BrokenInputError as problem:
            check(problem.failure())


PICTURE = {
    "id": "a",
    "title": "t",
    "description": None,
    "type": "image/jpeg",
    "animated": False,
    "width": 9,
    "height": 9,
}
ALBUM_API = {
    "data": {"images": [PICTURE | {"size": 1, "link": "https://i.imgur.com/a.jpg"}]},
    "success": True,
    "status": 200,
}
ALBUM_PAGE = """<html><head><link rel="canonical" href="https://imgur.com/a/x"></head><body>
<div class="post-image-container" id="a1"><div class="post-image"><img itemprop="contentURL" src="//i.imgur.com/a1.jpg">
</div><div class="post-image-meta"><h2 class="post-image-title">One</h2><p class="post-image-description">A &amp; b</p>
</div></div><script>window.postDataJSON="{\\"media\\": [{\\"id\\": \\"c3\\"}]}"</script></body></html>"""
WIKITEXT = """{{Infobox|name=[[Dodo]]}}
The '''dodo''' is a [[bird|big bird]].<ref>x</ref>
== Heading ==
* item &amp; more
{|
|cell
|}
[[File:a.jpg|thumb|b]]"""
SUBMISSION = {
    "id": "x1", "subreddit": "DIY", "score": 30, "title": "A shelf", "url": "https://imgur.com/a/abc", "selftext": "",
    "permalink": "/r/DIY/x1", "created_utc": 1500000000, "author": "a", "over_18": False, "is_self": False,
}  # fmt: skip
ALL_TEXT = FIXTURES / "imageclef/all_text"
PARSERS: dict[str, tuple[bytes, Callable[[bytes], object]]] = {
    "album page": (ALBUM_PAGE.encode(), partial(parse_album_page, base_url="https://imgur.com/a/x")),
    "old album page": (
        ALBUM_PAGE.partition("<script>")[0].encode(),
        partial(parse_album_page, base_url="https://imgur.com/a/x"),
    ),
    "album API": (json.dumps(ALBUM_API).encode(), partial(parse_album_api, base_url="https://imgur.com/a/x")),
    "article": (
        (FIXTURES / "wikipedia/dodo.html").read_bytes(),
        partial(parse_article, base_url="https://h/wiki/Dodo"),
    ),
    "crawled page": ((FIXTURES / "wikipedia/dodo.html").read_bytes(), partial(read_page, url="https://h/wiki/Dodo")),
    "wikitext": (WIKITEXT.encode(), lambda data: strip_markup(data.decode(errors="replace"))),
    "metadata": ((ALL_TEXT / "metadata/9/82531.xml").read_bytes(), parse_metadata),
    "article XML": ((ALL_TEXT / "text/en/1/302887.xml").read_bytes(), article_wikitext),
}
TAGS = (
    "<![x", "<ref ", "<b ", "<div>", '<div class="post-image-container">', "{{", "[[", "<!--", f"&#{'9' * 5000};",
    '<img src="http://[">', "<!DOCTYPE a [<!ENTITY b 'c'>]>&b;",
)  # fmt: skip


@pytest.mark.parametrize("seeds", MUTANTS)
@pytest.mark.parametrize("name", PARSERS)
def test_no_page_stops_a_parser(name: str, seeds: range) -> None:
    original, parse = PARSERS[name]

    def read(data: bytes, _: str) -> list[CandidateDocument]:
        parse(data)
        return []

    for seed in seeds:
        draw = random.Random(f"{name} {seed}")
        data = mutated(original, draw)
        if draw.random() < 0.5:
            index = draw.randrange(len(data) + 1)
            data = data[:index] + draw.choice(TAGS).encode() * draw.choice((1, 30, 1000)) + data[index:]
        for outcome in outcomes_of([("a page", data)], read):
            check(outcome)


@pytest.mark.parametrize("seeds", MUTANTS)
def test_no_dump_stops_its_reader(seeds: range, tmp_path: Path) -> None:
    path = tmp_path / "RS_2018-01"
    for seed in seeds:
        path.write_bytes(mutated((json.dumps(SUBMISSION) + "\n").encode() * 3, random.Random(seed)))
        for outcome in read_dump(str(path), subreddit="DIY"):
            if isinstance(outcome, Failure):
                check(outcome)
            else:
                find_album(outcome.url)
                reject_submission(outcome, min_score=25, takedowns=Takedowns())
