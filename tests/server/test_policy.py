"""What remote users may reach: paths, variables, modules, hosts, settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.algebra.nodes.query import SinkSpec
from penstock.errors import PenstockError
from penstock.server.policy import ServerPolicy
from penstock.session import Session


@pytest.fixture
def policy(tmp_path: Path) -> ServerPolicy:
    for name in ("data/in", "data/check", "other", "data-2"):
        (tmp_path / name).mkdir(parents=True)
    return ServerPolicy(
        (tmp_path / "data",),
        ("FEED_",),
        ("feeds",),
        ("broker.example", "db.example:5432"),
        (tmp_path / "data" / "check", tmp_path / "tokens.json"),
    )


def refused(policy: ServerPolicy, connector: str, **options: str) -> str:
    pairs = tuple((key.replace("__", "."), value) for key, value in options.items())
    with pytest.raises(PenstockError, match="P0805") as caught:
        policy.check_connector("stream s", connector, pairs)
    return str(caught.value)


def test_paths_below_an_allowed_folder(policy: ServerPolicy, tmp_path: Path) -> None:
    for path in ("data/in", "data/in/../new", "data/in/*.csv", "data/new/*/x"):
        policy.check_path("stream s", str(tmp_path / path))
    policy.check_path("stream s", f"file://{tmp_path}/data/in/*.csv")


@pytest.mark.parametrize(
    "path",
    ["", "other", "data-2", "data/../other", "data/in/../../other/x.csv", "data/*/../../other", "data", "data/check",
     "data/check/state", "data/*/..", "\0"],
)  # fmt: skip
def test_other_paths(policy: ServerPolicy, tmp_path: Path, path: str) -> None:
    refused(policy, "FILES", path=f"{tmp_path}/{path}" if path and path != "\0" else path)


@pytest.mark.parametrize("path", ["/etc/passwd", "s3://bucket/x", "http://10.0.0.1/x", "~/x", "relative", "file:/etc"])
def test_places_elsewhere(policy: ServerPolicy, path: str) -> None:
    refused(policy, "FILES", path=path)
    refused(policy, "DELTA", path=path)


def test_links_are_followed(policy: ServerPolicy, tmp_path: Path) -> None:
    (tmp_path / "data" / "way").symlink_to(tmp_path / "other")
    assert "not below" in refused(policy, "FILES", path=str(tmp_path / "data" / "way"))
    (tmp_path / "data" / "in" / "out").symlink_to(tmp_path / "other")
    assert "link out" in refused(policy, "FILES", path=str(tmp_path / "data" / "in"))
    (tmp_path / "data" / "state").symlink_to(tmp_path / "data" / "check")
    assert "overlaps" in refused(policy, "FILES", path=str(tmp_path / "data" / "state"))
    (tmp_path / "data" / "in" / "out").unlink()
    (tmp_path / "data" / "in" / "inside").symlink_to(tmp_path / "data" / "new")
    policy.check_path("stream s", str(tmp_path / "data" / "in"))


def test_nothing_is_allowed_by_default(tmp_path: Path) -> None:
    closed = ServerPolicy()
    refused(closed, "FILES", path=str(tmp_path))
    refused(closed, "KAFKA", bootstrap="broker:9092", topic="t")
    refused(closed, "POSTGRES", table="t")
    refused(closed, "DATAFRAME")
    refused(closed, "FILES", path=str(tmp_path), password_env="HOME")
    closed.check_connector("stream s", "MEMORY", ())
    closed.check_sink("q", SinkSpec("RESULTS", (("retain", "1 minute"),)))
    with pytest.raises(PenstockError, match="P0805"):
        closed.check_function("f", "os:getcwd")


def test_secrets_are_named_not_written(policy: ServerPolicy, tmp_path: Path) -> None:
    policy.check_connector(
        "s", "KAFKA", (("bootstrap", "broker.example:9092"), ("kafka.sasl.password_env", "FEED_KEY"))
    )
    assert "hunter2" not in refused(policy, "KAFKA", bootstrap="broker.example", kafka__sasl__password="hunter2")
    assert "hunter2" not in refused(policy, "POSTGRES", url="postgresql://u:hunter2@db.example:5432/x", table="t")
    refused(policy, "KAFKA", bootstrap="broker.example", kafka__sasl__password_env="HOME")
    refused(policy, "KAFKA", bootstrap="broker.example", kafka__sasl__password_env="")
    refused(policy, "POSTGRES", host="db.example", port="5432", password_file="/etc/shadow")
    policy.check_connector(
        "s", "POSTGRES", (("host", "db.example"), ("port", "5432"), ("password_file", f"{tmp_path}/data/in/key"))
    )


@pytest.mark.parametrize(
    "setting",
    ["kafka.plugin.library.paths", "kafka.sasl.oauthbearer.config", "kafka.debug", "kafka.log_cb",
     "kafka.statistics.interval.ms", "kafka.sasl.kerberos.kinit.cmd", "kafka.ssl.engine.location"],
)  # fmt: skip
def test_settings_of_clients_are_an_allow_list(policy: ServerPolicy, setting: str) -> None:
    with pytest.raises(PenstockError, match="P0805"):
        policy.check_connector("s", "KAFKA", (("bootstrap", "broker.example:9092"), (setting, "x")))


def test_hosts(policy: ServerPolicy) -> None:
    policy.check_connector("s", "KAFKA", (("bootstrap", "broker.example:9092, BROKER.example"),))
    policy.check_connector("s", "POSTGRES", (("url", "postgresql://u@db.example:5432/x?sslmode=require"),))
    refused(policy, "KAFKA", bootstrap="broker.example:9092,169.254.169.254:80")
    refused(policy, "KAFKA", bootstrap="broker.example.evil")
    refused(policy, "KAFKA", bootstrap="")
    refused(policy, "POSTGRES", url="postgresql://db.example:5433/x")
    refused(policy, "POSTGRES", url="postgresql:///x?host=evil")
    refused(policy, "POSTGRES", url="postgresql://db.example:5432/x?host=evil")
    refused(policy, "POSTGRES", url="postgresql://db.example:5432/x?service=evil")
    refused(policy, "POSTGRES", url="postgresql://db.example:5432@evil/x")
    refused(policy, "POSTGRES", url="postgresql://db.example:5432,evil/x")
    refused(policy, "POSTGRES", host="/var/run")
    refused(policy, "POSTGRES", host="db.example", port="5433")


def test_functions_and_settings(policy: ServerPolicy) -> None:
    policy.check_function("f", "feeds:clean")
    policy.check_function("f", "feeds.more:clean")
    for reference in ("feedsx:clean", "os:system", None, "", ":x"):
        with pytest.raises(PenstockError, match="P0805"):
            policy.check_function("f", reference)
    policy.check_setting("integer_division")
    for name in ("spark.jars", "SPARK.jars", "metrics_file", "max_body_bytes", "statement_timeout"):
        with pytest.raises(PenstockError, match="P0805"):
            policy.check_setting(name)


def test_declared_sources(policy: ServerPolicy, tmp_path: Path) -> None:
    session = Session()
    session.execute(f"CREATE STREAM s (a INT) FROM FILES (path '{tmp_path}/other/*.csv') TIMESTAMP BY a;")
    with pytest.raises(PenstockError, match="stream s"):
        policy.check_source(session.catalog.sources["s"])
