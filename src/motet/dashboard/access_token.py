"""Lets only viewers with the token see the dashboard. A browser gives the token once, and then has a cookie."""

from __future__ import annotations

import hashlib
import hmac
import secrets

from starlette.datastructures import URL
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from motet.core.errors import ConfigError

SHORTEST_TOKEN = 16
LOOPBACK = ("127.0.0.1", "localhost", "::1")
COOKIE_SECONDS = 30 * 24 * 3600
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
TOKEN_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Motet</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:34rem;margin:15vh auto;padding:0 1rem}
input,button{font:inherit;padding:.4rem .6rem;margin:.2rem 0}input{width:100%;box-sizing:border-box}</style>
<h1>Motet</h1><p>MESSAGE</p><form method="get" action="./"><label>Token <input name="token" type="password"
autocomplete="current-password" required></label><button>Open</button></form></html>
"""


def choose_token(token: str | None, *, is_open: bool, host: str) -> str:
    """Return the token of the dashboard: the given one or a new one. "" means that anyone on this machine may see it.

    Raise an error for a token that can be guessed, and for an open dashboard that other machines can reach.
    """
    if is_open and token:
        raise ConfigError("--no-token and a token were both given; use one of them.")
    if is_open and host not in LOOPBACK:
        raise ConfigError(
            f"--no-token works only on this machine, and {host} can be reached from others. Give a token."
        )
    if token is not None and len(token) < SHORTEST_TOKEN:
        raise ConfigError(
            f"the token has {len(token)} characters; expected at least {SHORTEST_TOKEN}. "
            "Give a longer one, or none: then it is random."
        )
    return "" if is_open else token or secrets.token_urlsafe(24)


class TokenGate:
    """Passes requests with the token on to the application, and adds the same headers to every response.

    The token comes as `?token=`, as `Authorization: Bearer`, or as a cookie. The cookie holds a digest of the token.
    """

    def __init__(self, app: ASGIApp, token: str) -> None:
        self.app, self.token = app, token
        self.cookie = hmac.new(token.encode(), b"motet dashboard", hashlib.sha256).hexdigest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name for name, _ in message["headers"]}
                added = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*message["headers"], *(h for h in added if h[0] not in present)]}
            await send(message)

        response = self._answer(Request(scope))
        await (response or self.app)(scope, receive, send_with_headers)

    def _answer(self, request: Request) -> Response | None:
        """Return the response to a request without a valid token, or one that sets the cookie; None to pass it on."""
        if not self.token:
            return None
        cookie = request.cookies.get(self._cookie_name(request), "")
        bearer = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if "token" in request.query_params:
            if _are_equal(request.query_params["token"], self.token):
                return self._set_cookie(request)
            return _ask_for_token("This token is wrong. The right one was printed when the dashboard was started.")
        if _are_equal(cookie, self.cookie) or _are_equal(bearer, self.token):
            return None
        return _ask_for_token("This page needs a token. It was printed when the dashboard was started.")

    def _set_cookie(self, request: Request) -> Response:
        """Send the browser to the same address without the token, so that the token is in no history or bookmark."""
        url = request.url.remove_query_params("token")
        response = RedirectResponse(_relative(url), status_code=303)
        is_https = request.url.scheme == "https"
        response.set_cookie(
            self._cookie_name(request), self.cookie, COOKIE_SECONDS, httponly=True, samesite="strict", secure=is_https
        )
        return response

    def _cookie_name(self, request: Request) -> str:
        """Return a name with the port: browsers share cookies between the ports of a machine."""
        return f"motet-dashboard-{request.url.port or request.url.scheme}"


def _relative(url: URL) -> str:
    """Return an address that also works behind a proxy that adds a folder to the path."""
    return "./" + url.path.rpartition("/")[2] + (f"?{url.query}" if url.query else "")


def _ask_for_token(text: str) -> Response:
    return HTMLResponse(TOKEN_PAGE.replace("MESSAGE", text), status_code=401)


def _are_equal(text: str, secret: str) -> bool:
    return hmac.compare_digest(text.encode(), secret.encode())
