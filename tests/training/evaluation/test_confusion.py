"""Choices among images that look alike, by hand."""

import itertools

import numpy as np
import pytest

from training.evaluation.confusion import choices, confusion_groups, most_confused

ALIKE = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])  # images 0 and 1 look alike


def choose(row, link=0):
    found, chances = choices([np.array([row])], [np.array([[0, link]])], [ALIKE])
    return found[0], chances


def test_right_confused_and_elsewhere():
    right, chances = choose([0.9, 0.5, 0.1])
    assert (right.right, right.confused, right.nearest) == (1.0, 0.0, 1) and chances.tolist() == [100 / 3]
    confused, _ = choose([0.5, 0.9, 0.1])
    assert (confused.right, confused.confused) == (0.0, 1.0)
    elsewhere, _ = choose([0.5, 0.6, 0.9])
    assert (elsewhere.right, elsewhere.confused) == (0.0, 0.0)
    tied, _ = choose([0.7, 0.7, 0.1])
    assert (tied.right, tied.confused) == (0.5, 0.5)


def test_nearness_is_the_cosine_of_the_nearest_false_image():
    found, _ = choose([0.9, 0.5, 0.1], link=2)
    assert found.nearest == 1 and found.nearness == pytest.approx(0.1 / np.hypot(0.9, 0.1))


def test_documents_without_a_choice_are_left_out():
    links = [None, np.zeros((0, 2), np.int64), np.array([[0, 0], [0, 1], [0, 2]])]
    found, chances = choices([np.ones((1, 3))] * 3, links, [ALIKE] * 3)
    assert found == () and len(chances) == 0 and confusion_groups(found, chances) == ()


def test_groups_run_from_unlike_to_alike_and_add_up():
    numbers = np.random.default_rng(0)
    images = [numbers.normal(size=(4, 3)) for _ in range(50)]
    matrices = [numbers.normal(size=(2, 4)) for _ in range(50)]
    found, chances = choices(matrices, [np.array([[0, 1], [1, 2]])] * 50, images)
    groups = confusion_groups(found, chances)
    assert [group.sentences for group in groups] == [20] * 5
    assert all(a.high <= b.low for a, b in itertools.pairwise(groups))
    for group in groups:
        assert group.right + group.confused + group.elsewhere == pytest.approx(100) and group.chance == 25
    examples = most_confused(found, most=3)
    assert len({choice.document for choice in examples}) == 3
    assert [c.nearness for c in examples] == sorted((c.nearness for c in examples), reverse=True)
