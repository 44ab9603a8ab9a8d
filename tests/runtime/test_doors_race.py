"""One-time queries by HTTP and PostgreSQL's protocol while other clients post rows, update and delete, alter and drop
what is selected, cancel, and the server is killed.

Each answer is that of the instant that its reply names: the content of the stream, of the relation and of the query are
known of each. In a relation of SYSTEM TIME each statement leaves a count and a sum as it was, which all answers must
have: so nobody sees a part of a statement. The engine is that on Spark, without Spark.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from racing_clients import ACCOUNTS, DECLARED, HEAVY, HELD, JOIN, PATIENCE, TOTAL, WINDOW, Given, Race, row

from penstock.client import ServerClient
from penstock.errors import PenstockError

#: Rows of the stream, and answers with rows, without which a race is no test: of the posts that are sent twice, which
#: are a quarter, some must lie in a window that is read.
FED, ENOUGH = 60, 8
#: What a SELECT may be refused with: what it asks for is not kept or has not come, the query is gone, another cancels.
REFUSED = frozenset({"P0711", "P0721", "P0201", "P0726"})


@dataclass
class SelectRace(Race):
    """answers: what was selected, its instant, and the rows; listed: queries that were seen while they ran."""

    given: Given = field(default_factory=Given)
    answers: list[tuple[str, int, Counter[tuple[Any, ...]]]] = field(default_factory=list)
    latest: dict[tuple[str, str], int] = field(default_factory=dict)
    listed: set[str] = field(default_factory=set)

    def declare(self) -> None:
        accounts = ", ".join(f"('+', {k}, 100)" for k in range(ACCOUNTS))
        with self.client() as client:
            client.execute(DECLARED)
            client.execute(f"INSERT INTO acc VALUES {accounts}, ('+', 9, 0)")

    def race(self, length: float, kills: int) -> None:
        self.declare()
        clients = [
            self.feed, self.level, self.deposit, self.transfer, self.pairs, self.transfer_by_pg, self.select,
            self.select, self.select_by_pg, self.leave, self.cancel, self.cancel_by_pg, self.command,
        ]  # fmt: skip
        with self.client() as self._shared:
            for number, turn in enumerate(clients):
                # Queries that nobody waits for would take all processes where the machine is slow.
                pause = {self.leave: 2, self.cancel_by_pg: 2, self.cancel: 0.3}.get(turn, 0.05)
                self.begin(f"{number} {turn.__name__}", turn, pause)
            draw, end = random.Random(f"{self.seed} kills"), time.monotonic() + length
            last = end + PATIENCE
            while not self.done.is_set() and (
                time.monotonic() < end or self.doors.kills < kills or (self.is_thin and time.monotonic() < last)
            ):
                self.done.wait(draw.uniform(0.2, 2 * length / (kills + 1)))
                if self.doors.kills < kills and not self.done.is_set():
                    self.doors.kill()
                    time.sleep(draw.choice((0, 0, 0.3)))
                    self.doors.start()
            self.end()

    @property
    def is_thin(self) -> bool:
        """Return whether little has been answered, as on a machine that does other things: that would find nothing."""
        return self.given.rows < FED or sum(bool(rows) for _, _, rows in list(self.answers)) < ENOUGH

    # -- what is given -----------------------------------------------------------------------------------------

    def feed(self, draw: random.Random) -> None:
        first, count = self.given.rows, draw.randint(1, 4)
        names = ("ts", "k", "v")
        rows = [dict(zip(names, row(n), strict=True)) for n in range(first, first + count)]
        for _ in range(draw.choice((1, 1, 1, 2))):
            self._shared.insert("s", rows, key=f"from {first}")
        self.given.rows += count

    def done_once(self, script: str, key: str | None = None) -> None:
        found = self._shared.execute(script, key=key)
        assert all(one.error is None for one in found), (script, found)

    def level(self, draw: random.Random) -> None:
        levels = self.given.levels
        tick = max(self.given.rows // 2, levels[-1][0] + 1 if levels else 1)
        known = self.given.level(tick)
        k = draw.randrange(3)
        if k in known and draw.random() < 0.5:
            levels.append((tick, k, known[k] + 1))
            self.done_once(f"UPDATE lev SET v = v + 1, ts = {tick} WHERE k = {k}", f"level {len(levels)}")
        else:
            levels.append((tick, k, draw.randrange(100)))
            self.done_once(f"INSERT INTO lev VALUES {levels[-1]}", f"level {len(levels)}")

    def deposit(self, draw: random.Random) -> None:
        self.given.deposits += 1
        for _ in range(draw.choice((1, 1, 2))):
            self.done_once("UPDATE acc SET v = v + 1 WHERE k = 9", f"deposit {self.given.deposits}")

    def moved(self, draw: random.Random) -> str:
        one, other = draw.sample(range(ACCOUNTS), 2)
        amount = draw.randint(1, 50)
        return f"UPDATE acc SET v = v + CASE k WHEN {one} THEN {amount} ELSE {-amount} END WHERE k IN ({one}, {other})"

    def transfer(self, draw: random.Random) -> None:
        self.done_once(self.moved(draw))

    def transfer_by_pg(self, draw: random.Random) -> None:
        with suppress(psycopg.OperationalError), self.postgres() as connection:
            connection.execute(self.moved(draw))  # type: ignore[call-overload]

    def pairs(self, draw: random.Random) -> None:
        """Two rows that come and go together."""
        low = draw.randrange(10, 90)
        self.done_once(f"INSERT INTO acc VALUES ('+', {low}, 7), ('+', {low + 100}, -7)")
        self.done_once("DELETE FROM acc WHERE k >= 10")

    def command(self, draw: random.Random) -> None:
        """Alter and drop what is selected."""
        what = draw.randrange(4)
        if what == 0:
            self.done_once(f"ALTER STREAM s SET (retain '{draw.choice((20, 40, 60))} SECONDS')")
            return
        self.done_once(f"CREATE QUERY x START WARM WAIT AS {WINDOWED};")
        self.done.wait(draw.uniform(0, 0.5))
        self.done_once("ALTER QUERY x RENAME TO y; DROP QUERY y;" if what == 1 else "DROP QUERY x;")

    # -- who selects -------------------------------------------------------------------------------------------

    def select(self, draw: random.Random) -> None:
        me = threading.current_thread().name
        with self.client() as client:
            text = draw.choice((WINDOW, JOIN, TOTAL.format("total"), TOTAL.format("x"), *HELD))
            known = self.latest.get((me, text))
            as_of = None
            if known is not None and text not in HELD and draw.random() < 0.3:
                as_of = known - draw.choice((-1, 0, 0, 1, 5, 30, 60))
            try:
                found = client.select(text if as_of is None else f"{text} AS OF {as_of}")
            except PenstockError as error:
                assert error.code in REFUSED and (error.code != "P0201" or text == TOTAL.format("x")), error
                self.seen[f"refused {error.code}"] += 1
                return
        rows = Counter(tuple(one.values()) for one in found.to_arrow().to_pylist())
        if text in HELD:
            self.check_held(text, list(rows))
            return
        if found.instant is None:
            assert not rows
            return
        tick = int(found.instant)
        if as_of is None:
            assert tick >= (-1 if known is None else known), (text, tick, known)
            self.latest[me, text] = tick
        else:
            assert tick == as_of
            self.seen["AS OF"] += 1
        self.answers.append((text, tick, rows))

    def select_by_pg(self, draw: random.Random) -> None:
        ticks = [tick for (_, text), tick in list(self.latest.items()) if text == WINDOW]
        text = draw.choice(HELD)
        if ticks and draw.random() < 0.5:
            try:
                found = self.rows_of(f"{WINDOW} AS OF {min(ticks)}")
            except psycopg.Error as error:
                assert "P0721" in str(error) or "complete" in str(error) or "kept" in str(error), repr(error)
                return
            if found is not None:
                self.answers.append((WINDOW, min(ticks), Counter(found)))
            return
        try:
            found = self.rows_of(text)
        except psycopg.Error as error:
            assert text == HELD[1], repr(error)
            return
        if found is not None:
            self.check_held(text, found)

    def check_held(self, text: str, rows: list[tuple[Any, ...]]) -> None:
        if not rows:
            assert text == HELD[1], text
            return
        (one,) = rows
        assert one in ((0, None), (ACCOUNTS, 100 * ACCOUNTS), (ACCOUNTS + 2, 100 * ACCOUNTS)), (text, rows)
        self.seen["held"] += one[0] > 0

    # -- who does not wait for an answer -----------------------------------------------------------------------

    def leave(self, draw: random.Random) -> None:
        """Send a query by HTTP and hang up."""
        with suppress(httpx.HTTPError):
            httpx.post(f"{self.doors.url}/v1/statements", json={"sql": HEAVY}, timeout=draw.uniform(0.05, 0.5))

    def cancel(self, draw: random.Random) -> None:
        """Cancel queries of others. Those that end by themselves are spared for good at the first look or cancelled:
        with a draw at each look, the slower a machine is the fewer of them would be answered."""
        with self.client() as client:
            for one in client.statements():
                is_new = one.id not in self.listed
                self.listed.add(one.id)
                if one.kind == "SELECT" and draw.random() < (0.5 if one.sql == HEAVY else 0.2 * is_new):
                    with suppress(PenstockError):
                        client.cancel(one.id)
                        self.seen["cancelled"] += 1

    def cancel_by_pg(self, draw: random.Random) -> None:
        with suppress(psycopg.OperationalError), self.postgres() as connection:
            threading.Timer(draw.uniform(0, 0.4), lambda: cancelled(connection)).start()
            with suppress(psycopg.errors.QueryCanceled):
                connection.execute(HEAVY)  # type: ignore[call-overload]

    # -- at the end --------------------------------------------------------------------------------------------

    def check(self) -> None:
        wrong = []
        for text, tick, rows in self.answers:
            expected = self.given.answer(text, tick)
            if rows != expected:
                wrong.append(f"{text} at {tick}: {rows - expected} too much, {expected - rows} missing")
            self.seen["rows"] += sum(expected.values())
        assert not wrong, "\n".join([f"seed {self.seed}", *wrong])
        with self.client() as client:
            self.check_end(client)
        assert self.doors.left == [], "processes of a killed server go on"

    def check_end(self, client: ServerClient) -> None:
        end = time.monotonic() + 60
        while True:
            (found,) = client.select("SELECT v FROM acc WHERE k = 9").to_arrow().to_pylist()
            if found["v"] == self.given.deposits or time.monotonic() > end:
                break
            time.sleep(0.05)
        assert found["v"] == self.given.deposits
        left = [one for one in client.statements() if one.kind == "SELECT"]
        assert left == [], "nobody waits for these"
        pins = self.doors.folder / "checkpoint" / "penstock" / "pins"
        assert not pins.exists() or not list(pins.iterdir())


WINDOWED = "SELECT k, SUM(v) AS v, COUNT(*) AS n FROM s [RANGE 10 SECONDS] GROUP BY k"


def cancelled(connection: psycopg.Connection[Any]) -> None:
    with suppress(psycopg.Error, OSError):
        connection.cancel()


@pytest.mark.server
def test_every_answer_is_that_of_one_instant(tmp_path: Path) -> None:
    seen = SelectRace.at(tmp_path, 773_000_000, 6, 2)
    assert seen["rows"] and seen["held"], seen


@pytest.mark.server
@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_every_answer_is_that_of_one_instant_in_many_races(
    tmp_path: Path, case_count: int | None, case_seed: int | None
) -> None:
    seen: Counter[str] = Counter()
    for number in range(case_count or 40):
        folder = tmp_path / str(number)
        folder.mkdir()
        seen += SelectRace.at(folder, (case_seed or 773_000_100) + number, 8, 4)
        print(number, seen)
    assert seen["AS OF"] and seen["cancelled"] and seen["refused P0721"], seen
