"""The failure that has ended one query of a run while the others went on."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import PenstockError


@dataclass(frozen=True)
class QueryFailure:
    """Why a query was left out.

    Args:
        code, message, hint: of its error.
        batch: the first batch of which it has no answer, or whose answer its sink did not take; -1 where not known.
    """

    code: str
    message: str
    hint: str | None = None
    batch: int = -1

    @staticmethod
    def of(error: PenstockError, batch: int = -1) -> QueryFailure:
        return QueryFailure(error.code, error.message, error.hint, batch)

    @property
    def error(self) -> PenstockError:
        return PenstockError(self.code, self.message, hint=self.hint)
