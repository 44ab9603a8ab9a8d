"""What the daemon does before workers are forked from it."""

from __future__ import annotations

import sys

from penstock.runtime.spark.daemon import warm


def test_the_daemon_loads_what_workers_run() -> None:
    warm()
    assert {"penstock.runtime.spark.ingest", "penstock.runtime.spark.stage"} <= sys.modules.keys()
