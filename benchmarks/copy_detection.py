"""Which copies of a picture perceptual hashes and vectors find: pictures of the recorded web, transformed.

    python -m benchmarks.copy_detection [--pictures 200] [--extractor NAME] [--weights NAME=FILE ...] [--json]

`multilink build --set dedupe.radius` compares hashes, `--set copy_detection.extractor` vectors (pipelines/dedupe,
pipelines/copy_detection). Originals are pictures whose hashes lie apart. Each is cropped, framed, overlaid and more; a
copy is found where the pair of the original and its transformed picture is near. Precision is the share of pairs
found between any two pictures that show one original. The vectors' recall is also given at the cosine from which on no
pair of different originals is found (but one in a thousand). Builds of more pictures than `EXACT_BELOW` look in cells:
the share of the right pairs that is found in as many cells as 2,500 pictures would have is given, too.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageEnhance

from benchmarks.command import parser_of
from pipelines.copy_detection.vectors import PROBES, Points, centres_of, in_cells, near_points, points_of, unit_length
from pipelines.features.catalogue import extractors
from pipelines.features.values import IMAGES
from pipelines.images.inspect import encode_jpeg, phash
from pipelines.partitions.columns import from_hex
from pipelines.settings import FeaturesConfig, HttpConfig

RECORDED = Path(__file__).parents[1] / "tests" / "replay" / "recording" / "images"
RADIUS, APART = 3, 12  # bits
COSINES = (0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
WANTED_PRECISION = 0.999
CELLS = 100


def cropped(share: float) -> Callable[[Image.Image], Image.Image]:
    """Return what cuts a share off every side."""
    return lambda picture: picture.crop(
        (
            int(share * picture.width),
            int(share * picture.height),
            int((1 - share) * picture.width),
            int((1 - share) * picture.height),
        )
    )


def framed(picture: Image.Image) -> Image.Image:
    """Return a picture on a white sheet, a fifth wider and higher."""
    sheet = Image.new("RGB", (picture.width * 6 // 5, picture.height * 6 // 5), "white")
    sheet.paste(picture, (picture.width // 10, picture.height // 10))
    return sheet


def boxed(picture: Image.Image) -> Image.Image:
    """Return a picture between two black bars."""
    sheet = Image.new("RGB", (picture.width, picture.height * 4 // 3), "black")
    sheet.paste(picture, (0, picture.height // 6))
    return sheet


def captioned(picture: Image.Image) -> Image.Image:
    """Return a picture with a banner and a word over it."""
    copy = picture.copy()
    pen = ImageDraw.Draw(copy)
    pen.rectangle((0, int(0.75 * copy.height), copy.width, copy.height), fill="yellow")
    pen.text((10, int(0.8 * copy.height)), "LOOK AT THIS", fill="black", font_size=max(10, copy.height // 10))
    return copy


def stickered(picture: Image.Image) -> Image.Image:
    """Return a picture with a disc over a tenth of it."""
    copy = picture.copy()
    size = int((0.1 * copy.width * copy.height / 0.785) ** 0.5)
    ImageDraw.Draw(copy).ellipse((copy.width - size - 5, 5, copy.width - 5, size + 5), fill="red")
    return copy


TRANSFORMS: Mapping[str, Callable[[Image.Image], Image.Image]] = {
    "half the size": lambda picture: picture.resize((picture.width // 2, picture.height // 2)),
    "brighter": lambda picture: ImageEnhance.Brightness(picture).enhance(1.4),
    "5% off each side": cropped(0.05),
    "15% off each side": cropped(0.15),
    "white frame": framed,
    "black bars": boxed,
    "banner": captioned,
    "sticker": stickered,
    "turned by 5 degrees": lambda picture: picture.rotate(5, expand=True),
    "mirrored": lambda picture: picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
}


def originals(count: int) -> list[Image.Image]:
    """Return recorded pictures whose hashes lie apart, in the order of their names."""
    pictures, codes = list[Image.Image](), list[int]()
    for path in sorted(RECORDED.glob("*.jpg")):
        try:
            with Image.open(path) as stored:
                picture = stored.convert("RGB")
        except OSError:
            continue  # some recorded pictures are none
        code = int(phash(picture), 16)
        if min(picture.size) >= 100 and all((code ^ other).bit_count() > APART for other in codes):
            pictures.append(picture)
            codes.append(code)
        if len(pictures) == count:
            break
    return pictures


def vectors_of(name: str, weights: Sequence[str], pictures: Sequence[Image.Image]) -> np.ndarray:
    config = FeaturesConfig(images=(name,), weights=tuple(weights))
    (extractor,) = extractors([name], IMAGES, config, HttpConfig())
    found = [extractor.extract([encode_jpeg(picture)])[0][0] for picture in pictures]
    return np.array(found, np.float32)


def near_pairs(vectors: np.ndarray, cosine: float, *, cells: int = 0) -> set[tuple[int, int]]:
    """Return the rows of vectors that are near, the smaller first; as in a large build, in so many cells."""
    hashes = [hashlib.sha256(str(row).encode()).hexdigest() for row in range(len(vectors))]
    rows = {name: row for row, name in enumerate(from_hex(hashes).tolist())}
    points = points_of(from_hex(hashes), vectors)
    points = Points.concatenate([in_cells(points, centres_of(points.take(np.arange(cells))))])
    pairs: set[tuple[int, int]] = set()
    for (first, second), _ in near_points(points, cosine):
        both = zip(points.images[first].tolist(), points.images[second].tolist(), strict=True)
        pairs |= {(min(rows[a], rows[b]), max(rows[a], rows[b])) for a, b in both}
    return pairs


def judged(pairs: set[tuple[int, int]], count: int) -> dict[str, float]:
    """Return precision, and the recall of each transform, of pairs of rows (see `main`)."""
    right = sum(first % count == second % count for first, second in pairs)
    recalls = {
        name: sum((number, (row + 1) * count + number) in pairs for number in range(count)) / count
        for row, name in enumerate(TRANSFORMS)
    }
    precision = right / len(pairs) if pairs else 1.0
    return {"precision": precision, "recall": sum(recalls.values()) / len(recalls), **recalls}


def jpeg_again(picture: Image.Image) -> Image.Image:
    """Return a picture as a host would serve it."""
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=80)
    with Image.open(buffer) as stored:
        return stored.convert("RGB")


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--pictures", type=int, default=200)
    parser.add_argument("--extractor", default="efficientnet-lite0")
    parser.add_argument("--weights", action="append", default=[], metavar="NAME=FILE")
    options = parser.parse_args()
    shown = originals(options.pictures)
    count = len(shown)
    # Row r * count + n is original n, transformed in way r; r = 0 is the original itself.
    rows = [*shown, *(jpeg_again(change(picture)) for change in TRANSFORMS.values() for picture in shown)]
    codes = [int(phash(picture), 16) for picture in rows]
    near = {(a, b) for a, b in combinations(range(len(rows)), 2) if (codes[a] ^ codes[b]).bit_count() <= RADIUS}
    results = {f"phash, {RADIUS} bits": judged(near, count)}
    vectors = vectors_of(options.extractor, options.weights, rows)
    for cosine in (*COSINES, strict_cosine(vectors, count)):
        results[f"{options.extractor}, cosine {cosine:.4g}"] = judged(near_pairs(vectors, cosine), count)
        in_many = near_pairs(vectors, cosine, cells=min(CELLS, len(vectors)))
        every = near_pairs(vectors, cosine)
        right = {pair for pair in every if pair[0] % count == pair[1] % count}
        results[f"{CELLS} cells of {PROBES}, cosine {cosine:.4g}"] = {"found": len(in_many & right) / len(right)}
    if options.json:
        print(json.dumps({"pictures": count, "results": results}))
        return
    print(f"{count} originals, {len(TRANSFORMS)} transforms of each")
    for name, found in results.items():
        print(f"{name:36}" + "  ".join(f"{key} {value:.3f}" for key, value in found.items()))


def strict_cosine(vectors: np.ndarray, count: int) -> float:
    """Return the least cosine from which on WANTED_PRECISION of the pairs show one original."""
    unit = unit_length(vectors)
    first, second = np.triu_indices(len(unit), 1)
    cosines = (unit @ unit.T)[first, second]
    order = np.argsort(-cosines)
    is_right = (first % count == second % count)[order]
    precision = np.cumsum(is_right) / np.arange(1, len(order) + 1)
    kept = np.flatnonzero(precision >= WANTED_PRECISION)
    return float(cosines[order[kept[-1]]]) if len(kept) else 1.0


if __name__ == "__main__":
    main()
