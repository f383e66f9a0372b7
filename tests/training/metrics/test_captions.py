"""Chosen sentences by hand; caption metrics where their programs are here, and clear lines where not."""

import shutil
import sys

import numpy as np
import pytest

from schemas.errors import UsageError
from training.metrics.captions import COCO_METRICS, ChosenCaption, caption_scores, chosen_captions

SAME = ChosenCaption("A dog runs on the green grass .", ("A dog runs on the green grass.",))
OTHER = ChosenCaption("Two cats sleep on a sofa", ("A red car stops at a light", "The car is red"))


def test_the_most_similar_sentence_is_chosen_for_each_linked_image():
    matrix = np.array([[0.9, 0.1, 0.5], [0.2, 0.8, 0.5]])
    links = np.array([[0, 0], [0, 1], [1, 1]])
    found = chosen_captions([matrix, matrix], [links, None], [["a", "b"], ["c", "d"]])
    assert found == [ChosenCaption("a", ("a",)), ChosenCaption("b", ("a", "b"))]


def scored(captions, **settings):
    return {score.metric: score for score in caption_scores(captions, **settings)}


def test_bleu_of_one_right_and_one_wrong_sentence(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    scores = scored([SAME])
    assert scores["BLEU-4"].value == pytest.approx(100.0) and "case:lc" in scores["BLEU-4"].note
    assert 0 < scored([SAME, OTHER])["BLEU-4"].value < 70 and scored([SAME, OTHER])["BLEU-4"].n == 2
    for name in COCO_METRICS:
        assert scores[name].value is None and scores[name].note.endswith("Java is not on the PATH")


def test_absent_packages_are_said(monkeypatch):
    for name in ("sacrebleu", "pycocoevalcap.cider.cider"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/java")
    scores = scored([SAME])
    assert all(score.value is None for score in scores.values())
    assert scores["BLEU-4"].note.startswith("sacrebleu is not installed")
    assert scores["METEOR"].note.startswith("pycocoevalcap is not installed")


def test_no_caption_has_no_score():
    with pytest.raises(UsageError, match="no image has a known sentence"):
        caption_scores([])


@pytest.mark.skipif(shutil.which("java") is None, reason="Java is not on the PATH")
def test_metrics_of_pycocoevalcap():
    scores = scored([SAME, OTHER, ChosenCaption("...", ("A lamp .",))], coco=["CIDEr", "ROUGE-L"])
    assert set(scores) == {"BLEU-4", "CIDEr", "ROUGE-L"} and None not in {score.value for score in scores.values()}
    # the first is right, the second shares "a" alone with a true one, the third has no word
    assert scores["ROUGE-L"].value == pytest.approx(100 * (1 + rouge(1, 6, 7)) / 3, abs=0.01)
    assert scores["CIDEr"].value > 0


def rouge(common, chosen, true):
    """ROUGE-L of pycocoevalcap, beta 1.2."""
    precision, recall = common / chosen, common / true
    return (1 + 1.2**2) * precision * recall / (recall + 1.2**2 * precision)
