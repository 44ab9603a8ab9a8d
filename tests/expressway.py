"""A small generated expressway for the Linear Road script: cars that report, a jam, an accident, balance requests.

One expressway, two directions, segments of a mile. Every car reports its place each 30 seconds (`Type` 0). In direction
0 a crowd crawls through segment 3, dense enough for tolls, and others drive into it and out again; in direction 1 two
cars stop at one place for some minutes, which is an accident. Some cars leave by the exit lane, and some ask for their
balance (`Type` 2). The same seed makes the same traffic.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import pyarrow as pa

FOOT_PER_MILE = 5280
REPORT_EVERY = 30
CRAWL_SEGMENT, ACCIDENT_SEGMENT = 3, 5
SEGMENTS = 8
EXIT_LANE = 4
COMMON = (
    "Type", "Scd", "Vid", "Speed", "XWay", "Lane", "Dir", "Seg", "Pos", "Qid", "Sinit", "Send", "Dow", "Tod", "Dy",
)  # fmt: skip


@dataclass(frozen=True)
class Car:
    """starts: the second of its first report; pos: where it is then, in feet; speed: miles per hour; stops: when it
    stands still, (from, to); leaves: the second of its last report."""

    number: int
    direction: int
    starts: int
    pos: int
    speed: int
    leaves: int
    stops: tuple[int, int] = (0, 0)

    def place(self, second: int) -> int:
        """Where it is, in feet along its direction."""
        stood = max(0, min(second, self.stops[1]) - max(self.starts, self.stops[0])) if self.stops[1] else 0
        return self.pos + (second - self.starts - stood) * self.speed * FOOT_PER_MILE // 3600

    def report(self, second: int) -> dict[str, int]:
        stopped = self.stops[0] <= second < self.stops[1]
        pos = self.place(second)
        last = second + REPORT_EVERY > self.leaves
        return {
            "Vid": self.number,
            "Speed": 0 if stopped else self.speed,
            "Lane": EXIT_LANE if last else 1 + self.number % 3,
            "Dir": self.direction,
            "Seg": pos // FOOT_PER_MILE,
            "Pos": pos,
        }


def expressway(minutes: int = 6, crowd: int = 54, seed: int = 1) -> dict[str, pa.Table]:
    """The rows of the script's four sources, each with its second as `ts`."""
    draw = random.Random(seed)
    end = minutes * 60
    rows: list[tuple[int, dict[str, int]]] = []
    for car in _cars(draw, crowd, end):
        rows += [(second, car.report(second)) for second in range(car.starts, min(car.leaves, end) + 1, REPORT_EVERY)]
    rows += _requests(draw, crowd, end)
    rows.sort(key=lambda row: row[0])
    marks = [(60 * minute, minute) for minute in range(minutes + 1)]
    segments = [(ts, m, 0, d, s) for ts, m in marks for d in (0, 1) for s in range(SEGMENTS)]
    return {
        "CommonInputStr": _table(("ts", *COMMON), [(ts, *_cells(ts, row)) for ts, row in rows]),
        "MinStr": _table(("ts", "Mnt"), marks),
        "MinEndStr": _table(("ts", "Mnt"), [(ts, minute - 1) for ts, minute in marks[1:]]),
        "MinSegStr": _table(("ts", "Mnt", "XWay", "Dir", "Seg"), segments),
    }


def _cars(draw: random.Random, crowd: int, end: int) -> list[Car]:
    start = CRAWL_SEGMENT * FOOT_PER_MILE
    cars = [
        Car(n, 0, 10 * draw.randint(0, 2), start + draw.randint(0, 1500), draw.randint(4, 9), end + 60)
        for n in range(1, crowd + 1)
    ]
    # They come into the crowd's segment one after the other, and out again.
    for n in range(crowd + 1, crowd + 9):
        begins = 10 * draw.randint(3, end // 20)
        cars.append(Car(n, 0, begins, start - draw.randint(100, 900), draw.randint(35, 60), begins + 240))
    broken = ACCIDENT_SEGMENT * FOOT_PER_MILE + 1000
    for n in (crowd + 10, crowd + 11):
        cars.append(Car(n, 1, 0, broken, 50, end, (0, end - 120)))
    for n in range(crowd + 20, crowd + 26):
        begins = 10 * draw.randint(0, end // 15)
        cars.append(Car(n, 1, begins, draw.randint(0, 4) * FOOT_PER_MILE + 500, draw.randint(45, 65), begins + 150))
    return cars


def _requests(draw: random.Random, crowd: int, end: int) -> list[tuple[int, dict[str, int]]]:
    asked = [(10 * draw.randint(6, end // 10), draw.randint(crowd + 1, crowd + 8)) for _ in range(8)]
    return [(second, {"Type": 2, "Vid": car, "Qid": number}) for number, (second, car) in enumerate(asked, 1)]


def _cells(ts: int, row: dict[str, int]) -> tuple[int, ...]:
    return tuple({"Type": 0, "Scd": ts, "XWay": 0, **row}.get(name, -1) for name in COMMON)


def _table(names: tuple[str, ...], rows: list[tuple[int, ...]]) -> pa.Table:
    return pa.Table.from_arrays(
        [pa.array([row[i] for row in rows], pa.int32()) for i in range(len(names))], list(names)
    )
