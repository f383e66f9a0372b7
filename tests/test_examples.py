"""What `examples/` shows works: the package of parts is installed beside multilink and used by the commands."""

import csv
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from candidates import names, parted, uris_of
from forked import Outcome, clean_environment, start
from packaging.requirements import Requirement
from repository import ROOT

from pipelines.config import recipe as build_recipe
from pipelines.features.catalogue import extractors
from pipelines.settings import FeaturesConfig
from pipelines.sources.datasets.news import NewsSource
from schemas.documents import Role
from schemas.messages import ConfigError
from schemas.overrides import override
from schemas.plugins import (
    FUSERS,
    OBJECTIVES,
    SIMILARITIES,
    Group,
    find_part,
    load_plugin,
    part_names,
    plugins,
)
from training.config import TrainConfig, objective
from training.data.ragged import Ragged
from training.loop.encoding import losses
from training.mlflow.registering import requirements_of
from training.objectives.batch import EncodedBatch
from training.parts import requirement
from training.recipes import recipe

PARTS = ROOT / "examples" / "parts"
BROKEN = {
    "multilink.objectives": {
        "missing": "broken_parts:Missing",
        "no-class": "broken_parts:WORD",
        "no-losses": "broken_parts.half:NoLosses",
    },
    "multilink.text_towers": {"no-tower": "broken_parts:WORD"},
    "multilink.extractors": {"no-entry": "broken_parts:WORD"},
    "multilink.sources": {"no-build": "broken_parts:WORD", "raises": "broken_parts.raising:build"},
}
Run = Callable[..., Any]


def write_entry_points(folder: Path, name: str, groups: dict[str, dict[str, str]]) -> None:
    """Write what an installed package leaves of its entry points."""
    written = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    written.mkdir(parents=True)
    (written / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [line for group, own in groups.items() for line in (f"[{group}]", *(f"{k} = {v}" for k, v in own.items()))]
    (written / "entry_points.txt").write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip installed the example's package, asking no index."""
    target = tmp_path_factory.mktemp("parts")
    command = ["pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--target", str(target)]
    copied = shutil.copytree(PARTS, target / "source")
    subprocess.run([sys.executable, "-m", *command, str(copied)], check=True, timeout=300)
    return target


@pytest.fixture
def on_path(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], None]]:
    """Put a folder of installed packages where they are found; forget what was found before and after."""

    def put(folder: Path) -> None:
        monkeypatch.syspath_prepend(folder)
        forget()

    def forget() -> None:
        for cached in (plugins, load_plugin, find_part):
            cached.cache_clear()
        for name in [each for each in sys.modules if each.partition(".")[0] == "broken_parts"]:
            del sys.modules[name]

    yield put
    monkeypatch.undo()
    forget()


def multilink(folder: Path, *arguments: str, path: Path) -> Outcome:
    return start(*arguments, folder=folder, environment=clean_environment(PYTHONPATH=f"{path}:{ROOT}")).finish()


def write_albums(folder: Path, photographs: dict[str, bytes]) -> Path:
    """Write twelve albums of three pictures each, and a row without a caption."""
    rows, names, path = [("album", "picture", "caption")], sorted(photographs), folder / "albums.csv"
    folder.mkdir()
    for number, place in product(range(12), range(3)):
        name = f"{number}-{place}.jpg"
        (folder / name).write_bytes(photographs[names[(number * 3 + place) % len(names)]])
        rows.append((f"album-{number:02}", name, f"Picture {place} of {names[(number + place) % len(names)]}."))
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([*rows, ("album-11", "0-0.jpg", " ")])
    return path


@pytest.mark.trial  # six commands; what the parts compute is tested below
def test_a_package_of_parts_is_used_by_the_commands(
    installed: Path, tmp_path: Path, photographs: dict[str, bytes]
) -> None:
    table = write_albums(tmp_path / "own", photographs)
    features = "features.images=colour-histogram"
    build = ["build", "captions", "--set", f"source.documents={table}", "--set", features, "--lake", "lake", "--json"]
    multilink(tmp_path, *build, path=installed).check()
    images = next((tmp_path / "lake" / "datasets" / "captions").rglob("images/**/*.parquet"))
    vectors = np.stack(pq.read_table(images).column("features.colour-histogram").to_pylist())
    assert vectors.shape[1] == 64
    np.testing.assert_allclose(vectors.astype(float).sum(axis=1), 1, atol=1e-2)

    objective = ["objective.name=info-nce", "objective.similarity.name=mean", "objective.temperature=0.1"]
    towers = ["text.name=sentence-mlp", "text.hidden=32", "image.name=vector-mlp", "image.hidden=32"]
    fused = ["text.name=multi-source", "text.sources=sentence", "text.fuser.name=share", "text.word_dimensions=8"]
    train = ["train", "--dataset", "captions", "--recipe", "tiny", "--lake", "lake"]
    for version, own in ((1, [*objective, *towers]), (2, [*objective, *fused, "text.buckets=100"])):
        settings = [part for setting in (*own, "training.epochs=2", "dimensions=16") for part in ("--set", setting)]
        trained = multilink(tmp_path, *train, *settings, path=installed).check()
        assert f"models:/multilink-captions-info-nce/{version}" in trained.out
    link = ["link", "--model", "models:/multilink-captions-info-nce/1", "--dataset", "captions", "--lake", "lake"]
    assert multilink(tmp_path, *link, "--output", "links", path=installed).status == 0
    assert pq.read_table(tmp_path / "links" / "links").num_rows > 0

    without = multilink(tmp_path, *link, "--output", "links-2", path=ROOT)  # where the package is not installed
    assert without.status != 0
    assert "sentence-mlp" in without.err and "Traceback" not in without.err


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the notebook ran."""
    folder = tmp_path_factory.mktemp("notebook")
    shutil.copy(ROOT / "examples" / "own_documents.ipynb", folder)
    run = [sys.executable, "-c", "from nbclient.cli import main; main()", "own_documents.ipynb", "--output=done.ipynb"]
    environment = clean_environment(PYTHONPATH=str(ROOT), HOME=str(folder))
    done = subprocess.run(run, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.trial
def test_the_notebook_goes_from_a_folder_to_links(executed: Path) -> None:
    cells = json.loads((executed / "done.ipynb").read_text())["cells"]
    printed = ["".join(out.get("text", "")) for cell in cells for out in cell.get("outputs", [])]
    pictures = [out for cell in cells for out in cell.get("outputs", []) if "image/png" in out.get("data", {})]
    assert any("models:/multilink-documents-closed-form/1" in text for text in printed)
    linked = [line for text in printed for line in text.splitlines() if re.search(r"own/\d-\d\.png +0?\.?\d", line)]
    assert len(linked) == len(pictures) == 2
    assert (executed / "linked" / "index.html").stat().st_size > 10_000


@pytest.mark.trial  # two minutes of other tools' imports
def test_a_shard_is_read_with_other_tools(executed: Path) -> None:
    (version,) = (path.parent for path in (executed / "lake" / "datasets" / "documents").glob("*/manifest.json"))
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "read_shard.py", version],
        env=os.environ | {"RAY_USAGE_STATS_ENABLED": "0"},
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    splits = json.loads((version / "manifest.json").read_text())["splits"]
    lines = dict(line.partition(" ")[::2] for line in done.stdout.splitlines())
    assert lines["pyarrow"] == str(splits["train"]["documents"])
    counted = [(name, split["documents"], split["sentences"]) for name, split in splits.items()]
    assert eval(lines["duckdb"]) == sorted(counted)
    assert sum(shape[0] for shape in eval(lines["torch"])) == sum(split["unique_images"] for split in splits.values())
    assert all(min(each.values()) == 256 for each in eval(lines["ray"]))


HEADLINE, LEAD, CAPTION, BODY = Role.HEADLINE, Role.LEAD, Role.CAPTION, Role.BODY
_TOP = {HEADLINE: "A Bridge \u2019Falls\u2019", LEAD: "It fell at noon."}
_FALLEN = {BODY: "The bridge fell at noon. Nobody was hurt."}
# The published file, others beside it; each document's id, split, picture and texts; failures of the build.
NEWS: dict[str, tuple[str, dict[str, Any], list[tuple[str, str | None, str, dict[Role, str]]], list[str]]] = {
    "goodnews": (
        "captioning_dataset.json",
        {},
        [
            ("4fd1c_0", None, "4fd1c_0.jpg", {**_TOP, CAPTION: "The bridge on Monday.", **_FALLEN}),
            ("4fd1c_2", None, "4fd1c_2.jpg", {**_TOP, **_FALLEN}),
            ("4fd1c_3", None, "4fd1c_3.jpg", {**_TOP, **_FALLEN}),
            ("4fd1d_0", None, "4fd1d_0.jpg", {CAPTION: "Owners.", BODY: "Café owners protest."}),
            ("4fd21_1", None, "4fd21_1.jpg", {CAPTION: "Good."}),
        ],
        ["4fd1c_3 empty-sentence", "4fd1f_0 broken-record", "4fd21_0 broken-record"],
    ),
    "goodnews by its splits": (
        "captioning_dataset.json",
        {
            "splits": {"4fd1c_0": "train", "4fd1c_2": "val", "4fd21_1": "test", "elsewhere_0": "test"},
            "urls": {"4fd1c": {"0": "https://h/a.jpg", "2": None}, "4fd1d": {}},
        },
        [
            ("4fd1c_0", "train", "https://h/a.jpg", {**_TOP, CAPTION: "The bridge on Monday.", **_FALLEN}),
            ("4fd1c_2", "val", "4fd1c_2.jpg", {**_TOP, **_FALLEN}),
            ("4fd21_1", "test", "4fd21_1.jpg", {CAPTION: "Good."}),
        ],
        [],
    ),
    "visualnews": (
        "visualnews/data.json",
        {},
        [
            (
                "5",
                None,
                "bbc/images/0000/005.jpg",
                {CAPTION: "A judge in London.", BODY: "A judge spoke. Then she left."},
            ),
            ("6", None, "guardian/images/0001/006.jpg", {CAPTION: "Fish & chips", BODY: "Fish costs £10 more."}),
            ("8", None, "bbc/images/0000/008.jpg", {CAPTION: "No article was said."}),
            ("9", None, "../../etc/passwd", {CAPTION: "Leads out."}),
            ("10", None, "a.jpg", {CAPTION: "Leads out, too."}),
            ("5", None, "b.jpg", {CAPTION: "The same id."}),
        ],
        ["7 empty-document", "out.jsonl:8 missing-field", "out.jsonl:9 missing-field", "11 missing-field"],
    ),
}


@pytest.mark.parametrize("name", NEWS)
def test_published_news_become_records_of_the_recipe(name: str, tmp_path: Path) -> None:
    published, beside, documents, failures = NEWS[name]
    for each, values in beside.items():
        (tmp_path / each).write_text(json.dumps(values))
    convert = runpy.run_path(str(ROOT / "examples" / "convert_news.py"))["convert"]
    output = tmp_path / "out.jsonl"
    convert(ROOT / "tests" / "fixtures" / "news" / published, output, **{each: tmp_path / each for each in beside})
    found, left = parted(NewsSource(articles=str(output)).read())
    texts = [{text.role: text.text for text in each.sentences} for each in found]
    assert [(each.id, each.split, uris_of(each)[0], text) for each, text in zip(found, texts, strict=True)] == documents
    assert names(left) == failures and {each.language for each in found} == {"en"}
    assert name == "visualnews" or found[0].provenance.url == "https://www.nytimes.com/1"


def test_the_objective_is_the_cross_entropy_of_the_own_sets(installed: Path, on_path: Callable[[Path], None]) -> None:
    on_path(installed)
    vectors = torch.nn.functional.normalize(torch.randn(6, 4, generator=torch.Generator().manual_seed(1)), dim=1)
    batch = EncodedBatch(
        ids=("a", "b", "c"),
        sentences=Ragged.of([1, 1, 1]),
        images=Ragged.of([1, 1, 1]),
        text_vectors=vectors[:3],
        image_vectors=vectors[3:],
        allowed=~torch.eye(3, dtype=torch.bool),
    )
    found = losses(objective("info-nce", similarity={"name": "dc", "combine": "mean"}, temperature=0.5), batch)
    shares = np.exp((vectors[:3] @ vectors[3:].T).double().numpy() / 0.5)
    expected = -np.log(np.diag(shares) / shares.sum(axis=1)) / 2 - np.log(np.diag(shares) / shares.sum(axis=0)) / 2
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-5)


def test_the_similarity_is_the_mean_of_a_documents_cosines(installed: Path, on_path: Callable[[Path], None]) -> None:
    on_path(installed)
    cosines = torch.rand(5, 4, generator=torch.Generator().manual_seed(2)) - 0.5
    sentences, images = Ragged.of([2, 3]), Ragged.of([1, 3])
    mean = find_part(SIMILARITIES, "mean")()
    rows, columns = (slice(0, 2), slice(2, 5)), (slice(0, 1), slice(1, 4))
    expected = np.array([[cosines[row, column].double().mean() for column in columns] for row in rows])
    np.testing.assert_allclose(mean.blocks(cosines, sentences, images).numpy(), expected, atol=1e-6)
    np.testing.assert_allclose(mean.own(cosines, sentences, images).numpy(), expected.diagonal(), atol=1e-6)


def test_the_fuser_starts_from_the_mean_of_the_sources(installed: Path, on_path: Callable[[Path], None]) -> None:
    on_path(installed)
    fuser = find_part(FUSERS, "share")().build(sources=3, dimensions=2, head_dimensions=1)
    stacked = torch.arange(12.0).view(2, 3, 2)
    np.testing.assert_allclose(fuser(stacked).detach().numpy(), stacked.numpy().mean(axis=1), atol=1e-6)
    with torch.no_grad():
        fuser.logits_S.copy_(torch.tensor([2.0, 1.0, 1.0]).log())
    expected = np.average(stacked.numpy(), axis=1, weights=[2, 1, 1])
    np.testing.assert_allclose(fuser(stacked).detach().numpy(), expected, atol=1e-5)


@pytest.mark.parametrize(
    "settings",
    [
        ["objective.name=info-nce"],
        ["objective.similarity.name=mean"],
        ["text.name=sentence-mlp"],
        ["image.name=vector-mlp"],
        ["text.name=multi-source", "text.fuser.name=share"],
    ],
)
def test_a_model_requires_the_package_of_each_of_its_parts(
    installed: Path, on_path: Callable[[Path], None], settings: list[str]
) -> None:
    on_path(installed)
    plain, own = ({*requirements_of(changed(*each))} for each in ([], settings))
    assert own - plain == {f"multilink-parts @ {(installed / 'source').as_uri()}"}


def changed(*settings: str) -> TrainConfig:
    return override(recipe("tiny"), settings)


def column(name: str) -> object:
    return extractors([name], "images", FeaturesConfig())


@pytest.mark.parametrize(
    ("use", "name", "words"),
    [
        (changed, "objective.name=missing", "multilink.objectives 'missing' = broken_parts:Missing of broken-parts"),
        (changed, "objective.temperature=1", "unknown key 'objective.temperature'"),
        (changed, "objective.name=no-losses", "objective.name = 'no-losses': NoLosses does not define losses"),
        (changed, "objective.name=no-class", "expected a dataclass whose name is 'no-class' by default"),
        (changed, "text.name=no-tower", "expected a dataclass whose name is 'no-tower' by default"),
        (column, "no-entry", "expected an Entry of the catalogue for each column, by name"),
        (build_recipe, "no-build", ": expected functions that return a BuildConfig, by name"),
        (build_recipe, "raises", ": RuntimeError: no licence key"),
    ],
)
def test_a_broken_part_is_one_clear_error_where_it_is_used(
    tmp_path: Path, on_path: Callable[[Path], None], use: Callable[[str], object], name: str, words: str
) -> None:
    broken(tmp_path)
    on_path(tmp_path)
    changed("objective.name=cross-document")  # what is not used does no harm
    with pytest.raises(ConfigError, match=re.escape(words)):
        use(name)


def test_a_name_that_another_package_has_is_told(tmp_path: Path, on_path: Callable[[Path], None]) -> None:
    broken(tmp_path)
    write_entry_points(tmp_path, "rival", {"multilink.objectives": {"missing": "elsewhere:Missing"}})
    on_path(tmp_path)
    with pytest.raises(ConfigError, match="another package has this name, too: "):
        changed("objective.name=missing")


def test_a_module_in_a_groups_folder_is_found_by_itself(tmp_path: Path, on_path: Callable[[Path], None]) -> None:
    kind = "from dataclasses import dataclass\n\n\n@dataclass\nclass OneKind:\n    name: str = 'one-kind'\n"
    write_package(tmp_path / "own_kinds", __init__="", one_kind=kind)
    on_path(tmp_path)
    group = Group("multilink.no_such_group", "own_kinds")
    assert part_names(group) == ["one-kind"]
    assert find_part(group, "one-kind")().name == "one-kind"


@pytest.mark.parametrize(
    ("note", "expected"),
    [
        ("", "rival-parts==1.0"),
        ('{"url": "file:///own/parts", "dir_info": {}}', "rival-parts @ file:///own/parts"),
        (
            '{"url": "https://host.example/parts.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}}',
            "rival-parts @ git+https://host.example/parts.git@abc",
        ),
        (
            '{"url": "https://host.example/p.whl", "archive_info": {"hashes": {"sha256": "12"}}}',
            "rival-parts @ https://host.example/p.whl#sha256=12",
        ),
    ],
)
def test_a_part_of_a_package_that_no_index_has_is_named_by_its_place(
    tmp_path: Path, on_path: Callable[[Path], None], note: str, expected: str
) -> None:
    write_entry_points(tmp_path, "rival-parts", {"multilink.objectives": {"rival": "elsewhere:Rival"}})
    if note:
        (tmp_path / "rival_parts-1.0.dist-info" / "direct_url.json").write_text(note)
    on_path(tmp_path)
    assert requirement(OBJECTIVES, "rival") == expected and Requirement(expected)


def broken(folder: Path) -> None:
    """Install a package of which no part is what it should be."""
    write_entry_points(folder, "broken-parts", BROKEN)
    half = (
        "from dataclasses import dataclass\n\nfrom training.objectives.term import Term\n\n\n"
        "@dataclass(frozen=True, slots=True, kw_only=True)\nclass NoLosses(Term):\n    name: str = 'no-losses'\n"
    )
    raising = "raise RuntimeError('no licence key')\n"
    write_package(folder / "broken_parts", __init__="WORD = 'word'\n", half=half, raising=raising)


def write_package(folder: Path, **modules: str) -> None:
    folder.mkdir()
    for name, code in modules.items():
        (folder / f"{name}.py").write_text(code)
