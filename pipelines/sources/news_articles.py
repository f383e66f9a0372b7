"""A news article of whatever source: up to four texts by role and one picture, and the document it makes.

The links are known, and every text of an article goes with its picture: N ranks pictures for each of the four roles
alone and for all together. A body stays one text, as N encodes it. Reading the formats is in `news.py`,
`goodnews.py` and `visualnews.py`.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pipelines.sources.candidate import CandidateDocument, sentence, stated
from schemas.documents import Link, Provenance, Role, Split
from schemas.failures import Failure, Reason, Stage

DATASET = "news"
ROLES = (Role.HEADLINE, Role.LEAD, Role.CAPTION, Role.BODY)  # their order in a document


@dataclass(frozen=True, slots=True)
class NewsArticle:
    """An article as its source has it.

    Attributes:
        texts: by role, as published; None: the source has none.
        image: path under the images' folder, or a URL.
        source: name of the data set it came from.
        url: address a person can open.
        licence: of its texts and its image, where the source states one.
        split: where the source itself says.
    """

    id: str
    texts: Mapping[Role, str | None]
    image: str
    source: str
    language: str
    url: str | None = None
    licence: str | None = None
    split: Split | None = None

    def outcomes(self) -> Iterator[CandidateDocument | Failure]:
        """Yield the article's document, then EMPTY_SENTENCE for each text that is there and blank.

        HTML's entities become characters, once (`&amp;lt;` is the text `&lt;`). Without any text there is a failure
        instead of the document.
        """
        texts = {
            role: sentence(html.unescape(text), role) for role in ROLES if (text := self.texts.get(role)) is not None
        }
        sentences = tuple(text for text in texts.values() if text.text)
        if sentences:
            yield CandidateDocument(
                id=self.id,
                dataset=DATASET,
                sentences=sentences,
                image_uris=(self.image,),
                links=tuple(Link(index, 0) for index in range(len(sentences))),
                provenance=Provenance(self.source, self.id, self.url, self.licence),
                language=self.language,
                split=self.split,
                image_licences=stated([self.licence]),
            )
        else:
            yield Failure(
                Stage.SOURCES, self.id, Reason.EMPTY_DOCUMENT, f"expected one of {', '.join(ROLES)}, found none"
            )
        for role, blank in texts.items():
            if not blank.text:
                yield Failure(Stage.SOURCES, self.id, Reason.EMPTY_SENTENCE, f"the {role} is blank")
