"""Streams that are replaced before their heartbeat has moved, with the engine on Spark: no instant is lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from inline_engine import InlineServer, without_spark

from penstock.algebra.nodes.query import Start, StartMode
from penstock.language.scripts import bind_script
from penstock.testing.live import Episode, run_live

__all__ = ["without_spark"]

STREAM = "CREATE STREAM S (ts INT, v INT) FROM {} () TIMESTAMP BY ts UNIT SECOND{};"
KEPT = " RETAIN 10000 SECONDS"
EACH, EVEN = "SELECT ISTREAM(v) FROM S [NOW]", "SELECT ISTREAM(v) FROM S [NOW] WHERE v % 2 = 0"
STARTS = {
    "NOW": Start(), "WARM": Start(StartMode.WARM), "AT 5": Start(StartMode.AT, 5), "AT 3": Start(StartMode.AT, 3),
    "BEGINNING": Start(StartMode.BEGINNING),
}  # fmt: skip
ROWS = [(1, 1), (2, 2), (3, 3), (4, 4), (5, 6), (6, 8), (6, 9)]


@pytest.fixture
def server(tmp_path: Path, without_spark: None) -> Iterator[InlineServer]:
    made = InlineServer(tmp_path / "checkpoint")
    yield made
    made.close()


def law(steps: list[tuple[str, str, int]], rows: list[tuple[int, int]]) -> Counter[tuple[int, ...]]:
    """Return what is emitted up to the last instant that is complete.

    Args:
        steps: which query begins how, after how many rows.
    """
    plain = STREAM.format("MEMORY", "")
    episodes: list[Episode] = []
    ends = [{"S": read} for _, _, read in steps[1:]]
    for (select, start, read), end in zip(steps, [*ends, None], strict=True):
        query = bind_script(f"{plain} CREATE QUERY q AS {select};").queries[0]
        episodes.append(Episode(query, STARTS[start], {"S": read}, end))
    ticks, values = zip(*rows, strict=True)
    inputs = {"S": pa.table({"ts": pa.array(ticks, pa.int32()), "v": pa.array(values, pa.int32())})}
    return Counter((ts, *row) for ts, _, row in run_live(episodes, inputs))


@pytest.mark.spread(4)
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("second", STARTS)
@pytest.mark.parametrize("first", STARTS)
def test_a_query_replaced_before_its_heartbeat_moves(
    server: InlineServer, first: str, second: str, restarts: bool
) -> None:
    """The instant after the heartbeat is answered once too, though the first query may have emitted rows of it."""
    server.post(STREAM.format("HTTP", KEPT))
    server.insert("S", ROWS)
    server.post(f"CREATE QUERY q START {first} AS {EACH};")
    if restarts:
        server.restart()
    server.post(f"ALTER QUERY q AS {EVEN} START {second};")
    later = [(6, 10), (7, 12), (8, 14)]
    server.insert("S", later)
    expected = law([(EACH, first, len(ROWS)), (EVEN, second, len(ROWS))], [*ROWS, *later])
    found = Counter(server.emitted("q"))
    # What is complete; and of 6 what the first query emitted before.
    assert Counter({row: n for row, n in found.items() if row[0] not in (6, 8)}) == Counter(
        {row: n for row, n in expected.items() if row[0] != 6}
    )
    early = [] if first == "NOW" else [(6, 8), (6, 9)]
    rest = [(6, 10)] if second == "NOW" or early else [(6, 8), (6, 10)]
    assert found[(8, 14)] == 1
    assert Counter({row: n for row, n in found.items() if row[0] == 6}) == Counter([*early, *rest])


@pytest.mark.parametrize("restarts", [False, True])
def test_what_was_read_before_now_is_of_the_query_that_reads_it(server: InlineServer, restarts: bool) -> None:
    """Of 6 the first query emits what came while it ran; the second one what came before it, and after it."""
    server.post(STREAM.format("HTTP", KEPT))
    server.insert("S", ROWS)
    server.post(f"CREATE QUERY q AS {EACH};")
    server.insert("S", [(6, 10), (6, 11)])
    if restarts:
        server.restart()
    server.post(f"ALTER QUERY q AS {EVEN} START AT 3;")
    server.insert("S", [(6, 12)])
    assert sorted(server.emitted("q")) == [(6, 10), (6, 11)]
    server.post(f"ALTER QUERY q AS {EACH} START WARM;")
    server.insert("S", [(6, 13), (7, 14), (8, 15)])
    assert sorted(server.emitted("q")) == [(6, 8), (6, 9), (6, 10), (6, 11), (6, 12), (6, 13), (7, 14), (8, 15)]
