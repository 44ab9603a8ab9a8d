"""A PostgreSQL server for tests of connectors, and the options that lead to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers.postgres import PASSWORD, Server, Unavailable, server


@pytest.fixture(scope="module")
def running() -> Server:
    try:
        return server()
    except Unavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def db(running: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("PENSTOCK_TEST_PASSWORD", PASSWORD)
    running.execute("DROP SCHEMA IF EXISTS public CASCADE")
    running.execute("CREATE SCHEMA public; GRANT USAGE ON SCHEMA public TO PUBLIC")
    yield running
