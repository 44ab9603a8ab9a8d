"""Lengths as written, in ticks of a stream's domain or in rows (docs/language/time.md)."""

from __future__ import annotations

from typing import NoReturn

from penstock.language.binder.context import Context
from penstock.language.queries import Count, Duration
from penstock.language.text import TextSpan
from penstock.types import LONGEST_TICKS, TimeDomain

_MOST_ROWS = 2**60
#: Hint for a length that is too long.
MOST = "the maximum is 292,000 years, or 2⁶³ ticks of an integer timestamp"


def count(written: Count, context: Context, least: str = "ROWS 1") -> int:
    """Return a positive number of rows. least: example of the clause for the hint. Raises BindingFailed after P0102."""
    if written.value < 1:
        hint = f"write {least}, or leave the clause out"
        context.fail("P0102", "a number of rows here is at least 1", written.span, hint)
    if written.value >= _MOST_ROWS:
        context.fail("P0102", "this exceeds the number of rows of any stream", written.span)
    return written.value


def ticks(duration: Duration, domain: TimeDomain, context: Context, least: int = 1, code: str = "P0102") -> int:
    """Return a length in ticks, at least `least` (0 or 1). code: of one that is too short. Raises BindingFailed after
    P0102 or P0303."""
    count = context.guard(duration.span, lambda: domain.ticks(duration.interval))
    if count < least:
        refuse_short(duration.span, domain, context, code)
    if count >= LONGEST_TICKS:
        context.fail("P0102", "this exceeds the range of time", duration.span, MOST)
    return count


def refuse_short(span: TextSpan, domain: TimeDomain, context: Context, code: str = "P0102") -> NoReturn:
    """Fail with P0102, or `code`, for a length of less than a tick."""
    hint = f"the shortest one here is {domain.show_length(1)}"
    context.fail(code, "a length of time here is at least one tick", span, hint)
