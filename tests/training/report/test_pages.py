"""A report is one balanced, escaped, self-contained page, and its drawn edges are the document's."""

import base64
import io
import re
from collections import Counter
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser

import numpy as np
import pytest
from jinja2 import Environment
from PIL import Image

from schemas.manifest import SplitStatistics
from training.config import LoopConfig, Select, TrainConfig, objective
from training.evaluation.evaluate import EvaluationReport, absent, of_measure
from training.metrics.calibration import Observations, calibration_scores, fit_calibration
from training.metrics.intervals import Score
from training.recipes import recipe
from training.report.evaluation import report_page, training_panels
from training.report.examples import (
    EdgeKind,
    ExampleDocument,
    choose_examples,
    classify_edges,
    clip,
    draw_example,
    edge_width_px,
    main_concepts,
    row_centre_px,
    thumbnail_uri,
)
from training.report.pages import drawn, environment, own_documents_page, write_page
from training.towers.recurrence import GruSettings
from training.towers.vectors import SentenceSettings

VOID = {"meta", "link", "img", "br", "hr", "input"}
SCRIPT = "<script>alert('a & b')</script>"


class Page(HTMLParser):
    """Checks that tags are balanced, and keeps tags, addresses and text."""

    def __init__(self, html):
        super().__init__()
        self.open, self.tags, self.addresses, self.text = [], [], [], []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.tags.append((tag, attributes))
        self.addresses += [value for name, value in attrs if name in ("src", "href", "xlink:href", "srcset", "data")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)

    def classes(self, tag):
        return Counter(attributes.get("class") for name, attributes in self.tags if name == tag)

    def words(self):
        return " ".join(" ".join(self.text).split())


def jpeg(size=(256, 192), colour="teal"):
    buffer = io.BytesIO()
    Image.new("RGB", size, colour).save(buffer, format="JPEG")
    return buffer.getvalue()


def document(**changes):
    values = {
        "id": "d1",
        "auc": 75.0,
        "sentences": ("A red wall.", SCRIPT, "A lamp."),
        "images": (jpeg(), None, jpeg(colour="red")),
        "predicted": ((0, 0, 0.8), (1, 2, 0.4), (2, 1, 0.2)),
        "links": ((0, 0), (2, 1), (1, 0)),
    }
    return ExampleDocument(**(values | changes))


def table(*rows, **changes):
    values = {
        "model": "multilink-diy-cross-document",
        "model_version": "3",
        "dataset": "diy",
        "dataset_version": "0123456789abcdef",
        "split": "test",
        "rows": (*MEANS, *DOCUMENTS, *rows),
    }
    return EvaluationReport(**(values | changes))


MEANS = (
    Score("auc", 81.3, 79.9, 82.7, 120, measure="links"),
    Score("precision_at_1", 47.5, 44.0, 50.0, 120, measure="links"),
    Score("precision_at_5", 37.5, 34.0, 40.0, 120, measure="links"),
    Score("left_out", 3.0, n=3, group="no link", measure="links", unit="documents"),
    Score("auc", 50.0, 49.0, 51.0, 120, measure="random"),
)
DOCUMENTS = tuple(
    Score("auc", value, n=1, group=f"d{number}", measure="document") for number, value in enumerate((31.0, 75.0, 100.0))
)


def content(**changes):
    history = tuple({"epoch": e, "validation_loss": 1 / e, "validation_auc": 50.0 + e} for e in (1, 2, 3))
    statistics = SplitStatistics(
        documents=120,
        images=1900,
        sentences=1800,
        unique_images=1899,
        median_sentences=15.0,
        median_images=16.5,
        mean_sentences=15.25,
        mean_images=16.0,
        max_sentences=40,
        max_images=40,
        links=1700,
        documents_with_known_links=118,
        density=0.081,
    )
    values = {
        "table": table(),
        "config": TrainConfig(recipe="tiny", training=LoopConfig(select=Select.RETRIEVAL)),
        "kept_epoch": 2,
        "history": () if changes else history,  # each chart of it takes a quarter of a second
        "examples": {"Typical": [document()]},
        "statistics": {"test": statistics},
    }
    return values | changes


@cache
def plain():
    return report_page(**content())


def words(**changes):
    return Page(report_page(**content(**changes)) if changes else plain()).words()


def test_the_page_is_balanced_and_says_what_was_evaluated():
    for expected in ("diy@0123456789abcdef", "3 no link", "2 of 3, by retrieval", "81.3", "79.9–\u206082.7"):
        assert expected in words()


def test_the_page_says_where_words_start_and_which_negatives_count():
    assert "Words start from random vectors" in words() and "Negatives hardest" in words()
    known = TrainConfig(text=GruSettings(word_vectors="vectors.bin"), objective=objective("nostruct"))
    assert "Words start from vectors.bin" in words(config=known) and "Negatives mean" in words(config=known)
    frozen = TrainConfig(text=SentenceSettings(), objective=objective("hal"))
    assert "Words start" not in words(config=frozen) and "Negatives" not in words(config=frozen)


def test_nothing_is_fetched_from_outside():
    page = Page(plain())
    assert page.addresses and all(address.startswith(("data:", "#m")) for address in page.addresses)
    assert not re.search(r"https?:|@import|url\(", plain())
    assert not {"script", "iframe", "object", "embed", "base"} & {tag for tag, _ in page.tags}


def test_markup_in_names_is_text():
    named = table(
        Score("left_out", 1.0, n=1, group="<i>", measure="links", unit="documents"),
        Score("recall_at_1", 5.0, group="<u>", measure="retrieval"),
        model="<b>x</b>",
    )
    html = report_page(**content(table=named, config=TrainConfig(objective=objective("cross"), recipe="<v>")))
    Page(html)
    assert not any(tag in html for tag in ("<b>x", "<i>", "<u>", "<v>"))


def test_the_same_content_gives_the_same_bytes(tmp_path):
    first, second = write_page(tmp_path / "new" / "a", plain()), write_page(tmp_path / "b", report_page(**content()))
    assert [*first.parent.iterdir()] == [first] and first.name == "index.html"
    assert first.read_bytes() == second.read_bytes()


def test_what_was_measured_has_its_section():
    numbers = np.random.default_rng(0)
    similarities = numbers.random(300)
    seen = Observations(
        np.column_stack([similarities, np.zeros((300, 2))]),
        numbers.random(300) < similarities,
        np.arange(300) // 10,
        np.full((30, 2), 10),
    )
    calibration = fit_calibration(seen, dataset="d@v", split="val")
    rows = [
        Score("recall_at_1", 20.0, 15.0, 25.0, 9, "text to image, whole pool of 9", "retrieval"),
        Score("recall_at_1", 20.0, 15.0, 25.0, 9, "language=de, text to image, whole pool of 9", "retrieval"),
        Score("auc", 70.0, 60.0, 80.0, 9, "language=de", "links"),
        Score("average_precision", 61.0, 55.0, 66.0, 100, "story", "relations"),
        *of_measure("calibration", calibration_scores(calibration, seen)),
        Score("r_squared", 12.0, n=9, group="spread", measure="analysis", note="images: x; sentences: y"),
        absent("object-detection", "the data set has no classes"),
    ]
    page = words(table=table(*rows), calibration=calibration)
    for title in (
        "Retrieval",
        "Languages, lengths and roles",
        "Relations",
        "What makes a document hard",
        "How sure a link is",
        "images: x; sentences: y",
        "object detection , because the data set has no classes",
    ):
        assert title in page
    bare = words(table=table(absent("calibration", "there is no validation split")))
    assert "Similarities were not calibrated: there is no validation split." in bare and "Relations" not in bare


def test_pairs_are_described_by_their_ranks():
    means = [
        Score(name, value, value - 1, value + 1, 30, "text to image, whole pool of 40", "pairs")
        for name, value in {
            "recall_at_1": 20.0,
            "recall_at_5": 40.0,
            "recall_at_10": 60.0,
            "reciprocal_rank": 30.0,
        }.items()
    ]
    rows = (*means, Score("candidates", 40.0, n=40, measure="pairs", unit="images"))
    page = words(table=table(rows=rows, dataset="cite"))
    assert "A text looks for its image among 40: it comes first 20.0% of the time" in page
    assert "reciprocal rank" in page and "CMCM" in page and "Left out none" in page


def test_edges_are_right_wrong_and_missed():
    assert [(edge.sentence, edge.image, edge.kind) for edge in classify_edges(document())] == [
        (0, 0, "right"),
        (1, 2, "wrong"),
        (2, 1, "right"),
        (1, 0, "missed"),
    ]


def test_the_page_draws_each_edge_once():
    paths = Page(plain()).classes("path")
    drawn = {kind: paths[f"edge {kind}"] for kind in EdgeKind}
    assert drawn == {"right": 1 + 2, "wrong": 1 + 1, "missed": 1 + 1, "predicted": 0}  # one of each in the legend


def test_a_template_is_compiled_once_for_all_drawings(monkeypatch):
    compiled, compile_it = [], Environment.compile
    monkeypatch.setattr(Environment, "compile", lambda own, *given: compiled.append(given) or compile_it(own, *given))
    environment.cache_clear()
    graph = draw_example(document())
    drawings = [drawn(graph, title) for title in ("1", "2", "3")]
    assert len(compiled) == 1 and len({*drawings}) == 3


def test_concepts_stand_at_their_images():
    shown = document(
        sentences=("A red <wall>.", "Walls.", "An old lamp"), concepts=(("wall", "old tree"), (), ("sky",))
    )
    page = report_page(**content(examples={"Any": [shown]}))
    assert "A red &lt;wall&gt;." in page
    assert re.findall(r'<span class="concepts">(.*?)</span>', page) == ["wall, old tree", "sky"]
    assert 'class="concepts"' not in plain()
    assert main_concepts(["dog", "", "cat", "dog", "tree", "sky"]) == ("dog", "cat", "tree")


def test_edges_of_unknown_truth_are_neither_right_nor_wrong():
    unknown = document(links=None, auc=None)
    assert {edge.kind for edge in classify_edges(unknown)} == {EdgeKind.PREDICTED}
    assert "3 predicted links" in words(examples={"Any": [unknown]})


def test_the_probability_of_a_link_stands_at_its_image_and_its_edge():
    sure = document(links=None, auc=None, sureness=(0.9, 0.25, 0.5))  # of (0, 0), (1, 2), (2, 1)
    page = own_documents_page([sure], model="models:/m/1", count=3)
    at_images = re.findall(r'class="probability"[^>]*>(.*?)</span><img|class="probability"[^>]*>(.*?)</span>', page)
    assert [one or other for one, other in at_images] == ["90%", "50%", "25%"]
    assert "sentence 2 – image 3, similarity 0.40, probability 25%, predicted" in page
    assert (
        re.findall(r'stroke-opacity="([^"]*)" data-sim', page) == ["0.79", "0.4", "0.55"]
        and "They are the first 1 of 3." in page
    )


def test_a_word_stands_where_a_percentage_does_not_hold():
    page = own_documents_page([document(sureness=("strong", "weak", "fair"))], model="models:/m/1", count=1)
    assert re.findall(r'class="probability" title="([^"]*)">(\w+)<', page)[0] == (
        "How the link to this image looks",
        "strong",
    )
    assert "similarity 0.40, weak, " in page and "Words instead of percentages" in page and "%</span>" not in page


def test_edges_end_in_the_middle_of_their_rows():
    graph = draw_example(document())
    third, ends = graph.height_px / 3, [graph.ends_px(edge) for edge in graph.edges]
    drawn = re.findall(r"M0,([\d.]+) .*? 100,([\d.]+)\"", plain())
    assert [(float(left), float(right)) for left, right in drawn] == ends
    assert [(left // third, right // third) for left, right in ends] == [(0, 0), (1, 2), (2, 1), (1, 0)]
    assert row_centre_px(0, 2, 100) == 25 and row_centre_px(1, 2, 100) == 75


@pytest.mark.parametrize(("n", "m"), [(2, 2), (5, 5), (2, 40), (40, 2), (17, 16), (40, 40)])
def test_every_row_fits_at_any_size(n, m):
    graph = draw_example(document(sentences=("text",) * n, images=(None,) * m, predicted=(), links=()))
    assert (len(graph.sentences), len(graph.images)) == (n, m)
    assert graph.height_px / n >= 18 * graph.sentence_lines
    assert graph.height_px / m >= graph.image_px + 8


def test_long_documents_show_the_sentences_that_an_edge_touches():
    long = document(sentences=("text",) * 60, predicted=((58, 0, 0.5),), links=((3, 1),))
    assert draw_example(long).sentences == (3, 58)
    assert "Drawn: 2 of 60 sentences" in Page(report_page(**content(examples={"Any": [long]}))).words()


def test_widths_are_proportional_but_never_vanish():
    assert edge_width_px(0.8, 0.8) == 2 * edge_width_px(0.4, 0.8) == 8
    assert edge_width_px(-0.3, 0.8) == edge_width_px(-0.3, -0.1) == edge_width_px(0.0, 0.0) == 1.5


def test_long_sentences_are_clipped_and_kept_whole_in_the_title():
    text = "word " * 200
    html = report_page(**content(examples={"Any": [document(sentences=(text, "b", "c"))]}))
    titles = [attributes["title"] for tag, attributes in Page(html).tags if tag == "li" and "title" in attributes]
    assert titles[0] == text
    assert clip(text).endswith("word…") and clip(text) in html


def test_pictures_are_small_and_have_alternative_text():
    prefix, _, data = thumbnail_uri(jpeg((256, 192))).partition(",")
    assert prefix == "data:image/jpeg;base64"
    assert Image.open(io.BytesIO(base64.b64decode(data))).size == (128, 96)
    page = Page(plain())
    assert [attributes["alt"] for tag, attributes in page.tags if tag == "img"] == ["Image 1", "Image 3"]
    assert "no picture" in page.words()


@pytest.mark.parametrize("data", [None, b"", b"not a picture", jpeg()[:200]])
def test_what_is_no_picture_is_not_shown(data):
    assert thumbnail_uri(data) is None


@pytest.mark.parametrize("field", [{"predicted": ((3, 0, 0.5),)}, {"links": ((0, -1),)}])
def test_links_outside_the_document_are_refused(field):
    with pytest.raises(ValueError, match=r"document d1: .* outside 3 sentences x 3 images"):
        document(**field)


def test_no_history_no_scores_no_examples_still_make_a_page():
    bare = table(rows=(), dataset="documents", model_version=None)
    page = Page(report_page(bare, TrainConfig(training=LoopConfig(select=Select.LAST)), kept_epoch=1)).words()
    assert "No history was recorded" in page and "No scores" in page and "Left out none" in page
    assert "Example documents" not in page


def test_one_epoch_is_a_page():
    solved = recipe("closed-form")
    for count, why in ((19, "It is the last epoch."), (20, "own images rank best")):
        splits = {"val": replace(content()["statistics"]["test"], documents=count)}
        assert why in words(config=solved, statistics=splits)
    assert "Similarity of a pair cosine, then csls" in words(way={"Similarity of a pair": "cosine, then csls"})
    assert "Validation AUC, by cosines" in words(history=({"epoch": 1, "validation_auc": 60.0, "train_loss": None},))


def test_panels_are_those_that_were_recorded():
    history = ({"epoch": 1, "train_loss": 0.5, "validation_rank": 3.0}, {"epoch": 2, "validation_auc": float("nan")})
    assert [title.split()[0:2] for title, _ in training_panels(history, kept_epoch=1)] == [
        ["Loss"],
        ["Validation", "rank"],
    ]
    assert training_panels((), kept_epoch=0) == []


def test_published_rows_follow_for_data_sets_that_have_them():
    page = Page(plain())
    assert page.classes("tr")["published"] == 6 and page.classes("tr")["divider"] == 1
    assert "Published: Hessel et al. 2019, table 3: test split, on the paper's own data" in page.words()
    assert Page(report_page(**content(table=table(dataset="mine")))).classes("tr")["published"] == 0


def test_examples_are_the_best_the_middle_and_the_worst():
    auc = {f"d{value}": float(value) for value in range(9)}
    assert choose_examples(auc) == {"Best": ("d8",), "Typical": ("d4",), "Worst": ("d0",)}
    assert choose_examples(auc, each=2)["Worst"] == ("d0", "d1")
    assert choose_examples({"a": 1.0, "b": 1.0}) == {"Best": ("a",), "Worst": ("b",)}
    assert choose_examples({"a": 1.0}) == {"Best": ("a",)}
    assert choose_examples({}) == {}
