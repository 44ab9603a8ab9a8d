"""UPDATE and DELETE of posted rows, against the content of a relation."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.algebra.nodes.scans import Source
from penstock.control.posted_rows import PostedRows
from penstock.control.registry import command_of
from penstock.control.row_changes import check_changeable, content, post_rows
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
        ("-", 2, "b"), ("-", 1, "a"), ("-", 3, "c"), ("+", 2, "new"), ("+", 4, "new"),
    ]  # fmt: skip
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


def test_a_row_that_has_gone_for_ever_cannot_come_again() -> None:
    source, _ = declared(
        "CREATE NON RETROACTIVE RELATION N (ts INT, op STRING, k INT, PRIMARY KEY (k)) FROM MEMORY () "
        "TIMESTAMP BY ts UNIT SECOND OPERATION BY op;"
    )
    with pytest.raises(PenstockError, match="P0701"):
        check_changeable(source)
