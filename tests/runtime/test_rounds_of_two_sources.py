"""Files of two sources that meet in a query and appear together are read in one round."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.algebra.nodes.scans import Scan
from penstock.language.scripts import bind_script
from penstock.physical.execution.wall_clock import peers_of
from penstock.runtime.spark.checkpoint.folder import Folder, Intake
from penstock.runtime.spark.input.input_planner import InputPlanner, Offset
from penstock.tree import walk

MEETING = "CREATE QUERY q AS SELECT A.x, B.x AS y FROM A [RANGE 5 SECONDS], B [RANGE 5 SECONDS] WHERE A.x = B.x;"
APART = "CREATE QUERY q AS SELECT x FROM A; CREATE QUERY p AS SELECT x FROM B;"


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Rounds:
    """The rounds of two watched folders, each planned after a round of a fifth of a second."""

    def __init__(self, folder: Path, queries: str) -> None:
        self._data = folder
        self.clock = Clock()
        script = "".join(
            f"CREATE STREAM {name} (ts TIMESTAMP, x INT) FROM FILES (path '{folder}/{name}', format 'parquet', "
            "watch 'true') TIMESTAMP BY ts;\n"
            for name in "AB"
        )
        for name in "AB":
            (folder / name).mkdir()
        roots = [query.root for query in bind_script(script + queries).queries]
        sources = {n.source.name: n.source for root in roots for n in walk(root) if isinstance(n, Scan)}
        job = Folder(folder / "job")
        job.root.mkdir()
        intake = Intake((sources["A"], sources["B"]), frozenset(), 2, peers=peers_of(roots))
        self._planner = InputPlanner(job, intake, timer=self.clock)
        self._offset: Offset = self._planner.start()

    def write(self, name: str, number: int) -> None:
        table = pa.table({"ts": pa.array([number], pa.timestamp("us")), "x": pa.array([number], pa.int32())})
        pq.write_table(table, self._data / name / f"{number:03d}.parquet")

    def planned(self, after: float = 0.021) -> dict[str, int]:
        """Return by source the number of files read once the time `after` has passed."""
        self.clock.now += after
        self._offset = self._planner.next(self._offset, 0.2)
        return dict(self._offset.done)


@pytest.mark.parametrize("second", ["A", "B"])
def test_a_round_is_held_back_for_a_file_that_appears_a_moment_later(tmp_path: Path, second: str) -> None:
    rounds = Rounds(tmp_path, MEETING)
    rounds.write("A" if second == "B" else "B", 1)
    assert rounds.planned() == {"A": 0, "B": 0}
    rounds.write(second, 1)
    assert rounds.planned(after=0.005) == {"A": 1, "B": 1}


def test_a_round_is_not_held_back_for_long(tmp_path: Path) -> None:
    rounds = Rounds(tmp_path, MEETING)
    rounds.write("A", 1)
    assert rounds.planned() == {"A": 0, "B": 0}
    assert rounds.planned(after=0.019) == {"A": 0, "B": 0}
    assert rounds.planned(after=0.002) == {"A": 1, "B": 0}


def test_a_quiet_source_holds_nothing_back(tmp_path: Path) -> None:
    rounds = Rounds(tmp_path, MEETING)
    rounds.write("A", 1)
    assert rounds.planned(after=60.0) == {"A": 1, "B": 0}


def test_sources_that_meet_in_no_query_hold_nothing_back(tmp_path: Path) -> None:
    rounds = Rounds(tmp_path, APART)
    rounds.write("A", 1)
    assert rounds.planned() == {"A": 1, "B": 0}
