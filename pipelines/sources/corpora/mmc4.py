"""MMC4: a shard of JSON Lines, plain, compressed or in a zip, a document a line (Zhu et al. 2023).

    docs_no_face_shard_0_v2.jsonl.zip
    {"text_list": ["..", ".."], "url": "http://..", "image_info": [{"image_name": "b9040a0dbb22.jpg",
     "raw_url": "http://..", "matched_text_index": 1, "matched_sim": 0.27, "face_detections": null}, ..],
     "similarity_matrix": [[0.24, 0.27], ..], "could_have_url_duplicate": 0}

The full corpus, its core and those with fewer faces have one form. The texts are sentences. CLIP's assignment and its
similarities are kept as given (`schemas.documents.Given`): they are no ground truth. Where a picture stood on its page
the corpus does not tell.

A picture is the file `image_name` in `images-X.tar` beside a shard `docs-X.jsonl` (this project's exports), or in
`source.images`; else it is fetched from its `raw_url`.
"""

import os
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import PurePosixPath
from typing import Any

from pipelines.files import INSIDE, file_names, is_archive
from pipelines.sources.corpora.compose import Reading, document_of, restored, value_of
from pipelines.sources.corpora.names import EXTRAS, Mmc4, Mmc4Image
from pipelines.sources.fields import Number, Object, Real, text_or_none, typed
from pipelines.sources.records import (
    CandidateDocument,
    CandidateImage,
    FieldError,
    file_name,
    json_lines,
    outcomes_of,
    rejected,
    sentence,
    unusable,
    web_url,
)
from schemas.documents import Given, GivenLink
from schemas.failures import Failure, Reason


def read_mmc4(shard: str, reading: Reading) -> Iterator[CandidateDocument | Failure]:
    """Yield the documents of a shard."""
    place = PurePosixPath(reading.place(shard))
    files = {shard: str(place)}
    if is_archive(shard):
        members = (name for name in sorted(file_names(shard)) if name.endswith(".jsonl"))
        files = {f"{shard}{INSIDE}{name}": str(place.parent / name) for name in members}
    read = partial(_outcomes, reading=reading, beside=_beside(shard, reading))
    for file, name in files.items():
        yield from outcomes_of(json_lines(file, name), read)


def _beside(shard: str, reading: Reading) -> str:
    """Return the address of the tar of a shard's pictures, where there is one."""
    name = PurePosixPath(shard).name.partition(".")[0]
    tar = f"{shard.rpartition('/')[0] or '.'}/images-{name.removeprefix('docs-')}.tar"
    return reading.address(tar) if name.startswith("docs-") and os.path.isfile(tar) else ""  # noqa: PTH113


def _outcomes(
    record: Mapping[str, Any], record_id: str, *, reading: Reading, beside: str
) -> Iterator[CandidateDocument | Failure]:
    texts = typed(record.get(Mmc4.TEXTS), list[str], f"$.{Mmc4.TEXTS}")
    shown = list(map(value_of, typed(value_of(record.get(Mmc4.IMAGES)), list[Any], f"$.{Mmc4.IMAGES}")))
    extras = record.get(EXTRAS)
    pictures = [_picture(image, reading, beside) for image in shown]
    if extras is not None:
        yield restored([*texts, *pictures], reading, record_id, extras)
        return
    if reading.skip_repeats and record.get(Mmc4.MAY_REPEAT) == 1:
        yield rejected(record_id, Reason.DUPLICATE_RECORD, "the corpus may have its page twice")
        return
    sentences = [sentence(text) for text in texts]
    kept_texts = [number for number, text in enumerate(sentences) if text.text]
    for position in range(len(texts)):
        if not sentences[position].text:
            yield rejected(record_id, Reason.EMPTY_SENTENCE, f"sentence {position} is blank")
    given = None
    try:
        given = _given(record, shown, len(texts)).of_kept(kept_texts, range(len(shown)), images_before=len(shown))
    except FieldError as problem:
        yield problem.failure(record_id)
    yield from document_of(
        [sentences[position] for position in kept_texts],
        pictures,
        reading,
        record_id,
        url=text_or_none(record, Mmc4.URL),
        given=given,
        sentence_numbers=kept_texts,
    )


def _picture(image: object, reading: Reading, beside: str) -> CandidateImage:
    """Return where a picture is."""
    try:
        fields = typed(image, Object, f"$.{Mmc4.IMAGES}")
        if beside or (reading.has_images and fields.get(Mmc4Image.NAME)):
            name = file_name(text_or_none(fields, Mmc4Image.NAME), Mmc4Image.NAME)
            url = (text_or_none(fields, Mmc4Image.URL) or "").strip() or None
            return CandidateImage(f"{beside}{INSIDE}{name}" if beside else name, url)
        return CandidateImage(web_url(typed(fields.get(Mmc4Image.URL), str, Mmc4Image.URL).strip(), Mmc4Image.URL))
    except FieldError as problem:
        return CandidateImage(unusable(problem))


def _given(record: Mapping[str, Any], images: list[Any], texts: int) -> Given:
    """Return CLIP's assignment and, transposed, its similarities.

    Raises:
        FieldError: an index leads outside the texts, or the similarities have another shape.
    """
    links = []
    for position, image in enumerate(images):
        if isinstance(image, dict) and image.get(Mmc4Image.SENTENCE) is not None:
            text = typed(image[Mmc4Image.SENTENCE], Number, f"$.{Mmc4Image.SENTENCE}", is_lax=True)
            if text >= texts:
                raise FieldError(Reason.BAD_LINK, f"matched_text_index {text}: the document has {texts} texts")
            links.append(
                GivenLink(
                    text, position, typed(image.get(Mmc4Image.SIMILARITY), Real | None, f"$.{Mmc4Image.SIMILARITY}")
                )
            )
    rows = value_of(record.get(Mmc4.SIMILARITIES))
    if not rows:
        return Given(tuple(links))
    cells = typed(rows, list[list[Real]], f"$.{Mmc4.SIMILARITIES}")
    if len(cells) != len(images) or any(len(row) != texts for row in cells):
        raise FieldError(Reason.BROKEN_RECORD, f"similarity_matrix: expected {len(images)} x {texts} numbers")
    return Given(tuple(links), tuple(row[text] for text in range(texts) for row in cells))
