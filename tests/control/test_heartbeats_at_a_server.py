"""Heartbeats at a server: posted in order with rows, once per key, durable, and refused where they do not fit."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from penstock.errors import PenstockError
from tests.control.control_kit import Server, server

STREAM = "CREATE STREAM S (ts INT, v INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND RETAIN 1000 SECONDS;"
COUNT = "CREATE QUERY n AS SELECT COUNT(*) AS n FROM S [RANGE 10 SECONDS];"


def rows(*values: tuple[int, int]) -> pa.Table:
    ts, v = (pa.array([value[i] for value in values], pa.int32()) for i in (0, 1))
    return pa.table({"ts": ts, "v": v})


def told(made: Server, name: str = "n") -> list[tuple[int, str, int]]:
    return [(row["ts"], row["op"], row["n"]) for row in made.answers(name)]


def late(made: Server, name: str = "S") -> int:
    return made.engine._live.set_apart[name]["late"]


@pytest.mark.parametrize("by_statement", [True, False])
def test_silence_is_told(tmp_path: Path, by_statement: bool) -> None:
    with server(tmp_path) as made:
        made.done(STREAM + COUNT)
        made.control.insert("S", rows((1, 1), (2, 2)))
        made.engine.round()
        assert told(made) == [(1, "+", 1)], "2 may come again"
        if by_statement:
            made.done("ADVANCE S TO 60")
        else:
            assert made.control.advance("S", 60)
        made.engine.round()
        assert told(made)[1:] == [(2, "-", 1), (2, "+", 2), (11, "-", 2), (11, "+", 1), (12, "-", 1), (12, "+", 0)]
        assert made.control.version().sources == {"s": 60}


def test_heartbeats_are_read_in_order_with_rows(tmp_path: Path) -> None:
    """Posted one behind the other without a pause, all in one round."""
    with server(tmp_path) as made:
        made.done(STREAM + "CREATE QUERY q AS SELECT v AS n FROM S;")
        for tick in (5, 10, 9):
            made.control.insert("S", rows((tick, tick), (tick + 1, tick + 1)))
            made.control.advance("S", tick + 1)
        made.control.insert("S", rows((11, 0), (12, 12)))
        made.control.advance("S", 12)
        made.engine.round()
        assert [row["n"] for row in made.answers("q")] == [5, 6, 10, 11, 12]
        assert late(made) == 3, "9, 10, and the second 11"


def test_a_heartbeat_is_once_per_key(tmp_path: Path) -> None:
    with server(tmp_path) as made:
        made.done(STREAM)
        assert made.control.advance("S", 5, "a")
        assert not made.control.advance("S", 5, "a")
        with pytest.raises(PenstockError, match="P0731"):
            made.control.advance("S", 6, "a")
        with pytest.raises(PenstockError, match="P0731"):
            made.control.insert("S", rows((6, 6)), "a")
    with server(tmp_path) as made:
        assert not made.control.advance("S", 5, "a"), "also over a restart"


def test_a_kill_between_post_and_round_loses_and_doubles_nothing(tmp_path: Path) -> None:
    with server(tmp_path) as made:
        made.done(STREAM + COUNT)
        made.control.insert("S", rows((1, 1)))
        made.control.advance("S", 60)
    with server(tmp_path) as made:
        made.control.insert("S", rows((60, 2), (61, 3)))
        made.engine.round()
        expected = [(1, "+", 1), (11, "-", 1), (11, "+", 0)]
        assert told(made) == expected and late(made) == 1
    with server(tmp_path) as made:
        made.engine.round()
        assert told(made) == expected and late(made) == 1, "what was read is not read again"
        assert made.control.version().sources == {"s": 60}
        made.control.advance("S", 61)
        made.engine.round()
        assert told(made)[len(expected) :] == [(61, "-", 0), (61, "+", 1)]


def test_a_stream_of_files_is_advanced_at_the_head_of_the_next_round(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("ts,v\n1,1\n30,2\n")
    files = f"CREATE STREAM F (ts INT, v INT) FROM FILES (path '{tmp_path}/rows.csv', format 'csv') TIMESTAMP BY ts;"
    with server(tmp_path / "run") as made:
        made.done(STREAM + files)
        made.done("ADVANCE F TO 7; ADVANCE F TO 9")
        made.done("CREATE QUERY n START BEGINNING AS SELECT COUNT(*) AS n FROM F [RANGE 10 SECONDS];")
        made.engine.round()
        assert late(made, "F") == 1 and told(made) == []
        position = made.control.positions("F")
        assert all(made.engine.has_read(source, post) for source, post in position.items())
    with server(tmp_path / "run") as made:
        made.control.advance("F", 45)
        assert not all(made.engine.has_read(*pair) for pair in made.control.positions("F").items())
        made.engine.round()
        assert told(made) == [(30, "+", 1), (40, "-", 1), (40, "+", 0)]


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    relation = "CREATE RELATION R (a INT PRIMARY KEY, ts INT) FROM MEMORY () TIMESTAMP BY ts;"
    bounded = "CREATE STREAM B (ts INT, v INT) FROM MEMORY () TIMESTAMP BY ts ADVANCE AT MOST 10 SECONDS;"
    with server(tmp_path) as made:
        made.done(STREAM + relation + bounded)
        with pytest.raises(PenstockError, match="P0380: R is a relation"):
            made.control.advance("R", 5)
        with pytest.raises(PenstockError, match="P0201"):
            made.control.advance("nothing", 5)
        made.control.advance("B", 10**9)  # held against nothing, before the first element
        made.engine.round()
        made.control.insert("B", rows((10**9 + 1, 1)))
        # What was posted may allow it, so that the ingest decides.
        made.control.advance("B", 10**9 + 11)
        made.control.advance("B", 10**9 + 22)
        made.engine.round()
        assert made.control.version().sources["b"] == 10**9 + 11
        assert made.engine._live.set_apart["B"]["too far ahead"] == 1
        for run in (lambda: made.control.advance("B", 10**9 + 30), lambda: made.run(f"ADVANCE B TO {10**9 + 30}")):
            with pytest.raises(PenstockError, match=r"P0380.*ADVANCE AT MOST 10 SECOND"):
                run()
        made.control.advance("B", 10**9 + 21)
        made.engine.round()
        assert made.control.version().sources["b"] == 10**9 + 21


def test_thirty_queries_and_those_that_begin_warm_see_time_as_it_was(tmp_path: Path) -> None:
    others = "".join(f"CREATE QUERY q{i} AS SELECT COUNT(*) AS n FROM S [RANGE {i} SECONDS];" for i in range(1, 31))
    with server(tmp_path) as made:
        made.done(STREAM + others)
        made.control.insert("S", rows((1, 1), (2, 2)))
        made.control.advance("S", 6)
        made.control.insert("S", rows((6, 3), (7, 4)))
        made.engine.round()
        # 6 is late also for what begins later; at 6 there are two rows of the last ten seconds.
        made.done("CREATE QUERY n START WARM AS SELECT COUNT(*) AS n FROM S [RANGE 10 SECONDS];")
        assert told(made) == [(6, "+", 2)]
        made.control.advance("S", 40)
        made.engine.round()
        assert told(made)[1:] == [
            (7, "-", 2), (7, "+", 3), (11, "-", 3), (11, "+", 2), (12, "-", 2), (12, "+", 1), (17, "-", 1),
            (17, "+", 0),
        ]  # fmt: skip
        for length in range(1, 31):
            assert told(made, f"q{length}")[-1] == (7 + length, "+", 0)
        made.done("ALTER QUERY n AS SELECT COUNT(*) + 100 AS n FROM S [RANGE 10 SECONDS]")
        made.control.advance("S", 41)
        made.engine.round()
        assert told(made)[-1][2] == 100
