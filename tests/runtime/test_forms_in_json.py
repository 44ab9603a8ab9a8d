"""The forms of manifests, marks and reports in JSON: fixed, since a change needs another number of a format."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from penstock.figures import ENDED_ON_ARRIVAL, OTHER_DELAYS, PREFERENCE_RESULTS
from penstock.physical.execution.flow_counts import FlowCounts
from penstock.physical.execution.marks import StageMarks
from penstock.physical.execution.meter import SynopsisSize
from penstock.physical.execution.progress import SourceProgress
from penstock.runtime.monitoring.reports import IngestReport, ShardReport, report_from_json
from penstock.runtime.state.shard_manifest import FileManifest, ManifestChange, ShardManifest, StoredSynopsis
from penstock.storage.documents import array, flag, integer, integer_pairs, nested, text

MARKS = (
    '{"progress": {"S": [1, 5, false, -9, -10]}, "firsts": {"0": {"S": 1, "R": null}}, '
    '"operators": {"k": {"done": null}}}'
)
STAGE = (
    f'{{"token": "t", "epoch": 2, "marks": {MARKS}, "synopses": {{"k.rows": {{"next": 3, "log": [1, 3]}}}}, '
    '"chunks": {"k.rows": [1, 3]}, "formats": {"k.rows": ["KeyedTable", 4]}, "rows": {"k.rows": 10}}'
)
FILE = f'{{"format": 7, "stage": {STAGE}, "files": {{"a.arrow": {{"k.rows.1": [0, 8, 99]}}}}, "dead": ["b.arrow"]}}'
CHANGE = (
    FILE[:-1] + ', "base": "1.base", "gone": {"synopses": ["j.rows"], "firsts": [1], "operators": ["j"], '
    '"files": ["c.arrow"], "chunks": {"d.arrow": ["j.rows.1"]}}}'
)
REPORTS = {
    '{"stage": 0, "task": 3, "phases": {"read": 0.5}}': IngestReport(3, {"read": 0.5}),
    '{"stage": 0, "task": 3, "phases": {}, "figures": {"2": {"ended on arrival": 4}}}': IngestReport(
        3, {}, figures={2: {ENDED_ON_ARRIVAL: 4}}
    ),
    '{"stage": 1, "shard": 2, "phases": {}, "seconds": {}, "figures": {"5": {"preference results": 9, '
    '"preference delay other": {"-12": 2, "40": 7}}}}': ShardReport(
        1, 2, {}, {}, figures={5: {PREFERENCE_RESULTS: 9, OTHER_DELAYS: {-12: 2, 40: 7}}}
    ),
    '{"stage": 1, "shard": 2, "phases": {}, "seconds": {"4": 0.25}}': ShardReport(1, 2, {}, {4: 0.25}),
    '{"stage": 0, "task": 3, "phases": {}, "rows_in": {"1.0": 7}, "rows_out": {"0": 7, "1": 5}}': IngestReport(
        3, {}, FlowCounts({(1, 0): 7}, {0: 7, 1: 5})
    ),
    '{"stage": 1, "shard": 2, "phases": {}, "seconds": {}, "rows_in": {"4.1": 5}, "bytes_in": {"4.1": 80}, '
    '"state": {"4": {"groups": ["KeyedTable", 10, 800]}}}': ShardReport(
        1, 2, {}, {}, {4: {"groups": SynopsisSize("KeyedTable", 10, 800)}}, FlowCounts({(4, 1): 5}, {}, {(4, 1): 80})
    ),
    '{"stage": 1, "shard": 2, "phases": {}, "seconds": {}, '
    '"state": {"4": {"held": ["HeldRows", 10, 800, null, null, null, {"UNIQUE id of O": 7}]}}}': ShardReport(
        1, 2, {}, {}, {4: {"held": SynopsisSize("HeldRows", 10, 800, closed={"UNIQUE id of O": 7})}}
    ),
}


def test_a_manifest_is_written_as_it_was_read() -> None:
    assert json.dumps(FileManifest.from_json(json.loads(FILE)).as_json(7)) == FILE


def test_a_change_of_a_manifest_is_written_as_it_was_read() -> None:
    assert json.dumps(ManifestChange.from_json(json.loads(CHANGE)).as_json(7)) == CHANGE


def test_what_a_manifest_holds() -> None:
    found = ShardManifest.from_json(json.loads(STAGE))
    marks = StageMarks({"S": SourceProgress(1, 5, False, -9, -10)}, {0: {"S": 1, "R": None}}, {"k": {"done": None}})
    stored = StoredSynopsis({"next": 3, "log": [1, 3]}, [1, 3], "KeyedTable", 4, 10)
    assert found == ShardManifest("t", 2, marks, {"k.rows": stored})
    assert found.chunks == {"k.rows.1", "k.rows.3"}


@pytest.mark.parametrize("written", REPORTS)
def test_a_report_is_written_as_it_was_read(written: str) -> None:
    assert report_from_json(json.loads(written)) == REPORTS[written]
    assert json.dumps(REPORTS[written].as_json()) == written


@pytest.mark.parametrize(
    ("read", "value"),
    [(integer, "1"), (integer, None), (flag, 1), (text, 1), (array, "ab"), (nested, [1]), (integer_pairs, [[1, "a"]])],
)
def test_a_field_of_another_type_is_refused_by_its_name(read: Callable[..., object], value: object) -> None:
    with pytest.raises(TypeError, match="the field n holds"):
        read({"n": value}, "n")


def test_a_damaged_manifest_is_refused() -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        FileManifest.from_json({"format": 7, "stage": {"token": "t"}})
