"""Publish the tapped edges from the driver to its workers, in a file that is there only while there are some.

It is no part of a round: no result depends on it. A task looks for it once.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

from penstock.physical.execution.flow_counts import TappedPort
from penstock.storage import storage

_FILE = "taps.json"


def publish_taps(root: Path, taps: Collection[TappedPort]) -> None:
    """Write for the workers which edges are tapped. root: the folder of the run."""
    path = root / _FILE
    if not taps:
        if storage().exists(path):
            storage().remove(path)
        return
    storage().write(path, json.dumps(sorted(taps)).encode(), durable=False)


def published_taps(root: Path) -> frozenset[TappedPort]:
    """Return the edges that are tapped; none where the file is being changed."""
    try:
        data = storage().read(root / _FILE)
        return frozenset((str(key), int(port)) for key, port in json.loads(data))
    except (OSError, ValueError):
        return frozenset()
