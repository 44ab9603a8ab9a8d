"""The files of the page, and sessions that stand for tokens."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from penstock.server import tokens
from penstock.server.page import sessions as page_sessions
from penstock.server.page.files import PAGE_FILES
from penstock.server.roles import AccessRole
from penstock.server.tokens import TokenFile
from tests.server.running import Running


@contextmanager
def signed_in(server: Running, role: AccessRole = AccessRole.CONTROL) -> Iterator[httpx.Client]:
    """A client with a session and no token."""
    with server.client() as client:
        headers = {"Authorization": f"Bearer {server.texts[role]}"}
        assert client.post("/v1/session", json={}, headers=headers).status_code == 200
        yield client


def test_the_page_needs_no_token_and_nothing_from_elsewhere(server: Running) -> None:
    with server.client() as client:
        for path, file in PAGE_FILES.items():
            answer = client.get(path)
            assert answer.status_code == 200 and answer.content == file.content
            assert answer.headers["content-type"] == file.media
            assert answer.headers["content-security-policy"].startswith("default-src 'self'")
            assert client.get(path, headers={"If-None-Match": answer.headers["etag"]}).status_code == 304
        for path in ("/page/", "/page/nothing.js", "/page/../tokens.py", "/page/%2e%2e/tokens.py"):
            assert client.get(path).status_code in (401, 404)


def test_a_page_names_files_that_exist_and_no_other_site() -> None:
    for path, file in PAGE_FILES.items():
        if path.startswith("/page/vendor/"):
            continue
        text = file.content.decode()
        for found in re.findall(r'(?:\bfrom |src=|href=)"([^"#$ ,]+)"', text):
            place = found if found.startswith("/") else str((Path(path).parent / found).resolve())
            assert place in PAGE_FILES, f"{path} names {found}"
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text), path
        assert "innerHTML" not in text and "eval(" not in text, path


def test_a_session_stands_for_a_token(server: Running) -> None:
    with signed_in(server) as client:
        (cookie,) = client.cookies.jar
        assert cookie.name == f"penstock_{httpx.URL(server.url).port}" and cookie.path == "/"
        assert all(text not in str(cookie.value) for text in server.texts.values())
        assert client.get("/v1/session").json() == {"name": "control", "role": "control", "needs_token": True}
        assert client.get("/v1/queries").status_code == 200
        assert client.post("/v1/statements", json={"sql": "CREATE FUNCTION f AS 'a:b'"}).status_code == 403
        assert client.delete("/v1/session").status_code == 204
        assert client.get("/v1/queries").status_code == 401


def test_the_cookie_is_for_this_site_and_for_no_script(server: Running) -> None:
    headers = {"Authorization": f"Bearer {server.texts[AccessRole.READ]}"}
    with server.client() as client:
        told = client.post("/v1/session", json={}, headers=headers).headers["set-cookie"].lower()
        assert "httponly" in told and "samesite=strict" in told and "path=/" in told and "secure" not in told
        assert "set-cookie" not in client.post("/v1/session", json={}, headers={"Authorization": "Bearer no"}).headers


def test_a_session_ends_with_its_token(server: Running) -> None:
    with signed_in(server, AccessRole.READ) as client:
        server.tokens.revoke("read")
        assert client.get("/v1/queries").status_code == 401
        server.tokens.add("read", AccessRole.READ)
        assert client.get("/v1/queries").status_code == 401


def test_a_session_ends_in_time(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    with signed_in(server) as client:
        now = page_sessions.time.time()
        monkeypatch.setattr(page_sessions.time, "time", lambda: now + page_sessions.LASTS - 10)
        assert client.get("/v1/queries").status_code == 200
        monkeypatch.setattr(page_sessions.time, "time", lambda: now + page_sessions.LASTS + 1)
        assert client.get("/v1/queries").status_code == 401


@pytest.mark.parametrize(
    "change",
    [lambda value: value + "0", lambda value: "admin" + value.removeprefix("control"), lambda value: value[:-1],
     lambda value: value.replace(".", ".9", 1), lambda value: "", lambda value: "..", lambda value: "control.².0",
     lambda value: value.rpartition(".")[0] + "." + "ä" * 64, lambda value: "control." + "9" * 5000 + ".0"],
)  # fmt: skip
def test_a_cookie_that_was_changed_is_no_session(server: Running, change: Callable[[str], str]) -> None:
    with signed_in(server) as client:
        ((name, value),) = client.cookies.items()
    with server.client() as client:
        header = f"{name}={change(value)}".encode("latin-1")
        assert client.get("/v1/queries", headers={"Cookie": header}).status_code == 401  # type: ignore[dict-item]
        assert client.get("/v1/queries", headers={"Cookie": f"{name}={value}"}).status_code == 200


def test_a_session_is_of_one_server(serve: Callable[..., Running]) -> None:
    one, other = serve(), serve()
    with signed_in(one) as client:
        header = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
        port = str(httpx.URL(other.url).port)
        renamed = re.sub(r"penstock_\d+", f"penstock_{port}", header)
    with other.client() as client:
        for cookies in (header, renamed):
            assert client.get("/v1/queries", headers={"Cookie": cookies}).status_code == 401


def test_an_expired_token_has_no_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, now = TokenFile(tmp_path / "tokens.json"), dt.datetime.now(dt.UTC)
    caller = file.check(file.add("a.b", AccessRole.READ, now + dt.timedelta(hours=1)))
    assert caller is not None
    cookie = page_sessions.begin_session(file, caller)
    assert page_sessions.session_caller(file, f"penstock_1={cookie}", "h:1") == caller
    monkeypatch.setattr(tokens, "_now", lambda: now + dt.timedelta(hours=2))
    assert page_sessions.session_caller(file, f"penstock_1={cookie}", "h:1") is None


def test_pages_of_other_ports_cannot_use_a_session(server: Running) -> None:
    """A browser sends the cookie to a request of another port of this host: same site, other origin."""
    with signed_in(server) as client:
        body = {"sql": "SHOW QUERIES"}
        for headers in ({"Origin": "http://127.0.0.1:1"}, {"Sec-Fetch-Site": "same-site"}):
            assert client.post("/v1/statements", json=body, headers=headers).status_code == 403


def test_without_tokens_there_is_no_cookie(serve: Callable[..., Running]) -> None:
    with serve(auth=False).client() as client:
        answer = client.post("/v1/session", json={})
        assert answer.json()["needs_token"] is False and "set-cookie" not in answer.headers
