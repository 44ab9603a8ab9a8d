"""What bounds state that ends by promises, and which promises `penstock check` proposes [docs/promises.md]."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.algebra.nodes.base import operators
from penstock.algebra.nodes.promised import PromisedJoin
from penstock.algebra.nodes.query import Query
from penstock.algebra.optimizer.optimizer import optimize
from penstock.algebra.properties.boundedness import Boundedness, Grade
from penstock.algebra.properties.promised_state import EndingPromise, ended_by, with_expected
from penstock.algebra.properties.promises import Base, Clustered, ForeignKey, Ordered, PassedPromise, Promise, Within
from penstock.algebra.properties.statistics import Statistics
from penstock.cli.checking import check_for_run, check_for_server
from penstock.language.catalog import Catalog
from penstock.language.scripts import bind_script
from penstock.language.scripts.proposals import Proposal, proposed_promises
from penstock.physical.plan.state.state_parts import StatePart
from penstock.physical.planning.state_size.summary import by_promises
from penstock.settings import Settings
from penstock.types import TimeDomain, Unit

PLAIN = """
CREATE STREAM O (id BIGINT, item STRING, t INT) FROM MEMORY () TIMESTAMP BY t;
CREATE STREAM F (id BIGINT, item STRING, t INT) FROM MEMORY () TIMESTAMP BY t;
CREATE STREAM `Odd ``one` (`the id` BIGINT, t INT) FROM MEMORY () TIMESTAMP BY t;
"""


def _bound(text: str, declared: str = PLAIN) -> tuple[Query, Catalog]:
    bound = bind_script(f"{declared} CREATE QUERY q AS {text};")
    return bound.queries[-1], bound.catalog


def _stored(text: str, declared: str) -> list[Boundedness]:
    query, _ = _bound(text, declared)
    return [bound for node in operators(optimize(query.root)) for bound in node.stored]


def _proposed(text: str, declared: str = PLAIN) -> tuple[Proposal, ...]:
    return proposed_promises(*_bound(text, declared))


# --- the grade


def _declared(of_orders: str = "", of_items: str = "") -> str:
    orders = f"CREATE STREAM O (id BIGINT, item STRING, t INT) FROM MEMORY () TIMESTAMP BY t {of_orders};"
    return f"{orders} CREATE STREAM F (id BIGINT, item STRING, t INT) FROM MEMORY () TIMESTAMP BY t {of_items};"


JOINED = "SELECT O.id FROM O, F WHERE O.id = F.id"


def test_rows_that_leave_when_their_value_is_closed() -> None:
    held, other = _stored(JOINED, _declared(of_items="CLUSTERED BY (id) WITHIN 5 ROWS"))
    assert (held.grade, held.by) == (Grade.PROMISED, "CLUSTERED BY id WITHIN 5 ROWS of F")
    assert held.hint == (
        "a row of O whose id never comes on F, or was closed there before, stays; "
        "ORDERED BY, a FOREIGN KEY or a window ends it too"
    )
    assert other.grade is Grade.UNBOUNDED


def test_several_promises_bound_one_side() -> None:
    held, _ = _stored(
        JOINED, _declared(of_items="CLUSTERED BY (id) WITHIN 5 ROWS ORDERED BY (id) DESC WITHIN 1 MINUTE")
    )
    assert held.by == "CLUSTERED BY id WITHIN 5 ROWS of F or ORDERED BY id DESC WITHIN 1 MINUTE of F"
    assert held.hint == ""


def test_children_that_meet_at_once_are_not_stored() -> None:
    (parents,) = _stored(JOINED, _declared("UNIQUE (id)", "FOREIGN KEY (id) REFERENCES O"))
    assert parents.grade is Grade.UNBOUNDED and parents.source == "O"
    _, children = _stored(JOINED, _declared("UNIQUE (id)", "FOREIGN KEY (id) REFERENCES O WITHIN 3 ROWS"))
    assert children.by == "FOREIGN KEY id WITHIN 3 ROWS of F or UNIQUE id of O"


def test_windows_bound_more_than_promises() -> None:
    declared = _declared(of_items="CLUSTERED BY (id)")
    bounds = _stored("SELECT O.id FROM O [RANGE 3 SECONDS], F [RANGE 3 SECONDS] WHERE O.id = F.id", declared)
    assert {bound.grade for bound in bounds} == {Grade.BOUNDED}


@pytest.mark.parametrize(
    "text",
    [
        "SELECT id, COUNT(*) AS n FROM F GROUP BY id",
        "SELECT DISTINCT id FROM F",
        "SELECT id, COUNT(*) AS n FROM F GROUP BY id HAVING CLOSED(id)",
        "SELECT id FROM F WHERE CLOSED(id)",
    ],
)
def test_groups_and_rows_that_wait_for_their_closing(text: str) -> None:
    (held,) = _stored(text, _declared(of_items="CLUSTERED BY (id) WITHIN 2 ROWS"))
    assert (held.grade, held.by, held.hint) == (Grade.PROMISED, "CLUSTERED BY id WITHIN 2 ROWS of F", "")


SECONDS = TimeDomain(Unit.SECOND, False)


@pytest.mark.parametrize(
    ("promise", "expected"),
    [
        (Clustered((0,), Within(5)), 5.0),
        (Clustered((0,), Within(0)), 1.0),
        (Clustered((0,), Within(None, 10)), 20.0),
        (Ordered((0,), within=Within(8)), 4.0),
        (ForeignKey((0,), "O", (0,), Within(0)), 0.0),
    ],
)
def test_what_is_expected_to_be_open(promise: Promise, expected: float) -> None:
    ending = EndingPromise(PassedPromise((Base("F", promise),), (0,)), ("id",))
    assert ending.expected(2.0, 4.0, SECONDS) == expected


def test_the_number_stands_in_the_bound() -> None:
    promise = PassedPromise((Base("F", Clustered((0,), Within(5))),), (0,))
    ending = [EndingPromise(promise, ("orderID",), SECONDS)]
    below = Boundedness(Grade.UNBOUNDED, "all of O", "", "O", None)
    bound = with_expected(ended_by(ending, below, "row of O"), ending, lambda name: 1.0)
    assert bound.by == "CLUSTERED BY orderID WITHIN 5 ROWS of F: about 5 values of orderID open"
    assert with_expected(below, ending, lambda name: 1.0) is below


def test_state_that_promises_bound_is_shown_so() -> None:
    query, _ = _bound(JOINED, _declared(of_items="CLUSTERED BY (id) WITHIN 5 ROWS"))
    (node,) = (one for one in operators(query.root) if isinstance(one, PromisedJoin))
    left, right = (StatePart("rows", 10, 80, side.boundedness) for side in (node.left, node.right))
    shown = by_promises(left, node, Statistics())
    assert shown.bound.by == "CLUSTERED BY id WITHIN 5 ROWS of F: about 5 values of id open"
    assert (shown.rows, shown.nbytes) == (5, 40)
    assert by_promises(right, node, Statistics()) is right
    waiting, _ = _bound(JOINED, _declared("UNIQUE (id)", "FOREIGN KEY (id) REFERENCES O WITHIN 20 SECONDS"))
    (node,) = (one for one in operators(waiting.root) if isinstance(one, PromisedJoin))
    part = by_promises(StatePart("rows", 10, 80, node.right.boundedness), node, Statistics())
    assert part.bound.by.endswith(": about 20 rows not settled")
    at_once, _ = _bound(JOINED, _declared("UNIQUE (id)", "FOREIGN KEY (id) REFERENCES O"))
    (node,) = (one for one in operators(at_once.root) if isinstance(one, PromisedJoin))
    part = by_promises(StatePart("rows", 10, 80, node.right.boundedness), node, Statistics())
    assert (part.bound.grade, part.bound.by) == (Grade.BOUNDED, "the rows of an instant")


def test_one_side_of_a_self_join_does_not_speak_for_the_other() -> None:
    declared = "CREATE STREAM F (id BIGINT, k BIGINT, t INT) FROM MEMORY () TIMESTAMP BY t CLUSTERED BY (id);"
    query, _ = _bound("SELECT a.id FROM F AS a, F AS b WHERE a.id = b.k", declared)
    (node,) = (one for one in operators(query.root) if isinstance(one, PromisedJoin))
    part = StatePart("rows", 10, 80, node.left.boundedness)
    assert by_promises(part, node, Statistics()) is part


# --- proposals


def test_promises_of_a_join() -> None:
    found = {" ".join(one.statements): one.bounds for one in _proposed(JOINED)}
    assert found == {
        "ALTER STREAM F ADD CONSTRAINT id_unique UNIQUE (id) ASSERTED"
        " ALTER STREAM O ADD CONSTRAINT id_foreign FOREIGN KEY (id) REFERENCES F (id) WITHIN 0 ROWS ASSERTED": (
            "the rows of O",
        ),
        "ALTER STREAM O ADD CONSTRAINT id_clustered CLUSTERED BY (id) WITHIN 0 ROWS ASSERTED": ("the rows of F",),
        "ALTER STREAM O ADD CONSTRAINT id_ordered ORDERED BY (id) WITHIN 0 ROWS ASSERTED": ("the rows of F",),
        "ALTER STREAM O ADD CONSTRAINT id_unique UNIQUE (id) ASSERTED"
        " ALTER STREAM F ADD CONSTRAINT id_foreign FOREIGN KEY (id) REFERENCES O (id) WITHIN 0 ROWS ASSERTED": (
            "the rows of F",
        ),
        "ALTER STREAM F ADD CONSTRAINT id_clustered CLUSTERED BY (id) WITHIN 0 ROWS ASSERTED": ("the rows of O",),
        "ALTER STREAM F ADD CONSTRAINT id_ordered ORDERED BY (id) WITHIN 0 ROWS ASSERTED": ("the rows of O",),
    }


def test_promises_of_groups() -> None:
    text = "SELECT item, id, COUNT(*) AS n FROM F GROUP BY item, id"
    assert [one.statements for one in _proposed(text)] == [
        ("ALTER STREAM F ADD CONSTRAINT item_id_clustered CLUSTERED BY (item, id) WITHIN 0 ROWS ASSERTED",),
        ("ALTER STREAM F ADD CONSTRAINT id_ordered ORDERED BY (id) WITHIN 0 ROWS ASSERTED",),
    ]
    # Of groups by the timestamp nothing is kept behind their instant.
    assert _proposed("SELECT item, t, COUNT(*) AS n FROM F GROUP BY item, t") == ()


def test_what_is_declared_is_not_proposed_again() -> None:
    found = [one for p in _proposed(JOINED, _declared("UNIQUE (id)")) for one in p.statements]
    # The rows of F leave when they have found theirs of O: what would bound these is left to propose.
    assert found == [
        "ALTER STREAM F ADD CONSTRAINT id_unique UNIQUE (id) ASSERTED",
        "ALTER STREAM O ADD CONSTRAINT id_foreign FOREIGN KEY (id) REFERENCES F (id) WITHIN 0 ROWS ASSERTED",
        "ALTER STREAM F ADD CONSTRAINT id_clustered CLUSTERED BY (id) WITHIN 0 ROWS ASSERTED",
        "ALTER STREAM F ADD CONSTRAINT id_ordered ORDERED BY (id) WITHIN 0 ROWS ASSERTED",
    ]


def test_names_are_free_and_quoted() -> None:
    declared = (
        PLAIN + "CREATE STREAM G (id BIGINT, t INT) FROM MEMORY () TIMESTAMP BY t CONSTRAINT id_clustered UNIQUE (t);"
    )
    lines = [one for p in _proposed("SELECT DISTINCT id FROM G", declared) for one in p.statements]
    assert lines[0] == "ALTER STREAM G ADD CONSTRAINT id_clustered_2 CLUSTERED BY (id) WITHIN 0 ROWS ASSERTED"
    (clustered, ordered) = _proposed("SELECT DISTINCT `the id` FROM `Odd ``one`")
    adds = "ALTER STREAM `Odd ``one` ADD CONSTRAINT `the id_clustered` CLUSTERED BY (`the id`)"
    assert clustered.statements[0].startswith(adds)
    assert ordered.statements[0].endswith("ORDERED BY (`the id`) WITHIN 0 ROWS ASSERTED")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT O.id FROM O [ROWS 3], F WHERE O.id = F.id",
        "SELECT O.id FROM O [RANGE 3 SECONDS], F [RANGE 3 SECONDS] WHERE O.id = F.id",
        "SELECT O.id FROM O, F WHERE O.id + 1 = F.id + 1",
        "SELECT O.id FROM O, F WHERE O.id < F.id",
        "SELECT id FROM O",
        "SELECT COUNT(*) AS n FROM O",
        "SELECT id, COUNT(*) AS n FROM O WHERE id IN (1, 2) GROUP BY id",
    ],
)
def test_where_no_promise_bounds(text: str) -> None:
    assert _proposed(text) == ()


def test_every_proposal_binds_and_is_used() -> None:
    for text in (JOINED, "SELECT DISTINCT item FROM F", "SELECT O.id FROM O LEFT JOIN F ON O.id = F.id"):
        proposals = _proposed(text)
        assert proposals
        for one in proposals:
            adds = [line.partition(" ADD ")[2] for line in one.statements]
            streams = [line.split()[2] for line in one.statements]
            promised = {name: " ".join(a for a, s in zip(adds, streams, strict=True) if s == name) for name in "OF"}
            order = sorted("OF", key=lambda name: "REFERENCES" in promised[name])
            declared = "".join(
                f"CREATE STREAM {name} (id BIGINT, item STRING, t INT) FROM MEMORY () TIMESTAMP BY t {promised[name]};"
                for name in order
            )
            assert any(bound.grade is Grade.PROMISED for bound in _stored(text, declared)) or "FOREIGN" in declared


def test_check_lists_them(tmp_path: Path) -> None:
    script = f"{PLAIN} CREATE QUERY q AS {JOINED}; CREATE QUERY g AS SELECT DISTINCT item FROM F;"
    report = list(check_for_run(script, "s.cql", Settings()))
    assert report.count("  promises that would bound it, where the data keep them (WITHIN k):") == 2
    line = "    ALTER STREAM F ADD CONSTRAINT id_clustered CLUSTERED BY (id) WITHIN 0 ROWS ASSERTED;  -- the rows of O"
    assert line in report
    assert [one for one in check_for_server(script, "s.cql", {}) if "ALTER" in one] == [
        one for one in report if "ALTER" in one
    ]
