"""A small server of the explorer on this machine: one page, and answers to what it asks for.

It answers only who knows its token, which stands in the address that it prints, under the name by which it is reached:
another site open in the same browser can neither read a page nor ask for one.
"""

import errno
import hmac
import html
import io
import ipaddress
import json
import os
import re
import secrets
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import SplitResult, parse_qs, quote, urlsplit

from dual_attention._base.files import json_text

from .answers import answers_of, offers_of
from .citation import Commands
from .html import page_html
from .opening import Explored
from .requests import Answer, Malformed
from .view_state import View

HOST = re.compile(r"(?P<name>[\w.-]+|\[[\da-fA-F:.]+\])(:\d{1,5})?", re.ASCII)
"""Name or address, and perhaps a port."""

SECONDS = 30
"""Time that a browser has for a request without its body."""


MOST_CONNECTIONS = 128
"""Connections at a time; beyond them the oldest of those that have shown no token makes room."""


class Refused(Exception):
    """A request that gets a message in place of an answer."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class ExplorerServer(ThreadingHTTPServer):
    """Server of one session.

    Args:
        session: what is asked.
        text: the first text, or sample or file of an image.
        host: name or address of this machine; one that is not loopback lets others in who know the address.
        port: 0 takes a free one.
        commands: that open the model, if it has been opened by one.

    Raises:
        OSError: if the port is in use or may not be taken, with a message that says what to do.
        ValueError: if the first text cannot be recorded.
    """

    daemon_threads = False  # a thread that computes when the interpreter ends makes PyTorch abort the process
    allow_reuse_address = os.name != "nt"  # on Windows two servers would share a port
    request_queue_size = MOST_CONNECTIONS

    def __init__(
        self, session: Explored, text: str, *, host: str = "127.0.0.1", port: int = 0, commands: Commands | None = None
    ) -> None:
        self.session = session
        self.commands = commands or Commands()
        self.token = secrets.token_urlsafe(24)
        self.recording = session.packed(text)
        self.answers = answers_of(session)
        self._connections: set[socket.socket] = set()
        self.unknown: dict[socket.socket, None] = {}  # those that have shown no token in their request, in order
        if ":" in host:
            self.address_family = socket.AF_INET6
        try:
            super().__init__((host, port), _Handler)
        except OverflowError as error:
            raise ValueError(f"port: expected a number from 0 to 65535, got {port}") from error
        except OSError as error:
            raise OSError(error.errno, _why(error, host, port)) from error
        self.host = host

    @property
    def address(self) -> str:
        """The address of the page, its token included."""
        return self.address_of(View())

    def address_of(self, view: View, name: str | None = None) -> str:
        """The address of a view, token included.

        Args:
            name: by which this machine is reached; by default the host.
        """
        host = name or self.host
        host = f"[{host}]" if ":" in host else host
        fragment = view.fragment
        address = f"http://{host}:{self.server_address[1]}/?token={quote(self.token)}"
        return f"{address}#{fragment}" if fragment else address

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches it."""
        return is_loopback(self.host)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own, and remember the connection until then."""
        if len(self._connections) >= MOST_CONNECTIONS:
            oldest = next(iter(tuple(self.unknown)), request)
            self.unknown.pop(oldest, None)
            with suppress(OSError):
                oldest.shutdown(socket.SHUT_RDWR)
        self._connections.add(request)
        self.unknown[request] = None
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        self._connections.discard(request)
        self.unknown.pop(request, None)
        super().shutdown_request(request)

    def server_close(self) -> None:
        """Close all connections, which ends what is streamed to them, and wait for what is being computed."""
        for connection in tuple(self._connections):
            with suppress(OSError):  # it has just been closed
                connection.shutdown(socket.SHUT_RDWR)
        super().server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Do nothing for a browser that has gone; others are handled where they arise."""


def is_loopback(host: str) -> bool:
    """Whether a name or address is of this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _why(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} of {host} is in use, perhaps by another explorer; give another with --port"
    if error.errno == errno.EACCES:
        return f"port {port} of {host} may not be taken; give one above 1023 with --port"
    return f"cannot listen on port {port} of {host}: {error.strerror or error}"


class _Handler(BaseHTTPRequestHandler):
    """Requests to the server: the page ``/``, and the paths of the session's answers."""

    server: ExplorerServer  # pyright: ignore[reportIncompatibleVariableOverride]
    protocol_version = "HTTP/1.1"
    server_version = "dat-explore"
    sys_version = ""
    timeout = SECONDS

    def setup(self) -> None:
        """Read until a deadline: bytes that come one by one do not put it off."""
        super().setup()
        self.rfile.close()
        self._bytes = _Bytes(self.connection)
        self.rfile = io.BufferedReader(self._bytes)

    def handle_one_request(self) -> None:
        """Answer a request, or give up on one that does not come."""
        self._bytes.until = time.monotonic() + SECONDS
        self.server.unknown[self.connection] = None
        super().handle_one_request()

    def do_GET(self) -> None:
        """The page."""
        self._reply(self._page, as_html=True)

    def do_POST(self) -> None:
        """An answer of the session."""
        self._reply(self._answered, as_html=False)

    def log_message(self, format: str, *args: Any) -> None:
        """Write no log."""

    def _reply(self, make: Any, *, as_html: bool) -> None:
        try:
            self._check_host()
            status, body = HTTPStatus.OK, make()
        except Refused as refused:
            status, body = refused.status, _message(str(refused), as_html=as_html)
            self.close_connection = True  # what it sent may not have been read
        except Exception as error:  # whatever is wrong with one text, the next may be right
            status, body = HTTPStatus.INTERNAL_SERVER_ERROR, _message(_failure(error), as_html=as_html)
            self.close_connection = True
        if not isinstance(body, str):
            self._stream(body)
            return
        data = body.encode()
        self._begin(status, f"{'text/html' if as_html else 'application/json'}; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(data)

    def _begin(self, status: HTTPStatus, kind: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, **_HEADERS}.items():
            self.send_header(name, value)

    def _stream(self, parts: Iterator[dict[str, Any]]) -> None:
        """Send JSON objects as lines, each when it is there; a browser that goes away ends the work on them."""
        self._begin(HTTPStatus.OK, "application/x-ndjson; charset=utf-8")
        self.send_header("Connection", "close")  # which ends the answer
        self.end_headers()
        self.close_connection = True
        try:
            for part in parts:
                self._send_line(part)
        except OSError:
            return
        except Exception as error:
            self._send_line({"error": str(error) if isinstance(error, ValueError) else _failure(error)})
        finally:
            getattr(parts, "close", lambda: None)()

    def _send_line(self, part: dict[str, Any]) -> None:
        self.wfile.write(json_text(part).encode() + b"\n")

    def _check_host(self) -> None:
        """Refuse requests under a foreign name, which a site may point at this machine."""
        if not self.server.is_local:
            return  # under which names others reach this machine is not known
        hosts = self.headers.get_all("Host", [])
        host = HOST.fullmatch(hosts[0]) if len(hosts) == 1 and _parts(f"//{hosts[0]}").hostname else None
        site = self.headers.get("Sec-Fetch-Site", "none")  # a link to the page may be anywhere
        foreign = self.command == "POST" and site not in ("none", "same-origin")
        if host is None or foreign or not is_loopback(host["name"].strip("[]").lower()):
            raise Refused(HTTPStatus.FORBIDDEN, "This server answers only under the address that dat explore printed.")

    def _check_token(self, given: str) -> None:
        if not hmac.compare_digest(given.encode(), self.server.token.encode()):
            raise Refused(HTTPStatus.FORBIDDEN, "Open the address that dat explore printed, with the token in it.")
        self.server.unknown.pop(self.connection, None)

    def _page(self) -> str:
        address = _parts(self.path)
        if address.path != "/":
            raise Refused(HTTPStatus.NOT_FOUND, "There is no such page.")
        self._check_token(parse_qs(address.query).get("token", [""])[0])
        commands = self.server.commands
        own = {"token": self.server.token, "command": commands.here, **offers_of(self.server.session)}
        kept = self.server.session.kept
        return page_html(self.server.recording, own, kept=kept, command=commands.elsewhere)

    def _answered(self) -> str | Iterator[dict[str, Any]]:
        answer = self.server.answers.get(_parts(self.path).path)
        if answer is None:
            raise Refused(HTTPStatus.NOT_FOUND, "There is no such page.")
        self._check_token(self.headers.get("X-Explorer-Token", ""))
        try:
            found = answer.answer(self._request(answer))
            return json_text(found) if isinstance(found, dict) else _begun(found)
        except Malformed as error:
            raise Refused(HTTPStatus.BAD_REQUEST, str(error)) from error
        except ValueError as error:
            raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from error

    def _request(self, answer: Answer) -> Any:
        """The body: bytes, or a JSON object."""
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            raise Refused(HTTPStatus.LENGTH_REQUIRED, "A request needs a length.")
        if int(length) > answer.largest:
            self._skip(int(length))
            what = "image" if answer.takes_bytes else "text"
            message = f"{what}: expected at most {answer.largest:,} bytes, got {int(length):,}"
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message)
        self._bytes.until = time.monotonic() + SECONDS + int(length) / (1 << 16)  # a second for each 64 KiB
        body = self._read(int(length))
        if answer.takes_bytes:
            return body
        try:
            found = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise Malformed("The request is no JSON.") from error
        if not isinstance(found, dict):
            raise Malformed("The request is no JSON object.")
        return found

    def _skip(self, length: int) -> None:
        """Read what nobody wants, up to a limit: a browser that is still sending would not see the answer."""
        left = min(length, 64 << 20)  # bytes
        while left > 0 and (part := self._read(min(left, 1 << 16))):
            left -= len(part)

    def _read(self, length: int) -> bytes:
        try:
            return self.rfile.read(length)
        except TimeoutError as error:
            raise Refused(HTTPStatus.REQUEST_TIMEOUT, "The request did not come to its end.") from error


class _Bytes(io.RawIOBase):
    """Bytes that a connection receives until a moment, ``TimeoutError`` afterwards."""

    def __init__(self, connection: socket.socket) -> None:
        self.until = 0.0
        self._connection = connection

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self.until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        try:
            return self._connection.recv_into(buffer)
        finally:
            self._connection.settimeout(SECONDS)  # for what is sent


def _parts(address: str) -> SplitResult:
    try:
        return urlsplit(address)
    except ValueError as error:
        raise Refused(HTTPStatus.BAD_REQUEST, "The request has no valid address.") from error


_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def _begun(parts: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Pull the first item now, so that a bad request fails before the response starts."""
    first = next(parts, None)

    def again() -> Iterator[dict[str, Any]]:
        if first is not None:
            yield first
            yield from parts

    return again()


_KNOWN = """<script>
const token = localStorage.getItem("dat_token");
if (token && !location.search) location.replace(`/?token=${encodeURIComponent(token)}${location.hash}`);
</script>"""
"""Script that leads a link without a token to its view, in a browser that has opened the address with it."""


def _failure(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _message(text: str, *, as_html: bool) -> str:
    if as_html:
        return (
            f'<!DOCTYPE html><html lang="en"><meta charset="utf-8"><title>dat explore</title>'
            f"<p>{html.escape(text)}</p>{_KNOWN}"
        )
    return json.dumps({"error": text})
