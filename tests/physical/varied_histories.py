"""Histories of a live system in which everything changes: queries, their plans, sources, processes; and calls fail.

`VariedHistory` draws one from a seed: keys of any type; queries of every kind that are registered, replaced, paused,
resumed, exchanged and dropped in each start, whose plans change while they run; streams that stand still, end their
instants, come late or in large batches; what is retained; processes that are restored. The same seed gives the same
history where nothing is shared, so that the answers can be compared.
"""

from __future__ import annotations

import datetime
import pickle
import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cache
from typing import Any

import pyarrow as pa

from penstock.algebra.nodes.base import leaves
from penstock.algebra.nodes.query import PlanChoice, Query, Start, StartMode
from penstock.algebra.nodes.scans import Scan
from penstock.algebra.properties.need import first_full_instant, is_mature
from penstock.errors import PenstockError
from penstock.language.scripts import bind_script
from penstock.runtime.decisions.deciders import DecidingOptions, QueryPolicies
from penstock.runtime.live import LiveEngine
from penstock.testing.compare import events_of
from penstock.testing.plan_choices import random_choices
from penstock.testing.random.worlds import seeded_choices
from tests.live_machine import live_steps
from tests.physical.failing_calls import Faults
from tests.physical.test_wide_histories import DECIMALS, DOUBLES, NEGATIVE, POSITIVE, random_text
from tests.runtime.test_merged_lives import _bits

NAN = float("nan")
DAY = datetime.datetime(2024, 2, 29, 23, 59, 59, 999999, tzinfo=datetime.UTC)
#: By type of a key: its Arrow type, and values among which are those at its limits.
KEYS: dict[str, tuple[pa.DataType, tuple[Any, ...]]] = {
    "INT": (pa.int32(), (0, 1, 2, -(2**31))),
    "BIGINT": (pa.int64(), (2**53, 2**53 + 1, -(2**63))),
    "VARCHAR": (pa.string(), ("", "a", "it's", "a\x00", "é", "x" * 300)),
    "BINARY": (pa.binary(), (b"", b"\x00", b"\x00\x00", b"\xff")),
    "DECIMAL(10, 2)": (pa.decimal128(10, 2), (Decimal("0.00"), Decimal("0.01"), Decimal("-99999999.99"))),
    "DECIMAL(38, 0)": (pa.decimal128(38, 0), (Decimal(10**37), Decimal(10**37 + 1), Decimal(-(2**64)))),
    "TIMESTAMP": (
        pa.timestamp("us", tz="UTC"),
        (DAY, DAY + datetime.timedelta(microseconds=1), datetime.datetime(1, 1, 1, tzinfo=datetime.UTC)),
    ),
    "DATE": (pa.date32(), (DAY.date(), datetime.date(1, 1, 1), datetime.date(9999, 12, 31))),
    "BOOLEAN": (pa.bool_(), (True, False)),
    "DOUBLE": (pa.float64(), (0.1, 0.1 + 2**-54, NAN, float("inf"), 0.0)),
    "FLOAT": (pa.float32(), (0.5, NAN, float("-inf"), 0.0)),
}
STREAMS, RELATIONS = ("S", "T", "U"), ("R0", "R1", "R2")
STARTS = (
    Start(), Start(), Start(StartMode.WARM), Start(StartMode.WARM), Start(StartMode.WARM, wait=True),
    Start(StartMode.BEGINNING),
)  # fmt: skip
LENGTHS = (1, 2, 3, 5, 6, 7, 12, 13)


def sources_text(key: str, slack: int) -> str:
    """Return the declarations of three streams and of relations of three rules whose keys are of one type."""
    columns = f"(ts INT, k {key}, a INT, d DOUBLE, m DECIMAL(38, 2), x VARCHAR)"
    timed = "FROM MEMORY () TIMESTAMP BY ts UNIT SECOND"
    return f"""
CREATE STREAM S {columns} {timed} ORDER WITHIN {slack} SECONDS;
CREATE STREAM T {columns} {timed};
CREATE STREAM U {columns} {timed} ORDER WITHIN 1 SECOND;
CREATE RELATION R0 (ts INT, k {key}, c INT, PRIMARY KEY (k)) {timed};
CREATE RELATION R1 (ts INT, k {key}, c INT, op VARCHAR) {timed} OPERATION BY op;
CREATE RELATION R2 (ts INT, k {key}, c INT, op VARCHAR, PRIMARY KEY (k)) {timed} OPERATION BY op;
"""


def window(draw: random.Random) -> str:
    """A window whose rows are ended by time alone, in most cases."""
    t, u = draw.choice(LENGTHS), draw.choice((1, 2, 3, 4))
    return draw.choice(
        (
            *(f"[RANGE {t} SECONDS]",) * 5,
            f"[RANGE {t} SECONDS SLIDE {u} SECONDS]",
            f"[RANGE {3 * u} SECONDS SLIDE {u} SECONDS]",
            f"[ROWS {u}]",
            f"[PARTITION BY k ROWS {u}]",
            f"[PARTITION BY k ROWS 2 RANGE {t} SECONDS]",
            "[NOW]",
        )
    )


def other_text(draw: random.Random) -> str:
    """A query of the kinds that wide histories do not have."""
    w, v, r, s = window(draw), window(draw), draw.choice(RELATIONS), draw.choice("SSTU")
    t = f"[RANGE {draw.choice(LENGTHS)} SECONDS]"
    joined = f"SELECT S.k, S.a, R.c FROM S {t}, {r} R WHERE S.k = R.k"
    grouped = f"SELECT k, COUNT(*) AS n, MAX(a) AS a FROM {s} {w} GROUP BY k"
    return draw.choice(
        (
            joined,
            joined,
            f"{joined} AND S.a <> R.c",
            f"SELECT x.k, x.a, y.m FROM S {w} x, S {v} y WHERE x.k = y.k AND x.a {draw.choice(('<=', '<>', '='))} y.a",
            f"SELECT x.k, y.a, z.x FROM S {t} x, S {v} y, U {w} z WHERE x.k = y.k AND y.k = z.k",
            f"SELECT x.k, y.a FROM S {t} x, T {t} y WHERE x.a BETWEEN y.a - 1 AND y.a + 1",
            f"SELECT x.a, y.a AS b FROM S {t} x LEFT JOIN T {v} y ON x.k = y.k",
            f"SELECT x.a, y.c AS b FROM S {t} x FULL JOIN {r} y ON x.k = y.k",
            f"SELECT x, k, m FROM {s} {w}",
            f"SELECT x, COUNT(*) AS n FROM {s} {w} GROUP BY x",
            f"SELECT k, MIN(x) AS v, MAX(x) AS w, MIN(k) AS u FROM {s} {w} GROUP BY k",
            f"SELECT MIN(k) AS v FROM {s} {w}",
            f"SELECT k, COUNT(*) AS n, MAX(c) AS c FROM ({joined}) j GROUP BY k",
            f"SELECT g.k, g.n, R.c FROM ({grouped}) g, {r} R WHERE g.k = R.k",
            f"SELECT n, COUNT(*) AS groups FROM ({grouped}) g GROUP BY n",
            f"SELECT DISTINCT a FROM ({grouped}) g",
            f"SELECT k, COUNT(*) AS n FROM (ISTREAM({joined})) {t} i GROUP BY k",
            f"SELECT i.k, i.n, U.a FROM (RSTREAM({grouped})) {t} i, U {v} WHERE i.k = U.k",
            f"SELECT k, a FROM {s} {w} WHERE k IN (SELECT k FROM {r} R WHERE c > 1)",
            f"SELECT k, a FROM {s} {w} WHERE k NOT IN (SELECT k FROM {r} R WHERE c > 1)",
            f"SELECT k, a FROM {s} {w} WHERE a > (SELECT MIN(c) FROM {r} R)",
            f"SELECT k, a FROM {s} {t} SAMPLE({draw.choice((40, 60))})",
            f"SELECT k, ARRAY_AGG(DISTINCT a) AS v FROM {s} {w} GROUP BY k",
            f"SELECT MODE(x) AS v, MEDIAN(a) AS w FROM {s} {w}",
            f"SELECT k, c, COUNT(*) AS n FROM {r} R GROUP BY k, c",
            f"SELECT c, MIN(k) AS v FROM {r} R GROUP BY c",
            f"SELECT k, a FROM {s} {w} UNION ALL SELECT k, c FROM {r} R",
            f"SELECT k FROM {r} R EXCEPT SELECT k FROM {s} {t}",
            f"SELECT k, a FROM {s} {t} ORDER BY a DESC, k LIMIT {draw.choice((1, 3))}",
            f"SELECT a, SUM(m) AS v, COUNT(DISTINCT k) AS n FROM {s} {w} GROUP BY a",
        )
    )


def alike_text(draw: random.Random) -> str:
    """A query of which many are advanced in one call."""
    t, r, stream = (
        draw.choice((4, 4, 7)),
        draw.choice(RELATIONS),
        draw.choice(("{}", "{}", "{}", "ISTREAM({})", "DSTREAM({})")),
    )
    joined = f"SELECT S.k, S.a, R.c FROM S [RANGE {t} SECONDS], {r} R WHERE S.k = R.k"
    return stream.format(draw.choice((joined, joined, joined, f"SELECT k, c FROM {r} R")))


def some_text(draw: random.Random, is_alike: bool) -> str:
    if is_alike and draw.random() < 0.8:
        return alike_text(draw)
    if draw.random() < 0.45:
        return random_text(draw)
    text = other_text(draw)
    stream = draw.choice((None, None, None, None, "ISTREAM", "DSTREAM", "RSTREAM"))
    return text if stream is None else f"{stream}({text})"


def shown(value: object) -> str:
    """The bits of a value, of which 0.0 and -0.0 have the same: they are equal, so which of the two a tuple shows of
    which both have come is not determined."""
    bits = _bits(value)
    return POSITIVE if bits == NEGATIVE else bits


@cache
def _bound(script: str) -> Query:
    return bind_script(script).queries[0]


@dataclass
class VariedHistory:
    """A history. answers: by query and step of the history, what it emitted; texts: of the queries; refusals: by step;
    kinds: of steps that several queries had; done: commands; edits: by query, what is computed to take its place."""

    seed: int
    is_shared: bool
    faults: Faults = field(default_factory=lambda: Faults(0))
    answers: dict[str, dict[int, list[Any]]] = field(default_factory=dict)
    texts: dict[str, list[str]] = field(default_factory=dict)
    refusals: list[str] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    done: Counter[str] = field(default_factory=Counter)
    edits: dict[str, str] = field(default_factory=dict)
    paused: set[str] = field(default_factory=set)
    on_step: Callable[[VariedHistory], None] | None = None

    def run(self) -> VariedHistory:
        draw = self.draw = random.Random(self.seed)
        self.is_alike = self.seed % 5 < 2
        self.key = draw.choice(list(KEYS))
        self.slack = draw.choice((0, 2, 3))
        self.sources = sources_text(self.key, self.slack)
        self.doubles = DOUBLES if self.seed % 2 else tuple(value for value in DOUBLES if _bits(value) != NEGATIVE)
        self.large = draw.choice((0, 0, 40, 400))
        retained = draw.choice((None, None, None, 0, 4, 12))
        self.live = LiveEngine(draw.randint(1, 4))
        everything = bind_script(
            f"{self.sources} CREATE QUERY q AS SELECT S.a FROM S [NOW], T [NOW], U [NOW], R0, R1, R2;"
        )
        for leaf in leaves(everything.queries[0].root):
            assert isinstance(leaf, Scan)
            self.live.declare(leaf.source, retained if leaf.source.is_stream else None)
        self.schemas = {}
        for name in (*STREAMS, *RELATIONS):
            source = next(one.source for one in leaves(everything.queries[0].root) if one.source.name == name)
            self.schemas[name] = [column.name for column in source.columns]
        self.queries: dict[str, Query] = {}
        self.waiting: dict[str, list[pa.RecordBatch]] = {}
        #: Streams stand still for some time.
        self.quiet = dict.fromkeys(self.schemas, 0)
        self.behind = draw.choice((*STREAMS, *RELATIONS))
        with self.faults.installed():
            for second in range(1, draw.randint(25, 50)):
                self.second = second
                self.insert()
                if draw.random() < 0.85:
                    self.round()
                self.command()
                self._measure()
            self.second += 1
            self.round()
        return self

    # -- what happens ------------------------------------------------------------------------------------------

    def insert(self) -> None:
        draw = self.draw
        for name in self.schemas:
            if self.quiet[name] > self.second or draw.random() > (0.3 if name == self.behind else 0.9):
                continue
            if draw.random() < 0.03:
                self.quiet[name] = self.second + draw.randint(3, 12)
            count = draw.choice((0, 1, 2, 3, 4)) if name in STREAMS else draw.choice((1, 1, 2))
            if self.large and draw.random() < 0.1:
                count = draw.randint(1, self.large)
            rows = self.rows(name, count)
            self.waiting.setdefault(name, []).append(rows)
            self.live.insert(name, rows)
            if name in STREAMS and draw.random() < 0.08:
                # No row follows with its timestamp.
                self.live.close(name)

    def rows(self, name: str, count: int) -> pa.RecordBatch:
        draw = self.draw
        kind, keys = KEYS[self.key]
        late = {"S": self.slack + 1, "U": 2}.get(name, 0) if draw.random() < 0.5 else 0
        values: dict[str, tuple[pa.DataType, list[Any]]] = {
            "ts": (pa.int32(), sorted(self.second - draw.randint(0, late) for _ in range(count))),
            "k": (kind, [draw.choice((*keys, None)) for _ in range(count)]),
            "a": (pa.int32(), [draw.choice((0, 1, 2, 3, 4, 2**31 - 1, None)) for _ in range(count)]),
            "c": (pa.int32(), [draw.randrange(5) for _ in range(count)]),
            "d": (pa.float64(), [draw.choice(self.doubles) for _ in range(count)]),
            "m": (pa.decimal128(38, 2), [draw.choice(DECIMALS) for _ in range(count)]),
            "x": (pa.string(), [draw.choice(("", "a", "b", "é", None)) for _ in range(count)]),
            "op": (pa.string(), [draw.choice("++-") for _ in range(count)]),
        }
        names = self.schemas[name]
        return pa.RecordBatch.from_arrays([pa.array(values[n][1], values[n][0]) for n in names], names)

    def round(self) -> None:
        before, failed = self.joint_errors(), self.faults.counts["computed"]
        self.take(self.carried_out(lambda: self.live.round()))
        if self.faults.computed:
            assert (self.joint_errors() > before) == (self.faults.counts["computed"] > failed), "errors are counted"
        self.waiting.clear()
        for name in list(self.edits):
            self.take_over(name)

    def joint_errors(self) -> int:
        return sum(work.joint_errors for work in self.live.figures().run.work.values())

    def carried_out(self, action: Callable[[], Any]) -> Any:
        """Do something; where a call of it fails, go on from what was saved before and do it again."""
        if not (self.faults.settled or self.faults.anywhere):
            return action()
        saved = pickle.dumps((self.live.snapshot(), set(self.live._closed)))
        for _ in range(20):
            try:
                with self.faults.interrupting():
                    return action()
            except MemoryError:
                self.restore(saved)
        raise AssertionError("it fails again and again")

    def restore(self, saved: bytes) -> None:
        snapshot, closed = pickle.loads(saved)
        self.live = LiveEngine.restored(snapshot)
        self.live._closed |= closed
        for name, parts in self.waiting.items():
            for rows in parts:
                self.live.insert(name, rows)

    def take(self, tables: dict[str, pa.Table]) -> None:
        for name, table in tables.items():
            if name in self.queries and table.num_rows:
                events = [(ts, op, tuple(map(shown, row))) for ts, op, row in events_of(self.queries[name], table)]
                self.answers.setdefault(name, {}).setdefault(self.second, []).extend(events)

    # -- commands ----------------------------------------------------------------------------------------------

    def command(self) -> None:
        draw, what = self.draw, self.draw.random()
        running = [name for name in self.queries if name not in self.paused]
        if what < 0.3 and len(self.queries) < 9:
            self.register()
        elif not self.queries:
            return
        elif what < 0.36:
            self.drop(draw.choice(sorted(self.queries)))
        elif what < 0.44:
            self.replace(draw.choice(sorted(self.queries)))
        elif what < 0.52 and running:
            name = draw.choice(running)
            self.give_up(name)
            with_state = draw.random() < 0.5
            self.carried_out(lambda: self.live.pause(name, with_state))
            self.paused.add(name)
            self.done["pause"] += 1
        elif what < 0.62 and self.paused:
            name = draw.choice(sorted(self.paused))
            if self.begun(name, lambda start: self.live.resume(name, start)):
                self.paused.discard(name)
                self.done["resume"] += 1
        elif what < 0.7:
            self.swap()
        elif what < 0.8 and running:
            self.edit(draw.choice(running))
        elif what < 0.84:
            self.live.retain(draw.choice(STREAMS), draw.choice((None, 0, 4, 12)))
            self.done["retain"] += 1
        elif what < 0.88:
            weights = {name: draw.choice((0.5, 2.0)) for name in self.queries if draw.random() < 0.5}
            policies = QueryPolicies(weights, dict.fromkeys(running[:1], 0.001))
            self.live.decide_by(DecidingOptions(policies=policies))
            self.done["policies"] += 1
        elif what < 0.93:
            self.restore(pickle.dumps((self.live.snapshot(), set(self.live._closed))))
            self.done["restart"] += 1

    def bound(self, name: str, text: str) -> Query | None:
        try:
            return _bound(f"{self.sources} CREATE QUERY {name} AS {text};")
        except PenstockError:
            self.done["not bound"] += 1
            return None

    def start(self) -> Start:
        if self.draw.random() < 0.15:
            return Start(StartMode.AT, self.second + self.draw.randint(-6, 3))
        return self.draw.choice(STARTS)

    def begun(self, name: str, action: Callable[[Start], pa.Table]) -> bool:
        """Begin a query; return whether that is not refused."""
        start = self.start()
        try:
            table = self.carried_out(lambda: action(start))
        except PenstockError as error:
            assert error.code == "P0703", error
            self.refusals.append(f"{self.second} {name} {start.words}")
            return False
        self.take({name: table})
        return True

    def chosen(self, query: Query) -> tuple[PlanChoice, ...]:
        """Draw choices of a plan. A system without sharing leaves them: they change no answer."""
        seed = self.draw.randrange(10**6)
        found = random_choices(seeded_choices(seed), lambda choices: live_steps(query, choices))
        return found if self.is_shared else ()

    def register(self) -> None:
        draw = self.draw
        name = f"q{len(self.texts)}"
        again = draw.choice(list(self.queries.values())) if self.queries and draw.random() < 0.45 else None
        text = some_text(draw, self.is_alike) if again is None else again.text.split(" AS ", 1)[1].rstrip(";")
        if again is not None and draw.random() < 0.5:
            text = re.sub(r"RANGE (\d+) SECONDS\]", lambda _: f"RANGE {draw.choice(LENGTHS)} SECONDS]", text)
        query = self.bound(name, text)
        self.texts[name] = [text]
        if query is None:
            return
        if draw.random() < 0.2:
            query = replace(query, choices=self.chosen(query))
        self.queries[name] = query
        if self.begun(name, lambda start: self.live.register(query, start)):
            self.done["register"] += 1
        else:
            del self.queries[name]

    def drop(self, name: str) -> None:
        self.give_up(name)
        self.carried_out(lambda: self.live.drop(name))
        del self.queries[name]
        self.paused.discard(name)
        self.done["drop"] += 1

    def replace(self, name: str) -> None:
        draw, before = self.draw, self.queries[name]
        text = before.text.split(" AS ", 1)[1].rstrip(";")
        other = re.sub(r"\b(RANGE|ROWS) \d+\b(?! SECONDS SLIDE)", lambda m: f"{m[1]} {draw.choice(LENGTHS)}", text)
        query = self.bound(name, other)
        if query is None or query.output_schema != before.output_schema or name in self.paused:
            return
        self.give_up(name)
        if self.begun(name, lambda start: self.live.replace(name, query, start)):
            self.queries[name] = query
            self.texts[name].append(other)
            self.done["replace"] += 1

    def swap(self) -> None:
        running = [name for name in self.queries if name not in self.paused]
        schema = {name: self.queries[name].output_schema for name in running}
        pairs = [(a, b) for a in running for b in running if a < b and schema[a] == schema[b]]
        if not pairs:
            return
        one, other = self.draw.choice(pairs)
        self.give_up(one)
        self.give_up(other)
        tables = self.carried_out(lambda: self.live.swap(one, other))
        first, second = self.queries[one], self.queries[other]
        self.queries[one], self.queries[other] = replace(second, name=one), replace(first, name=other)
        self.take(tables)
        self.done["swap"] += 1

    def edit(self, name: str) -> None:
        """Begin to change the plan of a query that runs."""
        query = self.queries[name]
        if name in self.edits or first_full_instant(query.root.needs, self.live.unseen(name), 0) is None:
            return
        hidden = f"{name}~"
        edited = replace(query, name=hidden, choices=self.chosen(query))
        try:
            self.carried_out(lambda: self.live.register(edited, Start(StartMode.WARM, wait=True)))
        except PenstockError as error:
            assert error.code == "P0703", error
            return
        self.edits[name] = hidden
        self.done["edit"] += 1
        self.take_over(name)

    def take_over(self, name: str) -> None:
        """Let the new plan of a query take over where both answer the same."""
        hidden, live = self.edits[name], self.live
        beats = {live.heartbeat(name), live.heartbeat(hidden)}
        (beat,) = beats if len(beats) == 1 else (None,)
        if beat is None or live.first_ahead(name) is not None or live.first_ahead(hidden) is not None:
            return
        if not is_mature(self.queries[name].root.needs, live.unseen(name), beat):
            return
        self.take({name: self.carried_out(lambda: self.live.swap(name, hidden))[name]})
        self.give_up(name)
        self.done["taken over"] += 1

    def give_up(self, name: str) -> None:
        hidden = self.edits.pop(name, None)
        if hidden is not None:
            self.carried_out(lambda: self.live.drop(hidden))

    def _measure(self) -> None:
        steps = self.live._job.plan.steps
        self.kinds.update(step.spec.title for step in steps if len(step.queries) > 1)
        if self.on_step is not None:
            self.on_step(self)
