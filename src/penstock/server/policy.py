"""What remote users may reach on this machine and from it.

A statement names files, hosts, environment variables and code. At a server all of them are refused unless the start
allows them; the checkpoint and the token file never are. Connectors and options are allow-lists: one that is not in the
table is refused. Paths are compared as the disk has them, links followed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from penstock.algebra.nodes.query import SinkSpec
from penstock.algebra.nodes.scans import Source
from penstock.connectors.local_paths import local_path, parts_of
from penstock.errors import PenstockError
from penstock.redaction import is_secret, redacted_text

#: Connector -> its option that names a place on disk; None for one that reaches nothing beyond the server.
_PATHS = {"FILES": "path", "DELTA": "path"}
_HARMLESS = frozenset({"MEMORY", "HTTP", "RESULTS", "CONSOLE"})
_NETWORK = frozenset({"KAFKA", "POSTGRES"})
#: Options that name a file beside those that end in `_file`.
_FILE_OPTIONS = frozenset({"sslrootcert", "kafka.ssl.ca.location", "kafka.ssl.certificate.location",
                           "kafka.ssl.key.location"})  # fmt: skip
#: Settings of Kafka's client that reach nothing else: others could load libraries or write logs.
_CLIENT_SETTINGS = frozenset({
    "kafka.security.protocol", "kafka.sasl.mechanism", "kafka.sasl.mechanisms", "kafka.sasl.username",
    "kafka.sasl.password", "kafka.ssl.key.password", "kafka.client.id", "kafka.group.id", "kafka.fetch.max.bytes",
    "kafka.message.max.bytes", "kafka.compression.type", "kafka.linger.ms", "kafka.isolation.level",
    "kafka.enable.ssl.certificate.verification", "kafka.ssl.endpoint.identification.algorithm",
}) | _FILE_OPTIONS  # fmt: skip
#: Parameters of a PostgreSQL address that name no other place.
_ADDRESS_PARAMETERS = frozenset({"sslmode", "connect_timeout", "application_name"})
#: Settings that are fixed at the start of a server, beside those of Spark.
_FIXED = re.compile(
    r"spark\..*|metrics_.*|max_(?:statement|body|unread)_bytes|max_connections|max_scripts_per_minute|max_subscriptions|max_result_rows"
    r"|statement_timeout|stall_timeout|max_queries|control_retention|relation_retention|results_max_bytes|snapshot_memory|snapshot_weight",
    re.IGNORECASE,
)
_SUFFIXES = ("_env", "_file")
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
        if name in _HARMLESS:
            return
        if name not in _PATHS and name not in _NETWORK:
            raise PenstockError("P0805", f"{owner}: the server does not allow the connector {name}")
        values = dict(options)
        for key, value in options:
            self._check_option(owner, key, value)
        if name in _PATHS:
            self.check_path(owner, values.get(_PATHS[name], ""))
        elif name == "KAFKA":
            for address in values.get("bootstrap", "").split(","):
                self._check_host(owner, address.strip())
        else:
            self._check_database(owner, values)

    # -- options -----------------------------------------------------------------------------------------------

    def _check_option(self, owner: str, key: str, value: str) -> None:
        plain = next((key.removesuffix(suffix) for suffix in _SUFFIXES if key.endswith(suffix)), key)
        if key.startswith("kafka.") and plain not in _CLIENT_SETTINGS:
            message = f"{owner}: the server does not allow the setting {key} of Kafka's client"
            raise PenstockError("P0805", message, hint="penstock run takes all of them")
        if key.endswith("_env"):
            self._check_variable(owner, value)
        elif key.endswith("_file") or key in _FILE_OPTIONS:
            self.check_path(owner, value)
        elif is_secret(key) or redacted_text(str(value)) != str(value):
            hint = f"write {plain}_env or {plain}_file, which only say where it is"
            raise PenstockError("P0805", f"{owner}: the option {key} holds a secret", hint=hint)

    def _check_variable(self, owner: str, name: str) -> None:
        if not any(prefix and name.startswith(prefix) for prefix in self.variables):
            message = f"{owner}: the server does not allow the environment variable {name[:100]}"
            raise PenstockError("P0805", message, hint="start it with --allow-env PREFIX")

    # -- places ------------------------------------------------------------------------------------------------

    def check_path(self, owner: str, text: str) -> None:
        """Raises PenstockError P0805 for a path that is not below an allowed folder, or overlaps what is closed."""
        if "://" in text and not text.lower().startswith("file://"):
            raise PenstockError("P0805", f"{owner}: {redacted_text(text)[:200]} is no path of this machine")
        if "\0" in text or not text.strip():
            raise PenstockError("P0805", f"{owner}: the path is empty or has a character that no path has")
        start, tail = _before_glob(local_path(text))
        if ".." in tail:
            raise PenstockError("P0805", f"{owner}: {text[:200]} leads out of the folder that its pattern begins with")
        place = parts_of(start)
        if not any(_is_below(place, parts_of(allowed)) for allowed in self.paths):
            message = f"{owner}: {text[:200]} is not below a folder that the server allows"
            raise PenstockError("P0805", message, hint="start it with --allow-path DIR")
        for closed in self.closed:
            kept = parts_of(closed)
            if _is_below(place, kept) or _is_below(kept, place):
                message = f"{owner}: {text[:200]} overlaps files of the server itself"
                raise PenstockError(
                    "P0805", message, hint="choose a folder beside the checkpoint, and beside that of the token file"
                )
        for link in _links(start):
            if not any(_is_below(parts_of(link), parts_of(allowed)) for allowed in self.paths):
                message = f"{owner}: {text[:200]} holds the link {link.name}, which leads out of what the server allows"
                raise PenstockError("P0805", message, hint="start it with --allow-path for that folder too")

    # -- hosts -------------------------------------------------------------------------------------------------

    def _check_host(self, owner: str, address: str) -> None:
        host = address.lower()
        name = host.rsplit(":", 1)[0] if re.search(r":\d+$", host) else host
        allowed = {one.lower() for one in self.hosts}
        if not host or not ({host, name} & allowed):
            message = f"{owner}: the server does not allow the host {address[:200]!r}"
            raise PenstockError("P0805", message, hint="start it with --allow-host HOST")

    def _check_database(self, owner: str, values: dict[str, str]) -> None:
        hosts = [one for one in values.get("host", "").split(",") if one.strip()]
        port = values.get("port", "")
        addresses = [f"{host.strip()}:{port}" if port else host.strip() for host in hosts]
        if url := str(values.get("url", "")):
            parsed = urlsplit(url)
            unknown = {name for name, _ in parse_qsl(parsed.query, keep_blank_values=True)} - _ADDRESS_PARAMETERS
            if unknown:
                message = f"{owner}: the server does not allow the parameter {min(unknown)[:100]} of an address"
                raise PenstockError("P0805", message, hint="use options of the connector in addition to the url")
            addresses += parsed.netloc.rpartition("@")[2].split(",")
        if not addresses:
            raise PenstockError("P0805", f"{owner}: at a server the host has to be named", hint="write (host '...')")
        for address in addresses:
            self._check_host(owner, address)


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
    """Yield the symbolic links below a folder. Raises PenstockError P0805 for a folder with too many entries."""
    seen = 0
    for folder, folders, files in os.walk(start):
        seen += len(folders) + len(files)
        if seen > _MOST_ENTRIES:
            message = f"{start} has more than {_MOST_ENTRIES:,} entries"
            raise PenstockError("P0805", message, hint="name a folder further down")
        for name in (*folders, *files):
            if (Path(folder) / name).is_symlink():
                yield Path(folder) / name
