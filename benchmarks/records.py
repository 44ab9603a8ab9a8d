"""What a bench leaves in benchmarks/results/: figures with machine and versions; and what lies there from before."""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import json
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock import __version__

FOLDER = Path(__file__).parent / "results"
_LIBRARIES = ("pyspark", "pyarrow", "numpy", "numba")


def save(bench: str, memory: str, figures: Sequence[Mapping[str, Any]]) -> Path:
    """The file that holds `figures` of the bench of that name."""
    FOLDER.mkdir(exist_ok=True)
    now = dt.datetime.now(dt.UTC)
    path = FOLDER / f"{now:%Y-%m-%dT%H%M%S}.json"
    record = {
        "bench": bench,
        "when": now.isoformat(timespec="seconds"),
        "machine": {"system": platform.platform(), "cores": os.cpu_count(), "processor": _processor()},
        "versions": {"penstock": __version__, "python": platform.python_version()}
        | {name: importlib.metadata.version(name) for name in _LIBRARIES},
        "memory": memory,
        "figures": list(figures),
    }
    path.write_text(json.dumps(record, indent=2) + "\n")
    return path


def last(bench: str) -> list[dict[str, Any]]:
    """All figures of this bench on this kind of machine, from the oldest file to the newest."""
    found: list[dict[str, Any]] = []
    for path in sorted(FOLDER.glob("*.json")):
        record = json.loads(path.read_text())
        same = record["machine"]["processor"] == _processor() and record["machine"]["cores"] == os.cpu_count()
        if record.get("bench", "queries") == bench and same:
            found += record["figures"]
    return found


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
