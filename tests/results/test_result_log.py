"""INTO RESULTS: one file a batch for all queries, once over repetitions, crashes and power cuts, and within bounds."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from result_kit import ITEMS, Clock, Log, all_of, changes, relation, rows_in, stream

from penstock.algebra.nodes.query import Query, SinkSpec
from penstock.connectors.results import batch_file
from penstock.connectors.results.batch_file import BatchFile, BatchWriter, batch_name
from penstock.connectors.results.result_folder import ResultFolder
from penstock.connectors.sinks import open_sink
from penstock.errors import PenstockError
from penstock.results.reader import ResultReader
from penstock.storage import replaced_storage
from penstock.storage.local import LocalStorage
from penstock.testing.faults import KINDS, LOSSES, FailingCalls, PowerCut, PowerLost
from penstock.types import TIMESTAMP

S, R = stream("s", ITEMS), relation("r", ITEMS)


def everything(folder: Path, id_: str) -> list[tuple[object, ...]]:
    reader = ResultReader(folder, id_)
    return rows_in(all_of(reader.read(reader.first, until_now=True)))


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_file())


def test_all_queries_of_a_batch_are_in_one_file(tmp_path: Path) -> None:
    log = Log(tmp_path, S, R)
    log.write(0, {"s": changes(S, (1, "a", 1), (2, None, 2)), "r": changes(R, (1, "+", "b", None))}, 2)
    log.write(1, {"s": changes(S)}, 3)
    assert files(tmp_path) == [batch_name(0), batch_name(1)]
    assert everything(tmp_path, "s-1") == [(1, "+", "a", 1), (2, "+", None, 2)]
    assert everything(tmp_path, "r-1") == [(1, "+", "b", None)]


def test_a_batch_without_news_writes_nothing(tmp_path: Path) -> None:
    log = Log(tmp_path, S)
    log.write(0, {}, 2)
    log.write(1, {"s": changes(S)}, 2)
    assert files(tmp_path) == [batch_name(0)]


def test_a_repeated_batch_is_there_once_and_keeps_its_time(tmp_path: Path) -> None:
    log = Log(tmp_path, S)
    log.write(0, {"s": changes(S, (1, "a", 1))}, 1)
    before = ResultFolder.at(tmp_path).file(0)
    for _ in range(2):
        log = Log(tmp_path, S, resume=True)
        log.write(0, {"s": changes(S, (1, "a", 1))}, 1)
    after = ResultFolder.at(tmp_path).file(0)
    assert before is not None and after is not None and before.delivered == after.delivered
    assert everything(tmp_path, "s-1") == [(1, "+", "a", 1)]
    log.write(0, {}, 1)
    assert everything(tmp_path, "s-1") == []


def test_another_query_can_add_its_past_to_batches_that_are_there(tmp_path: Path) -> None:
    log = Log(tmp_path, S)
    log.write(0, {"s": changes(S, (1, "a", 1))}, 1)
    log.write(1, {"s": changes(S, (2, "b", 1))}, 2)
    other = Log(tmp_path, R, joins=True)
    other.write(0, {"r": changes(R, (1, "+", "x", 1))}, {})
    assert everything(tmp_path, "s-1") == [(1, "+", "a", 1), (2, "+", "b", 1)]
    assert everything(tmp_path, "r-1") == [(1, "+", "x", 1)]
    log.write(2, {"s": changes(S, (3, "c", 1))}, 3)
    assert everything(tmp_path, "s-1")[-1] == (3, "+", "c", 1)


def test_rows_that_were_not_committed_do_not_come_into_a_later_batch(tmp_path: Path) -> None:
    log = Log(tmp_path, S)
    log.sinks["s"].write(0, changes(S, (1, "a", 1)))
    log.write(1, {}, 1)
    assert everything(tmp_path, "s-1") == []
    log.sinks["s"].write(2, changes(S, (1, "a", 1)))
    Log(tmp_path, S, resume=True).write(2, {}, 2)
    assert everything(tmp_path, "s-1") == []


def test_no_run_keeps_the_results_of_a_sink_alone() -> None:
    with pytest.raises(PenstockError) as caught:
        open_sink(S).open(False, False)
    assert caught.value.code == "P0502"


@pytest.mark.parametrize(
    ("option", "value"), [("retain", "long"), ("retain", "-1 seconds"), ("max_bytes", "0"), ("max_bytes", "1 XB"),
                          ("max_bytes", "many"), ("keep", "1")]
)  # fmt: skip
def test_options_that_do_not_fit(option: str, value: str) -> None:
    with pytest.raises(PenstockError) as caught:
        open_sink(Query("q", S.root, SinkSpec("RESULTS", ((option, value),))))
    assert caught.value.code == "P0208"


# -- bounds ------------------------------------------------------------------------------------------------------


def test_rows_go_when_they_are_too_old(tmp_path: Path, clock: Clock) -> None:
    short, long = stream("short", ITEMS, retain="10 seconds"), stream("long", ITEMS, retain="100 seconds")
    log = Log(tmp_path, short, long)
    for batch in range(12):
        clock.now += 5
        rows = {"short": changes(short, (batch, "a" * 5000, 1)), "long": changes(long, (batch, "b", 1))}
        log.write(batch, rows, batch)
    assert [row[0] for row in everything(tmp_path, "short-1")] == [9, 10, 11]
    assert [row[0] for row in everything(tmp_path, "long-1")] == list(range(12))
    # What is gone takes no room, though files with rows of another query stay.
    assert (tmp_path / batch_name(0)).stat().st_size < 2000 < (tmp_path / batch_name(11)).stat().st_size
    clock.now += 1000
    log.write(12, {}, 12)
    assert files(tmp_path) == [batch_name(12), "removed.json"]


def test_each_query_has_a_bound_of_bytes(tmp_path: Path, clock: Clock) -> None:
    large, small = stream("large", ITEMS, max_bytes="20 KB"), stream("small", ITEMS)
    log = Log(tmp_path, large, small)
    for batch in range(20):
        log.write(
            batch, {"large": changes(large, (batch, "a" * 5000, 1)), "small": changes(small, (batch, "", 1))}, batch
        )
    assert [row[0] for row in everything(tmp_path, "large-1")] == [17, 18, 19]
    assert len(everything(tmp_path, "small-1")) == 20


def test_the_last_batch_stays_however_large(tmp_path: Path, clock: Clock) -> None:
    large = stream("large", ITEMS, max_bytes="1 KB")
    log = Log(tmp_path, large)
    for batch in range(3):
        log.write(batch, {"large": changes(large, (batch, "a" * 5000, 1))}, batch)
    assert [row[0] for row in everything(tmp_path, "large-1")] == [2]


def test_there_is_a_bound_over_all(tmp_path: Path, clock: Clock) -> None:
    queries = [stream(f"q{i}", ITEMS) for i in range(3)]
    log = Log(tmp_path, *queries, limit=100_000)
    for batch in range(40):
        log.write(batch, {q.name: changes(q, (batch, "a" * 2000, 1)) for q in queries}, batch)
        assert sum(path.stat().st_size for path in tmp_path.glob("batch-*")) <= 100_000
    kept = [[row[0] for row in everything(tmp_path, f"q{i}-1")] for i in range(3)]
    assert kept[0] == kept[1] == kept[2] and kept[0][-1] == 39 and 8 <= len(kept[0]) <= 15


def test_bounds_hold_over_a_restart(tmp_path: Path, clock: Clock) -> None:
    query = stream("q", ITEMS, retain="10 seconds")
    for batch in range(10):
        clock.now += 3
        Log(tmp_path, query, resume=batch > 0).write(batch, {"q": changes(query, (batch, "a", 1))}, batch)
    assert [row[0] for row in everything(tmp_path, "q-1")] == [6, 7, 8, 9]
    ended = Log(tmp_path, stream("other", ITEMS))
    clock.now += 100
    ended.write(10, {}, 10)
    assert everything(tmp_path, "q-1") == []


# -- files that are not what was written -------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["cut", "row", "index", "another batch", "empty"])
def test_a_damaged_file_is_noticed(tmp_path: Path, what: str) -> None:
    log = Log(tmp_path, S)
    log.write(0, {"s": changes(S, (1, "a", 1))}, 1)
    log.write(1, {"s": changes(S, (2, "a", 1))}, 2)
    log.close()
    path = tmp_path / batch_name(0)
    content = bytearray(path.read_bytes())
    if what == "row":
        content[200] ^= 1
    elif what == "index":
        content[-40] ^= 1
    elif what == "another batch":
        content = bytearray((tmp_path / batch_name(1)).read_bytes())
    path.write_bytes(content[: {"cut": 100, "empty": 0}.get(what, len(content))])
    ResultFolder.at(tmp_path).replaced(0)
    with pytest.raises(PenstockError) as caught:
        everything(tmp_path, "s-1")
    assert caught.value.code == "P0605" and batch_name(0) in caught.value.message


# -- faults ------------------------------------------------------------------------------------------------------

BATCHES = 6
EXPECTED = [(b, "+", "x" * 300, b) for b in range(BATCHES)]


def deliver(folder: Path, batches: range) -> None:
    """A start that delivers some batches of a query with rows and of one that loses its old ones."""
    lossy = stream("lossy", ITEMS, max_bytes="2 KB")
    log = Log(folder, S, lossy, resume=batches.start > 0)
    for batch in batches:
        rows = changes(S, (batch, "x" * 300, batch))
        log.write(batch, {"s": rows, "lossy": pa.table(rows.columns, schema=lossy.output_schema)}, batch)


def check(folder: Path, batch: int) -> None:
    """Batches before `batch` are there and whole; those that follow come once."""
    found = everything(folder, "s-1") if (folder / "queries" / "s-1.json").exists() else []
    assert found[:batch] == EXPECTED[:batch] and len(found) <= batch + 1
    deliver(folder, range(batch, BATCHES))
    assert everything(folder, "s-1") == EXPECTED
    lossy = everything(folder, "lossy-1")
    assert lossy and lossy == EXPECTED[-len(lossy) :] and len(lossy) < BATCHES
    assert [p.name for p in folder.rglob("*") if p.name.startswith(".")] == []


@pytest.mark.parametrize("batch", [0, 3, 5])
def test_every_call_that_fails(tmp_path: Path, batch: int) -> None:
    folder, whole = tmp_path / "results", tmp_path / "whole"
    with replaced_storage(LocalStorage(FailingCalls())):
        deliver(folder, range(batch)) if batch else folder.mkdir()
        shutil.copytree(folder, whole)
        calls = FailingCalls()
        with replaced_storage(LocalStorage(calls)):
            deliver(folder, range(batch, batch + 1))
        for kind in KINDS:
            for number in range(1, calls.counts[kind] + 1):
                shutil.rmtree(folder)
                shutil.copytree(whole, folder)
                failing = FailingCalls(kind, number)
                with replaced_storage(LocalStorage(failing)):
                    try:
                        deliver(folder, range(batch, batch + 1))
                    except PenstockError as error:
                        assert error.code == "P0502", (kind, number)
                assert failing.failed
                check(folder, batch)


@pytest.mark.parametrize("batch", [0, 3, 5])
def test_power_that_goes_at_every_call(tmp_path: Path, batch: int) -> None:
    folder, whole, spare = tmp_path / "results", tmp_path / "whole", tmp_path / "spare"
    with replaced_storage(LocalStorage(FailingCalls())):
        deliver(folder, range(batch)) if batch else folder.mkdir()
    shutil.copytree(folder, whole)
    spare.mkdir()
    calls = PowerCut(spare)
    with replaced_storage(LocalStorage(calls)):
        deliver(folder, range(batch, batch + 1))
    for number in range(1, calls.count + 2):
        for how in LOSSES:
            shutil.rmtree(folder)
            shutil.copytree(whole, folder)
            shutil.rmtree(spare)
            spare.mkdir()
            cut = PowerCut(spare, number)
            delivered = False
            with replaced_storage(LocalStorage(cut)):
                try:
                    deliver(folder, range(batch, batch + 1))
                    delivered = True
                except PowerLost:
                    pass
            cut.lose(how, random.Random(number), [folder])
            with replaced_storage(LocalStorage(FailingCalls())):
                check(folder, batch + delivered)


@pytest.mark.parametrize("calendar", [True, False])
def test_few_rows_leave_the_bytes_that_many_leave(
    calendar: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = pa.array([1, 2, 5], TIMESTAMP if calendar else pa.int64())
    table = pa.table({"ts": ticks, "k": ["a", None, "b"]})
    found = []
    for small in (batch_file._SMALL, 0):
        monkeypatch.setattr(batch_file, "_SMALL", small)
        writer = BatchWriter(tmp_path, 0)
        writer.add("a-1", [table], 0)
        writer.add("b-1", [table.slice(0, 0)], 3)
        writer.add("c-1", [table.slice(0, 1), table.slice(1)], 9)
        writer.finish(7, {"a-1": 5})
        found.append((tmp_path / batch_name(0)).read_bytes())
        file = BatchFile(tmp_path, 0)
        assert file.rows("a-1").equals(table) and file.sections["a-1"].high == 5
        assert file.rows("c-1").equals(table) and file.sections["c-1"].high == 9
        assert "b-1" not in file.sections
    assert found[0] == found[1]
