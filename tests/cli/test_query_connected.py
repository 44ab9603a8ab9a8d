"""`penstock query --connect` and `penstock shell --connect` on the command line: answers for programs, exit codes, and
the mistakes that a new user makes."""

from __future__ import annotations

import datetime as dt
import io
import json
import re
import shutil
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.client import connect
from penstock.language.scripts import parse
from penstock.language.text import SourceText
from penstock.server.addresses import Address, HostNames
from penstock.server.http.application.server import HttpServer
from penstock.server.http.door import HttpDoor
from penstock.server.limits import DoorLimits
from penstock.server.listening import Certificate
from penstock.server.roles import AccessRole
from penstock.settings import Settings
from tests.server.conftest import fake, serve, server  # noqa: F401 - fixtures
from tests.server.fake_service import FakeService, eventually
from tests.server.running import Running
from tests.server.test_live_service import ROWS, WARM, ended, started

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    running = started(tmp_path_factory.mktemp("live"))
    yield running
    ended(running)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing of this user's; servers that are not reached are given up soon."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("PENSTOCK_TOKEN", raising=False)
    monkeypatch.setattr("penstock.cli.shared.connecting._PATIENCE", 0.2)
    return tmp_path


def called(*arguments: object, given: str | None = None) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [str(one) for one in arguments], input=given)
    return result.exit_code, result.stdout, result.stderr


def token_file(folder: Path, running: Running, role: AccessRole = AccessRole.ADMIN) -> Path:
    path = folder / f"{role.word}.token"
    path.write_text(running.texts[role] + "\n")
    path.chmod(0o600)
    return path


# --- answers ----------------------------------------------------------------------------------------------------------


def test_answers_for_programs(live: Running, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_TOKEN", live.texts[AccessRole.ADMIN])
    query = ["query", "--connect", live.url]
    assert called(*query, "SELECT room, floor FROM rooms ORDER BY room") == (0, "room,floor\nattic,2\nhall,0\n", "")
    out = called(*query, "SELECT room FROM rooms WHERE floor > 1", "--format", "json")[1]
    assert json.loads(out) == {"room": "attic"}
    assert "(2 rows" in called(*query, "SELECT room FROM rooms", "--format", "table")[1]
    result = CliRunner().invoke(app, [*query, "SELECT floor FROM rooms WHERE floor > 0", "--format", "arrow"])
    assert pa.ipc.open_stream(io.BytesIO(result.stdout_bytes)).read_all().to_pydict() == {"floor": [2]}
    script = home / "s.cql"
    script.write_text("CREATE VIEW low AS SELECT room FROM rooms WHERE floor < 1;\nSELECT room FROM low;\n")
    assert called(*query, script, "SELECT COUNT(*) AS n FROM low")[1] == "# query_1\nroom\nhall\n\n# query_2\nn\n1\n"
    code, out, err = called(*query, "SHOW VIEWS; DROP VIEW low;")
    assert code == 0 and "CREATE VIEW low" in out and err == "DROP VIEW: COMPLETED (command 5)\n"
    assert called(*query, "SELECT 5 / 2 AS h FROM rooms LIMIT 1", "--set", "integer_division=true")[1] == "h\n2\n"


def test_a_statement_is_read_once_here_and_once_at_the_server(
    live: Running, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server runs in this process, so both are counted."""
    counts: Counter[str] = Counter()
    read = parse._parsed

    def counted(source: SourceText, tokens: list[Any]) -> Any:
        counts[source.text[tokens[0].start : tokens[-1].end + 1]] += 1
        return read(source, tokens)

    monkeypatch.setattr(parse, "_parsed", counted)
    options = ["--connect", live.url, "--token-file", token_file(home, live)]
    for text in ("SELECT room FROM rooms", "SHOW QUERIES", "EXPLAIN SELECT room FROM rooms"):
        for form in ("csv", "table"):
            counts.clear()
            assert called("query", text, *options, "--format", form)[0] == 0
            assert counts == {text: 2}, (text, form)


def test_errors_of_statements(live: Running, home: Path) -> None:
    options = ["--connect", live.url, "--token-file", token_file(home, live)]
    code, out, err = called("query", "SELECT room FROM rooms LIMIT 0;\n SELCT 1;", *options)
    assert (code, out) == (2, "room\n") and err.startswith("line 2:2: error P0101") and "\n   ^^^^^\n" in err
    assert "did you mean SELECT or" in err
    code, out, err = called("query", "BEGIN; DROP RELATION rooms;", *options)
    assert code == 2 and "P0732" in err
    code, out, err = called("shell", *options, given="SELECT wrd FROM rooms;\n")
    assert code == 1 and err.startswith("<stdin>:1:8: error P0202")
    code, out, err = called(
        "shell", *options, "--keep-going", given="SELECT 1 FROM x;\nSELECT COUNT(*) AS n FROM rooms;\n"
    )
    assert (code, out) == (1, "n\n2\n")
    script = home / "s.cql"
    script.write_text("SELECT nothing FROM rooms;\n")
    assert called("shell", *options, script, given="SELECT COUNT(*) AS n FROM rooms;\n")[:2] == (1, "")
    assert called("shell", *options, given="BEGIN; DROP RELATION rooms;")[0] == 1
    reader = ["--connect", live.url, "--token-file", token_file(home, live, AccessRole.READ)]
    code, out, err = called("query", "DROP RELATION rooms", *reader)
    assert code == 2 and "P0802" in err


def test_results_as_they_come(live: Running, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A subscription is written as its rows come, and ends with its reader."""
    options = ["--connect", live.url, "--token-file", token_file(home, live)]
    code, out, err = called("query", WARM, *options)
    assert (code, out) == (0, "") and err.startswith("CREATE QUERY: RUNNING (command ")
    seen: list[str] = []

    class Reader(io.StringIO):
        def write(self, text: str) -> int:
            seen.append(text)
            if "attic" in "".join(seen):
                raise BrokenPipeError
            return len(text)

    from penstock.client import connect

    def insert() -> None:
        with connect(live.url, live.texts[AccessRole.ADMIN]) as client:
            client.insert("readings", ROWS)

    from penstock.cli.remote.asking import answer_at_server
    from penstock.cli.shared.options import ServerPlace
    from penstock.connectors.sinks.output import OutputFormat

    monkeypatch.setattr("sys.stdout", Reader())
    threading.Timer(0.5, insert).start()
    place = ServerPlace(live.url, token_file(home, live))
    with pytest.raises(BrokenPipeError):
        answer_at_server(place, [("SUBSCRIBE TO warm", None)], OutputFormat.CSV, {})
    assert "".join(seen).startswith("ts,op,room,celsius\n2024-03-01T09:00:00Z,+,hall,19.5\n")


# --- mistakes of new users --------------------------------------------------------------------------------------------


def mistaken(*arguments: object) -> str:
    """Return the message for a start that must not get on, whichever the command; it is the same for both."""
    code, out, err = called("query", "SELECT 1 AS a FROM rooms", *arguments)
    again = called("shell", *arguments, given="SELECT 1 AS a FROM rooms;")
    # The server logs into the same stream, and when.
    err, other = ("".join(re.sub(r"^\S+ WARNING .*\n", "", text, flags=re.M)) for text in (err, again[2]))
    assert out == again[1] == "" and code == again[0] and err == other
    assert code in (1, 2) and "Traceback" not in err and err.count("\n") <= 3
    return err


def test_a_server_that_is_not_there(home: Path) -> None:
    assert "P0808" in (err := mistaken("--connect", "http://127.0.0.1:9")) and "penstock serve" in err
    assert "P0808" in (err := mistaken("--connect", "127.0.0.1:8265")) and "http://" in err
    assert "no host of that name" in mistaken("--connect", "http://no-such-host.invalid")
    with socket.create_server(("127.0.0.1", 0)) as other:

        def answer() -> None:
            for _ in range(2):
                connection, _ = other.accept()
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
                connection.close()

        threading.Thread(target=answer, daemon=True).start()
        assert "P0808" in mistaken("--connect", f"http://127.0.0.1:{other.getsockname()[1]}")


def test_tokens(server: Running, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    connect = ["--connect", server.url]
    err = mistaken(*connect)
    assert "P0801: the server requires a token, and none is given" in err and "--token-file" in err
    assert "PENSTOCK_TOKEN" in err
    monkeypatch.setenv("PENSTOCK_TOKEN", "pnst_wrong")
    assert "that of the variable PENSTOCK_TOKEN" in mistaken(*connect)
    soon = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=1)
    expired = home / "expired"
    expired.write_text(server.tokens.add("brief", AccessRole.READ, soon))
    expired.chmod(0o600)
    eventually(lambda: dt.datetime.now(dt.UTC) > soon + dt.timedelta(seconds=1))
    err = mistaken(*connect, "--token-file", expired)
    assert "expired" in err and str(expired) in err and "penstock token add" in err
    assert "P0807" in mistaken(*connect, "--token-file", home / "none")
    err = mistaken(*connect, "--token-file", server.tokens.path)
    assert "the file of a server" in err and "penstock token add" in err
    empty = home / "empty"
    empty.write_text("\n")
    assert "holds no token" in mistaken(*connect, "--token-file", empty)
    empty.write_bytes(b"\xff\xfe")
    assert "holds no token" in mistaken(*connect, "--token-file", empty)
    # The token of the first start is used on this machine alone.
    monkeypatch.delenv("PENSTOCK_TOKEN")
    first = home / "config" / "penstock" / "first-token"
    first.parent.mkdir(parents=True)
    first.write_text(server.texts[AccessRole.READ])
    first.chmod(0o644)
    code, out, err = called("query", "SELECT COUNT(*) AS n FROM readings", *connect)
    assert (code, out) == (0, "n\n0\n") and "chmod 600" in err
    first.chmod(0o600)
    assert called("query", "SELECT COUNT(*) AS n FROM readings", *connect)[2] == ""
    from penstock.cli.shared.connecting import _token
    from penstock.cli.shared.options import ServerPlace

    assert _token(ServerPlace(server.url))[0] == server.texts[AccessRole.READ]
    assert _token(ServerPlace("https://streams.example.com"))[0] is None


def test_without_the_extra_it_says_which_is_missing() -> None:
    for words in (["query", "SELECT a FROM b"], ["shell"], ["apply", "a.cql"]):
        option = "--server" if words[0] == "apply" else "--connect"
        code = (
            "import sys; sys.modules['httpx'] = None; from penstock.cli.main import main; "
            f"sys.argv = {['penstock', *words, option, 'http://127.0.0.1:9']!r}; main()"
        )
        said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        assert "Traceback" not in said.stderr and "pip install 'penstock[client]'" in said.stderr, said.stderr
        assert said.returncode == 2


def test_options_that_need_a_server(home: Path) -> None:
    for option in (["--token-file", "x"], ["--tls-ca", "x"]):
        code, _, err = called("query", "SELECT 1", *option)
        assert code == 2 and "--connect" in err


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_certificates(server: Running, fake: FakeService, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    def certificate(name: str, names: str = "DNS:localhost,IP:127.0.0.1") -> tuple[Path, Path]:
        chain, key = home / f"{name}.pem", home / f"{name}.key"
        subprocess.run(
            [
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
                "-nodes",
                "-days",
                "2",
                "-subj",
                "/CN=localhost",
                "-addext",
                f"subjectAltName={names}",
                "-keyout",
                str(key),
                "-out",
                str(chain),
            ],
            check=True,
            capture_output=True,
        )
        return chain, key

    (chain, key), (other, _) = certificate("own"), certificate("other")
    address = Address("127.0.0.1", 0)
    door = HttpDoor(fake, server.tokens, HostNames.of(address), DoorLimits.of(Settings()))
    secure = HttpServer(door, address, Certificate(chain, key))
    try:
        token = ["--token-file", token_file(home, server)]
        right = ["--connect", secure.url, *token, "--tls-ca", chain]
        assert called("query", "SELECT COUNT(*) AS n FROM readings", *right) == (0, "n\n0\n", "")
        for wrong in ([], ["--tls-ca", other]):
            err = mistaken("--connect", secure.url, *token, *wrong)
            assert "P0808" in err and "certificate is not accepted" in err and "--tls-ca" in err
        monkeypatch.setenv("PENSTOCK_TLS_CA", str(chain))
        assert called("query", "SELECT COUNT(*) AS n FROM readings", *right[:-2]) == (0, "n\n0\n", "")
        monkeypatch.setenv("PENSTOCK_TLS_CA", str(home / "none"))
        assert "PENSTOCK_TLS_CA" in mistaken("--connect", secure.url, *token)
        monkeypatch.delenv("PENSTOCK_TLS_CA")
        assert "P0808" in mistaken("--connect", secure.url, *token, "--tls-ca", key)
        assert "there is no file" in mistaken("--connect", secure.url, *token, "--tls-ca", home / "none")
        plain = mistaken("--connect", secure.url.replace("https:", "http:"), *token)
        assert "P0808" in plain and f"{secure.url}" in plain
        tls = mistaken("--connect", server.url.replace("http:", "https:"), *token)
        assert "does not speak TLS" in tls and server.url in tls
    finally:
        secure.close()
    chain, key = certificate("elsewhere", "DNS:streams.example.com")
    named = HttpServer(door, address, Certificate(chain, key))
    try:
        err = mistaken("--connect", named.url, *token, "--tls-ca", chain)
        assert "mismatch" in err and "subjectAltName" in err and "--tls-ca" not in err
    finally:
        named.close()


def test_a_script_is_applied(live: Running, tmp_path: Path) -> None:
    token = token_file(tmp_path, live)
    path = tmp_path / "all.cql"
    ready = ("apply", path, "--server", live.url, "--token-file", token)
    with connect(live.url, live.texts[AccessRole.ADMIN]) as client:
        base = client.catalog().sql
    path.write_text(base)
    assert called(*ready) == (0, "", f"{path}: nothing changed\n")
    path.write_text(f"{base}CREATE VIEW extra AS\n  SELECT room FROM readings;\n")
    shown = "CREATE VIEW extra AS\n  SELECT room FROM readings;\n"
    assert called(*ready, "--dry-run") == (0, shown, f"{path}: 1 to change\n")
    assert called(*ready) == (0, shown, f"{path}: 1 changed\n")
    assert called(*ready, "--dry-run") == (0, "", f"{path}: nothing to change\n")
    path.write_text(f"{base}CREATE VIEW extra AS\n  SELECT roam FROM readings;\n")
    code, out, err = called(*ready)
    assert (code, out) == (2, "") and err.startswith(f"{path}:{base.count(chr(10)) + 2}:10: error P0202"), err
    path.write_text(base)
    assert called(*ready)[:2] == (0, "DROP VIEW `extra`;\n")
    assert called("apply", path)[0] == 2, "a server is needed"


@pytest.mark.parametrize("command", [("query", "SELECT 1 FROM r"), ("shell",)])
def test_what_accepts_connections_and_never_answers(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    """It is given up: before it was waited for without end."""
    monkeypatch.setattr("penstock.cli.shared.connecting._FIRST_ANSWER_SECONDS", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        code, out, err = called(*command, "--connect", f"http://127.0.0.1:{mute.getsockname()[1]}", given="")
    assert (code, out) == (1, "") and "no answer has come in 1 second" in err and "Penstock server" in err
