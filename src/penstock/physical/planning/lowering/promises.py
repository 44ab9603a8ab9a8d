"""Operators whose state ends by promises of streams. A join of children with their parents is one of elements with what
is there (rule 1); all others are refused until physical operators carry them out."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.algebra.nodes.promised import ClosedRows, ClosingGroups, PromisedJoin
from penstock.algebra.optimizer.rules.constraints.references import met_at_once
from penstock.algebra.properties.promises import PassedPromise
from penstock.errors import PenstockError
from penstock.physical.planning.lowering.builder import Builder, Lowered, lower

_WITHOUT = "leave the promise out of the declaration: the same rows are answered, and state grows"


@lower.register
def _promised_join(node: PromisedJoin, builder: Builder) -> Lowered:
    at_once = met_at_once(node)
    if at_once is not None:
        return builder.lower(at_once)
    raise _refusal("a join that ends its state by", (one.promise for one in node.leaving), _WITHOUT)


@lower.register
def _closed_rows(node: ClosedRows, builder: Builder) -> Lowered:
    raise _refusal("CLOSED by", (one for condition in node.closing for one in condition))


@lower.register
def _closing_groups(node: ClosingGroups, builder: Builder) -> Lowered:
    if node.final:
        raise _refusal("CLOSED by", node.closing)
    what = "GROUP BY" if node.aggregates else "DISTINCT"
    raise _refusal(f"{what} that ends its state by", node.closing, _WITHOUT)


def _refusal(what: str, promises: Iterable[PassedPromise], hint: str | None = None) -> PenstockError:
    bases = [base for one in promises for base in one.bases]
    names = dict.fromkeys(f"{base.promise.WORDS} of {base.source}" for base in bases)
    return PenstockError("P0901", f"{what} {', '.join(names)} is not supported yet", hint=hint)
