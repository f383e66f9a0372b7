"""Caption metrics: the sentence a model chooses for an image, against the image's true ones (the code of Hessel 2019).

BLEU comes from sacrebleu. CIDEr, ROUGE-L and METEOR come from pycocoevalcap, whose tokeniser and METEOR are Java
programs. Both packages are optional (`pip install multilink-pipeline[captions]`): without one its metrics are absent,
with the reason, and the others are there all the same. METEOR's paraphrases are English.
"""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

import numpy as np

from schemas.errors import UsageError
from training.data.ragged import Floats, Int64
from training.metrics.scores import Score

BLEU = "BLEU-4"
COCO_METRICS = ("CIDEr", "ROUGE-L", "METEOR")
BLANK = "xxblankxx"  # a caption of punctuation alone; METEOR's program takes no empty line


@dataclass(frozen=True, slots=True)
class ChosenCaption:
    """The sentence chosen for an image, and the sentences that are truly linked to it (at least one)."""

    chosen: str
    true: tuple[str, ...]


def chosen_captions(
    matrices: Iterable[Floats], links: Iterable[Int64 | None], texts: Iterable[Sequence[str]]
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


def caption_scores(captions: Sequence[ChosenCaption], *, coco: Sequence[str] = COCO_METRICS) -> list[Score]:
    """Return the caption metrics of all captions together, times 100 (of CIDEr 100 is no maximum).

    A metric whose program is not here has no value, and its reason as a note.

    Args:
        captions: of all images with a true sentence.
        coco: which of pycocoevalcap's; METEOR's program takes seconds to start.

    Raises:
        UsageError: there is no caption.
    """
    if not captions:
        raise UsageError("no image has a known sentence")
    found = [_bleu(captions), *_coco(captions, coco)]
    return [replace(score, n=len(captions), unit="score times 100") for score in found]


def _bleu(captions: Sequence[ChosenCaption]) -> Score:
    """Return BLEU, with sacrebleu's statement of how it was computed."""
    try:
        from sacrebleu import metrics
    except ImportError:
        return Score(BLEU, note="sacrebleu is not installed (pip install multilink-pipeline[captions])")
    metric = metrics.BLEU(lowercase=True)
    references = [list(column) for column in zip_longest(*(caption.true for caption in captions))]
    score = metric.corpus_score([caption.chosen for caption in captions], references)
    return Score(BLEU, float(score.score), note=str(metric.get_signature()))


def _coco(captions: Sequence[ChosenCaption], wanted: Sequence[str]) -> list[Score]:
    """Return the wanted ones of CIDEr, ROUGE-L and METEOR."""
    try:
        values = _coco_values(captions, wanted)
    except ImportError:
        reason = "pycocoevalcap is not installed (pip install multilink-pipeline[captions])"
        return [Score(name, note=reason) for name in wanted]
    except (OSError, ValueError) as problem:  # no Java, or Java that does not start, or answers with something else
        return [Score(name, note=f"pycocoevalcap's Java programs: {problem}") for name in wanted]
    return [Score(name, 100 * value) for name, value in values.items()]


def _coco_values(captions: Sequence[ChosenCaption], wanted: Sequence[str]) -> dict[str, float]:
    if shutil.which("java") is None:
        raise FileNotFoundError("Java is not on the PATH")
    from pycocoevalcap.cider.cider import Cider
    from pycocoevalcap.meteor.meteor import Meteor
    from pycocoevalcap.rouge.rouge import Rouge
    from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

    chosen, true = _tokenised(captions, PTBTokenizer())
    programs = {"CIDEr": Cider, "ROUGE-L": Rouge}
    values = {name: float(programs[name]().compute_score(true, chosen)[0]) for name in wanted if name in programs}
    return values | ({"METEOR": _meteor(Meteor(), true, chosen)} if "METEOR" in wanted else {})


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
