"""Updated relations that a run keeps for all readers: every reader gets what the law says, whoever has read before, and
nothing is read twice."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from inline_run import InlineRun, cold, declared

from penstock.algebra.nodes.query import Start
from penstock.connectors.contract import ParsedRecords, Split
from penstock.connectors.sinks.files import read_result
from penstock.connectors.sources.files import FilesSource
from penstock.errors import PenstockError
from penstock.language.scripts import bind_script, bind_select
from penstock.physical.execution.progress import NOTHING, timed_sources
from penstock.results.cancellation import Cancellation
from penstock.results.content import ResultContents
from penstock.results.run_input import pinned_input, state_of_run
from penstock.results.select import LiveAnswer, LiveReader
from penstock.runtime.live import history
from penstock.runtime.local.one_time import sources_of
from penstock.runtime.spark.hydration import kept_relations
from penstock.runtime.spark.hydration.kept_relations import KeptRelations
from penstock.testing.compare import events_of
from penstock.testing.live import Episode, heartbeat, run_live
from penstock.testing.one_time import assert_same_rows, rows_of
from penstock.testing.oracle import run_oracle_once, timely_rows
from penstock.testing.scalars.values import event_order

FILES, ROWS = 10, 8
KINDS = {
    "bag": ("CREATE RELATION", "", "OPERATION BY op"),
    "keyed": ("CREATE RELATION", ", PRIMARY KEY (k)", "OPERATION BY op"),
    "replacing": ("CREATE RELATION", ", PRIMARY KEY (k)", ""),
    "growing": ("CREATE RELATION", "", ""),
    "non retroactive": ("CREATE NON RETROACTIVE RELATION", ", PRIMARY KEY (k)", "OPERATION BY op"),
}
#: The stream is far behind the relation, so queries over both are answered at earlier instants.
QUERIES = {
    "present": "SELECT ts, k, v FROM U",
    "count": "SELECT COUNT(*) AS n, SUM(v) AS s FROM U",
    "joined": "SELECT S.k, x, v FROM S [RANGE 9 SECONDS], U WHERE S.k = U.k",
    "lately": "SELECT COUNT(*) AS n FROM (SELECT ISTREAM(k, v) FROM U) [RANGE 5 SECONDS] AS i",
}
#: Other queries over a NON RETROACTIVE relation are not possible.
NRR = {"new": "SELECT S.k, x, v FROM S [RANGE 9 SECONDS], U WHERE S.k = U.k", "pairs": "SELECT x, v FROM S, U "
       "WHERE S.k = U.k"}  # fmt: skip
PAIRS = "SELECT ISTREAM(S.k, x, v) FROM S [NOW], U WHERE S.k = U.k"


def inputs(seed: int) -> dict[str, pa.Table]:
    """What comes early, late and out of order; the stream falls behind the relation more and more."""
    draw = random.Random(seed)
    ticks = [max(0, i // 2 + draw.randint(-3, 1) - (9 if draw.random() < 0.05 else 0)) for i in range(FILES * ROWS)]
    slow = sorted(draw.randint(0, 30) for _ in ticks)
    return {
        "U": pa.table(
            {
                "ts": pa.array(ticks, pa.int64()),
                "op": ["-" if draw.random() < 0.4 else "+" for _ in ticks],
                "k": pa.array([draw.randint(0, 3) for _ in ticks], pa.int32()),
                "v": pa.array([draw.randint(0, 2) for _ in ticks], pa.int64()),
            }
        ),
        "S": pa.table(
            {
                "ts": pa.array(slow, pa.int64()),
                "k": pa.array([draw.randint(0, 3) for _ in ticks], pa.int32()),
                "x": pa.array([draw.randint(0, 9) for _ in ticks], pa.int64()),
            }
        ),
    }


def script(place: Path, kind: str = "bag", *queries: str) -> str:
    head, key, clauses = KINDS[kind]
    text = f"""SET max_batch_bytes = 1; SET shards = 1;
    CREATE STREAM S (ts BIGINT, k INT, x BIGINT) FROM FILES (path '{place / "S"}', format 'parquet')
      TIMESTAMP BY ts UNIT SECOND RETAIN 1 HOUR;
    {head} U (ts BIGINT, op STRING, k INT, v BIGINT{key}) FROM FILES (path '{place / "U"}', format 'parquet')
      TIMESTAMP BY ts UNIT SECOND {clauses};"""
    for number, query in enumerate(queries):
        text += f"\nCREATE QUERY q{number} INTO FILES (path '{place / 'out'}/q{number}', format 'parquet') AS {query};"
    return text


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Updates are folded as soon as there are any."""
    monkeypatch.setattr(history, "_FEWEST", 0)
    monkeypatch.setattr(kept_relations, "_FEW", 0)
    cold()
    return tmp_path


def write_inputs(place: Path, seed: int) -> dict[str, pa.Table]:
    whole = inputs(seed)
    for name, rows in whole.items():
        (place / name).mkdir()
        for number in range(FILES):
            pq.write_table(rows.slice(number * ROWS, ROWS), place / name / f"part-{number:04d}.parquet")
    return whole


def begun(place: Path, kind: str) -> InlineRun:
    return InlineRun(script(place, kind), place / "checkpoint", declared=declared(script(place, kind)), standing=True)


def selected(run: InlineRun, text: str, kind: str, name: str = "reader") -> LiveAnswer:
    query = bind_select(text, bind_script(script(run.checkpoint.parent, kind), live=True).catalog).query
    with pinned_input(run, name, {one.lower() for one in sources_of(query)}) as known:
        state = state_of_run(run, known, {}, ResultContents(run.folder.results))
        return LiveReader(lambda: state).answer(query)


def check(run: InlineRun, text: str, kind: str, whole: dict[str, pa.Table], name: str = "reader") -> LiveAnswer:
    """Check an answer against the oracle at its instant."""
    found = selected(run, text, kind, name)
    law = bind_select(text, bind_script(script(run.checkpoint.parent, kind), live=True).catalog).query
    if found.answer.tick is not None:
        expected = run_oracle_once(replace(law, as_of=found.answer.tick), whole)
        assert_same_rows(law, rows_of(found.answer.table), expected)
    return found


def queries_of(kind: str) -> list[str]:
    return list((NRR if kind == "non retroactive" else QUERIES).values())


class Reads:
    """The splits of the relation that are read beside the rounds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.paths: list[str] = []
        original = FilesSource.read

        def read(source: FilesSource, split: Split, columns: tuple[int, ...]) -> Iterator[ParsedRecords]:
            if source.source.name == "U" and self.counted:
                self.paths.append(split.path)
            return original(source, split, columns)

        self.counted = True
        monkeypatch.setattr(FilesSource, "read", read)


@pytest.mark.spread(3)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_every_reader_gets_what_the_law_says(place: Path, kind: str, seed: int) -> None:
    """In whatever order they come, at whatever rounds, with restarts in between."""
    whole, draw = write_inputs(place, seed), random.Random(seed)
    run, rows = begun(place, kind), 0
    while run.pending() and not run.ended:
        run.go(draw.randint(1, 3))
        for text in draw.sample(queries_of(kind), draw.randint(0, 2)):
            found = check(run, text, kind, whole)
            rows += found.answer.table.num_rows
            tick = found.answer.tick
            if tick is not None and draw.random() < 0.3:
                check(run, f"{text} AS OF {tick - draw.randint(0, 9)}", kind, whole)
        if draw.random() < 0.15:
            run.rounds.stop()
            cold()
            run = begun(place, kind)
    run.rounds.stop()
    assert rows


@pytest.mark.spread(2)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(2))
def test_queries_that_begin_now_beside_other_readers(place: Path, kind: str, seed: int) -> None:
    """What others have folded is not missing to a query whose time is behind; nor is it read again where it is not."""
    whole, draw = write_inputs(place, seed), random.Random(seed)
    run = begun(place, kind).go(draw.randint(3, 9))
    queries = (*queries_of(kind)[:1], PAIRS)
    for text in queries_of(kind):
        check(run, text, kind, whole)
    run.change(script(place, kind, *queries))
    offset = run.rounds._offset.before or run.rounds._offset
    before = {name: offset.splits_done(name) * ROWS for name in whole}
    for _ in range(3):
        run.go(2)
        check(run, queries_of(kind)[0], kind, whole)
    run.run()
    events = 0
    for query in bind_script(script(place, kind, *queries), live=True).queries:
        sources = timed_sources(query.root)
        final = heartbeat(sources, {name: timely_rows(source, whole[name]) for name, source in sources.items()})
        expected = [e for e in run_live([Episode(query, Start(), before)], whole) if e[0] <= final]
        found = [e for e in events_of(query, read_result(str(place / "out" / query.name))) if e[0] <= final]
        assert sorted(found, key=event_order) == expected, query.name
        events += len(expected)
    assert events


def test_nothing_is_read_twice(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = write_inputs(place, 1)
    run = begun(place, "bag").go(9)
    reads = Reads(monkeypatch)
    check(run, QUERIES["present"], "bag", whole)
    first = list(reads.paths)
    assert len(first) == run.rounds._offset.before.splits_done("U") > 2  # type: ignore[union-attr]
    for _ in range(3):
        check(run, QUERIES["count"], "bag", whole)
    assert reads.paths == first
    reads.counted = False
    run.go(4)
    reads.counted = True
    check(run, QUERIES["present"], "bag", whole)
    assert len(set(reads.paths)) == len(reads.paths) > len(first)
    # A query that begins NOW reads no updates either.
    known = list(reads.paths)
    run.change(script(place, "bag", QUERIES["present"]))
    assert [path for path in reads.paths if path in known] == known
    run.rounds.stop()


def test_the_folding_stays_behind_for_readers_that_are_behind(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = write_inputs(place, 1)
    run = begun(place, "bag").go(12)
    reads = Reads(monkeypatch)
    again = []
    while run.pending() and not run.ended:
        for text in (QUERIES["present"], QUERIES["joined"]):
            reads.paths.clear()
            check(run, text, "bag", whole)
            again.append(len(reads.paths))
        reads.counted = False
        run.go(1)
        reads.counted = True
    # A reader came too late for what another one had folded; later ones did not, or seldom.
    assert again[0] > 2 and 1 <= sum(count > 2 for count in again[1:]) <= 3, again
    run.rounds.stop()


def test_a_relation_that_takes_too_much_is_read_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = write_inputs(place, 1)
    run = begun(place, "bag").go(9)
    run.relations = KeptRelations(run.folder, 100)
    reads = Reads(monkeypatch)
    for _ in range(2):
        reads.paths.clear()
        check(run, QUERIES["present"], "bag", whole)
        assert len(reads.paths) > 2
    run.change(script(place, "bag", QUERIES["present"])).run()
    assert run.relations.of(run.job.intake.sources[0], run.job.intake.births).nbytes == 0


def test_the_relation_that_was_read_first_goes_first(place: Path) -> None:
    write_inputs(place, 1)
    run = begun(place, "bag").go(9)
    (source,) = (one for one in run.job.intake.sources if one.name == "U")
    first, second = replace(source, name="V"), replace(source, name="W")
    kept = KeptRelations(run.folder, 10)
    full = kept.of(first, {})
    kept.of(second, {})
    full.nbytes = 11
    assert kept.of(first, {}) is full
    assert kept.of(second, {}) is kept.of(second, {}) and kept.of(first, {}) is not full
    run.rounds.stop()


def test_looking_a_relation_up_waits_for_no_reader(place: Path) -> None:
    """It happens while the rounds stand still."""
    write_inputs(place, 1)
    run = begun(place, "bag").go(9)
    selected(run, QUERIES["present"], "bag")
    (kept,) = run.relations._known.values()
    with kept._lock, ThreadPoolExecutor(1) as other:
        looked_up = other.submit(run.relations.of, kept.source, run.job.intake.births)
        assert looked_up.result(20) is kept and kept.nbytes
    run.rounds.stop()


def test_a_part_that_cannot_be_read_is_read_later(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure leaves what was read before as it is, and no part is there twice."""
    whole = write_inputs(place, 1)
    run = begun(place, "bag").go(9)
    fails = [3]
    original = FilesSource.read

    def read(source: FilesSource, split: Split, columns: tuple[int, ...]) -> Iterator[ParsedRecords]:
        yield from original(source, split, columns)
        fails[0] -= 1
        if not fails[0]:
            raise PenstockError("P0401", "the file is gone")

    with monkeypatch.context() as broken, pytest.raises(PenstockError, match="is gone"):
        broken.setattr(FilesSource, "read", read)
        selected(run, QUERIES["present"], "bag")
    check(run, QUERIES["present"], "bag", whole)
    run.rounds.stop()


def test_a_reading_that_takes_too_long_is_continued_by_the_next_reader(place: Path) -> None:
    whole = write_inputs(place, 1)
    run = begun(place, "bag").go(9)
    query = bind_select(QUERIES["present"], bind_script(script(place), live=True).catalog).query

    def attempt(cancellation: Cancellation, timeout: float) -> None:
        with pinned_input(run, "reader", {"u"}) as known:
            state = state_of_run(run, known, {}, ResultContents(run.folder.results))
            LiveReader(lambda: state, timeout=timeout).answer(query, cancellation)

    cancelled = Cancellation()
    cancelled.set()
    with pytest.raises(PenstockError) as refused:
        attempt(cancelled, 0)
    assert refused.value.code == "P0726"
    with pytest.raises(PenstockError) as refused:
        attempt(Cancellation(), 1e-9)
    assert refused.value.code == "P0725"
    (kept,) = run.relations._known.values()
    assert kept._position[1] == 2
    check(run, QUERIES["present"], "bag", whole)
    run.rounds.stop()


def test_readers_side_by_side_with_the_rounds(place: Path) -> None:
    whole = write_inputs(place, 2)
    run, errors = begun(place, "keyed"), list[BaseException]()
    ended = threading.Event()

    def reading(number: int) -> None:
        draw = random.Random(number)
        try:
            while not ended.is_set():
                check(run, draw.choice(list(QUERIES.values())), "keyed", whole, f"reader-{number}")
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=reading, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    while run.pending() and not run.ended:
        run.go(1)
    ended.set()
    for thread in threads:
        thread.join()
    run.rounds.stop()
    assert not errors, errors


def test_before_anything_has_been_read_a_relation_is_empty(place: Path) -> None:
    write_inputs(place, 1)
    run = begun(place, "bag")
    found = selected(run, QUERIES["present"], "bag")
    assert found.answer.tick is None and not found.answer.table.num_rows and NOTHING < 0
    run.rounds.stop()
