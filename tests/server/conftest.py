"""Servers in front of a fake service."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from penstock.server.addresses import Address, HostNames
from penstock.server.http.application.server import HttpServer
from penstock.server.http.door import HttpDoor
from penstock.server.limits import DoorLimits
from penstock.server.roles import AccessRole
from penstock.server.tokens import TokenFile
from penstock.settings import Settings
from tests.server.fake_service import FakeService
from tests.server.running import Running

ROOMS = """
CREATE STREAM readings (at TIMESTAMP, room STRING, celsius DOUBLE, n BIGINT, cost DECIMAL(20, 4), raw BINARY)
  FROM MEMORY () TIMESTAMP BY at;
CREATE QUERY warm AS SELECT room, n FROM readings [RANGE 1 HOUR] WHERE celsius > 20;
"""


@pytest.fixture
def fake() -> FakeService:
    service = FakeService()
    service.session.execute(ROOMS)
    service.parts["warm"] = []
    return service


@pytest.fixture
def serve(fake: FakeService, tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Start servers; they end with the test."""
    running: list[HttpServer] = []

    def start(auth: bool = True, service: FakeService = fake, **settings: str) -> Running:
        values = Settings()
        for name, value in settings.items():
            values = values.with_value(name, value)
        tokens = TokenFile(tmp_path / f"tokens{len(running)}.json")
        texts = {role: tokens.add(role.word, role) for role in AccessRole} if auth else {}
        address = Address("127.0.0.1", 0)
        door = HttpDoor(service, tokens if auth else None, HostNames.of(address), DoorLimits.of(values))
        server = HttpServer(door, address)
        running.append(server)
        return Running(server, door, tokens, texts)

    yield start
    for server in running:
        server.close()


@pytest.fixture
def server(serve: Callable[..., Running]) -> Running:
    return serve()


@pytest.fixture
def client(server: Running) -> Iterator[httpx.Client]:
    with server.client(AccessRole.ADMIN) as made:
        yield made


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server with one query that none of the attacks of a file may disturb."""
    from tests.server.test_live_service import WARM, ended, started, statement

    running = started(tmp_path_factory.mktemp("attacked"))
    with running.client(AccessRole.ADMIN) as client:
        assert statement(client, WARM).status_code == 200
    yield running
    ended(running)
