"""Corrections of links on the pages: that one is right, or wrong; they are rows of the log of decisions."""

import re
from collections.abc import Collection, Mapping

from newsroom.decisions.records import Action, Decision, standing
from newsroom.labels.linked import DrawnDocument, LinkSet
from newsroom.pages.state import Pages
from schemas.errors import UsageError
from schemas.manifest import Manifest

Link = tuple[str, int, str]  # document, number of the sentence, content hash of the image
_CORRECTION = re.compile(r"(\d{1,6})-(\d{1,6})-(right|wrong)")


def corrections_of(shared: Pages, manifest: Manifest, documents: Collection[str]) -> dict[Link, Decision]:
    """Return the last correction of each link of some documents of a version."""
    found = shared.decisions.corrections(f"{manifest.dataset}@{manifest.version}", documents)
    return {(each.document, each.sentence or 0, each.image): each for each in standing(found)}


def correct(
    shared: Pages, manifest: Manifest, links: LinkSet, linked: DrawnDocument, form: Mapping[str, str], *, who: str
) -> Decision:
    """Write a correction of a link of a document.

    Args:
        shared: has the log.
        manifest: of the version.
        links: that were shown.
        linked: the document.
        form: `correction`, SENTENCE-IMAGE-right or SENTENCE-IMAGE-wrong; else `sentence` and `image` of a link that is
            right, by their indexes in the document that is shown.
        who: corrects it.

    Raises:
        UsageError: it is no link that the document can have.
    """
    given = form.get("correction") or f"{form.get('sentence', '')}-{form.get('image', '')}-{Action.RIGHT}"
    found = _CORRECTION.fullmatch(given)
    sentences = len(linked.drawn.sentences)
    if found is None or int(found[1]) >= sentences or int(found[2]) >= len(linked.images):
        raise UsageError(f"expected a link of one of {sentences} sentences and {len(linked.images)} images")
    decision = Decision(
        action=Action(found[3]),
        image=linked.images[int(found[2])],
        dataset=f"{manifest.dataset}@{manifest.version}",
        model=links.manifest.model,
        document=linked.drawn.id,
        sentence=linked.sentence_numbers[int(found[1])],
        who=who,
    )
    return shared.decisions.decide(decision)
