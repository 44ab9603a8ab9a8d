"""Answers that are known already: the catalogs do not change before something is declared, changed or dropped."""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from typing import Generic, TypeVar

from penstock.pgwire.catalog.declarations.declared import CatalogImage

T = TypeVar("T")
#: Answers that are kept, and the rows that such an answer has at most.
_MOST, MOST_ROWS = 500, 1_000
#: What stands in the text of a statement whose answer is another one the next time, or that sets something.
_VARIES = re.compile(
    r"\$now|\$backend|px_set|px_moment|current_timestamp|random|pg_settings|pg penstock", re.IGNORECASE
)


def is_fixed(text: str) -> bool:
    """Return whether a statement for DuckDB has the same answer for a user until something else is declared."""
    return _VARIES.search(text) is None


class KnownAnswers(Generic[T]):
    """The last answers, of what is declared now. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._image: CatalogImage | None = None
        self._known: OrderedDict[tuple[object, ...], T] = OrderedDict()

    def get(self, key: tuple[object, ...], image: CatalogImage | None) -> T | None:
        """Return the answer that a statement has; None where it is not known."""
        with self._lock:
            found = self._known.get((*key, image is not None)) if self._is_current(image) else None
            if found is not None:
                self._known.move_to_end((*key, image is not None))
            return found

    def put(self, key: tuple[object, ...], image: CatalogImage | None, answer: T) -> None:
        """Keep an answer."""
        with self._lock:
            if not self._is_current(image):
                self._known.clear()
                self._image = image
            self._known[*key, image is not None] = answer
            if len(self._known) > _MOST:
                self._known.popitem(last=False)

    def _is_current(self, image: CatalogImage | None) -> bool:
        return image is None or image is self._image
