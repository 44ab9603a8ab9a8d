"""Settings of the Kafka client, its secrets, and its error messages.

Contract: options `kafka.<name>` are passed to the client as `<name>` (librdkafka's names). `kafka.<name>_env` and
`kafka.<name>_file` name where a value is stored; it is fetched when a client is created, by the process that creates
it, so that neither plans nor checkpoints contain it. The client's messages are shown without the secrets in them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.connectors.options import TEXT, Option, Options, ValueType, whole
from penstock.connectors.secrets import FORMS, is_secret, secret
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

PREFIX = "kafka."
#: An address as the client reads it, with the protocol that it may have before it.
_ADDRESS = re.compile(r"(?:(?:plaintext|ssl|sasl_plaintext|sasl_ssl)://)?[^\s:/\[\]]+(?::(\d{1,5}))?", re.IGNORECASE)
#: One of version 6 of the protocol of the internet.
_ADDRESS_6 = re.compile(r"\[[0-9a-f:.%]+\](?::(\d{1,5}))?", re.IGNORECASE)


def _addresses(text: str) -> str:
    for one in text.split(","):
        found = _ADDRESS.fullmatch(one.strip()) or _ADDRESS_6.fullmatch(one.strip())
        if found is None or (found[1] is not None and not 1 <= int(found[1]) <= 65_535):
            raise ValueError("the addresses of brokers, such as 'broker1:9092,broker2:9092'")
    return text


BOOTSTRAP = Option(
    "bootstrap", ValueType("addresses", _addresses, str), "addresses of brokers, with commas", required=True
)
TOPIC = Option("topic", TEXT, "name of the topic", required=True)
PATIENCE_OPTION = Option("patience", whole(), "seconds for which brokers may be silent during a run", "300")
#: Settings that Penstock itself controls: rounds have the offsets, and sinks their transactions.
_OURS = frozenset({
    "bootstrap.servers", "metadata.broker.list", "group.id", "group.instance.id", "client.id", "auto.offset.reset",
    "enable.auto.commit", "enable.auto.offset.store", "enable.partition.eof", "transactional.id", "enable.idempotence",
    "error_cb", "stats_cb", "log_cb", "oauth_cb",
})  # fmt: skip
#: Seconds to wait for the first answer of a broker.
PATIENCE = 10.0


def settings(options: Options) -> dict[str, str]:
    """Return the client's settings as they were written, secrets not fetched.

    Raises:
        PenstockError: P0208.
    """
    client_settings = {k.removeprefix(PREFIX): v for k, v in options.pairs if k.startswith(PREFIX)}
    for key in client_settings:
        if _plain_key(key) in _OURS:
            raise PenstockError("P0208", f"{options.owner}: {PREFIX}{key} is set by Penstock")
    return {"bootstrap.servers": options.needed(BOOTSTRAP), "log_level": "0", **client_settings}


def resolved(written: Mapping[str, str], owner: str) -> dict[str, str | None]:
    """Return the settings with their secrets fetched.

    Raises:
        PenstockError: P0409, a secret cannot be fetched.
    """
    options = Options(owner, tuple(written.items()))
    return {key: secret(options, key) for key in map(_plain_key, written)}


def _plain_key(key: str) -> str:
    """Return the setting that an option sets, in any of its forms."""
    return next((key.removesuffix(form) for form in FORMS if key.endswith(form)), key)


def library() -> Any:
    """Return the client library.

    Raises:
        PenstockError: P0411, it is not installed.
    """
    try:
        import confluent_kafka
    except ImportError:
        hint = "install penstock[kafka]"
        raise PenstockError("P0411", "KAFKA needs the package confluent-kafka", hint=hint) from None
    return confluent_kafka


def make(kind: str, config: Mapping[str, object], owner: str) -> Any:
    """Return a Consumer, Producer or AdminClient.

    Raises:
        PenstockError: P0208, the client does not accept a setting.
    """
    module = library()
    if kind == "AdminClient":
        import confluent_kafka.admin as module
    # Without a callback the library writes connection failures to standard error.
    client_config: dict[str, object] = {"log_level": 0, **config, "error_cb": _silent}
    try:
        return getattr(module, kind)(client_config)
    except (library().KafkaException, ValueError, TypeError) as error:
        reason = _redacted(_error_text(error), config)
        raise PenstockError("P0208", f"{owner}: the Kafka client refuses its settings: {reason}") from None


def unreachable(owner: str, bootstrap: str, error: object) -> PenstockError:
    """Return the error for a broker that does not answer."""
    hint = "start the broker, or correct bootstrap and the kafka.* options; a run with --checkpoint can be resumed"
    return PenstockError("P0411", f"{owner}: no answer from Kafka at {bootstrap}: {_error_text(error)}", hint=hint)


def refused(error: KafkaError) -> bool:
    """Return whether retrying is useless: the broker answered with a refusal."""
    names = (
        "_AUTHENTICATION",
        "SASL_AUTHENTICATION_FAILED",
        "TOPIC_AUTHORIZATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
        "GROUP_AUTHORIZATION_FAILED",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "_SSL",
        "UNKNOWN_TOPIC_OR_PART",
        "_UNKNOWN_TOPIC",
        "_UNKNOWN_PARTITION",
        "_FENCED",
        "PRODUCER_FENCED",
        "INVALID_PRODUCER_EPOCH",
        "MSG_SIZE_TOO_LARGE",
        "_UNSUPPORTED_FEATURE",
    )
    return error.name() in names


def as_kafka_error(error: BaseException) -> KafkaError:
    """Return the library's error in an exception it raised."""
    kafka_error: KafkaError = error.args[0]
    return kafka_error


@contextmanager
def client_errors() -> Iterator[None]:
    """Raise a SystemError of the client as the KafkaException that it is about.

    The client raises a fatal error, such as that another producer has its transactional id, from within a call. Where
    it then reports deliveries, each of these meets an exception that is set already, and Python raises a SystemError,
    whose cause may again be one.

    Raises:
        KafkaException: the client raised it, or a SystemError.
    """
    try:
        yield
    except SystemError as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, library().KafkaException):
            cause = cause.__cause__ or cause.__context__
        if cause is None:
            cause = library().KafkaException(library().KafkaError(library().KafkaError._FATAL, _error_text(error)))
        raise cause from None


def _error_text(error: object) -> str:
    cause = error.args[0] if isinstance(error, BaseException) and error.args else error
    text = cause.str() if hasattr(cause, "str") else str(cause)
    return " ".join(text.split())[:200]


def _redacted(text: str, config: Mapping[str, object]) -> str:
    for key, value in config.items():
        if is_secret(key) and value:
            text = text.replace(str(value), "***")
    return text


def _silent(_error: object) -> None:
    """Ignore the failure of a connection, which the call that waits for it reports."""
