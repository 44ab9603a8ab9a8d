"""A whole logical plan as data, written and read.

An operator is `{"node": name, "fields": {...}, "inputs": [...]}`. One that occurs more than once is written once, and
where it occurs again as `{"same": pointer}`, so that a plan over views of views stays as large as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.algebra import Algebra, Sequenced
from penstock.algebra.nodes.base.checks import OperatorError
from penstock.deep_trees import deep
from penstock.errors import PenstockError, nearest
from penstock.language.binder.context import BindingFailed, Context
from penstock.language.limits import MAX_OPERATORS, check_size
from penstock.language.plan_choices import read_choices
from penstock.language.plan_form import FORMAT, Part, PlanError, fault, parsed, printed
from penstock.language.plans.checks import check_in_query
from penstock.language.plans.fields import Below
from penstock.language.plans.nodes import BY_NAME, NODES, REWRITTEN
from penstock.language.plans.scalar_binding import ScalarReader

#: The parts of a document. Only `logical` and `attributes` bear on what is read.
KEYS = ("format", "queries", "logical", "physical", "attributes")


@deep
def logical(root: Algebra) -> dict[str, Any]:
    """Return a logical plan as data. Raises PenstockError P0342."""
    return _write(root, "/logical", {})


def _write(node: Algebra, pointer: str, known: dict[str, str]) -> dict[str, Any]:
    form = NODES.get(type(node))
    if form is None:
        raise PenstockError("P0342", f"{type(node).__name__} is no operator of a logical plan")
    # A leaf is as short as a reference; Arrivals mean another stream in another query.
    if node.inputs and node.fingerprint in known:
        return {"same": known[node.fingerprint]}
    children = list(enumerate(form.below(node)))
    if isinstance(node, Sequenced):
        known_outside, known = known, {}
        children.reverse()  # as it is read: the streams of the line before the body
    written = {i: _write(child, f"{pointer}/inputs/{i}", known) for i, child in children}
    inputs = [written[i] for i in sorted(written)]
    if isinstance(node, Sequenced):
        known = known_outside
    if node.inputs:
        known.setdefault(node.fingerprint, pointer)
    return {"node": type(node).__name__, "fields": form.write(node), "inputs": inputs}


def exported(root: Algebra, context: Context) -> dict[str, Any]:
    """Return a logical plan as data that has been read again: it stands for the same.

    Raises:
        PenstockError: P0342 for what has no form as data that does.
    """
    data = logical(root)
    try:
        again = read_plan(printed({"format": FORMAT, "logical": data}), replace(context, errors=[]))
        same = logical(again) == data
    except (PenstockError, BindingFailed) as error:
        raise PenstockError("P0342", f"the plan of this query cannot be written as data: {error}") from error
    if not same:
        raise PenstockError("P0342", "the plan of this query cannot be written as data: it would be read as another")
    return data


@deep
def read_plan(text: str, context: Context) -> Algebra:
    """Return the plan of a document, bound against the declarations of `context`.

    Raises:
        PenstockError: P0106 for what is not of the form, P0341 for operators that do not fit together, and the codes of
            the binder; its message has the JSON pointer.
    """
    parts = parsed(text).object(KEYS, ("format", "logical"))
    stated = parts["format"].text()
    if stated != FORMAT:
        raise fault(parts["format"].pointer, f"{stated!r} is not {FORMAT!r}, the format that is read")
    if "attributes" in parts:
        read_choices(parts["attributes"])
    return _FormReader(ScalarReader(context)).root(parts["logical"])


@dataclass
class _FormReader:
    scalars: ScalarReader
    known: dict[str, Algebra] = field(default_factory=dict)

    def root(self, part: Part) -> Algebra:
        return self._node(part, None, 1)

    def _node(self, part: Part, line: tuple[Algebra, ...] | None, depth: int) -> Algebra:
        if depth > MAX_OPERATORS:
            message = f"more than {MAX_OPERATORS:,} operators stand on top of each other, which is the limit"
            raise fault(part.pointer, message, "P0105")
        if isinstance(part.value, dict) and "same" in part.value:
            return self._same(part.object(("same",))["same"])
        parts = part.object(("node", "fields", "inputs"), ("node",))
        name = parts["node"].text()
        kind = BY_NAME.get(name)
        if kind is None:
            if name in {one.__name__ for one in REWRITTEN}:
                raise fault(parts["node"].pointer, f"{name} is chosen when a plan is prepared to run: leave it out")
            raise fault(parts["node"].pointer, f"there is no operator {name}", hint=nearest(name, BY_NAME))
        form = NODES[kind]
        given = parts["fields"] if "fields" in parts else Part({}, part.at("fields"))
        fields: Mapping[str, Part] = given.object(form.fields, form.needed)
        below = parts["inputs"].items() if "inputs" in parts else []
        least, most = form.inputs
        if len(below) < least or (most is not None and len(below) > most):
            expected = f"{least}" if most == least else f"at least {least}"
            raise fault(part.pointer, f"{name} has {expected} inputs, not {len(below)}")
        inputs = self._inputs(kind, below, line, depth)
        try:
            node = form.read(Below(part.pointer, fields, inputs, line, self.scalars))
            check_in_query(node, line)
            # Every property is derived here, so that a plan that does not type fails at the operator that is wrong.
            _ = node.schema, node.domain, node.pattern, node.keys
            if len(node.inputs) > 1:
                check_size(node)
        except PlanError:
            raise
        except PenstockError as error:
            at = error.field if isinstance(error, OperatorError) else ()
            place = "/".join([part.pointer, "fields", *map(str, at)]) if at else part.pointer
            raise fault(place, error.message, error.code, error.hint) from None
        if node.inputs:
            self.known[part.pointer] = node
        return node

    def _inputs(
        self, kind: type[Algebra], below: list[Part], line: tuple[Algebra, ...] | None, depth: int
    ) -> tuple[Algebra, ...]:
        if kind is not Sequenced:
            return tuple(self._node(one, line, depth + 1) for one in below)
        # The streams of the line come first: the body reads them. What is known outside is another query's.
        outside, self.known = self.known, {}
        streams = tuple(self._node(one, None, depth + 1) for one in reversed(below[1:]))[::-1]
        body = self._node(below[0], streams, depth + 1)
        self.known = outside
        return (body, *streams)

    def _same(self, part: Part) -> Algebra:
        pointer = part.text()
        found = self.known.get(pointer)
        if found is None:
            raise fault(part.pointer, f"{pointer!r} is no operator that is written before this one")
        return found
