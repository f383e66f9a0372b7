"""Choices among images that look alike, by hand."""

import itertools

import numpy as np
import pytest

from training.metrics.confusion import chosen_images, confusion_scores, most_confused

ALIKE = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])  # images 0 and 1 look alike


def choose(row, link=0):
    (found,) = chosen_images([np.array([row])], [np.array([[0, link]])], [ALIKE])
    return found


def test_right_confused_and_elsewhere():
    right = choose([0.9, 0.5, 0.1])
    assert (right.right, right.confused, right.nearest) == (1.0, 0.0, 1) and right.chance == 1 / 3
    confused = choose([0.5, 0.9, 0.1])
    assert (confused.right, confused.confused) == (0.0, 1.0)
    elsewhere = choose([0.5, 0.6, 0.9])
    assert (elsewhere.right, elsewhere.confused) == (0.0, 0.0)
    tied = choose([0.7, 0.7, 0.1])
    assert (tied.right, tied.confused) == (0.5, 0.5)


def test_nearness_is_the_cosine_of_the_nearest_false_image():
    found = choose([0.9, 0.5, 0.1], link=2)
    assert found.nearest == 1 and found.nearness == pytest.approx(0.1 / np.hypot(0.9, 0.1))


def test_documents_without_a_choice_are_left_out():
    links = [None, np.zeros((0, 2), np.int64), np.array([[0, 0], [0, 1], [0, 2]])]
    found = chosen_images([np.ones((1, 3))] * 3, links, [ALIKE] * 3)
    assert found == () and list(confusion_scores(found)) == []


def test_groups_run_from_unlike_to_alike_and_add_up():
    numbers = np.random.default_rng(0)
    images = [numbers.normal(size=(4, 3)) for _ in range(50)]
    matrices = [numbers.normal(size=(2, 4)) for _ in range(50)]
    found = chosen_images(matrices, [np.array([[0, 1], [1, 2]])] * 50, images)
    groups = {}
    for score in confusion_scores(found):
        groups.setdefault(score.group, {})[score.metric] = score
    ends = [[float(end) for end in name.removeprefix("nearness ").split(" to ")] for name in groups]
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(ends)) and len(ends) == 5
    for shares in groups.values():
        assert {score.n for score in shares.values()} == {20}
        assert sum(shares[name].value for name in ("right", "confused", "elsewhere")) == pytest.approx(100)
        assert shares["chance"].value == 25
    examples = most_confused(found, max_count=3)
    assert len({choice.document for choice in examples}) == 3
    assert [c.nearness for c in examples] == sorted((c.nearness for c in examples), reverse=True)
