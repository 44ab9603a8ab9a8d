"""Histories at the engine on Spark, whose rounds run without Spark: whether queries are registered, replaced, paused,
renamed, exchanged or dropped, and over restarts, each answers as it does alone, to the bit."""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from inline_engine import InlineServer, without_spark

from penstock.errors import PenstockError
from penstock.physical.planning.plan_parts import joined
from penstock.runtime.spark.changes import planned_epoch, restart_decision
from tests.physical.test_wide_histories import COLUMNS, DECIMALS, DOUBLES, SOURCES, TYPES, random_text
from tests.physical.varied_histories import shown

__all__ = ["without_spark"]

MANY_CASES = 100
#: Streams keep what is needed by the longest window.
DECLARED = "".join(
    f"{one.strip()}{' RETAIN 40 SECONDS' if 'STREAM' in one else ''};" for one in SOURCES.split(";") if one.strip()
)


class PostedHistory:
    """A history by posted statements. emitted: by number of a query, what it has emitted in the end."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.draw = random.Random(seed)
        self.server = InlineServer(folder)
        self.numbers: dict[str, int] = {}
        self.texts: dict[int, str] = {}
        self.paused: set[str] = set()
        self.emitted: dict[int, list[Any]] = {}
        self.counts: Counter[str] = Counter()
        self.refusals: list[str] = []

    def go(self) -> PostedHistory:
        draw, server = self.draw, self.server
        server.post(DECLARED)
        for second in range(1, draw.randint(20, 30)):
            for name in COLUMNS:
                if draw.random() < (0.3 if name == "R2" else 0.9):
                    server.control.insert(name, self.rows(name, second), None)
            if draw.random() < 0.85 and server.engine.run is not None:
                server.run.round()
            self.command(second)
            if server.engine.run is not None:
                steps = server.run.job.plan.steps
                self.counts.update(step.spec.title for step in steps if len(step.queries) > 1)
        server.run.round()
        for name in sorted(self.numbers):
            self.collect(name)
        server.close()
        return self

    def rows(self, name: str, second: int) -> pa.Table:
        draw = self.draw
        count = draw.choice((1, 2, 3, 4)) if name in "ST" else draw.choice((1, 1, 2))
        late = draw.randint(0, 2) if name == "S" else 0
        values: dict[str, list[Any]] = {
            "ts": [second - late] * count,
            "k": [draw.choice((0, 1, 2, None)) for _ in range(count)],
            "a": [draw.choice((0, 1, 2, 3, 4, 2**31 - 1, None)) for _ in range(count)],
            "c": [draw.randrange(5) for _ in range(count)],
            "d": [draw.choice(DOUBLES) for _ in range(count)],
            "m": [draw.choice(DECIMALS) for _ in range(count)],
            "op": [draw.choice("++-") for _ in range(count)],
        }
        names = COLUMNS[name]
        return pa.Table.from_arrays([pa.array(values[n], TYPES.get(n, pa.int32())) for n in names], names)

    def command(self, second: int) -> None:
        draw, what = self.draw, self.draw.random()
        name = draw.choice(sorted(self.numbers)) if self.numbers else ""
        if what < 0.4 and len(self.numbers) < 8:
            number = len(self.texts)
            again = draw.choice(sorted(self.texts)) if self.texts and draw.random() < 0.45 else None
            self.texts[number] = random_text(draw) if again is None else self.texts[again]
            if again is not None and draw.random() < 0.4:
                other = str(draw.choice((2, 5, 9)))
                self.texts[number] = re.sub(r"RANGE \d+ SECONDS\]", f"RANGE {other} SECONDS]", self.texts[number])
            start = draw.choice(("START NOW", "START NOW", "START WARM", "START WARM", "START WARM WAIT"))
            if self.post(second, f"CREATE QUERY q{number} INTO RESULTS () {start} AS {self.texts[number]}"):
                self.numbers[f"q{number}"] = number
        elif not name:
            return
        elif what < 0.46:
            self.collect(name)
            if self.post(second, f"DROP QUERY {name}"):
                del self.numbers[name]
                self.paused.discard(name)
        elif what < 0.54:
            if self.post(second, f"ALTER QUERY {name} PAUSE{draw.choice(('', ' WITH STATE'))}"):
                self.paused.add(name)
        elif what < 0.64 and self.paused:
            one = draw.choice(sorted(self.paused))
            if self.post(second, f"ALTER QUERY {one} RESUME START {draw.choice(('NOW', 'WARM'))}"):
                self.paused.discard(one)
        elif what < 0.7:
            one = f"r{second}"
            if self.post(second, f"ALTER QUERY {name} RENAME TO {one}"):
                self.numbers[one] = self.numbers.pop(name)
                self.paused = {one if known == name else known for known in self.paused}
        elif what < 0.78:
            length = f"RANGE {draw.choice((2, 5, 9))} SECONDS]"
            text = re.sub(r"RANGE \d+ SECONDS\]", length, self.texts[self.numbers[name]])
            self.post(second, f"ALTER QUERY {name} AS {text} START {draw.choice(('NOW', 'WARM'))}")
        elif what < 0.84:
            self.post(second, f"ALTER QUERY {name} SWAP WITH {draw.choice(sorted(self.numbers))}")
        elif what < 0.88:
            self.post(second, f"ALTER QUERY {name} SET (weight {draw.choice((0.5, 2.0))})")
        elif what < 0.94:
            self.server.restart()
            self.counts["restart"] += 1

    def post(self, second: int, statement: str) -> bool:
        """Execute a statement; return whether it is not refused."""
        kind = " ".join(word for word in statement.split() if word.isupper())[:14]
        try:
            self.server.post(statement + ";")
        except PenstockError as error:
            self.refusals.append(f"{second} {error.code} {statement}")
            self.counts[f"refused {error.code}"] += 1
            return False
        self.counts[kind] += 1
        return True

    def collect(self, name: str) -> None:
        rows = [tuple(map(shown, row)) for row in self.server.emitted(name)]
        self.emitted[self.numbers[name]] = sorted(rows)


def compare(seed: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    shared = PostedHistory(seed, folder / "shared").go()
    with monkeypatch.context() as patched:
        patched.setattr(restart_decision, "merged", lambda parts, *others: {})
        patched.setattr(planned_epoch, "shared_plan", lambda parts, *others: joined([part.plan for part in parts]))
        patched.setattr(planned_epoch, "grains_of", lambda *args, **named: {})
        expected = PostedHistory(seed, folder / "alone").go()
    assert shared.texts == expected.texts and shared.refusals == expected.refusals
    for number, rows in expected.emitted.items():
        assert shared.emitted[number] == rows, f"seed {seed}, query {number}: {shared.texts[number]}"
    return shared.counts + Counter(rows=sum(map(len, expected.emitted.values())))


@pytest.mark.slow
def test_such_histories_have_what_they_are_about(
    tmp_path: Path, without_spark: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = compare(1, tmp_path, monkeypatch)
    assert counts["rows"] > 50 and counts["TimeWindow"] and counts["restart"], counts


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, MANY_CASES))
def test_many_histories_at_a_server(
    seed: int, tmp_path: Path, without_spark: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare(seed, tmp_path, monkeypatch)
