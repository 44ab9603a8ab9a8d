"""A server under bad queries: python -m benchmarks.bad_queries [--only WORDS] [--hold SECONDS] [--in-process] [--keep]

`penstock serve` in a process of its own, with 30 ordinary queries over a stream and a relation that are posted at a
steady rate. Queries of each bad kind (`kinds.py`) are registered in turn, and what they read is posted. Meanwhile
commands of others are timed, and how long it takes from a post to the answers of the ordinary queries; then the bad
query is dropped. At the end every answer of the ordinary queries is compared with what is computed anew from the rows.
Exits 1 where one is wrong, a command was not answered, or a query that has to end by itself did not.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.bad_queries.faults import DECLARED as FUNCTIONS
from benchmarks.bad_queries.kinds import KINDS, Kind
from benchmarks.live_soak.feed import DECLARED, STEP, Feed
from benchmarks.live_soak.lives import NOTHING, Episode, Life, wrong
from benchmarks.live_soak.served import Failed, Served, Subscriber
from benchmarks.live_soak.shapes import Levelled, Passed, Shape, Sums, Totals
from benchmarks.processes import tree_bytes
from benchmarks.records import save
from benchmarks.soak_options import end_with_what_was_started
from penstock.client import connect
from penstock.errors import PenstockError

SEED = 1
SIDE = "CREATE STREAM side (v BIGINT, at BIGINT) FROM HTTP () TIMESTAMP BY at;"
#: Seconds before a bad query is registered, between two posts for it, and within which all must be caught up behind it.
_BEFORE, _BETWEEN, _CAUGHT_UP = 4.0, 1.0, 120.0
#: Seconds within which the answer to a command must begin.
_ANSWERED = 120.0
_LOOK = 0.05


def ordinary(count: int) -> Iterator[Shape]:
    """Yield queries of all kinds in turn."""
    for number in range(count):
        place = number // 4
        yield (
            Passed(2 + place, place % 2),
            Sums(2 * (1 + place), 1 + place % 3),
            Totals(3 * (1 + place)),
            Levelled(1 + place % 4),
        )[number % 4]


class NotedFeed(Feed):
    """Notes when each post was accepted, and its last tick."""

    def __init__(self, url: str, token: str, seed: int, rate: int) -> None:
        super().__init__(url, token, seed, rate)
        self.times: list[tuple[float, int]] = []

    def _post(self, until: int) -> None:
        began = time.monotonic()
        super()._post(until)
        self.times.append((began, STEP * (until - 1)))


class Watch(threading.Thread):
    """Looks when ordinary queries have answered each post, and at memory and disk.

    Attributes:
        delays: (when it was posted, seconds until it was answered, the query).
    """

    def __init__(self, served: Served, feed: NotedFeed, lives: Sequence[Life], folder: Path) -> None:
        super().__init__(daemon=True, name="watch")
        self._served, self._feed, self._lives, self._folder = served, feed, lives, folder
        self._next = [len(feed.times)] * len(lives)
        self._over = threading.Event()
        self.delays: list[tuple[float, float, str]] = []
        self.memory = self.disk = 0
        self._sizes = threading.Thread(target=self._look_at_sizes, daemon=True)

    def run(self) -> None:
        self._sizes.start()
        while not self._over.wait(_LOOK):
            now = time.monotonic()
            for place, life in enumerate(self._lives):
                # The last instant of a stream is open; a query with levels waits for the relation too.
                while self._next[place] < len(self._feed.times):
                    posted, tick = self._feed.times[self._next[place]]
                    if life.final < tick - 1 - (20 * STEP if isinstance(life.shape, Levelled) else 0):
                        break
                    self.delays.append((posted, now - posted, life.name))
                    self._next[place] += 1

    def _look_at_sizes(self) -> None:
        while not self._over.wait(0.5):
            self.memory = max(self.memory, tree_bytes(self._served.pid))
            self.disk = max(self.disk, bytes_below(self._folder))

    def waiting(self, until: float) -> list[str]:
        """Return the queries that have not answered all that was posted until a time."""
        times = self._feed.times
        return [
            life.name
            for place, life in enumerate(self._lives)
            if self._next[place] < len(times) and times[self._next[place]][0] < until
        ]

    def end(self) -> None:
        self._over.set()
        self.join()
        self._sizes.join()


def bytes_below(folder: Path) -> int:
    """Return the bytes of all files below a folder, as they lie on the disk."""
    found = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                found += Path(place, name).stat().st_blocks * 512
            except OSError:
                continue
    return found


class Poster(threading.Thread):
    """Posts what a bad query reads, until it is ended.

    Attributes:
        refused: the first error of a post.
    """

    def __init__(self, served: Served, kind: Kind) -> None:
        super().__init__(daemon=True, name="poster")
        self._client = connect(served.url, served.token, timeout=_ANSWERED)
        self._kind = kind
        self._over = threading.Event()
        self.refused = ""
        self.rows = 0

    def run(self) -> None:
        try:
            for table in self._kind.tables():
                self._client.insert("bad", table)
                self.rows += table.num_rows
                if self._over.wait(_BETWEEN):
                    return
        except PenstockError as error:
            self.refused = f"{error.code} {error.message}"
        finally:
            self._client.close()

    def end(self) -> None:
        self._over.set()
        self.join()


@dataclass
class Timed:
    """Seconds of commands by what they do, and the errors of those that failed."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    def run(self, what: str, action: Any) -> Any:
        began = time.monotonic()
        try:
            return action()
        except PenstockError as error:
            self.errors.append(f"{what} after {time.monotonic() - began:.1f} s: {error.code} {error.message[:300]}")
        finally:
            self.seconds.setdefault(what, []).append(round(time.monotonic() - began, 2))

    def most(self, what: str) -> float | None:
        return max(self.seconds.get(what, ()), default=None)


class Server:
    """A server with its ordinary queries. A context: nothing that it started runs on behind it."""

    def __init__(self, given: argparse.Namespace, folder: Path) -> None:
        self._given, self._folder = given, folder
        # A server keeps others off what lies beside its tokens.
        results, temporary = folder.parent / "results", folder / "tmp"
        results.mkdir(parents=True)
        temporary.mkdir(parents=True)
        self.results = results
        os.environ["TMPDIR"] = str(temporary)
        settings = () if given.in_process else ("trigger=200 ms", "spark.driver.memory=1g", "shards=2")
        options = ("--allow-functions", "benchmarks.bad_queries.faults", "--allow-path", str(results))
        self.served = Served(folder, (*settings, *given.set), in_process=given.in_process, options=options)
        self.lives: list[Life] = []
        self._subscribers: list[Subscriber] = []

    def __enter__(self) -> Server:
        self.served.start()
        self.client = connect(self.served.url, self.served.token, patience=10, timeout=_ANSWERED)
        self.client.execute(DECLARED + FUNCTIONS + SIDE)
        for number, shape in enumerate(ordinary(self._given.queries)):
            life = Life(number, f"q{number}", [Episode(shape, True, NOTHING, -1)])
            self.lives.append(life)
        self.client.execute("".join(f"CREATE QUERY {life.name} AS {life.shape.text};" for life in self.lives))
        for life in self.lives:
            subscriber = Subscriber(self.served.url, self.served.token, life, SEED, whole=True)
            self._subscribers.append(subscriber)
            subscriber.start()
        self.feed = NotedFeed(self.served.url, self.served.token, SEED, self._given.rate)
        self.feed.start()
        self._number = 0
        self.caught_up(_CAUGHT_UP)
        return self

    def __exit__(self, *_: object) -> None:
        self.served.kill()
        self.client.close()

    def caught_up(self, seconds: float) -> bool:
        """Wait until all ordinary queries have answered what has been posted."""
        end, tick = time.monotonic() + seconds, STEP * self.feed.posted - 30 * STEP
        while any(life.final < tick for life in self.lives):
            self.served.check()
            if self.feed.failure is not None or time.monotonic() > end:
                return False
            time.sleep(_LOOK)
        return True

    def others(self, timed: Timed) -> None:
        """Send a command of each kind, as others would."""
        self._number += 1
        n, client = self._number, self.client
        timed.run("INSERT", lambda: client.execute(f"INSERT INTO side VALUES ({n}, {n});"))
        timed.run("SHOW QUERIES", lambda: client.execute("SHOW QUERIES;"))
        timed.run("SELECT", lambda: client.select("SELECT k, c, total FROM q2"))
        timed.run("CREATE", lambda: client.execute(f"CREATE QUERY other{n} AS SELECT n FROM s WHERE v < {n};"))
        timed.run("DROP", lambda: client.execute(f"DROP QUERY other{n};"))

    def measure(self, name: str, kind: Kind, hold: float) -> dict[str, Any]:
        """Register a bad query, look at what becomes of all, and drop it."""
        client, timed, before = self.client, Timed(), Timed()
        watch = Watch(self.served, self.feed, self.lives, self._folder)
        watch.start()
        began = time.monotonic()
        while time.monotonic() - began < _BEFORE:
            self.others(before)
        rest = watch.memory, watch.disk
        watch.memory = watch.disk = 0
        registered = time.monotonic()
        figure: dict[str, Any] = {"figure": name}
        script = f"CREATE QUERY bad_query {kind.query.format(results=self.results)};" if kind.query else ""
        client.execute(kind.stream + ";")
        created = timed.run("CREATE of it", lambda: client.execute(script)) if script else None
        if created is not None and created[0].error is not None:
            timed.errors.append(f"CREATE of it: {created[0].error.code} {created[0].error.message}")
        if kind.spoil is not None:
            kind.spoil(self.results)
        poster = Poster(self.served, kind)
        poster.start()
        selecting = threading.Thread(target=self._select, args=(kind.select, timed), daemon=True)
        if kind.select:
            time.sleep(3)
            selecting.start()
        ended_after = None
        while time.monotonic() - registered < hold and (ended_after is None or time.monotonic() < ended_after + 3):
            self.served.check()
            self.others(timed)
            if script and ended_after is None and self._state() == "FAILED":
                ended_after = time.monotonic()
        if script:
            view = timed.run("SHOW of it", lambda: client.query("bad_query"))
            if view is not None:
                figure["state"], figure["rows"] = view.state, view.rows
                if view.error is not None:
                    figure["ended"] = f"{view.error.code} {view.error.message.splitlines()[0][:300]}"
                    figure["hint"] = view.error.hint
            if ended_after is not None:
                figure["ended_after"] = round(ended_after - registered, 1)
            timed.run("DROP of it", lambda: client.execute("DROP QUERY bad_query;"))
        poster.end()
        if kind.select:
            selecting.join(_ANSWERED)
        timed.run("DROP of its stream", lambda: client.execute("DROP STREAM bad;"))
        dropped = time.monotonic()
        caught_up = self.caught_up(_CAUGHT_UP)
        end = time.monotonic()
        time.sleep(1)
        watch.end()
        late = [delay for posted, delay, _ in watch.delays if registered - 1 <= posted < dropped]
        early = [delay for posted, delay, _ in watch.delays if posted < registered - 1]
        meanwhile = [what for what in timed.seconds if what in before.seconds]
        figure |= {
            "posted": poster.rows,
            "refused": poster.refused,
            "held": round(dropped - registered, 1),
            "create": timed.most("CREATE of it"),
            "drop": timed.most("DROP of it"),
            "commands": {what: [round(median(timed.seconds[what]), 2), timed.most(what)] for what in meanwhile},
            "commands_before": {w: [round(median(t), 2), max(t)] for w, t in before.seconds.items()},
            "latency": [round(median(late), 2), round(max(late), 2)] if late else None,
            "latency_before": [round(median(early), 2), round(max(early), 2)] if early else None,
            "caught_up": round(end - dropped, 1) if caught_up else None,
            "errors": timed.errors,
            "memory_mb": [rest[0] >> 20, watch.memory >> 20],
            "disk_mb": [rest[1] >> 20, watch.disk >> 20],
        }
        if (seconds := timed.most("the SELECT")) is not None:
            figure["select"] = seconds
        return figure

    def _state(self) -> str:
        try:
            return self.client.query("bad_query").state
        except PenstockError:
            return ""

    def _select(self, sql: str, timed: Timed) -> None:
        with connect(self.served.url, self.served.token, timeout=_ANSWERED) as client:
            timed.run("the SELECT", lambda: client.select(sql).to_arrow().num_rows)

    def judged(self) -> list[str]:
        """End the feed; return what is wrong with the ordinary queries."""
        self.feed.end()
        found = [] if self.feed.failure is None else [f"the feed: {self.feed.failure!r}"]
        try:
            if not self.caught_up(_CAUGHT_UP):
                behind = [life.name for life in self.lives if life.final < STEP * (self.feed.posted - 30)]
                found.append(f"not caught up: {behind}")
        except Failed as failure:
            found.append(str(failure))
        for subscriber in self._subscribers:
            subscriber.end()
        for life in self.lives:
            life.episodes[-1].reached = life.final
            found += wrong(life, SEED, not self._given.in_process)
        return found


def problems(name: str, figure: dict[str, Any]) -> list[str]:
    """Return in words what must not be."""
    found = []
    if figure.get("failed"):
        found.append(figure["failed"])
    if KINDS[name].query and not KINDS[name].may_go_on and "ended" not in figure and not figure.get("errors"):
        found.append(f"it does not end by itself, and is {figure.get('state')}")
    if figure.get("caught_up", 0) is None:
        found.append("the others do not catch up")
    return [f"{name}: {one}" for one in found]


def measure_all(
    given: argparse.Namespace, chosen: Mapping[str, Kind], figures: list[dict[str, Any]], wrong_answers: list[str]
) -> None:
    """Measure kinds, and add what is found to `figures` and `wrong_answers`."""
    waiting = list(chosen.items())
    while waiting:
        with (
            tempfile.TemporaryDirectory(prefix="bad-queries-", ignore_cleanup_errors=True) as root,
            Server(given, Path(root) / "server") as server,
        ):
            while waiting:
                name, kind = waiting.pop(0)
                try:
                    figures.append(server.measure(name, kind, given.hold))
                except (Failed, PenstockError) as error:
                    figures.append({"figure": name, "failed": f"the server is lost: {error}"})
                print(figures[-1], flush=True)
                if problems(name, figures[-1]) and waiting:
                    # What follows is measured at a server that has not been harmed.
                    print(server.served.tail(), flush=True)
                    break
            wrong_answers += server.judged()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bad_queries", description=__doc__)
    parser.add_argument("--queries", type=int, default=30, help="ordinary queries")
    parser.add_argument("--rate", type=int, default=50, help="rows a second that these read")
    parser.add_argument("--hold", type=float, default=20, help="seconds for which a bad query stands")
    parser.add_argument("--only", nargs="*", default=[], help="kinds with one of these words")
    parser.add_argument("--set", nargs="*", default=[], help="settings of the server, key=value")
    parser.add_argument("--in-process", action="store_true", help="a server without Spark")
    parser.add_argument("--keep", action="store_true", help="keep the figures in benchmarks/results")
    given = parser.parse_args()
    end_with_what_was_started()
    chosen = {name: one for name, one in KINDS.items() if not given.only or any(word in name for word in given.only)}
    figures: list[dict[str, Any]] = []
    wrong_answers: list[str] = []
    try:
        measure_all(given, chosen, figures, wrong_answers)
    finally:
        # Also where it is ended before its time.
        if given.keep and figures:
            print(save("bad queries" + (" in process" if given.in_process else ""), "1g", figures))
    found = [one for figure in figures for one in problems(figure["figure"], figure)] + wrong_answers
    print("\n".join(found) if found else "every answer of the ordinary queries was right")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
