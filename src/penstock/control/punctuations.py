"""Punctuations that are posted: by PUNCTUATE, and by the door for one.

One is refused as one too many only where nothing has been posted that was not read; otherwise the ingest decides, and
it may become a dead letter.
"""

from __future__ import annotations

from penstock.algebra.nodes.scans import Source
from penstock.algebra.properties.punctuations import Punctuation
from penstock.control.engine import Engine
from penstock.control.posted_rows import PostedRows
from penstock.errors import Busy, Notice
from penstock.language.binder.statements.punctuations import read_punctuation, without_punctuations

#: Seconds after which another look is worth it: a wider punctuation may have come.
_LATER = 60.0


def punctuation_of(source: Source, where: str) -> Punctuation:
    """Return the punctuation of a text. Raises PenstockError P0380 for a relation, and as `read_punctuation`."""
    if (error := without_punctuations(source)) is not None:
        raise error
    return read_punctuation(where, source)


def check_room(engine: Engine, posted: PostedRows, source: Source, source_id: int, one: Punctuation, most: int) -> None:
    """Raise Busy for a punctuation beyond the setting `punctuations`, where all that was posted has been read.

    Args:
        most: as many a stream keeps at most.
    """
    if not engine.has_read(source_id, posted.last(source_id)):
        return
    kept = engine.version().punctuations.get(source.name.lower(), 0)
    if kept + one.size > most and kept >= most:
        message = f"{source.name} keeps {kept:,} punctuations, and {most:,} are the limit"
        hint = "SET punctuations raises it; a wider one, such as <= of a column, takes the place of others"
        raise Busy(message, _LATER, hint)


def punctuation_notices(one: Punctuation) -> tuple[Notice, ...]:
    """Return what is to be known of a punctuation that is taken: no row can fulfil it."""
    return (Notice("nothing changes: no row can fulfil this"),) if one.is_empty else ()
