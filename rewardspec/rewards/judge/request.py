"""The requests to a judge: their bodies and their address."""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any
from urllib.parse import urlsplit

_OWN_FIELDS = ("messages", "model", "temperature", "max_tokens", "stream", "n")


def body_of(
    text: str, model: str, temperature: float | None, max_tokens: int | None, extra: dict[str, Any] | None
) -> dict[str, Any]:
    """The body of a request."""
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # JSON in UTF-8 has no lone surrogates
    body = {"model": model, "messages": [{"role": "user", "content": whole}]}
    sampling = {"temperature": temperature, "max_tokens": max_tokens}
    return body | {key: value for key, value in sampling.items() if value is not None} | (extra or {})


def check_extra(extra: dict[str, Any] | None) -> None:
    """Raise ValueError for fields that `extra` may not set, or that are not JSON."""
    clash = sorted({*(extra or {})} & {*_OWN_FIELDS})
    if clash:
        raise ValueError(f"`extra` cannot set {', '.join(clash)}")
    try:
        json.dumps(extra, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"`extra` is not JSON: {error}") from None


def digest(url: str, body: dict[str, Any]) -> str:
    """A hash of a request: of everything that its answer depends on."""
    return hashlib.sha256(json.dumps([url, body], sort_keys=True).encode()).hexdigest()


def endpoint_url(url: str | None) -> str:
    """The address for chat completions, from `url` or else OPENAI_BASE_URL. Raises ValueError."""
    if url is not None:
        return address_of(url, "`url`")
    if not os.environ.get("OPENAI_BASE_URL"):
        raise ValueError("the judge has no address: set `url`, such as http://localhost:8000/v1, or OPENAI_BASE_URL")
    return address_of(os.environ["OPENAI_BASE_URL"], "OPENAI_BASE_URL")


def address_of(url: str, where: str) -> str:
    """The address for chat completions of an endpoint. Raises ValueError."""
    url = url.strip()
    try:
        parts = urlsplit(url)
        odd = parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0
        odd = odd or "@" in parts.netloc or "?" in url or "#" in url or " " in url or not url.isprintable()
    except ValueError:
        odd = True
    if odd:
        raise ValueError(
            f"{where} must be an address such as http://localhost:8000/v1, without user name, password or query; "
            "the key is read from OPENAI_API_KEY"
        )
    return url.rstrip("/") + "/chat/completions"
