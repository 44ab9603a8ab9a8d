"""What the soak judges by: its records, its recomputed answers, its accounts, and what it calls growth."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.soak import answers, records, script, watch
from benchmarks.soak.course import KINDS, schedule
from penstock.connectors.deadletters import DeadLetter, DeadLetters
from penstock.language.scripts import bind_script
from penstock.runtime.local.runtime import run_local

RATE, COUNT = 100, 5_000


@pytest.fixture(scope="module")
def some() -> records.Records:
    return records.first(7, RATE, COUNT)


@pytest.fixture(scope="module")
def right(some: records.Records) -> dict[str, pa.Table]:
    return answers.expected(some)


def test_records_are_of_all_kinds_and_show_their_numbers(some: records.Records) -> None:
    records.verify(some, RATE)
    shares = answers.shares(some)
    assert sum(shares.values()) == COUNT and min(shares.values()) > 20
    values = [value.decode() for (_, _, value), _ in zip(records.sent(7, RATE), range(COUNT), strict=False)]
    assert [records.number_of(value) for value in values] == list(range(COUNT))


def test_records_that_might_come_late_or_not_are_refused(some: records.Records) -> None:
    late = np.flatnonzero(some.kind == records.LATE)[-1]
    at = some.at.copy()
    at[late] += records.TOO_LATE - records.SLACK + records.JITTER
    with pytest.raises(AssertionError, match="may come in time"):
        records.verify(records.Records(**{**some.__dict__, "at": at}), RATE)


def test_the_recomputation_agrees_with_the_engine(
    some: records.Records, right: dict[str, pa.Table], tmp_path: Path
) -> None:
    text = script.text("127.0.0.1:1", "source", "sink", tmp_path, "0")
    good = np.flatnonzero(some.kind == records.GOOD)
    chosen = good[np.argsort(some.at[good], kind="stable")]
    last = int(some.at.max()) + records.BEHIND
    table = pa.table(
        {
            "n": np.append(some.number[chosen], -1), "k": [f"k{key}" for key in some.key[chosen]] + ["end"],
            "u": pa.array(np.append(some.user[chosen], -1), pa.int32()), "x": np.append(some.x[chosen], 0),
            "at": np.append(some.at[chosen], last),
        }
    )  # fmt: skip
    told = run_local(bind_script(text).queries, {"s": table}).tables
    # The one record behind all others ends every window; here it has come, there it still waits for ORDER WITHIN.
    before = {
        name: answer.filter(pa.compute.less(answer["ts"], last - records.JITTER)) for name, answer in told.items()
    }
    assert list(answers.differences(right, before)) == []
    fewer = {name: answer.slice(1) for name, answer in before.items()}
    assert len(list(answers.differences(right, fewer))) == len(right)


def letters(some: records.Records, folder: Path) -> list[DeadLetter]:
    late = some.number[some.kind == records.LATE].tolist()
    bad = some.number[some.kind == records.MALFORMED].tolist()
    found = [DeadLetter("t/0", n, str({"n": n, "at": 1}), "late by 5 ticks") for n in late]
    return found + [DeadLetter("t/0", n, records.spoilt({"n": n, "x": 1, "at": 2}).decode(), "bad") for n in bad]


@pytest.mark.parametrize(
    "change, told",
    [("nothing", 0), ("lost letter", 1), ("lost row", 1), ("row twice", 1), ("letter and row", 1), ("stranger", 1)],
)
def test_accounts(some: records.Records, tmp_path: Path, change: str, told: int) -> None:
    numbers = some.number[some.kind == records.GOOD].tolist()
    kept = letters(some, tmp_path)
    if change == "lost letter":
        kept = kept[1:]
    elif change == "lost row":
        numbers = numbers[1:]
    elif change == "row twice":
        numbers = [*numbers, numbers[0]]
    elif change == "letter and row":
        kept.append(DeadLetter("t/0", 1, str({"n": numbers[0]}), "late by 5 ticks"))
    elif change == "stranger":
        kept.append(DeadLetter("t/0", 1, "nobody knows", "bad"))
    DeadLetters(str(tmp_path)).write("s", 1, 0, kept)
    found = list(answers.accounted(some, pa.table({"n": pa.array(numbers, pa.int64())}), tmp_path))
    assert len(found) == told, found


def samples(grown: str = "", life: int = 600) -> list[watch.Sample]:
    def memory(at: int, part: str) -> int:
        warming = min(at, 100) * 2**20
        return 300 * 2**20 + warming + (at * 2**20 // 2 if grown == part else 0)

    return [
        watch.Sample(
            float(at),
            at // life,
            {p: memory(at % life, p) for p in watch.PARTS},
            (10 + (at // 10 if grown == "state" else 0)) * 2**20,
            5,
            9,
        )
        for at in range(0, 600, 2)
    ]


def test_growth_is_told_and_warming_is_not() -> None:
    assert watch.growth(samples()) == []
    for what in (*watch.PARTS, "state"):
        (told,) = watch.growth(samples(what))
        assert what in told
    # No life of a driver is long enough to judge its memory by.
    assert watch.growth(samples("jvm", life=200)) == []


def test_the_schedule_has_all_kinds_and_lets_the_last_driver_live() -> None:
    kills = schedule(1800, 75, 3)
    assert {kill.kind for kill in kills} == set(KINDS) and len(kills) > 12
    assert max(kill.at for kill in kills if kill.kind == "driver") < 1000 < max(kill.at for kill in kills) < 1800
    assert kills == schedule(1800, 75, 3) != schedule(1800, 75, 4)
