"""What the language has and nothing carries out is refused: it is neither accepted nor without effect."""

from __future__ import annotations

from pathlib import Path

import pytest
from control_kit import STREAM, SUM, server

from penstock.errors import PenstockError


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE QUERY p START WARM WAIT AS SELECT v FROM S;",
        "CREATE QUERY p WITH (weight '2') AS SELECT v FROM S;",
        "ALTER QUERY q SET (weight '0');",
        "ALTER QUERY q AS SELECT SUM(v) AS s FROM S [RANGE 3 SECONDS] START WARM WAIT;",
        "CREATE STREAM H (v INT, ts BIGINT) FROM HTTP (rate_limit '5') TIMESTAMP BY ts UNIT SECOND;",
    ],
)
def test_a_clause_without_effect_is_refused(statement: str, tmp_path: Path) -> None:
    with server(tmp_path) as system:
        system.done(STREAM + SUM)
        before = len(system.control.commands())
        with pytest.raises(PenstockError) as caught:
            system.run(statement)
        assert caught.value.code == "P0901", caught.value
        assert caught.value.hint
        assert len(system.control.commands()) == before
