"""Streams with promises at a server in one process: queries that use them come, answer, restart and go."""

from __future__ import annotations

from pathlib import Path

from control_kit import server

DECLARED = """CREATE STREAM O (ts INT, id INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND UNIQUE (id);
CREATE STREAM F (ts INT, id INT REFERENCES O) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
CREATE QUERY q AS SELECT O.id, F.ts AS done FROM O, F WHERE O.id = F.id;
"""


def test_a_query_by_promises_over_a_restart(tmp_path: Path) -> None:
    with server(tmp_path) as system:
        for statement in DECLARED.strip().split(";\n"):
            system.done(statement.removesuffix(";"))
        system.done("INSERT INTO O VALUES (1, 1), (5, 2)")
        system.done("INSERT INTO F VALUES (2, 1), (4, 2), (5, 2)")
        system.engine.round()
        root = system.control.catalog.queries["q"].root.fingerprint
    with server(tmp_path) as system:
        assert system.control.catalog.queries["q"].root.fingerprint == root
        assert [promise.name for promise in system.control.catalog.sources["f"].promises] == ["id_reference"]
        system.done("INSERT INTO F VALUES (9, 1), (12, 9)")
        system.done("INSERT INTO O VALUES (9, 3), (12, 4)")
        system.engine.round()
        # The child of 4 came before its parent, against the promise, and found nothing.
        assert [(row["id"], row["done"]) for row in system.answers("q")] == [(1, 2), (2, 5), (1, 9)]
        system.done("DROP QUERY q")


CLUSTERED = """CREATE STREAM S (ts INT, k STRING) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND
  CLUSTERED BY (k) WITHIN 1 ROWS RETAIN 1 HOUR;
CREATE QUERY whole AS SELECT k, COUNT(*) AS n FROM S GROUP BY k HAVING CLOSED(k);
CREATE QUERY rows AS SELECT k FROM S WHERE CLOSED(k)"""
FINAL = "SELECT k, COUNT(*) AS n FROM S GROUP BY k HAVING CLOSED(k)"


def test_groups_that_are_closed_over_a_restart_and_from_a_start(tmp_path: Path) -> None:
    """A query that starts NOW counts from there on; one that starts WARM has what is retained."""
    with server(tmp_path) as system:
        for statement in CLUSTERED.split(";\n"):
            system.done(statement)
        system.done("INSERT INTO S VALUES (1, 'x'), (2, 'x')")
        system.engine.round()
        system.done(f"CREATE QUERY later START NOW AS {FINAL}")
        system.done(f"CREATE QUERY warm START WARM AS {FINAL}")
        system.done("INSERT INTO S VALUES (3, 'y'), (3, 'x'), (4, 'y')")
        system.engine.round()
    with server(tmp_path) as system:
        system.done("INSERT INTO S VALUES (6, 'z'), (8, NULL), (9, 'x'), (10, 'x')")
        system.engine.round()
        found = {name: [(row["k"], row["n"]) for row in system.answers(name)] for name in ("whole", "later", "warm")}
        assert found["whole"] == [("x", 3), ("y", 2), ("z", 1)]
        assert found["later"] == [("x", 1), ("y", 2), ("z", 1)]
        assert found["warm"] == found["whole"]
        assert sorted(row["k"] for row in system.answers("rows")) == ["x", "x", "x", "y", "y", "z"]


def test_a_join_by_closings_over_a_restart(tmp_path: Path) -> None:
    with server(tmp_path) as system:
        system.done("CREATE STREAM P (ts INT, k INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND RETAIN 1 HOUR")
        system.done(
            "CREATE STREAM C (ts INT, k INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND CLUSTERED BY (k) RETAIN 1 HOUR"
        )
        system.done("CREATE QUERY q AS SELECT C.k, C.ts AS done FROM P, C WHERE P.k = C.k")
        system.done("INSERT INTO P VALUES (1, 7), (1, 8), (1, 5), (4, 0)")
        system.done("INSERT INTO C VALUES (2, 7), (3, 8)")
        system.engine.round()
    with server(tmp_path) as system:
        # A query that begins now knows no element before, nor what has left; one that starts WARM has what is retained.
        system.done("CREATE QUERY later AS SELECT C.k, C.ts AS done FROM P, C WHERE P.k = C.k")
        system.done("CREATE QUERY warm START WARM AS SELECT C.k, C.ts AS done FROM P, C WHERE P.k = C.k")
        system.done("INSERT INTO P VALUES (5, 9), (20, 0)")
        system.done("INSERT INTO C VALUES (4, 7), (5, 5), (6, 8), (6, 9), (7, 1), (8, 9), (20, 0)")
        system.engine.round()
        # 7 was closed at 3, 8 at 4 and 9 at 7: their rows of P have left.
        assert [(row["k"], row["done"]) for row in system.answers("q")] == [(7, 2), (8, 3), (5, 5), (9, 6)]
        assert [(row["k"], row["done"]) for row in system.answers("later")] == [(9, 6)]
        assert [(row["k"], row["done"]) for row in system.answers("warm")] == [(8, 3), (5, 5), (9, 6)]
