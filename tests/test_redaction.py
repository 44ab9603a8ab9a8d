"""Secrets stay out of everything that people read, and are found where they are said to lie."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.algebra.nodes.query import SinkSpec
from penstock.connectors.options import Options
from penstock.connectors.secrets import forms, secret, with_secrets
from penstock.errors import PenstockError, Position
from penstock.language.scripts import Catalog, bind_script
from penstock.physical.plan.plan import Plan
from penstock.redaction import BLOT, is_secret, redacted, redacted_line, redacted_text
from penstock.runtime.spark.checkpoint.folder import Folder, Intake, Job
from penstock.runtime.spark.checkpoint.planning_cache import sink_identity
from penstock.runtime.spark.worker.job_files import write_job

SECRET = "hunter2!x"


@pytest.mark.parametrize(
    "key",
    ["password", "PASSWORD", "sasl_password", "ssl.key.password", "passphrase", "token", "auth_token", "api_key",
     "apikey", "access_key_id", "private.key", "client_secret", "sasl_jaas_config", "account-key", "credentials"],
)  # fmt: skip
def test_a_key_that_means_a_secret(key: str) -> None:
    assert is_secret(key)
    assert redacted(((key, SECRET),)) == ((key, BLOT),)


@pytest.mark.parametrize(
    "key", ["path", "key", "topic", "user", "primary_key", "password_env", "password_file", "ssl.truststore.location"]
)
def test_a_key_that_means_none(key: str) -> None:
    assert not is_secret(key)
    assert redacted(((key, "value"),)) == ((key, "value"),)


@pytest.mark.parametrize(
    "text",
    [
        f"CREATE STREAM S (a INT) FROM KAFKA (topic 't', sasl_password '{SECRET}', group 'g')",
        f"INTO POSTGRES (password '{SECRET}",
        f"postgresql://someone:{SECRET}@host:5432/db?sslmode=require",
        f"kafka://:{SECRET}@host",
        f"postgresql://host/db?user=a&password={SECRET}&x=1",
        f"postgresql://host/db?user=a&%70assword={SECRET}&x=1",
        f"host=h user=u password={SECRET} dbname=d",
        f"host=h user=u password='{SECRET}' dbname=d",
        f"""{{"user": "u", "password": "{SECRET}"}}""",
        f"""{{'user': 'u', 'api_key': '{SECRET}'}}""",
        f"Options(owner='KAFKA', pairs=(('topic', 't'), ('token', '{SECRET}')))",
        f"Authorization: Bearer {SECRET.replace('!', '')}",
        f'org.apache.PlainLoginModule required username="u" password="{SECRET}";',
    ],
)
def test_secrets_in_a_text(text: str) -> None:
    shown = redacted_text(text)
    assert SECRET not in shown
    assert SECRET.replace("!", "") not in shown
    assert BLOT in shown
    assert redacted_text(shown) == shown


@pytest.mark.parametrize(
    "text",
    ["", "SELECT token FROM S WHERE token = 5", "PRIMARY KEY (a)", "file:///a/b@c", "s3://bucket/a:b", "12:30:00 a@b",
     "(password_env 'DB', topic 'a')", "unknown column password"],
)  # fmt: skip
def test_a_text_without_secrets_stays(text: str) -> None:
    assert redacted_text(text) == text


@settings(deadline=None, max_examples=100)
@given(st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), min_size=1, max_size=12), st.text(max_size=10))
def test_whatever_a_secret_is_made_of(value: str, before: str) -> None:
    quoted = re.sub(r"(['\\])", r"\\\1", value)
    marked = f"zq{quoted}qz"
    assert redacted_text(f"{before.replace(chr(39), '')} (password '{marked}', b 'c')").endswith(
        f" (password '{BLOT}', b 'c')"
    )


def test_the_mark_under_a_line_stays_under_its_word() -> None:
    line = f"INTO KAFKA (password '{SECRET}', topik 'a')"
    place = line.index("topik")
    shown, column, length = redacted_line(line, place + 1, 5)
    assert SECRET not in shown
    assert shown[column - 1 : column - 1 + length] == "topik"
    rendered = Position(1, place + 1, line, 5).render().split("\n")
    assert rendered[0][rendered[1].index("^") :].startswith("topik")
    within = line.index(SECRET)
    shown, column, length = redacted_line(line, within + 1, len(SECRET))
    assert shown[column - 1 : column - 1 + length] == BLOT


def test_an_error_shows_no_secret() -> None:
    error = PenstockError(
        "P0502", f"no connection to postgresql://u:{SECRET}@h/db", Position(1, 1, f"(token '{SECRET}')")
    )
    assert SECRET not in error.render()
    assert SECRET not in str(error)


def test_a_script_that_is_refused_shows_no_secret() -> None:
    script = f"CREATE STREAM S (a INT, t TIMESTAMP) FROM FILES (path '', password '{SECRET}') TIMESTAMP BY t;"
    with pytest.raises(PenstockError) as caught:
        bind_script(script, Catalog())
    assert "password" in str(caught.value)
    assert SECRET not in str(caught.value)


def test_the_three_forms(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PENSTOCK_TEST_SECRET", SECRET)
    file = tmp_path / "secret"
    file.write_text(f"{SECRET}\n")
    for pair in (("token", SECRET), ("token_env", "PENSTOCK_TEST_SECRET"), ("token_file", str(file))):
        options = Options("T of q", (("topic", "t"), pair))
        assert secret(options, "token") == SECRET
        assert with_secrets(options, ["token", "password"]).pairs == (("topic", "t"), ("token", SECRET))
    assert secret(Options("T of q", ()), "token") is None
    assert forms(["a", "b"]) == ("a", "a_env", "a_file", "b", "b_env", "b_file")


def test_a_secret_that_is_nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PENSTOCK_TEST_SECRET", raising=False)
    empty = tmp_path / "empty"
    empty.write_text("\n")
    for pair in (
        ("token_env", "PENSTOCK_TEST_SECRET"),
        ("token_file", str(tmp_path / "none")),
        ("token_file", str(empty)),
    ):
        with pytest.raises(PenstockError) as caught:
            secret(Options("T of q", (pair,)), "token")
        assert caught.value.code == "P0409"
    with pytest.raises(PenstockError) as caught:
        secret(Options("T of q", (("token", SECRET), ("token_env", "A"))), "token")
    assert caught.value.code == "P0208"
    assert SECRET not in str(caught.value)


def test_a_checkpoint_knows_a_script_without_its_secrets() -> None:
    (query,) = bind_script(
        "CREATE STREAM S (t INT) FROM MEMORY () TIMESTAMP BY t; CREATE QUERY q AS SELECT t FROM S;"
    ).queries

    def identity(value: str) -> str:
        given = replace(query, sink=SinkSpec("KAFKA", (("topic", "a"), ("password", value))))
        return sink_identity(given)

    assert SECRET not in identity(SECRET)
    assert identity(SECRET) == identity("another"), "a new password is no new script"


def test_pickled_plans_are_their_owners_alone(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    write_job(folder, Job(Plan((), {}, {}), 1, (0,), False, Intake((), frozenset(), 1)))
    assert (tmp_path / "job.pickle").stat().st_mode & 0o777 == 0o600


def test_a_long_dotted_text_takes_linear_time() -> None:
    began = time.process_time()
    assert redacted_text("a." * 200_000) == "a." * 200_000
    assert time.process_time() - began < 2
    assert redacted_text("-kafka+ssl://user:pass@host") == "-kafka+ssl://user:***@host"
