"""Records come out of a pickle as they went in."""

import pickle

from pipelines.images.packed import PackedImage
from pipelines.packs import PackRef
from schemas.documents import Document, ImageRef, Link, Provenance, Role, Sentence, Split
from schemas.failures import Failure, Reason, Stage
from schemas.images import Image


def test_a_record_is_the_same_after_its_travel() -> None:
    document = Document(
        id="d",
        dataset="s",
        sentences=(Sentence("One.", Role.CAPTION),),
        images=(ImageRef("h", "a.jpg", "CC0"),),
        links=(Link(0, 0, (("Visible", True),)),),
        provenance=Provenance("s", "r", retrieved="2026-01-01T00:00:00Z"),
        split=Split.VAL,
    )
    failure = Failure(Stage.IMAGES, "d#1", Reason.NOT_FOUND, "gone", "OSError")
    for record in (document, failure, PackedImage(Image("h", is_flat=True), PackRef("p", 3), "2026"), Sentence("One.")):
        for protocol in (2, pickle.HIGHEST_PROTOCOL):
            again = pickle.loads(pickle.dumps(record, protocol))
            assert again == record and type(again) is type(record) and hash(again) == hash(record)
