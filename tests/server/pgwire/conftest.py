"""One live system for all tests of the PostgreSQL door that change nothing of it but rows, and doors to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.language.scripts import parse_script
from penstock.server.roles import AccessRole, Caller
from penstock.server.service import ScriptRequest, Service
from tests.server.pgwire.running import RawClient, RunningPg, in_process, running_pg


@pytest.fixture(scope="package")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    made = in_process(tmp_path_factory.mktemp("pgwire"))
    # The first SELECT over data starts a process, which takes seconds where others use the machine.
    made.execute(ScriptRequest(parse_script("SELECT room FROM rooms"), Caller("test", AccessRole.READ)))
    yield made
    made.close()


@pytest.fixture(scope="package")
def pg(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPg]:
    with running_pg(tmp_path_factory.mktemp("door"), service) as running:
        yield running


@pytest.fixture(scope="package")
def open_pg(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPg]:
    """A door without tokens."""
    with running_pg(tmp_path_factory.mktemp("open"), service, auth=False) as running:
        yield running


@pytest.fixture
def raw(open_pg: RunningPg) -> Iterator[RawClient]:
    with RawClient(open_pg.port) as client:
        yield client
