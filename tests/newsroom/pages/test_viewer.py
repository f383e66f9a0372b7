"""The link viewer and the browser of data sets, over HTTP and in Chromium, on documents that mean harm among others."""

from __future__ import annotations

import hashlib
import html
import io
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import lakes
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from running_newsroom import EVIL, check_page, served

from newsroom.decisions.database import open_database
from newsroom.decisions.records import Action, Decision, standing
from newsroom.decisions.store import Store
from newsroom.labels.label_sample import drawn_images, frame_of, links_by, sample_of
from newsroom.labels.linked import DocumentFilter, Order, find_links, link_sets, linked_documents, ordered, outcomes
from newsroom.labels.rows import place_of, rows_at
from newsroom.pages.datasets import rendered
from newsroom.pages.rendering import picture_address
from newsroom.pages.state import PagesSettings
from orchestration.cli import run
from pipelines.images.inspect import ROWS_PER_GROUP
from pipelines.packs import PackFolder
from schemas.documents import COPY_SCHEMA, Provenance, Sentence, Split
from schemas.duplicates import DUPLICATE_SCHEMA, LEAK_SCHEMA, Duplicate, Leak, LeakKind
from schemas.failures import FAILURE_SCHEMA, Failure, Reason, Stage
from schemas.lake import MANIFEST, Folder, Lake
from schemas.links import LINKED_SCHEMA
from schemas.manifest import FileEntry, Manifest, read_manifest, table_parts, verify
from schemas.overrides import override
from schemas.tables import row_of, to_table
from training.evaluation.judge import judge_model
from training.evaluation.models import evaluate_model
from training.linking.links import Linker, LinkOptions
from training.linking.versions import link_version, prepare_linking
from training.metrics.calibration import Calibration
from training.model import LinkModel
from training.similarity.assignment import predicted_pairs

if TYPE_CHECKING:
    from playwright.sync_api import Page

MODELS = ("first-1", "second-2")
CONFIG = override(lakes.TINY, ["image.standardise=false", "training.epochs=8"])
CALIBRATION = Calibration(
    sentences=(1, 99),
    images=(1, 99),
    dataset="synthetic@v1",
    split="val",
    documents=9,
    links=30,
    true_links=20,
    slopes=(8.0, 0.0, 0.0),
    intercept=0.0,
)
COUNT, TRAINED = 23, 40


@dataclass(frozen=True)
class Site:
    """Running pages, and what they show."""

    url: str
    store: str
    lake: Lake
    manifest: Manifest
    folder: Folder
    models: Mapping[str, LinkModel]

    @property
    def links(self) -> str:
        return f"{self.url}/links/synthetic/v1"

    @property
    def data(self) -> str:
        return f"{self.url}/datasets/synthetic/v1"


def add(lake: Lake, name: str, schema: pa.Schema, rows: list[Any]) -> None:
    """Add a table without splits to the version."""
    manifest, folder = read_manifest(lake, "synthetic@v1")
    buffer = io.BytesIO()
    pq.write_table(to_table(map(row_of, rows), schema), buffer)
    data, path = buffer.getvalue(), f"{name}/part-00000-of-00001.parquet"
    folder.write(path, data)
    entry = FileEntry(path=path, bytes=len(data), sha256=hashlib.sha256(data).hexdigest(), rows=len(rows))
    failures = {"low-score": 2, "not-found": 1, "duplicate-image": 1} if name == "failures" else manifest.failures
    changed = replace(manifest, files=(*manifest.files, entry), failures=failures)
    folder.write(MANIFEST, changed.to_json().encode())


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Write 23 test documents; one means harm, and links of one are unknown."""
    root = tmp_path_factory.mktemp("viewer") / "lake"
    made = lakes.make_documents(Split.TEST, COUNT, lakes.World(noise=1.5))
    documents, vectors = list(made.documents), dict(made.sentence_vectors)
    evil = documents[3]
    documents[3] = replace(
        evil,
        id=EVIL,
        sentences=tuple(Sentence(f"{EVIL} {n} \u202e") for n in range(len(evil.sentences))),
        provenance=Provenance(source=EVIL, record_id=EVIL, url="javascript:window.harmed=3", licence=EVIL),
    )
    vectors[EVIL] = vectors.pop(evil.id)
    documents[4] = replace(documents[4], links=None)
    documents[5] = replace(documents[5], language="de")
    train = lakes.make_documents(Split.TRAIN, TRAINED, lakes.World())
    whole = replace(made, documents=tuple(documents), sentence_vectors=vectors)
    lake: Lake = lakes.write_lake(root, {Split.TRAIN: train, Split.TEST: whole}, shards=2, is_rich=True)
    hashes = [image.hash for image in documents[0].images][:2]
    _copies(lake, {hashes[0]: "00000000000000ff", hashes[1]: "000000000000000f"})
    rows = [Duplicate(hashes[0], f"test-00{n}", 0, image, hashes[1 - n], 4, bool(n)) for n, image in enumerate(hashes)]
    add(lake, "duplicates", DUPLICATE_SCHEMA, rows)
    shared = Leak(LeakKind.SENTENCE, Split.TEST, Split.TRAIN, EVIL, EVIL, "train-000", EVIL, 4)
    near = Leak(LeakKind.NEAR_IMAGE, Split.TEST, Split.TRAIN, hashes[0], "test-000", "train-001", hashes[1])
    add(lake, "leaks", LEAK_SCHEMA, [shared, near])
    low = [Failure(Stage.SOURCES, EVIL, Reason.LOW_SCORE, EVIL), Failure(Stage.SOURCES, "b", Reason.LOW_SCORE, "1")]
    copy = Failure(Stage.DEDUPE, "test-001", Reason.DUPLICATE_IMAGE, "of test-000")
    add(lake, "failures", FAILURE_SCHEMA, [*low, Failure(Stage.IMAGES, "c", Reason.NOT_FOUND, "404", image=1), copy])
    return lake


def _copies(lake: Lake, fingerprints: Mapping[str, str]) -> None:

    out = io.BytesIO()
    Image.new("RGB", (8, 8), "red").save(out, "JPEG")
    columns: dict[str, list[Any]] = {name: [None] * len(fingerprints) for name in COPY_SCHEMA.names}
    columns |= {
        "hash": list(fingerprints),
        "is_flat": [False] * len(fingerprints),
        "fingerprint": list(fingerprints.values()),
        "jpeg": [out.getvalue()] * len(fingerprints),
    }
    packs = PackFolder(lake.images.child("method"), COPY_SCHEMA, "hash", ROWS_PER_GROUP)
    writer = packs.writer()
    writer.add(columns)
    writer.close()


@pytest.fixture(scope="module")
def site(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    trained = lakes.learn(CONFIG, lake, tmp_path_factory.mktemp("trained"))
    models = {
        MODELS[0]: LinkModel.load(trained),
        MODELS[1]: lakes.untrained(CONFIG, lake),
    }
    for seed, name in enumerate(MODELS):
        output = lake.links("synthetic", "v1", *name.rsplit("-", 1))
        options = LinkOptions(calibration=CALIBRATION if seed == 0 else None)
        linker = Linker(model=models[name], uri=f"models:/{name}/1", options=options)
        linking = prepare_linking(linker, lake, "synthetic", output=output)
        link_version(models[name], linking, say=lambda _: None)
    store = f"sqlite:///{tmp_path_factory.mktemp('store')}/pages.sqlite"
    with served(PagesSettings(lake=lake.root.uri, store=store)) as server:
        yield Site(server.url, store, lake, *read_manifest(lake, "synthetic@v1"), models)


def got(address: str, **parameters: Any) -> str:
    answer = httpx.get(address, params=parameters, timeout=120, follow_redirects=True)
    assert answer.status_code == 200, answer.text
    return answer.text


def documents_on(text: str) -> list[str]:
    return re.findall(r'data-document="([^"]*)"', text)


def test_documents_come_in_order_of_auc_ten_a_page(site: Site) -> None:
    auc = evaluate_model(site.models[MODELS[0]], site.lake, "synthetic", "test").document_auc
    found: list[str] = []
    for number in range(1, 4):
        text = got(site.links, page=number, order="worst", split="test")
        assert f"{number} of 3" in text
        found += documents_on(text)
    plain = {key.replace('"', "&#34;").replace("<", "&lt;").replace(">", "&gt;"): key for key in (*auc, EVIL)}
    known = [plain.get(key, key) for key in found]
    assert len(known) == len(set(known)) == COUNT
    ordered = [auc[key] for key in known if key in auc]
    assert ordered == sorted(ordered) and len(ordered) == len(auc) > 15
    assert not set(known[: len(auc)]) - auc.keys()  # those without one come last
    best = [plain.get(key, key) for key in documents_on(got(site.links, order="best", split="test"))]
    assert auc[best[0]] == max(auc.values())


def test_filters_leave_the_documents_that_they_name(site: Site) -> None:
    table = outcomes(find_links(link_sets(site.lake, site.manifest), MODELS[0])).to_pylist()
    wrong = {row["document"] for row in table if row["wrong"] or row["missed"]}
    assert 0 < len(wrong) < len(table) - 1  # else the filter shows nothing
    assert f"{len(wrong)} of {len(table)} documents" in got(site.links, errors="true", split="")
    assert f"{TRAINED} of {COUNT + TRAINED}" in got(site.links, split="train")
    assert documents_on(got(site.links, language="de")) == ["test-005"]
    assert f"0 of {COUNT + TRAINED}" in got(site.links, language="de", split="train")


def test_the_viewer_opens_on_the_surest_right_links_of_documents_that_were_not_trained_on(site: Site) -> None:
    table = outcomes(find_links(link_sets(site.lake, site.manifest), MODELS[0])).to_pylist()
    test = [row for row in table if row["split"] == "test"]
    right = [row for row in test if row["wrong"] == 0 and row["links"]]
    assert 0 < len(right) < len(test)  # else the order shows nothing
    surest = max(right, key=lambda row: row["confidence"])
    text = got(site.links)
    assert documents_on(text)[0] == surest["document"] and f"{len(test)} of {len(table)} documents" in text
    pages = [got(site.links, page=number) for number in range(1, 4)]
    listed = [html.unescape(name) for page in pages for name in documents_on(page)]
    assert set(listed[: len(right)]) == {row["document"] for row in right}


def test_documents_are_found_by_id_and_read_alone(site: Site) -> None:
    places = {row["id"]: (entry, at) for entry, at, row in _everywhere(site)}
    parts = {entry for entry, _ in places.values()}
    found = {name: place_of(site.folder, parts, entry.path, name) for name, (entry, _) in places.items()}
    assert found == places and len(places) == COUNT + TRAINED
    (first, *_) = parts
    assert place_of(site.folder, parts, first.path, "nobody") is place_of(site.folder, parts, "x", "test-005") is None
    some = ["test-005", EVIL, "train-003", "test-005"]
    assert [row["id"] for row in rows_at(site.folder, [places[name] for name in some], ["id", "images"])] == some


def _everywhere(site: Site) -> Iterator[tuple[FileEntry, int, dict[str, Any]]]:
    for split in Split:
        for entry in site.manifest.parts("documents", split):
            yield from ((entry, at, row) for at, row in enumerate(_table(site, entry)))


def test_a_document_is_drawn_with_the_links_that_the_model_predicts(site: Site) -> None:
    links = find_links(link_sets(site.lake, site.manifest), MODELS[0])
    table = outcomes(links)
    names = table.column("document").to_pylist()
    (found,) = linked_documents(links, site.manifest, site.folder, [names.index("test-005")])
    evaluation = judge_model(site.models[MODELS[0]], site.lake, "synthetic", "test").evaluation
    matrix = evaluation.matrices[evaluation.ids.index("test-005")]
    pairs = set(zip(*(each.tolist() for each in predicted_pairs(matrix)), strict=True))
    assert {(s, i) for s, i, _ in found.drawn.predicted} == pairs
    for (s, i, similarity), probability in zip(found.drawn.predicted, found.drawn.sureness, strict=True):
        assert similarity == pytest.approx(matrix[s, i], abs=1e-5)
        assert probability == pytest.approx(1 / (1 + np.exp(-8 * matrix[s, i])), abs=1e-5)
    text = got(site.links, language="de")
    assert len(re.findall(r'<path class="edge (?:right|wrong)[^>]*data-similarity', text)) == len(pairs)
    for s, i in pairs:
        assert f"sentence {s + 1} – image {i + 1}, similarity {matrix[s, i]:.2f}, probability" in text
    picture = re.search(r'<img src="(/pictures/[^"]*)"', text)
    answer = httpx.get(site.url + picture[1].replace("&amp;", "&"))
    assert (answer.status_code, answer.headers["content-type"]) == (200, "image/jpeg")
    assert "max-age" in answer.headers["cache-control"] and answer.content[:2] == b"\xff\xd8"


def test_two_models_stand_side_by_side(site: Site) -> None:
    text = got(site.links, language="de", other=MODELS[1])
    assert text.count('<article class="card example">') == 2
    titles = re.findall(r"similarity -?[\d.]+, (probability)?", text)
    assert len(set(titles)) == 2  # one has a calibration, the other has none


def test_links_below_the_threshold_are_there_but_hidden(site: Site) -> None:
    text = got(site.links, threshold="0.6", order="worst")
    edges = re.findall(r'<path class="edge (\w+)( below)?"[^>]*?(?: data-similarity="([^"]*)")?>', text)
    told = [(bool(below), float(sure)) for _, below, sure in edges if sure]
    assert {below for below, _ in told} == {True, False}
    assert all(below == (sure < 0.6) for below, sure in told)


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/links/synthetic/v1?order=luck", 400, "order"),
        ("/links/synthetic/v1?threshold=2", 400, "threshold"),
        ("/links/synthetic/v1?page=0", 400, "page"),
        ("/links/synthetic/v1?model=../../..", 404, "links of this version: first-1, second-2"),
        ("/links/synthetic/v9", 404, "no version"),
        ("/links/..%2f..%2fetc/v1", 404, ""),
        ("/datasets/synthetic/v1/failures?reason=x", 400, "reason"),
        ("/datasets/synthetic/v1/leaks?kind=x", 400, "kind"),
        ("/datasets/synthetic/v1/samples?seed=-1", 400, "seed"),
        ("/pictures/synthetic@v1/..%2f..%2fetc%2fpasswd.jpg", 404, ""),
        ("/pictures/synthetic@v1/abc.jpg?part=../../../../etc/passwd", 400, "name"),
        ("/pictures/..%2f..@1/abc.jpg?part=x", 404, ""),
        ("/static/../app.py", 404, ""),
        ("/static/%2e%2e/app.py", 404, ""),
        ("/articles/%2e%2e%2f%2e%2e%2fetc", 404, ""),
        ("/images/x/y", 404, ""),
        ("/pictures/synthetic@v1/abc.jpg", 400, "name"),
        (f"/pictures/synthetic@v1/{'0' * 64}.jpg", 404, "no copy"),
    ],
)
def test_what_is_not_there_is_one_line(site: Site, path: str, status: int, words: str) -> None:
    answer = httpx.get(site.url + path)
    assert answer.status_code == status, answer.text
    assert words in answer.text and "Traceback" not in answer.text


def form_of(text: str, document: str) -> list[str]:
    """Return what the buttons of a page say of a document."""
    section = text.partition(f'data-document="{document}"')[2].partition("</section>")[0]
    return re.findall(r'name="correction" value="(\d[^"]*)"', section)


def test_a_correction_is_a_decision_in_the_log(site: Site) -> None:
    with httpx.Client(base_url=site.url, timeout=120) as browser:
        said = form_of(browser.get("/links/synthetic/v1?language=de").text, "test-005")
        sentence, image, _ = said[0].split("-")
        values = {"model": MODELS[0], "document": "test-005", "correction": f"{sentence}-{image}-wrong"}
        beside = 1 - min(int(image), 1)
        target = "/links/synthetic/v1/corrections"
        assert browser.post(target, data=values).status_code == 303
        assert browser.post(target, data=values | {"correction": "0-999-right"}).status_code == 400
        assert browser.post(target, data=values | {"document": "x"}).status_code == 400
        added = {"model": MODELS[0], "document": "test-005", "sentence": "0", "image": str(beside)}
        assert browser.post(target, data=added).status_code == 303
        shown = browser.get("/links/synthetic/v1?language=de").text
    assert f'value="{sentence}-{image}-wrong" aria-pressed="true"' in shown
    with Store(open_database(site.store)) as log:
        mine = [each for each in log.decisions() if each.document == "test-005"]
    (document,) = [each for each in _raw(site) if each["id"] == "test-005"]
    assert [(each.action, each.sentence, each.image) for each in mine] == [
        (Action.WRONG, int(sentence), document["images"][int(image)]["hash"]),
        (Action.RIGHT, 0, document["images"][beside]["hash"]),
    ]
    assert {(each.dataset, each.model) for each in mine} == {("synthetic@v1", "models:/first-1/1")}


def _raw(site: Site) -> list[dict[str, Any]]:
    path = site.folder.local
    rows: list[dict[str, Any]] = pq.read_table(path / "documents" / "test").select(["id", "images"]).to_pylist()
    return rows


def test_the_browser_shows_what_a_build_found(site: Site) -> None:
    for home in ("datasets", "links"):
        listed = got(f"{site.url}/{home}", q="SYNTH", order="name")
        assert f'href="/{home}/synthetic/v1">synthetic</a>' in listed and "63 documents" in listed
        (cover,) = re.findall(r'<img class="thumb" src="([^"]*)"', listed)
        assert httpx.get(site.url + html.unescape(cover)).content[:2] == b"\xff\xd8"
        assert "Nothing was found" in got(f"{site.url}/{home}", q="<script>", ui="en")
    assert f"<td>{TRAINED}</td>" in got(site.data)
    reasons = got(f"{site.data}/failures")
    assert "low-score</a> 2" in reasons and "not-found</a> 1" in reasons
    only = got(f"{site.data}/failures", reason="not-found")
    assert "<code>c</code>, image 1" in only and "1 of 1" in only and "&lt;script&gt;" not in only
    clusters = got(f"{site.data}/duplicates")
    assert "1 cluster of" in clusters and "The two that are least alike: 4 bits apart" in clusters
    (picture,) = set(
        re.findall(r'href="(/pictures/synthetic%40v1/[0-9a-f]{64}\.jpg)[^"]*" class="enlarge"', clusters)[:1]
    )
    answer = httpx.get(site.url + picture)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "image/jpeg")
    assert "near-image</a> 1" in got(f"{site.data}/leaks")
    dropped = got(f"{site.data}/failures", reason="duplicate-image")
    record = dropped[dropped.index("<td><code>test-001") :]
    assert re.search(r'href="/pictures/synthetic%40v1/[0-9a-f]{64}\.jpg', record[: record.index("</td>")])


def test_a_version_is_shown_in_the_order_of_the_flow_with_its_card_as_a_page(site: Site) -> None:
    text = got(site.data)
    stages = re.findall(r'<th scope="row">([a-z-]+)</th>', text)
    splits = [each for each in stages if each in set(Split)]
    assert splits == [split for split in Split if split in splits]
    others = [each for each in stages if each not in splits]
    assert others == [stage for stage in Stage if stage in others]
    evil = "---\npretty_name: x\n---\n\n# name\n\nText with [a link](javascript:window.harmed=5) <script>x</script>\n\n"
    made = rendered(
        evil + "## Splits\n\n```text\na  b\n```\n\n![p](https://example.org/x.png)\n\n|a|b|\n|-|-:|\n|c|1|\n"
    )
    assert "pretty_name" not in made and "<h1>" not in made and "<h2>Splits</h2>" in made
    assert "<script" not in made and 'href="javascript' not in made and "<img" not in made and "<pre tabindex" in made
    assert "style=" not in made and '<td class="right">1</td>' in made  # the pages' policy knows no style of its own


def test_samples_are_the_same_for_the_same_seed(site: Site) -> None:
    drawn = re.compile(r"<h2><code>(.*?)</code>")
    first, again, other = (drawn.findall(got(f"{site.data}/samples", seed=seed)) for seed in (1, 1, 2))
    assert first == again != other and len(first) == 12
    train = drawn.findall(got(f"{site.data}/samples", seed=1, split="train"))
    assert len(train) == 12 and {name.partition("-")[0] for name in train} == {"train"}
    answer = httpx.get(f"{site.data}/samples")
    assert answer.status_code == 303 and "seed=" in answer.headers["location"]


def test_the_slider_hides_links_and_its_place_is_in_the_address(site: Site, page: Page) -> None:
    page.goto(f"{site.links}?split=test&order=worst")
    edges = page.locator(".linked path.edge[data-similarity]")
    sureness = edges.evaluate_all("all => all.map(each => Number(each.dataset.similarity))")
    assert edges.evaluate_all("all => all.filter(each => each.checkVisibility()).length") == len(sureness) > 0
    slider = page.locator("#threshold")
    slider.focus()
    for _ in range(6):
        page.keyboard.press("PageUp")
    value = float(slider.input_value())
    shown = edges.evaluate_all("all => all.filter(each => each.checkVisibility()).length")
    assert 0.3 < value < 1 and shown == sum(sure >= value for sure in sureness) < len(sureness)
    assert page.evaluate("new URL(location.href).searchParams.get('threshold')") == f"{value:g}"
    page.reload()
    assert edges.evaluate_all("all => all.filter(each => each.checkVisibility()).length") == shown
    heights = page.locator(".graph").evaluate_all(
        "all => all.map(each => [...each.children].map(part => part.getBoundingClientRect().height))"
    )
    assert all(max(parts) - min(parts) < 1 for parts in heights)  # edges end at the middle of their rows


def test_filters_are_sent_when_they_change_and_a_picture_opens_large(site: Site, page: Page) -> None:
    page.goto(site.links)
    page.get_by_label("Language", exact=True).select_option("de")
    page.wait_for_url("**language=de**")
    assert page.locator("[data-document]").evaluate_all("all => all.map(each => each.dataset.document)") == ["test-005"]
    page.locator("a.enlarge").first.click()
    large = page.locator("dialog#large img")
    large.wait_for(state="visible")
    large.evaluate("each => each.decode()")
    page.keyboard.press("Escape")
    large.wait_for(state="hidden")


def test_a_correction_is_made_by_keyboard_and_is_there_after_a_reload(site: Site, page: Page) -> None:
    page.goto(f"{site.links}?split=train")
    details = page.locator("details.corrections").first
    details.locator("summary").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    button = details.locator("button[aria-pressed]").first
    assert button.evaluate("each => each === document.activeElement")
    page.keyboard.press("Enter")
    page.locator('details.corrections[open] button[aria-pressed="true"]').wait_for()
    page.reload()
    assert page.locator('details.corrections button[aria-pressed="true"]').count() == 1


def test_a_document_that_means_harm_is_shown_as_text(site: Site, page: Page) -> None:
    seed = next(each for each in range(9) if "window.harmed" in got(f"{site.data}/samples", seed=each, split="test"))
    shown = (
        f"{site.links}?order=name&other=second-2",
        f"{site.data}/samples?seed={seed}&split=test",
        f"{site.data}/failures",
        f"{site.data}/leaks",
    )
    for address in shown:
        page.goto(address)
        page.wait_for_load_state("networkidle")
        assert page.locator("[href^='javascript']").count() == 0
        assert "<script>window.harmed" in page.locator("main").inner_text(), address
        assert page.evaluate("window.harmed") is None


def test_links_labels_and_data_sets_keep_the_rules_of_wcag_and_fit_their_window(site: Site, page: Page) -> None:
    parts = ("", "/samples?seed=1", "/failures", "/duplicates", "/leaks")
    paths = ["/links", "/links/synthetic/v1?order=worst&other=second-2", f"/labels/synthetic/v1/{MODELS[0]}?by=axe"]
    paths += ["/datasets", *(f"/datasets/synthetic/v1{part}" for part in parts)]
    for path in paths:
        check_page(page, site.url + path)


def test_a_hundred_thousand_documents_are_filtered_and_sorted() -> None:
    count, rng = 100_000, np.random.default_rng(0)
    columns: dict[str, Any] = {
        "document": [f"d{n:06d}" for n in range(count)],
        "language": ["en"] * count,
        **{name: rng.integers(0, 5, count).astype(np.int32) for name in ("sentences", "images", "links", "missed")},
        "wrong": rng.integers(0, 2, count).astype(np.int32),
        "auc": (100 * rng.random(count)).astype(np.float32),
        "confidence": rng.random(count).astype(np.float32),
        "relations": [["story"] if n % 3 else [] for n in range(count)],
        **{name: [None] * count for name in ("truth", "sentence_numbers", "image_numbers")},
    }
    table = pa.table({name: columns[name] for name in LINKED_SCHEMA.names}, schema=LINKED_SCHEMA)
    table = table.append_column("split", pa.repeat("test", count).dictionary_encode())
    rows = ordered(table, DocumentFilter(split="test", relation="story", has_error=True), Order.WORST)
    auc, wrong, missed = (np.asarray(columns[name]) for name in ("auc", "wrong", "missed"))
    expected = [n for n in range(count) if n % 3 and (wrong[n] or missed[n])]
    assert sorted(rows.tolist()) == expected
    assert (np.diff(auc[rows]) >= 0).all()


def test_pictures_are_labelled_by_keyboard_and_say_what_the_corpus_is_worth(
    page: Page, site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ten pictures: the proposed sentence, then none, cannot say, a number, arrows; the log says the same."""
    links = find_links(link_sets(site.lake, site.manifest), MODELS[0])
    frame = frame_of(links)
    rows = drawn_images(frame, 10, 0)
    (again,) = (each for each in link_sets(site.lake, site.manifest) if each.name == links.name)
    assert frame_of(again) is frame and drawn_images(frame_of(again), 10, 0) is rows  # read once, not at each answer
    page.goto(f"{site.url}/labels/synthetic/v1/{MODELS[0]}?count=10&by=Anna&ui=en")
    keys = ["proposed", "n", "c", "1", "ArrowDown Enter", *["proposed"] * 5]
    for number, (row, pressed) in enumerate(zip(rows, keys, strict=True)):
        page.wait_for_selector(f"[data-row='{row}']")
        assert page.get_attribute("[data-done]", "data-done") == str(number)
        assert not re.search(r"similarity|probability|\d%|0\.\d\d", str(page.text_content("main")))
        page.locator("form.label > img").evaluate("each => each.decode()")
        if pressed.startswith("Arrow"):
            page.locator("form.label ol button").first.focus()
        proposed = int(frame.sentences[row])
        press = pressed if pressed != "proposed" else str(proposed + 1) if 0 <= proposed < 9 else "n"
        for key in press.split():
            page.keyboard.press(key)
        page.wait_for_selector("#last")
        assert ("proposed none" in str(page.text_content("#last"))) == (proposed < 0)
    page.wait_for_selector("text=multilink measure first-1 --dataset synthetic@v1")
    with Store(open_database(site.store)) as log:
        made = list(log.decisions(article=sample_of(links, 0)))
        assert [each.who for each in made] == ["Anna"] * 10
        assert [(each.document, each.sentence) for each in made[3:5]] == [
            (frame.documents[frame.image(rows[3])[0]], 0),
            (frame.documents[frame.image(rows[4])[0]], 1),
        ]
        assert (made[1].action, made[2].action) == (Action.NONE_FITS, Action.CANNOT_SAY)
        again = [replace(each, who="Ben") for each in made[3:]]
        for each in again:
            log.decide(each)
        assert not list(log.corrections("synthetic@v1", {made[3].document} - {"test-005"}))
    assert "Which" not in got(f"{site.url}/decisions") and "sentence fits" in got(f"{site.url}/decisions", ui="en")
    common = ["measure", "first", "--dataset", "synthetic", "--lake", site.lake.root.uri, "--store", site.store]
    assert run([*common, "--precision", "0.9"]) == 0
    told = capsys.readouterr().out
    assert f"10 of {len(frame.sentences)} images are labelled" in told and "cannot say: 1" in told
    assert re.search(r"precision \d+\.\d% \(.* to .* with 95%\); about \d+ more labels", told)
    assert "Anna and Ben: 100% of 7 images alike, Cohen's kappa 1.00" in told
    assert "precision 90%: no threshold is shown to have it" in told
    assert run([*common, "--seed", "9"]) == 2
    assert "no image of this sample is labelled yet" in capsys.readouterr().err
    _read_as_a_data_set(site, made, common, tmp_path)
    assert run(["measure", "third", *common[2:]]) == 2
    assert "links of this version: first-1, second-2" in capsys.readouterr().err


def _read_as_a_data_set(site: Site, made: list[Decision], command: list[str], folder: Path) -> None:
    """What people said are the links of a data set, which an evaluation reads."""
    shutil.copytree(site.lake.root.uri, folder / "lake")
    lake = Lake.at(str(folder / "lake"))
    command = [lake.root.uri if each == site.lake.root.uri else each for each in command]
    assert run([*command, "--as", "synthetic"]) == 2
    for _ in range(2):  # again: the same version
        assert run([*command, "--as", "people"]) == 0
    (version,) = lake.versions("people")
    assert lake.latest("people") == version and lake.latest("synthetic") == "v1"
    manifest, home = read_manifest(lake, "people")
    assert not list(verify(manifest, home))
    rows = [row for part in table_parts(manifest, home, "documents") for row in part.to_pylist()]
    found = {
        (row["id"], image["hash"]): [link["sentence"] for link in row["links"] if link["image"] == place]
        for row in rows
        for place, image in enumerate(row["images"])
    }
    said = {(each.document, each.image): each for each in made if each.action is not Action.CANNOT_SAY}
    assert found == {key: [] if each.sentence is None else [each.sentence] for key, each in said.items()}
    splits = {row["id"]: split for split, parts in _rows_by_split(site).items() for row in parts}
    assert manifest.splits["test"].documents == sum(splits[name] == "test" for name in {key for key, _ in said})
    scored = evaluate_model(site.models[MODELS[0]], lake, "people", "train")
    with_auc = {
        row["id"] for row in rows if row["links"] and splits[row["id"]] == "train" and len(row["sentences"]) > 1
    }
    assert scored.document_auc.keys() == with_auc


def _rows_by_split(site: Site) -> dict[str, list[dict[str, Any]]]:
    return {
        str(split): [row for entry in site.manifest.parts("documents", split) for row in _table(site, entry)]
        for split in Split
    }


def _table(site: Site, entry: FileEntry) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(site.folder.open(entry.path), columns=["id"]).to_pylist()
    return rows


def test_an_answer_can_be_changed_and_the_proposal_is_shown_after_it(site: Site) -> None:
    links = find_links(link_sets(site.lake, site.manifest), MODELS[0])
    frame, rows = frame_of(links), drawn_images(frame_of(links), 5, 3)
    target = f"{site.url}/labels/synthetic/v1/{MODELS[0]}?count=5&seed=3&by=Ida"
    with httpx.Client(base_url=site.url, timeout=120, follow_redirects=True) as browser:
        first = browser.get(target).text
        document, image = frame.image(rows[0])
        (found,) = linked_documents(links, site.manifest, site.folder, [document])
        pictures = [
            html.unescape(each) for each in re.findall(r'<img src="([^"]*)" alt="[^"]*"(?: class="asked")?>', first)
        ]
        wanted = [picture_address("synthetic@v1", found.part, each) for each in found.images]
        assert sorted(pictures[1:]) == sorted(wanted) and pictures[0] == wanted[image]
        assert "proposed" not in first and 'id="back"' not in first and f"last={rows[0]}" not in first
        assert "proposed" not in browser.get(f"{target}&last={rows[0]}").text  # not asked about yet
        following = browser.post(target, data={"row": str(rows[0]), "answer": "none-fits"}).text
        assert f'data-row="{rows[1]}"' in following and "The model proposed" in following
        (change,) = re.findall(r'id="change" href="([^"]*)"', following)
        (back,) = re.findall(r'id="back" data-key="b" href="([^"]*)"', following)
        again = browser.get(html.unescape(change)).text
        assert browser.get(html.unescape(back)).text == again and f'data-row="{rows[0]}"' in again
        assert re.findall(r'value="([^"]*)"[^>]* aria-pressed="true"', again) == ["none-fits"]
        changed = browser.post(html.unescape(change), data={"row": str(rows[0]), "answer": "0"}).text
        assert f'data-row="{rows[1]}"' in changed and 'data-done="1"' in changed
    with Store(open_database(site.store)) as log:
        made = [each for each in log.decisions(article=sample_of(links, 3)) if each.who == "Ida"]
    assert [each.action for each in made] == [Action.NONE_FITS, Action.FITS]
    assert [each.sentence for each in standing(made)] == [0]


def test_a_label_that_the_page_cannot_give_is_refused(site: Site) -> None:
    target = f"{site.url}/labels/synthetic/v1/{MODELS[0]}?count=5&by=Eve"
    with httpx.Client(timeout=120) as browser:
        text = browser.get(target).text
        (row,) = re.findall(r'data-row="(\d+)"', text)
        for values in ({"row": row, "answer": "999"}, {"row": "999999", "answer": "0"}, {"row": row}, {"answer": "0"}):
            assert browser.post(target, data=values).status_code == 400
        assert browser.get(target.replace("count=5", "count=0")).status_code == 400
        assert browser.get(target).text.count(f'data-row="{row}"') == 1


def test_every_image_of_a_version_is_in_the_frame_once(site: Site) -> None:
    links = find_links(link_sets(site.lake, site.manifest), MODELS[0])
    frame, table = frame_of(links), outcomes(links)
    assert len(frame.sentences) == sum(table.column("images").to_pylist())
    assert int(frame.population.is_linked.sum()) == sum(table.column("links").to_pylist())
    row = table.column("document").to_pylist().index("test-005")
    (found,) = linked_documents(links, site.manifest, site.folder, [row])
    for sentence, image, similarity in found.drawn.predicted:
        at = int(frame.starts[row]) + image
        assert frame.image(at) == (row, image) and frame.sentences[at] == sentence
        assert frame.population.scores[at] == pytest.approx(similarity)
    assert links_by([links], "models:/first-1/1") is links_by([links], "first") is links


def test_the_command_prints_the_address_of_the_page_and_serves_it(site: Site, tmp_path: Path) -> None:
    options = ["--dataset", "synthetic", "--lake", site.lake.root.uri, "--port", "0", "--by", "Zoë"]
    command = [
        sys.executable,
        "-m",
        "orchestration",
        "label",
        "first",
        *options,
        "--store",
        f"sqlite:///{tmp_path}/log",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        address = process.stdout.readline().partition(",")[0]
        try:
            assert "/labels/synthetic/v1/first-1?count=50&seed=0&by=Zo%C3%AB" in address
            assert 'data-done="0"' in got(address)
        finally:
            process.terminate()
