"""What tests on Spark share, beside the session (`tests/conftest.py`): a server that dies, and a broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.live_soak.served import Served

pytestmark = pytest.mark.spark


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/spark/" in str(item.path).replace("\\", "/"):
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A server that dies where a test asks it to."""
    program = (str(Path(__file__).with_name("dying_server.py")),)
    made = Served(tmp_path, ("trigger=100 ms", "shards=2"), program)
    try:
        yield made
    finally:
        made.kill()


@pytest.fixture(scope="session")
def broker() -> Iterator[Any]:
    from kafka_kit import Broker, Unavailable

    try:
        started = Broker()
    except Unavailable as why:
        pytest.skip(str(why))
    with started:
        yield started
