"""What a run counts: it must not grow with what is in its input."""

from __future__ import annotations

from pathlib import Path

from penstock.runtime.spark.checkpoint.folder import Folder, Seen
from penstock.runtime.spark.checkpoint.totals import MOST_REASONS, OTHER_REASONS, RunTotals


def test_reasons_of_malformed_records_are_bounded(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    accounts = RunTotals(folder)
    for batch in range(3):
        reasons = {f"{batch * 1000 + n} bytes too many": 2 for n in range(500)} | {"broken": 1}
        folder.write_seen(f"{batch:09d}", "s", 0, Seen(rows=1001, malformed=reasons))
        accounts.close_batch()
    found = RunTotals(folder)._totals.sources["s"].malformed
    assert len(found) == MOST_REASONS + 1
    assert found["0 bytes too many"] == 2
    assert sum(found.values()) == 3 * 1001 and found[OTHER_REASONS] > 2 * 1000
