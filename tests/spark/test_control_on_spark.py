"""Commands and posted rows with the engine on Spark, over a stop and a start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from control_on_spark_kit import opened, result, rows, until

from penstock.control.live.control import Control
from penstock.errors import PenstockError


def at_least(path: Path, count: int, control: Control) -> list[tuple[Any, ...]]:
    """Wait until a result has so many rows; return them."""
    until(lambda: len(result(path)) >= count, control, lambda: result(path))
    return result(path)


@pytest.mark.spark
def test_a_server_goes_on_where_it_stopped(spark: Any, tmp_path: Path) -> None:
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"

    engine, control = opened(checkpoint, spark)
    assert control.submit("SHOW QUERIES;")[0].outcome is None
    control.submit(
        "CREATE STREAM S (ts INT, v INT) FROM HTTP () TIMESTAMP BY ts UNIT SECOND;"
        f"CREATE QUERY sums INTO FILES (path '{out / 'sums'}', format 'json') AS "
        "SELECT ISTREAM(SUM(v) AS s) FROM S [RANGE 3 SECONDS];"
    )
    control.insert("S", rows(1, 2, 3), "a")
    assert not control.insert("S", rows(1, 2, 3), "a")
    at_least(out / "sums", 2, control)
    with pytest.raises(PenstockError, match="P0703"):
        control.submit("CREATE QUERY w START WARM AS SELECT SUM(v) AS s FROM S [RANGE 3 SECONDS];")
    control.submit(
        f"ALTER QUERY sums RENAME TO totals; CREATE QUERY more INTO FILES (path '{out / 'more'}', format 'json') "
        "AS SELECT v FROM S; INSERT INTO S VALUES (4, 4);",
        key="k",
    )
    (_, version) = control.version().number, control.version()
    assert version.command == 5
    at_least(out / "more", 1, control)
    control.close()
    engine.close()

    engine, control = opened(checkpoint, spark)
    again = control.submit(
        f"ALTER QUERY sums RENAME TO totals; CREATE QUERY more INTO FILES (path '{out / 'more'}', format 'json') "
        "AS SELECT v FROM S; INSERT INTO S VALUES (4, 4);",
        key="k",
    )
    assert [one.outcome and one.outcome.number for one in again] == [3, 4, 5]
    assert not control.insert("S", rows(1, 2, 3), "a")
    control.submit("DROP QUERY more; INSERT INTO S VALUES (5, 5), (6, 6);")
    found = at_least(out / "sums", 5, control)
    assert [one[-1] for one in found[:5]] == [1, 3, 6, 9, 12]
    into = f"INTO FILES (path '{out / 'w'}', format 'json')"
    control.submit(f"CREATE QUERY w {into} START WARM WAIT AS SELECT SUM(v) AS s FROM S [RANGE 2 SECONDS];")
    control.submit("INSERT INTO S VALUES (7, 7), (8, 8), (9, 9), (10, 10);")
    # What was gone when it began counts up to 7.
    assert at_least(out / "w", 1, control)[0][-1] == 15
    control.submit("DROP STREAM S CASCADE;")
    assert control.stored == {}
    control.submit(
        "CREATE STREAM S (ts INT, v INT) FROM HTTP () TIMESTAMP BY ts UNIT SECOND;"
        f"CREATE QUERY fresh INTO FILES (path '{out / 'fresh'}', format 'json') AS SELECT v FROM S;"
        "INSERT INTO S VALUES (1, 1), (2, 2);"
    )
    # Another stream of the same name begins with its own time.
    assert [one[-1] for one in at_least(out / "fresh", 1, control)][:1] == [1]
    control.submit("ALTER QUERY fresh AS SELECT CAST(v + 100 AS INT) AS v FROM S START NOW;")
    control.insert("S", rows(3, 4, 5))
    assert {103, 104} <= {one[-1] for one in at_least(out / "fresh", 3, control)}
    control.close()
    engine.close()


@pytest.mark.spark
def test_relations_continue_their_results(spark: Any, tmp_path: Path) -> None:
    """Exchanged, paused with and without their state, over a stop and a start."""
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"

    def content(name: str, tick: int) -> dict[int, int]:
        counts: dict[int, int] = {}
        for ts, op, value in result(out / name):
            if ts <= tick:
                counts[value] = counts.get(value, 0) + (1 if op == "+" else -1)
        return {value: count for value, count in counts.items() if count}

    def reaches(name: str, tick: int, expected: dict[int, int]) -> None:
        until(lambda: content(name, tick) == expected, control, lambda: (name, content(name, tick)))

    engine, control = opened(checkpoint, spark)
    control.submit("CREATE STREAM S (ts INT, v INT) FROM HTTP () TIMESTAMP BY ts UNIT SECOND RETAIN 1 HOUR;")
    for name, length in (("short", 2), ("long", 5)):
        control.submit(
            f"CREATE QUERY {name} INTO FILES (path '{out / name}', format 'parquet') "
            f"AS SELECT v FROM S [RANGE {length} SECONDS];"
        )
    control.insert("S", rows(1, 2, 3, 4))
    reaches("short", 3, {2: 1, 3: 1})
    control.submit("ALTER QUERY short SWAP WITH long;")
    control.insert("S", rows(5, 6))
    reaches("short", 5, {1: 1, 2: 1, 3: 1, 4: 1, 5: 1})
    reaches("long", 5, {4: 1, 5: 1})
    control.submit("ALTER QUERY short PAUSE WITH STATE; ALTER QUERY long PAUSE;")
    control.insert("S", rows(7, 8))
    control.close()
    engine.close()

    engine, control = opened(checkpoint, spark)
    control.submit("ALTER QUERY short RESUME; ALTER QUERY long RESUME;")
    control.insert("S", rows(9, 10))
    reaches("short", 9, {5: 1, 6: 1, 7: 1, 8: 1, 9: 1})
    reaches("long", 9, {8: 1, 9: 1})
    control.close()
    engine.close()
