"""What every synopsis promises, so that the executor can keep it durable without knowing what it is.

A synopsis is a set of immutable *chunks* (record batches named by a number that is never used again) and a small
*manifest* (plain JSON). After a batch, the chunks that are new are written and those gone are removed; nothing else
is touched. Restoring the manifest and the chunks gives the same synopsis.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import pyarrow as pa

Chunks = Mapping[int, pa.RecordBatch]


class Synopsis(ABC):
    """State of one operator in one shard. FORMAT: of its manifest and chunks; a class that changes what it writes takes
    the next number, so that a checkpoint of another version is refused and never misread."""

    FORMAT: ClassVar[int] = 1

    @abstractmethod
    def snapshot(self) -> tuple[dict[str, Any], Chunks]:
        """(manifest, all live chunks). Chunks that were in the previous snapshot under the same id are unchanged."""

    @abstractmethod
    def restore(self, manifest: dict[str, Any], chunks: Chunks) -> None:
        """Become what `snapshot` saw. Called on a fresh synopsis only."""

    @property
    @abstractmethod
    def rows(self) -> int:
        """Rows of state held."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of state held."""
