"""STREAM's own regression suite: its ten scripts, translated to CQL, must answer as the Stanford prototype did.

The suite lies beside the repository (`../shared/conformance/stream`) or where PENSTOCK_CONFORMANCE says; without it
the tests are skipped. Answers are compared per instant as netted bags. The prototype prints an instant only when a
later element closes it, so that the last instant is missing from some of its outputs: that, and nothing else, may be
missing here.
"""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest
from stream_suite import SUITE, read_script

from penstock.language.scripts import bind_script
from penstock.runtime.local.runtime import run_local
from penstock.testing.cases import parse_value
from penstock.testing.compare import assert_same, check_shape, events_of
from penstock.testing.scalars.values import Event

pytestmark = pytest.mark.skipif(not SUITE.is_dir(), reason=f"no conformance suite at {SUITE}")


def read_expected(path: Path, types: tuple[pa.DataType, ...]) -> list[Event]:
    """Lines `[ts]:+:values` as events."""
    events: list[Event] = []
    for line in path.read_text(encoding="ascii").splitlines():
        match = re.fullmatch(r"\[(\d+)\]:([+-]):(.*)", line.strip())
        assert match, line
        cells = [cell.strip() for cell in match[3].split(",")]
        events.append((int(match[1]), match[2], tuple(map(parse_value, cells, types))))
    return events


@pytest.mark.parametrize("number", range(1, 11))
def test_stream_script(number: int) -> None:
    script = read_script(SUITE / "scripts" / f"test{number}")
    inputs = script.inputs()
    query = bind_script(script.text).queries[0]
    result = run_local([query], inputs, shards=2, seed=number)
    table = result.tables[query.name]
    expected = read_expected(SUITE / "expected" / f"test{number}", query.root.schema.types)
    last = max(int(rows["ts"][-1].as_py()) for rows in inputs.values())
    left_out = {last} - {ts for ts, _, _ in expected}
    check_shape(events_of(query, table))
    assert_same(query, table, expected, ignore=left_out)
