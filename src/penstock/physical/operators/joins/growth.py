"""How large what joins form may become, in a computation that shares its process with others.

The process of a run computes the static relations of a one-time query, and has no limit of memory of its own; the
workers of a run advance the operators of all queries. Joins form pairs in batches, and account for each here, so that
one that grows too large ends while it grows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from penstock.physical.elements import Elements


class TooManyPairs(MemoryError):
    """A join forms more than it may. excess: bytes beyond that."""

    def __init__(self, excess: int) -> None:
        super().__init__("a join forms more rows than it may")
        self.excess = excess


@dataclass
class JoinAllowance:
    """What joins may still form. left: bytes; check: ends the computation by raising."""

    left: int
    check: Callable[[], None]


_ALLOWANCE: ContextVar[JoinAllowance | None] = ContextVar("penstock_joins", default=None)


@contextmanager
def limited_joins(memory: int, check: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Let all joins that this context computes form `memory` bytes of rows together. check: called now and then."""
    token = _ALLOWANCE.set(JoinAllowance(memory, check))
    try:
        yield
    finally:
        _ALLOWANCE.reset(token)


def account(joined: Elements) -> None:
    """Account for rows that a join has formed. Raises TooManyPairs where they are too many."""
    allowance = _ALLOWANCE.get()
    if allowance is None:
        return
    allowance.check()
    allowance.left -= joined.nbytes
    if allowance.left < 0:
        raise TooManyPairs(-allowance.left)


def give_back(nbytes: int) -> None:
    """Take back what was accounted for rows that are not kept."""
    allowance = _ALLOWANCE.get()
    if allowance is not None:
        allowance.left += nbytes
