"""A user's own pages: folders, patterns and archives of HTML, Markdown and EPUB."""

import json
import shutil
import zipfile
from base64 import b64encode
from pathlib import Path

import pytest
from candidates import after_of, metadata_of, parted, uris_of

from pipelines.embedded import read_picture
from pipelines.named_files import FileRejected, read_named
from pipelines.sources.datasets.documents import DocumentsSource
from pipelines.sources.records import CandidateDocument
from pipelines.sources.source import image_root
from schemas.failures import Failure, Reason
from schemas.messages import UsageError

CONTAINER = """<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container">
<rootfiles><rootfile full-path="OEBPS/a.opf"/></rootfiles></container>"""
PACKAGE = """<package xmlns="http://www.idpf.org/2007/opf" xmlns:dc="http://purl.org/dc/elements/1.1/">
<metadata><dc:language>fr</dc:language></metadata>
<manifest><item id="1" href="text/ch%201.xhtml" media-type="application/xhtml+xml"/>
<item id="2" href="text/2.xhtml" media-type="application/xhtml+xml"/><item id="3" href="x.css" media-type="text/css"/>
</manifest><spine><itemref idref="2"/><itemref idref="1"/></spine></package>"""
PAGES = {
    "posts/cat.html": '<html lang="de"><h1>Katze</h1><p>Sie schläft.</p><figure><img src="../img/a%20b.jpg?v=2">'
    '<figcaption>Die Katze</figcaption></figure><p>Ende.</p><img src="/img/c.jpg">',
    "posts/dog.md": "---\ntitle: A dog\nid: dog-1\nlang: en\nlicense: CC0\n---\nIt barks.\n\n![a dog](../img/c.jpg)\n",
    "posts/fox.md": "+++\ntitle = 'A fox'\n+++\nIt runs.\n\n![[c.jpg|100]]\n\n<img src='https://x.example/f.png'>\n",
    "posts/bad.md": "---\ntitle: [x\n---\nHi\n",
    "posts/none.md": "No picture.\n",
    "posts/empty.html": "",
    "posts/a.pdf": "%PDF-1.7",
    ".obsidian/x.md": "![](../img/c.jpg) Hidden.",
    "img/a b.jpg": "a",
    "img/c.jpg": "c",
}


@pytest.fixture
def own(tmp_path: Path) -> Path:
    for name, text in PAGES.items():
        path = tmp_path / "own" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    with zipfile.ZipFile(tmp_path / "own" / "book.epub", "w") as book:
        book.writestr("META-INF/container.xml", CONTAINER)
        book.writestr("OEBPS/a.opf", PACKAGE)
        book.writestr(
            "OEBPS/text/ch 1.xhtml", '<html><p>Un chat.</p><img src="../img/1.png"/><img src="../../../c.jpg"/>'
        )
        book.writestr("OEBPS/text/2.xhtml", "<html><p>Deux.</p>")
        book.writestr("OEBPS/img/1.png", "1")
    return tmp_path / "own"


def outcomes(address: Path | str, **settings: str) -> tuple[dict[str, CandidateDocument], dict[str, Reason]]:
    found, failures = parted(DocumentsSource(documents=str(address), **settings).read())
    return {each.id: each for each in found}, {each.record_id: each.reason for each in failures}


@pytest.mark.parametrize(
    ("markdown", "picture"),
    [
        ("+++\r\ntitle = 'A'\r\ndate = 2020-01-01\r\n+++\r\nIt runs.\r\n\r\n![](c.jpg)\r\n", "img/c.jpg"),
        ('It runs.\n\n{{< figure src="c.jpg" caption="A fox" >}}\n', "img/c.jpg"),
        ("It runs.\n\n![A fox]({{ site.baseurl }}/img/c.jpg)\n", "img/c.jpg"),
        ('It runs.\n\n![A fox]({{ "/img/c.jpg" | relative_url }})\n', "img/c.jpg"),
        (r"It runs. ![A fox](..\img\c.jpg)", "img/c.jpg"),
        ("It runs.\n\n| ![A fox](c.jpg) |\n|---|\n", "img/c.jpg"),
        ("It runs. [![A fox](c.jpg)](big.jpg)", "img/c.jpg"),
    ],
)
def test_markdown_as_its_programs_write_it(markdown: str, picture: str, tmp_path: Path) -> None:
    (tmp_path / "img").mkdir()
    (tmp_path / "img" / "c.jpg").write_bytes(b"c")
    (tmp_path / "img" / "fox.md").write_bytes(markdown.encode())
    documents, failures = outcomes(tmp_path)
    (fox,) = documents.values()
    assert (uris_of(fox), fox.sentences[-1].text, failures) == ((picture,), "It runs.", {})


@pytest.mark.parametrize("form", ["folder", "zip"])
def test_a_folder_of_pages(own: Path, form: str) -> None:
    address = str(own) if form == "folder" else shutil.make_archive(str(own), "zip", own)
    documents, failures = outcomes(address)
    assert sorted(documents) == ["book.epub!/OEBPS/text/ch 1.xhtml", "dog-1", "posts/cat.html", "posts/fox.md"]
    cat, dog = documents["posts/cat.html"], documents["dog-1"]
    assert [each.text for each in cat.sentences] == ["Katze", "Sie schläft.", "Ende."]
    assert (cat.language, uris_of(cat), after_of(cat)) == ("de", ("img/a b.jpg", "img/c.jpg"), (2, 3))
    assert [each and each.caption for each in metadata_of(cat)] == ["Die Katze", None]
    assert [each.text for each in dog.sentences] == ["A dog", "It barks."]
    assert (dog.language, dog.provenance.licence, uris_of(dog)) == ("en", "CC0", ("img/c.jpg",))
    assert uris_of(documents["posts/fox.md"]) == ("img/c.jpg", "https://x.example/f.png")
    assert failures == {
        "book.epub!/OEBPS/text/2.xhtml": Reason.TOO_FEW_IMAGES,
        "posts/bad.md": Reason.BROKEN_RECORD,
        "posts/empty.html": Reason.BROKEN_RECORD,
        "posts/none.md": Reason.TOO_FEW_IMAGES,
    }


@pytest.mark.parametrize("form", ["alone", "zip", "tar"])
def test_a_book_has_its_pictures_and_no_other(own: Path, tmp_path: Path, form: str) -> None:
    shutil.copytree(own, tmp_path / "books", ignore=lambda _, names: {*names} - {"book.epub"})
    address = own / "book.epub" if form == "alone" else shutil.make_archive(str(own), form, tmp_path / "books")
    (chapter,) = outcomes(address)[0].values()
    source = DocumentsSource(documents=str(address))
    assert chapter.language == "fr"
    assert read_named(image_root(source), uris_of(chapter)[0], max_bytes=9) == b"1"
    with pytest.raises(FileRejected) as refused:
        read_named(image_root(source), uris_of(chapter)[1], max_bytes=9)
    assert refused.value.reason is Reason.FORBIDDEN


@pytest.mark.parametrize(
    "address", ["/etc/c.jpg", "../../c.jpg", "file:///etc/c.jpg", "linked.jpg", "%2e%2e/%2e%2e/c.jpg"]
)
def test_nothing_outside_the_folder_is_read(own: Path, address: str) -> None:
    (own.parent / "c.jpg").write_text("secret")
    (own / "posts" / "linked.jpg").symlink_to(own.parent / "c.jpg")
    (own / "posts" / "evil.html").write_text(f'<p>Text.</p><img src="{address}">')
    source = DocumentsSource(documents=str(own))
    (uri,) = uris_of(outcomes(own)[0]["posts/evil.html"])
    try:
        assert read_named(image_root(source), uri, max_bytes=9) != b"secret"
    except FileRejected as refused:
        assert refused.reason in (Reason.FORBIDDEN, Reason.NOT_FOUND)


@pytest.mark.parametrize("form", ["folder", "zip"])
def test_a_picture_in_a_page_is_read(own: Path, form: str) -> None:
    data = bytes(range(256)) * 2
    address = f"data:image/png;base64,{b64encode(data).decode()}"
    (own / "in.md").write_text(f"A note.\n\n![a]({address})\n")
    dot = '<img src="data:image/gif;base64,R0lGODlhAQABAAAAACwAAAAAAQABAAA=">'
    (own / "in.html").write_text(f"<p>Text.</p><img src='{address}'>{dot}<img src='data:image/svg+xml,%3Csvg'>")
    where = str(own) if form == "folder" else shutil.make_archive(str(own), "zip", own)
    documents = outcomes(where)[0]
    for name in ("in.md", "in.html"):
        (uri,) = uris_of(documents[name])
        assert read_picture(image_root(DocumentsSource(documents=where)), uri, max_bytes=512) == data


def test_pictures_beside_a_page_that_is_named_need_a_folder_that_has_both(own: Path) -> None:
    assert uris_of(outcomes(own / "posts" / "cat.html")[0]["cat.html"]) == ("../img/a b.jpg", "/img/c.jpg")
    found = outcomes(own / "posts" / "*.html", images=str(own))[0]
    assert uris_of(found["cat.html"]) == ("img/a b.jpg", "img/c.jpg")


def test_what_is_read_is_told_and_what_is_not(own: Path) -> None:
    (line,) = DocumentsSource(documents=str(own)).remarks()
    assert "posts/cat.html" in line and "posts/a.pdf" in line and ".obsidian" not in line and "c.jpg" not in line
    (own / "documents.jsonl").write_text(json.dumps({"sentences": ["a"], "images": ["img/c.jpg"]}))
    assert list(outcomes(own)[0]) == ["documents.jsonl:1"]
    (own / "nothing").mkdir()
    with pytest.raises(UsageError, match=r"HTML, Markdown, EPUB .* found no file"):
        list(DocumentsSource(documents=str(own / "nothing")).remarks())


@pytest.mark.parametrize(
    ("name", "data", "word"),
    [
        ("a.jsonl", b"", "an empty file"),
        ("a.bin", b"\0\1\2", "no text"),
        ("a.bin", b"\x89PNG\r\n", "a PNG picture"),
        ("a.txt", b"A cat.", "found a text"),
        ("a.jsonl", b'{\n "sentences": []\n}\n{\n}', "one object a line"),
        ("a.epub", b"no zip", "expected an EPUB"),
    ],
)
def test_a_file_that_holds_no_documents_says_so_in_one_line(tmp_path: Path, name: str, data: bytes, word: str) -> None:
    (tmp_path / name).write_bytes(data)
    (failure,) = DocumentsSource(documents=str(tmp_path / name)).read()
    assert failure.reason is Reason.BROKEN_RECORD
    assert word in failure.message and "\n" not in failure.message


@pytest.mark.parametrize(
    ("record", "meant"),
    [
        ({"sentence": ["a"], "images": ["b"]}, "sentences"),
        ({"sentences": ["a"], "imagess": ["b"]}, "images"),
        ({"captions": ["a"], "images": ["b"]}, "sentences"),
        ({"text": "a", "file_name": "b"}, "sentences"),
        ({"sentences": [{"txt": "a"}], "images": ["b"]}, "text"),
    ],
)
def test_a_misspelt_field_is_told(tmp_path: Path, record: dict[str, object], meant: str) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps(record))
    (failure,) = DocumentsSource(documents=str(tmp_path / "a.jsonl")).read()
    assert failure.reason is Reason.MISSING_FIELD
    assert failure.message.endswith(f"did you mean '{meant}'?")


def test_of_documents_with_one_id_the_first_counts(tmp_path: Path) -> None:
    rows = [{"id": "A", "sentences": [text], "images": ["a"]} for text in ("Zebra", "Apple", "Zebra")]
    (tmp_path / "a.json").write_text(json.dumps(rows, indent=2))
    first, *others = DocumentsSource(documents=str(tmp_path / "a.json")).read()
    assert first.sentences[0].text == "Zebra"
    assert [each.reason for each in others if isinstance(each, Failure)] == [Reason.ID_TAKEN, Reason.DUPLICATE_RECORD]


@pytest.mark.parametrize(
    ("page", "files", "pictures"),
    [
        ('<p>A bike.</p><img src="3.jpg">', ["b/3.jpg"], ["a/3.jpg"]),  # the picture of another page is not its own
        ('<base href="img/"><p>A bike.</p><img src="3.jpg">', ["a/img/3.jpg"], ["a/img/3.jpg"]),
        ('<base href="/"><p>A bike.</p><img src="3.jpg">', ["3.jpg"], ["3.jpg"]),
        (
            '<p>A bike.</p><img src="loader.jpg"><img src="spinner.png" data-src="3.jpg">',
            [],
            ["a/loader.jpg", "a/3.jpg"],
        ),
        ('<p>A bike.</p><img src="i/4.jpg" data-src="https://x.example/4.jpg">', ["a/i/4.jpg"], ["a/i/4.jpg"]),
        ('<p>A bike.</p><img src="i/4.jpg" data-src="i/none.jpg">', ["a/i/4.jpg"], ["a/i/4.jpg"]),
        ('<p>A bike.</p><img src="i/4.jpg" data-src="https://x.example/4.jpg">', [], ["https://x.example/4.jpg"]),
        (
            '<p>A bike.</p><svg><image xlink:href="3.jpg"/></svg><object data="5.png">x</object>',
            [],
            ["a/3.jpg", "a/5.png"],
        ),
    ],
)
def test_a_page_has_the_pictures_that_it_names(
    page: str, files: list[str], pictures: list[str], tmp_path: Path
) -> None:
    for name in ("a/page.html", "b/other.html", *files):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(page if name == "a/page.html" else '<p>Soup.</p><img src="3.jpg">')
    assert list(uris_of(outcomes(tmp_path)[0]["a/page.html"])) == pictures


@pytest.mark.parametrize("kind", ["image/png;charset=utf-8", "application/octet-stream", ""])
def test_a_picture_in_a_page_may_be_short_and_have_parameters(kind: str, tmp_path: Path) -> None:
    data = b64encode(bytes(range(150))).decode()
    (tmp_path / "a.html").write_text(f'<p>A chart.</p><img src="data:{kind};base64,{data}">')
    (uri,) = uris_of(outcomes(tmp_path)[0]["a.html"])
    assert read_picture(str(tmp_path), uri, max_bytes=512) == bytes(range(150))


def test_a_page_on_the_web_has_the_pictures_of_its_addresses(tmp_path: Path) -> None:
    images = DocumentsSource(documents="https://x.example/dir/sub/page.html?a=/b").images
    addresses = ("image.php?id=1", "image.php?id=2", "../up.jpg", "/c.jpg")
    (tmp_path / "page.html").write_text("<p>A.</p>" + "".join(f'<img src="{each}">' for each in addresses))
    (document,) = outcomes(tmp_path / "page.html", images=images)[0].values()
    names = ("dir/sub/image.php?id=1", "dir/sub/image.php?id=2", "dir/up.jpg", "c.jpg")
    assert uris_of(document) == tuple(f"https://x.example/{name}" for name in names)


def test_a_picture_inside_a_page_is_never_looked_up_in_other_files_of_that_name(own: Path) -> None:
    """Of two editions with one name, each has its own pictures."""
    (own / "new").mkdir()
    shutil.copy(own / "book.epub", own / "new")
    address = f"data:image/png;base64,{b64encode(bytes(200)).decode()}"
    (own / "new" / "in.html").write_text(f"<p>Text.</p><img src='{address}'>")
    below = [uri for each in outcomes(own / "new", images=str(own))[0].values() for uri in uris_of(each)]
    assert [uri.partition("!/")[0].partition("new/")[1] for uri in below] == ["new/"] * 3
    beside = [uri for each in outcomes(own / "new", images=str(own / "img"))[0].values() for uri in uris_of(each)]
    assert len(beside) == 3 and all("outside source.images" in uri for uri in beside)


def test_of_a_book_with_a_chapter_that_is_not_there_the_others_are_read(own: Path) -> None:
    with zipfile.ZipFile(own / "book.epub") as book:
        data = {name: book.read(name) for name in book.namelist() if not name.endswith("2.xhtml")}
    with zipfile.ZipFile(own / "book.epub", "w") as book:
        for name, body in data.items():
            book.writestr(name, body)
    documents, failures = outcomes(own / "book.epub")
    assert list(documents) == ["book.epub!/OEBPS/text/ch 1.xhtml"]
    assert failures == {"book.epub!/OEBPS/text/2.xhtml": Reason.BROKEN_RECORD}


@pytest.mark.parametrize(
    ("front", "expected"),
    [
        ("title: 1984\nid: 2020-01-02\nlanguage: no\nlicence: null", ("2020-01-02", "no", "1984", None)),
        ("Two rules.", ("a.md", "und", "Two rules.", None)),
    ],
)
def test_front_matter_is_what_is_written(front: str, expected: tuple[str, str, str, None], tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(f"---\n{front}\n---\nIt runs.\n\n![](c.jpg)\n")
    ((name, document),) = outcomes(tmp_path)[0].items()
    assert (name, document.language, document.sentences[0].text, document.provenance.licence) == expected


@pytest.mark.parametrize(
    ("name", "head", "language"),
    [("a.md", "---\nlanguage: fr\n---\n", "und"), ("a.md", "", "fr"), ("a.html", "", "fr-CA")],
)
def test_the_language_says_what_bytes_mean(name: str, head: str, language: str, tmp_path: Path) -> None:
    text = "Les élèves vont à l'école après."
    body = f"{head}{text}\n\n![](c.jpg)" if name == "a.md" else f"<p>{text}</p><img src='c.jpg'>"
    (tmp_path / name).write_bytes(body.encode("latin-1"))
    (document,) = outcomes(tmp_path, language=language)[0].values()
    assert document.sentences[0].text == text


def test_a_compressed_page_is_not_read_in_a_folder(own: Path) -> None:
    (own / "posts" / "a.md.gz").write_bytes(b"\x1f\x8b")
    assert any("posts/a.md.gz" in line for line in DocumentsSource(documents=str(own)).remarks())
    assert "posts/a.md.gz" not in outcomes(own)[1]
