"""Options of the whole suite: `--refresh-golden` writes the golden files anew instead of comparing with them."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--refresh-golden", action="store_true", help="write golden files instead of comparing")
