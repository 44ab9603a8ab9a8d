"""What a remote user tries to reach by the options of every connector: a port, a file, a variable, a password.

The connectors and their options are those that are registered, so a new one is tried too. What the policy accepts is
opened for real: only the port that is allowed may be connected to.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from penstock.algebra.nodes.query import SinkSpec
from penstock.algebra.nodes.scans import Source
from penstock.connectors.kafka import offsets
from penstock.connectors.loading import load
from penstock.connectors.options import OptionTable
from penstock.connectors.sinks import SINKS, open_sink
from penstock.connectors.sources import SOURCES, open_source, source_names
from penstock.errors import PenstockError, ScriptErrors
from penstock.server.policy import ServerPolicy
from penstock.session import Session

SECRET = "hunter2"
#: Settings of Kafka's client, which no table lists: all that name a place, run a command or hold a secret.
CLIENT_SETTINGS = (
    "bootstrap.servers", "metadata.broker.list", "plugin.library.paths", "ssl.ca.location", "ssl.key.location",
    "ssl.certificate.location", "ssl.crl.location", "ssl.keystore.location", "ssl.ca.pem", "ssl.engine.location",
    "ssl.providers", "sasl.mechanism", "sasl.mechanisms", "sasl.kerberos.kinit.cmd", "sasl.kerberos.keytab",
    "sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.config", "sasl.oauthbearer.client.secret",
    "sasl.password", "ssl.key.password", "ssl.keystore.password", "debug", "log_cb", "socket.connect_cb", "resolve_cb",
    "client.rack", "https.ca.location", "statistics.interval.ms",
)  # fmt: skip


@dataclass
class Port:
    """A port of this machine that counts who comes."""

    listener: socket.socket
    visits: int = 0
    _threads: list[threading.Thread] = field(default_factory=list)

    @property
    def number(self) -> int:
        return int(self.listener.getsockname()[1])

    def serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                self.visits += 1
                connection.close()


@pytest.fixture
def ports() -> Iterator[tuple[Port, Port]]:
    """The port that is allowed, and another."""
    made = [Port(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
    threads = [threading.Thread(target=port.serve, daemon=True) for port in made]
    for thread in threads:
        thread.start()
    yield made[0], made[1]
    for port in made:
        port.listener.shutdown(socket.SHUT_RDWR)
        port.listener.close()


@pytest.fixture
def policy(ports: tuple[Port, Port], tmp_path: Path) -> ServerPolicy:
    for name in ("data", "secret"):
        (tmp_path / name).mkdir()
    (tmp_path / "secret" / "key").write_text(SECRET)
    (tmp_path / "data" / "place").write_text(str(tmp_path / "secret" / "key"))
    return ServerPolicy(
        (tmp_path / "data",),
        ("FEED_",),
        (),
        (f"127.0.0.1:{ports[0].number}", f"localhost:{ports[0].number}"),
        (tmp_path / "secret",),
    )


def hostile(allowed: int, other: int, folder: Path) -> list[str]:
    """Return values that reach the other port, a closed file or a variable, or hold a password, wherever they are read
    as an address, a path, a name or a list of these."""
    key, good, bad = folder / "secret" / "key", f"127.0.0.1:{allowed}", f"127.0.0.1:{other}"
    addresses = [
        bad, "127.0.0.1", "::1", f"[::1]:{other}", f"2130706433:{other}", f"0x7f.1:{other}", f"{good},{bad}",
        f"{good} {bad}", f"{good};{bad}", f"{good}\n{bad}", f"{good}/@{bad}", f"{bad}#{good}", f"PLAINTEXT://{bad}",
        f"u:{SECRET}@{bad}", f"{good}@{bad}", f"127.0.0.1:{allowed},", "127.0.0.1:٥٤٣٢", "/var/run", "@abstract", "",
    ]  # fmt: skip
    urls = [
        f"{scheme}://{rest}"
        for scheme in ("postgresql", "postgres")
        for rest in (
            f"{bad}/db",
            f"{good},{bad}/db",
            f"{bad},{good}/db",
            f"{good}@{bad}/db",
            f"u@{good},x@{bad}/db",
            f"{good}#?host=127.0.0.1&port={other}/db",
            f"{good}/db#?host=127.0.0.1&port={other}",
            f"{good}?host={bad}",
            f"{good}/db?host=127.0.0.1&port={other}",
            f"{good}/db?port={other}",
            f"{good}/db?%70ort={other}",
            f"{good}/db?hostaddr=127.0.0.1,127.0.0.2",
            f"{good}/db?hostaddr=127.0.0.2",
            f"{good}/db?host=/var/run",
            f"/db?host=127.0.0.1&port={other}",
            f"%31%32%37.0.0.1:{other}/db",
            "%2Fvar%2Frun/db",
            "/db",
            "db",
            f"[::1]:{other}/db",
            f"127.0.0.1:{allowed},127.0.0.1:{other}/db",
            f"{good}/db?service=evil",
            f"{good}/db?servicefile={key}",
            f"{good}/db?passfile={key}",
            f"{good}/db?sslkey={key}",
            f"{good}/db?sslcert={key}",
            f"{good}/db?sslrootcert={key}",
            f"{good}/db?sslcrl={key}",
            f"{good}/db?sslcrldir={folder}/secret",
            f"{good}/db?sslkey=engine:{key}",
            f"{good}/db?sslkeylogfile={folder}/data/log",
            f"{good}/db?gsslib=gssapi",
            f"{good}/db?options=-c%20x=y",
            f"{good}/db?oauth_issuer=http://{bad}&oauth_client_id=x",
            f"{good}/db?replication=true",
            f"{good}/db?sslrootcert=~/x",
            f"{good}/db?sslrootcert=file:{folder}/data/place",
            f"u:{SECRET}@{good}/db",
            f"u:%68unter2@{good}/db",
            f"{good}/db?password={SECRET}",
            f"{good}/db?%70assword={SECRET}",
            f"{good}/db?sslpassword={SECRET}",
            f"u:p@{good}/db?user=x",
        )
    ]
    paths = [
        str(key), f"file://{key}", f"{folder}/data/../secret/key", f"{folder}/data/*/../../secret", "/etc/passwd",
        f"file:{folder}/../x", "~/x", "relative", f"http://{bad}/x", f"s3://key:{SECRET}@bucket/x",
        f"s3a://bucket/x?endpoint={bad}", f"abfss://x@{bad}/y", f"hdfs://{bad}/x", f"\\\\{bad}\\x", f"{folder}/secret",
    ]  # fmt: skip
    return [*addresses, *urls, *paths, "HOME", "PATH", "engine:x", "probe", "GSSAPI", "OAUTHBEARER"]


#: What a declaration has beside the option that is tried.
BESIDE = {
    "FILES": {"path": "{data}/in.csv"}, "DELTA": {"path": "{data}/table"},
    "KAFKA": {"bootstrap": "127.0.0.1:{port}", "topic": "t", "format": "json"},
    "POSTGRES": {"host": "127.0.0.1", "port": "{port}", "dbname": "x", "user": "x", "table": "t", "timeout": "1 ms"},
}  # fmt: skip
#: Options of which a value is a name or a text within what is read, whatever it looks like.
NAMES = {
    "FILES": {"null"}, "DELTA": {"timestamp", "partition_by", "key"},
    "POSTGRES": {"dbname", "user", "sslmode", "table", "query", "version", "deleted", "key"},
    "KAFKA": {"topic", "schema", "starting", "ending", "key", "partition", "offset", "timestamp", "headers"},
}  # fmt: skip


def tables() -> list[tuple[str, str, OptionTable]]:
    """Return (FROM or INTO, connector, options) of all that a script may name."""
    found = [("FROM", name, load(SOURCES[name]).OPTIONS) for name in source_names()]
    return [*found, *(("INTO", name, load(path).OPTIONS) for name, path in SINKS.items())]


def beside(connector: str, policy: ServerPolicy, port: int) -> dict[str, str]:
    data = str(policy.paths[0])
    return {key: text.format(data=data, port=port) for key, text in BESIDE.get(connector, {}).items()}


def accepted(policy: ServerPolicy, connector: str, options: dict[str, str]) -> bool:
    """Return whether the policy accepts options; what it refuses is refused with P0805 and without the password."""
    try:
        policy.check_connector("stream s", connector, tuple(options.items()))
    except PenstockError as error:
        # An address that libpq cannot read is P0208, as anywhere.
        assert error.code in ("P0805", "P0208"), error
        assert SECRET not in str(error) and error.hint != ""
        return False
    return True


def test_every_option_of_every_connector(policy: ServerPolicy, ports: tuple[Port, Port], tmp_path: Path) -> None:
    values = hostile(ports[0].number, ports[1].number, tmp_path)
    tried = 0
    for side, connector, table in tables():
        given = beside(connector, policy, ports[0].number)
        assert accepted(policy, connector, given), (side, connector)
        settings = [f"kafka.{name}" for name in CLIENT_SETTINGS] if table.client else []
        keys = [*(option.name for option in table.options), *settings]
        for key in [one + form for one in keys for form in ("", "_env", "_file")]:
            option = table.get(key)
            if option is not None and (option.type.names_nothing or key in NAMES.get(connector, set())):
                continue
            for value in values:
                if value.startswith("u:") and key.endswith(("path", "_file", "_env", "location", "sslrootcert")):
                    continue  # the name of a file or variable, which is shown
                if connector == "POSTGRES" and key in ("url", "host"):
                    # Alone, since an option beside an url takes the place of what it says.
                    chosen = {"table": "t", "timeout": "1 ms", key: value}
                else:
                    chosen = {**given, key: value}
                tried += 1
                assert not accepted(policy, connector, chosen), (side, connector, key, value)
    assert tried > 10_000


def test_a_place_within_a_place(policy: ServerPolicy, ports: tuple[Port, Port]) -> None:
    """A file that is allowed may hold the path of one that is not."""
    given = beside("KAFKA", policy, ports[0].number)
    place = f"{policy.paths[0]}/place"
    assert accepted(policy, "KAFKA", {**given, "kafka.ssl.ca.location": place})
    assert accepted(policy, "KAFKA", {**given, "kafka.sasl.password_file": place})
    for key in ("kafka.ssl.ca.location_file", "kafka.ssl.key.location_env", "kafka.sasl.mechanism_file"):
        assert not accepted(policy, "KAFKA", {**given, key: place if key.endswith("_file") else "FEED_X"})


#: Addresses that are allowed, as (what is written, whether the environment leads elsewhere).
ALLOWED = (
    "url 'postgresql://127.0.0.1:{port}/db'", "url 'postgresql://u@localhost:{port},127.0.0.1:{port}/db?sslmode=prefer'",
    "url 'postgresql:///db?host=127.0.0.1&port={port}'", "url 'postgresql:///db?hostaddr=127.0.0.1&port={port}'",
    "host '127.0.0.1', port '{port}'", "url 'postgresql://other:1/db', host '127.0.0.1', port '{port}'",
    "url 'postgresql://127.0.0.1:{port}/db', dbname 'host=127.0.0.1 port={other}'",
    "url 'postgresql://127.0.0.1:{port}/db', dbname 'postgresql://127.0.0.1:{other}/db'",
    "url 'postgresql://127.0.0.1:{port}/db', user 'x host=127.0.0.1 port={other}'",
    "url 'postgresql://127.0.0.1:{port}/db', sslmode 'disable'' port=''{other}'",
)  # fmt: skip


def test_what_is_accepted_connects_to_what_was_judged(
    policy: ServerPolicy, ports: tuple[Port, Port], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the environment of the server names another host, and where names look like addresses."""
    allowed, other = ports
    (tmp_path / "service").write_text(f"[evil]\nhost=127.0.0.1\nhostaddr=127.0.0.1\nport={other.number}\n")
    for name, value in {
        "PGHOST": "127.0.0.1",
        "PGHOSTADDR": "127.0.0.1",
        "PGPORT": str(other.number),
        "PGSERVICE": "evil",
        "PGSERVICEFILE": str(tmp_path / "service"),
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(offsets.Topic.partitions, "__defaults__", (0.5,))
    scripts = [text.format(port=allowed.number, other=other.number) for text in ALLOWED]
    declared = [f"POSTGRES ({text}, table 'host=127.0.0.1 port={other.number}', timeout '1 ms')" for text in scripts]
    declared.append(f"KAFKA (bootstrap '127.0.0.1:{allowed.number}', topic '127.0.0.1:{other.number}', format 'json')")
    for connector in declared:
        before = allowed.visits
        for found in bound(connector):
            if isinstance(found, Source):
                policy.check_source(found)
                with pytest.raises(PenstockError):
                    open_source(found).check()
            else:
                query, sink = found
                policy.check_sink(query.name, sink)
                if sink.connector == "POSTGRES":
                    with pytest.raises(PenstockError):
                        open_sink(query).open(False, False)
        # libpq refuses an sslmode that is none before it connects.
        assert allowed.visits > before or "disable''" in connector, connector
    assert other.visits == 0


def bound(connector: str) -> Iterator[object]:
    """Yield the source and the sink that a script declares."""
    session = Session()
    sink = connector.replace(", format", ", key 'a', format") if connector.startswith("KAFKA") else connector
    session.execute(
        f"CREATE RELATION s (a INT) FROM {connector};"
        f"CREATE STREAM m (a INT) FROM MEMORY () TIMESTAMP BY a; CREATE QUERY q INTO {sink} AS SELECT a FROM m"
    )
    yield session.catalog.sources["s"]
    query = session.catalog.queries["q"]
    yield query, query.sink


@pytest.mark.parametrize(
    "options",
    [
        f"url 'postgresql://u:{SECRET}@127.0.0.1:{{port}}/db'",
        "url 'postgresql://u:%68unter2@127.0.0.1:{port}/db'",
        f"url 'postgresql://127.0.0.1:{{port}}/db?password={SECRET}'",
        f"url 'postgresql://127.0.0.1:{{port}}/db?%70assword={SECRET}'",
        f"url 'postgresql://127.0.0.1:{{port}}/db?sslpassword={SECRET}'",
        f"url 'postgresql://127.0.0.1:{{port}}/db', password '{SECRET}'",
        f"url 'postgresql://u:{SECRET} more@127.0.0.1:{{port}}/db'",
        f"url 'postgresql://u:{SECRET}%zz@127.0.0.1:{{port}}/db'",
    ],
)
def test_a_password_that_a_script_has_is_refused_and_not_shown(
    policy: ServerPolicy, ports: tuple[Port, Port], options: str
) -> None:
    """As it comes to a server: bound first, which takes the password out of what is shown."""
    declared = f"POSTGRES ({options.format(port=ports[0].number)}, table 't')"
    for text in (f"CREATE RELATION s (a INT) FROM {declared}", f"CREATE QUERY q INTO {declared} AS SELECT a FROM m"):
        session = Session()
        with pytest.raises((PenstockError, ScriptErrors)) as caught:
            session.execute(f"CREATE STREAM m (a INT) FROM MEMORY () TIMESTAMP BY a; {text}")
            if "s" in session.catalog.sources:
                policy.check_source(session.catalog.sources["s"])
            policy.check_sink(
                "q", session.catalog.queries["q"].sink if "q" in session.catalog.queries else SinkSpec("X")
            )
        shown = str(caught.value)
        assert "P0805" in shown or "P0208" in shown
        assert SECRET not in shown and "%68unter2" not in shown
        for query in session.catalog.queries.values():
            assert SECRET not in repr(query) and "%68unter2" not in repr(query)


def test_links_are_followed_to_where_they_end(policy: ServerPolicy, tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "in").mkdir()
    (data / "between").mkdir()
    (data / "in" / "step").symlink_to(data / "between")
    policy.check_path("stream s", str(data / "in"))
    (data / "between" / "round").symlink_to(data / "in")
    policy.check_path("stream s", str(data / "in"))
    (data / "between" / "out").symlink_to("/etc")
    with pytest.raises(PenstockError, match=r"P0805.*leads out"):
        policy.check_path("stream s", str(data / "in"))


def test_links_to_what_is_closed(tmp_path: Path) -> None:
    for name in ("data/in", "data/check"):
        (tmp_path / name).mkdir(parents=True)
    policy = ServerPolicy((tmp_path / "data",), closed=(tmp_path / "data" / "check",))
    policy.check_path("stream s", f"{tmp_path}/data/in")
    for target in ("data/check", "data"):
        (tmp_path / "data" / "in" / "link").symlink_to(tmp_path / target)
        with pytest.raises(PenstockError, match=r"P0805.*overlaps"):
            policy.check_path("stream s", f"{tmp_path}/data/in")
        (tmp_path / "data" / "in" / "link").unlink()
