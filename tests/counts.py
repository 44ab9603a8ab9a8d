"""How many of many like cases `make test` tries. `make soak` tries the others, too."""

from __future__ import annotations

from collections.abc import Iterable

import pytest


def some_slow(cases: Iterable[object], every: int) -> list[object]:
    """Return cases of a parameter, of which all but the first of every `every` are marked as slow."""
    return [case if n % every == 0 else pytest.param(case, marks=pytest.mark.slow) for n, case in enumerate(cases)]
