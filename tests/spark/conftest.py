"""One Spark session for all tests of this folder: they are few, and starting it is what costs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.runtime.spark.startup.session import start_spark

pytestmark = pytest.mark.spark


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/spark/" in str(item.path).replace("\\", "/"):
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    session = start_spark("local[2,4]")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker() -> Iterator[Any]:
    from kafka_kit import Broker, Unavailable

    try:
        started = Broker()
    except Unavailable as why:
        pytest.skip(str(why))
    with started:
        yield started
