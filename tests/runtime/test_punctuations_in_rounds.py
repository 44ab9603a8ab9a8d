"""Punctuations in the rounds of a job: of statements beside files, kept in the offset and in files. What a round reads
and knows stands in its offset, so that a round that is planned again is the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.algebra.properties.punctuations import Punctuation, ValueBounds
from penstock.connectors.contract import ParsedRecords, SkippedRecords
from penstock.control.row_changes import no_rows
from penstock.errors import PenstockError
from penstock.language.scripts import bind_script
from penstock.physical.execution.progress import SourceProgress
from penstock.physical.synopses.promises.punctuations import Punctuations
from penstock.runtime.skipped_records import progress_after
from penstock.runtime.spark.checkpoint.epochs import source_file
from penstock.runtime.spark.checkpoint.folder import Folder, Seen, round_name
from penstock.runtime.spark.checkpoint.kept_punctuations import (
    KeptPlace,
    forget_files,
    kept_punctuations,
    with_files,
)
from tests.runtime.test_heartbeats_in_rounds import Rounds

_MOST = 1_000


def one(value: int) -> Punctuation:
    return Punctuation(((0, (value,)),))


#: The stream S in the files of a checkpoint.
_S = source_file("S", {})


def read(folder: Folder, place: KeptPlace) -> set[Punctuation]:
    return set(kept_punctuations(folder, _S, place, _MOST))


def test_punctuations_of_statements_are_read_ahead_of_rows_and_once(tmp_path: Path) -> None:
    rounds = Rounds(tmp_path)
    rounds.put(1)
    for value in (5, 9):
        rounds.posted.post(rounds.source, 7, no_rows(rounds.source), record=one(value))
    (task,) = rounds.next()
    assert [split.record for split in task.splits] == [one(5), one(9), None]
    assert (rounds.offset.advanced, task.punctuations) == ({"S": "7.2"}, KeptPlace())
    texts = [one(5).as_text(), one(9).as_text()]
    rounds.folder.write_seen(round_name(1), 0, [("S", Seen(1, rows=1, punctuations=texts))])
    assert rounds.next() == []
    rounds.put(10)
    (task,) = rounds.next()
    assert [split.record for split in task.splits] == [None]
    assert read(rounds.folder, task.punctuations) == {one(5), one(9)}, "they are known of the rows behind them"


def test_many_go_into_files_which_a_round_that_is_planned_again_writes_again(tmp_path: Path) -> None:
    rounds = Rounds(tmp_path)
    rounds.is_killed = False
    said: set[Punctuation] = set()
    for number in range(1, 25):
        rounds.put(number)
        (task,) = rounds.next()
        assert read(rounds.folder, task.punctuations) == said
        news = [one(100 * number + i) for i in range(40)]
        said |= set(news)
        seen = Seen(number, rows=1, punctuations=[each.as_text() for each in news])
        rounds.folder.write_seen(round_name(rounds.offset.round), 0, [("S", seen)])
    place = rounds.offset.punctuations["S"]
    assert place.count == 23 * 40 and len(place.fresh) <= 64 and len(place.files) <= 6
    left = list((rounds.folder.root / "punctuations" / _S).iterdir())
    assert len(left) <= 12, "those that no offset needs are removed"
    text = place.as_json()
    assert KeptPlace.from_json(text) == place


def test_what_others_contain_goes_when_files_are_merged(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    place = KeptPlace()
    for number in range(1, 4):
        bounds = [Punctuation(((0, ValueBounds(high=100 * number + i)),)) for i in range(70)]
        place = with_files(folder, _S, place.after(each.as_text() for each in bounds), number)
    assert place.count == 1 and read(folder, place) == {Punctuation(((0, ValueBounds(high=369)),))}
    forget_files(folder, _S, place.files, 4)
    assert [path.name for path in (tmp_path / "punctuations" / _S).iterdir()] == list(place.files)
    (path,) = (tmp_path / "punctuations" / _S).iterdir()
    path.write_text("other")
    with pytest.raises(PenstockError, match="P0605"):
        kept_punctuations(Folder(tmp_path / "." / "x" / ".."), _S, place, _MOST)


def test_records_that_no_query_reads_are_checked_where_punctuations_are_kept() -> None:
    """A reader that skips records by statistics knows nothing of what they fulfil."""
    plain, spoken = (
        bind_script(f"CREATE STREAM S (a BIGINT, p STRING) FROM MEMORY () TIMESTAMP BY a {clause};").catalog.sources[
            "s"
        ]
        for clause in ("", "PUNCTUATED BY p")
    )

    from penstock.connectors.contract import ParsedRecords

    rows = pa.record_batch({"a": pa.array([5, 6], pa.int64()), "p": pa.array([None, None], pa.string())})

    def parsed(columns: tuple[int, ...]) -> Iterator[ParsedRecords]:
        yield ParsedRecords(rows.select(list(columns)))

    skipped = SkippedRecords(2, 5, 6, parsed)
    kept = SourceProgress(punctuations=Punctuations().added([one(6)]))
    assert progress_after(plain, skipped, SourceProgress()) is not None
    assert progress_after(plain, skipped, kept) is None, "one of them is punctuated"
    assert progress_after(spoken, skipped, SourceProgress()) is not None
