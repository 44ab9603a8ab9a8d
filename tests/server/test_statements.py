"""`POST /v1/statements`: answers in all formats, errors with their places, cancellation, roles."""

from __future__ import annotations

import gzip
import io
import json
import threading
import zlib
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import httpx
import pyarrow as pa
import pytest

from penstock.errors import PenstockError
from penstock.server.http.formats import BodyFormat, chosen, json_array
from penstock.server.http.problems import Refused
from penstock.server.limits import DoorLimits
from penstock.server.roles import AccessRole
from tests.server.fake_service import FakeService, eventually
from tests.server.running import Running

VALUES = """INSERT INTO readings VALUES
  ('2024-03-01 09:00:00', 'hall', 20.5, 9007199254740993, 12.3400, NULL),
  ('2024-03-01 09:30:00', 'a"b', NULL, 9007199254740992, NULL, NULL);"""
SELECT = "SELECT room, celsius, n, cost FROM readings ORDER BY at"


def post(client: httpx.Client, sql: str, accept: str = "", **more: Any) -> httpx.Response:
    headers = {"Accept": accept} if accept else {}
    return client.post("/v1/statements", json={"sql": sql, **more}, headers=headers)


def test_a_script_is_answered_statement_by_statement(client: httpx.Client) -> None:
    answer = post(client, VALUES + SELECT + "; SHOW QUERIES;")
    assert answer.status_code == 200 and answer.headers["content-type"] == "application/json"
    insert, select, show = answer.json()["statements"]
    assert insert == {"kind": "INSERT", "state": "RUNNING", "number": 1, "version": 1}
    assert select["columns"] == [
        {"name": "room", "type": "STRING"},
        {"name": "celsius", "type": "DOUBLE"},
        {"name": "n", "type": "BIGINT"},
        {"name": "cost", "type": "DECIMAL(20,4)"},
    ]
    assert select["rows"] == [
        {"room": "hall", "celsius": 20.5, "n": "9007199254740993", "cost": "12.3400"},
        {"room": 'a"b', "celsius": None, "n": 9007199254740992, "cost": None},
    ]
    assert select["instant"] == "2024-03-01T09:30:00Z"
    assert "warm" in show["text"]


def test_bodies_may_be_compressed(client: httpx.Client, fake: FakeService) -> None:
    document = {"Content-Type": "application/json"}
    asked: list[tuple[str, str, bytes, dict[str, str]]] = [
        ("POST", "/v1/statements", json.dumps({"sql": SELECT}).encode(), document),
        ("POST", "/v1/statements", SELECT.encode(), {"Content-Type": "application/sql"}),
        ("PUT", "/v1/catalog?dry=true", json.dumps({"sql": ""}).encode(), document),
        ("PATCH", "/v1/queries/warm", b'{"state": "PAUSED"}', document),
    ]
    for method, path, body, headers in asked:
        plain = client.request(method, path, content=body, headers=headers)
        for name, packed in (("gzip", gzip.compress(body)), ("Deflate", zlib.compress(body)), ("identity", body)):
            encoded = {**headers, "Content-Encoding": name}
            answer = client.request(method, path, content=packed, headers=encoded)
            assert (answer.status_code, answer.json().keys()) == (plain.status_code, plain.json().keys())
        wrong: list[tuple[str, bytes, int, str]] = [
            ("br", body, 415, "the body has the encoding 'br'"),
            ("gzip", body, 400, "the body is damaged: "),
            ("gzip", gzip.compress(body)[:-4], 400, "the body is not one whole gzip stream"),
            ("gzip", gzip.compress(b" " * 50_000_000), 413, "the body is larger than "),
        ]
        for name, packed, status, message in wrong:
            encoded = {**headers, "Content-Encoding": name}
            answer = client.request(method, path, content=packed, headers=encoded)
            assert (answer.status_code, message in answer.json()["message"]) == (status, True), answer.text


def test_rows_alone_in_other_formats(client: httpx.Client) -> None:
    post(client, VALUES)
    lines = post(client, SELECT, "application/x-ndjson")
    assert lines.headers["content-type"] == "application/x-ndjson"
    assert [json.loads(line)["n"] for line in lines.text.splitlines()] == ["9007199254740993", 9007199254740992]
    assert lines.headers["penstock-instant"] == "2024-03-01T09:30:00Z"
    assert post(client, SELECT, "text/csv").text == (
        'room,celsius,n,cost\nhall,20.5,9007199254740993,12.3400\n"a""b",,9007199254740992,\n'
    )
    arrow = post(client, SELECT, "application/vnd.apache.arrow.stream;q=0.9, text/csv;q=0.1")
    table = pa.ipc.open_stream(io.BytesIO(arrow.content)).read_all()
    assert table.column("n").to_pylist() == [9007199254740993, 9007199254740992]
    assert table.column("cost").to_pylist() == [Decimal("12.3400"), None]


def test_an_error_has_its_place_and_all_errors(client: httpx.Client) -> None:
    answer = post(client, "SELECT roam\nFROM readings;\nSELECT x FROM nowhere;")
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"
    document = answer.json()
    assert document["code"] == "P0202" and document["status"] == 400
    assert document["position"] == {"line": 1, "column": 8, "length": 4, "text": "SELECT roam"}
    assert "room" in document["hint"]
    assert [error["code"] for error in document["errors"]] == ["P0202", "P0201"]
    assert "Traceback" not in answer.text


def test_secrets_are_in_no_problem(client: httpx.Client) -> None:
    answer = post(client, "CREATE STREAM s (a INT) FROM POSTGRES (password 'hunter2', nothing 'x')")
    assert answer.status_code == 400
    assert "hunter2" not in answer.text


@pytest.mark.parametrize(
    ("content", "type_", "status"),
    [
        (b"{", "application/json", 400), (b"[]", "application/json", 400), (b"{}", "application/json", 400),
        (b'{"sql": 1}', "application/json", 400), (b'{"sql": "SELECT 1", "x": 1}', "application/json", 400),
        (b'{"sql": "SHOW QUERIES"}', "text/plain", 415), (b'{"sql": "SHOW QUERIES"}', "", 415),
        (b"\xff\xfe", "application/json", 400), (b'{"sql": "\\ud800"}', "application/json", 400),
        (b'{"sql": "' + b"x" * (2**20 + 1) + b'"}', "application/json", 413),
        (b'{"sql": "' + b"x" * 2**22 + b'"}', "application/json", 413),
        (b'{"sql": "SHOW QUERIES", "settings": {"nothing": "1"}}', "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
    ],
)  # fmt: skip
def test_bad_bodies_are_problems(client: httpx.Client, content: bytes, type_: str, status: int) -> None:
    answer = client.post("/v1/statements", content=content, headers={"Content-Type": type_})
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["code"].startswith("P0")


@pytest.mark.parametrize(
    ("content", "said", "hint"),
    [
        (b'{"sql": SELECT}', "the body is no JSON: Expecting value, at character 9", "application/sql"),
        (b"{'sql': 'SHOW QUERIES'}", "at character 2", "application/sql"),
        (b'{"sql": "SELECT \xff"}', "the body is not UTF-8: byte 17 is 0xFF", ""),
    ],
)
def test_bodies_that_are_no_json_have_their_place(client: httpx.Client, content: bytes, said: str, hint: str) -> None:
    answer = client.post("/v1/statements", content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400 and answer.json()["code"] == "P0803"
    assert said in answer.json()["message"] and hint in answer.json()["hint"]


SQL = {"Content-Type": "application/sql; charset=utf-8"}


def test_a_script_may_be_the_whole_body(client: httpx.Client) -> None:
    """Quotes of CQL need no JSON around them."""
    text = "SELECT room AS `Raum ü` FROM readings WHERE room <> 'a \"quote\"' ORDER BY 1"
    answer = client.post("/v1/statements", content=text, headers=SQL)
    assert answer.status_code == 200
    assert answer.json() == post(client, text).json()
    assert client.post("/v1/statements", content=text, headers={**SQL, "Accept": "text/csv"}).text.startswith("Raum")
    mistake = client.post("/v1/statements", content="SELECT\nroam FROM readings", headers=SQL)
    assert mistake.status_code == 400 and mistake.json()["position"]["line"] == 2


def test_a_script_may_come_in_pieces(client: httpx.Client) -> None:
    answer = client.post("/v1/statements", content=iter([b"SHOW ", b"", b"QUERIES"]), headers=SQL)
    assert answer.status_code == 200 and answer.json()["statements"][0]["kind"] == "SHOW"


@pytest.mark.parametrize(
    ("content", "status", "said"),
    [
        (b"SELECT '\xff'", 400, "byte 9 is 0xFF"), (b"\x00", 400, ""),
        (b"-- " + b"x" * (2**20 + 1), 413, "max_statement_bytes"), (b"x" * 2**22, 413, "larger"),
        (b"SELECT " + b"1," * 60_000 + b"1 FROM readings", 413, "max_statement_items"),
        (b";" * 120_001, 413, "max_statement_items"), (b"/* " * 300_000, 413, "max_statement_items"),
        (b"'" * 99_999, 400, "never closed"), (b"-- x\n" * 30_000 + b"SELEC 1", 400, "SELEC"),
        (b"SELECT r'\\', " + b"1," * 60_000 + b"1", 413, "max_statement_items"),
        (b"SELECT '" + b"a" * 1_000_000 + b"' AS a FROM nothing", 400, "nothing"),
    ],
)  # fmt: skip
def test_bad_scripts_as_bodies_are_problems(client: httpx.Client, content: bytes, status: int, said: str) -> None:
    answer = client.post("/v1/statements", content=content, headers=SQL)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json" and said in answer.json()["detail"]


def test_only_scripts_may_be_whole_bodies(client: httpx.Client) -> None:
    answer = client.patch("/v1/queries/warm", content="PAUSED", headers=SQL)
    assert answer.status_code == 415 and "application/sql" not in answer.json()["hint"]


def test_a_body_without_a_length_is_limited_too(client: httpx.Client) -> None:
    def pieces() -> Any:
        for _ in range(64):
            yield b" " * 2**16

    answer = client.post("/v1/statements", content=pieces(), headers={"Content-Type": "application/json"})
    assert answer.status_code == 413 and answer.json()["code"] == "P0804"


def test_dry_checks_only(client: httpx.Client, fake: FakeService) -> None:
    answer = post(client, "CREATE VIEW v AS SELECT room FROM readings", dry=True)
    assert [one["state"] for one in answer.json()["statements"]] == ["CHECKED"]
    assert not fake.session.catalog.views and not fake.log


def test_commands_that_wait_are_202(client: httpx.Client) -> None:
    assert post(client, "CREATE VIEW v AS SELECT room FROM readings", wait=False).status_code == 202


@pytest.mark.parametrize(
    ("role", "sql", "allowed"),
    [
        (AccessRole.READ, "SELECT room FROM readings", True),
        (AccessRole.READ, "SHOW QUERIES", True),
        (AccessRole.READ, VALUES, False),
        (AccessRole.READ, "DROP QUERY warm", False),
        (AccessRole.CONTROL, "DROP QUERY warm", True),
        (AccessRole.CONTROL, "CREATE FUNCTION f (INT) RETURNS INT AS 'os:getcwd'", False),
    ],
)
def test_roles(server: Running, role: AccessRole, sql: str, allowed: bool) -> None:
    with server.client(role) as client:
        answer = post(client, sql)
    assert (answer.status_code == 200) is allowed
    if not allowed:
        assert answer.status_code == 403 and answer.json()["code"] == "P0802"


def test_a_select_ends_when_its_caller_leaves(server: Running, fake: FakeService) -> None:
    fake.slow = 30.0
    with server.client(AccessRole.READ) as client, pytest.raises(httpx.ReadTimeout):
        client.post("/v1/statements", json={"sql": "SELECT room FROM readings"}, timeout=0.3)
    assert fake.cancelled.wait(10)
    eventually(lambda: server.door.requests == 0)


def test_a_select_that_takes_too_long_is_cancelled(serve: Callable[..., Running], fake: FakeService) -> None:
    fake.slow = 30.0
    with serve(statement_timeout="100 ms").client(AccessRole.READ) as client:
        answer = post(client, "SELECT room FROM readings")
    assert answer.status_code == 408 and answer.json()["code"] == "P0804"
    assert fake.cancelled.wait(10)


def test_a_result_beyond_the_limit_is_refused(serve: Callable[..., Running]) -> None:
    with serve(max_result_rows="1").client(AccessRole.ADMIN) as client:
        post(client, VALUES)
        answer = post(client, SELECT)
    assert answer.status_code == 413 and "max_result_rows" in answer.json()["message"]


def test_requests_beyond_the_limit_are_refused(serve: Callable[..., Running], fake: FakeService) -> None:
    fake.slow = 2.0
    server = serve(max_connections="2")
    answers: list[int] = []

    def ask() -> None:
        with server.client(AccessRole.READ) as client:
            answers.append(post(client, "SELECT room FROM readings").status_code)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    eventually(lambda: server.door.requests == 2)
    with server.client(AccessRole.READ) as client:
        answer = client.get("/v1/queries")
    assert answer.status_code == 429 and answer.headers["retry-after"] == "1"
    for thread in threads:
        thread.join()
    assert answers == [200, 200]


@pytest.mark.parametrize("key", ["", "a\tb", "x" * 256])
def test_idempotency_keys_are_plain(client: httpx.Client, key: str) -> None:
    answer = client.post("/v1/statements", json={"sql": "SHOW QUERIES"}, headers={"Idempotency-Key": key})
    assert answer.status_code == 400


def test_formats_are_chosen_by_quality_then_order() -> None:
    offered = (BodyFormat.JSON, BodyFormat.CSV)
    assert chosen(None, offered) is BodyFormat.JSON
    assert chosen("text/*;q=0.5, application/json;q=0.4", offered) is BodyFormat.CSV
    assert chosen("*/*", offered) is BodyFormat.JSON
    with pytest.raises(Refused, match="image/png"):
        chosen("image/png", offered)
    with pytest.raises(Refused):
        chosen("text/csv;q=0, text/csv;q=zzz", offered)


def test_values_of_all_types_are_lossless() -> None:
    table = pa.table(
        {
            "i": pa.array([2**53, 2**53 + 1, -(2**63)]),
            "d": pa.array([1.5, float("nan"), float("-inf")]),
            "m": pa.array([Decimal("0.10"), Decimal("-1.00"), None], pa.decimal128(5, 2)),
            "t": pa.array([0, 1, None], pa.timestamp("us", "UTC")),
            "b": pa.array([b"\x00\xff", b"", None]),
            "l": pa.array([[2**60, 1], [], None]),
        }
    )
    first, second, third = json.loads(json_array(table))
    assert first == {"i": 2**53, "d": 1.5, "m": "0.10", "t": "1970-01-01T00:00:00Z", "b": "AP8=", "l": [str(2**60), 1]}
    assert second["i"] == str(2**53 + 1) and second["d"] == "NaN" and second["t"] == "1970-01-01T00:00:00.000001Z"
    assert third == {"i": str(-(2**63)), "d": "-Infinity", "m": None, "t": None, "b": None, "l": None}
    assert json.loads(json_array(table.slice(0, 0))) == []


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("", 0), ("SELECT a, b FROM s", 6), ("'a b'", 4), (r"r'\'", 4), ("-- a", 3), ("1.5", 3), ("äöü + ß", 3),
        (" \n\t", 0),
    ],
)  # fmt: skip
def test_items_of_a_script_are_counted_before_it_is_read(text: str, items: int) -> None:
    limits = DoorLimits(100, 1, 1, 1, 0, 1, items=items)
    limits.check_script(text)
    if items:
        with pytest.raises(PenstockError, match=r"P0804.*max_statement_items"):
            replace(limits, items=items - 1).check_script(text)


def test_a_request_that_is_not_as_described_says_what_it_lacks(client: httpx.Client) -> None:
    def refused(method: str, path: str, body: str | None = None) -> str:
        answer = client.request(method, path, content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code in (400, 404), answer.text
        return f"{answer.json()['message']} | {answer.json().get('hint')}"

    assert "the body is empty" in refused("POST", "/v1/statements", "")
    assert "'sql' twice" in refused("POST", "/v1/statements", '{"sql": "SELECT 1", "sql": "SELECT 2"}')
    assert "there is nothing at /v1/queries/" in refused("GET", "/v1/queries/")
    assert "GET /v1/queries" in refused("GET", "/v1/queries/")
