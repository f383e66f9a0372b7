"""The link viewer and the browser of data sets, over HTTP and in Chromium, on documents that mean harm among others."""

import html
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import lakes
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from playwright.sync_api import Page
from running_newsroom import EVIL, check_page, served

from newsroom.decisions.database import open_database
from newsroom.decisions.records import Action, Decision, standing
from newsroom.decisions.store import Store
from newsroom.labels.label_sample import drawn_images, frame_of, links_by, sample_of
from newsroom.labels.linked import (
    DocumentFilter,
    LinkSet,
    Order,
    find_links,
    link_sets,
    linked_documents,
    ordered,
    outcomes,
    place_of,
    rows_at,
)
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
from schemas.manifest import Manifest, read_manifest, table_parts, verify
from schemas.overrides import override
from schemas.tables import row_of, to_table
from training.evaluation.judge import judge_model
from training.evaluation.models import evaluate_model
from training.linking.links import Linker, LinkOptions
from training.linking.records import LINKED_SCHEMA
from training.linking.versions import link_version, prepare_linking
from training.metrics.calibration import Calibration
from training.model import LinkModel
from training.similarity.similarity import predicted_pairs

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
    entry = lakes.write_table(folder, f"{name}/part-00000-of-00001.parquet", to_table(map(row_of, rows), schema))
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
    count = len(fingerprints)
    known = {"hash": list(fingerprints), "fingerprint": list(fingerprints.values())}
    known |= {"is_flat": [False] * count, "jpeg": [lakes.jpeg(0)] * count}
    writer = PackFolder(lake.images.child("method"), COPY_SCHEMA, "hash", ROWS_PER_GROUP).writer()
    writer.add({name: [None] * count for name in COPY_SCHEMA.names} | known)
    writer.close()


@pytest.fixture(scope="module")
def site(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    models = {
        MODELS[0]: LinkModel.load(lakes.learn(CONFIG, lake, tmp_path_factory.mktemp("trained"))),
        MODELS[1]: lakes.untrained(CONFIG, lake),
    }
    for seed, name in enumerate(MODELS):
        output = lake.links("synthetic", "v1", *name.rsplit("-", 1))
        options = LinkOptions(calibration=CALIBRATION if seed == 0 else None)
        linker = Linker(model=models[name], uri=f"models:/{name}/1", options=options)
        link_version(models[name], prepare_linking(linker, lake, "synthetic", output=output), say=lambda _: None)
    store = f"sqlite:///{tmp_path_factory.mktemp('store')}/pages.sqlite"
    with served(PagesSettings(lake=lake.root.uri, store=store)) as server:
        yield Site(server.url, store, lake, *read_manifest(lake, "synthetic@v1"), models)


def got(address: str, **parameters: Any) -> str:
    answer = httpx.get(address, params=parameters, timeout=120, follow_redirects=True)
    assert answer.status_code == 200, answer.text
    return answer.text


def documents_on(text: str) -> list[str]:
    return [html.unescape(name) for name in re.findall(r'data-document="([^"]*)"', text)]


@pytest.fixture(scope="module")
def found(site: Site) -> dict[str, dict[str, Any]]:
    """Documents by id, as their files have them; with the file, the place in it and the split of each."""
    return {
        row["id"]: row | {"entry": entry, "at": at, "split": str(split)}
        for split in Split
        for entry in site.manifest.parts("documents", split)
        for at, row in enumerate(pq.read_table(site.folder.open(entry.path), columns=["id", "images"]).to_pylist())
    }


@pytest.fixture(scope="module")
def first_links(site: Site) -> LinkSet:
    """The links of the first model."""
    return find_links(link_sets(site.lake, site.manifest), MODELS[0])


def test_documents_come_in_order_of_auc_ten_a_page(site: Site) -> None:
    auc = evaluate_model(site.models[MODELS[0]], site.lake, "synthetic", "test").document_auc
    pages = [got(site.links, page=number, order="worst", split="test") for number in range(1, 4)]
    assert [f"{number} of 3" in text for number, text in enumerate(pages, start=1)] == [True] * 3
    known = [name for text in pages for name in documents_on(text)]
    assert len(known) == len(set(known)) == COUNT
    ordered = [auc[key] for key in known if key in auc]
    assert ordered == sorted(ordered) and len(ordered) == len(auc) > 15
    assert not set(known[: len(auc)]) - auc.keys()  # those without one come last
    assert auc[documents_on(got(site.links, order="best", split="test"))[0]] == max(auc.values())


def test_filters_leave_the_documents_that_they_name(site: Site, first_links: LinkSet) -> None:
    table = outcomes(first_links).to_pylist()
    wrong = {row["document"] for row in table if row["wrong"] or row["missed"]}
    assert 0 < len(wrong) < len(table) - 1  # else the filter shows nothing
    assert f"{len(wrong)} of {len(table)} documents" in got(site.links, errors="true", split="")
    assert f"{TRAINED} of {COUNT + TRAINED}" in got(site.links, split="train")
    assert documents_on(got(site.links, language="de")) == ["test-005"]
    assert f"0 of {COUNT + TRAINED}" in got(site.links, language="de", split="train")


def test_the_viewer_opens_on_the_surest_right_links_of_documents_that_were_not_trained_on(
    site: Site, first_links: LinkSet
) -> None:
    table = outcomes(first_links).to_pylist()
    test = [row for row in table if row["split"] == "test"]
    right = {row["document"]: row["confidence"] for row in test if row["wrong"] == 0 and row["links"]}
    assert 0 < len(right) < len(test)  # else the order shows nothing
    pages = [got(site.links, page=number) for number in range(1, 4)]
    listed = [name for page in pages for name in documents_on(page)]
    assert listed[0] == max(right, key=right.get) and f"{len(test)} of {len(table)} documents" in pages[0]
    assert set(listed[: len(right)]) == right.keys()


def test_documents_are_found_by_id_and_read_alone(site: Site, found: dict[str, dict[str, Any]]) -> None:
    places = {name: (row["entry"], row["at"]) for name, row in found.items()}
    parts = {entry for entry, _ in places.values()}
    assert {name: place_of(site.folder, parts, entry.path, name) for name, (entry, _) in places.items()} == places
    assert len(places) == COUNT + TRAINED
    path = places["test-005"][0].path
    assert place_of(site.folder, parts, path, "nobody") is place_of(site.folder, parts, "x", "test-005") is None
    some = ["test-005", EVIL, "train-003", "test-005"]
    assert [row["id"] for row in rows_at(site.folder, [places[name] for name in some], ["id", "images"])] == some


def test_a_document_is_drawn_with_the_links_that_the_model_predicts(site: Site, first_links: LinkSet) -> None:
    row = outcomes(first_links).column("document").to_pylist().index("test-005")
    (found,) = linked_documents(first_links, site.manifest, site.folder, [row])
    evaluation = judge_model(site.models[MODELS[0]], site.lake, "synthetic", "test").evaluation
    matrix = evaluation.matrices[evaluation.ids.index("test-005")]
    pairs = set(zip(*(each.tolist() for each in predicted_pairs(matrix)), strict=True))
    similarities = {(s, i): similarity for s, i, similarity in found.drawn.predicted}
    assert similarities == pytest.approx({pair: matrix[pair] for pair in pairs}, abs=1e-5)
    probabilities = dict(zip(similarities, found.drawn.sureness, strict=True))
    assert probabilities == pytest.approx({pair: 1 / (1 + np.exp(-8 * matrix[pair])) for pair in pairs}, abs=1e-5)
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
    told = {(bool(below), float(sure) < 0.6) for _, below, sure in edges if sure}
    assert told == {(True, True), (False, False)}


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


def test_the_browser_shows_what_a_build_found(site: Site) -> None:
    for home in ("datasets", "links"):
        listed = got(f"{site.url}/{home}", q="SYNTH", order="name")
        assert f'href="/{home}/synthetic/v1">synthetic</a>' in listed and "63 documents" in listed
        (cover,) = re.findall(r'<img class="thumb" src="([^"]*)"', listed)
        assert httpx.get(site.url + html.unescape(cover)).content[:2] == b"\xff\xd8"
        assert "Nothing was found" in got(f"{site.url}/{home}", q="<script>", ui="en")
    only = got(f"{site.data}/failures", reason="not-found")
    assert "<code>c</code>, image 1" in only and "1 of 1" in only and "&lt;script&gt;" not in only
    (picture,) = re.findall(
        r'href="(/pictures/synthetic%40v1/[0-9a-f]{64}\.jpg)[^"]*" class="enlarge"', got(f"{site.data}/duplicates")
    )[:1]
    answer = httpx.get(site.url + picture)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "image/jpeg")
    dropped = got(f"{site.data}/failures", reason="duplicate-image").partition("<td><code>test-001")[2]
    assert re.search(r'href="/pictures/synthetic%40v1/[0-9a-f]{64}\.jpg', dropped.partition("</td>")[0])


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("", [f"<td>{TRAINED}</td>"]),
        ("/failures", ["low-score</a> 2", "not-found</a> 1"]),
        ("/duplicates", ["1 cluster of", "The two that are least alike: 4 bits apart"]),
        ("/leaks", ["near-image</a> 1"]),
    ],
)
def test_a_page_of_a_version_counts_what_a_build_found(site: Site, page: str, words: list[str]) -> None:
    text = got(site.data + page)
    assert [each for each in words if each not in text] == []


def test_a_version_is_shown_in_the_order_of_the_flow(site: Site) -> None:
    shown = re.findall(r'<th scope="row">([a-z-]+)</th>', got(site.data))
    for order in (Split, Stage):
        mine = [each for each in shown if each in set(order)]
        assert mine == [each for each in order if each in mine]


def test_a_card_is_a_page() -> None:
    made = rendered(
        "---\npretty_name: x\n---\n\n# name\n\nText with [a link](javascript:window.harmed=5) <script>x</script>\n\n"
        "## Splits\n\n```text\na  b\n```\n\n![p](https://example.org/x.png)\n\n|a|b|\n|-|-:|\n|c|1|\n"
    )
    # The pages' policy knows no style of its own.
    left = [each for each in ("pretty_name", "<h1>", "<script", 'href="javascript', "<img", "style=") if each in made]
    assert left == []
    assert "<h2>Splits</h2>" in made and "<pre tabindex" in made and '<td class="right">1</td>' in made


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
    visible = "all => all.filter(each => each.checkVisibility()).length"
    sureness = edges.evaluate_all("all => all.map(each => Number(each.dataset.similarity))")
    assert edges.evaluate_all(visible) == len(sureness) > 0
    for _ in range(6):
        page.press("#threshold", "PageUp")
    value, shown = float(page.input_value("#threshold")), edges.evaluate_all(visible)
    assert 0.3 < value < 1 and shown == sum(sure >= value for sure in sureness) < len(sureness)
    assert page.evaluate("new URL(location.href).searchParams.get('threshold')") == f"{value:g}"
    page.reload()
    assert edges.evaluate_all(visible) == shown
    heights = page.locator(".graph").evaluate_all(
        "all => all.map(each => [...each.children].map(part => part.getBoundingClientRect().height))"
    )
    assert max(max(parts) - min(parts) for parts in heights) < 1  # edges end at the middle of their rows


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


def test_a_document_that_means_harm_is_shown_as_text(site: Site, page: Page) -> None:
    seed = next(each for each in range(9) if "window.harmed" in got(f"{site.data}/samples", seed=each, split="test"))
    shown = [f"{site.links}?order=name&other=second-2", f"{site.data}/samples?seed={seed}&split=test"]
    for address in (*shown, f"{site.data}/failures", f"{site.data}/leaks"):
        page.goto(address)
        page.wait_for_load_state("networkidle")
        assert page.locator("[href^='javascript']").count() == 0
        assert "<script>window.harmed" in page.locator("main").inner_text(), address


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
    assert rows.tolist() == sorted(expected, key=lambda n: auc[n])


def test_pictures_are_labelled_by_keyboard_and_say_what_the_corpus_is_worth(
    page: Page,
    site: Site,
    found: dict[str, dict[str, Any]],
    first_links: LinkSet,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Ten pictures: the proposed sentence, then none, cannot say, a number, arrows; the log says the same."""
    frame = frame_of(first_links)
    rows = drawn_images(frame, 10, 0)
    again = frame_of(find_links(link_sets(site.lake, site.manifest), MODELS[0]))
    assert again is frame and drawn_images(again, 10, 0) is rows  # read once, not at each answer
    page.goto(f"{site.url}/labels/synthetic/v1/{MODELS[0]}?count=10&by=Anna&ui=en")
    keys = ["proposed", "n", "c", "1", "ArrowDown Enter", *["proposed"] * 5]
    for number, (row, pressed) in enumerate(zip(rows, keys, strict=True)):
        page.wait_for_selector(f"[data-row='{row}']")
        assert page.get_attribute("[data-done]", "data-done") == str(number)
        assert not re.search(r"similarity|probability|\d%|0\.\d\d", page.text_content("main"))
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
        made = list(log.decisions(article=sample_of(first_links, 0)))
        assert [each.who for each in made] == ["Anna"] * 10
        third, fourth = (frame.documents[frame.image(row)[0]] for row in rows[3:5])
        assert [(each.document, each.sentence) for each in made[3:5]] == [(third, 0), (fourth, 1)]
        assert (made[1].action, made[2].action) == (Action.NONE_FITS, Action.CANNOT_SAY)
        for each in made[3:]:
            log.decide(replace(each, who="Ben"))
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
    _read_as_a_data_set(site, found, made, common, tmp_path)
    assert run(["measure", "third", *common[2:]]) == 2
    assert "links of this version: first-1, second-2" in capsys.readouterr().err


def _read_as_a_data_set(
    site: Site, known: dict[str, dict[str, Any]], made: list[Decision], command: list[str], folder: Path
) -> None:
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
    in_test = {name for name, _ in said if known[name]["split"] == "test"}
    assert manifest.splits["test"].documents == len(in_test)
    scored = evaluate_model(site.models[MODELS[0]], lake, "people", "train")
    with_auc = {row["id"] for row in rows if row["links"] and len(row["sentences"]) > 1}
    assert scored.document_auc.keys() == with_auc - in_test


def test_an_answer_can_be_changed_and_the_proposal_is_shown_after_it(site: Site, first_links: LinkSet) -> None:
    frame = frame_of(first_links)
    rows = drawn_images(frame, 5, 3)
    target = f"{site.url}/labels/synthetic/v1/{MODELS[0]}?count=5&seed=3&by=Ida"
    with httpx.Client(base_url=site.url, timeout=120, follow_redirects=True) as browser:
        first = browser.get(target).text
        document, image = frame.image(rows[0])
        (found,) = linked_documents(first_links, site.manifest, site.folder, [document])
        asked, *others = re.findall(r'<img src="([^"]*)" alt="[^"]*"(?: class="asked")?>', html.unescape(first))
        wanted = [picture_address("synthetic@v1", found.part, each) for each in found.images]
        assert sorted(others) == sorted(wanted) and asked == wanted[image]
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
        made = [each for each in log.decisions(article=sample_of(first_links, 3)) if each.who == "Ida"]
    assert [(each.action, each.sentence) for each in made] == [(Action.NONE_FITS, None), (Action.FITS, 0)]
    assert standing(made) == made[1:]


def test_a_label_that_the_page_cannot_give_is_refused(site: Site) -> None:
    target = f"{site.url}/labels/synthetic/v1/{MODELS[0]}?count=5&by=Eve"
    with httpx.Client(timeout=120) as browser:
        (row,) = re.findall(r'data-row="(\d+)"', browser.get(target).text)
        for values in ({"row": row, "answer": "999"}, {"row": "999999", "answer": "0"}, {"row": row}, {"answer": "0"}):
            assert browser.post(target, data=values).status_code == 400
        assert browser.get(target.replace("count=5", "count=0")).status_code == 400
        assert browser.get(target).text.count(f'data-row="{row}"') == 1


def test_every_image_of_a_version_is_in_the_frame_once(site: Site, first_links: LinkSet) -> None:
    frame, table = frame_of(first_links), outcomes(first_links)
    assert len(frame.sentences) == sum(table.column("images").to_pylist())
    assert int(frame.population.is_linked.sum()) == sum(table.column("links").to_pylist())
    row = table.column("document").to_pylist().index("test-005")
    (found,) = linked_documents(first_links, site.manifest, site.folder, [row])
    for sentence, image, similarity in found.drawn.predicted:
        at = int(frame.starts[row]) + image
        assert frame.image(at) == (row, image) and frame.sentences[at] == sentence
        assert frame.population.scores[at] == pytest.approx(similarity)
    assert links_by([first_links], "models:/first-1/1") is links_by([first_links], "first") is first_links


def test_the_command_prints_the_address_of_the_page_and_serves_it(site: Site, tmp_path: Path) -> None:
    options = ["--lake", site.lake.root.uri, "--port", "0", "--by", "Zoë", "--store", f"sqlite:///{tmp_path}/log"]
    command = [sys.executable, "-m", "orchestration", "label", "first", "--dataset", "synthetic", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        address = process.stdout.readline().partition(",")[0]
        try:
            assert "/labels/synthetic/v1/first-1?count=50&seed=0&by=Zo%C3%AB" in address
            assert 'data-done="0"' in got(address)
        finally:
            process.terminate()
