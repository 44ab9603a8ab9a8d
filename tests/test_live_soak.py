"""What the soak of a server judges by: its rows, the answers that it computes anew, and what it finds wrong."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from benchmarks.live_soak import served
from benchmarks.live_soak.feed import BETWEEN, DECLARED, STEP, levels, stream
from benchmarks.live_soak.lives import NOTHING, Episode, Life, wrong
from benchmarks.live_soak.shapes import Change, Levelled, Passed, Shape, Span, Sums, Totals
from penstock.algebra.nodes.query import Query, Start, StartMode
from penstock.language.scripts import bind_script
from penstock.runtime.local.runtime import run_local
from penstock.testing.live import Episode as LawEpisode
from penstock.testing.live import run_live

SEED, COUNT = 5, 400
SHAPES: tuple[Shape, ...] = (Passed(3, 1), Sums(2, 1), Totals(1), Levelled(2))


@pytest.fixture(scope="module")
def queries() -> dict[Shape, Query]:
    declared = DECLARED.replace("HTTP ()", "MEMORY ()").replace(" RETAIN 120 SECONDS", "")
    text = "".join(f"CREATE QUERY q{i} INTO MEMORY () AS {shape.text};" for i, shape in enumerate(SHAPES))
    return dict(zip(SHAPES, bind_script(declared + text).queries, strict=True))


@pytest.fixture(scope="module")
def inputs() -> Mapping[str, pa.Table]:
    return {"s": stream(SEED, 0, COUNT), "levels": levels(SEED, 0, COUNT // BETWEEN)}


def changes(events: Iterable[tuple[int, str | None, tuple[object, ...]]]) -> list[Change]:
    """Events of the law, or of the engine, as changes."""
    return sorted((ts, -1 if op == "-" else 1, tuple(int(str(v)) for v in row)) for ts, op, row in events)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_engine_answers_the_same(
    shape: Shape, queries: Mapping[Shape, Query], inputs: Mapping[str, pa.Table]
) -> None:
    found = run_local([queries[shape]], inputs)
    (table,), (until,) = found.tables.values(), found.final.values()
    rows = [tuple(row.values()) for row in table.to_pylist()]
    told = [(ts, None, rest) if shape.is_stream else (ts, rest[0], rest[1:]) for ts, *rest in rows]
    assert changes((ts, op, tuple(row)) for ts, op, row in told if ts <= until) == sorted(
        one for one in shape.answer(Span(SEED, 0, NOTHING, until)) if one[0] <= until
    )


@pytest.mark.parametrize("warm", [True, False])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_law_says_the_same_of_a_query_that_begins_later(
    shape: Shape, warm: bool, queries: Mapping[Shape, Query], inputs: Mapping[str, pa.Table]
) -> None:
    read = COUNT // 2 + 7
    begun = {"s": read, "levels": read // BETWEEN}
    start = Start(StartMode.WARM if warm else StartMode.NOW)
    events = run_live([LawEpisode(queries[shape], start, begun)], inputs)
    tau = STEP * (read - 1) - 1
    if isinstance(shape, Levelled):
        tau = int(levels(SEED, begun["levels"] - 1, 1).column("at")[0].as_py()) - 1
    until = max(ts for ts, _, _ in events)
    expected = Episode(shape, warm, tau, read - 1).answer(SEED, tau, until)
    assert changes(events) == sorted(one for one in expected if one[0] <= until)


def life(shape: Shape, *lies: str) -> Life:
    """A query that began in the middle and was received to the end, but for some lies."""
    episode = Episode(shape, True, STEP * 200 - 1, 200, reached=STEP * 300)
    received = [one for one in episode.answer(SEED, episode.begun, STEP * 300) if one[0] <= STEP * 300]
    for lie in lies:
        if lie == "lost":
            del received[len(received) // 2]
        elif lie == "twice":
            received.append(received[-1])
        elif lie == "other":
            tick, sign, row = received[3]
            received[3] = (tick, sign, (*row[:-1], row[-1] + 1))
        elif lie == "end":
            received = [one for one in received if one[0] < STEP * 290]
    return Life(1, "q1", [episode], received, STEP * 300)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("lie", ["lost", "twice", "other", "end"])
def test_what_is_wrong_is_found(shape: Shape, lie: str) -> None:
    assert list(wrong(life(shape), SEED)) == []
    assert len(list(wrong(life(shape, lie), SEED))) == 1


def test_episodes_are_judged_each_by_itself() -> None:
    first, second = Passed(2, 0), Passed(3, 1)
    one = Episode(first, True, NOTHING, -1, reached=STEP * 50)
    two = Episode(second, False, STEP * 80 - 1, 80, reached=STEP * 99, resumed=True)
    received = one.answer(SEED, NOTHING, STEP * 60) + two.answer(SEED, two.begun, STEP * 99)
    story = Life(1, "q1", [one, two], received, STEP * 99)
    assert list(wrong(story, SEED)) == []
    # What the first answered when it had ended belongs to nobody.
    late = replace(story, received=received + first.answer(Span(SEED, 0, STEP * 84, STEP * 90)))
    assert len(list(wrong(late, SEED))) == 1


def test_of_the_instant_of_an_exchange_the_former_query_has_answered_what_had_been_read() -> None:
    first, second = Passed(2, 0), Passed(2, 1)
    one = Episode(first, True, NOTHING, -1)
    for warm in (False, True):
        two = Episode(second, warm, STEP * 80 - 1, 80, reached=STEP * 99)
        received = one.answer(SEED, NOTHING, STEP * 80)
        assert received[-1][0] == STEP * 80, "its row of the instant left early"
        story = Life(1, "q1", [one, two], received + two.answer(SEED, STEP * 80, STEP * 99), STEP * 99)
        assert list(wrong(story, SEED)) == []
        assert len(list(wrong(replace(story, received=[*story.received, received[-1]]), SEED))) == 1
        assert len(list(wrong(replace(story, received=[r for r in story.received if r != received[-1]]), SEED))) == 1


class Counted(served.Served):
    """A server that is none: what is done to it is counted."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.done: list[str] = []

    def check(self) -> None: ...

    def kill(self) -> None:
        self.done.append("kill")

    def start(self) -> None:
        self.done.append("start")


def test_the_driver_is_killed_while_a_command_is_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Counted(tmp_path)
    killer = served.Killer(server, 1, 1.0, 60.0)
    monkeypatch.setattr(killer._draw, "uniform", lambda low, high: high / 1000)
    monkeypatch.setattr(served, "_NEXT_COMMAND", 0.05)
    # A command of before does not count.
    killer.commanding.set()
    killer._kill("command")
    assert server.done == [] and killer.kills["command"] == 0
    monkeypatch.setattr(served, "_NEXT_COMMAND", 60.0)
    threading.Timer(0.2, killer.commanding.set).start()
    killer._kill("command")
    assert server.done == ["kill", "start"] and killer.kills["command"] == 1
    assert "command" in killer.KINDS and set(killer.KINDS) == set(killer.kills)
