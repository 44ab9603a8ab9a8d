"""What SHOW says of promises that were added, the roles of ALTER STREAM, and figures of what checks them."""

from __future__ import annotations

import time
from pathlib import Path

from penstock.server.roles import AccessRole
from tests.server.test_live_service import ended, started, statement

DECLARED = """CREATE STREAM O (at INT, id INT) FROM MEMORY () TIMESTAMP BY at;
CREATE STREAM F (at INT, id INT) FROM MEMORY () TIMESTAMP BY at;
CREATE QUERY q AS SELECT O.id FROM O, F WHERE O.id = F.id;
CREATE QUERY other AS SELECT id FROM O;"""
ADDED = """ALTER STREAM O ADD UNIQUE (id);
ALTER STREAM F ADD CONSTRAINT `r s` FOREIGN KEY (id) REFERENCES O"""


def test_what_was_registered_before_a_promise_is_marked(tmp_path: Path) -> None:
    server = started(tmp_path)
    with server.client(AccessRole.CONTROL) as client:

        def shown(text: str) -> list[str]:
            found: str = statement(client, text).json()["statements"][0]["text"]
            return found.splitlines()

        statement(client, DECLARED)
        assert not any("would use" in line for line in shown("SHOW QUERIES"))
        statement(client, ADDED)
        (marked,) = [line for line in shown("SHOW QUERIES") if "would use" in line]
        assert marked.endswith("-- would use r s of F, id_unique of O: register it again")
        assert shown("SHOW CONSTRAINTS") == [
            "ALTER STREAM O ADD CONSTRAINT id_unique UNIQUE (id) ASSERTED -- not used by q, registered before",
            "ALTER STREAM F ADD CONSTRAINT `r s` FOREIGN KEY (id) REFERENCES O (id) WITHIN 0 ROWS ASSERTED"
            " -- not used by q, registered before",
        ]
        statement(client, "ALTER QUERY q AS SELECT O.id FROM O, F WHERE O.id = F.id START NOW")
        assert not any("would use" in line for line in shown("SHOW QUERIES"))
        assert not any("not used" in line for line in shown("SHOW CONSTRAINTS"))
    ended(server)


def test_what_each_promise_has_closed(tmp_path: Path) -> None:
    server = started(tmp_path)
    with server.client(AccessRole.ADMIN) as client:
        statement(client, DECLARED.partition("CREATE QUERY")[0])
        statement(client, "ALTER STREAM O ADD UNIQUE (id); ALTER STREAM F ADD CLUSTERED BY (id) WITHIN 1 ROWS")
        statement(client, "CREATE QUERY q AS SELECT O.id FROM O, F WHERE O.id = F.id")
        statement(client, "INSERT INTO O VALUES (1, 1), (2, 2), (3, 3), (9, 9)")
        statement(client, "INSERT INTO F VALUES (2, 1), (3, 2), (4, 1), (6, 3), (7, 3), (8, 4), (9, NULL)")
        sql = (
            "SELECT kind, open, closed, closed_by FROM penstock.synopses WHERE closed IS NOT NULL ORDER BY kind, closed"
        )

        def found() -> list[list[object]]:
            return [list(row.values()) for row in statement(client, sql).json()["statements"][0]["rows"]]

        clustered = "CLUSTERED BY id WITHIN 1 ROWS of F"
        expected = [
            ["ClusteredIndex", 2, 2, f"{clustered}: 2"],
            ["HeldRows", 1, 2, f"{clustered}: 2"],
            ["HeldRows", 1, 5, "UNIQUE id of O: 5"],
        ]
        deadline = time.monotonic() + 60
        while found() != expected and time.monotonic() < deadline:
            time.sleep(0.2)
        assert found() == expected
    ended(server)


def test_roles(tmp_path: Path) -> None:
    server = started(tmp_path)
    with server.client(AccessRole.CONTROL) as client:
        statement(client, DECLARED)
    for text in (ADDED.partition(";")[0], "ALTER STREAM O DROP CONSTRAINT id_unique"):
        with server.client(AccessRole.READ) as reader:
            assert statement(reader, text).json()["code"] == "P0802"
        with server.client(AccessRole.CONTROL) as client:
            assert statement(client, text).json()["statements"][0]["state"] in ("DONE", "COMPLETED", "RUNNING")
    ended(server)


def test_what_checks_a_promise_is_no_query(tmp_path: Path) -> None:
    server = started(tmp_path)
    with server.client(AccessRole.ADMIN) as client:
        statement(client, "CREATE STREAM C (at INT, id INT) FROM MEMORY () TIMESTAMP BY at UNIQUE (id) CHECKED")
        statement(client, "CREATE QUERY found AS SELECT id FROM C")
        statement(client, "INSERT INTO C VALUES (1, 1), (2, 2), (3, 1), (4, 4)")
        assert [one["name"] for one in client.get("/v1/queries").json()["queries"]] == ["found"]
        for relation in (
            "queries",
            "operators",
            "query_operators",
            "plan_edges",
            "synopses",
            "streams",
            "operator_shards",
        ):
            answer = statement(client, f"SELECT * FROM penstock.{relation}").json()
            assert "statements" in answer, (relation, answer)
        assert "Check" in statement(client, "EXPLAIN QUERY found").json()["statements"][0]["text"]
    ended(server)
