"""Options that all tests share: how many random cases, and which."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "penstock", deadline=None, database=None, print_blob=False, suppress_health_check=list(HealthCheck)
)
settings.load_profile("penstock")
os.environ.setdefault("TZ", "UTC")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cases", type=int, default=None, help="how many random cases every property test tries")
    parser.addoption("--case-seed", type=int, default=None, help="another sequence of random cases than the usual one")


@pytest.fixture
def case_count(request: pytest.FixtureRequest) -> int | None:
    """--cases, or None for a test's own default."""
    count: int | None = request.config.getoption("--cases")
    return count


@pytest.fixture
def case_seed(request: pytest.FixtureRequest) -> int | None:
    seed: int | None = request.config.getoption("--case-seed")
    return seed
