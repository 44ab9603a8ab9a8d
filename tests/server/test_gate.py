"""What every request passes: token, role, host, origin; and addresses."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest

from penstock.errors import Busy, PenstockError
from penstock.server.addresses import Address, HostNames
from penstock.server.limits import ScriptRate
from penstock.server.listening import Certificate, check_exposure
from penstock.server.roles import AccessRole
from tests.server.fake_service import FakeService
from tests.server.running import Running

#: What follows the hint of a request that was to execute something.
STATEMENTS = "; a statement, CREATE QUERY or DROP STREAM too, is sent by POST /v1/statements"


def test_a_request_without_a_token_is_refused(server: Running) -> None:
    with server.client() as client:
        for path in ("/v1/queries", "/metrics", "/openapi.json", "/nothing"):
            answer = client.get(path)
            assert answer.status_code == 401 and answer.json()["code"] == "P0801"
            assert answer.headers["www-authenticate"].startswith("Bearer")
        assert client.get("/healthz").json() == {"status": "ok", "problem": None, "version": 0, "batch": 7}
        assert client.get("/readyz").status_code == 200


@pytest.mark.parametrize("header", ["Bearer", "Bearer x", "Basic abc", "Bearer pnst_" + "A" * 43, "Bearer " + "ä" * 9])
def test_wrong_tokens_are_refused(server: Running, header: str) -> None:
    with server.client() as client:
        answer = client.get("/v1/queries", headers={"Authorization": header.encode("latin-1")})  # type: ignore[dict-item]
    assert answer.status_code == 401


def test_a_token_in_another_scheme_is_named(server: Running) -> None:
    token = server.texts[AccessRole.READ]
    with server.client() as client:
        for header, said in ((f"Token {token}", ", its Authorization is Token"), (token, "")):
            answer = client.get("/v1/queries", headers={"Authorization": header})
            assert (answer.status_code, answer.json()["message"]) == (401, f"the request has no token{said}")
            assert token not in answer.text


def test_the_values_of_a_statement_are_no_member(client: httpx.Client) -> None:
    answer = client.post("/v1/statements", json={"sql": "SELECT 1", "params": [1]})
    assert answer.status_code == 400 and "stand in its text" in answer.json()["hint"]


def test_a_revoked_token_is_refused_at_once(server: Running) -> None:
    with server.client(AccessRole.READ) as client:
        assert client.get("/v1/queries").status_code == 200
        server.tokens.revoke("read")
        assert client.get("/v1/queries").status_code == 401


def test_too_many_wrong_tokens_block_new_logins_only(server: Running) -> None:
    with server.client(AccessRole.READ) as known, server.client() as stranger:
        assert known.get("/v1/queries").status_code == 200
        for _ in range(10):
            assert stranger.get("/v1/queries", headers={"Authorization": "Bearer no"}).status_code == 401
        answer = stranger.get("/v1/queries", headers={"Authorization": f"Bearer {server.texts[AccessRole.ADMIN]}"})
        assert answer.status_code == 429 and 0 < int(answer.headers["retry-after"]) <= 60
        assert known.get("/v1/queries").status_code == 200


@pytest.mark.parametrize("where", ["?token=x", "?access_token=", "?from={token}", "/{token}"])
def test_a_token_in_an_address_is_refused(server: Running, where: str) -> None:
    token = server.texts[AccessRole.ADMIN]
    with server.client(AccessRole.ADMIN) as client:
        answer = client.get("/v1/queries" + where.format(token=token))
    assert answer.status_code == 400 and answer.json()["code"] == "P0801"
    assert token not in answer.text


@pytest.mark.parametrize(
    ("host", "status"),
    [("evil.example", 421), ("evil.example:8265", 421), ("localhost:1", 200), ("127.0.0.1", 200), ("[::1]:80", 200),
     ("a b", 421), ("127.0.0.1.evil.example", 421)],
)  # fmt: skip
def test_the_host_must_be_ours(server: Running, host: str, status: int) -> None:
    with server.client(AccessRole.READ) as client:
        assert client.get("/v1/queries", headers={"Host": host}).status_code == status
        assert client.get("/healthz", headers={"Host": host}).status_code == status


def test_pages_of_other_sites_are_refused_and_get_no_cors(serve: Callable[..., Running]) -> None:
    server = serve(auth=False)
    with server.client() as client:
        body = {"sql": "SHOW QUERIES"}
        crossed = client.post("/v1/statements", json=body, headers={"Origin": "https://evil.example"})
        assert crossed.status_code == 403
        assert not [name for name in crossed.headers if name.startswith("access-control")]
        assert client.post("/v1/statements", json=body, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
        own = server.url
        assert client.post("/v1/statements", json=body, headers={"Origin": own}).status_code == 200
        assert client.options("/v1/statements", headers={"Origin": "https://evil.example"}).status_code == 403
        assert "default-src 'self'" in client.get("/v1/queries").headers["content-security-policy"]


def test_nothing_is_fetched_from_elsewhere(client: httpx.Client) -> None:
    assert client.get("/docs").status_code == 404
    assert client.get("/redoc").status_code == 404
    document = client.get("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    assert set(document["paths"]) >= {"/v1/statements", "/v1/queries/{query}/results", "/v1/streams/{stream}/rows"}


def test_an_error_of_the_server_shows_nothing_of_it(
    client: httpx.Client, fake: FakeService, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> None:
        raise RuntimeError("the password is hunter2")

    fake.queries = broken  # type: ignore[method-assign,assignment]
    answer = client.get("/v1/queries")
    assert answer.status_code == 500 and answer.json()["code"] == "P0601"
    assert "hunter2" not in answer.text and "Traceback" not in answer.text
    reference = answer.json()["message"].partition("(reference ")[2].rstrip(")")
    assert reference and any(reference in record.getMessage() and record.exc_info for record in caplog.records)


@pytest.mark.parametrize("path", ["/page", "/v1", "/v1/queries/", "/v2/queries", "/v1/queries/%00", "/v1/commands/x"])
def test_unknown_places_are_problems(client: httpx.Client, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code in (400, 404)
    assert answer.headers["content-type"] == "application/problem+json"
    assert client.put("/v1/queries").status_code == 405


@pytest.mark.parametrize(
    ("asked", "status", "hint"),
    [
        ("GET /v1/queries/warm/result", 404, "did you mean GET /v1/queries/warm/results?"),
        ("GET /v1/queries/warm/Plans", 404, "did you mean GET /v1/queries/warm/plan?"),
        ("GET /v1/queries/warm/result?format=csv", 400, "did you mean GET /v1/queries/warm/results?"),
        ("GET /v1/queries/warm/results?formt=csv", 400, "did you mean format or from?"),
        ("GET /v1/queries/warm/er", 404, "did you mean warm?"),
        ("GET /v1/query/warm/results", 404, "did you mean GET /v1/queries/warm/results?"),
        ("GET /queries", 404, "did you mean GET /v1/queries?"),
        ("POST /v1/statement", 404, "did you mean GET or POST /v1/statements?"),
        ("POST /v1/streams/readings", 404, "did you mean POST /v1/streams/readings/rows?"),
        ("POST /v1/streams/readings/row", 404, "did you mean POST /v1/streams/readings/rows?"),
        ("POST /v1/queries/warm", 405, f"DELETE or GET or PATCH is{STATEMENTS}"),
        ("PUT /v1/queries", 405, f"GET is{STATEMENTS}"),
        ("GET /v1/statements?sql=SELECT", 400, f"there are none here{STATEMENTS}"),
        ("POST /ksql", 404, f"/openapi.json lists what there is{STATEMENTS}"),
        ("GET /health", 404, "did you mean GET /healthz?"),
        ("GET /v1/metrics", 404, "did you mean GET /metrics?"),
        ("POST /v1/relations/rooms/rows", 404, "did you mean POST /v1/streams/rooms/rows?"),
        ("GET /v1/queries/cold", 404, "known: warm"),
        ("GET /v1/nothing/of/it", 404, f"/openapi.json lists what there is{STATEMENTS}"),
    ],
)
def test_a_misspelt_address_has_the_right_one(client: httpx.Client, asked: str, status: int, hint: str) -> None:
    method, path = asked.split()
    answer = client.request(method, path, json={} if method == "POST" else None)
    assert (answer.status_code, answer.json()["hint"]) == (status, hint)


def test_a_misspelt_member_or_cursor_has_the_right_one(client: httpx.Client) -> None:
    for body, name, hint in (
        ({"sq": "SHOW QUERIES;"}, "sq", "did you mean sql?"),
        ({"sql": "SHOW QUERIES;", "dryy": True}, "dryy", "did you mean dry?"),
        ({"sql": "SHOW QUERIES;", "timeout": 3}, "timeout", "known: dry, settings, sql, wait"),
    ):
        answer = client.post("/v1/statements", json=body)
        assert answer.status_code == 400
        assert answer.json()["message"] == f"the body has an unknown member {name!r}" and answer.json()["hint"] == hint
    answer = client.patch("/v1/entities/query:warm", json={"weight": 2})
    assert answer.status_code == 400 and '{"attributes": {"weight": ...}}' in answer.json()["hint"]
    answer = client.get("/v1/queries/warm/results", params={"from": "2024-05-01T10:00:00Z"})
    assert answer.status_code == 400 and "SUBSCRIBE TO warm AS OF '2024-05-01T10:00:00Z'" in answer.json()["hint"]
    for cursor, hint in (("begining", "did you mean beginning?"), ("latest", "known: beginning, now")):
        answer = client.get("/v1/queries/warm/results", params={"from": cursor, "until": "now"})
        assert (answer.status_code, answer.json()["hint"]) == (400, hint)


def test_addresses() -> None:
    assert Address.parse("127.0.0.1:8265") == Address("127.0.0.1", 8265)
    assert Address.parse("[::1]:0") == Address("::1", 0)
    assert Address.parse("[::1]:0").shown == "[::1]:0"
    assert Address.parse("localhost:1").is_loopback and Address.parse("[::1]:1").is_loopback
    assert not Address.parse("0.0.0.0:1").is_loopback
    for wrong in ("", "8265", "a:b", "host", "host:65536", "[::1]", "::1:80", "a/b:1"):
        with pytest.raises(PenstockError, match="P0806"):
            Address.parse(wrong)


def test_names_of_a_server() -> None:
    names = HostNames.of(Address("0.0.0.0", 8265), ("Penstock.Example",))
    assert names.has("penstock.example:8265") and names.has("10.0.0.7") and not names.has("other.example")


@pytest.mark.parametrize("listens", ["0.0.0.0", "::", "127.0.0.1", "::1"])
@pytest.mark.parametrize(
    ("host", "is_ours"),
    [
        ("127.0.0.1", True), ("127.0.0.1:1", True), ("[::1]", True), ("[::1]:80", True), ("localhost", True),
        ("192.0.2.1", True), ("[::ffff:127.0.0.1]", True), ("[2001:db8::1]:8265", True),
        ("0.0.0.0", False), ("0.0.0.0:8265", False), ("[::]", False), ("[::ffff:0.0.0.0]", False), ("0", False),
        ("[127.0.0.1]", False), ("[127.0.0.1]:80", False), ("[]", False), ("[::1", False), ("::1", False),
        ("127.0.0.1:99999", False), ("127.0.0.1:", False), ("127.0.0.1:x", False), ("", False), ("127.1", False),
        ("a@127.0.0.1", False), ("2130706433", False), ("rebound.example", False), ("*", False),
    ],
)  # fmt: skip
def test_hosts_that_are_ours(listens: str, host: str, is_ours: bool) -> None:
    """0.0.0.0 is this machine to many systems, and no name of it: pages of other sites reach it past their guards."""
    assert HostNames.of(Address(listens, 8265)).has(host) is is_ours


def test_beyond_this_machine_there_are_tokens_and_tls() -> None:
    everywhere, here = Address("0.0.0.0", 0), Address("127.0.0.1", 0)
    check_exposure(here, None, tokens=False, insecure=False)
    check_exposure(everywhere, None, tokens=True, insecure=True)
    with pytest.raises(PenstockError, match="--tls-cert"):
        check_exposure(everywhere, None, tokens=True, insecure=False)
    with pytest.raises(PenstockError, match="without tokens"):
        check_exposure(everywhere, None, tokens=False, insecure=True)


def test_a_certificate_that_is_none_is_refused(tmp_path: object) -> None:
    from pathlib import Path

    place = Path(str(tmp_path)) / "x.pem"
    with pytest.raises(PenstockError, match="P0806"):
        Certificate(place, place).check()
    place.write_text("nothing", encoding="utf-8")
    with pytest.raises(PenstockError, match="P0806"):
        Certificate(place, place).check()


def test_a_token_may_send_so_many_scripts_a_minute(serve: Callable[..., Running]) -> None:
    server = serve(max_scripts_per_minute="2")
    with server.client(AccessRole.READ) as client, server.client(AccessRole.ADMIN) as other:
        script = {"sql": "SHOW QUERIES"}
        assert [client.post("/v1/statements", json=script).status_code for _ in range(2)] == [200, 200]
        answer = client.post("/v1/statements", json=script)
        assert (answer.status_code, answer.json()["code"]) == (429, "P0804")
        assert 0 < int(answer.headers["retry-after"]) <= 30
        assert client.get("/v1/queries").status_code == 200
        assert other.post("/v1/statements", json=script).status_code == 200


def test_scripts_are_allowed_again_as_time_goes_on() -> None:
    now = [50.0]
    rate, any_number = ScriptRate(30, lambda: now[0]), ScriptRate(0)
    for _ in range(30):
        rate.count("ada")
        any_number.count("ada")
    any_number.count("ada")
    with pytest.raises(Busy) as caught:
        rate.count("ada")
    assert caught.value.seconds == pytest.approx(2.0)
    now[0] += 2.01
    rate.count("ada")
    with pytest.raises(Busy):
        rate.count("ada")


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_a_load_balancer_may_ask_for_the_head_alone(server: Running, path: str) -> None:
    with server.client() as client:
        known, answer = client.get(path), client.head(path)
        assert (answer.status_code, answer.content) == (200, b"")
        assert answer.headers["content-length"] == str(len(known.content))
        server.door.closing.set()
        assert client.head(path).status_code == client.get(path).status_code == 503
        assert client.head("/v1/queries").status_code in (401, 405)


@pytest.mark.parametrize("type_", ["", "text/plain", "application/sql"])
def test_what_an_address_has_not_is_named_before_the_type_of_the_body(client: httpx.Client, type_: str) -> None:
    headers = {"Content-Type": type_}
    for path in ("/v1/queries/warm/results", "/v1/queries/warm/plan", "/v1/commands/1", "/v1/entities"):
        answer = client.post(path, content=b"x", headers=headers)
        assert (answer.status_code, answer.headers["allow"]) == (405, "GET"), path
        assert answer.json()["hint"] == f"GET is{STATEMENTS}"
    for path in ("/v1/nothing", "/v1/statements/of/others", "/nothing"):
        assert client.post(path, content=b"x", headers=headers).status_code == 404
    assert client.put("/v1/statements", content=b"x", headers=headers).status_code == 405
    for method, path in (("PATCH", "/v1/queries/warm"), ("POST", "/v1/streams/readings/heartbeat")):
        assert client.request(method, path, content=b"{}", headers=headers).status_code == 415
    # A script may be the whole body of these two.
    for method, path in (("POST", "/v1/statements"), ("PUT", "/v1/catalog")):
        status = client.request(method, path, content=b"SELEC", headers=headers).status_code
        assert status == (400 if type_ == "application/sql" else 415)


def test_what_removes_is_no_misspelt_post(client: httpx.Client) -> None:
    """DELETE of a stream is a statement, and not the post of rows that has the nearest address."""
    answer = client.delete("/v1/streams/readings")
    assert (answer.status_code, answer.json()["hint"]) == (404, f"/openapi.json lists what there is{STATEMENTS}")
    named = client.post("/v1/streams/readings/row", json={}).json()["hint"]
    assert named.startswith("did you mean POST /v1/streams/readings/rows?")
