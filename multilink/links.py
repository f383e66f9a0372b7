"""The links of one document, as a program gets them: a list, which a notebook draws as a table with the pictures."""

import html
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from PIL import Image

from schemas.failures import Failure
from training.linking.records import PredictedLink
from training.report.examples import thumbnail_uri

Picture = str | Path | bytes | Image.Image


class Links(list[PredictedLink]):
    """Links of one document, the most similar first.

    Args:
        links: of the document; `source` becomes the picture as it was given, None for one in memory.
        images: pictures of the document by their numbers.

    Attributes:
        document: its id.
        left_out: reasons for sentences and images without a link: blank sentences, unreadable pictures.
        caution: reason for a `word` instead of a `probability`; empty: links have one, or the model has no calibration.
    """

    def __init__(
        self,
        links: Iterable[PredictedLink],
        images: Sequence[Picture] | Mapping[int, Picture],
        left_out: Sequence[Failure] = (),
        document: str = "",
        caution: str = "",
    ) -> None:
        shown = dict(images if isinstance(images, Mapping) else enumerate(images))
        super().__init__(
            replace(link, source=str(image) if isinstance(image := shown[link.image], str | Path) else None)
            for link in links
        )
        self._images, self.left_out, self.document, self.caution = shown, tuple(left_out), document, caution

    def _repr_html_(self) -> str:
        """Return a table of the links for a notebook; it needs neither a script nor another file, unless for URLs."""
        rows = ""
        for link in self:
            likely = None if link.probability is None else f"probability {link.probability:.0%}"
            sure = ", ".join(filter(None, (f"similarity {link.similarity:.2f}", link.word or likely)))
            picture = f'<img src="{html.escape(_address(self._images[link.image]))}" width="96">'
            rows += f"<tr><td>{html.escape(link.text or '')}</td><td>{picture}</td><td>{sure}</td></tr>"
        return (
            f"<table><tr><th>sentence</th><th>image</th><th>how sure</th></tr>{rows}</table>{html.escape(self.caution)}"
        )


def picture_bytes(picture: Picture) -> bytes:
    """Return a picture in memory or of a file as the bytes of a file; raises `OSError` where it cannot be read."""
    if isinstance(picture, Image.Image):
        buffer = io.BytesIO()
        picture.save(buffer, format="PNG")
        return buffer.getvalue()
    return picture if isinstance(picture, bytes) else Path(picture).read_bytes()


def _address(picture: Picture) -> str:
    """Return where a notebook finds a picture: its URL, or itself in small."""
    return picture if isinstance(picture, str) and "://" in picture else thumbnail_uri(picture_bytes(picture)) or ""
