"""Caption metrics: the sentence a model chooses for an image, against the image's true ones (the code of Hessel 2019).

BLEU comes from sacrebleu. CIDEr, ROUGE-L and METEOR come from pycocoevalcap, whose tokeniser and METEOR are Java
programs. Both packages are optional (`pip install multilink[captions]`): what is absent is said, with its reason, and
the other metrics are there all the same. METEOR's paraphrases are English.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.floating[Any]]
Int64 = npt.NDArray[np.int64]
BLEU = "BLEU-4"
COCO_METRICS = ("CIDEr", "ROUGE-L", "METEOR")
BLANK = "xxblankxx"  # a caption of punctuation alone; METEOR's program takes no empty line


@dataclass(frozen=True, slots=True)
class ChosenCaption:
    """The sentence chosen for an image, and the sentences that are truly linked to it (at least one)."""

    chosen: str
    true: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptionScores:
    """Scores of all chosen sentences together.

    Attributes:
        images: images with a true sentence.
        values: metric -> score times 100 (of CIDEr 100 is no maximum).
        absent: metric -> why it was not measured.
        signature: sacrebleu's statement of how BLEU was computed.
    """

    images: int
    values: Mapping[str, float] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)
    signature: str = ""


def chosen_captions(
    matrices: Iterable[Matrix], links: Iterable[Int64 | None], texts: Iterable[Sequence[str]]
) -> list[ChosenCaption]:
    """Return, for each image with a true sentence, the most similar sentence of its document; of equals, the first.

    Args:
        matrices: n x m of each document.
        links: L x 2 (sentence, image) of each, or None where unknown.
        texts: n sentences of each.
    """
    found = []
    for matrix, known, sentences in zip(matrices, links, texts, strict=True):
        if known is None:
            continue
        for image in np.unique(known[:, 1]).tolist():
            true = np.unique(known[known[:, 1] == image, 0])
            chosen = int(np.argmax(matrix[:, image]))
            found.append(ChosenCaption(sentences[chosen], tuple(sentences[row] for row in true)))
    return found


def caption_scores(captions: Sequence[ChosenCaption], *, coco: Sequence[str] = COCO_METRICS) -> CaptionScores:
    """Return the caption metrics of all captions together, as far as their programs are here.

    Args:
        captions: of all images.
        coco: which of pycocoevalcap's; METEOR's program takes seconds to start.
    """
    if not captions:
        return CaptionScores(images=0, absent=dict.fromkeys((BLEU, *COCO_METRICS), "no image has a known sentence"))
    bleu, signature, no_bleu = _bleu(captions)
    values, no_coco = _coco(captions, coco)
    absent = ({BLEU: no_bleu} if no_bleu else {}) | (dict.fromkeys(coco, no_coco) if no_coco else {})
    return CaptionScores(images=len(captions), values=bleu | values, absent=absent, signature=signature)


def _bleu(captions: Sequence[ChosenCaption]) -> tuple[dict[str, float], str, str]:
    """Return BLEU, its signature, and why there is none."""
    try:
        from sacrebleu import metrics
    except ImportError:
        return {}, "", "sacrebleu is not installed (pip install multilink[captions])"
    metric = metrics.BLEU(lowercase=True)
    references = [list(column) for column in zip_longest(*(caption.true for caption in captions))]
    score = metric.corpus_score([caption.chosen for caption in captions], references)
    return {BLEU: float(score.score)}, str(metric.get_signature()), ""


def _coco(captions: Sequence[ChosenCaption], wanted: Sequence[str]) -> tuple[dict[str, float], str]:
    """Return the wanted ones of CIDEr, ROUGE-L and METEOR, and why there are none."""
    if shutil.which("java") is None:
        return {}, "Java is not on the PATH"
    try:
        from pycocoevalcap.cider.cider import Cider
        from pycocoevalcap.meteor.meteor import Meteor
        from pycocoevalcap.rouge.rouge import Rouge
        from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer
    except ImportError:
        return {}, "pycocoevalcap is not installed (pip install multilink[captions])"
    try:
        chosen, true = _tokenised(captions, PTBTokenizer())
        values = {}
        if "CIDEr" in wanted:
            values["CIDEr"] = Cider().compute_score(true, chosen)[0]
        if "ROUGE-L" in wanted:
            values["ROUGE-L"] = Rouge().compute_score(true, chosen)[0]
        if "METEOR" in wanted:
            values["METEOR"] = _meteor(Meteor(), true, chosen)
    except (OSError, ValueError) as problem:  # Java that does not start, or answers with something else
        return {}, f"pycocoevalcap's Java programs failed: {problem}"
    return {name: 100 * float(value) for name, value in values.items()}, ""


def _meteor(program: Any, true: Mapping[int, Sequence[str]], chosen: Mapping[int, Sequence[str]]) -> float:
    """Return METEOR, and let go of its program's pipes, which pycocoevalcap leaves open."""
    try:
        return float(program.compute_score(true, chosen)[0])
    finally:
        program.meteor_p.stdout.close()
        program.meteor_p.stderr.close()


def _tokenised(captions: Sequence[ChosenCaption], tokenizer: Any) -> tuple[dict[int, list[str]], dict[int, list[str]]]:
    """Return the chosen and the true sentences of each caption, lower-cased and without punctuation."""
    count = len(captions)
    texts = [(caption.chosen,) for caption in captions] + [caption.true for caption in captions]
    rows = {number: [{"caption": " ".join(text.split()) or BLANK} for text in row] for number, row in enumerate(texts)}
    tokens: dict[int, list[str]] = tokenizer.tokenize(rows)
    words = [[text or BLANK for text in tokens[number]] for number in rows]
    return dict(enumerate(words[:count])), dict(enumerate(words[count:]))
