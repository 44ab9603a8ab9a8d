"""A client of `penstock serve`, over HTTP.

    from penstock.client import connect

    with connect("http://127.0.0.1:8265", token) as server:
        server.execute("CREATE QUERY late AS SELECT dest FROM Flights WHERE delay > 60")
        for batch in server.subscribe("late"):
            print(batch.to_pylist())

Errors of the server are the same `PenstockError`s, with their codes, places and hints. It needs the extra
`penstock[client]`, and neither Spark nor anything else of the engine.
"""

from __future__ import annotations

from penstock.client.answers import (
    RemoteEvent,
    RemoteHealth,
    RemoteHeartbeat,
    RemotePosted,
    RemotePunctuation,
    RemoteRows,
    RemoteRunning,
    RemoteScript,
    RemoteStatement,
)
from penstock.client.selected import SelectedBatches
from penstock.client.server import RemoteStream, ServerClient, connect
from penstock.client.subscription import RowSubscription
from penstock.server_reports import CatalogView, CommandView, DeclaredView, QueryView, SourceView

__all__ = [
    "CatalogView",
    "CommandView",
    "DeclaredView",
    "QueryView",
    "RemoteEvent",
    "RemoteHealth",
    "RemoteHeartbeat",
    "RemotePosted",
    "RemotePunctuation",
    "RemoteRows",
    "RemoteRunning",
    "RemoteScript",
    "RemoteStatement",
    "RemoteStream",
    "RowSubscription",
    "SelectedBatches",
    "ServerClient",
    "SourceView",
    "connect",
]
