"""HTTP: rows that are posted to a server, which keeps them in a folder of Arrow files until they have been read."""

from __future__ import annotations

from penstock.algebra.nodes.scans import Source
from penstock.connectors.formats.base import timestamp_format_option
from penstock.connectors.options import Option, Options, OptionTable, whole
from penstock.connectors.sources.memory import SPOOL, SpooledSource

#: How the timestamps of bodies are written that are text; the door reads these (`server/http/bodies.py`).
TIMESTAMP_FORMAT = timestamp_format_option()
_RATE_LIMIT = Option("rate_limit", whole(1), "rows per second that are accepted; further ones are refused")


class PostedSource(SpooledSource):
    """The folder grows as long as the server runs, so that the source has no end."""

    OPTIONS = OptionTable((SPOOL, _RATE_LIMIT, TIMESTAMP_FORMAT))
    rereadable = False

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        options = Options(f"{source.connector} of {source.name}", source.options)
        #: Rows per second; None for any number.
        self.rate_limit = options.optional(_RATE_LIMIT)

    @property
    def bounded(self) -> bool:
        return False
