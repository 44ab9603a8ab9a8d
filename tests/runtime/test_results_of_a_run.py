"""INTO RESULTS in whole runs: each row once over crashes, changed scripts, pasts that are read, and other bounds."""

from __future__ import annotations

from pathlib import Path

import pytest
from inline_run import CRASHES, InlineRun, cold, write_files

from penstock.connectors.sinks.results import ResultsSink
from penstock.errors import PenstockError
from penstock.results.reader import ResultReader, ResultRows, Subscription

FILES = 4
SUMS = "SELECT k, SUM(x) AS s FROM S [RANGE 30 SECONDS] GROUP BY k"
PICKED = "SELECT ISTREAM(k, x) FROM S [NOW] WHERE x > 5"


def script(tmp: Path, options: str = "", sums: str = SUMS, more: str = "") -> str:
    return f"""SET max_batch_bytes = 1; SET shards = 2;
    CREATE STREAM S (ts BIGINT, k INT, x BIGINT) FROM FILES (path '{tmp / "data"}', format 'parquet')
      TIMESTAMP BY ts UNIT SECOND;
    CREATE QUERY "odd name/\u00e4" INTO RESULTS ({options}) AS {sums};
    CREATE QUERY picked INTO RESULTS () AS {PICKED}; {more}""".replace('"', "`")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_files(tmp_path / "data", range(FILES))
    cold()
    return tmp_path


def all_of(subscription: Subscription) -> list[ResultRows]:
    """What can be delivered now."""
    found = []
    while (delivery := subscription.poll()) is not None:
        found.append(delivery)
    return found


def rows_in(deliveries: list[ResultRows]) -> list[tuple[object, ...]]:
    """The rows of deliveries."""
    return [tuple(row.values()) for delivery in deliveries for row in delivery.rows.to_pylist()]


def reader(run: InlineRun, query: str) -> ResultReader:
    sink = run.sinks[query]
    assert isinstance(sink, ResultsSink) and sink.own_place is not None
    return ResultReader(run.folder.results, sink.own_place.id)


def rows(run: InlineRun, query: str) -> list[tuple[object, ...]]:
    one = reader(run, query)
    return rows_in(all_of(one.read(one.first)))


NAMES = ("odd name/\u00e4", "picked")


@pytest.fixture
def expected(data: Path) -> dict[str, list[tuple[object, ...]]]:
    run = InlineRun(script(data), data / "calm").run()
    found = {name: rows(run, name) for name in NAMES}
    assert run.ended and all(len(of) > FILES for of in found.values())
    cold()
    return found


@pytest.mark.spread(2)
@pytest.mark.parametrize("crash", CRASHES)
def test_each_row_comes_once_over_a_crash(data: Path, expected: dict[str, list[object]], crash: str) -> None:
    ids: set[str] = set()
    cursor, read = "", []
    for rounds in (0, 1, 1, 9):
        cold()
        run = InlineRun(script(data), data / "checkpoint")
        ids.add(reader(run, "picked").id)
        run.run(rounds, crash)
        deliveries = all_of(reader(run, "picked").read(cursor or reader(run, "picked").first))
        read += rows_in(deliveries)
        cursor = str(deliveries[-1].cursor) if deliveries else cursor
    assert read == expected["picked"], "a client with its last cursor gets each row once"
    assert run.ended and len(ids) == 1
    assert {name: rows(run, name) for name in NAMES} == expected


def test_a_result_goes_on_with_other_bounds(data: Path, expected: dict[str, list[object]]) -> None:
    first = InlineRun(script(data), data / "checkpoint").run(2)
    cold()
    run = InlineRun(script(data, "retain '1 hour', max_bytes '1 MB'"), data / "checkpoint").run()
    assert reader(run, NAMES[0]).id == reader(first, NAMES[0]).id
    assert reader(run, NAMES[0]).record.retain == 3600
    assert {name: rows(run, name) for name in NAMES} == expected
    reader(run, NAMES[0]).read(snapshot=True)


def test_a_query_that_changes_has_another_result(data: Path) -> None:
    first = InlineRun(script(data), data / "checkpoint").run(2)
    cursor = str(reader(first, NAMES[0]).end)
    cold()
    other = "SELECT k, COUNT(*) AS s FROM S [RANGE 20 SECONDS] GROUP BY k"
    run = InlineRun(script(data, sums=other), data / "checkpoint").run()
    with pytest.raises(PenstockError, match="another result") as caught:
        reader(run, NAMES[0]).read(cursor)
    assert caught.value.code == "P0712"
    assert reader(run, "picked").id == reader(first, "picked").id
    assert len(rows(first, NAMES[0])) > 0, "the old result can be read until it is removed"


def test_a_result_that_begins_late_has_no_snapshot(data: Path) -> None:
    """Its first changes are not there, so that its rows do not add up to the relation."""
    files = script(data).replace("INTO RESULTS ()", f"INTO FILES (path '{data / 'out'}')", 1)
    InlineRun(files, data / "checkpoint").run(2)
    cold()
    run = InlineRun(script(data), data / "checkpoint").run()
    with pytest.raises(PenstockError) as caught:
        reader(run, NAMES[0]).read(snapshot=True)
    assert caught.value.code == "P0711"
    assert rows(run, NAMES[0])


@pytest.mark.parametrize("live", [False, True])
def test_a_query_that_reads_the_past_adds_it_to_earlier_batches(
    data: Path, expected: dict[str, list[object]], live: bool
) -> None:
    more = f"CREATE QUERY later INTO RESULTS () AS {PICKED};"
    run = InlineRun(script(data), data / "checkpoint").run(2) if not live else None
    if run is None:
        run = InlineRun(script(data), data / "checkpoint").go(2)
        run.change(script(data, more=more), backfilled=True)
        run.run()
    else:
        cold()
        run = InlineRun(script(data, more=more), data / "checkpoint", backfilled=True).run()
    assert rows(run, "later") == expected["picked"]
    assert {name: rows(run, name) for name in NAMES} == expected
