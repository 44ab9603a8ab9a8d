"""What remote users may reach on this machine and from it.

A statement names files, hosts, environment variables and code. At a server all of them are refused unless the start
allows them; the checkpoint and the token file never are. Connectors and options are allow-lists: one that is not in the
table is refused. Paths are compared as the disk has them, links followed. What is judged is the value that the opening
library receives, as that library parses it: a text that two parsers divide differently is a way around.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from penstock.algebra.nodes.query import SinkSpec
from penstock.algebra.nodes.scans import Source
from penstock.connectors.local_paths import local_path, parts_of
from penstock.connectors.options import Options
from penstock.connectors.secret_text import SecretText
from penstock.connectors.secrets import FORMS
from penstock.connectors.sinks import sink_options
from penstock.connectors.sources import source_options
from penstock.errors import PenstockError
from penstock.redaction import redacted_text


class _Reach(Enum):
    """What the value of an option reaches beyond the server."""

    NOTHING = "no place: the name of a topic, a table or a column, a text within what is read"
    PATH = "a file or folder that a connector of ours opens"
    VARIABLE = "an environment variable"
    BROKERS = "addresses of brokers"
    DATABASE = "a part of the address of a database, which is judged as a whole"
    SECRET = "a secret itself"
    LIBRARY_FILE = "a file that a client library opens, which takes the text as it is written"
    PROTOCOL = "a protocol of Kafka's client that runs no command"


_NOTHING, _DATABASE = _Reach.NOTHING, _Reach.DATABASE
#: By connector, its options that are texts. Values of other types can name no place (`ValueType.names_nothing`).
_REACHED: dict[str, dict[str, _Reach]] = {
    "MEMORY": {}, "HTTP": {}, "RESULTS": {}, "CONSOLE": {},
    "FILES": {"path": _Reach.PATH, "null": _NOTHING},
    "DELTA": {"path": _Reach.PATH, "timestamp": _NOTHING, "partition_by": _NOTHING, "key": _NOTHING},
    "KAFKA": {
        "bootstrap": _Reach.BROKERS, "topic": _NOTHING, "schema": _NOTHING, "schema_env": _Reach.VARIABLE,
        "schema_file": _Reach.PATH, "starting": _NOTHING, "ending": _NOTHING, "key": _NOTHING, "partition": _NOTHING,
        "offset": _NOTHING, "timestamp": _NOTHING, "headers": _NOTHING,
    },
    "POSTGRES": {
        "url": _DATABASE, "host": _DATABASE, "dbname": _DATABASE, "user": _DATABASE, "sslmode": _DATABASE,
        "sslrootcert": _DATABASE, "password": _Reach.SECRET, "password_env": _Reach.VARIABLE,
        "password_file": _Reach.PATH, "table": _NOTHING, "query": _NOTHING, "version": _NOTHING, "deleted": _NOTHING,
        "key": _NOTHING,
    },
}  # fmt: skip
#: Settings of Kafka's client that are accepted: others could load libraries, run commands or write logs.
_CLIENT_SETTINGS: dict[str, _Reach] = {
    "kafka.security.protocol": _NOTHING,
    "kafka.sasl.mechanism": _Reach.PROTOCOL,
    "kafka.sasl.mechanisms": _Reach.PROTOCOL,
    "kafka.sasl.username": _NOTHING,
    "kafka.sasl.password": _Reach.SECRET,
    "kafka.ssl.key.password": _Reach.SECRET,
    "kafka.client.id": _NOTHING,
    "kafka.group.id": _NOTHING,
    "kafka.fetch.max.bytes": _NOTHING,
    "kafka.message.max.bytes": _NOTHING,
    "kafka.compression.type": _NOTHING,
    "kafka.linger.ms": _NOTHING,
    "kafka.isolation.level": _NOTHING,
    "kafka.enable.ssl.certificate.verification": _NOTHING,
    "kafka.ssl.endpoint.identification.algorithm": _NOTHING,
    "kafka.ssl.ca.location": _Reach.LIBRARY_FILE,
    "kafka.ssl.certificate.location": _Reach.LIBRARY_FILE,
    "kafka.ssl.key.location": _Reach.LIBRARY_FILE,
}
#: Kerberos runs a command (kinit), and OAuth asks another host.
_PROTOCOLS = frozenset({"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"})
#: Parameters of libpq that are accepted in an address, beside host, hostaddr and port.
_ADDRESS_PARAMETERS = frozenset({
    "dbname", "user", "sslmode", "connect_timeout", "application_name", "target_session_attrs", "load_balance_hosts",
    "channel_binding", "require_auth", "sslsni", "sslnegotiation", "ssl_min_protocol_version",
    "ssl_max_protocol_version", "keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count",
    "tcp_user_timeout",
})  # fmt: skip
_ADDRESS_FILES = frozenset({"sslrootcert", "sslcert", "sslkey", "sslcrl", "sslcrldir", "passfile"})
_ADDRESS_PLACES = frozenset({"host", "hostaddr", "port"})
#: A broker as every reader of the text understands it.
_BROKER = re.compile(r"(?:\[([0-9A-Fa-f:]+)\]|([A-Za-z0-9._\-]+))(?::([0-9]{1,5}))?")
_BROKER_PORT = "9092"
_HOST = re.compile(r"[\w.:\-/]+")
#: Settings that are fixed at the start of a server, beside those of Spark.
_FIXED = re.compile(
    r"spark\..*|metrics_.*|max_(?:statement|body|unread)_bytes|max_statement_items|max_connections|max_scripts_per_minute|max_subscriptions|max_result_rows"
    r"|statement_timeout|stall_timeout|max_queries|control_retention|relation_retention|results_max_bytes|snapshot_memory|snapshot_weight",
    re.IGNORECASE,
)
_GLOB = re.compile(r"[*?\[]")
#: Entries of a folder that are looked at for links that lead out of it.
_MOST_ENTRIES = 200_000


@dataclass(frozen=True)
class ServerPolicy:
    """What the start of a server allows.

    Args:
        paths: folders below which files may be read and written.
        variables: prefixes of environment variables that secrets may come from.
        modules: modules whose functions may be declared.
        hosts: `host` or `host:port` of brokers and databases.
        closed: files and folders that are refused wherever they lie: the checkpoint, the folder of the token file.
    """

    paths: tuple[Path, ...] = ()
    variables: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    closed: tuple[Path, ...] = ()

    def check_source(self, source: Source) -> None:
        """Raises PenstockError P0805 for a source that reaches what is not allowed."""
        kind = "stream" if source.is_stream else "relation"
        self.check_connector(f"{kind} {source.name}", source.connector, source.options)

    def check_sink(self, query: str, sink: SinkSpec) -> None:
        """Raises PenstockError P0805 for a sink that reaches what is not allowed."""
        self.check_connector(f"query {query}", sink.connector, sink.options)

    def check_function(self, name: str, reference: str | None) -> None:
        """Raises PenstockError P0805 for a function of a module that is not allowed. reference: `module:name`."""
        module = (reference or "").partition(":")[0].strip()
        if not any(module == allowed or module.startswith(allowed + ".") for allowed in self.modules):
            message = f"function {name}: the server does not allow functions of the module {module!r}"
            raise PenstockError("P0805", message, hint="start it with --allow-functions MODULE")

    def check_setting(self, name: str) -> None:
        """Raises PenstockError P0805 for a setting that is fixed at the start."""
        if _FIXED.fullmatch(name.strip()):
            message = f"the setting {name[:100]} is fixed when the server is started"
            raise PenstockError("P0805", message, hint=f"penstock serve --set {name[:100]}=...")

    def check_connector(self, owner: str, connector: str, options: tuple[tuple[str, str], ...]) -> None:
        """Raises PenstockError P0805 for a connector whose options reach what is not allowed. owner: for messages."""
        name = connector.upper()
        if name not in _REACHED:
            raise PenstockError("P0805", f"{owner}: the server does not allow the connector {name}")
        for key, value in options:
            self._check_option(owner, name, key, value)
        if name == "KAFKA":
            self._check_brokers(owner, dict(options).get("bootstrap", ""))
        elif name == "POSTGRES":
            self._check_database(owner, Options(owner, options))
        elif _REACHED[name].get("path"):
            self.check_path(owner, dict(options).get("path", ""))

    # -- options -----------------------------------------------------------------------------------------------

    def _check_option(self, owner: str, connector: str, key: str, value: str) -> None:
        """Judge an option by itself. A place is judged from the whole of the options."""
        reach = _reach_of(connector, key)
        if reach is None:
            if key.startswith("kafka."):
                message = f"{owner}: the server does not allow the setting {key[:100]} of Kafka's client"
                raise PenstockError("P0805", message, hint="penstock run takes all of them")
            raise PenstockError("P0805", f"{owner}: the server does not allow the option {key[:100]}")
        if reach is _Reach.SECRET or (reach not in (_Reach.VARIABLE, _Reach.PATH) and _is_secret(value)):
            # Of a text that only holds a secret, the place of the secret is another option.
            plain = key if reach is _Reach.SECRET else "password"
            hint = f"write {plain}_env or {plain}_file, which only say where it is"
            raise PenstockError("P0805", f"{owner}: the option {key} holds a secret", hint=hint)
        if reach is _Reach.VARIABLE:
            self._check_variable(owner, value)
        elif reach is _Reach.LIBRARY_FILE:
            self._check_library_file(owner, key, value)
        elif reach is _Reach.PATH:
            self.check_path(owner, value)
        elif reach is _Reach.PROTOCOL and value.upper() not in _PROTOCOLS:
            hint = f"accepted: {', '.join(sorted(_PROTOCOLS))}"
            raise PenstockError("P0805", f"{owner}: the server does not allow this value of {key}", hint=hint)

    def _check_variable(self, owner: str, name: str) -> None:
        if not any(prefix and name.startswith(prefix) for prefix in self.variables):
            # What is no name of a variable may be the secret itself.
            shown = f" {name[:100]}" if name.isidentifier() else ""
            message = f"{owner}: the server does not allow the environment variable{shown}"
            raise PenstockError("P0805", message, hint="start it with --allow-env PREFIX")

    # -- places ------------------------------------------------------------------------------------------------

    def check_path(self, owner: str, text: str) -> None:
        """Raises PenstockError P0805 for a path that is not below an allowed folder, or overlaps what is closed."""
        if "://" in text and not text.lower().startswith("file://"):
            # It is not shown: it may hold a password.
            raise PenstockError("P0805", f"{owner}: a path with :// is no path of this machine")
        if "\0" in text or not text.strip():
            raise PenstockError("P0805", f"{owner}: the path is empty or has a character that no path has")
        start, tail = _before_glob(local_path(text))
        if ".." in tail:
            raise PenstockError("P0805", f"{owner}: {text[:200]} leads out of the folder that its pattern begins with")
        place = parts_of(start)
        if not any(_is_below(place, parts_of(allowed)) for allowed in self.paths):
            message = f"{owner}: {text[:200]} is not below a folder that the server allows"
            raise PenstockError("P0805", message, hint="start it with --allow-path DIR")
        self._check_open(owner, text, place)
        for link in _links(start):
            target = parts_of(link)
            if not any(_is_below(target, parts_of(allowed)) for allowed in self.paths):
                message = f"{owner}: {text[:200]} holds the link {link.name}, which leads out of what the server allows"
                raise PenstockError("P0805", message, hint="start it with --allow-path for that folder too")
            self._check_open(owner, text, target)

    def _check_open(self, owner: str, text: str, place: tuple[str, ...]) -> None:
        for closed in self.closed:
            kept = parts_of(closed)
            if _is_below(place, kept) or _is_below(kept, place):
                hint = "choose a folder beside the checkpoint, and beside that of the token file"
                raise PenstockError("P0805", f"{owner}: {text[:200]} overlaps files of the server itself", hint=hint)

    def _check_library_file(self, owner: str, key: str, text: str) -> None:
        """Judge a file that a library opens: it reads neither `file:` nor `~`, so the whole path has to be written."""
        if text != str(local_path(text)):
            message = f"{owner}: {key} is no whole path"
            raise PenstockError("P0805", message, hint="write it as /folder/file, without file: and ~")
        self.check_path(owner, text)

    # -- hosts -------------------------------------------------------------------------------------------------

    def _check_host(self, owner: str, host: str, port: str) -> None:
        name = host.lower()
        written = {name, f"[{name}]"} if ":" in name else {name}
        written |= {f"{one}:{port}" for one in written}
        if not name or not port.isascii() or not port.isdecimal() or not written & {one.lower() for one in self.hosts}:
            # What is no name of a host may hold a password.
            shown = f" {host[:200]}:{port[:20]}" if _HOST.fullmatch(host) else ""
            message = f"{owner}: the server does not allow the host{shown}"
            raise PenstockError("P0805", message, hint="start it with --allow-host HOST")

    def _check_brokers(self, owner: str, bootstrap: str) -> None:
        for address in bootstrap.split(","):
            found = _BROKER.fullmatch(address.strip(" "))
            if found is None:
                # It is not shown: it may hold a password.
                message = f"{owner}: bootstrap is no list of HOST:PORT with commas"
                raise PenstockError("P0805", message, hint="write (bootstrap 'broker:9092')")
            self._check_host(owner, found[1] or found[2], found[3] or _BROKER_PORT)

    def _check_database(self, owner: str, options: Options) -> None:
        """Judge the whole address of a database as libpq reads it."""
        # Imported here, so that a start does not load the library of a connector that no statement names.
        from penstock.connectors.postgres import SECRETS, addresses_of, connection_parameters

        parameters = connection_parameters(options)
        if SECRETS & parameters.keys():
            hint = "write password_env 'NAME' or password_file 'path', which only say where it is"
            raise PenstockError("P0805", f"{owner}: the option url holds a password", hint=hint)
        for key, value in parameters.items():
            if key in _ADDRESS_FILES:
                if (key, value) != ("sslrootcert", "system"):
                    self._check_library_file(owner, key, value)
            elif key not in _ADDRESS_PARAMETERS and key not in _ADDRESS_PLACES:
                message = f"{owner}: the server does not allow the parameter {key} of an address"
                raise PenstockError("P0805", message, hint="leave it out; penstock run takes all of them")
        addresses = addresses_of(parameters)
        if not addresses:
            raise PenstockError("P0805", f"{owner}: at a server the host has to be named", hint="write (host '...')")
        for host, port in addresses:
            self._check_host(owner, host, port)


def _reach_of(connector: str, key: str) -> _Reach | None:
    """Return what an option reaches, None for one that is not accepted."""
    if key.startswith("kafka."):
        plain = next((key.removesuffix(form) for form in FORMS if key.endswith(form)), key)
        reach = _CLIENT_SETTINGS.get(plain)
        if plain == key or reach is None:
            return reach
        # A place that a variable or a file names is not the one that was judged.
        kept_elsewhere = reach in (_Reach.SECRET, _Reach.NOTHING)
        return (_Reach.VARIABLE if key.endswith("_env") else _Reach.PATH) if kept_elsewhere else None
    reach = _REACHED[connector].get(key)
    if reach is None:
        tables = (source_options(connector), sink_options(connector))
        options = [option for table in tables if table is not None and (option := table.get(key)) is not None]
        reach = _NOTHING if options and all(option.type.names_nothing for option in options) else None
    return reach


def _is_secret(value: str) -> bool:
    return isinstance(value, SecretText) or redacted_text(value) != value


def _before_glob(path: Path) -> tuple[Path, tuple[str, ...]]:
    """Return the part of a path before its first pattern, and what follows."""
    parts = path.parts
    first = next((i for i, part in enumerate(parts) if _GLOB.search(part)), len(parts))
    # A name may hold the characters of a pattern itself.
    if first < len(parts) and Path(*parts[: first + 1]).exists():
        first = len(parts)
    return Path(*parts[:first]), parts[first:]


def _is_below(place: tuple[str, ...], folder: tuple[str, ...]) -> bool:
    return place[: len(folder)] == folder


def _links(start: Path) -> Iterator[Path]:
    """Yield the symbolic links below a folder, and below the folders that they lead to, which are read too. Raises
    PenstockError P0805 for a folder with too many entries."""
    seen = 0
    walked: set[str] = set()
    waiting = [str(start)]
    while waiting:
        for folder, folders, files in os.walk(waiting.pop()):
            real = os.path.realpath(folder)
            if real in walked:
                folders.clear()
                continue
            walked.add(real)
            seen += len(folders) + len(files)
            if seen > _MOST_ENTRIES:
                message = f"{start} has more than {_MOST_ENTRIES:,} entries"
                raise PenstockError("P0805", message, hint="name a folder further down")
            for name in (*folders, *files):
                if (Path(folder) / name).is_symlink():
                    yield Path(folder) / name
                    waiting.append(f"{folder}/{name}")
