"""Queries of the same names are registered, dropped, paused, renamed and exchanged at once by HTTP, the routes of the
page, PostgreSQL's protocol, the shell and the client, alone and in transactions, with keys that are repeated; the
server is killed meanwhile.

The log is the serial order: carried out one by one, its commands lead to what the server lists at the end. Each reply
is true of it: what was done stands there once and as a whole, what was refused does not, and had a reason at that time.
"""

from __future__ import annotations

import io
import itertools
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psycopg
import pytest
from racing_clients import Race

from penstock.cli.shell.server_side import ServerSide
from penstock.cli.shell.shell import Shell
from penstock.connectors.sinks.output import OutputFormat
from penstock.errors import PenstockError
from penstock.server_reports import CommandView

NAMES = ("a", "b", "c", "d")
#: By name the text of a query, and whether it runs.
Queries = dict[str, tuple[str, bool]]
STREAM = "CREATE STREAM s (ts INT, v INT) FROM HTTP () TIMESTAMP BY ts UNIT SECOND RETAIN 100 SECONDS;"
_MARK = re.compile(r"/\* (\d+) \*/ ")
_WORDS = re.compile(
    r"CREATE QUERY `?(?P<create>\w)`?|DROP QUERY `?(?P<drop>\w)`?|ALTER QUERY `?(?P<alter>\w)`? "
    r"(?P<what>PAUSE|RESUME|RENAME TO|SWAP WITH)\s*`?(?P<other>\w)?`?"
)


def applied(text: str, known: Queries) -> bool:
    """Carry out a command on queries by name, what they are and whether they run; return whether that was possible."""
    found = _WORDS.match(_MARK.sub("", text))
    assert found is not None, text
    if (name := found["create"]) is not None:
        if name in known:
            return False
        known[name] = text, True
        return True
    name = found["drop"] or found["alter"]
    if name not in known:
        return False
    query, runs = known[name]
    if found["drop"]:
        del known[name]
    elif found["what"] == "RENAME TO":
        if found["other"] in known:
            return False
        known[found["other"]] = known.pop(name)
    elif found["what"] == "SWAP WITH":
        # One that is paused has no answers to exchange.
        if found["other"] not in known or not (runs and known[found["other"]][1]):
            return False
        known[name], known[found["other"]] = known[found["other"]], known[name]
    elif runs == (found["what"] == "RESUME"):
        return False
    else:
        known[name] = query, not runs
    return True


@dataclass(frozen=True)
class Call:
    """A script and what its client heard. marks: of its statements; done: whether it was told to be done, None where no
    reply came; number: of its first command; before, after: how long the log was."""

    door: str
    texts: tuple[str, ...]
    marks: tuple[str, ...]
    done: bool | None
    reason: str
    number: int | None
    before: int
    after: int


@dataclass
class RegistrationRace(Race):
    calls: list[Call] = field(default_factory=list)
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def race(self, length: float, kills: int) -> None:
        doors = {"http": self.http, "client": self.by_client, "page": self.page, "pg": self.pg, "shell": self.shell}
        with self.client() as self._shared:
            self._shared.execute(STREAM)
            for name, door in doors.items():
                for place in range(2 if name in ("client", "pg") else 1):
                    self.begin(f"{name} {place}", lambda draw, name=name, door=door: self.call(draw, name, door))
            draw = random.Random(f"{self.seed} kills")
            while not self.done.is_set() and (len(self.calls) < length or self.doors.kills < kills):
                self.done.wait(draw.uniform(0.1, 0.5))
                if self.doors.kills < kills and len(self.calls) >= length * (self.doors.kills + 1) // (kills + 1):
                    self.doors.kill()
                    self.doors.start()
            self.end()

    # -- who registers -----------------------------------------------------------------------------------------

    def statement(self, draw: random.Random, mark: str) -> str:
        name, other = draw.sample(NAMES, 2)
        return draw.choice(
            [f"CREATE QUERY {name} AS SELECT v FROM s [RANGE {mark} SECONDS]"] * 3
            + [f"DROP QUERY /* {mark} */ {name}"] * 2
            + [
                f"ALTER QUERY /* {mark} */ {name} {what}"
                for what in ("PAUSE", "RESUME START NOW", f"RENAME TO {other}", f"SWAP WITH {other}")
            ]
        )

    def length(self) -> int:
        """Return how long the log is."""
        return max((one.number for one in self._shared.commands()), default=0)

    def call(self, draw: random.Random, door: str, way: object) -> None:
        count = draw.choice((1, 1, 2, 3)) if door != "page" else 1
        marks = tuple(str(next(self.numbers)) for _ in range(count))
        texts = tuple(self.statement(draw, mark) for mark in marks)
        before = self.length()
        assert callable(way)
        texts, done, reason, number = way(draw, texts, f"key {marks[0]}")
        self.calls.append(Call(door, texts, marks, done, reason, number, before, self.length()))
        self.seen[f"{door} {'lost' if done is None else 'done' if done else 'refused'}"] += 1

    def by_client(self, draw: random.Random, texts: tuple[str, ...], key: str) -> object:
        script = ";".join(texts) if draw.random() < 0.5 else f"BEGIN; {'; '.join(texts)}; COMMIT"
        replies = set()
        for _ in range(draw.choice((1, 1, 2))):
            try:
                found = [one for one in self._shared.execute(script, key=key) if one.number is not None]
            except PenstockError as error:
                replies.add((False, str(error), None))
                if draw.random() < 0.5:
                    break
                continue
            errors = [one.error for one in found if one.error is not None]
            replies.add((not errors, str(errors), found[0].number))
        done = [one for one in replies if one[0]]
        assert len(done) < 2, f"one key, two outcomes: {replies}"
        # What was refused was not accepted, so the second one may have been.
        return texts, *(done or sorted(replies, key=str))[0]

    def http(self, draw: random.Random, texts: tuple[str, ...], key: str) -> object:
        """Many at once with one key."""
        found: list[httpx.Response] = []

        def post() -> None:
            with suppress(httpx.TransportError):
                body = {"sql": ";\n".join(texts)}
                url = f"{self.doors.url}/v1/statements"
                found.append(httpx.post(url, json=body, headers={"Idempotency-Key": key}, timeout=60))

        threads = [threading.Thread(target=post) for _ in range(draw.choice((1, 2, 3)))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        done = [one.json()["statements"] for one in found if one.status_code == 200]
        assert len({str([each.get("number") for each in one]) for one in done}) < 2, f"one key, two outcomes: {done}"
        if done:
            failed = [one["error"] for one in done[0] if one.get("error")]
            return texts, not failed, str(failed), done[0][0]["number"]
        refused = [one for one in found if 400 <= one.status_code < 500]
        if len(found) < len(threads) or len(refused) < len(found):
            return texts, None, "", None
        return texts, False, refused[0].text, None

    def page(self, draw: random.Random, texts: tuple[str, ...], key: str) -> object:
        """The routes of a query, of which each request is a statement."""
        name, other = draw.sample(NAMES, 2)
        body, text = draw.choice(
            [({"state": "PAUSED"}, f"ALTER QUERY `{name}` PAUSE"),
             ({"name": other}, f"ALTER QUERY `{name}` RENAME TO `{other}`"),
             (None, f"DROP QUERY `{name}`"),
             ({"state": "RUNNING", "start": "NOW"}, f"ALTER QUERY `{name}` RESUME START NOW")]
        )  # fmt: skip
        replies = []
        for _ in range(draw.choice((1, 2))):
            try:
                found = httpx.request(
                    "DELETE" if body is None else "PATCH",
                    f"{self.doors.url}/v1/queries/{name}",
                    timeout=60,
                    headers={"Idempotency-Key": key},
                    **({} if body is None else {"json": body}),
                )
            except httpx.TransportError:
                return (text,), None, "", None
            replies.append(found)
        if replies[0].status_code == 200:
            assert replies[-1].status_code == 200, f"one key, two outcomes: {[one.text for one in replies]}"
        done = [one.json()["statements"][0] for one in replies if one.status_code == 200]
        assert len({one["number"] for one in done}) < 2, f"one key, two outcomes: {done}"
        if done:
            return (text,), not done[0].get("error"), str(done[0].get("error")), done[0]["number"]
        if any(one.status_code >= 500 for one in replies):
            return (text,), None, "", None
        return (text,), False, replies[0].text, None

    def pg(self, draw: random.Random, texts: tuple[str, ...], key: str) -> object:
        try:
            with self.postgres() as connection:
                try:
                    if draw.random() < 0.5:
                        connection.execute("; ".join(texts))  # type: ignore[call-overload]
                    else:
                        with connection.transaction():
                            for text in texts:
                                connection.execute(text)  # type: ignore[call-overload]
                except psycopg.OperationalError:
                    return texts, None, "", None
                except psycopg.Error as error:
                    return texts, False, str(error), None
        except psycopg.OperationalError:
            return texts, None, "", None
        return texts, True, "", None

    def shell(self, draw: random.Random, texts: tuple[str, ...], key: str) -> object:
        out, errors = io.StringIO(), io.StringIO()
        with self.client() as client:
            Shell(ServerSide(client), out, errors, OutputFormat.CSV, False, keep_going=True).read(
                [f"BEGIN; {'; '.join(texts)}; COMMIT;\n"], None
            )
        return texts, not errors.getvalue(), errors.getvalue(), None

    # -- at the end --------------------------------------------------------------------------------------------

    def check(self) -> None:
        with self.client() as client:
            end, log = time.monotonic() + 60, list(client.commands())
            while any(one.state in ("PENDING", "HYDRATING") for one in log):
                assert time.monotonic() < end
                time.sleep(0.05)
                log = list(client.commands())
            listed = {one.name: (one.sql, one.state == "RUNNING") for one in client.queries()}
        histories = self.serial(log[1:])
        known = histories[-1][1]
        self.seen["commands"] = len(log)
        found, expected = ({name: runs for name, (_, runs) in one.items()} for one in (listed, known))
        assert found == expected, (listed, known)
        for name, (text, _) in known.items():
            assert text.partition(" AS ")[2] in listed[name][0], (name, text, listed[name])
        for one in self.calls:
            self.check_call(one, log, histories)

    def serial(self, log: Sequence[CommandView]) -> list[tuple[int, Queries]]:
        """Carry out the log; return the queries after each number."""
        known: Queries = {}
        histories: list[tuple[int, Queries]] = [(1, {})]
        for one in log:
            if one.error is None:
                assert applied(one.sql, known), f"command {one.number} was not possible: {one.sql}, {known}"
            histories.append((one.number, dict(known)))
        return histories

    def check_call(self, one: Call, log: Sequence[CommandView], histories: Sequence[tuple[int, Queries]]) -> None:
        if one.door == "page":
            if one.number is not None:
                assert log[one.number - 1].sql == one.texts[0], (one, log[one.number - 1])
        elif one.door == "pg":
            # Comments do not reach the log, so a command is known by its text and its time.
            if one.done:
                texts = [_MARK.sub("", text) for text in one.texts]
                chosen = [c for c in log if one.before < c.number <= one.after]
                runs = [chosen[i : i + len(texts)] for i in range(len(chosen))]
                assert any([c.sql for c in run] == texts and not any(c.error for c in run) for run in runs), (
                    one,
                    chosen,
                )
        else:
            there = [c for c in log if any(f"/* {m} */" in c.sql or f"RANGE {m} SECONDS" in c.sql for m in one.marks)]
            assert [c.sql for c in there] in ([], list(one.texts)), f"{one} is not whole: {there}"
            assert [c.number for c in there] == list(range(there[0].number, there[-1].number + 1) if there else ())
            failed = {c.error is not None for c in there}
            assert len(failed) < 2, (one, there)
            if one.done is not None:
                assert one.done == (failed == {False}), (one, there)
            if one.number is not None:
                assert there and there[0].number == one.number, (one, there)
        if one.done is False and one.number is None and len(one.texts) == 1:
            # At some time between it was so.
            states = [dict(known) for number, known in histories if one.before <= number <= one.after]
            assert any(not applied(one.texts[0], known) for known in states), one


@pytest.mark.server
def test_the_outcome_is_that_of_the_log(tmp_path: Path) -> None:
    seen = RegistrationRace.at(tmp_path, 773_200_000, 60, 1)
    assert all(seen[f"{door} done"] for door in ("http", "client", "pg", "shell")), seen


@pytest.mark.server
@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_the_outcome_is_that_of_the_log_in_many_races(
    tmp_path: Path, case_count: int | None, case_seed: int | None
) -> None:
    seen: Counter[str] = Counter()
    for number in range(case_count or 20):
        folder = tmp_path / str(number)
        folder.mkdir()
        seen += RegistrationRace.at(folder, (case_seed or 773_200_100) + number, 150, 4)
        print(number, seen, flush=True)
    assert seen["page done"] and seen["pg lost"], seen
