"""How fast input is taken: the controller of batch sizes, the trigger, bounded backlogs; all by a clock of our own."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.algebra.nodes.scans import Scan, Source
from penstock.connectors.sources import open_source
from penstock.errors import PenstockError
from penstock.language.scripts import bind_script
from penstock.runtime.spark.checkpoint.folder import Folder, Intake
from penstock.runtime.spark.checkpoint.rate_control import FIRST, LEAST, RateControl
from penstock.runtime.spark.input import input_planner as feed
from penstock.runtime.spark.input.look_schedule import Looks
from penstock.runtime.spark.input.round_log import RoundLog
from penstock.runtime.spark.input.task_files import load_read_tasks
from penstock.settings import Settings
from penstock.tree import walk

MB = 2**20


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def steered(pace: RateControl, floor: float, rate: float, batches: int = 40, noise: float = 0.0) -> list[float]:
    """Seconds of batches on a machine that takes `floor` and a second for every `rate` bytes; input is without end."""
    draw, limit, found = random.Random(5), pace.first, []
    for _ in range(batches):
        found.append((floor + limit / rate) * (1 + draw.uniform(-noise, noise)))
        limit = pace.next_limit(limit, limit, found[-1])
    return found


@pytest.mark.parametrize(("floor", "rate"), [(0.2, 50 * MB), (0.2, 2 * MB), (0.4, 500 * MB), (0.0, 10 * MB)])
def test_batches_come_to_take_the_target(floor: float, rate: float) -> None:
    found = steered(RateControl(target=1.0, max_bytes=2**40), floor, rate)
    assert found[-1] == pytest.approx(1.0, rel=0.01)
    # Approached without swinging past it.
    late = found[15:]
    assert max(late) < 1.1
    noisy = steered(RateControl(target=1.0, max_bytes=2**40), floor, rate, noise=0.2)[10:]
    assert 0.5 < min(noisy) <= max(noisy) < 1.6


def test_a_target_that_cannot_be_had_reads_as_little_as_makes_sense() -> None:
    pace, limit = RateControl(target=0.1), FIRST
    for _ in range(30):
        limit = pace.next_limit(limit, limit, 0.5)
    assert limit == LEAST


def test_limits_of_the_controller() -> None:
    pace = RateControl(target=1.0, max_bytes=8 * MB)
    assert pace.next_limit(6 * MB, 6 * MB, 0.01) == 8 * MB
    assert pace.next_limit(4 * MB, 4 * MB, None) == 4 * MB
    assert pace.next_limit(4 * MB, 1 * MB, 0.1) == 4 * MB, "a small batch says nothing of a large one"
    assert pace.next_limit(4 * MB, 1 * MB, 2.0) == 2 * MB
    assert RateControl(max_bytes=5).next_limit(7, 7, 100.0) == 5
    assert RateControl(target=1.0, max_bytes=5).first == 5
    assert RateControl(max_bytes=5).first == 5


def test_batches_come_to_tell_what_they_may() -> None:
    pace = RateControl(max_bytes=64 * MB, max_answer_bytes=100 * MB)
    limit, told = pace.first, []
    for _ in range(6):
        told.append(limit * 50)
        limit = pace.next_limit(limit, limit, None, told[-1])
    # Nobody knows it before the first; from the second on it fits.
    assert limit == 2 * MB and max(told[1:]) <= 100 * MB
    # A stretch of input that tells little is read faster, up to the limit of what is read.
    for _ in range(6):
        limit = pace.next_limit(limit, limit, None, limit)
    assert limit == 64 * MB
    assert pace.next_limit(MB, MB // 4, None, 1) == MB, "a batch that read little says nothing of a large one"
    assert pace.next_limit(MB, MB, None, 10**15) == LEAST
    assert pace.next_limit(3 * MB, 3 * MB, None, None) == 64 * MB
    both = RateControl(target=1.0, max_bytes=64 * MB, max_answer_bytes=100 * MB)
    assert both.next_limit(MB, MB, 0.1, 200 * MB) == MB // 2, "what is told bounds what time would allow"
    assert both.next_limit(MB, MB, 2.0, 1) == MB // 2


def test_many_queries_read_less_at_first() -> None:
    assert RateControl(max_bytes=256 * MB, queries=8).first == 32 * MB
    assert RateControl(max_bytes=256 * MB, queries=1000).first == 16 * MB
    assert RateControl(max_bytes=MB, queries=1000).first == MB
    assert RateControl(max_bytes=256 * MB, queries=1000, target=1.0).first == FIRST


def test_settings() -> None:
    settings = Settings().with_value("trigger", "2 seconds").with_value("target_latency", "500 ms")
    pace = RateControl.of(settings.with_value("max_batch_rows", "7").with_value("max_batch_bytes", "1MB"))
    assert pace == RateControl(2.0, 0.5, MB, 7)
    assert RateControl.of(settings.with_value("max_batch_answers", "1GB"), 3) == RateControl(
        2.0, 0.5, 256 * MB, 0, 2**30, queries=3
    )
    assert RateControl.of(settings.with_value("trigger", "0").with_value("target_latency", "1 min")).trigger == 0
    for name, value in (
        ("trigger", "soon"),
        ("target_latency", "5"),
        ("trigger", "1 month"),
        ("metrics_port", "70000"),
        ("state_limit", "-1"),
        ("state_limit_action", "maybe"),
    ):
        with pytest.raises(PenstockError) as caught:
            Settings().with_value(name, value)
        assert caught.value.code == "P0104"
    assert Settings().with_value("state_limit", "1 GB")["state_limit"] == 2**30


def source_of(data: Path, watch: bool = False) -> Source:
    option = ", watch 'true'" if watch else ""
    script = f"""CREATE STREAM S (ts BIGINT) FROM FILES (path '{data}', format 'parquet'{option}) TIMESTAMP BY ts;
    CREATE QUERY q AS SELECT ts FROM S;"""
    (query,) = bind_script(script).queries
    return next(node.source for node in walk(query.root) if isinstance(node, Scan))


def write(data: Path, number: int, rows: int = 10) -> None:
    data.mkdir(exist_ok=True)
    pq.write_table(pa.table({"ts": pa.array(range(number, number + rows), pa.int64())}), data / f"{number:03d}.parquet")


def opened(tmp_path: Path, pace: RateControl, clock: Clock, watch: bool = False) -> RoundLog:
    folder = Folder(tmp_path / "job")
    folder.root.mkdir(exist_ok=True)
    intake = Intake((source_of(tmp_path / "data", watch),), frozenset(), 2, pace=pace)
    return RoundLog(folder, intake, clock)


def files(rounds: RoundLog, number: int) -> list[str]:
    found = sorted((rounds.place / f"{number:09d}").glob("*.json"))
    folder = Folder(rounds.place.parent)
    tasks = [task for file in found for task in load_read_tasks(folder, file)]
    return [Path(split.path).stem for task in tasks for split in task.splits]


def test_rounds_start_no_sooner_than_the_trigger_has_it(tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path / "data", number)
    clock = Clock()
    rounds = opened(tmp_path, RateControl(trigger=2.0, max_bytes=1), clock)
    clock.now = 1.9
    rounds.delivered(1, 1.9)
    assert not files(rounds, 2)
    clock.now = 2.0
    rounds.delivered(1)
    assert files(rounds, 2) == ["001"]
    # A round that took longer is followed at once.
    clock.now = 7.0
    rounds.delivered(2, 5.0)
    assert files(rounds, 3) == ["002"]
    assert rounds.began(3) == 7.0
    rounds.stop()


def test_rows_of_a_round(tmp_path: Path) -> None:
    for number in range(5):
        write(tmp_path / "data", number)
    rounds = opened(tmp_path, RateControl(max_rows=25), Clock())
    rounds.delivered(1)
    rounds.delivered(2)
    assert [files(rounds, n) for n in (1, 2, 3)] == [["000", "001"], ["002", "003"], ["004"]]
    rounds.stop()


def test_sizes_follow_the_target_and_a_restart_reads_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(12):
        write(tmp_path / "data", number)
    connector = open_source(source_of(tmp_path / "data"))
    sizes = [split.bytes for path in connector.discover(frozenset()) for split in connector.splits(path)]
    monkeypatch.setattr("penstock.runtime.spark.checkpoint.rate_control.FIRST", int(1.1 * max(sizes)))
    monkeypatch.setattr("penstock.runtime.spark.checkpoint.rate_control.LEAST", 1)
    pace = RateControl(target=1.0)
    rounds = opened(tmp_path, pace, Clock())
    rounds.delivered(1, 0.4)
    rounds.delivered(2, 0.4)
    assert [len(files(rounds, n)) for n in (1, 2, 3)] == [1, 2, 4]
    assert rounds.limit == int(1.1 * max(sizes)) * 4
    assert rounds.backlog() == {"S": (5, sum(sizes[7:]))}
    rounds.stop()
    # Killed before the round appeared: whatever the next process measures, it is the same round.
    (rounds.place / "000000003").rename(tmp_path / "gone")
    again = opened(tmp_path, pace, Clock())
    assert files(again, 3) == ["003", "004", "005", "006"]
    assert again.limit == rounds.limit
    again.delivered(3, 8.0)
    assert len(files(again, 4)) == 2
    again.stop()


def test_what_a_round_told_bounds_the_next_one_also_after_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(12):
        write(tmp_path / "data", number)
    (split,) = open_source(source_of(tmp_path / "data")).splits(str(tmp_path / "data" / "000.parquet"))
    monkeypatch.setattr("penstock.runtime.spark.checkpoint.rate_control.LEAST", 1)
    pace = RateControl(max_bytes=4 * split.bytes + 8, max_answer_bytes=1000)
    for place, crashed in (("calm", False), ("rough", True)):
        (tmp_path / place).mkdir()
        (tmp_path / place / "data").symlink_to(tmp_path / "data")
        rounds = opened(tmp_path / place, pace, Clock())
        if crashed:
            # The process dies when the answers are delivered and the next round is not planned.
            rounds.stop()
            mark = {"round": 1, "batch": 0, "answers": 2000}
            Folder(tmp_path / place / "job").write_mark("delivered", mark)
            rounds = opened(tmp_path / place, pace, Clock())
        else:
            rounds.delivered(1, 0.1, 0, 2000)
        assert [len(files(rounds, n)) for n in (1, 2)] == [4, 2]
        rounds.delivered(2, 0.1, 1, 10)
        assert len(files(rounds, 3)) == 4
        rounds.stop()


def test_a_source_is_opened_no_faster_than_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(10):
        write(tmp_path / "data", number)
    monkeypatch.setattr(feed, "MOST_WAITING", 3)
    monkeypatch.setattr(Looks, "wait", 0.0)
    rounds = opened(tmp_path, RateControl(max_bytes=1), Clock(), watch=True)
    read = []
    for number in range(1, 11):
        assert rounds.backlog()["S"][0] <= 3
        read += files(rounds, number)
        rounds.delivered(number)
    assert read == [f"{number:03d}" for number in range(10)]
    rounds.stop()
