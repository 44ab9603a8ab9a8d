"""Fixtures of the tests of results."""

from __future__ import annotations

import pytest
from result_kit import Clock

from penstock.connectors.results.result_log import ResultLog


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of all logs of results."""
    clock = Clock()
    monkeypatch.setattr(ResultLog.__init__, "__defaults__", (clock,))
    return clock
