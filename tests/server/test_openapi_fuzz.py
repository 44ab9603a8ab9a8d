"""A client not written here calls the server by its OpenAPI document: no answer is a fault of the server, each is one
that the document describes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance

from penstock.results.result_source import ResultRequest
from penstock.server.addresses import Address, HostNames
from penstock.server.http.application.server import HttpServer
from penstock.server.http.door import HttpDoor
from penstock.server.limits import DoorLimits
from penstock.server.roles import ANYONE, AccessRole, Caller
from penstock.server.tokens import TokenFile
from penstock.settings import Settings
from tests.server.conftest import ROOMS
from tests.server.fake_service import FakeService, Results

#: Streams without an end are called by other tests.
_ENDLESS = ("/v1/events",)


class Forgetful(FakeService):
    """Results end at once: a random call must not wait for rows."""

    def results(
        self, query: str, request: ResultRequest, caller: Caller = ANYONE, position: str | None = None
    ) -> Results:
        return super().results(query, replace(request, until_now=True))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    service = Forgetful()
    service.session.execute(ROOMS)
    service.parts["warm"] = []
    service.emit("warm", ("+", "hall", 1))
    tokens = TokenFile(tmp_path_factory.mktemp("tokens") / "tokens.json")
    address = Address("127.0.0.1", 0)
    door = HttpDoor(service, tokens, HostNames.of(address), DoorLimits.of(Settings()))
    server = HttpServer(door, address)
    yield server.url, tokens.add("fuzz", AccessRole.ADMIN)
    server.close()


@pytest.fixture(scope="module")
def api_schema(served: tuple[str, str]) -> schemathesis.BaseSchema:
    url, token = served
    found = schemathesis.openapi.from_url(f"{url}/openapi.json", headers={"Authorization": f"Bearer {token}"})
    return found.exclude(path=list(_ENDLESS))


def test_every_operation(api_schema: schemathesis.BaseSchema, served: tuple[str, str]) -> None:
    _, token = served
    called: set[str] = set()
    for result in api_schema.get_all_operations():
        operation = result.ok()
        called.add(operation.label)

        @settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck), database=None)
        @given(case=operation.as_strategy())
        def call(case: schemathesis.Case) -> None:
            answer = case.call(headers={"Authorization": f"Bearer {token}"}, timeout=20)
            case.validate_response(
                answer, checks=[not_a_server_error, content_type_conformance, response_schema_conformance]
            )
            if answer.status_code >= 400:
                assert answer.headers["content-type"] == ["application/problem+json"]
                assert answer.json()["code"].startswith("P0")

        call()
    assert {
        "POST /v1/statements",
        "POST /v1/streams/{stream}/rows",
        "PATCH /v1/queries/{query}",
        "PUT /v1/catalog",
    } <= called
    assert len(called) == 29
