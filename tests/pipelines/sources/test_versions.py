"""Groups of true and fake images, their splits, and their versions."""

import random

import pytest

from pipelines.sources.versions import ImageGroup, count_versions, group_images, split_groups
from schemas.documents import Split


def test_the_images_of_the_paper_give_its_splits() -> None:
    # Hessel 2019, supplement 1: 4968/1655/1655 documents; MSCOCO train2014 has 82,783 images.
    groups, left_over = group_images(range(82_783), true=5, fake=5, seed=0)
    splits = split_groups(groups, val=0.2, test=0.2, seed=0)
    assert {split: len(members) for split, members in splits.items()} == {
        Split.TRAIN: 4968,
        Split.VAL: 1655,
        Split.TEST: 1655,
    }
    assert len(left_over) == 3
    assert {len(group.true) for group in groups} == {len(group.fake) for group in groups} == {5}
    used = [image for group in groups for image in group.images]
    assert sorted(used + left_over) == list(range(82_783))


@pytest.mark.parametrize(
    ("count", "true", "fake", "groups"),
    [(20, 5, 5, 2), (19, 5, 5, 1), (9, 5, 5, 0), (40, 5, 2, 4), (20, 5, 0, 4), (0, 5, 5, 0)],
)
def test_numbers_of_groups(count: int, true: int, fake: int, groups: int) -> None:
    made, left_over = group_images(range(count), true=true, fake=fake, seed=0)
    assert len(made) == groups
    assert len(left_over) == count - groups * (true + fake)


def test_groups_do_not_depend_on_the_order_of_images() -> None:
    ids = list(range(0, 900, 3))
    expected = group_images(ids, true=5, fake=5, seed=4)
    random.Random(0).shuffle(ids)
    assert group_images(ids, true=5, fake=5, seed=4) == expected
    splits = split_groups(expected[0], val=0.2, test=0.1, seed=4)
    assert split_groups(expected[0][::-1], val=0.2, test=0.1, seed=4) == splits


def test_the_id_of_a_group_tells_true_from_fake_and_ignores_order() -> None:
    group = ImageGroup((1, 2), (3, 4))
    assert group.id == ImageGroup((2, 1), (4, 3)).id
    assert group.id != ImageGroup((3, 4), (1, 2)).id


@pytest.mark.parametrize(
    ("captions", "split", "versions"),
    [
        ([5, 5, 5, 5, 5], Split.TRAIN, 5),
        ([6, 7, 6, 6, 6], Split.TRAIN, 5),
        ([5, 5, 2, 5, 5], Split.TRAIN, 2),
        ([5, 5, 5, 5, 5], Split.VAL, 1),
        ([5, 5, 5, 5, 5], Split.TEST, 1),
    ],
)
def test_versions(captions: list[int], split: Split, versions: int) -> None:
    assert count_versions(captions, split=split, most=5) == versions
