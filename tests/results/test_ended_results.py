"""What remains of the results of queries that have ended: nothing, once their rows are gone."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from result_kit import ITEMS, LIMIT, Clock, Log, changes, relation, stream

from penstock.connectors.contract import ResultPlace
from penstock.connectors.results.result_folder import ResultFolder
from penstock.connectors.results.result_log import ResultLog
from penstock.connectors.sinks import open_sink
from penstock.errors import PenstockError
from penstock.results.content import ResultContents
from penstock.results.reader import ResultReader
from penstock.storage import replaced_storage
from penstock.storage.local import LocalStorage
from penstock.testing.faults import LOSSES, PowerCut, PowerLost

STANDING, R = stream("s", ITEMS, retain="4 seconds"), relation("r", ITEMS, retain="4 seconds")


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def cycle(log: Log, folder: Path, number: int) -> None:
    """A relation is registered, answers in a batch, and is dropped."""
    sink = open_sink(R)
    sink.own_place = ResultPlace(folder, f"r-{number}", LIMIT)
    sink.open(False, False)
    log.sinks["r"] = sink  # type: ignore[assignment]
    ResultLog.keep(folder, ["s-1", f"r-{number}"])
    rows = {"s": changes(STANDING, (number, "a", 1)), "r": changes(R, (number, "+", "b", number))}
    log.write(number, rows, number)
    del log.sinks["r"]
    sink.close()
    ResultLog.keep(folder, ["s-1"])


def test_many_registrations_and_drops_leave_a_bounded_number_of_files(tmp_path: Path, clock: Clock) -> None:
    log = Log(tmp_path, STANDING)
    contents = ResultContents(tmp_path)
    contents.guard()
    counts = []
    for number in range(45):
        cycle(log, tmp_path, number)
        clock.now += 1
        if number in (15, 44):
            counts.append(len(files(tmp_path)))
            assert len(ResultFolder.at(tmp_path)._records) <= counts[0]
            assert len(contents._states) <= counts[0]
    assert counts[1] <= counts[0] < 30
    writer = log.sinks["s"].log
    assert isinstance(writer, ResultLog)
    assert max(map(len, (writer._held, writer._high, writer._beats, writer._known))) <= counts[0]
    with pytest.raises(PenstockError, match="P0201"):
        ResultReader(tmp_path, "r-0")
    # The rows of one that has just ended are still there.
    assert ResultReader(tmp_path, "r-44").first.batch == 0
    contents.close()


def test_the_result_of_a_paused_query_stays(tmp_path: Path, clock: Clock) -> None:
    log = Log(tmp_path, STANDING, R)
    log.write(0, {"r": changes(R, (1, "+", "a", 1))}, 1)
    log.sinks.pop("r").close()
    ResultLog.keep(tmp_path, ["s-1", "r-1"])
    for number in range(1, 12):
        clock.now += 1
        log.write(number, {"s": changes(STANDING, (number, "a", 1))}, number)
    assert ResultReader(tmp_path, "r-1").record.id == "r-1"
    ResultLog.keep(tmp_path, ["s-1"])
    log.write(12, {"s": changes(STANDING, (12, "a", 1))}, 12)
    assert [name for name in files(tmp_path) if "r-1" in name] == []


def test_a_content_outlasts_its_rows(tmp_path: Path, clock: Clock) -> None:
    contents = ResultContents(tmp_path)
    contents.guard()
    log = Log(tmp_path, STANDING, R)
    log.write(0, {"r": changes(R, (1, "+", "a", 1))}, 1)
    for number in range(1, 12):
        clock.now += 1
        log.write(number, {"s": changes(STANDING, (number, "a", 1))}, number)
    assert ResultReader(tmp_path, "r-1").first.row == 1, "its rows are gone"
    assert ResultReader(tmp_path, "r-1", contents).content().rows().to_pylist() == [{"k": "a", "x": 1}]
    contents.close()
    log.close()
    # After a restart too, and without a guard it would not be known.
    assert ResultReader(tmp_path, "r-1").content().rows().num_rows == 1


def test_power_that_goes_while_an_ended_result_is_removed(tmp_path: Path, clock: Clock) -> None:
    number, cuts = 1, 0
    while True:
        folder, spare = tmp_path / str(number) / "results", tmp_path / str(number) / "spare"
        for place in (folder, spare):
            place.mkdir(parents=True)
        log = Log(folder, STANDING)
        contents = ResultContents(folder)
        contents.guard()
        cycle(log, folder, 0)
        contents.latest("r-0")
        contents.save("r-0")
        clock.now += 100
        log.write(1, {"s": changes(STANDING, (1, "a", 1))}, 1)
        calls = PowerCut(spare, number)
        cut = False
        with replaced_storage(LocalStorage(calls)):
            try:
                log.write(2, {"s": changes(STANDING, (2, "a", 1))}, 2)
                clock.now += 100
                log.write(3, {"s": changes(STANDING, (3, "a", 1))}, 3)
            except PowerLost:
                cut = True
        contents.close()
        if cut:
            cuts += 1
            calls.lose(LOSSES[number % len(LOSSES)], random.Random(number), [folder])
        log = Log(folder, STANDING, resume=True)
        ResultLog.keep(folder, ["s-1"])
        for batch in (2, 3, 4, 5):
            clock.now += 20
            log.write(batch, {"s": changes(STANDING, (batch, "a", 1))}, batch)
        assert [name for name in files(folder) if "r-0" in name] == [], f"power went at call {number}"
        assert "r-0" not in ResultFolder.at(folder).all_removed()
        log.close()
        if not cut:
            assert cuts > 3
            return
        number += 3
