"""What a stream promises, as it is declared: its positions, k in ticks or rows, its mode and its name."""

from __future__ import annotations

import pytest

from penstock.algebra import Source
from penstock.algebra.properties.promises import (
    Clustered,
    ForeignKey,
    Ordered,
    Promise,
    PromiseMode,
    Unique,
    Within,
)
from penstock.language.binder.context import Context
from penstock.language.binder.statements.promises import bind_promises
from penstock.language.scripts import BoundScript, Catalog, bind_script, parse_script
from penstock.language.statements import CreateSource
from penstock.settings import Settings

_ORDERS = "CREATE STREAM O (id BIGINT, item STRING, t BIGINT) FROM MEMORY () TIMESTAMP BY t UNIQUE (id, item);"


def _declared(promises: str, before: str = _ORDERS, column: str = "") -> BoundScript:
    columns = f"id BIGINT {column}, item STRING, at TIMESTAMP"
    return bind_script(f"{before} CREATE STREAM F ({columns}) FROM MEMORY () TIMESTAMP BY at {promises};")


def _source(bound: BoundScript, name: str = "f") -> Source:
    return bound.catalog.sources[name]


@pytest.mark.parametrize(
    ("text", "promise"),
    [
        ("UNIQUE (item, id)", Unique((1, 0))),
        ("CLUSTERED BY (id)", Clustered((0,), Within(0))),
        ("CLUSTERED BY (id, item) WITHIN 3 ROWS", Clustered((0, 1), Within(3))),
        ("CLUSTERED BY (id) WITHIN 2 SECONDS", Clustered((0,), Within(None, 2_000_000))),
        ("CLUSTERED BY (id) WITHIN 0 SECONDS", Clustered((0,), Within(None, 0))),
        ("ORDERED BY (at)", Ordered((2,), False, Within(0))),
        ("ORDERED BY (id) DESC WITHIN 1 ROW", Ordered((0,), True, Within(1))),
        ("FOREIGN KEY (id, item) REFERENCES O", ForeignKey((0, 1), "O", (0, 1), Within(0))),
        ("FOREIGN KEY (item, id) REFERENCES o (item, id) WITHIN 5 ROWS", ForeignKey((1, 0), "O", (1, 0), Within(5))),
        ("UNIQUE (id) FOREIGN KEY (id) REFERENCES F", ForeignKey((0,), "F", (0,), Within(0))),
        ("FOREIGN KEY (id) REFERENCES F UNIQUE (id)", ForeignKey((0,), "F", (0,), Within(0))),
    ],
)
def test_a_promise_is_bound(text: str, promise: Promise) -> None:
    assert promise in _source(_declared(text)).promises


def test_a_column_refers_as_a_foreign_key_does() -> None:
    parent = "CREATE STREAM O (id BIGINT, t BIGINT) FROM MEMORY () TIMESTAMP BY t UNIQUE (id);"
    (promise,) = _source(_declared("", parent, "REFERENCES O WITHIN 3 ROWS")).promises
    assert promise == ForeignKey((0,), "O", (0,), Within(3))


def test_order_names_and_modes() -> None:
    text = "CLUSTERED BY (id) CHECKED CONSTRAINT Mine UNIQUE (id) CLUSTERED BY (id) WITHIN 1 ROWS OBSERVED"
    script = parse_script(f"CREATE STREAM F (id BIGINT, at TIMESTAMP) FROM MEMORY () TIMESTAMP BY at {text}")
    (statement,) = script.statements
    assert isinstance(statement, CreateSource)
    context = Context(script.source, Catalog(), Settings())
    promises = bind_promises(statement.promises, _source(_declared("")), context)
    assert [promise.name for promise in promises] == ["id_clustered", "Mine", "id_clustered_2"]
    assert [promise.mode for promise in promises] == [
        PromiseMode.CHECKED,
        PromiseMode.ASSERTED,
        PromiseMode.OBSERVED,
    ]


def test_a_name_that_is_made_yields_to_one_that_is_written() -> None:
    promises = _source(_declared("CLUSTERED BY (id) CONSTRAINT id_clustered UNIQUE (id)")).promises
    assert [promise.name for promise in promises] == ["id_clustered_2", "id_clustered"]


def test_promises_are_no_part_of_what_a_stream_is() -> None:
    with_promise, without = (_source(_declared(text)) for text in ("CLUSTERED BY (id)", ""))
    assert with_promise == without and repr(with_promise) == repr(without)
    assert with_promise.declared != without.declared


@pytest.mark.parametrize(
    ("text", "warnings"),
    [
        ("UNIQUE (at)", []),
        ("UNIQUE (id, at)", ["UNIQUE: id may be NULL, and such rows end no state"]),
        ("UNIQUE (id, item)", ["UNIQUE: id, item may be NULL; rows with a NULL end no state"]),
        ("FOREIGN KEY (id) REFERENCES O (id)", ["no rule uses this reference: O does not promise UNIQUE (id)"]),
        ("FOREIGN KEY (id, item) REFERENCES O", []),
    ],
)
def test_warnings(text: str, warnings: list[str]) -> None:
    of_orders = "UNIQUE: id, item may be NULL; rows with a NULL end no state"
    assert [warning.message for warning in _declared(text).warnings] == [of_orders, *warnings]


def test_constraints_are_shown_as_statements_that_add_them() -> None:
    text = "ORDERED BY (at) DESC WITHIN 90 SECONDS FOREIGN KEY (id, item) REFERENCES O CONSTRAINT `a b` UNIQUE (at)"
    bound = bind_script(
        f"{_ORDERS} CREATE STREAM F (id BIGINT, item STRING, at TIMESTAMP) FROM MEMORY () TIMESTAMP BY at {text};"
        "SHOW CONSTRAINTS OF F; SHOW CONSTRAINTS"
    )
    of_one, of_all = (action.entries for action in bound.actions)
    assert of_one == (
        ("at_ordered", "ALTER STREAM F ADD CONSTRAINT at_ordered ORDERED BY (at) DESC WITHIN 90 SECOND ASSERTED"),
        (
            "id_item_reference",
            "ALTER STREAM F ADD CONSTRAINT id_item_reference"
            " FOREIGN KEY (id, item) REFERENCES O (id, item) WITHIN 0 ROWS ASSERTED",
        ),
        ("a b", "ALTER STREAM F ADD CONSTRAINT `a b` UNIQUE (at) ASSERTED"),
    )
    assert [name for name, _ in of_all] == ["id_item_unique", *(name for name, _ in of_one)]


def test_a_parent_cannot_be_dropped_alone() -> None:
    script = f"{_ORDERS} CREATE STREAM F (id BIGINT REFERENCES O (id), t BIGINT) FROM MEMORY () TIMESTAMP BY t;"
    for statement in ("DROP STREAM O", _ORDERS.replace("CREATE", "CREATE OR REPLACE").replace("item", "thing")):
        with pytest.raises(Exception, match="P0222: O is used by F"):
            bind_script(f"{script} {statement}")
    assert bind_script(f"{script} DROP STREAM O CASCADE").catalog.sources == {}
    assert list(bind_script(f"{script} DROP STREAM F; DROP STREAM O").catalog.sources) == []
    itself = "CREATE STREAM F (id BIGINT REFERENCES F (id), t BIGINT) FROM MEMORY () TIMESTAMP BY t; DROP STREAM F"
    assert bind_script(itself).catalog.sources == {}
