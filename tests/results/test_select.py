"""One-time queries over live contents: R(τ) of the oracle at one delivered batch, never going back, within bounds."""

from __future__ import annotations

import errno
import os
import pickle
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pytest
from result_kit import Log
from test_property import Arrivals, CaseRun, Inputs, explore

from penstock.algebra.nodes.scans import Source
from penstock.errors import PenstockError
from penstock.language.scripts import BoundScript, Catalog, QueryNames, bind_script, bind_select
from penstock.physical.elements import Elements
from penstock.physical.execution.progress import NOTHING
from penstock.physical.plan.strategies import Strategy
from penstock.results import select_process
from penstock.results.cancellation import Cancellation
from penstock.results.content import ResultContents
from penstock.results.live_state import LiveState, state_of_results
from penstock.results.select import LiveReader, gather
from penstock.results.select_workers import SelectRequest, SelectWorkers, process_command
from penstock.results.source_rows import RowsInMemory, SourceRows, ordered_rows
from penstock.results.worker_process import read_message, write_message
from penstock.runtime.local.one_time import sources_of
from penstock.runtime.local.runtime import run_local
from penstock.testing.one_time import as_of, assert_same_rows, rows_of
from penstock.testing.oracle import run_oracle_once, timely_rows
from penstock.testing.random.worlds import FLAVOURS, Flavour
from penstock.types import END

SCRIPT = """
CREATE STREAM S (ts INT, k STRING, x INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
CREATE STREAM T (ts INT, k STRING, y INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
CREATE RELATION P (k STRING, z INT) FROM MEMORY ();
CREATE QUERY sums INTO RESULTS () AS SELECT k, SUM(x) AS total FROM S [RANGE 10 SECONDS] GROUP BY k;
CREATE QUERY large INTO RESULTS () AS SELECT ISTREAM(k, x) FROM S [NOW] WHERE x > 5;
CREATE VIEW v AS SELECT k FROM S [RANGE 5 SECONDS];
"""


@pytest.fixture
def catalog() -> Catalog:
    return bind_script(SCRIPT).catalog


@dataclass
class Kept:
    """Elements of a stream, kept in memory."""

    source: Source
    rows: pa.Table
    heartbeat: int
    dropped: int | None = None

    def _ticks(self) -> np.ndarray:
        assert self.source.timestamp is not None
        return self.rows.column(self.source.timestamp).cast(pa.int64()).to_numpy()

    def elements(self, source: Source, columns: tuple[int, ...], after: int | None, up_to: int) -> SourceRows:
        ticks = self._ticks()
        kept = ticks <= up_to
        for bound in (after, self.dropped):
            kept &= ticks > (NOTHING if bound is None else bound)
        chosen = np.flatnonzero(kept)
        arrays = tuple(self.rows.column(i).combine_chunks() for i in columns)
        part = Elements(arrays, ticks, np.full(len(ticks), END, np.int64)).take(chosen)
        return RowsInMemory(ordered_rows(source, columns, [part]))


def elements(catalog: Catalog, name: str, *rows: tuple[object, ...]) -> pa.Table:
    columns = catalog.sources[name].columns
    values = list(zip(*rows, strict=True)) or [()] * len(columns)
    schema = pa.schema([(f.name, f.type) for f in columns])
    return pa.table([pa.array(v, f.type) for v, f in zip(values, columns, strict=True)], schema=schema)


def state(catalog: Catalog, batch: int = 0, **kept: tuple[pa.Table, int, int | None]) -> LiveState:
    past = {name: Kept(catalog.sources[name], rows, beat, dropped) for name, (rows, beat, dropped) in kept.items()}
    return LiveState(batch, 100.0, past=past, whole={"p": RowsInMemory(elements(catalog, "p", ("a", 1)))})


def answered(catalog: Catalog, text: str, *states: LiveState) -> tuple[list[tuple[object, ...]], int | None]:
    waiting = iter(states)
    reader = LiveReader(lambda: next(waiting), clock=lambda: 103.5)
    for _ in states:
        found = reader.answer(bind_select(text, catalog, query_names=QueryNames.ANSWER).query)
    assert found.staleness == 3.5
    return sorted(rows_of(found.answer.table), key=str), found.answer.tick


def test_the_instant_is_the_least_heartbeat_of_what_is_read(catalog: Catalog) -> None:
    s = elements(catalog, "s", (1, "a", 1), (5, "b", 2), (9, "c", 3))
    t = elements(catalog, "t", (4, "a", 1), (7, "b", 1))
    live = state(catalog, s=(s, 8, None), t=(t, 5, None))
    assert answered(catalog, "SELECT k FROM S", live) == ([("a",), ("b",)], 8)
    assert answered(catalog, "SELECT k FROM S [RANGE 4 SECONDS]", live) == ([("b",)], 8)
    joined = "SELECT S.k, y FROM S [RANGE 10 SECONDS], T [RANGE 10 SECONDS] WHERE S.k = T.k"
    assert answered(catalog, joined, live) == ([("a", 1)], 5)
    assert answered(catalog, "SELECT k FROM S AS OF 4", live) == ([("a",)], 4)
    assert answered(catalog, "SELECT v.k, z FROM v, P WHERE v.k = P.k", live)[1] == 8
    assert answered(catalog, "SELECT z FROM P", live) == ([(1,)], None)
    assert answered(catalog, "SELECT COUNT(*) AS n FROM S", state(catalog, s=(s, END, None))) == ([(3,)], 9)
    assert answered(catalog, "SELECT COUNT(*) AS n FROM S", state(catalog, s=(s, NOTHING, None))) == ([(0,)], None)


def test_a_session_never_goes_back(catalog: Catalog) -> None:
    s = elements(catalog, "s", (1, "a", 1), (5, "b", 2))
    late, early = state(catalog, 7, s=(s, 8, None)), state(catalog, 6, s=(s, 2, None))
    assert answered(catalog, "SELECT k FROM S", late, early) == ([("a",), ("b",)], 8)


def test_the_whole_of_a_stream_is_what_is_kept_and_says_since_when(catalog: Catalog) -> None:
    s = elements(catalog, "s", (1, "a", 1), (5, "b", 2))
    reader = LiveReader(lambda: state(catalog, s=(s, 8, 3)))
    found = reader.answer(bind_select("SELECT k FROM S LIMIT 10", catalog).query)
    assert rows_of(found.answer.table) == [("b",)] and found.since == {"S": 3}


@pytest.mark.parametrize(
    ("text", "message"),
    [("SELECT k FROM S [RANGE 6 SECONDS]", "6 .*are needed"), ("SELECT k FROM T", "no elements of T"),
     ("SELECT k FROM S AS OF 9", "complete up to 8"), ("SELECT k FROM sums", "query sums has no answer")],
)  # fmt: skip
def test_what_is_not_kept(catalog: Catalog, text: str, message: str) -> None:
    s = elements(catalog, "s", (5, "b", 2))
    with pytest.raises(PenstockError, match=message) as caught:
        answered(catalog, text, state(catalog, s=(s, 8, 3)))
    assert caught.value.code == "P0721" and caught.value.hint


def test_rows_beyond_the_memory_are_refused(catalog: Catalog) -> None:
    s = elements(catalog, "s", *((i, "abc", i) for i in range(1000)))
    query = bind_select("SELECT k FROM S", catalog).query
    with pytest.raises(PenstockError) as caught:
        gather(query, state(catalog, s=(s, 2000, None)), memory=1000)
    assert caught.value.code == "P0724"


# -- names of queries --------------------------------------------------------------------------------------------


def test_the_name_of_a_query_is_its_answer_at_a_server(catalog: Catalog) -> None:
    query = bind_select("SELECT total FROM sums, large WHERE sums.k = large.k", catalog, query_names=QueryNames.ANSWER)
    assert {source.connector for source in sources_of(query.query).values()} == {"RESULTS"}
    script = bind_script("SELECT total FROM sums", catalog)
    assert set(sources_of(script.actions[0].query)) == {"S"}  # type: ignore[union-attr]


def test_a_continuous_query_of_a_server_reads_no_query(catalog: Catalog) -> None:
    from penstock.language.scripts.parse import parse_script
    from penstock.language.scripts.script_binder import ScriptBinder
    from penstock.settings import Settings

    script = parse_script("CREATE QUERY q AS SELECT total FROM sums")
    binder = ScriptBinder(script.source, catalog, Settings(), query_names=QueryNames.REFUSED)
    binder.bind(list(script.statements))
    (error,) = binder.errors
    assert error.code == "P0201" and "CREATE VIEW" in str(error.hint)


def test_answers_of_queries_are_read_by_name(tmp_path: Path, catalog: Catalog) -> None:
    sums, large = catalog.queries["sums"], catalog.queries["large"]
    inputs = {"S": elements(catalog, "s", (1, "a", 3), (2, "b", 7), (4, "a", 9), (13, "b", 8))}
    answers = run_local([sums, large], inputs).tables
    log = Log(tmp_path, sums, large)
    contents = ResultContents(tmp_path)
    ids = {name: (catalog.queries[name], f"{name}-1") for name in ("sums", "large")}
    for batch, until in enumerate((2, 12, END)):
        ticks = {name: table.column(0).cast(pa.int64()).to_numpy() for name, table in answers.items()}
        begin = (NOTHING, 2, 12)[batch]
        rows = {n: t.filter(pa.array((ticks[n] > begin) & (ticks[n] <= until))) for n, t in answers.items()}
        log.write(batch, rows, until)
    for batch, last in ((None, 2), (1, 1), (-1, -1), (9, 2)):
        assert state_of_results(tmp_path, ids, contents, batch).batch == last
    first = replace(state_of_results(tmp_path, ids, contents), batch=2)
    assert answered(catalog, "SELECT k, x FROM large", replace(first, delivered=100.0))[0] == [
        ("a", 9),
        ("b", 7),
        ("b", 8),
    ]
    select = "SELECT sums.k, total FROM sums"
    assert answered(catalog, select + " AS OF 4", replace(first, delivered=100.0)) == ([("a", 12), ("b", 7)], 4)
    both = "SELECT sums.k, total, COUNT(*) AS n FROM sums, large WHERE sums.k = large.k GROUP BY sums.k, total AS OF 2"
    assert answered(catalog, both, replace(first, delivered=100.0)) == ([("b", 7, 1)], 2)


# -- in another process ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", autouse=True)
def started_anew() -> Iterator[None]:
    """Here processes are started as a server starts them (`ready_processes` of conftest.py)."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("penstock.results.select_workers.process_command", process_command)
        yield


@pytest.fixture(scope="module")
def workers() -> Iterator[SelectWorkers]:
    workers = SelectWorkers(most=1, memory=200 * 2**20, timeout=60)
    workers.warm()
    yield workers
    workers.close()


def test_another_process_answers_the_same(catalog: Catalog, workers: SelectWorkers) -> None:
    s = elements(catalog, "s", *((i, f"k{i % 7}", i) for i in range(1000)))
    query = bind_select("SELECT k, SUM(x) AS t FROM S [RANGE 300 SECONDS] GROUP BY k ORDER BY k", catalog).query
    live = state(catalog, s=(s, 900, None))
    there, here = LiveReader(lambda: live, workers).answer(query), LiveReader(lambda: live).answer(query)
    assert there.answer.table.equals(here.answer.table) and there.answer.tick == 900


def test_errors_of_a_query_come_back_and_the_process_goes_on(catalog: Catalog, workers: SelectWorkers) -> None:
    s = elements(catalog, "s", (1, "a", 1), (2, "b", 1))
    live = state(catalog, s=(s, 5, None))
    failing = bind_select("SELECT z FROM P WHERE z = (SELECT x + z FROM S)", catalog).query
    with pytest.raises(PenstockError) as caught:
        LiveReader(lambda: live, workers).answer(failing)
    assert caught.value.code == "P0612"
    query = bind_select("SELECT k FROM S", catalog).query
    assert LiveReader(lambda: live, workers).answer(query).answer.table.num_rows == 2


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it counts page faults in /proc")
def test_a_query_like_the_one_before_needs_no_other_memory(catalog: Catalog) -> None:
    """Mapping memory anew, page by page, took up to two thirds of the time of a SELECT on a loaded machine."""
    n = 150_000
    s = elements(catalog, "s", *((i, "a", i) for i in range(n)))
    live = state(catalog, s=(s, n - 1, None))
    query = bind_select("SELECT k, COUNT(*) AS n FROM S [RANGE 150000 SECONDS] GROUP BY k", catalog).query
    workers = SelectWorkers(most=1, memory=200 * 2**20, timeout=120)
    try:
        faults = [0]
        for _ in range(6):
            assert rows_of(LiveReader(lambda: live, workers).answer(query).answer.table) == [("a", n)]
            stat = Path(f"/proc/{workers._idle[0]._popen.pid}/stat").read_text(encoding="ascii")
            faults.append(int(stat.rpartition(")")[2].split()[7]))
        pages = [later - before for before, later in pairwise(faults)]
        # The first ones take what the others use, which were some 5,300 pages each.
        assert max(pages[3:]) < 1_000 < pages[0], pages
    finally:
        workers.close()


def test_a_query_that_takes_too_much_is_ended(catalog: Catalog) -> None:
    n = 60_000
    s = elements(catalog, "s", *((i, "a", i) for i in range(n)))
    live = state(catalog, s=(s, n - 1, None))
    large = bind_select("SELECT a.x FROM S AS a, S AS b WHERE a.k = b.k", catalog).query
    limited = SelectWorkers(most=1, memory=100 * 2**20, timeout=120)
    short = SelectWorkers(most=1, memory=2**40, timeout=0.01)
    try:
        for workers, code in ((limited, "P0724"), (short, "P0725")):
            with pytest.raises(PenstockError) as caught:
                LiveReader(lambda: live, workers).answer(large)
            assert caught.value.code == code and caught.value.hint
        small = bind_select("SELECT COUNT(*) AS n FROM S [RANGE 5 SECONDS]", catalog).query
        assert rows_of(LiveReader(lambda: live, limited).answer(small).answer.table) == [(5,)]
    finally:
        limited.close()
        short.close()


def test_memory_that_is_refused_to_what_is_not_pythons_own_is_told_alike(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The system's own error, of an import that lists a folder or of a file that is mapped."""
    request = SelectRequest(pickle.dumps((None, {})), Strategy.PATTERN, 2**30, str(tmp_path / "rows"))
    for number, code in ((errno.ENOMEM, "P0724"), (errno.EIO, "P0601")):
        monkeypatch.setattr(select_process, "answer_over", Mock(side_effect=OSError(number, "told by the system")))
        found = select_process.answered(request)
        assert isinstance(found, PenstockError) and found.code == code


def test_a_process_that_is_ended_from_outside_and_a_full_disk_are_told(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each with an error of that query alone; the next one is answered."""
    s = elements(catalog, "s", *((i, "a", i) for i in range(60_000)))
    live = state(catalog, s=(s, 59_999, None))
    large = bind_select("SELECT COUNT(*) AS n FROM S AS a, S AS b WHERE a.k = b.k AND a.x + b.x = 7", catalog).query
    small = bind_select("SELECT COUNT(*) AS n FROM S [RANGE 5 SECONDS]", catalog).query
    one = SelectWorkers(most=1, memory=2**34, timeout=120)
    started: list[int] = []
    popen = subprocess.Popen

    def noted(*arguments: Any, **options: Any) -> Any:
        made = popen(*arguments, **options)
        started.append(made.pid)
        return made

    monkeypatch.setattr("penstock.results.worker_process.subprocess.Popen", noted)
    try:
        for number in (signal.SIGKILL, signal.SIGTERM):
            with ThreadPoolExecutor(1) as pool:
                future = pool.submit(LiveReader(lambda: live, one).answer, large)
                while not started or one._free:
                    time.sleep(0.01)
                time.sleep(0.2)
                assert os.getpgid(started[0]) != os.getpgid(0), "Ctrl-C would reach it"
                os.kill(started.pop(), number)
                with pytest.raises(PenstockError, match=r"P0601.*ended from outside"):
                    future.result(60)
        with monkeypatch.context() as full:
            full.setattr("penstock.results.select_workers.write_rows", Mock(side_effect=OSError(errno.ENOSPC, "full")))
            with pytest.raises(PenstockError, match=r"P0601.*cannot be stored: full") as caught:
                LiveReader(lambda: live, one).answer(small)
            assert caught.value.hint
        assert rows_of(LiveReader(lambda: live, one).answer(small).answer.table) == [(5,)]
    finally:
        one.close()


def test_a_process_leaves_without_a_word() -> None:
    """The server may end before it has answered."""
    process = subprocess.Popen(process_command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    request = SelectRequest(b"no pickle", Strategy.PATTERN, 2**34, "/nothing")
    write_message(process.stdin, pickle.dumps(request))
    assert isinstance(pickle.loads(read_message(process.stdout)), PenstockError)
    process.stdout.close()
    write_message(process.stdin, pickle.dumps(request))
    assert process.wait(60) == 0 and process.stderr.read() == b""
    process.stdin.close()
    process.stderr.close()


def test_a_query_that_is_cancelled_ends_at_once(catalog: Catalog, workers: SelectWorkers) -> None:
    s = elements(catalog, "s", *((i, "a", i) for i in range(60_000)))
    live = state(catalog, s=(s, 59_999, None))
    large = bind_select("SELECT COUNT(*) AS n FROM S AS a, S AS b WHERE a.k = b.k AND a.x + b.x = 7", catalog).query
    one = SelectWorkers(most=1, memory=2**34, timeout=120)
    running, waiting = Cancellation(), Cancellation()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(LiveReader(lambda: live, one).answer, large, running)
        while one._free:
            time.sleep(0.01)
        second = pool.submit(LiveReader(lambda: live, one).answer, large, waiting)
        for cancellation, future in ((waiting, second), (running, first)):
            assert not future.done()
            cancellation.set()
            with pytest.raises(PenstockError) as caught:
                future.result(timeout=20)
            assert caught.value.code == "P0726"
    assert one._free == 1 and not one._idle
    with pytest.raises(PenstockError, match="P0726"):
        LiveReader(lambda: live, workers).answer(large, running)
    small = bind_select("SELECT COUNT(*) AS n FROM S [RANGE 5 SECONDS]", catalog).query
    assert rows_of(LiveReader(lambda: live, workers).answer(small).answer.table) == [(5,)]
    one.close()


# -- against the oracle ------------------------------------------------------------------------------------------


def live_is_oracle(bound: BoundScript, inputs: Inputs, arrivals: Arrivals | None, run: CaseRun, drain: bool) -> None:
    """R(τ) of random queries, where τ is before the end of some streams."""
    draw = random.Random(str(run))
    for query in bound.queries if arrivals is None else ():
        once = as_of(query, None)
        sources = sources_of(once)
        if any(not s.is_static and (not s.is_stream or s.timestamp is None) for s in sources.values()):
            continue
        live = live_state(sources, inputs, draw)
        try:
            found = LiveReader(lambda live=live: live).answer(once)  # type: ignore[misc]
        except PenstockError as error:
            assert error.code == "P0612"
            continue
        if found.answer.tick is None:
            continue
        expected = run_oracle_once(replace(once, as_of=found.answer.tick), inputs)
        assert_same_rows(once, rows_of(found.answer.table), expected)


def live_state(sources: Mapping[str, Source], inputs: Inputs, draw: random.Random) -> LiveState:
    past = {}
    for name, source in sources.items():
        if source.is_static:
            continue
        kept = timely_rows(source, inputs[name])
        ticks = sorted({ts for ts, _ in kept})
        beat = draw.choice([*ticks, END]) if ticks else NOTHING
        schema = pa.schema([pa.field(f.name, f.type) for f in source.columns])
        columns = list(zip(*(row for _, row in kept), strict=True)) or [()] * len(schema)
        arrays = [pa.array(list(c), f.type) for c, f in zip(columns, schema, strict=True)]
        past[name.lower()] = Kept(source, pa.table(arrays, schema=schema), beat)
    statics = {name.lower(): RowsInMemory(inputs[name]) for name, source in sources.items() if source.is_static}
    return LiveState(0, 0.0, past=past, whole=statics)


@pytest.mark.spread(2)
@pytest.mark.parametrize("flavour", FLAVOURS, ids=lambda f: f.name)
def test_a_live_answer_is_that_of_the_oracle(flavour: Flavour, case_count: int | None, case_seed: int | None) -> None:
    explore(live_is_oracle, flavour, case_count or 2, case_seed)
