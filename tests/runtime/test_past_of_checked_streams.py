"""Queries that begin with a past of streams whose promises are CHECKED: what was rejected of it is what the checks had
rejected when they judged it, not what they would reject now; and of streams that are punctuated."""

from __future__ import annotations

import pickle
from random import Random

import pyarrow as pa
import pytest

from penstock.algebra.nodes.query import Query, Start, StartMode
from penstock.algebra.nodes.scans import Check, RejectedScan, Source, declared_sources
from penstock.errors import PenstockError
from penstock.language.scripts import bind_script
from penstock.runtime.live import LiveEngine
from penstock.testing.compare import events_of, first_difference
from penstock.testing.live import Episode, run_live
from penstock.testing.oracle import timely_rows

STREAM = "CREATE STREAM S (ts INT, v INT, w INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND"
PROMISES = {
    "u": "UNIQUE (v)",
    "c": "CLUSTERED BY (v) WITHIN 2 ROWS",
    "t": "CLUSTERED BY (w) WITHIN 3 SECONDS",
    "o": "ORDERED BY (v) WITHIN 3 ROWS",
    "d": "ORDERED BY (v) DESC WITHIN 6 SECONDS",
}
TEXTS = (
    "SELECT ts AS at, v, w FROM S",
    "SELECT v, w FROM S [RANGE 3 SECONDS]",
    "SELECT w, COUNT(*) AS n, MAX(v) AS m FROM S [RANGE 6 SECONDS SLIDE 2 SECONDS] GROUP BY w",
    "SELECT a.v FROM S [RANGE 2 SECONDS] AS a, S [RANGE 4 SECONDS] AS b WHERE a.v = b.v",
    "SELECT v, w FROM S [ROWS 3]",
    "SELECT v FROM S [PARTITION BY w ROWS 2]",
    "SELECT w, COUNT(*) AS n FROM S GROUP BY w",
    "SELECT DISTINCT w FROM S [RANGE 5 SECONDS]",
)


def bound(promises: dict[str, str], text: str, slack: int, more: str = "") -> Query:
    """A query over the stream with promises."""
    late = f" ORDER WITHIN {slack} SECONDS" if slack else ""
    checks = "".join(f" CONSTRAINT {name} {promise} CHECKED" for name, promise in promises.items())
    (query,) = bind_script(f"{STREAM}{late}{checks}{more}; CREATE QUERY q AS {text};").queries
    return query


def rows_of(random: Random, length: int, slack: int) -> pa.Table:
    tick = 0
    rows: list[tuple[int, int | None, int]] = []
    for _ in range(length):
        tick += random.choice((0, 1, 1, 2))
        value = tick // 3 + random.randrange(4) if random.random() < 0.9 else None
        rows.append((max(0, tick - random.randrange(slack + 1)), value, random.randrange(3)))
    columns = zip(*rows, strict=True)
    return pa.table([pa.array(column, pa.int32()) for column in columns], names=["ts", "v", "w"])


def source_of(query: Query) -> Source:
    (source,) = declared_sources(query.root).values()
    return source


def check_of(query: Query, name: str) -> Query:
    """What stands beside the queries from the declaration of a promise on."""
    source = source_of(query)
    promise = next(one for one in source.promises if one.name == name)
    scan = RejectedScan(source, tuple(range(len(source.columns))), Check(name, promise))
    return Query(f"check {name}", scan, query.sink)


@pytest.mark.parametrize("seed", range(24))
def test_a_past_is_what_its_checks_let_through(seed: int) -> None:
    random = Random(seed)
    slack, retain = random.choice((0, 0, 3)), random.choice((None, None, 8, 3))
    table = rows_of(random, 60, slack)
    names = random.sample(sorted(PROMISES), random.randrange(1, 4))
    source = source_of(bound({name: PROMISES[name] for name in names}, TEXTS[0], slack))
    engine = LiveEngine(random.choice((1, 3)))
    engine.declare(source, retain)
    read, declared, began = 0, dict[str, int](), 0
    episodes: dict[str, Episode] = {}
    queries: dict[str, Query] = {}
    answers: dict[str, list[pa.Table]] = {}

    def timely() -> int:
        return len(timely_rows(source, table.slice(0, read)))

    while read < table.num_rows:
        draw = random.random()
        if draw < 0.15 and len(declared) < len(names):
            name = names[len(declared)]
            engine.register(check_of(bound({n: PROMISES[n] for n in names}, TEXTS[0], slack), name))
            declared[name] = timely()
        elif draw < 0.4:
            began += 1
            query = bound({name: PROMISES[name] for name in declared}, random.choice(TEXTS), slack)
            query = Query(f"n{began}", query.root, query.sink)
            at = random.randrange(max(1, read)) + random.randrange(4)
            start = random.choice((Start(StartMode.WARM), Start(StartMode.BEGINNING), Start(StartMode.AT, at), Start()))
            try:
                answers[query.name] = [engine.register(query, start)]
            except PenstockError as error:
                assert error.code == "P0703" and retain is not None
                continue
            queries[query.name] = query
            episodes[query.name] = Episode(query, start, {"S": read}, declared=dict(declared))
        elif draw < 0.5:
            engine = LiveEngine.restored(pickle.loads(pickle.dumps(engine.snapshot())))
        else:
            part = table.slice(read, random.randrange(1, 6))
            engine.insert("S", part.combine_chunks().to_batches()[0])
            read += part.num_rows
            for name, found in engine.round().items():
                if name in answers:
                    answers[name].append(found)
    assert episodes, "some queries begin"
    for name, episode in episodes.items():
        expected = run_live([episode], {"S": table})
        found = [event for part in answers[name] for event in events_of(queries[name], part)]
        difference = first_difference(expected, found)
        assert difference is None, f"{name} {episode.start} {episode.declared} {queries[name].root}: {difference}"


SAID = "CREATE STREAM S (ts INT, v INT, w INT, said STRING) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND"
CLOSED = (
    "SELECT v, w FROM S WHERE CLOSED(v)",
    "SELECT v, COUNT(*) AS n FROM S GROUP BY v HAVING CLOSED(v)",
    "SELECT v, w, COUNT(*) AS n FROM S GROUP BY v, w HAVING CLOSED(v, w)",
    "SELECT DISTINCT v FROM S",
    "SELECT a.v, b.w FROM S AS a, S AS b WHERE a.v = b.v AND a.w < b.w",
    "SELECT w, COUNT(*) AS n FROM S [RANGE 4 SECONDS] GROUP BY w",
    "SELECT v FROM S [ROWS 2]",
)


@pytest.mark.parametrize("seed", range(24))
def test_a_past_has_its_punctuations_at_their_instants(seed: int) -> None:
    """CLOSED holds of the past from when it was said; what contradicts counts in N."""
    random = Random(f"said {seed}")
    slack, retain = random.choice((0, 0, 3)), random.choice((None, None, 6))
    plain = rows_of(random, 50, slack).to_pylist()
    for _ in range(random.randrange(1, 12)):
        at = random.randrange(len(plain))
        low = random.randrange(12)
        text = random.choice((f"v = {low}", f"v <= {low // 2}", f"v = {low} AND w = {low % 3}", "w IS NULL"))
        plain.insert(at, {"ts": None, "v": None, "w": None, "said": text})
    columns = [pa.array([row[c] for row in plain], pa.int32()) for c in ("ts", "v", "w")]
    said = pa.array([row.get("said") for row in plain], pa.string())
    table = pa.table([*columns, said], names=["ts", "v", "w", "said"])
    late = f" ORDER WITHIN {slack} SECONDS" if slack else ""
    more = random.choice(("", " CLUSTERED BY (v) WITHIN 3 ROWS", " ORDERED BY (v) WITHIN 4 ROWS"))
    queries: dict[str, Query] = {}
    declared = f"{SAID}{late}{more} PUNCTUATED BY said;"
    (some,) = bind_script(f"{declared} CREATE QUERY q AS {CLOSED[0]};").queries
    engine = LiveEngine(random.choice((1, 3)))
    engine.declare(source_of(some), retain)
    read = 0
    episodes: dict[str, Episode] = {}
    answers: dict[str, list[pa.Table]] = {}
    while read < table.num_rows:
        draw = random.random()
        if draw < 0.3:
            text = random.choice(CLOSED)
            (query,) = bind_script(f"{declared} CREATE QUERY q AS {text};").queries
            query = Query(f"n{len(queries)}", query.root, query.sink)
            at = Start(StartMode.AT, random.randrange(max(1, read)) + random.randrange(4))
            start = random.choice((Start(StartMode.WARM), Start(StartMode.BEGINNING), at))
            try:
                answers[query.name] = [engine.register(query, start)]
            except PenstockError as error:
                assert error.code == "P0703" and retain is not None
                continue
            queries[query.name] = query
            episodes[query.name] = Episode(query, start, {"S": read})
        elif draw < 0.4:
            engine = LiveEngine.restored(pickle.loads(pickle.dumps(engine.snapshot())))
        else:
            part = table.slice(read, random.randrange(1, 6))
            engine.insert("S", part.combine_chunks().to_batches()[0])
            read += part.num_rows
            for name, found in engine.round().items():
                answers[name].append(found)
    assert episodes, "some queries begin"
    for name, episode in episodes.items():
        expected = run_live([episode], {"S": table})
        found = [event for part in answers[name] for event in events_of(queries[name], part)]
        difference = first_difference(expected, found)
        assert difference is None, f"{name} {episode.start} {queries[name].root}: {difference}"
