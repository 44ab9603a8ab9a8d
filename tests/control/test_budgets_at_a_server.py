"""Budgets of queries at a server: kept over a restart and another definition, and printed with the declarations."""

from __future__ import annotations

from pathlib import Path

import pytest
from control_kit import STREAM, Server

from penstock.algebra import Shed
from penstock.algebra.nodes.base import operators
from penstock.errors import PenstockError

QUERY = (
    "CREATE QUERY q WITH (memory '2 TUPLES', shed 'newest') AS"
    " SELECT v, VALID(s) FROM S (v) VALID FOR 3 SECONDS [RANGE 60 SECONDS] AS s;"
)


def budget(system: Server) -> tuple[int, str]:
    root = system.control.catalog.queries["q"].root
    (shed,) = (node for node in operators(root) if isinstance(node, Shed))
    return shed.budget, shed.policy


def test_a_budget_outlives_a_restart_and_another_definition(tmp_path: Path) -> None:
    system = Server(tmp_path)
    system.done(STREAM + QUERY)
    assert budget(system) == (2, "newest")
    system.control.close()
    again = Server(tmp_path, system.engine)
    assert budget(again) == (2, "newest")
    again.done("ALTER QUERY q AS SELECT v, VALID(s) FROM S (v) VALID FOR 4 SECONDS [RANGE 60 SECONDS] AS s;")
    assert budget(again) == (2, "newest")
    with pytest.raises(PenstockError) as refused:
        again.done("ALTER QUERY q SET (memory '9 TUPLES')")
    assert "P0104" in str(refused.value) or refused.value.code == "P0104"
    again.control.close()
