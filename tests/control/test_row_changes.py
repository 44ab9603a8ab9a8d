"""UPDATE and DELETE of posted rows, against the content of a relation."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from control_kit import server

from penstock.algebra.nodes.scans import Source
from penstock.control.posted_rows import PostedRows
from penstock.control.registry import command_of
from penstock.control.row_changes import check_changeable, check_rows, content, late_rows, post_rows
from penstock.errors import PenstockError
from penstock.language.catalog import Catalog
from penstock.language.commands import CreateSourceCommand, DeleteRows, InsertRows, UpdateRows
from penstock.settings import Settings

RELATION = "CREATE RELATION R (op STRING, k INT, v STRING, PRIMARY KEY (k)) FROM MEMORY () OPERATION BY op SYSTEM TIME;"


def declared(text: str) -> tuple[Source, Catalog]:
    command = command_of(text, Catalog(), Settings())
    assert isinstance(command, CreateSourceCommand)
    return command.source, Catalog().with_source(command.source, text)


def run(posted: PostedRows, source: Source, catalog: Catalog, text: str, key: str) -> None:
    command = command_of(text, catalog, Settings())
    assert isinstance(command, InsertRows | UpdateRows | DeleteRows)
    post_rows(posted, source, 1, command, key, lambda source: None)


def rows(posted: PostedRows, source: Source) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in posted.table(source, 1).to_pylist()]


def test_rows_that_are_stamped_when_they_come_are_deleted_and_changed(tmp_path: Path) -> None:
    source, catalog = declared(RELATION)
    posted = PostedRows(tmp_path, 100.0)
    run(posted, source, catalog, "INSERT INTO R VALUES ('+', 1, 'a'), ('+', 2, 'b'), ('+', 3, 'c');", "1")
    run(posted, source, catalog, "DELETE FROM R WHERE k = 2;", "2")
    run(posted, source, catalog, "UPDATE R SET k = k + 1, v = 'new';", "3")
    run(posted, source, catalog, "UPDATE R SET k = k + 1, v = 'new';", "3")
    run(posted, source, catalog, "DELETE FROM R WHERE k = 9;", "4")
    assert rows(posted, source)[3:] == [
        ("-", 2, "b"),
        ("-", 1, "a"),
        ("-", 3, "c"),
        ("+", 2, "new"),
        ("+", 4, "new"),
    ]
    left = content(source, posted.table(source, 1))
    assert sorted(zip(left.columns[1].to_pylist(), left.columns[2].to_pylist(), strict=True)) == [
        (2, "new"),
        (4, "new"),
    ]
    run(posted, source, catalog, "DELETE FROM R;", "5")
    assert len(content(source, posted.table(source, 1))) == 0


def test_a_relation_without_operations_takes_the_new_rows(tmp_path: Path) -> None:
    source, catalog = declared(
        "CREATE RELATION R (ts INT, k INT, v INT, PRIMARY KEY (k)) FROM HTTP () TIMESTAMP BY ts UNIT SECOND;"
    )
    posted = PostedRows(tmp_path, 100.0)
    run(posted, source, catalog, "INSERT INTO R VALUES (1, 1, 10), (1, 2, 20);", "1")
    run(posted, source, catalog, "UPDATE R SET v = v + 1, ts = 3 WHERE v >= 20;", "2")
    assert rows(posted, source)[2:] == [(3, 2, 21)]
    run(posted, source, catalog, "UPDATE R SET v = v + 1, ts = 4 WHERE v > 20;", "3")
    assert rows(posted, source)[3:] == [(4, 2, 22)]


def test_a_timestamp_that_is_computed_is_checked_and_changed_by_its_columns(tmp_path: Path) -> None:
    source, catalog = declared(
        "CREATE RELATION R (at STRING, k INT, v INT, PRIMARY KEY (k)) FROM HTTP ()"
        " TIMESTAMP BY TO_TIMESTAMP(at, 'yyyy/MM/dd HH:mm');"
    )
    posted = PostedRows(tmp_path, 100.0)
    two = pa.table({"at": ["2024/03/01 09:00", "2024-03-01"], "k": pa.array([1, 2], pa.int32())})
    with pytest.raises(PenstockError, match="P0414") as refused:
        check_rows(source, two.append_column("v", two["k"]), "INSERT")
    assert "row 2" in str(refused.value) and "no timestamp" in str(refused.value)
    assert refused.value.hint == "no row was changed; each needs at"
    run(posted, source, catalog, "INSERT INTO R VALUES ('2024/03/01 09:00', 1, 10);", "2")
    with pytest.raises(PenstockError, match="P0209") as without:
        run(posted, source, catalog, "UPDATE R SET v = 11;", "3")
    assert "at = ..." in str(without.value)
    run(posted, source, catalog, "UPDATE R SET v = 11, at = '2024/03/01 09:05';", "4")
    assert rows(posted, source)[1:] == [("2024/03/01 09:05", 1, 11)]
    late = pa.table({"at": ["2024/03/01 08:59"], "k": pa.array([1], pa.int32()), "v": pa.array([1], pa.int32())})
    assert late_rows(source, late, 1_709_283_600_000_000) == 1


def test_a_row_that_has_gone_for_ever_cannot_come_again() -> None:
    source, _ = declared(
        "CREATE NON RETROACTIVE RELATION N (ts INT, op STRING, k INT, PRIMARY KEY (k)) FROM MEMORY () "
        "TIMESTAMP BY ts UNIT SECOND OPERATION BY op;"
    )
    with pytest.raises(PenstockError, match="P0701"):
        check_changeable(source)


KEYED = "CREATE RELATION K (k INT, d DATE, v INT, PRIMARY KEY (k, d)) FROM MEMORY ();"


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ("(1, NULL, 1)", "row 1 of the INSERT has NULL in the primary key of K"),
        ("(1, '2024-01-01', 1), (NULL, '2024-01-01', 1)", "row 2 of the INSERT has NULL"),
        ("(1, '+9999-01-01', 1), (2, '2024-01-01', 1), (1, '9999-01-01', 2)",
         "row 3 of the INSERT repeats the primary key of a row of K: k, d = 1, 9999-01-01"),
    ],
)  # fmt: skip
def test_an_insert_whose_keys_do_not_fit_is_refused(tmp_path: Path, rows: str, reason: str) -> None:
    """At once: its rows would be dead letters, of which the one who inserts hears nothing."""
    with server(tmp_path) as system:
        system.done(KEYED)
        with pytest.raises(PenstockError) as caught:
            system.run(f"INSERT INTO K VALUES (7, '2024-01-01', 1); INSERT INTO K VALUES {rows}")
        error = caught.value
        assert error.position is not None and error.position.column == 44
        assert error.code == "P0210" and error.message.startswith(reason), error
        assert len(system.control.commands()) == 1


def test_an_insert_with_a_key_that_is_there_fails_alone(tmp_path: Path) -> None:
    with server(tmp_path) as system:
        system.done(f"{KEYED} INSERT INTO K VALUES (1, '2024-01-01', 1)")
        (told,) = system.run("INSERT INTO K VALUES (2, '2024-01-01', 1), (1, '2024-01-01', 2)", key="k")
        assert told.outcome is not None and (told.outcome.state.value, told.outcome.code) == ("FAILED", "P0210")
        system.done("INSERT INTO K VALUES (2, '2024-01-01', 3)")
        system.done("CREATE QUERY q AS SELECT k, v FROM K")
        system.engine.round()
        assert sorted((row["k"], row["v"]) for row in system.answers("q")) == [(1, 1), (2, 3)]
    with server(tmp_path) as again:
        (told,) = again.run("INSERT INTO K VALUES (2, '2024-01-01', 1), (1, '2024-01-01', 2)", key="k")
        assert told.outcome is not None and told.outcome.code == "P0210"


CHANGES = """CREATE STREAM S (ts TIMESTAMP, v INT) FROM MEMORY () TIMESTAMP BY ts;
    CREATE RELATION R (ts INT, op STRING, k INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND OPERATION BY op;
    CREATE RELATION P (ts INT, k INT, PRIMARY KEY (k)) FROM HTTP () TIMESTAMP BY ts UNIT SECOND;
"""


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("INSERT INTO S VALUES ('2024-01-01', 1), (NULL, 2)", "row 2 of the INSERT cannot be a row of S: no timestamp"),
        ("INSERT INTO S (v) VALUES (1)", "row 1 of the INSERT cannot be a row of S: no timestamp"),
        ("INSERT INTO R VALUES (1, '*', 1)", "row 1 of the INSERT cannot be a row of R: operation is neither + nor -"),
        ("INSERT INTO R VALUES (1, NULL, 1)", "row 1 of the INSERT cannot be a row of R: operation is neither"),
        ("INSERT INTO R (k) VALUES (1)", "row 1 of the INSERT cannot be a row of R: no timestamp"),
    ],
)
def test_an_insert_of_what_would_be_a_dead_letter_is_refused(tmp_path: Path, statement: str, reason: str) -> None:
    with server(tmp_path) as system:
        system.done(CHANGES)
        before = len(system.control.commands())
        with pytest.raises(PenstockError) as caught:
            system.run(statement)
        assert caught.value.code == "P0414" and caught.value.message.startswith(reason), caught.value
        assert len(system.control.commands()) == before
        system.done("INSERT INTO S VALUES ('2024-01-01', NULL); INSERT INTO R VALUES (1, '-', 1)")


def test_an_update_that_takes_the_timestamp_away_fails_alone(tmp_path: Path) -> None:
    """It would take the old row away, and lose the new one."""
    with server(tmp_path) as system:
        system.done(f"{CHANGES} INSERT INTO P VALUES (1, 1); CREATE QUERY q AS SELECT k FROM P")
        (told,) = system.run("UPDATE P SET ts = CAST(NULL AS INT)")
        assert told.outcome is not None and (told.outcome.state.value, told.outcome.code) == ("FAILED", "P0414")
        (told,) = system.run("UPDATE P SET ts = 2")
        assert told.outcome is not None and told.outcome.state.value != "FAILED"


def test_rows_of_updates_may_have_one_key(tmp_path: Path) -> None:
    with server(tmp_path) as system:
        system.done("CREATE RELATION U (ts INT, k INT, PRIMARY KEY (k)) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;")
        system.done("INSERT INTO U VALUES (1, 1), (2, 1), (2, 1)")
        with pytest.raises(PenstockError, match="NULL in the primary key of U"):
            system.run("INSERT INTO U VALUES (3, NULL)")


def test_rows_of_a_query_over_constants_are_inserted_as_those_of_values(tmp_path: Path) -> None:
    with server(tmp_path) as system:
        system.done(CHANGES)
        first = "INSERT INTO P SELECT n, n * 10 FROM range(1, 4) AS t (n) WHERE n <> 2"
        told = system.run(f"{first}; INSERT INTO P (k, ts) SELECT 7, 8")
        assert [one.outcome.rows for one in told if one.outcome is not None] == [2, 1]
        before = len(system.control.commands())
        for text, code in (
            ("INSERT INTO P SELECT NULL, n FROM range(2) AS t (n)", "P0414"),
            ("INSERT INTO P SELECT k, ts FROM P", "P0103"),
            ("INSERT INTO P SELECT n, n FROM range(100001) AS t (n)", "P0105"),
        ):
            with pytest.raises(PenstockError) as caught:
                system.run(text)
            assert caught.value.code == code, text
        assert len(system.control.commands()) == before


FAR = (
    "CREATE RELATION R (ts INT, op STRING, k INT, d DATE, t TIMESTAMP, PRIMARY KEY (k)) FROM MEMORY () "
    "OPERATION BY op TIMESTAMP BY ts UNIT SECOND;"
)


def test_times_outside_of_python_s_years_are_inserted_and_set(tmp_path: Path) -> None:
    source, catalog = declared(FAR)
    posted = PostedRows(tmp_path, 100.0)
    run(
        posted,
        source,
        catalog,
        "INSERT INTO R (ts, k, d, t) VALUES (1, 1, DATE '10000-01-01', TIMESTAMP '10000-01-01 00:00:00.000001'), "
        "(1, 2, DATE '9999-12-31', TIMESTAMP '0001-01-01 00:00:00'), (1, 3, '10000-01-02', '9999-12-31 23:59:59');",
        "1",
    )
    run(posted, source, catalog, "UPDATE R SET ts = 2, d = DATE '10000-01-03', t = '10000-01-01' WHERE k = 2;", "2")
    found = posted.table(source, 1)
    days = found.column("d").cast(pa.int32()).to_pylist()
    moments = found.column("t").cast(pa.int64()).to_pylist()
    last = 2932896  # 9999-12-31
    second = 10**6
    end = (last + 1) * 86_400 * second
    first = -62_135_596_800 * second
    assert days == [last + 1, last, last + 2, last, last + 3]
    assert moments == [end + 1, first, end - second, first, end]


@pytest.mark.parametrize("value", ["9223372036854775808", "-9223372036854775809", "0.5e400"])
def test_a_number_outside_of_the_type_is_named_as_it_was_written(tmp_path: Path, value: str) -> None:
    _, catalog = declared("CREATE RELATION R (ts INT, k BIGINT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;")
    with pytest.raises(PenstockError) as refused:
        command_of(f"INSERT INTO R VALUES (1, {value});", catalog, Settings())
    assert "Decimal(" not in refused.value.message and "is not BIGINT, the type of k" in refused.value.message


AHEAD = """CREATE STREAM S (t BIGINT) FROM MEMORY () TIMESTAMP BY t UNIT SECOND
  ORDER WITHIN 5 SECONDS ADVANCE AT MOST 100 SECONDS;"""


@pytest.mark.parametrize(
    ("ticks", "heartbeat", "late"),
    [
        ([10, 9_999, 20, 3], None, 1),
        ([9_999, 60, 20], 50, 1),
        ([150, 100], 50, 1),
        ([10, 20], None, 0),
    ],
)
def test_rows_behind_one_that_is_too_far_ahead_are_not_late(ticks: list[int], heartbeat: int | None, late: int) -> None:
    """A row beyond ADVANCE AT MOST is kept out, so time does not pass with it."""
    source, _ = declared(AHEAD)
    assert late_rows(source, pa.table({"t": pa.array(ticks, pa.int64())}), heartbeat) == late


def test_rows_that_are_stamped_when_they_come_are_not_late() -> None:
    source, _ = declared("CREATE STREAM S (a BIGINT) FROM MEMORY () SYSTEM TIME;")
    assert late_rows(source, pa.table({"a": pa.array([1, 2], pa.int64())}), 1_000_000) == 0
