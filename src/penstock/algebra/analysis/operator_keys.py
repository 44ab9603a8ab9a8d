"""Keys of operators by what they compute, whatever is chosen for how they do it.

The key of an operator follows from it and all below it, with sources by their names. So it is the same for every query
that has the operator, on every machine and in every run, and it stays while the plan around it changes: choices of a
plan (`PlanChoice`) go by it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from penstock.algebra.nodes.base import Algebra
from penstock.algebra.nodes.scans import Source
from penstock.deep_trees import deep
from penstock.tree import Node, derived


@deep
def operator_key(node: Algebra) -> str:
    """Return the key of an operator: 16 hexadecimal digits."""
    return _key(node)


@derived
def _key(node: Algebra) -> str:
    children = {id(child): child for child in node.inputs}

    def token(value: object) -> str:
        if id(value) in children:
            return _key(children[id(value)])
        return _token(value, token)

    counting = (one.name for one in fields(node) if _counts(one.metadata))
    parts = (f"{name}={token(getattr(node, name))}" for name in counting)
    text = f"{type(node).__name__}|{'|'.join(parts)}"
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _counts(metadata: Any) -> bool:
    return not metadata.get("transparent")


def _token(value: object, token: Callable[[object], str]) -> str:
    if isinstance(value, Node):
        return value.fingerprint
    if isinstance(value, tuple):
        return "(" + ",".join(map(token, value)) + ")"
    if isinstance(value, Source):
        return f"source:{value.name.lower()}"
    return f"{type(value).__name__}:{value!r}"
