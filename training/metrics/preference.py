"""Which of two rankings people prefer, by the articles that each won: a verdict that holds at every look."""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import betaln, xlogy

from training.parts import LEVEL

MIXTURE = 5.0  # both parameters of the beta distribution: most weight on shares of 0.2 to 0.8
_NEAR_0 = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Preference:
    """Which of two rankings is preferred, by articles that may be looked at after every one of them.

    Attributes:
        first: articles that the first won.
        second: articles that the second won.
        ties: articles with equally many chosen pictures of both.
        none_fits: articles of which every judged picture was rejected.
    """

    first: int
    second: int
    ties: int = 0
    none_fits: int = 0

    @property
    def articles(self) -> int:
        return self.first + self.second + self.ties + self.none_fits

    @property
    def share(self) -> float | None:
        """Return of the articles that were won those of the second, 0 to 1; None: none was won."""
        return self.second / (self.first + self.second) if self.first + self.second else None

    @property
    def evidence(self) -> float:
        """Return how many times likelier the articles are under some preference than under none (`_evidence`)."""
        return float(np.exp(_evidence(self.first, self.second, 0.5)))

    @property
    def is_second_better(self) -> bool | None:
        """Return whether the second is preferred, False: the first; None: no difference is established."""
        return None if self.evidence < 1 / (1 - LEVEL) else self.second > self.first

    @property
    def interval(self) -> tuple[float, float]:
        """Return the bounds of the share that hold at all times together with 95% probability.

        They are the shares that the evidence does not speak against (a confidence sequence; Robbins 1970).
        """
        if self.share is None:
            return 0.0, 1.0

        def excess(share: float) -> float:
            return _evidence(self.first, self.second, share) + float(np.log(1 - LEVEL))

        low = brentq(excess, _NEAR_0, self.share) if self.share > _NEAR_0 and excess(_NEAR_0) > 0 else 0.0
        high = brentq(excess, self.share, 1 - _NEAR_0) if self.share < 1 - _NEAR_0 and excess(1 - _NEAR_0) > 0 else 1.0
        return float(low), float(high)


def _evidence(first: int, second: int, share: float) -> float:
    """Return the logarithm of how many times likelier wins are under a mixture of shares than under one share.

    The mixture is a beta distribution about a half. Whatever the share is, the ratio exceeds 20 at some time with a
    probability of at most 5% if that share is the true one (Ville 1939): a verdict at 20 may be looked for after every
    article.
    """
    mixture = betaln(MIXTURE + second, MIXTURE + first) - betaln(MIXTURE, MIXTURE)
    return float(mixture - xlogy(second, share) - xlogy(first, 1 - share))
