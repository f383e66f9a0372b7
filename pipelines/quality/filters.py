"""Filters of quality: what is measured of images and documents, and which of them a setting leaves out.

    shorter side      of the original, in pixels                                       `min_side_px`
    aspect            its longer side over its shorter one                             `max_aspect`
    sharpness         variance of the Laplacian of the grey 256-px copy, 0 to 255      `min_sharpness`
                      (Pech-Pacheco et al. 2000)
    image-to-text     images of a document over its words, separated by white space    `min_images_per_word`,
                                                                                       `max_images_per_word`
    language          as the source says                                               `languages`

Images are judged first; a document is judged by those that stay. A build applies these functions before it computes
anything of a picture.
"""

import io
from collections.abc import Sequence

import numpy as np
from PIL import Image as Pixels

from pipelines.settings import QualityConfig
from schemas.documents import Sentence
from schemas.failures import Reason

Problem = tuple[Reason, str]


def image_problem(width: int | None, height: int | None, jpeg: bytes | None, config: QualityConfig) -> Problem | None:
    """Return why an image is left out, None where it stays; what is not known of it is no reason.

    Args:
        width: of the original.
        height: of the original.
        jpeg: the 256-px copy; read only where sharpness is asked for.
        config: thresholds.
    """
    if width and height:
        if min(width, height) < config.min_side_px:
            found = f"expected a shorter side of at least {config.min_side_px} px, found {width} x {height}"
            return Reason.TOO_SMALL, found
        if config.max_aspect and max(width, height) > config.max_aspect * min(width, height):
            return Reason.ODD_ASPECT, f"expected an aspect of at most {config.max_aspect:g}, found {width} x {height}"
    if config.min_sharpness and jpeg is not None and (found_sharp := sharpness(jpeg)) < config.min_sharpness:
        return Reason.BLURRED, f"expected a sharpness of at least {config.min_sharpness:g}, found {found_sharp:.1f}"
    return None


def document_problem(
    sentences: Sequence[Sentence], images: int, language: str, config: QualityConfig
) -> Problem | None:
    """Return why a document is left out, None where it stays."""
    if config.languages and language not in config.languages:
        return Reason.OTHER_LANGUAGE, f"expected one of {', '.join(config.languages)}, found {language}"
    words = sum(len(sentence.text.split()) for sentence in sentences)
    ratio = images / words if words else np.inf
    if ratio < config.min_images_per_word or (config.max_images_per_word and ratio > config.max_images_per_word):
        return Reason.IMAGE_TEXT_RATIO, f"{images} images and {words} words, {ratio:.3f} images a word"
    return None


def sharpness(jpeg: bytes) -> float:
    """Return the variance of the Laplacian (4 neighbours) of a picture in grey, its margin of one pixel left out."""
    with Pixels.open(io.BytesIO(jpeg)) as picture:
        grey = np.asarray(picture.convert("L"), np.int32)
    if min(grey.shape) < 3:
        return 0.0
    laplacian = grey[:-2, 1:-1] + grey[2:, 1:-1] + grey[1:-1, :-2] + grey[1:-1, 2:] - 4 * grey[1:-1, 1:-1]
    return round(float(laplacian.var()), 6)
