"""Chosen sentences by hand; caption metrics where their programs are here, and clear lines where not."""

import shutil
import sys

import numpy as np
import pytest

from training.evaluation.captions import COCO_METRICS, ChosenCaption, caption_scores, chosen_captions

SAME = ChosenCaption("A dog runs on the green grass .", ("A dog runs on the green grass.",))
OTHER = ChosenCaption("Two cats sleep on a sofa", ("A red car stops at a light", "The car is red"))


def test_the_most_similar_sentence_is_chosen_for_each_linked_image():
    matrix = np.array([[0.9, 0.1, 0.5], [0.2, 0.8, 0.5]])
    links = np.array([[0, 0], [0, 1], [1, 1]])
    found = chosen_captions([matrix, matrix], [links, None], [["a", "b"], ["c", "d"]])
    assert found == [ChosenCaption("a", ("a",)), ChosenCaption("b", ("a", "b"))]


def test_bleu_of_one_right_and_one_wrong_sentence(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    scores = caption_scores([SAME])
    assert scores.values == {"BLEU-4": pytest.approx(100.0)} and "case:lc" in scores.signature
    assert 0 < caption_scores([SAME, OTHER]).values["BLEU-4"] < 70
    assert scores.absent == dict.fromkeys(COCO_METRICS, "Java is not on the PATH")


def test_absent_packages_are_said(monkeypatch):
    for name in ("sacrebleu", "pycocoevalcap.cider.cider"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/java")
    scores = caption_scores([SAME])
    assert scores.values == {} and scores.absent["BLEU-4"].startswith("sacrebleu is not installed")
    assert scores.absent["METEOR"].startswith("pycocoevalcap is not installed")


def test_no_caption_has_no_score():
    assert set(caption_scores([]).absent.values()) == {"no image has a known sentence"}


@pytest.mark.skipif(shutil.which("java") is None, reason="Java is not on the PATH")
def test_metrics_of_pycocoevalcap():
    scores = caption_scores([SAME, OTHER, ChosenCaption("...", ("A lamp .",))], coco=["CIDEr", "ROUGE-L"])
    assert set(scores.values) == {"BLEU-4", "CIDEr", "ROUGE-L"} and not scores.absent
    # the first is right, the second shares "a" alone with a true one, the third has no word
    assert scores.values["ROUGE-L"] == pytest.approx(100 * (1 + rouge(1, 6, 7)) / 3, abs=0.01)
    assert scores.values["CIDEr"] > 0


def rouge(common, chosen, true):
    """ROUGE-L of pycocoevalcap, beta 1.2."""
    precision, recall = common / chosen, common / true
    return (1 + 1.2**2) * precision * recall / (recall + 1.2**2 * precision)
