"""The API key of a judge: the endpoints that may get it, and how it is kept out of logs and messages."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn
from urllib.parse import quote

from rewardspec.rewards.judge.library import client_library

HOSTS = "REWARDSPEC_KEY_HOSTS"  # more endpoints that may get OPENAI_API_KEY, separated by commas
HOME = "https://api.openai.com/v1"  # the endpoint of the key if OPENAI_BASE_URL is not set
_LEAST = 6  # characters of a key that is hidden: dummy keys of local servers, such as `x`, occur in any text
_PART = 12  # characters of a key that are enough to hide it: an endpoint may repeat only its beginning

_allowed: set[str] = set()  # by `allow_key`


def allow_key(*addresses: str) -> None:
    """Let this process send OPENAI_API_KEY to these endpoints, such as `http://localhost:8000`. Raises ValueError."""
    _allowed.update(map(origin, addresses))


def key_for(url: str) -> Secret:
    """The key in the environment, for requests to an address; empty if there is none.

    Raises ValueError if the address may not get the key: a spec can name any address, but only the user gives the key.
    """
    key = Secret(os.environ.get("OPENAI_API_KEY", ""))
    if not key:
        return key
    home, asked = origin(os.environ.get("OPENAI_BASE_URL", "").strip() or HOME), origin(url)
    given = [origin(part) for part in os.environ.get(HOSTS, "").split(",") if part.strip()]
    if asked not in {home, *given, *_allowed}:
        raise ValueError(
            f"OPENAI_API_KEY belongs to {home}, but would be sent to {asked}: allow that with {HOSTS}={asked}, "
            f"with `rewardspec score --key-host {asked}`, or with `rewardspec.rewards.judge.allow_key`; "
            "for an endpoint that needs no key, set `key: none`"
        )
    return key


def origin(address: str) -> str:
    """Scheme, host and port of an address, as the HTTP client reads them; https if it has no scheme.

    Raises ValueError for a malformed address, without repeating it: it may contain a password.
    """
    httpx = client_library()
    address = address.strip()
    try:
        url = httpx.URL(address if "://" in address else f"https://{address}")
        if url.scheme not in ("http", "https") or not url.host or url.userinfo:
            raise httpx.InvalidURL("no host")
    except httpx.InvalidURL:
        raise ValueError("write a host that may get the key as https://host or http://host:port") from None
    host = f"[{url.host}]" if ":" in url.host else url.host
    return f"{url.scheme}://{host}" + (f":{url.port}" if url.port else "")


class Secret:
    """A key that no `repr` shows and that can be removed from texts. Raises ValueError for impossible characters."""

    def __init__(self, key: str):
        self._key = key.strip()
        if not (self._key.isascii() and self._key.isprintable()):
            raise ValueError("OPENAI_API_KEY has characters that no key has")
        forms = sorted({self._key, quote(self._key, safe="")}, key=len, reverse=True)
        parts = [re.escape(form) for form in forms]
        parts += [re.escape(form[:_PART]) + r"[\w.~%+/=-]*" for form in forms if len(form) > _PART]
        self._shown = re.compile("|".join(parts)) if len(self._key) >= _LEAST else None

    def __bool__(self) -> bool:
        return bool(self._key)

    def __repr__(self) -> str:
        return "Secret(***)" if self else "Secret()"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a key is not to be pickled")

    def reveal(self) -> str:
        """The key itself, for the one header that carries it."""
        return self._key

    def hide(self, text: str) -> str:
        """A text without the key, even if it contains only the beginning of the key."""
        return self._shown.sub("***", text) if self._shown else text


@contextmanager
def hidden_in_logs(key: Secret) -> Iterator[None]:
    """Within this context the client's log messages do not contain the key."""

    def hide(record: logging.LogRecord) -> bool:
        record.msg, record.args = key.hide(record.getMessage()), None
        return True

    loggers = [logging.getLogger(name) for name in _LOGGERS] if key else []
    for logger in loggers:
        logger.addFilter(hide)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(hide)


_LOGGERS = ("httpx", "httpcore.connection", "httpcore.http11", "httpcore.http2", "httpcore.proxy", "httpcore.socks")
