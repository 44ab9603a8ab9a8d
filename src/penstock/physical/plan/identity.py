"""The identity of a step's state: a key of the step's whole physical subtree.

Two plans that compute the same below a step give it the same key, whatever else the job does, and whatever the order
and the names of its queries. State is stored under these keys, so a changed script finds the state of its unchanged
parts (`runtime/spark/changes/restart_decision.py`). Equal steps of one plan are numbered: their state is the
same.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
from collections import Counter
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from penstock.algebra.nodes.scans import Source
from penstock.expressions.user import UserDefined
from penstock.physical.plan.plan import Plan, Step
from penstock.physical.plan.spec import Spec
from penstock.redaction import redacted
from penstock.tree import Node, derived

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

#: Options of a source that do not say what its rows are, but where the runtime has put them, or how many it accepts.
_PLACES = frozenset({"spool", "rate_limit"})
#: The classes of most values, which are neither enums nor dataclasses.
_PLAIN = frozenset({str, int, bool, float, type(None)})


def step_keys(plan: Plan, births: bool = True) -> Mapping[int, str]:
    """Return the key of every step, by step number; they are computed once for a plan, since every shard of every stage
    wants them. births: steps of queries of different births are different, unless they were merged; without it the plan
    shares no steps with another one."""
    return _keys_with_births(plan) if births else _step_keys(plan, births)


@derived
def _keys_with_births(plan: Plan) -> Mapping[int, str]:
    # Queries of different births are in different parts, so no key occurs in two of them; a step that several parts
    # share is in one.
    if plan.parts is None:
        return _step_keys(plan, births=True)
    # A state may lie elsewhere than its part says (`planning/merging.py`).
    known: dict[int, str] = {}
    for part in plan.parts:
        known.update(step_keys(part))
    known.update(plan.keys or {})
    return known


def note_keys(plan: Plan, keys: Mapping[int, str]) -> None:
    """Note the keys of the steps of a plan, where they are known of another one that has the same steps."""
    _keys_with_births.note(plan, keys)


def moved_steps(before: Plan, after: Plan) -> list[Step]:
    """Return the steps of `after` that have their numbers in `before` too, but other states."""
    numbers = {*(before.keys or {}), *(after.keys or {})}
    known, now = (step_keys(before), step_keys(after)) if numbers else ({}, {})
    return [after.step(n) for n in sorted(numbers) if n in known and n in now and known[n] != now[n]]


def _step_keys(plan: Plan, births: bool) -> dict[int, str]:
    if births and plan.keys is not None:
        return dict(plan.keys)
    has_stores = any(step.spec.keeps_rows for step in plan.steps)
    tables = {name: _whole(static) for name, static in plan.statics.items()}
    found: dict[int, str] = {}
    # Of the steps behind a window, the same without it.
    unended: dict[int, str] = {}
    for step in plan.steps:
        birth = step.birth if births else 0

        def digest(below: Mapping[int, str], step: Step = step, birth: int = birth) -> str:
            edges = ",".join(f"{below.get(i.step, found[i.step])}>{_token(i.exchange)}" for i in step.inputs)
            return _digest(f"{birth}|{_spec(step.spec, tables)}|{edges}|{_token(step.types)}")

        found[step.id] = digest(unended if step.spec.keeps_rows else {})
        if not has_stores or step.stage:
            continue
        if step.spec.sets_ends_alone:
            (edge,) = step.inputs
            unended[step.id] = unended.get(edge.step, found[edge.step])
        elif any(edge.step in unended for edge in step.inputs):
            unended[step.id] = digest(unended)
    seen: Counter[str] = Counter()
    for step in plan.steps:
        key = found[step.id]
        found[step.id] = f"{key}-{seen[key]}" if seen[key] else key
        seen[key] += 1
    return found


def near_keys(plan: Plan) -> Mapping[int, str]:
    """Return by step number a key that is the same for steps which differ at most in lengths, grains and predicates,
    their own or below them."""
    tables = {name: _whole(static) for name, static in plan.statics.items()}
    found: dict[int, str] = {}
    for step in plan.steps:
        if step.spec.only_varies:
            (edge,) = step.inputs
            found[step.id] = found[edge.step]
            continue
        edges = ",".join(f"{found[i.step]}>{_token(i.exchange)}" for i in step.inputs)
        found[step.id] = _digest(f"{_spec(step.spec, tables, step.spec.varying)}|{edges}|{_token(step.types)}")
    return found


def query_fingerprint(plan: Plan, query: str) -> str:
    """Return the fingerprint of a query, without its name and its birth; it is the same whatever else the plan
    computes."""
    keys = step_keys(plan.piece_of(query), births=False)
    inputs = plan.output(query).inputs
    text = ",".join(f"{keys[i.step].partition('-')[0]}>{_token(i.exchange)}" for i in inputs)
    # Whether a step is shared shows in no step.
    choices = plan.queries[query].choices
    return _digest(f"{text}|{_token(choices)}" if choices else text)


def source_fingerprint(source: Source, rows: str = "") -> str:
    """Return the fingerprint of a declaration and of its rows, where the script contains them."""
    return _digest(f"{_token(source)}|{rows}")


def _whole(plan: Plan) -> str:
    """Return the fingerprint of a plan with one answer."""
    return query_fingerprint(plan, "")


def _spec(spec: Spec, tables: Mapping[str, str], but: Collection[str] = ()) -> str:
    parts = []
    for name in _compared(type(spec)):
        if name not in spec.names_only and name not in but:
            value = getattr(spec, name)
            # A table is named by its declaration; what counts is its content.
            parts.append(f"{name}={tables.get(value, value) if name == 'table' else _token(value)}")
    return f"{type(spec).__name__}({', '.join(parts)})"


def _token(value: object) -> str:
    """Return a text that is the same for equal values in every process."""
    if type(value) in _PLAIN:
        return f"{type(value).__name__}:{value!r}"
    if isinstance(value, Node):
        return value.fingerprint
    if isinstance(value, Source):
        # A source with another password is the same source.
        kept = redacted(option for option in value.options if option[0] not in _PLACES)
        return _fields(dataclasses.replace(value, options=kept))
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, UserDefined):
        # Its own token, made of its name, types and code.
        return repr(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _fields(value)
    if isinstance(value, (tuple, list)):
        return "(" + ",".join(map(_token, value)) + ")"
    if isinstance(value, (set, frozenset)):
        return "{" + ",".join(sorted(map(_token, value))) + "}"
    if isinstance(value, dict):
        return "{" + ",".join(sorted(f"{_token(k)}:{_token(v)}" for k, v in value.items())) + "}"
    return f"{type(value).__name__}:{value!r}"


def _fields(value: DataclassInstance) -> str:
    parts = (f"{name}={_token(getattr(value, name))}" for name in _compared(type(value)))
    return f"{type(value).__name__}({', '.join(parts)})"


def _compared(kind: type[DataclassInstance]) -> tuple[str, ...]:
    """Return the names of the fields of a class, without those that are for EXPLAIN alone."""
    known = _COMPARED.get(kind)
    if known is None:
        known = tuple(f.name for f in dataclasses.fields(kind) if f.compare and not f.metadata.get("transparent"))
        _COMPARED[kind] = known
    return known


#: By class: `dataclasses.fields` would go through them again for every value.
_COMPARED: dict[type, tuple[str, ...]] = {}


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
