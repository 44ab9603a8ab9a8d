"""The queries of `sql/`: plain SQL over static relations, relations with updates, and streams under windows."""

from __future__ import annotations

import pytest

from tests.plain_sql import FOLDER, Asked, Suite, Way, check, one_way, read

SUITES = {path.stem: read(path) for path in sorted(FOLDER.glob("*.sqltest"))}
QUERIES = [(suite, asked) for suite in SUITES.values() for asked in suite.queries]
each_query = pytest.mark.parametrize(("suite", "asked"), QUERIES, ids=[str(asked) for _, asked in QUERIES])


@pytest.mark.spread(2)
@each_query
def test_query(suite: Suite, asked: Asked) -> None:
    check(suite, asked, [one_way(asked)])


@pytest.mark.slow
@each_query
def test_query_in_every_way(suite: Suite, asked: Asked) -> None:
    check(suite, asked, tuple(Way))


def test_there_are_hundreds_of_queries() -> None:
    assert len(QUERIES) >= 600


def test_a_history_ends_with_the_rows_of_the_file() -> None:
    for suite in SUITES.values():
        for way in Way:
            held = suite.snapshot(way, way.instants[1])
            for name, table in suite.tables.items():
                found, expected = held[name].to_pylist(), table.to_pylist()
                assert sorted(map(str, found)) == sorted(map(str, expected)), f"{suite.name}.{name}, {way.value}"
