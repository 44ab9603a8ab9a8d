"""Random whole catalogs one after the other, with restarts and loss of power between: what is declared is always what a
fresh system declares of the last one."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from control_kit import Server, server
from mortal_storage import MortalStorage

from penstock.testing.faults import LOSSES, PowerCut

SOURCES = ("s", "`t ;`", "r")
VIEWS = ("v", "w", "`x'`")
QUERIES = ("p", "q", '`y"`')


def catalog(seed: int) -> str:
    """Return a script with some of the names: what each means differs from seed to seed."""
    dice = random.Random(seed)
    lines, readable = [], []
    for name in SOURCES:
        if dice.random() < 0.8:
            kind = dice.choice(("STREAM", "STREAM", "VIEW")) if readable else "STREAM"
            if kind == "VIEW":
                lines.append(f"CREATE VIEW {name} AS SELECT a, b FROM {dice.choice(readable)}")
            else:
                retain = dice.choice(("", "RETAIN 10 SECONDS", "RETAIN 1 HOUR"))
                slack = dice.choice(("", "", "ORDER WITHIN 2 SECONDS"))
                connector = dice.choice(("MEMORY ()", "HTTP ()"))
                columns = "(ts INT, a INT, b INT)"
                clauses = f"TIMESTAMP BY ts UNIT SECOND {slack} {retain}"
                lines.append(f"CREATE STREAM {name} {columns} FROM {connector} {clauses}")
            readable.append(name if kind == "VIEW" else f"{name} [RANGE 5 SECONDS]")
    for name in VIEWS if readable else ():
        if dice.random() < 0.7:
            lines.append(
                f"CREATE VIEW {name} AS SELECT a, b FROM {dice.choice(readable)} WHERE a > {dice.randrange(2)}"
            )
            readable.append(name)
    for name in QUERIES if readable else ():
        if dice.random() < 0.7:
            attributes = dice.choice(("", "WITH (comment 'c')", "WITH (comment 'd', on_failure 'stop server')"))
            shape = dice.choice(("SUM(a) AS n", "SUM(b) AS n", "COUNT(*) AS n", "MAX(a) AS m"))
            lines.append(f"CREATE QUERY {name} START NOW {attributes} AS SELECT {shape} FROM {dice.choice(readable)}")
    return ";\n".join(lines)


def declared(system: Server) -> dict[str, Any]:
    bound, stored = system.control.catalog, system.control.stored.values()
    found: dict[str, Any] = {key: (one, one.retain) for key, one in bound.sources.items()}
    found |= {key: (one.root.fingerprint, one.names) for key, one in bound.views.items()}
    found |= {key: (one.root.fingerprint, one.sink) for key, one in bound.queries.items()}
    assert len(found) == len(stored)
    return found | {one.name: (dict(one.attributes), one.query.status) for one in stored if one.query is not None}


def fresh(folder: Path, script: str) -> dict[str, Any]:
    with server(folder) as system:
        system.control.apply(script)
        return declared(system)


@pytest.mark.spread(2)
@pytest.mark.parametrize("seed", range(4))
def test_one_after_the_other(seed: int, tmp_path: Path) -> None:
    place = tmp_path / "all"
    for step in range(8):
        script = catalog(1000 * seed + step)
        expected = fresh(tmp_path / str(step), script)
        with server(place) as system:
            shown = [one.text for one in system.control.apply(script, dry=True)]
            done = system.control.apply(script)
            assert [one.text for one in done] == shown
            assert [one for one in done if one.outcome is not None and one.outcome.error] == []
            assert declared(system) == expected, script
            assert system.control.apply(script) == []
            assert system.control.apply(system.control.catalog_text()) == []
            for source in [key for key, one in system.control.catalog.sources.items() if one.connector == "MEMORY"]:
                system.done(f"INSERT INTO `{source}` VALUES ({step}, 1, 2)")


def test_power_that_goes(tmp_path: Path) -> None:
    """All of it or nothing, wherever power goes in between; posted again with its key it happens once."""
    before, after = catalog(1), catalog(7)
    wanted = [fresh(tmp_path / name, text) for name, text in (("a", before), ("b", after))]
    number, cuts = 8, 0
    while cut_once(tmp_path / str(number), number, before, after, wanted):
        number, cuts = number + 3, cuts + 1
    assert cuts > 2


def cut_once(place: Path, number: int, before: str, after: str, wanted: list[dict[str, Any]]) -> bool:
    """Lose power at one call of a server that applies a catalog; return whether it went."""
    checkpoint, spare = place / "checkpoint", place / "spare"
    for folder in (checkpoint, spare):
        folder.mkdir(parents=True)
    with server(checkpoint) as system:
        system.control.apply(before)
    calls = PowerCut(spare, number)
    with MortalStorage(calls).living():
        system = Server(checkpoint)
        system.control.apply(after, key="k")
        system.control.close()
        assert declared(system) == wanted[1]
        return False
    calls.lose(LOSSES[number % len(LOSSES)], random.Random(number), [checkpoint])
    with server(checkpoint) as system:
        assert declared(system) in wanted, "nothing or all"
        system.control.apply(after, key="k")
        assert declared(system) == wanted[1]
        texts = [text for _, text, _ in system.control.commands()]
        assert len(texts) == len(set(texts)), "each command once"
    return True
