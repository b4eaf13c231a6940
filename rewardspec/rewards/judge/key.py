"""The key of a judge: which endpoints it goes to, and how it is kept out of everything that they say."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn
from urllib.parse import quote

from rewardspec.rewards.judge.library import client_library

HOSTS = "REWARDSPEC_KEY_HOSTS"  # further endpoints that OPENAI_API_KEY may go to, separated by commas
HOME = "https://api.openai.com/v1"  # whose key it is where OPENAI_BASE_URL is not set
_LEAST = 6  # characters of a key that is hidden: what local servers take for one, such as `x`, stands in any text
_PART = 12  # characters of a key that are hidden with what follows them: an endpoint may cut what it repeats

_allowed: set[str] = set()  # by the program itself


def allow_key(*addresses: str) -> None:
    """Let this process send OPENAI_API_KEY to these endpoints, such as `http://localhost:8000`. Raises ValueError."""
    _allowed.update(map(origin, addresses))


def key_for(url: str) -> Secret:
    """The key of the environment, for requests to an address; an empty one where there is none.

    Raises ValueError where the key is not for that address: a spec may name any, and a key is the user's to give.
    """
    key = Secret(os.environ.get("OPENAI_API_KEY", ""))
    if not key:
        return key
    home, asked = origin(os.environ.get("OPENAI_BASE_URL", "").strip() or HOME), origin(url)
    given = [origin(part) for part in os.environ.get(HOSTS, "").split(",") if part.strip()]
    if asked not in {home, *given, *_allowed}:
        raise ValueError(
            f"OPENAI_API_KEY belongs to {home}, and {asked} would be sent it: allow that with {HOSTS}={asked}, "
            f"with `rewardspec score --key-host {asked}`, or with `rewardspec.rewards.judge.allow_key`; "
            "an endpoint that needs no key is asked without one by `key: none`"
        )
    return key


def origin(address: str) -> str:
    """Scheme, host and port of an address as the client that asks it reads them; https where it names none.

    Raises ValueError for one that is none, without repeating what may be a password in it.
    """
    httpx = client_library()
    address = address.strip()
    try:
        url = httpx.URL(address if "://" in address else f"https://{address}")
        if url.scheme not in ("http", "https") or not url.host or url.userinfo:
            raise httpx.InvalidURL("no host")
    except httpx.InvalidURL:
        raise ValueError("a host that a key may go to is written as https://host or http://host:port") from None
    host = f"[{url.host}]" if ":" in url.host else url.host
    return f"{url.scheme}://{host}" + (f":{url.port}" if url.port else "")


class Secret:
    """A key that shows in no `repr`, and that is taken out of texts. Raises ValueError for what no key can be."""

    def __init__(self, key: str):
        self._key = key.strip()
        if not (self._key.isascii() and self._key.isprintable()):
            raise ValueError("OPENAI_API_KEY has characters in it that no key has")
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
        """A text without the key, also where it was cut off."""
        return self._shown.sub("***", text) if self._shown else text


@contextmanager
def hidden_in_logs(key: Secret) -> Iterator[None]:
    """While it lasts, what the client logs of requests and replies is without the key."""

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
