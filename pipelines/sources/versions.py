"""Which images make an MSCOCO document, and in how many versions it comes (Hessel 2019, supplement 1).

    images by hash   |------- true half -------|------- fake half -------|
    groups of five     t0    t1    t2   ...       f0    f1    f2   ...
    paired             (t0, f0)   (t1, f1)   (t2, f2)   ...

Plain functions of image ids and a seed; the captions are chosen in `pipelines.sources.mscoco`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pipelines.sources.distractors import place
from schemas.documents import Split


@dataclass(frozen=True, slots=True)
class ImageGroup:
    """The images of a document: those that have a caption in it, and those that have none."""

    true: tuple[int, ...]
    fake: tuple[int, ...]

    @property
    def images(self) -> tuple[int, ...]:
        return self.true + self.fake

    @property
    def id(self) -> str:
        """Hash of the image ids; the same for all versions of a document."""
        true, fake = (",".join(map(str, sorted(images))) for images in (self.true, self.fake))
        return hashlib.sha256(f"{true};{fake}".encode()).hexdigest()[:16]


def group_images(image_ids: Collection[int], *, true: int, fake: int, seed: int) -> tuple[list[ImageGroup], list[int]]:
    """Return groups of `true` and `fake` images, and the images that are left over.

    Half of the images are true, half are fake; each is in one group at most.
    """
    ranked = _ranked(image_ids, "image", seed=seed)
    half = len(ranked) // 2 if fake else len(ranked)
    trues, fakes = _in_groups(ranked[:half], true), _in_groups(ranked[half:], fake)
    pairs = zip(trues, fakes if fake else [()] * len(trues), strict=False)
    groups = [ImageGroup(*pair) for pair in pairs]
    grouped = {image for group in groups for image in group.images}
    return groups, [image for image in ranked if image not in grouped]


def split_groups(
    groups: Iterable[ImageGroup], *, val: float, test: float, seed: int
) -> Mapping[Split, list[ImageGroup]]:
    """Return the groups of each split; the shares are met exactly, rounded down for `val` and `test`."""
    ranked = sorted(groups, key=lambda group: (place(seed, "split", group.id), group.id))
    tests, vals = int(len(ranked) * test), int(len(ranked) * val)
    return {
        Split.TRAIN: ranked[tests + vals :],
        Split.VAL: ranked[tests : tests + vals],
        Split.TEST: ranked[:tests],
    }


def count_versions(captions: Sequence[int], *, split: Split, most: int) -> int:
    """Return in how many versions a document comes whose true images have these numbers of captions.

    A training document has one version for each alternate caption: as many as the image with the fewest has, and at
    most `most`. Others have one.
    """
    return min(most if split is Split.TRAIN else 1, *captions)


def _ranked(image_ids: Iterable[int], what: str, *, seed: int) -> list[int]:
    return sorted(image_ids, key=lambda image: (place(seed, what, image), image))


def _in_groups(images: Sequence[int], size: int) -> list[tuple[int, ...]]:
    if size == 0:
        return []
    return [tuple(images[start : start + size]) for start in range(0, len(images) - size + 1, size)]
