"""What a setting may name, and what is found there."""

import dataclasses
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from candidates import parted, uris_of
from published import read_source

from pipelines.config import RECIPES
from pipelines.sources.datasets.coherence import CiteSource, ClueSource
from pipelines.sources.datasets.corpora import CorpusSource, Format
from pipelines.sources.datasets.diy import DiySource
from pipelines.sources.datasets.documents import DocumentsSource
from pipelines.sources.datasets.hessel import MultiRetrievalSource, RecipeqaSource
from pipelines.sources.datasets.mscoco import MscocoSource
from pipelines.sources.datasets.news import NewsSource
from pipelines.sources.datasets.vist import VistSource
from pipelines.sources.datasets.wikipedia import ImageclefSource
from pipelines.sources.records import CandidateDocument, web_address
from pipelines.sources.source import Source, find_inputs, image_root
from pipelines.sources.wikipedia.live import WikipediaSource
from schemas.failures import Failure
from schemas.messages import BuildError, ConfigError, UsageError

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
PLACES: dict[str, Callable[[str], Source]] = {
    "mscoco": lambda place: MscocoSource(captions=(place,), images=str(FIXTURES)),
    "vist": lambda place: VistSource(kind="dii", train=place, test=place),
    "recipeqa": lambda place: RecipeqaSource(train=place, val=place),
    "clue": lambda place: ClueSource(train=place, test=place),
    "news": lambda place: NewsSource(articles=place),
}


def never(url: str) -> Path:
    raise AssertionError(f"{url} was asked for")


def outcomes(source: Source, capture: Callable[[str], Path] = never) -> list[CandidateDocument | Failure]:
    return list(read_source(find_inputs(source, capture)))


def packed(name: str, target: Path, form: str) -> str:
    """Return the path of an archive of a folder of fixtures."""
    return shutil.make_archive(str(target / "all"), form, FIXTURES, name)


@pytest.mark.parametrize("name", PLACES)
def test_a_folder_and_archives_of_it_give_the_same(name: str, tmp_path: Path) -> None:
    from_folder = outcomes(PLACES[name](str(FIXTURES / name)))
    assert any(isinstance(item, CandidateDocument) for item in from_folder)
    assert outcomes(PLACES[name](packed(name, tmp_path, "zip"))) == from_folder
    in_tar = outcomes(PLACES[name](packed(name, tmp_path, "gztar")))
    assert sorted(map(repr, in_tar)) == sorted(map(repr, from_folder))


def test_what_is_behind_a_url_is_captured_and_searched(tmp_path: Path) -> None:
    url, capture = "https://example.org/all.zip", Mock(return_value=Path(packed("clue", tmp_path, "zip")))
    found = outcomes(ClueSource(train=url, test=f"{url}!/clue/conceptual_test_dis.csv"), capture)
    assert found == outcomes(PLACES["clue"](str(FIXTURES / "clue")))
    assert {each.args for each in capture.call_args_list} == {(url,)}


def test_every_dump_of_a_folder_is_read_and_compressed_names_are_known(tmp_path: Path) -> None:
    for name in ("RS_2018-02.zst", "RS_2018-01.bz2", "sub/RS_2017-12", "notes.txt", "RC_2018-01.zst"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    source = find_inputs(DiySource(dump=(str(tmp_path),)), never)
    expected = ["RS_2018-01.bz2", "RS_2018-02.zst", "sub/RS_2017-12"]
    assert source.dump == tuple(str(tmp_path / name) for name in expected)
    shutil.copy(FIXTURES / "mscoco" / "captions_train2014.json", tmp_path / "captions_train2014.json.xz")
    found = find_inputs(MscocoSource(captions=(str(tmp_path),), images=str(tmp_path)), never)
    assert found.captions[0].endswith("captions_train2014.json.xz")


def test_the_nearest_of_several_is_meant(tmp_path: Path) -> None:
    for name in ("old/train.json", "train.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    assert find_inputs(RecipeqaSource(train=str(tmp_path)), never).train == str(tmp_path / "train.json")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (RecipeqaSource(), r"source\.train: expected the path of a file"),
        (RecipeqaSource(train="none.json"), r"source\.train = 'none\.json': no such file"),
        (RecipeqaSource(train=str(FIXTURES / "clue")), r"expected train\.json in it, found none"),
        (
            VistSource(kind="sis", train=str(FIXTURES / "clue")),
            r"expected train\.story-in-sequence\.json in it",
        ),
        (CiteSource(train=str(FIXTURES / "cite"), images="nowhere"), r"source\.images = 'nowhere': no such file"),
        (DiySource(), r"source\.dump: expected"),
        (
            MultiRetrievalSource(
                documents=str(FIXTURES / "recipeqa/train.json"),
                id2row=str(FIXTURES / "recipeqa/train.json"),
                features=str(FIXTURES),
            ),
            "expected a plain file on a file system",
        ),
    ],
)
def test_what_is_not_there_is_the_users_to_mend(source: Source, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        find_inputs(source, never)


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (ClueSource, {"numbers": "img2idxmap.json"}, r"source\.images = '': must be given with source\.numbers"),
        (ImageclefSource, {"language": ""}, r"source\.language"),
        (ImageclefSource, {"language": "../x"}, r"source\.language"),
        (ImageclefSource, {"max_sentences": 0}, r"source\.max_sentences"),
        (MscocoSource, {"true_images": 0}, r"source\.true_images = 0: expected `int` >= 1"),
        (MscocoSource, {"captions": ("a", "b", "c"), "folders": ("x", "y")}, r"source\.folders .* one for each of 3"),
        (MscocoSource, {"val": 1.0}, r"source\.val = 1\.0"),
        (MscocoSource, {"val": 0.5, "test": 0.5}, r"source\.val \+ source\.test = 1\.0"),
        (NewsSource, {"language": "German"}, r"source\.language"),
        (WikipediaSource, {"base_url": "en.wikipedia.org"}, r"source\.base_url"),
        (WikipediaSource, {"base_url": "https://x.org/wiki"}, r"source\.base_url"),
        (WikipediaSource, {"limit": -1}, r"source\.limit"),
    ],
)
def test_settings_that_make_no_sense(kind: Callable[..., Source], settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        kind(**settings)


CLUE = {"train": str(FIXTURES / "clue/conceptual_train_dis.csv"), "images": "images"}
FORMS: dict[str, Callable[[str], Any]] = {
    "mscoco": lambda file: MscocoSource(captions=(file,)),
    "numbers": lambda file: ClueSource(numbers=file, **CLUE),
    "recipeqa": lambda file: RecipeqaSource(train=file),
    "rows": lambda file: MultiRetrievalSource(documents=file, id2row=file),
    "vist": lambda file: VistSource(train=file),
}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("mscoco", '{"images": [], "annotations": []}', "expected items in the lists images, annotations"),
        ("vist", '{"images": [{"id": "1"}]}', "lists images, annotations; found none in annotations"),
        *(("recipeqa", text, "expected") for text in ('{"data": []}', '{"a": [{}]}', '{"data": {"recipe_id": "x"}}')),
        *(
            ("numbers", text, "expected|no JSON")
            for text in ("[]", "{", '{"http://x.example": "1"}', '{"http://x.example": true}')
        ),
        ("rows", "[]", r"\$: expected `object`"),
        ("rows", '{"i0": "1"}', r"\$\.i0: expected `int`, got `str`"),
    ],
)
def test_files_of_another_form_end_the_build(name: str, content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_text(content)
    with pytest.raises(BuildError, match=rf"file\.json: .*({message})"):
        list(FORMS[name](str(path)).read())


def test_a_source_that_reads_no_file_needs_none() -> None:
    source = DiySource(kind="api")
    assert find_inputs(source, never) == source


@pytest.mark.parametrize(
    ("root", "address"),
    [
        ("https://h/pictures", "https://h/pictures/a%20b/1.jpg"),
        ("https://h/pictures/", "https://h/pictures/a%20b/1.jpg"),
        ("https://h/get?f={name}&w=500", "https://h/get?f=a%20b/1.jpg&w=500"),
    ],
)
def test_images_may_be_on_the_web(root: str, address: str) -> None:
    assert web_address(root, "a b/1.jpg") == address
    assert "/../" not in web_address(root, "../a.jpg")
    source = find_inputs(CiteSource(train=str(FIXTURES / "cite" / "data.csv"), images=root), never)
    uris = [uri for draft in parted(read_source(source))[0] for uri in uris_of(draft)]
    assert uris and all(uri.startswith("https://h/") for uri in uris) and image_root(source) == "."


def test_pictures_of_documents_behind_a_url_are_beside_them(tmp_path: Path) -> None:
    (tmp_path / "d.jsonl").write_text('{"id": "a", "sentences": ["x"], "images": [{"path": "p/1.png"}]}\n')
    source = find_inputs(DocumentsSource(documents="https://h/set/d.jsonl"), lambda url: tmp_path / "d.jsonl")
    (draft,) = read_source(source)
    assert uris_of(draft) == ("https://h/set/p/1.png",)


def test_every_source_says_what_it_reads() -> None:
    for kind in {type(make().source) for make in RECIPES.values()}:
        assert {given.name for given in kind().inputs} <= {field.name for field in dataclasses.fields(kind)}


def shards_of(form: Format, *places: Path | str) -> list[str]:
    """Return the shards of a corpus, relative to the folder `all`."""
    source = find_inputs(CorpusSource(format=form, documents=tuple(map(str, places))), never)
    return [shard.partition("/all/")[2] for shard in source.documents]


def files(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


@pytest.mark.parametrize(
    ("form", "names", "expected"),
    [
        ("mmc4", "a.jsonl b.jsonl.zip c.jsonl.gz x/y/d.jsonl x.txt", "a.jsonl b.jsonl.zip c.jsonl.gz x/y/d.jsonl"),
        ("mmc4", "a.jsonl a.jsonl.zip b/a.jsonl.zip", "a.jsonl b/a.jsonl.zip"),
        ("webdataset", "0.tar 0.parquet 1.parquet 1/a.jpg 2.tar 0_stats.json", "0.tar 2.tar"),
        ("web", "a.warc b.warc.gz c/d.warc.zst", "a.warc b.warc.gz c/d.warc.zst"),
        ("hf", "a/data-0.arrow a/cache-1f.arrow b/data-0.arrow indices.arrow", "a/data-0.arrow b/data-0.arrow"),
        ("hf", "data-a.b.parquet data-a.c.parquet", "data-a.b.parquet data-a.c.parquet"),
        ("tables", "0.parquet 0_stats.json", "0.parquet"),
        ("tables", "A.CSV B.Csv.GZ a.csv", "A.CSV B.Csv.GZ a.csv"),
        ("mmc4", "A.JSONL A.JSONL.ZIP", "A.JSONL"),
        ("tables", "a.csv __MACOSX/._a.csv .ipynb_checkpoints/a-checkpoint.csv b/._a.csv", "a.csv"),
    ],
)  # fmt: skip
def test_every_shard_of_a_folder_is_read(form: Format, names: str, expected: str, tmp_path: Path) -> None:
    assert shards_of(form, files(tmp_path / "all", *names.split())) == expected.split()


@pytest.mark.parametrize(("form", "names"), [("hf", "a.parquet b.arrow"), ("interleaved", "a.tar b.parquet")])
def test_shards_of_two_kinds_are_refused_by_name_and_a_pattern_names_one(
    form: Format, names: str, tmp_path: Path
) -> None:
    folder = files(tmp_path / "all", *names.split(), "x/c.parquet")
    with pytest.raises(UsageError, match=r"expected shards of one kind, found .* and .*\*\.\w+"):
        shards_of(form, folder)
    with pytest.raises(UsageError, match=r"expected one file of a name, found B\.PARQUET and B\.parquet"):
        shards_of(form, files(tmp_path / "other", "A.parquet", "A.parquet.gz", "B.parquet", "B.PARQUET"))
    assert shards_of(form, f"{folder}/*.parquet") == [names.split()[form != "hf"], "x/c.parquet"]
    assert len(shards_of(form, *(folder / name for name in names.split()))) == 2
    with pytest.raises(UsageError, match=r"expected \*\.none in it"):
        shards_of(form, f"{folder}/*.none")


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    pipe = str(tmp_path / "pipe")
    for source in (DocumentsSource(documents=pipe), NewsSource(articles=pipe), CorpusSource(documents=("/dev/null",))):
        with pytest.raises(UsageError, match="expected a file or a folder, found a pipe or a device"):
            find_inputs(source, never)


def test_a_cut_archive_is_one_line(tmp_path: Path) -> None:
    whole = Path(packed("news", tmp_path, "gztar"))
    whole.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    with pytest.raises(UsageError, match=r"source\.articles = '.*all\.tar\.gz': all\.tar\.gz: cannot be read on"):
        find_inputs(NewsSource(articles=str(whole)), never)
