"""JSON to and from a server over HTTP: retries with backoff, rate limits, time-outs, and errors for people."""

import os
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx2

from brorl.errors import RunError

_AGAIN = (408, 409, 425, 500, 502, 503, 504, 529)
_LONGEST_WAIT = 120.0  # seconds, whatever a server asks for
_FIRST_RETRIES = 3  # before a server has answered once: a wrong URL is said soon
_RATE_LIMITED = 30  # answers "too many requests" in a row to one request, before it is given up


class ServerRefusal(Exception):
    """The server understood the request and refuses it (400, 422): its words."""


class Transport:
    """One server.

    Args:
        url: its base, such as ``http://127.0.0.1:8000/v1``.
        key_variable: the environment variable that holds the key; read here, and kept nowhere else.
        timeout: seconds for one answer.
        retries: of a request that fails in transport, times out, or that the server could not serve.
        backoff: seconds before the first retry; doubled for each further one.
        connections: at most so many at once.
    """

    def __init__(
        self, url: str, *, key_variable: str, timeout: float, retries: int, backoff: float, connections: int
    ) -> None:
        self.url = url.rstrip("/")
        self._key_variable = key_variable
        self._retries, self._backoff = retries, backoff
        self._reached = False
        self._not_before = 0.0  # set by a rate limit, for all threads
        self._lock = threading.Lock()
        key = os.environ.get(key_variable)
        try:
            self._client = httpx2.Client(
                base_url=self.url,
                headers={"Authorization": f"Bearer {key}"} if key else {},
                timeout=httpx2.Timeout(timeout, connect=min(timeout, 10.0)),
                limits=httpx2.Limits(max_connections=connections),
            )
        except (httpx2.InvalidURL, ValueError) as error:
            raise RunError(f"{url}: not a URL of a server ({error}); such as http://127.0.0.1:8000/v1") from error

    def close(self) -> None:
        """Drop all connections."""
        self._client.close()

    def get(self, path: str) -> dict[str, Any]:
        """A GET of ``url/path``; see `post`."""
        return self._request("GET", path, None)

    def post(self, path: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        """A POST of JSON to ``url/path``, and the JSON it answers.

        Raises:
            ServerRefusal: the server refuses the request.
            RunError: it cannot be reached, refuses the key, knows no such path, or fails again and again.
        """
        return self._request("POST", path, payload)

    def _request(self, method: str, path: str, payload: Mapping[str, Any] | None) -> dict[str, Any]:
        failures = limited = 0
        while True:
            time.sleep(max(0.0, self._not_before - time.monotonic()))
            try:
                response = self._client.request(method, f"{self.url}/{path}", json=payload)
            except httpx2.TimeoutException as error:
                reason: str = f"no answer in time ({type(error).__name__})"
            except (httpx2.TransportError, httpx2.InvalidURL) as error:
                reason = f"cannot be reached ({error or type(error).__name__})"
            else:
                if response.status_code == 429 and limited < _RATE_LIMITED:
                    limited += 1
                    self._wait_for_all(_retry_after(response) or self._pause(limited))
                    continue
                if response.status_code not in _AGAIN:
                    self._reached = True
                    return self._answer(response, path)
                reason = f"fails with HTTP {response.status_code}: {_words(response)}"
            failures += 1
            if failures > (self._retries if self._reached else min(self._retries, _FIRST_RETRIES)):
                raise RunError(
                    f"{self.url}: {reason}, {failures} times. Is the server running, and is this its base URL "
                    "(with /v1)? What was answered before is kept: run the command again to go on"
                )
            time.sleep(self._pause(failures))

    def _answer(self, response: httpx2.Response, path: str) -> dict[str, Any]:
        status = response.status_code
        if status in (401, 403):
            held = "holds a key that it refuses" if os.environ.get(self._key_variable) else "is not set"
            raise RunError(
                f"{self.url}: HTTP {status}: {_words(response)}. The environment variable {self._key_variable} {held}; "
                "set it, or name another one by --key-variable"
            )
        if status in (400, 413, 422):
            raise ServerRefusal(_words(response))
        if status >= 300:
            raise RunError(f"{self.url}/{path}: HTTP {status}: {_words(response)}. Is the base URL right (with /v1)?")
        try:
            found = response.json()
        except ValueError as error:
            raise RunError(
                f"{self.url}/{path}: its answer is not JSON: is this an OpenAI-compatible server?"
            ) from error
        if not isinstance(found, dict):
            raise RunError(f"{self.url}/{path}: its answer is no JSON object: is this an OpenAI-compatible server?")
        return found

    def _pause(self, failures: int) -> float:
        return min(self._backoff * 2 ** (failures - 1), _LONGEST_WAIT)

    def _wait_for_all(self, seconds: float) -> None:
        with self._lock:
            self._not_before = max(self._not_before, time.monotonic() + min(seconds, _LONGEST_WAIT))


def _retry_after(response: httpx2.Response) -> float | None:
    """Seconds that the server asks to wait, as a number or a date; None where it does not say."""
    value = response.headers.get("retry-after", "")
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return None


def _words(response: httpx2.Response) -> str:
    """The server's own message, cut to one line."""
    try:
        found: Any = response.json()
    except ValueError:
        found = response.text
    for key in ("error", "message", "detail"):
        if isinstance(found, dict) and key in found:
            found = found[key]
    return " ".join(str(found).split())[:400]
