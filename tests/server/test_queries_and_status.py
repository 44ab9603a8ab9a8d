"""Queries as resources, changes of them as statements, commands, catalog, metrics, health."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import httpx
import pytest

from penstock.language.scripts.parse import parse_script
from penstock.server.http.documents import QueryPatch
from penstock.server.http.queries import alterations
from penstock.server.roles import AccessRole
from tests.server.fake_service import FakeService
from tests.server.running import Running


def test_queries_and_their_plans(client: httpx.Client) -> None:
    (query,) = client.get("/v1/queries").json()["queries"]
    assert query["name"] == "warm" and query["kind"] == "relation" and query["state"] == "RUNNING"
    assert query["columns"][:2] == [{"name": "ts", "type": "TIMESTAMP"}, {"name": "op", "type": "STRING"}]
    assert client.get("/v1/queries/WARM").json()["name"] == "warm"
    assert "readings" in client.get("/v1/queries/warm/plan").text
    assert client.get("/v1/queries/warm/plan", params={"format": "json"}).json()
    assert client.get("/v1/queries/warm/plan", params={"format": "mermaid"}).text.startswith("flowchart")
    drawn = client.get("/v1/queries/warm/plan", params={"format": "drawn"})
    assert drawn.headers["content-type"] == "image/svg+xml" and "readings" in "".join(
        ET.fromstring(drawn.text).itertext()
    )
    assert client.get("/v1/queries/worm/plan", params={"format": "drawn"}).status_code == 404
    assert client.get("/v1/queries/warm/plan", params={"format": "png"}).status_code == 400
    missing = client.get("/v1/queries/worm")
    assert missing.status_code == 404 and "warm" in missing.json()["hint"]


def test_dropping_a_query(server: Running, fake: FakeService) -> None:
    with server.client(AccessRole.READ) as client:
        assert client.delete("/v1/queries/warm").status_code == 403
    with server.client(AccessRole.CONTROL) as client:
        assert client.delete("/v1/queries/worm").status_code == 404
        answer = client.delete("/v1/queries/warm")
    assert answer.status_code == 200 and answer.json()["statements"][0]["number"] == 1
    assert not fake.session.catalog.queries


@pytest.mark.parametrize(
    ("patch", "statements"),
    [
        ({"state": "PAUSED"}, ["PAUSE"]),
        ({"state": "PAUSED", "with_state": True}, ["PAUSE WITH STATE"]),
        ({"state": "RUNNING", "start": "WARM"}, ["RESUME START WARM"]),
        ({"state": "RUNNING", "start_at": "2024-01-01 00:00:00", "reset": True},
         ["RESUME START AT '2024-01-01 00:00:00' RESET"]),
        ({"attributes": {"weight": "2", "x": "it's \\ y"}}, [r"SET (`weight` '2', `x` 'it''s \\ y')"]),
        ({"name": "a`b; DROP QUERY c", "sql": "SELECT 1"}, ["AS SELECT 1", "RENAME TO `a``b; DROP QUERY c`"]),
    ],
)  # fmt: skip
def test_changes_are_statements(patch: dict[str, object], statements: list[str]) -> None:
    body = QueryPatch.model_validate(patch)
    if body.sql is None:
        assert len(parse_script(";\n".join(alterations("q`1", body))).statements) == len(statements)
    assert alterations("q`1", body) == [f"ALTER QUERY `q``1` {text}" for text in statements]


def test_a_change_without_content_is_refused(client: httpx.Client) -> None:
    assert client.patch("/v1/queries/warm", json={}).status_code == 400
    assert client.patch("/v1/queries/warm", json={"state": "SLEEPING"}).status_code == 400
    assert client.patch("/v1/queries/warm", json={"sql": "SELECT 1; DROP QUERY warm"}).status_code == 400


def test_commands(client: httpx.Client) -> None:
    for name in ("a", "b", "c"):
        client.post("/v1/statements", json={"sql": f"CREATE VIEW {name} AS SELECT room FROM readings"})
    assert [one["number"] for one in client.get("/v1/commands").json()["commands"]] == [1, 2, 3]
    assert [one["number"] for one in client.get("/v1/commands?after=1&limit=1").json()["commands"]] == [2]
    assert client.get("/v1/commands/2").json()["who"] == "admin"
    assert client.get("/v1/commands/9").status_code == 404
    for wrong in (
        "/v1/commands/-1",
        "/v1/commands/1e3",
        "/v1/commands?after=-1",
        "/v1/commands?limit=0",
        "/v1/commands/99999999999999999999",
    ):
        assert client.get(wrong).status_code == 400


def test_the_catalog(client: httpx.Client) -> None:
    document = client.get("/v1/catalog").json()
    assert [one["name"] for one in document["sources"]] == ["readings"]
    assert document["sources"][0]["columns"][0] == {"name": "at", "type": "TIMESTAMP"}
    assert [one["name"] for one in document["queries"]] == ["warm"]


def test_metrics_and_health(client: httpx.Client, fake: FakeService) -> None:
    metrics = client.get("/metrics")
    assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "penstock_batches_total 7" in metrics.text
    fake.problem = "no batch for 90 seconds"
    assert client.get("/healthz").status_code == 200
    answer = client.get("/readyz")
    assert answer.status_code == 503 and answer.json()["problem"] == "no batch for 90 seconds"


def test_the_openapi_document_describes_problems(client: httpx.Client) -> None:
    document = client.get("/openapi.json").json()
    operation = document["paths"]["/v1/statements"]["post"]
    assert "application/problem+json" in operation["responses"]["4XX"]["content"]
    assert document["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    assert "http://" not in json.dumps(document) and "https://" not in json.dumps(document)
