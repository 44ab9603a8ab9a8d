"""Let commands that never see a pandas object do without pandas, which takes 0.3 s of CPU and 50 MB of memory to load.

pyarrow loads pandas with the first array that it makes of Python's values, to find out whether they are pandas'. Where
Penstock is a library they may be, so only its own processes call `postpone`.

Contract: `import pandas` works as ever, and so do conversions to pandas; after one pyarrow knows pandas' values again.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec
from types import ModuleType

import pyarrow as pa


class _NoPandas:
    """A finder of modules that finds pandas nowhere."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not loaded now", name=name)
        return None


#: Whether pyarrow takes pandas' values for any others.
_postponed = False


def postpone() -> None:
    """Let pyarrow do without pandas until something is converted to it; pyarrow looks once whether there is pandas.

    Call it before other threads are started.
    """
    global _postponed
    if _postponed or "pandas" in sys.modules:
        return
    sys.meta_path.insert(0, _NoPandas)
    try:
        pa.array([])
    finally:
        sys.meta_path.remove(_NoPandas)
    _postponed = True


def recognise() -> None:
    """End what `postpone` began, before code that is not Penstock's may make values of pandas."""
    global _postponed
    if not _postponed:
        return
    _postponed = False
    with suppress(ImportError):  # no pandas, no values of it
        pa.table({}).to_pandas()
