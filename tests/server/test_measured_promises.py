"""Monitors of promises at a server in one process: ALTER STREAM .. SET, `penstock.constraints`, SHOW .. SUGGESTED."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.client import ServerClient, connect
from penstock.errors import PenstockError, ScriptErrors
from penstock.language.scripts import bind_script
from penstock.physical.observation import observed_rows as observed
from penstock.server.roles import AccessRole
from tests.server.test_live_service import ended, started

DECLARED = """
CREATE STREAM items (at INT, id INT, item STRING) FROM HTTP () TIMESTAMP BY at CONSTRAINT near CLUSTERED BY (item);
CREATE STREAM orders (at INT, id INT) FROM HTTP () TIMESTAMP BY at;
CREATE QUERY fulfilled AS SELECT orders.id FROM orders, items WHERE orders.id = items.id;
CREATE QUERY counted AS SELECT id, COUNT(*) AS n FROM items GROUP BY id;
"""
#: Orders of three items, the last of which comes two items late.
ITEMS = [(0, 0), (1, 0), (2, 1), (3, 0), (4, 1), (5, 2), (6, 1), (7, 2), (8, 3), (9, 2), (10, 3), (11, 3)]


@pytest.fixture(autouse=True)
def whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """All values are in the sample."""
    monkeypatch.setattr(observed, "SAMPLE_BITS", 0)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[ServerClient]:
    found = started(tmp_path)
    with connect(found.url, found.texts[AccessRole.ADMIN]) as made:
        made.execute(DECLARED)
        yield made
    ended(found)


def _rows(client: ServerClient, columns: str = "*", where: str = "TRUE") -> list[dict[str, Any]]:
    sql = f"SELECT {columns} FROM penstock.constraints WHERE {where} ORDER BY kind, columns, unit"
    return client.select(sql).table.to_pylist()


def _measured(client: ServerClient, elements: int, where: str = "TRUE") -> None:
    for _ in range(200):
        if _rows(client, where=f"elements = {elements} AND {where}"):
            return
        time.sleep(0.05)
    raise AssertionError(_rows(client))


def test_nothing_is_measured_by_itself(client: ServerClient) -> None:
    client.insert("items", [{"at": at, "id": id_, "item": "a"} for at, id_ in ITEMS])
    (declared,) = _rows(client)
    assert (declared["name"], declared["stream"], declared["kind"], declared["columns"], declared["mode"]) == (
        "near",
        "items",
        "CLUSTERED BY",
        "item",
        "ASSERTED",
    )
    assert (declared["k_declared"], declared["unit"], declared["k_max"], declared["breaches"]) == (
        0,
        "ROWS",
        None,
        None,
    )
    (reply,) = client.execute("SHOW CONSTRAINTS OF items SUGGESTED")
    assert not reply.text


def test_what_is_measured_and_suggested(client: ServerClient) -> None:
    client.execute("ALTER STREAM items SET (observe_constraints 'on')")
    assert client.select("SELECT observe_constraints FROM penstock.streams WHERE name = 'items'").table.to_pylist() == [
        {"observe_constraints": "on"}
    ]
    client.insert("orders", [{"at": 0, "id": id_} for id_ in range(39)] + [{"at": 13, "id": 39}])
    client.insert("items", [{"at": at, "id": id_, "item": "a"} for at, id_ in ITEMS[:5]])
    client.insert("items", [{"at": at, "id": id_, "item": "a"} for at, id_ in ITEMS[5:]])
    client.insert("items", [{"at": 12, "id": None, "item": None}])
    _measured(client, 12, "kind = 'CLUSTERED BY' AND columns = 'id'")
    _measured(client, 12, "kind = 'FOREIGN KEY' AND stream = 'items' AND k_max = 0")
    (clustered,) = _rows(client, where="kind = 'CLUSTERED BY' AND columns = 'id' AND unit = 'ROWS'")
    assert clustered["name"] is None and clustered["k_declared"] is None
    assert (clustered["k_max"], clustered["k_p99"], clustered["k_p999"], clustered["share"]) == (1, 1, 1, 1.0)
    assert (clustered["hour_k_max"], clustered["hour_share"], clustered["sample_share"]) == (1, 1.0, 1.0)
    (in_time,) = _rows(client, where="kind = 'CLUSTERED BY' AND columns = 'id' AND unit = 'TICKS'")
    assert in_time["k_max"] == 2
    (ordered,) = _rows(client, where="kind = 'ORDERED BY' AND columns = 'id' AND unit = 'ROWS'")
    assert ordered["k_max"] == 1
    (unique,) = _rows(client, where="kind = 'UNIQUE' AND columns = 'id'")
    assert (unique["k_max"], unique["share"]) == (None, 4 / 12)
    (near,) = _rows(client, where="name = 'near'")
    assert (near["k_max"], near["breaches"]) == (0, 0)
    (reply,) = client.execute("SHOW CONSTRAINTS OF items SUGGESTED")
    assert reply.text is not None
    assert reply.text.splitlines() == [
        "ALTER STREAM items ADD CONSTRAINT id_foreign FOREIGN KEY (id) REFERENCES orders (id) WITHIN 0 ROWS ASSERTED"
        " -- saves about 12 rows",
        "ALTER STREAM items ADD CONSTRAINT id_clustered CLUSTERED BY (id) WITHIN 1 ROWS ASSERTED"
        " -- saves about 42 rows",
        "ALTER STREAM items ADD CONSTRAINT id_ordered ORDERED BY (id) WITHIN 1 ROWS ASSERTED -- saves about 42 rows",
    ]
    client.execute("ALTER STREAM items SET (observe_constraints 'off')")
    assert [one["name"] for one in _rows(client)] == ["near"]


def test_a_reference_and_an_order_that_descends(client: ServerClient) -> None:
    client.execute("ALTER STREAM items SET (observe_constraints 'on')")
    # Items go down by one, and the order of each comes two orders after its first one.
    client.insert("items", [{"at": 10 * at, "id": 100 - at // 2, "item": "a"} for at in range(40)])
    client.insert("orders", [{"at": 10 * at + 5, "id": 101 - at // 2} for at in range(0, 40, 2)])
    client.insert("items", [{"at": 1000, "id": None, "item": None}])
    client.insert("orders", [{"at": 1000, "id": None}])
    _measured(client, 40)
    (descending,) = _rows(client, where="kind = 'ORDERED BY DESC' AND columns = 'id' AND unit = 'ROWS'")
    assert (descending["k_max"], descending["share"], descending["drift"]) == (0, 1.0, 0)
    where = "kind = 'FOREIGN KEY' AND stream = 'items' AND unit = 'ROWS'"
    for _ in range(200):
        (reference,) = _rows(client, where=where)
        if reference["elements"] == 40 and reference["k_p99"] == 2:
            break
        time.sleep(0.05)
    assert reference["parent"] == "orders (id)" and reference["name"] is None
    assert not _rows(client, where="stream = 'orders'"), "nothing is measured of it for its own sake"
    (reply,) = client.execute("SHOW CONSTRAINTS OF items SUGGESTED")
    assert reply.text is not None
    found = [line.partition(" -- ")[0] for line in reply.text.splitlines()]
    add = "ALTER STREAM items ADD CONSTRAINT"
    assert f"{add} id_ordered ORDERED BY (id) DESC WITHIN 0 ROWS ASSERTED" in found
    assert not any("ORDERED BY (id) WITHIN" in line for line in found), "its k is the length of the stream"


def test_breaches_of_what_is_declared(client: ServerClient) -> None:
    client.execute("ALTER STREAM items SET (observe_constraints 'on')")
    client.insert("items", [{"at": at, "id": at, "item": "ab"[at % 2]} for at in range(6)])
    client.insert("items", [{"at": 9, "id": 9, "item": "z"}, {"at": 10, "id": None, "item": None}])
    _measured(client, 7)
    (near,) = _rows(client, where="name = 'near'")
    assert (near["k_max"], near["breaches"], near["elements"]) == (1, 4, 7)
    assert near["share"] == 3 / 7


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("ALTER STREAM items SET (observe_constraints 'maybe')", "P0104"),
        ("SHOW CONSTRAINTS OF counted SUGGESTED", "P0201"),
        ("SHOW CONSTRAINTS OF nothing SUGGESTED", "P0201"),
    ],
)
def test_what_is_refused(sql: str, code: str, client: ServerClient) -> None:
    with pytest.raises((PenstockError, ScriptErrors)) as caught:
        client.execute(sql)
    found = caught.value
    assert [one.code for one in (found.errors if isinstance(found, ScriptErrors) else [found])] == [code]


def test_a_script_without_a_server_measures_nothing() -> None:
    with pytest.raises(ScriptErrors, match="SHOW CONSTRAINTS SUGGESTED"):
        bind_script("SHOW CONSTRAINTS SUGGESTED;")
