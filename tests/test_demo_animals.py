"""The demo of the animal sensors answers rightly: its queries on the local runtime against what the paper's sentences
say, in plain Python over the same rows."""

from __future__ import annotations

import importlib
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from penstock.language.scripts import bind_script
from penstock.runtime.local.runtime import run_local

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
MINUTE = 60_000_000
Row = dict[str, Any]


class Demo:
    """The two streams as rows, with `ts` in microseconds, and the answers by query."""

    def __init__(self) -> None:
        self.generator = importlib.import_module("animals")
        found = self.generator.sensors(minutes=9)
        self.body, self.pulse = rows(found.body, "Timestamp"), rows(found.pulse, "Timestamp")
        bound = bind_script((EXAMPLES / "animals.cql").read_text(encoding="utf-8"))
        tables = run_local(bound.queries, {"BodyCondition": found.body, "Pulse": found.pulse}, seed=1).tables
        self.answers = {name: rows(table, "ts") for name, table in tables.items()}

    def rates(self) -> list[Row]:
        """Query 3: after every beat the beats of each animal in the last minute; of each animal every tenth answer."""
        told: Counter[int] = Counter()
        found = []
        for number, beat in enumerate(self.pulse, 1):
            counts = Counter(
                p["Id"] for p in self.pulse[max(0, number - 2000) : number] if p["ts"] > beat["ts"] - MINUTE
            )
            for animal in sorted(counts):
                told[animal] += 1
                if told[animal] % 10 == 0:
                    found.append({"ts": beat["ts"], "Id": animal, "count(*)": counts[animal]})
        return found


def rows(table: pa.Table, stamp: str) -> list[Row]:
    ticks = table.column(stamp).cast(pa.int64()).to_pylist()
    return [{**row, "ts": ts} for row, ts in zip(table.to_pylist(), ticks, strict=True)]


def in_one_order(found: list[Row]) -> list[list[tuple[str, str]]]:
    return sorted(sorted((name, str(value)) for name, value in row.items()) for row in found)


def same(found: list[Row], wanted: list[Row]) -> None:
    assert wanted, "shows nothing"
    assert in_one_order(found) == in_one_order(wanted)


def each_hundredth(found: list[Row]) -> Iterator[Row]:
    substreams: dict[int, list[Row]] = defaultdict(list)
    for row in found:
        substreams[row["Id"]].append(row)
    for substream in substreams.values():
        yield from substream[99::100]


def slot_end(ts: int) -> int:
    return -(-ts // MINUTE) * MINUTE


@pytest.fixture(scope="module")
def demo() -> Iterator[Demo]:
    sys.path.insert(0, str(EXAMPLES))
    yield Demo()
    sys.path.remove(str(EXAMPLES))


def test_the_sensors_tell_the_same_every_time(demo: Demo) -> None:
    again = demo.generator.sensors(minutes=9)
    assert rows(again.body, "Timestamp") == demo.body
    assert rows(again.pulse, "Timestamp") == demo.pulse
    for stream in (demo.body, demo.pulse):
        assert [row["ts"] for row in stream] == sorted(row["ts"] for row in stream)
    # A record of each animal at every full second; each beat more than none, a dog's more often than a horse's.
    assert len(demo.body) == 6 * 9 * 60
    beats = Counter(row["Id"] for row in demo.pulse)
    assert set(beats) == set(range(1, 7))
    assert beats[4] > beats[1]


def test_files_hold_the_same_rows(demo: Demo, tmp_path: Path) -> None:
    demo.generator.prepare(tmp_path / "data", minutes=17)
    found = demo.generator.sensors(17)
    for name, table in (("body", found.body), ("pulse", found.pulse)):
        files = sorted((tmp_path / "data" / name).iterdir())
        assert len(files) == 2
        assert pa.concat_tables(map(pyarrow.parquet.read_table, files)) == table


def test_query_1_every_100_tuples_all_horses_of_the_last_minute(demo: Demo) -> None:
    wanted = []
    for number in range(100, len(demo.body) + 1, 100):
        now = demo.body[number - 1]["ts"]
        wanted += [{**row, "ts": now} for row in demo.body[:number] if row["ts"] > now - MINUTE]
    same(demo.answers["q1a"], [row for row in wanted if row["Species"] == "horse"])


def test_query_1_every_100th_answer(demo: Demo) -> None:
    horses = [row for row in demo.body if row["Species"] == "horse"]
    same(demo.answers["q1b"], horses[99::100])


def test_query_1_every_100th_answer_about_each_animal(demo: Demo) -> None:
    same(demo.answers["q1c"], list(each_hundredth([row for row in demo.body if row["Species"] == "horse"])))


def test_query_2_the_latest_records_of_each_minute(demo: Demo) -> None:
    last = {(slot_end(row["ts"]), row["Id"]): row for row in each_hundredth(demo.body)}
    same(demo.answers["q2"], [{**row, "ts": slot} for (slot, _), row in last.items()])


def test_query_3_pulse_rates(demo: Demo) -> None:
    same(demo.answers["q3"], demo.rates())


def test_query_4_the_average_rate_told_every_minute(demo: Demo) -> None:
    rates, wanted = demo.rates(), []
    ends = {slot_end(row["ts"]): number for number, row in enumerate(rates, 1)}
    for slot, number in ends.items():
        if slot > demo.pulse[-1]["ts"]:
            continue  # not over when the input ends
        of_animal: dict[int, list[int]] = defaultdict(list)
        for row in rates[:number]:
            of_animal[row["Id"]].append(row["count(*)"])
        wanted += [
            {"ts": slot, "Id": animal, "avg(rate)": sum(found) / len(found)} for animal, found in of_animal.items()
        ]
    found = [{**row, "avg(rate)": round(row["avg(rate)"], 9)} for row in demo.answers["q4"]]
    same(found, [{**row, "avg(rate)": round(row["avg(rate)"], 9)} for row in wanted])
