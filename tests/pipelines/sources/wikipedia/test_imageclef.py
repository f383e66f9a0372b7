"""The ImageCLEF Wikipedia collection, from a folder, a tar and a zip, with what is wrong in it."""

import tarfile
from pathlib import Path

import pytest
from candidates import after_of, candidate_of, names, parted, uris_of

from pipelines.sources.datasets.wikipedia import (
    ImageclefSource,
    NamedImage,
    parse_metadata,
    read_articles,
    with_sentences,
)
from pipelines.sources.records import CandidateDocument, FieldError
from pipelines.sources.wikipedia.articles import strip_markup
from schemas.documents import Provenance, Sentence
from schemas.failures import Failure

FOLDER = Path(__file__).parents[3] / "fixtures" / "imageclef" / "all_text"
DODO = (
    "The dodo (Raphus cucullatus) is an extinct flightless bird.",
    "It lived on Mauritius, an island east of Madagascar.",
    "It weighed 10.6 kg & more!",
    "Dr. Strickland wrote of it in 1848.",
    "Sailors ate it.",
    "Rats came too.",
    "Van Neck landed",
    "Others followed; see the log and",
    "Water is H2O where is not.",
    "Printed sources only.",
)
BAD_METADATA = [
    "metadata/12/120003.xml missing-field",
    "metadata/12/120004.xml broken-record",
    "metadata/9/9004.xml duplicate-record",  # 12/120002 has the same id and is read first
]


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def outcomes(source: ImageclefSource, *, min_images: int = 1) -> tuple[dict[str, CandidateDocument], list[str]]:
    drafts, failures = parted(
        outcome
        for article in read_articles(source, min_images=min_images)
        for outcome in ([article] if isinstance(article, Failure) else with_sentences(article, source=source))
    )
    return {draft.id: draft for draft in drafts}, names(failures)


def test_the_collection() -> None:
    drafts, failures = outcomes(ImageclefSource(texts=str(FOLDER)))
    assert drafts["302887"] == candidate_of(
        id="302887",
        dataset="wiki",
        sentences=tuple(map(Sentence, DODO)),
        # In the order of ids. 9004 names the article once: the first record of that id is the one that counts.
        image_uris=("images/12/120002.jpg", "images/9/82531.jpg", "images/12/120001.svg"),
        links=None,
        provenance=Provenance("imageclef-wikipedia", "text/en/1/302887"),
        language="en",
        image_licences=(None, "GFDL", None),
        after_sentence=(None, 0, None),  # the taxobox shows one; the metadata of the others give them no name
    )
    texts = {name: [sentence.text for sentence in draft.sentences] for name, draft in drafts.items()}
    assert texts == {
        "302887": [*DODO],
        "4410": ["Plain markup without any XML: café and tea.", "A second sentence."],
        "4413": ["An egg is laid \u2014 or bought."],
        "4411": [],  # a redirect
        "4414": ["Boxed text.", "More < less."],
    }
    assert uris_of(drafts["4410"]) == ("images/9/82531.jpg",)
    assert failures == [
        *BAD_METADATA,
        "text/en/2/4412 broken-record",
        "text/en/2/4415 too-few-images",
        "text/en/1/999999 not-found",
    ]


def test_another_language() -> None:
    drafts, failures = outcomes(ImageclefSource(texts=str(FOLDER), language="de"))
    assert (list(drafts), failures) == (["77"], BAD_METADATA)
    assert (drafts["77"].language, [sentence.text for sentence in drafts["77"].sentences]) == (
        "de",
        ["Der Dodo ist ein Vogel.", "Er ist ausgestorben."],
    )


def test_the_first_sentences_are_kept() -> None:
    drafts, _ = outcomes(ImageclefSource(texts=str(FOLDER), max_sentences=2))
    assert tuple(sentence.text for sentence in drafts["302887"].sentences) == DODO[:2]


def test_articles_with_too_few_images_are_not_split() -> None:
    drafts, failures = outcomes(ImageclefSource(texts=str(FOLDER)), min_images=3)
    assert list(drafts) == ["302887"]
    assert [failure for failure in failures if failure.endswith("too-few-images")] == [
        f"text/en/2/{number} too-few-images" for number in (4410, 4411, 4412, 4413, 4414, 4415)
    ]


def test_an_archive_cut_short_gives_what_was_before_and_a_failure(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "texts.tar", "w") as archive:
        archive.add(FOLDER / "text", arcname="text")
    whole = (tmp_path / "texts.tar").read_bytes()
    (tmp_path / "cut.tar").write_bytes(whole[: whole.index(b"Plain markup") + 20])
    _, failures = outcomes(ImageclefSource(texts=str(tmp_path / "cut.tar"), metadata=str(FOLDER)))
    assert "cut.tar broken-record" in failures
    (tmp_path / "no.tar").write_bytes(b"<html>Not found</html>" * 100)
    assert outcomes(ImageclefSource(texts=str(tmp_path / "no.tar"))) == ({}, ["no.tar broken-record"] * 2)


def test_an_article_that_comes_twice(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "texts.tar", "w") as archive:
        for _ in range(2):
            archive.add(FOLDER / "text/en/2/4410.xml", arcname="text/en/2/4410.xml")
    drafts, failures = outcomes(ImageclefSource(texts=str(tmp_path / "texts.tar"), metadata=str(FOLDER)))
    assert list(drafts) == ["4410"] and "text/en/2/4410 duplicate-record" in failures


def test_metadata() -> None:
    data = (FOLDER / "metadata/9/82531.xml").read_bytes()
    articles = frozenset({"text/en/1/302887", "text/en/2/4410", "text/de/1/77"})
    assert parse_metadata(data) == (
        NamedImage(82531, "82531", "images/9/82531.jpg", "GFDL", "Dodo skeleton & egg.jpg"),
        articles,
    )
    with pytest.raises(FieldError, match="'image' with an 'id' and a 'file', found 'html'"):
        parse_metadata(b"<html/>")


BOMB = "<!DOCTYPE a [<!ENTITY a 'ha'><!ENTITY b '&a;&a;&a;&a;&a;&a;'>]><article><text>&b; End.</text></article>"
HOSTILE = {
    "deep": "<article><text>" + "<a>" * 200_000 + "</a>" * 200_000 + "</text></article>",
    "bomb": BOMB,
    "declared": f"<?xml version='1.0'?>{BOMB}",
    "after a comment": f"<!-- A --> {BOMB}",
    "external": "<!DOCTYPE a [<!ENTITY e SYSTEM 'file:///etc/passwd'>]><article><text>See &e; there.</text></article>",
    "long": "word " * 500_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_articles_are_rows_and_no_sentences(tmp_path: Path, name: str) -> None:
    write(tmp_path / "text/en/2/4410.xml", HOSTILE[name])
    drafts, failures = outcomes(ImageclefSource(texts=str(tmp_path), metadata=str(FOLDER)))
    assert drafts == {} and "text/en/2/4410 broken-record" in failures


def test_hostile_metadata_are_rows(tmp_path: Path) -> None:
    for number, text in enumerate(HOSTILE.values()):
        write(tmp_path / f"metadata/1/{number}.xml", text)
    drafts, failures = outcomes(ImageclefSource(texts=str(FOLDER), metadata=str(tmp_path)))
    assert (drafts, sum(each.startswith("metadata/") for each in failures)) == ({}, len(HOSTILE))


@pytest.mark.parametrize(
    ("markup", "expected"),
    [
        ("", []),
        ("a {{never closed\nb", ["a", "b"]),
        ("a [[b", ["a b"]),
        ("a}} b ]] c |} d --> e ~~~~", ["a b c d e"]),
        ("{| class=x\n|-\n| a || b\n\nc <!-- d", ["c"]),
        ("a<ref name=b c</ref> d</div>", ["a d"]),
        ("a [[Archivo:b.jpg|c]] [[\u0424\u0430\u0439\u043b:d.png|e]] [[Categor\xeda:f]] [[CSI: g]]", ["a CSI: g"]),
        ("#REDIRECCI\xd3N [[Gato]]", []),
        ("''a '''b'' c'''", ["a b c"]),
        ("[[CSI: Miami]], [[:Category:Birds]], [[:de:Ei|Ei]] [[fr:Œuf]]", ["CSI: Miami, Category:Birds, Ei"]),
        ("<nowiki>[[x]]</nowiki> &#8212; &#xD800; &#x110000;", ["x \u2014 \ufffd &#x110000;"]),
        ("# one\n# two\n: three\n; four : five", ["one", "two", "three", "four", "five"]),
        ("#redirect [[Dodo]]", []),
        ("a<ref>b", ["ab"]),
        ("<p>one</p><p>two</p>", ["one", "two"]),
        ("{{a|" * 200, None),
    ],
)  # fmt: skip
def test_markup(markup: str, expected: list[str] | None) -> None:
    assert expected is None or list(strip_markup(markup).texts) == expected


@pytest.mark.parametrize(
    "piece",
    [
        *("{{a|", "{{a|\n==x==\n", "[[a|", "{|\n|", "{{{a|", "[http://x ", "[mailto:a "),
        *("<ref ", "<ref>", "<b ", "<b>", "<b a='", "<!--", "{{a|b=<b ", "<ref><br>", "<b <!-- -->"),
    ],
)
def test_markup_that_would_take_for_ever_is_refused_before_it_is_parsed(piece: str) -> None:
    for bomb in (piece * 60_000, "}} ]] |} > </b> --> ] " * 20_000 + piece * 60_000):
        with pytest.raises(FieldError, match="never close"):
            strip_markup(bomb)


@pytest.mark.parametrize("closings", [">", "</i>", "-->", "/>"])
def test_tags_are_closed_by_their_own_ends_alone(closings: str) -> None:
    for piece in ("<ref ", "<b>"):
        with pytest.raises(FieldError, match="never close"):
            strip_markup(piece * 60_000 + closings * 60_000)


def test_openings_that_an_author_forgot_to_close_are_no_bomb() -> None:
    text = "{{cite|a=|}} ''Italic'' [[a|b]] <br> <ref name=x/> 3 < 4 {{{1|}}} [1] " * 500
    assert len(strip_markup(f"<b>{text} {{{{ [[ <ref>").texts) > 400


def test_files_stand_before_the_paragraph_they_are_in() -> None:
    markup = """{{Taxobox
| name = Dodo
| image = Great_auk &amp; egg.JPG
| caption = As it was: see p.htm
}}
[[File:Map one.png|thumb|The [[island]]. Small.]]
First paragraph.

Second, [[Image:mid.jpeg|20px]] with a picture.
<gallery>
Image:In gallery.tiff|One: two.
File:Other.jpg
</gallery>
{| class="wikitable"
| [[Datei:Cell.gif]] || 1598
|}
Third. <!-- [[File:Hidden.jpg]] -->
[[File:Map one.png]]"""
    found = strip_markup(markup)
    assert found.texts == ("First paragraph.", "Second, with a picture.", "Third.")
    files = [(file.key, paragraphs) for file, paragraphs in found.between if "." in file.key]
    assert [(key, paragraphs) for key, paragraphs in files if not key.endswith(".htm")] == [
        ("great auk & egg.jpg", 0),
        ("map one.png", 0),
        ("mid.jpeg", 1),
        ("in gallery.tiff", 2),
        ("other.jpg", 2),
        ("cell.gif", 2),
        ("map one.png", 3),
    ]


def test_an_image_stands_where_the_article_first_names_it(tmp_path: Path) -> None:
    text = "One. Two.\n\n[[File:A b.jpg|thumb]]\nThree. Four.\n\n[[Image:c.png]] [[File:a_b.jpg]]\nFive."
    for number, name in enumerate(("C.png", "A_b.jpg", "b.jpg"), start=1):
        about = f'<name>{name}</name><text><caption article="text/en/1/7"/></text>'
        write(tmp_path / f"metadata/1/{number}.xml", f'<image id="{number}" file="images/{number}.jpg">{about}</image>')
    write(tmp_path / "text/en/1/7.xml", text)
    for most, expected in ((100, (4, 2, None)), (3, (3, 2, None)), (1, (1, 1, None))):
        drafts, _ = outcomes(ImageclefSource(texts=str(tmp_path), max_sentences=most))
        assert after_of(drafts["7"]) == expected
