"""Image networks that take most of a minute to become a graph: they are tried, small ones are tested."""

from collections.abc import Iterable
from typing import Any

import pytest

LARGE = ("densenet169", "nasnet-mobile", "resnet152")


def by_size(names: Iterable[str]) -> list[Any]:
    """Return names as parameters of a test, the large ones marked as trials."""
    return [pytest.param(name, marks=[pytest.mark.trial] * (name in LARGE)) for name in names]
