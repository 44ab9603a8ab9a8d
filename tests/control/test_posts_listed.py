"""The folder of the posts of a relation, which all stay, is listed once a round; that of a stream once more, where what
has been read is removed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.storage import local
from tests.control.control_kit import STREAM, SUM, server

RELATION = (
    "CREATE RELATION R (ts INT, k INT, PRIMARY KEY (k)) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;"
    "CREATE QUERY q AS SELECT k FROM R;"
)


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Return how often each folder has been listed, by its last name."""
    counts: Counter[str] = Counter()
    real = local.LocalStorage.list

    def counted(self: local.LocalStorage, folder: Path) -> list[str]:
        counts[folder.name] += 1
        return real(self, folder)

    monkeypatch.setattr(local.LocalStorage, "list", counted)
    return counts


@pytest.mark.parametrize(("script", "name", "count"), [(STREAM + SUM, "S", 2), (RELATION, "R", 1)])
def test_how_often_in_a_round(tmp_path: Path, listed: Counter[str], script: str, name: str, count: int) -> None:
    with server(tmp_path) as live:
        live.done(script)
        columns = ("ts", "v" if name == "S" else "k")
        for at in range(3):
            live.control.insert(name, pa.table({one: pa.array([at], pa.int32()) for one in columns}))
            listed.clear()
            live.engine.round()
            (number,) = [int(folder) for folder in listed if folder.isdecimal()]
            assert listed[str(number)] == count, listed
