"""Contents of relations: folding a snapshot and the changes behind it gives R at every progress row."""

from __future__ import annotations

import gc
import logging
import random
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from result_kit import ITEMS, Log, all_of, changes, relation, rows_in, stream
from test_property import Arrivals, CaseRun, Inputs, explore

from penstock.algebra.nodes.query import Query, SinkSpec
from penstock.connectors.results.result_folder import RemovedRows, ResultFolder
from penstock.errors import PenstockError
from penstock.language.scripts import BoundScript
from penstock.physical.elements import Elements
from penstock.results import content
from penstock.results.content import ResultContents, read_saved
from penstock.results.reader import ResultReader
from penstock.runtime.local.runtime import run_local
from penstock.testing.compare import first_difference
from penstock.testing.oracle import run_oracle
from penstock.testing.random.worlds import FLAVOURS, Flavour
from penstock.testing.scalars.values import Event, Row, python_values
from penstock.types import END

R = relation("r", ITEMS)


def test_a_snapshot_is_the_content_and_the_changes_follow(tmp_path: Path) -> None:
    log = Log(tmp_path, R)
    log.write(0, {"r": changes(R, (1, "+", "a", 1), (1, "+", "a", 1), (2, "+", None, 2))}, 2)
    log.write(1, {"r": changes(R, (3, "-", "a", 1), (5, "+", "early", 5))}, 4)
    reader = ResultReader(tmp_path, "r-1")
    subscription = reader.read(snapshot=True, progress=True)
    found = rows_in(all_of(subscription))
    assert sorted(found[:2], key=str) == [(4, "+", "a", 1), (4, "+", None, 2)]
    assert found[2:] == [(4, "p", None, None), (5, "+", "early", 5)]
    log.write(2, {"r": changes(R, (6, "-", None, 2))}, END)
    assert rows_in(all_of(subscription)) == [(6, "-", None, 2), (6, "p", None, None)]
    assert sorted(rows_in(all_of(reader.read(snapshot=True)))) == [(6, "+", "a", 1), (6, "+", "early", 5)]


def test_a_content_does_not_keep_the_changes_of_each_batch_apart(tmp_path: Path) -> None:
    log = Log(tmp_path, R)
    contents = ResultContents(tmp_path)
    gc.collect()
    before = {id(one) for one in gc.get_objects() if type(one) is Elements}
    last = 200
    for batch in range(last):
        added = (batch, "+", "a", batch)
        log.write(batch, {"r": changes(R, *([(batch, "-", "a", batch - 1)] if batch else []), added)}, batch)
        # As when rows are removed that have been saved long since: nothing is saved, which would net them.
        contents.catch_up({"r-1": -1})
    # They are netted only when they are more than a thousand.
    kept = [one for one in gc.get_objects() if type(one) is Elements and id(one) not in before]
    assert sum(map(len, kept)) >= 2 * last - 1 and len(kept) < 40
    assert contents.latest("r-1").rows().to_pylist() == [{"k": "a", "x": last - 1}]


def test_a_snapshot_as_of_an_earlier_instant(tmp_path: Path) -> None:
    log = Log(tmp_path, R)
    log.write(0, {"r": changes(R, (1, "+", "a", 1), (2, "+", "b", 2))}, 2)
    log.write(1, {"r": changes(R, (3, "-", "a", 1), (4, "+", "c", 3))}, 4)
    reader = ResultReader(tmp_path, "r-1")
    subscription = reader.read(snapshot=True, progress=True, after=2)
    assert rows_in(all_of(subscription)) == [
        (2, "+", "a", 1),
        (2, "+", "b", 2),
        (2, "p", None, None),
        (3, "-", "a", 1),
        (4, "+", "c", 3),
        (4, "p", None, None),
    ]
    log.write(2, {"r": changes(R, (6, "-", "b", 2))}, 7)
    assert rows_in(all_of(subscription)) == [(6, "-", "b", 2), (7, "p", None, None)]
    bounded = all_of(reader.read(snapshot=True, progress=True, after=2, up_to=3))
    assert rows_in(bounded)[2:] == [(2, "p", None, None), (3, "-", "a", 1), (3, "p", None, None)]
    ended = reader.read(snapshot=True, after=2, up_to=3)
    all_of(ended)
    assert ended.ended
    with pytest.raises(PenstockError, match="complete up to") as caught:
        reader.read(snapshot=True, after=8)
    assert caught.value.code == "P0711"


@pytest.mark.parametrize("tick", [0, 5])
def test_a_snapshot_as_of_an_instant_before_zero(tmp_path: Path, tick: int) -> None:
    log = Log(tmp_path, R)
    log.write(0, {"r": changes(R, (-3, "+", "a", 1), (-1, "-", "a", 1), (-1, "+", "b", 2), (0, "+", "c", 3))}, tick)
    contents = ResultContents(tmp_path)
    found = ["".join(sorted(contents.at("r-1", at).column("k").to_pylist())) for at in range(-4, tick + 1)]
    assert found == ["", "a", "a", "b", *["bc"] * (tick + 1)]
    reader = ResultReader(tmp_path, "r-1", contents)
    assert rows_in(all_of(reader.read(snapshot=True, after=-2))) == [
        (-2, "+", "a", 1),
        (-1, "-", "a", 1),
        (-1, "+", "b", 2),
        (0, "+", "c", 3),
    ]


def test_an_answer_that_ends_before_zero_ends_there(tmp_path: Path) -> None:
    log = Log(tmp_path, R)
    reader = ResultReader(tmp_path, "r-1")
    follower = reader.read(reader.first, progress=True)
    log.write(0, {"r": changes(R, (-9, "+", "a", 1))}, -5)
    later = reader.read(snapshot=True, progress=True)
    assert rows_in(all_of(later)) == [(-5, "+", "a", 1), (-5, "p", None, None)]
    log.write(1, {}, END)
    assert rows_in(all_of(follower)) == [(-9, "+", "a", 1), (-5, "p", None, None)]
    assert rows_in(all_of(later)) == [] and ResultContents(tmp_path).latest("r-1").tick == -5
    assert rows_in(all_of(reader.read(reader.first, progress=True))) == [(-9, "+", "a", 1), (-5, "p", None, None)]


def test_a_snapshot_as_of_an_instant_whose_changes_are_gone_beside_others_that_are_left(tmp_path: Path) -> None:
    small, large = relation("r", ITEMS, max_bytes="2 KB"), relation("large", ITEMS)
    log = Log(tmp_path, small, large)
    contents = ResultContents(tmp_path)
    contents.guard()
    many = changes(large, *((1, "+", "a" * 1000, i) for i in range(100)))
    log.write(0, {"r": changes(small, (1, "+", "a", 0)), "large": many}, 1)
    for batch in range(1, 12):
        rows = changes(small, (batch + 1, "-", "a", batch - 1), (batch + 1, "+", "a", batch))
        log.write(batch, {"r": rows}, batch + 1)
    folder = ResultFolder.at(tmp_path)
    left, removed = folder.batches(), folder.removed("r-1")
    # Of the first batch the rows of the other query are most, so its file stays as it was.
    assert left[0] == 0 and left[1] == removed.batch + 1 and removed.high == removed.batch + 1 > 2
    for tick in range(13):
        if tick < removed.high:
            with pytest.raises(PenstockError, match=f"its changes since {tick} are gone") as caught:
                contents.at("r-1", tick)
            assert caught.value.code == "P0711"
        else:
            assert contents.at("r-1", tick).to_pylist() == [{"k": "a", "x": min(tick, 12) - 1}]


def test_rows_after_an_instant(tmp_path: Path) -> None:
    log = Log(tmp_path, R)
    log.write(0, {"r": changes(R, (1, "+", "a", 1), (2, "+", "b", 2))}, 2)
    log.write(1, {"r": changes(R, (3, "-", "a", 1), (4, "+", "c", 3))}, 4)
    reader = ResultReader(tmp_path, "r-1")
    assert [row[0] for row in rows_in(all_of(reader.read(after=1)))] == [2, 3, 4]
    assert [row[0] for row in rows_in(all_of(reader.read("r-1.1.1", after=1)))] == [4]
    bounded = reader.read(after=1, up_to=3)
    assert [row[0] for row in rows_in(all_of(bounded))] == [2, 3] and bounded.ended
    folder = ResultFolder.at(tmp_path)
    folder.remove_before({"r-1": RemovedRows(0, 2)})
    assert [row[0] for row in rows_in(all_of(reader.read(after=3)))] == [4]
    with pytest.raises(PenstockError, match="rows after 1 are gone") as caught:
        reader.read(after=1)
    assert caught.value.code == "P0712" and caught.value.hint


def test_a_snapshot_in_parts_has_its_cursor_at_the_end(tmp_path: Path) -> None:
    log = Log(tmp_path, R)
    log.write(0, {"r": changes(R, *((1, "+", "a", i) for i in range(5)))}, 2)
    found = all_of(ResultReader(tmp_path, "r-1").read(snapshot=True, rows=2))
    assert [(d.rows.num_rows, d.cursor is None) for d in found] == [(2, True), (2, True), (1, False)]
    assert str(found[-1].cursor) == "r-1.0.5"


def test_equal_rows_are_one_whatever_their_bits(tmp_path: Path) -> None:
    items = pa.schema([("x", pa.float64()), ("y", pa.float32()), ("e", pa.list_(pa.float64())), ("n", pa.null())])
    query = relation("r", items)
    log = Log(tmp_path, query)
    nan = np.array([0x7FF8000000000001], np.uint64).view(np.float64)[0]
    plus = [(1, "+", float("nan"), 0.0, [float("nan"), None], None), (1, "+", -0.0, None, None, None)]
    minus = [(2, "-", nan, -0.0, [nan, None], None), (2, "-", 0.0, None, None, None)]
    log.write(0, {"r": changes(query, *plus)}, 1)
    assert ResultContents(tmp_path).latest("r-1").rows().num_rows == 2
    log.write(1, {"r": changes(query, *minus)}, 2)
    assert ResultContents(tmp_path).latest("r-1").rows().num_rows == 0


@pytest.mark.parametrize("mode", ["stream", "not whole", "cursor", "too late"])
def test_what_has_no_snapshot(tmp_path: Path, mode: str) -> None:
    query = stream("r", ITEMS) if mode == "stream" else R
    log = Log(tmp_path, query)
    log.write(0, {}, 10)
    if mode == "not whole":
        place = log.sinks["r"].own_place
        assert place is not None
        log.sinks["r"].own_place = replace(place, whole=False)
        log.sinks["r"].open(True, False)
    reader = ResultReader(tmp_path, "r-1")
    with pytest.raises(PenstockError) as caught:
        reader.read(reader.first if mode == "cursor" else None, snapshot=True, up_to=5 if mode == "too late" else None)
    assert caught.value.code == "P0711"


@pytest.mark.parametrize("why", ["changes", "bytes"])
def test_a_content_that_is_too_large_is_given_up_with_a_warning(
    tmp_path: Path, why: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    query = relation("r", ITEMS, max_bytes="1 KB") if why == "bytes" else R
    monkeypatch.setattr(content, "MOST_CHANGES", 50 if why == "changes" else 1000)
    log = Log(tmp_path, query)
    contents = ResultContents(tmp_path)
    log.write(0, {"r": changes(query, *((1, "+", "a", i) for i in range(5)))}, 1)
    contents.catch_up()
    assert contents.latest("r-1").rows().num_rows == 5
    log.write(1, {"r": changes(query, *((2, "+", "a", i) for i in range(100)))}, 2)
    with caplog.at_level(logging.WARNING):
        contents.catch_up()
    assert "the content of r is not kept" in caplog.text
    for other in (contents, ResultContents(tmp_path)):
        with pytest.raises(PenstockError) as caught:
            other.latest("r-1")
        assert caught.value.code == "P0711"


def test_a_content_is_saved_in_time_and_goes_on_after_a_restart(tmp_path: Path) -> None:
    query = relation("r", ITEMS, max_bytes="20 KB")
    log = Log(tmp_path, query)
    contents = ResultContents(tmp_path)
    contents.follow()
    for batch in range(250):
        table = changes(query, (batch, "+", "a" * 200, batch), *([(batch, "-", "a" * 200, batch - 9)] * (batch > 8)))
        log.write(batch, {"r": table}, batch)
    contents.close()
    log.close()
    assert ResultReader(tmp_path, "r-1").first.batch > 100
    saved = read_saved(tmp_path, "r-1")
    assert saved is not None and saved.batch >= ResultReader(tmp_path, "r-1").first.batch
    again = ResultContents(tmp_path).latest("r-1")
    assert sorted(again.rows().column("x").to_pylist()) == list(range(241, 250)) and again.tick == 249


@pytest.mark.parametrize("damage", ["cut", "byte", "gone"])
def test_a_saved_content_that_is_damaged_is_folded_again(tmp_path: Path, damage: str) -> None:
    log = Log(tmp_path, R)
    log.write(0, {"r": changes(R, (1, "+", "a", 1), (9, "+", "b", 2))}, 1)
    contents = ResultContents(tmp_path)
    contents.latest("r-1")
    contents.save("r-1")
    path = tmp_path / "content" / "r-1.arrow"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data if damage == "byte" else data[:50])
    if damage == "gone":
        path.unlink()
    assert read_saved(tmp_path, "r-1") is None
    state = ResultContents(tmp_path).latest("r-1")
    assert rows_in([]) == [] and state.rows().to_pylist() == [{"k": "a", "x": 1}] and len(state.early_changes()) == 1


# -- against the oracle ------------------------------------------------------------------------------------------


def cut(answer: pa.Table, final: int, draw: random.Random) -> list[tuple[pa.Table, int]]:
    """An answer in batches: each with what its heartbeat makes final, and some rows before they are final."""
    ts = answer.column(0).cast(pa.int64()).to_numpy()
    ticks = sorted({int(t) + draw.choice((-1, 0, 1)) for t in ts} | {final})
    beats = [*sorted(draw.sample(ticks, draw.randint(1, len(ticks)))), END]
    batches, start = [], 0
    for beat in beats:
        due = int(np.searchsorted(ts, beat, side="right"))
        stop = max(start, due) if draw.random() < 0.6 else draw.randint(max(start, due), len(ts))
        batches.append((answer.slice(start, stop - start), beat))
        start = stop
    return batches


def events_in(rows: pa.Table) -> list[Event]:
    """The rows of a reader as events."""
    columns = [python_values(column) for column in rows.columns[2:]]
    values: list[Row] = list(zip(*columns, strict=True)) if columns else [()] * rows.num_rows
    ticks = rows.column(0).cast(pa.int64()).to_pylist()
    return list(zip(ticks, rows.column(1).to_pylist(), values, strict=True))


def folded(events: list[Event], tick: int) -> list[Event]:
    """All changes up to a tick, as changes of one instant."""
    return [(0, op, row) for ts, op, row in events if op != "p" and ts <= tick]


def check_subscriptions(query: Query, answer: pa.Table, expected: list[Event], final: int, draw: random.Random) -> None:
    sent = replace(query, name="q", sink=SinkSpec("RESULTS"))
    with tempfile.TemporaryDirectory() as folder:
        log = Log(Path(folder), sent)
        contents = ResultContents(Path(folder))
        reader = ResultReader(Path(folder), "q-1", contents)
        subscriptions = [(reader.read(reader.first, progress=True), Counter[int]())]
        read: list[list[pa.Table]] = [[]]
        for number, (rows, beat) in enumerate(cut(answer, final, draw)):
            log.write(number, {"q": rows}, beat)
            if draw.random() < 0.3:
                contents.catch_up()
                contents.save("q-1") if draw.random() < 0.5 else None
            if draw.random() < 0.3:
                contents = ResultContents(Path(folder))
                reader = ResultReader(Path(folder), "q-1", contents)
            if draw.random() < 0.5:
                subscriptions.append((reader.read(snapshot=True, progress=True, rows=draw.choice((2, 100))), Counter()))
                read.append([])
            for (subscription, _), tables in zip(subscriptions, read, strict=True):
                if draw.random() < 0.5:
                    tables += [delivery.rows for delivery in all_of(subscription)]
        for (subscription, _), tables in zip(subscriptions, read, strict=True):
            tables += [delivery.rows for delivery in all_of(subscription)]
            events = [event for table in tables for event in events_in(table)]
            for ts, op, _ in events:
                if op == "p":
                    difference = first_difference(folded(expected, ts), folded(events, ts))
                    assert difference is None, f"the content at {ts} is another"
        last = [ts for ts, _, _ in expected]
        for tick in sorted(set(draw.sample(last, min(3, len(last))))):
            found = [(0, "+", row) for row in _rows(contents.at("q-1", tick))]
            assert first_difference(folded(expected, tick), found) is None, f"R({tick}) is another"


def _rows(table: pa.Table) -> list[Row]:
    columns = [python_values(column) for column in table.columns]
    return list(zip(*columns, strict=True)) if columns else [()] * table.num_rows


def subscriptions_are_oracle(
    bound: BoundScript, inputs: Inputs, arrivals: Arrivals | None, run: CaseRun, drain: bool
) -> None:
    if arrivals is not None:
        return
    for query in bound.queries:
        if query.root.is_stream:
            continue
        try:
            expected = run_oracle(query, inputs)
        except PenstockError:
            continue
        answer = run_local([query], inputs).tables[query.name]
        draw = random.Random(f"{run}{query.name}")
        check_subscriptions(query, answer, expected.events, expected.final or 0, draw)


@pytest.mark.spread(2)
@pytest.mark.parametrize("flavour", FLAVOURS, ids=lambda f: f.name)
def test_folding_gives_the_relation_at_every_progress(
    flavour: Flavour, case_count: int | None, case_seed: int | None
) -> None:
    explore(subscriptions_are_oracle, flavour, case_count or 2, case_seed)
