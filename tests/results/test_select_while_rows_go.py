"""One-time queries over the answers of queries while rows of the log are removed: what was fixed stays, and an answer
says since when its elements are there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from result_kit import ITEMS, Log, changes, relation, stream

from penstock.algebra.nodes.query import Query
from penstock.connectors.results.result_folder import RemovedRows, ResultFolder
from penstock.errors import PenstockError
from penstock.language.scripts import QueryNames, bind_script, bind_select
from penstock.results.content import ResultContents
from penstock.results.live_state import LiveState, ResultElements, state_of_results
from penstock.results.select import LiveAnswer, LiveReader
from penstock.testing.one_time import rows_of

CATALOG = bind_script("""
    CREATE STREAM input (ts INT, k STRING, x BIGINT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
    CREATE QUERY s AS SELECT ISTREAM(k, x) FROM input [NOW]; CREATE QUERY r AS SELECT k, x FROM input [RANGE 5 SECONDS];
""").catalog


class Answers:
    """The log of a stream `s` and of a relation `r`."""

    def __init__(self, folder: Path) -> None:
        self.queries: dict[str, Query] = {"s": stream("s", ITEMS), "r": relation("r", ITEMS)}
        self.log = Log(folder, *self.queries.values())
        self.folder = ResultFolder.at(folder)
        self.contents = ResultContents(folder)
        self.contents.guard()

    def write(self, batch: int, beat: int, s: tuple[object, ...] = (), r: tuple[object, ...] = ()) -> None:
        rows = {name: changes(self.queries[name], *some) for name, some in (("s", s), ("r", r)) if some}
        self.log.write(batch, rows, beat)

    def remove(self, batch: int) -> None:
        """Remove the rows of the stream in a batch, and the file, as the writer does."""
        file = self.folder.file(batch)
        assert file is not None and set(file.sections) <= {"s-1"}
        if file.sections:
            section = file.sections["s-1"]
            self.folder.remove_before({"s-1": RemovedRows(batch, section.rows, section.high)})
        self.folder.remove(batch)

    def state(self, batch: int | None = None) -> LiveState:
        ids = {name: (CATALOG.queries[name], f"{name}-1") for name in self.queries}
        return state_of_results(self.folder.path, ids, self.contents, batch)


def answer(text: str, state: LiveState) -> LiveAnswer:
    query = bind_select(text, CATALOG, query_names=QueryNames.ANSWER).query
    return LiveReader(lambda: state).answer(query)


def test_an_instant_of_which_a_part_has_gone_is_not_said_to_be_there(tmp_path: Path) -> None:
    """Rows of one instant stand in two batches where the first came early."""
    answers = Answers(tmp_path)
    answers.write(0, 4, ((1, "a", 1), (5, "b", 2)))
    answers.write(1, 8, ((5, "c", 3), (7, "d", 4)))
    whole = answer("SELECT k FROM s [RANGE 3 SECONDS] AS OF 7", answers.state())
    assert sorted(rows_of(whole.answer.table)) == [("b",), ("c",), ("d",)] and not whole.since
    answers.remove(0)
    with pytest.raises(PenstockError, match="kept since 5, 3 SECOND before 7 are needed") as refused:
        answer("SELECT k FROM s [RANGE 3 SECONDS] AS OF 7", answers.state())
    assert refused.value.code == "P0721"
    found = answer("SELECT k FROM s", answers.state())
    assert rows_of(found.answer.table) == [("d",)] and found.since == {"s": 5}
    two = answer("SELECT k FROM s [RANGE 2 SECONDS] AS OF 7", answers.state())
    assert rows_of(two.answer.table) == [("d",)] and not two.since


def test_the_instant_is_that_of_the_batch_though_its_file_goes_meanwhile(tmp_path: Path) -> None:
    answers = Answers(tmp_path)
    answers.write(0, 4, r=((2, "+", "a", 1), (3, "+", "b", 2)))
    answers.write(1, 6)
    fixed = answers.state()
    answers.write(2, 9, r=((8, "-", "a", 1),))
    answers.remove(1)
    found = answer("SELECT k FROM r", fixed)
    assert (found.batch, found.answer.tick) == (1, 6)
    assert sorted(rows_of(found.answer.table)) == [("a",), ("b",)]


@pytest.mark.parametrize("goes_first", [True, False])
def test_rows_that_go_while_they_are_read_are_not_left_out_silently(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, goes_first: bool
) -> None:
    answers = Answers(tmp_path)
    for batch in range(4):
        answers.write(batch, 2 * batch + 2, ((2 * batch + 1, "a", batch), (2 * batch + 2, "b", batch)))
    original, going = ResultElements.elements, [0, 1]

    def elements(self: ResultElements, *arguments: object) -> object:
        def remove() -> None:
            if going:
                answers.remove(going.pop(0))

        if goes_first:
            remove()
        return original(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(ResultElements, "elements", elements)
    if not goes_first:
        removing: Callable[[int], object] = answers.folder.file

        def file(batch: int) -> object:
            if going and batch == going[0]:
                answers.remove(going.pop(0))
            return removing(batch)

        monkeypatch.setattr(answers.folder, "file", file)
    found = answer("SELECT x FROM s", answers.state())
    (since,) = found.since.values()
    expected = [(batch,) for batch in range(4) for tick in (2 * batch + 1, 2 * batch + 2) if tick > since]
    assert rows_of(found.answer.table) == expected and expected
    going[:] = []
    with pytest.raises(PenstockError) as refused:
        answer("SELECT x FROM s [RANGE 8 SECONDS]", answers.state())
    assert refused.value.code == "P0721"


def test_a_stream_of_which_nothing_is_kept_is_empty_and_says_so(tmp_path: Path) -> None:
    answers = Answers(tmp_path)
    answers.write(0, 4, ((1, "a", 1), (3, "b", 2)))
    answers.write(1, 9)
    answers.remove(0)
    found = answer("SELECT ts, k FROM s", answers.state())
    assert not rows_of(found.answer.table) and found.answer.tick == 9 and found.since == {"s": 3}
    assert [one.message for one in found.notices] == ["rows of query s up to 3 are no longer kept"]
    # What has gone ends before the window, so the window is known to be empty.
    window = answer("SELECT COUNT(*) AS n FROM s [RANGE 5 SECONDS]", answers.state())
    assert rows_of(window.answer.table) == [(0,)] and not window.notices
    before = answer("SELECT k FROM s AS OF 2", answers.state())
    assert not rows_of(before.answer.table) and before.notices
    with pytest.raises(PenstockError, match="kept since 3, 8 SECOND before 9 are needed"):
        answer("SELECT k FROM s [RANGE 8 SECONDS]", answers.state())


def test_a_stream_that_is_not_kept_here_is_empty_and_says_so(tmp_path: Path) -> None:
    answers = Answers(tmp_path)
    answers.write(0, 4, r=((2, "+", "a", 1), (3, "+", "b", 2)))
    state = answers.state()
    found = answer("SELECT COUNT(*) AS n FROM s", LiveState(0, None, contents=state.contents))
    assert rows_of(found.answer.table) == [(0,)] and found.answer.tick is None
    assert [one.message for one in found.notices] == ["no rows of query s are kept here"]
    joined = answer("SELECT r.k FROM r LEFT JOIN s ON r.k = s.k", LiveState(0, None, contents=state.contents))
    assert sorted(rows_of(joined.answer.table)) == [("a",), ("b",)] and joined.answer.tick == 4


def test_what_is_read_and_not_final_is_said(tmp_path: Path) -> None:
    answers = Answers(tmp_path)
    answers.write(0, 4, ((1, "a", 1),))
    state = replace(answers.state(), newest={"s": 5})
    (notice,) = answer("SELECT k FROM s", state).notices
    assert notice.message == "rows up to 5 have been read, and the answer is as of 4" and notice.hint
    assert not answer("SELECT k FROM s AS OF 3", state).notices
    assert not answer("SELECT k FROM s", replace(state, newest={"s": 4})).notices


def test_the_timestamp_of_a_stream_is_its_first_column(tmp_path: Path) -> None:
    answers = Answers(tmp_path)
    answers.write(0, 4, ((1, "a", 1), (3, "b", 2)), ((2, "+", "c", 3),))
    found = answer("SELECT * FROM s WHERE ts > 1", answers.state()).answer.table
    assert found.column_names == ["ts", "k", "x"] and rows_of(found) == [(3, "b", 2)]
    assert answer("SELECT * FROM r", answers.state()).answer.table.column_names == ["k", "x"]
    with pytest.raises(PenstockError, match="P0202"):
        answer("SELECT ts FROM r", answers.state())
