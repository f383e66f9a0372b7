"""Tars as the package webdataset writes them."""

import io
import tarfile
from pathlib import Path
from typing import Any

import pytest
import webdataset
from candidates import after_of, sources_of, uris_of
from corpus_files import Read, tiff_of, write_tar
from corpus_files import flat as picture
from PIL import Image

from schemas.documents import Link, Role


def test_pairs(tmp_path: Path) -> None:
    with webdataset.TarWriter(str(tmp_path / "00000.tar")) as writer:
        for number in range(3):
            about = {"url": f"https://h.example/{number}.jpg", "caption": "not this"}
            sample = {"__key__": f"a/{number:09d}", "jpg": picture(number, "JPEG"), "txt": f"Picture {number}."}
            writer.write(sample | {"json": about})
        writer.write({"__key__": "a/3", "png": picture(3), "json": {"caption": "By its JSON."}})
        writer.write({"__key__": "a/4", "png": picture(4), "txt": " \n"})
        writer.write({"__key__": "a/5", "txt": "No picture."})
    found = Read(tmp_path, "webdataset")
    assert found.texts == [["Picture 0."], ["Picture 1."], ["Picture 2."], ["By its JSON."]]
    assert [draft.id for draft in found.drafts][2:] == ["00000/a/000000002", "00000/a/3"]
    first = found.drafts[0]
    assert (first.links, first.sentences[0].role) == ((Link(0, 0),), Role.CAPTION)
    assert (uris_of(first), sources_of(first)) == (("00000.tar!/a/000000000.jpg",), ("https://h.example/0.jpg",))
    assert found.pictures(found.drafts[1]) == [picture(1, "JPEG")]
    assert found.failures == ["00000/a/4 empty-sentence", "00000/a/5 missing-field"]


def test_documents_of_several_pictures(tmp_path: Path) -> None:
    mint = {"texts": ["One. Two.", None, None, "Three."], "images": [None, "page_0_image_1", "page_0_image_2", None]}
    ours = {"texts": [None, "One."], "images": ["0.png", None], "url": "https://h.example/"}
    with webdataset.TarWriter(str(tmp_path / "shard-0.tar")) as writer:
        writer.write({"__key__": "pdf7", "tiff": tiff_of(10, 20), "json": mint})
        writer.write({"__key__": "page", "0.png": picture(9), "json": ours})
        writer.write({"__key__": "bad", "json": {"texts": ["One."], "images": []}})
    for form in ("webdataset", "interleaved"):
        found = Read(tmp_path, form)
        assert found.texts == [["One.", "Two.", "Three."], ["One."]]
        assert [after_of(draft) for draft in found.drafts] == [(2, 2), (0,)]
        colours = [Image.open(io.BytesIO(data)).getpixel((1, 1)) for data in found.pictures(found.drafts[0])]
        assert colours == [(10, 0, 0), (20, 0, 0)]
        assert found.pictures(found.drafts[1]) == [picture(9)]
        assert found.failures == ["shard-0/bad broken-record"]


def test_shards_of_one_name_in_several_folders(tmp_path: Path) -> None:
    for folder in ("part0", "part1"):
        (tmp_path / folder).mkdir()
        with webdataset.TarWriter(str(tmp_path / folder / "00000.tar")) as writer:
            writer.write({"__key__": "0", "png": picture(1), "txt": "Picture."})
    (tmp_path / "part1/00001.tar").write_bytes(b"none")
    found = Read(tmp_path, "webdataset")
    assert [draft.id for draft in found.drafts] == ["part0/00000/0", "part1/00000/0"]
    assert found.failures == ["part1/00001.tar broken-record"]


def test_a_compressed_tar_is_one_failure(tmp_path: Path) -> None:
    with webdataset.TarWriter(str(tmp_path / "a.tar.gz"), compress=True) as writer:
        writer.write({"__key__": "a", "png": picture(1), "txt": "Picture."})
    with webdataset.TarWriter(str(tmp_path / "b.tar")) as writer:
        writer.write({"__key__": "b", "png": picture(1), "txt": "Picture."})
    found = Read(tmp_path, "webdataset")
    assert ([draft.id for draft in found.drafts], found.failures) == (["b/b"], ["a.tar.gz broken-record"])


def test_a_name_that_is_no_utf_8(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w", format=tarfile.GNU_FORMAT, encoding="latin-1") as archive:
        for name, data in (("caf\xe9.png", picture(3)), ("caf\xe9.txt", b"A cup.")):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    found = Read(tmp_path, "webdataset")
    (draft,) = found.drafts
    assert (draft.id, found.pictures(draft)) == ("a/caf\ufffd", [picture(3)])


@pytest.mark.parametrize("share", [0.2, 0.5, 0.75])
def test_a_cut_tar_costs_no_other_and_its_first_pictures_are_read(share: float, tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        with webdataset.TarWriter(str(tmp_path / f"{name}.tar")) as writer:
            for number in range(20):
                writer.write({"__key__": f"{number:02}", "png": picture(number), "txt": f"Picture {number}."})
    whole = (tmp_path / "b.tar").read_bytes()
    (tmp_path / "b.tar").write_bytes(whole[: int(share * len(whole))])
    found = Read(tmp_path, "webdataset")
    before = [draft for draft in found.drafts if draft.id.startswith("b/")]
    assert len(found.drafts) == 40 + len(before)
    assert len(before) >= int(share * 20) - 2
    for draft in before[:-1]:
        assert found.pictures(draft) == [picture(int(draft.id[-2:]))]
    assert "b.tar broken-record" in found.failures


def written(path: Path, names: list[str]) -> None:
    """Write a tar: the n-th file is a text that says so, or a picture of that shade."""
    pictures = (".jpg", ".png")
    files = [(n, picture(k) if n.endswith(pictures) else f"Text {k}.".encode()) for k, n in enumerate(names)]
    write_tar(path, files)


@pytest.mark.parametrize(
    ("names", "samples", "failures"),
    [
        (  # dots in names
            ["2021.05.01.jpg", "2021.05.01.txt", "2021.05.02.jpg", "2021.05.02.txt"],
            {"2021.05.01": (1, [0]), "2021.05.02": (3, [2])},
            [],
        ),
        (["cat.v2.jpg", "cat.v2.txt", "cat.jpg", "cat.txt"], {"cat.v2": (1, [0]), "cat": (3, [2])}, []),
        (["dog.jpg", "dog.jpg.txt", "cat.jpg", "cat.jpg.txt"], {"dog": (1, [0]), "cat": (3, [2])}, []),
        (["v1.0/7.jpg", "v1.0/7.txt", "v1.0/8.jpg", "v1.0/8.txt"], {"v1.0/7": (1, [0]), "v1.0/8": (3, [2])}, []),
        # several pictures
        (["a.jpg", "a.left.png", "a.txt", "b.jpg", "b.txt"], {"a": (2, [0, 1]), "b": (4, [3])}, []),
        (["a.1.txt", "a.1.left.jpg", "a.1.right.jpg", "a.2.jpg"], {"a.1": (0, [1, 2])}, ["a.2 missing-field"]),
        # files of a key that do not stand together, folders by kind
        (["a.jpg", "b.jpg", "a.txt", "b.txt"], {"a": (2, [0]), "b": (3, [1])}, []),
        (["i/a.jpg", "i/b.jpg", "t/b.txt", "t/a.txt"], {"i/a": (3, [0]), "i/b": (2, [1])}, []),
        (
            ["i/x/a.jpg", "i/y/a.jpg", "t/y/a.txt", "t/x/a.txt"],
            {"i/x/a": (3, [0]), "i/y/a": (2, [1])},
            [],
        ),
        (["i/1.05.jpg", "i/1.06.jpg", "t/1.05.txt", "t/1.06.txt"], {"i/1.05": (2, [0]), "i/1.06": (3, [1])}, []),
        (["i/a.0.jpg", "i/a.1.jpg", "t/a.txt"], {"i/a": (2, [0, 1])}, []),
        # folders by what is shown, not by kind
        (
            ["c/7.jpg", "c/7.cls", "c/8.jpg", "c/8.txt", "d/7.heic", "d/7.txt", "d/8.jpg", "d/8.txt"],
            {"c/8": (3, [2]), "d/8": (7, [6])},
            ["c/7 missing-field", "d/7 missing-field"],
        ),
        (["c/7.jpg", "c/8.txt", "d/7.txt"], {}, ["c/7 missing-field", "c/8 missing-field", "d/7 missing-field"]),
        (["c/x/7.jpg", "d/x/7.txt", "d/y/7.HEIC"], {}, ["c/x/7 missing-field", "d/y/7 missing-field"]),
        # one text of another kind
        (["7.jpg", "7.en.txt", "8.jpg", "8.en.txt"], {"7": (1, [0]), "8": (3, [2])}, []),
        (["i/a.jpg", "t/a.txt", "u/a.txt"], {}, ["i/a missing-field", "t/a missing-field", "u/a missing-field"]),
        # a writer that began again
        (["a.jpg", "a.txt", "b.jpg", "a.jpg", "a.txt"], {"a": (1, [0]), "a~2": (4, [3])}, ["b missing-field"]),
        (["a.jpg", "a.jpg", "a.txt"], {"a~2": (2, [1])}, ["a missing-field"]),
        (["a.jpg", "b.png", "c.txt"], {}, ["a missing-field", "b missing-field", "c missing-field"]),
    ],
)  # fmt: skip
def test_files_that_do_not_pair_by_the_plain_rule(
    names: list[str], samples: dict[str, Any], failures: list[str], tmp_path: Path
) -> None:
    written(tmp_path / "0.tar", names)
    found = Read(tmp_path, "webdataset")
    assert {draft.id: found.pictures(draft) for draft in found.drafts} == {
        f"0/{name}": [picture(number) for number in shown] for name, (_, shown) in samples.items()
    }
    assert found.texts == [[f"Text {text}."] for text, _ in samples.values()]
    assert found.failures == [f"0/{failure}" for failure in failures]
    assert all((draft.links is None) == (len(uris_of(draft)) > 1) for draft in found.drafts)


def test_a_description_that_is_broken_costs_no_pair(tmp_path: Path) -> None:
    written(tmp_path / "0.tar", ["a.jpg", "a.json", "a.txt", "b.jpg", "b.json"])
    found = Read(tmp_path, "webdataset")
    assert (found.texts, found.failures) == ([["Text 2."]], ["0/b broken-record"])
