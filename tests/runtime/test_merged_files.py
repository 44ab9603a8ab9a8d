"""Few files of a retained stream in place of many: the same elements in the same order, whatever is merged when."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from compaction_kit import compacting, pinned, selected
from inline_engine import InlineServer, without_spark

from penstock.physical.elements import Elements
from penstock.runtime.spark.checkpoint.epochs import source_file
from penstock.runtime.spark.checkpoint.folder import Folder
from penstock.runtime.spark.retention import merging
from penstock.runtime.spark.retention.merging import files_to_merge, merged_file, put_in_place
from penstock.runtime.spark.retention.retained_log import RetainedFile, RetainedLog
from penstock.runtime.spark.retention.retained_writer import RetainedWriter
from penstock.storage import replaced_storage, storage
from penstock.storage.local import LocalStorage
from penstock.testing.faults import LOSSES, PowerCut, PowerLost
from penstock.types import END

__all__ = ["without_spark"]

FOREVER = 2**40


class Log:
    """A log and what has been written to it: by round and task, the ticks; and the bytes."""

    def __init__(self, root: Path) -> None:
        self.log = RetainedLog(Folder(root), "S")
        self.log.begin(None)
        self.written: dict[tuple[int, int], list[int]] = {}
        self.bytes = 0

    def round(self, number: int, tasks: Sequence[Sequence[int]]) -> None:
        for task, ticks in enumerate(tasks):
            with RetainedWriter(self.log.place, (0,), None, durable=True) as writer:
                ts = np.array(ticks, np.int64)
                writer.add(Elements((pa.array(ts * 10),), ts, np.full(len(ts), END, np.int64)))
                writer.finish(number, task)
            self.written[number, task] = [*ticks]
        self.bytes += sum(self.log.size(file) for file in self.log.files(number, number))

    def merge(self, last: int, span: int = FOREVER) -> int:
        """Merge what is due; return how many bytes were written."""
        written = 0
        while files := files_to_merge(self.log, last, span):
            with merged_file(self.log, files) as merged:
                put_in_place(self.log, merged)
            written += self.log.size(merged.file)
        return written

    def forgotten(self) -> None:
        """Note which files are left."""
        left = self.log.files()
        single = {(file.round, file.task) for file in left}
        merged = [file.rounds for file in left if file.last is not None]
        self.written = {
            key: ticks
            for key, ticks in self.written.items()
            if key in single or any(a <= key[0] <= b for a, b in merged)
        }

    def read(self, files: Sequence[RetainedFile]) -> list[int]:
        found = [one for file in files for one in self.log.read(file, (0,))]
        assert all(one.columns[0].to_pylist() == (one.ts * 10).tolist() for one in found)
        return [tick for one in found for tick in one.ts.tolist()]

    def check(self, draw: random.Random) -> None:
        rounds = sorted({number for number, _ in self.written})
        first, last = sorted(draw.choices([0, *rounds, rounds[-1] + 5], k=2))
        written = sorted(self.written.items())
        expected = [tick for (number, _), ticks in written if first <= number <= last for tick in ticks]
        files = self.log.files(first, last)
        assert self.read(files) == expected
        # In parts too, each of rounds up to one of some.
        ends = sorted(draw.sample(rounds, min(len(rounds), 3)))
        parts = [part for file in files for part in file.parted(ends)]
        assert self.read(parts) == expected
        assert all(not part.rounds[0] <= end < part.rounds[1] for part in parts for end in ends)
        assert all(file.low <= min(self.read([file])) and max(self.read([file])) <= file.high for file in files)


@pytest.mark.parametrize("seed", range(12))
def test_the_same_elements_whatever_is_merged(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draw, log, tick = random.Random(seed), Log(tmp_path), 0
    for name, values in (("FEW", (1, 2, 5)), ("_LARGE", (1500, 4000, 2**20)), ("_SMALL", (0, 2000, 2**18))):
        monkeypatch.setattr(merging, name, draw.choice(values))
    span = draw.choice((0, 3, 40, FOREVER))
    for number in range(1, 40):
        tasks = [
            [tick + draw.randint(0, 2) for _ in range(draw.choice((1, 2, 200)))] for _ in range(draw.randint(0, 3))
        ]
        tick += draw.choice((0, 1, 3))
        log.round(number, tasks)
        if draw.random() < 0.4:
            log.merge(draw.randint(max(0, number - 3), number), span)
        if draw.random() < 0.2:
            until = draw.randint(0, tick)
            log.log.forget(until)
            log.forgotten()
            assert all(file.high > until for file in log.log.files())
        if log.written:
            log.check(draw)
    several = [file for file in log.log.files() if file.rounds[0] != file.rounds[1]]
    assert all(file.high - file.low <= span for file in several)
    assert not log.log.replaced()


def test_files_are_few_and_elements_are_seldom_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files do not grow with the rounds, and what is written again is in proportion to what has been."""
    monkeypatch.setattr(merging, "FEW", 16)
    monkeypatch.setattr(merging, "_SMALL", 0)
    monkeypatch.setattr(merging, "_LARGE", 2**16)
    found = []
    for rounds in (64, 256, 1024):
        log, written = Log(tmp_path / str(rounds)), 0
        for number in range(1, rounds + 1):
            log.round(number, [[number], [number]])
            if number % 4 == 0:
                written += log.merge(number)
        files = log.log.files()
        held = sum(map(log.log.size, files))
        found.append((len(files), round(written / log.bytes, 2)))
        assert len(files) < 16 + 4 + held // 2**15
    assert all(ratio < 3 for _, ratio in found), found


def test_a_round_of_which_a_file_is_large_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "FEW", 2)
    monkeypatch.setattr(merging, "_LARGE", 3000)
    log = Log(tmp_path)
    for number in range(1, 12):
        log.round(number, [[number], [number] * (500 if number == 6 else 1)])
    log.merge(11)
    assert [file.rounds for file in log.log.files()] == [(1, 5), (6, 6), (6, 6), (7, 11)]
    log.check(random.Random(1))


@pytest.mark.parametrize("loss", LOSSES)
def test_power_goes_at_any_call(tmp_path: Path, loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "FEW", 2)
    number, met = 0, 0
    while True:
        number += 1
        root = tmp_path / str(number)
        log, spare = Log(root), tmp_path / f"spare-{number}"
        spare.mkdir()
        for round_ in range(1, 8):
            log.round(round_, [[round_], [round_]])
            if round_ == 4:
                log.merge(4)
        calls = PowerCut(spare, number)
        with replaced_storage(LocalStorage(calls)), suppress(PowerLost):
            log.merge(7)
        if calls.count < number:
            break
        calls.lose(loss, random.Random(number), [root])
        log.check(random.Random(number))
        met += bool(log.log.replaced())
        for left in log.log.replaced():
            storage().remove(log.log.place / left.name)
        log.merge(7)
        assert [file.rounds for file in log.log.files()] == [(1, 7)]
        log.check(random.Random(number))
    assert number > 8 and met


# -- at a server ---------------------------------------------------------------------------------------------------

DECLARED = "CREATE STREAM S (ts INT, v INT) FROM {} () TIMESTAMP BY ts UNIT SECOND{};"
SUM = "SELECT SUM(v) AS s FROM S [RANGE 1000 SECONDS]"


@pytest.fixture
def server(tmp_path: Path, without_spark: None, monkeypatch: pytest.MonkeyPatch) -> InlineServer:
    monkeypatch.setattr(merging, "FEW", 4)
    made = InlineServer(tmp_path)
    made.post(DECLARED.format("HTTP", " RETAIN 1000 SECONDS") + f"CREATE QUERY other AS {SUM};")
    return made


def log_of(server: InlineServer) -> RetainedLog:
    return RetainedLog(server.run.inline.folder, source_file("S", server.run.job.intake.births), timestamp=0)


def files(server: InlineServer) -> list[RetainedFile]:
    return log_of(server).files()


def test_queries_and_selects_read_what_has_been_merged(server: InlineServer) -> None:
    compaction = compacting(server)
    for tick in range(1, 40):
        server.insert("S", [(tick, tick)])
        compaction.compact()
        if tick == 20:
            server.restart()
            compaction = compacting(server)
    assert len(files(server)) < 8 and any(file.last is not None for file in files(server))
    total = sum(range(1, 39))
    found = selected(server, SUM, DECLARED.format("MEMORY", ""))
    assert found.answer.table.to_pylist() == [{"s": total}]
    server.post(f"CREATE QUERY warm START WARM AS {SUM}; CREATE QUERY whole START BEGINNING AS {SUM};")
    server.insert("S", [(40, 0)])
    server.insert("S", [(41, 0)])
    # In between the window has 1,000 seconds, so each sum is that of all rows.
    assert [row[-1] for row in server.emitted("whole") if row[1] == "+"] == np.cumsum(range(1, 40)).tolist()
    assert [row[-1] for row in server.emitted("warm") if row[1] == "+"] == [total, total + 39]
    server.close()


def test_a_stream_goes_on_behind_what_it_has_answered(server: InlineServer) -> None:
    """Of the instant 6 it has emitted one row. That round lies amid a merged file when it reads its past."""
    server.post("CREATE QUERY p AS SELECT ISTREAM(v) FROM S [NOW];")
    for tick in range(1, 7):
        server.insert("S", [(tick, 10 * tick)])
    assert server.emitted("p")[-1] == (6, 60)
    server.post("ALTER QUERY p PAUSE;")
    server.insert("S", [(6, 61)])
    server.insert("S", [(6, 62)])
    compacting(server).compact()
    assert len(files(server)) == 1
    server.post("ALTER QUERY p RESUME;")
    server.insert("S", [(6, 63), (7, 70), (8, 80)])
    assert sorted(server.emitted("p")[6:]) == [(6, 61), (6, 62), (6, 63), (7, 70), (8, 80)]
    server.close()


def test_nothing_is_merged_while_somebody_reads(server: InlineServer) -> None:
    for tick in range(1, 9):
        server.insert("S", [(tick, tick)])
    before = files(server)
    with pinned(server, SUM, DECLARED.format("MEMORY", "")) as answered:
        compacting(server).compact()
        assert files(server) == before
        assert answered().answer.table.to_pylist() == [{"s": sum(range(1, 8))}]
    compacting(server).compact()
    assert len(files(server)) == 1
    server.close()


def test_what_is_removed_meanwhile_is_no_damage(
    server: InlineServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for tick in range(1, 13):
        server.insert("S", [(tick, tick)])
    log, read = log_of(server), RetainedLog.batches

    def reading(self: RetainedLog, file: RetainedFile) -> Iterator[pa.RecordBatch]:
        log.forget(3)
        return read(self, file)

    monkeypatch.setattr(RetainedLog, "batches", reading)
    compacting(server).compact()
    (left,) = log.files()
    assert [one.ts.tolist() for one in log.read(left, (1,))] == [[*range(4, 13)]] and log.after == 3
    assert not [record for record in caplog.records if "stay as they are" in record.getMessage()]
    server.close()


def test_what_cannot_be_merged_stays(server: InlineServer, caplog: pytest.LogCaptureFixture) -> None:
    for tick in range(1, 9):
        server.insert("S", [(tick, tick)])
    log = log_of(server)
    path = log.place / log.files()[3].name
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    compaction = compacting(server)
    for _ in range(3):
        compaction.compact()
    said = [record.getMessage() for record in caplog.records if "stay as they are" in record.getMessage()]
    assert len(said) == 1 and "files kept of S" in said[0] and len(log.files()) == 8
    path.write_bytes(content)
    server.insert("S", [(9, 9)])
    server.insert("S", [(10, 10)])
    compaction.compact()
    assert len(log.files()) == 1
    server.close()
