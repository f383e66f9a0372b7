"""What a page needs so that its pictures can be decided on: the ranking, sealed, and what stands for the article.

A page holds the ranking that it shows, sealed (`seals.py`): a decision brings it back, so that nothing is searched
again, and what is logged is what was seen, whatever has been promoted since. Whose a picture is stays sealed in a blind
comparison. Texts are not in it: they are in the store, under the article's key.
"""

import json
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field

from newsroom.decisions.records import Action, Decision, Ranking, ShownPicture
from newsroom.pages.seals import Seal
from newsroom.pages.state import Pages
from schemas.errors import UsageError
from schemas.versions import plain

SHOWN_S = 7 * 24 * 3600  # how long a page can be decided on


def sealed(shared: Pages, key: str, ranking: Ranking) -> str:
    """Return a ranking as its page holds it.

    Args:
        shared: has the secret.
        key: of the article; "": it has no text.
        ranking: that is shown.
    """
    values = plain(ranking) | {"texts": key}
    return _seal(shared).sealed(zlib.compress(json.dumps(values).encode()))


def opened(shared: Pages, token: str) -> tuple[str, Ranking]:
    """Return the key of the article and the ranking that a page held.

    Raises:
        UsageError: it is of no page of these, or of one that is too old.
        NotFoundError: the article is not there any more.
    """
    data = _seal(shared).opened(token)
    if data is None:
        raise UsageError("the page is out of date: reload it, and decide again")
    values = json.loads(zlib.decompress(data))
    key = values["texts"]
    pictures = tuple(ShownPicture(**each) for each in values["pictures"])
    names = {name: tuple(values[name]) for name in ("models", "indexes")}
    texts = shared.store.article(key).texts if key else {}
    return key, Ranking(**values | names | {"texts": texts, "pictures": pictures})


def standing_of(shared: Pages, article: str, models: tuple[str, ...] = ()) -> "Standing":
    """Return what stands for an article, by its digest; of two models, in their blind comparison alone."""
    log = shared.decisions
    return Standing.of(log.compared(article, models) if len(models) > 1 else log.decisions(article=article))


def _seal(shared: Pages) -> Seal:
    return Seal(shared.secret, "ranking", SHOWN_S)


@dataclass(frozen=True, slots=True)
class Standing:
    """What stands of the decisions on an article's pictures.

    Attributes:
        last: content hash -> the last decision on the picture, which may have taken another back.
        newest: the last of all; None: there is none.
        before: the one on the same picture that it took the place of; None: there was none.
    """

    last: dict[str, Decision] = field(default_factory=dict)
    newest: Decision | None = None
    before: Decision | None = None

    @classmethod
    def of(cls, decisions: Iterable[Decision]) -> "Standing":
        """Return what stands of decisions in the order of the log."""
        last: dict[str, Decision] = {}
        newest = before = None
        for each in decisions:
            newest, before = each, last.pop(each.image, None)
            last[each.image] = each
        return cls(last, newest, before)

    def decided(self, action: Action) -> list[Decision]:
        """Return the decisions of an action that stand, in order."""
        return [each for each in self.last.values() if each.action == action]

    @property
    def undone(self) -> Decision | None:
        """Return the decision that undoes the newest one; None where there is none, or it was a blind one."""
        if self.newest is None or self.newest.is_blind:
            return None
        before = self.before
        return Decision(
            action=Action.WITHDRAW if before is None else before.action,
            image=self.newest.image,
            dataset=self.newest.dataset,
            model=self.newest.model,
            reason=None if before is None else before.reason,
            note="" if before is None else before.note,
        )
