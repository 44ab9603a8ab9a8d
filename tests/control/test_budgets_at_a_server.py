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


def budget(system: Server, name: str = "q") -> tuple[int, str]:
    root = system.control.catalog.queries[name].root
    (shed,) = (node for node in operators(root) if isinstance(node, Shed))
    return shed.budget, shed.policy


def test_a_budget_goes_with_what_it_is_of(tmp_path: Path) -> None:
    system = Server(tmp_path)
    other = QUERY.replace("QUERY q", "QUERY p").replace("2 TUPLES', shed 'newest'", "5 TUPLES', shed 'random'")
    system.done(STREAM + QUERY + other)
    system.done("ALTER QUERY q SWAP WITH p")
    assert (budget(system), budget(system, "p")) == ((5, "random"), (2, "newest"))
    system.control.close()
    again = Server(tmp_path, system.engine)
    assert (budget(again), budget(again, "p")) == ((5, "random"), (2, "newest"))
    assert again.status("q") == again.status("p") == "RUNNING"
    again.control.close()


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
