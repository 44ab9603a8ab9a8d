"""Requests that are wrong in one place each: all are refused as problem documents, and none disturbs what runs."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pyarrow as pa

from penstock.server.roles import AccessRole
from tests.server.running import Running
from tests.server.test_live_service import ROWS, answers

Attack = tuple[str, str, dict[str, Any]]

#: Statements that cannot be carried out.
SCRIPTS = (
    "SELEC", "SELECT", "SELECT 1 FROM", "SELECT * FROM nothing", "SELECT * FROM warm WHERE",
    "SELECT x FROM warm", "SELECT 'a", "SELECT `a", "/* open", "SELECT 1 FROM nothing AS OF",
    "SELECT * FROM warm AS OF 'x'",
    "SELECT * FROM warm AS OF TIMESTAMP '2024-13-01 00:00:00'", "SELECT \x00 FROM warm", "SELECT \ud800 FROM warm",
    "SELECT " + "(" * 5_000 + "1" + ")" * 5_000 + " FROM warm", "SELECT " + "-" * 5_001 + "1 FROM warm",
    "SELECT " + "NOT " * 5_000 + "true FROM warm", "SELECT " + "1 + " * 20_000 + "1 FROM warm",
    "SELECT 1e999999 FROM nothing", "SELECT " + "9" * 10_000 + " FROM nothing", "SELECT celsius / 0 FROM nothing",
    "CREATE QUERY warm AS SELECT room FROM readings [RANGE 1 HOUR]", "CREATE QUERY x AS", "CREATE QUERY `` AS SELECT 1",
    "CREATE QUERY x START AT 'never' AS SELECT room FROM readings [RANGE 1 HOUR]",
    "CREATE QUERY x START BEGINNING AS SELECT room FROM gone [RANGE 1 HOUR]",
    "CREATE QUERY x AS SELECT room FROM readings [RANGE 0 HOUR]",
    "CREATE QUERY x AS SELECT room FROM readings [ROWS -1]",
    "CREATE QUERY x AS SELECT room FROM readings [RANGE 99999999999999999999 HOURS]",
    "CREATE QUERY x AS SELECT room FROM x", "CREATE QUERY x AS SELECT SUM(at) AS s FROM readings [RANGE 1 HOUR]",
    "CREATE STREAM readings (at TIMESTAMP) FROM HTTP () TIMESTAMP BY at", "CREATE STREAM s () FROM HTTP ()",
    "CREATE STREAM s (a INT, a INT) FROM HTTP ()", "CREATE STREAM s (a WAT) FROM HTTP ()",
    "CREATE STREAM s (at TIMESTAMP) FROM HTTP () TIMESTAMP BY other", "CREATE STREAM s (a INT) FROM NOWHERE ()",
    "CREATE STREAM s (at TIMESTAMP) FROM HTTP (x 'y') TIMESTAMP BY at",
    "CREATE STREAM s (at TIMESTAMP) FROM FILES (path '/etc/passwd') TIMESTAMP BY at",
    "CREATE RELATION r (a INT, PRIMARY KEY (b)) FROM MEMORY ()", "INSERT INTO rooms VALUES",
    "INSERT INTO rooms VALUES (1)",
    "INSERT INTO rooms VALUES ('a', 'b')", "INSERT INTO rooms VALUES ('a', 99999999999)", "INSERT INTO warm VALUES (1)",
    "INSERT INTO nothing VALUES (1)", "UPDATE rooms SET floor = 'x'", "UPDATE rooms SET nothing = 1", "UPDATE rooms",
    "UPDATE readings SET room = 'x'", "DELETE FROM rooms", "DELETE FROM rooms WHERE", "DELETE FROM nothing WHERE true",
    "DROP QUERY nothing", "DROP STREAM readings", "DROP", "DROP RELATION readings", "ALTER QUERY nothing PAUSE",
    "ALTER QUERY warm", "ALTER QUERY warm RESUME", "ALTER QUERY warm RENAME TO readings",
    "ALTER QUERY warm SWAP WITH warm", "ALTER QUERY warm SWAP WITH nothing", "ALTER QUERY warm SET (nothing = 1)",
    "ALTER QUERY warm SET (weight = 'heavy')", "ALTER QUERY warm AS SELECT floor FROM rooms",
    "ALTER QUERY warm INTO FILES (path '/root/x', format 'parquet')", "ALTER QUERY warm INTO KAFKA ()",
    "BEGIN", "COMMIT", "ROLLBACK", "BEGIN; BEGIN; COMMIT", "BEGIN; DROP QUERY warm",
    "BEGIN; DROP QUERY warm; SELEC; COMMIT",
    "DROP QUERY warm; DROP QUERY warm", "SET nothing = 1", "SET shards = 'many'", "SET shards = 99999999999999999999",
    "SHOW NOTHING", "DESCRIBE", "DESCRIBE nothing", "EXPLAIN", "EXPLAIN START", "EXPLAIN nothing", "CANCEL",
    "CANCEL 'x y'",
    "CANCEL nothing", "SUBSCRIBE", "SUBSCRIBE TO nothing", "SUBSCRIBE TO warm; SELECT 1 FROM warm",
    "SUBSCRIBE TO (SELECT)",
    "UPDATE penstock.queries SET weight = 2", "UPDATE penstock.queries SET weight = 'x' WHERE name = 'warm'",
    "UPDATE penstock.nothing SET a = 1 WHERE true", "SELECT * FROM penstock.nothing", "EXPORT QUERY nothing",
    "CREATE QUERY x FROM PLAN '{'", "CREATE QUERY x FROM PLAN '[]'", "CREATE QUERY x FROM PLAN 'null'",
    "CREATE FUNCTION f(a INT) RETURNS INT AS 'os:system'", "SELECT nothing(1) FROM warm", "\ufeff\u202eSELECT",
)  # fmt: skip
#: Bodies of rows, with their type.
NDJSON, ARROW, CSV = "application/x-ndjson", "application/vnd.apache.arrow.stream", "text/csv"


def arrow(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


WHOLE = arrow(pa.table({"at": ["2024-03-01 09:00:00"], "room": ["hall"], "celsius": [1.0]}))
LINE = json.dumps(ROWS[0]).encode()
BODIES = (
    (b'{"at": "2024-', NDJSON), (b"\xff\xfe", NDJSON), (b"[1]", NDJSON), (b"null", NDJSON), (b"1", NDJSON), (b"{",
    NDJSON),
    (b'{"at": 1e400}', NDJSON), (b"[" * 100_000, NDJSON), (b'{"a":' * 50_000, NDJSON), (b"\x00", NDJSON),
    (b"not,the,columns\n1,2,3\n", CSV), (b'"open', CSV), (b"\x00\x00", CSV), (b"at\n1\n", CSV),
    *((WHOLE[:cut], ARROW) for cut in (1, 7, 8, 100, len(WHOLE) // 2, len(WHOLE) - 9)), (b"ARROW1\x00\x00", ARROW),
    (LINE, ARROW), (WHOLE, NDJSON), (WHOLE[::-1], ARROW), (b"\xff\xff\xff\xff\xff\xff\xff\x7f", ARROW),
    (arrow(pa.table({"x": [1]})), ARROW), (arrow(pa.table({"at": [1], "room": [1], "celsius": ["x"]})), ARROW),
    (LINE, "text/plain"), (LINE, ""), (LINE, "multipart/form-data"),
)  # fmt: skip
ENCODED = (
    (LINE, "gzip"), (gzip.compress(LINE)[:-6], "gzip"), (gzip.compress(LINE) + b"more", "gzip"), (LINE, "br"),
    (b"", "gzip"), (gzip.compress(bytes(80_000_000)), "gzip"), (LINE, "zstd"), (LINE, "gzip, gzip"), (LINE, "x"),
)  # fmt: skip
NAMES = (
    "nothing",
    "re'adings",
    're"adings',
    "re`adings",
    "réadings",
    "日本",
    "%00",
    "..%2f..%2fetc",
    "%ff",
    "a" * 900,
    "*",
)
CURSORS = ("-1", "x", "1-", "0" * 500, "99999999999999999999", "9:9", "é", "%00", "null", "latest'", "1 1", "1.5")
KEYS = ("", "a" * 300, "a b", "\x7f", "a,b\tc")


def attacks() -> Iterator[Attack]:
    path = "/v1/statements"
    for sql in SCRIPTS:
        yield "POST", path, {"content": json.dumps({"sql": sql}), "headers": {"Content-Type": "application/json"}}
    fields: tuple[dict[str, Any], ...] = (
        {"settings": 1}, {"settings": {"a": {}}}, {"timeout": "x"}, {"sql": 1}, {"sql": None}, {"wait": []},
        {"dry_run": True}, {"async": "x"},
    )  # fmt: skip
    for more in fields:
        yield "POST", path, {"json": {"sql": "SELECT room FROM warm"} | more}
    for content in (b"", b"{", b"[]", b"1", b'"x"', b"\xff", b'{"sql"', b"[" * 100_000, b'{"sql": "\\ud800"}', b"null"):
        yield "POST", path, {"content": content, "headers": {"Content-Type": "application/json"}}
    for media in ("application/xml", "x", "application/json; charset=x-none", "multipart/form-data", "\x7f"):
        yield "POST", path, {"content": b"<a/>", "headers": {"Content-Type": media}}
    for accept in ("image/png", "x", "application/json;q=0", ";;;"):
        yield "POST", path, {"json": {"sql": "SELECT room FROM nothing"}, "headers": {"Accept": accept}}
    for key in KEYS:
        yield "POST", path, {"json": {"sql": "DROP QUERY nothing"}, "headers": {"Idempotency-Key": key}}
    rows = "/v1/streams/readings/rows"
    for body, media in BODIES:
        yield "POST", rows, {"content": body, "headers": {"Content-Type": media}}
    for body, encoding in ENCODED:
        yield "POST", rows, {"content": body, "headers": {"Content-Type": NDJSON, "Content-Encoding": encoding}}
    for name in NAMES:
        yield "POST", f"/v1/streams/{name}/rows", {"content": LINE, "headers": {"Content-Type": NDJSON}}
        yield "GET", f"/v1/queries/{name}", {}
        yield "DELETE", f"/v1/queries/{name}", {}
        yield "GET", f"/v1/queries/{name}/results", {}
        yield "GET", f"/v1/relations/{name}", {}
        yield "GET", f"/v1/entities/{name}", {}
        yield "DELETE", f"/v1/statements/{name}", {}
        yield "GET", f"/v1/commands/{name}", {}
    for cursor in CURSORS:
        yield "GET", f"/v1/queries/warm/results?from={cursor}", {}
        if cursor.isascii():
            yield "GET", "/v1/queries/warm/results", {"headers": {"Last-Event-ID": cursor}}
    for parameter in (
        "after=1",
        "FROM=1",
        "until=later",
        "until=now&from",
        "snapshot=x",
        "format=",
        "format=xml",
        "from=1&x",
    ):
        yield "GET", f"/v1/queries/warm/results?{parameter}", {}
    for parameter in ("limit=-1", "limit=x", "page=2", "after=x"):
        yield "GET", f"/v1/commands?{parameter}", {}
    for token in ("", "Bearer", "Basic eDp5", "Bearer a b", "Bearer " + "a" * 5_000, "bearer \x7f", "Token x"):
        yield "GET", "/v1/queries", {"headers": {"Authorization": token}}


def is_refused(answer: httpx.Response) -> bool:
    """Whether an answer is a problem document of the caller's."""
    is_problem = answer.headers.get("content-type", "").startswith("application/problem+json")
    return 400 <= answer.status_code < 500 and is_problem and bool(answer.json()["code"])


def test_what_is_wrong_is_a_problem_and_disturbs_nothing(attacked: Running) -> None:
    count, wrong = 0, []
    with attacked.client(AccessRole.ADMIN) as client:
        for method, path, more in attacks():
            count += 1
            try:
                answer = client.send(client.build_request(method, path, **more), stream=True)
            except httpx.HTTPError as error:
                wrong.append((method, path, str(more)[:120], repr(error)))
                continue
            try:
                if answer.status_code < 300 and "text/event-stream" in answer.headers.get("content-type", ""):
                    wrong.append((method, path, str(more)[:120], "a stream"))
                    continue
                answer.read()
                if not is_refused(answer):
                    wrong.append((method, path, str(more)[:120], f"{answer.status_code} {answer.text[:150]}"))
            finally:
                answer.close()
        assert not wrong, "\n".join(map(str, wrong))
        assert count > 200
        posted = client.post(
            "/v1/streams/readings/rows", content="\n".join(map(json.dumps, ROWS)), headers={"Content-Type": NDJSON}
        )
        assert posted.json()["rows"] == len(ROWS)
        assert [one["name"] for one in client.get("/v1/queries").json()["queries"]] == ["warm"]
    assert [row["room"] for row in answers(attacked, "warm", 3)] == ["hall", "attic", "hall"]
