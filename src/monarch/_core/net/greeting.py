"""The first bytes of a connection: from a connected socket to two sides that know each other.

The steps are the same with every kind of trust: TLS, where there is any; the client's proof
(`PROOF_SIZE` bytes); the server's answer (one byte, 1, and its own proof; or zeros: refused).
Without a secret the proofs are fixed texts, which still tell that the other side is one of us, and
that it has let us in: TLS 1.3 lets a client finish before its certificate was looked at. Exactly
that many bytes are read; what follows them belongs to the stream.

Each side is a generator that yields what it waits for, and a `Greeting` runs it on the poller's
thread. A server makes nothing before the first byte has come, so a peer that connects and says
nothing costs a descriptor and little else.

What ends a greeting: success, a reason, or its owner, who calls `abort` after `GREETING_TIMEOUT`.
"""

from __future__ import annotations

import functools
import hmac
import socket
import ssl
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import TypeVar

from ... import config
from .peer_credentials import check_same_user
from .poller import READ, WRITE, Poller
from .trust import PROOF_SIZE, SECRET, Trust
from .unix import PeerRefused

_WELCOME, _REFUSAL = b"\1", bytes(1 + PROOF_SIZE)
_TLS_HELLO, _TLS_ALERT = b"\x16\x03", b"\x15\x03"
_WRONG_PROTOCOL = _TLS_ALERT + b"\x03\x00\x02\x02\x46"  # TLS's own words for it
_SPEAKS_TLS = "it speaks TLS, with a secret or certificates, and this side has neither"
_NOT_OURS = "it does not speak this protocol"
_MOST_LEFTOVERS = 64 * 1024  # bytes

GREETING_TIMEOUT = 5.0  # seconds

T = TypeVar("T")
Steps = Generator[int, None, None]


class Refused(Exception):
    """One side does not trust the other, or cannot understand it."""

    def __init__(self, reason: str, final: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.final = final


class Greeting:
    """One connection until both sides know each other. Used on the poller's thread only.

    Args:
        sock: Connected, non-blocking; owned by this object until `done`.
        tls: Whether this kind of address is encrypted under `trust`.
        done: Called with the socket, plain or TLS, that is the caller's from then on.
        failed: Called with the reason, and whether to try again is pointless; not after `abort`.
        in_turn: Calls what it is given soon, when others have had their turn; by default steps are
            taken at once.
    """

    def __init__(
        self,
        poller: Poller,
        sock: socket.socket,
        trust: Trust,
        *,
        tls: bool,
        server_side: bool,
        done: Callable[[socket.socket], None],
        failed: Callable[[str, bool], None],
        in_turn: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        self._poller = poller
        self._sock = sock
        self._trust = trust
        self._tls = tls
        self._server_side = server_side
        self._done = done
        self._failed = failed
        self._in_turn = in_turn
        self._queued = False  # for its turn
        self._fd = sock.fileno()
        self._steps: Steps | None = self._serve() if server_side else self._dial()

    def start(self) -> None:
        self._poller.add(self._fd, self._ready, 0)
        self._advance()

    def abort(self) -> None:
        """Give it up and close the socket, without a word to `failed`."""
        if self._steps is not None:
            self._steps = None
            self._poller.remove(self._fd)
            self._sock.close()

    def _ready(self, events: int) -> None:
        if self._in_turn is None:
            self._advance()
        elif not self._queued:  # who has hung up is told of again and again
            self._queued = True
            # not watched until its turn: one that has sent much would wake the poller in each round
            self._poller.modify(self._fd, 0)
            self._in_turn(self._advance)

    def _advance(self) -> None:
        self._queued = False
        if self._steps is None:
            return
        try:
            self._poller.modify(self._fd, next(self._steps))
        except StopIteration:
            self._steps = None
            self._poller.remove(self._fd)
            self._done(self._sock)
        except Refused as refused:
            self._fail(refused.reason, refused.final)
        except PeerRefused as refused:
            self._fail(str(refused), True)
        except OSError as error:
            self._fail(*_explain(error))

    def _fail(self, reason: str, final: bool) -> None:
        if self._server_side:
            # a socket closed over unread bytes may take back its last words; not through TLS,
            # which is of no more use
            with suppress(OSError):
                socket.socket.recv(self._sock, _MOST_LEFTOVERS)
        self.abort()
        self._failed(reason, final)

    # the two sides

    def _dial(self) -> Steps:
        binding = None
        if self._tls:
            yield from self._secure(self._trust.client_context)
            binding = self._binding()
        # it may have hung up; what it said before tells why
        with suppress(ConnectionError, ssl.SSLEOFError):
            yield from self._send(self._trust.proof(b"client", binding))
        answer = yield from self._receive(1 + PROOF_SIZE)
        if answer == _REFUSAL:
            raise Refused(self._why_refused(), True)
        if not hmac.compare_digest(answer, _WELCOME + self._trust.proof(b"server", binding)):
            raise Refused(self._why_not_trusted(answer), True)
        self._check_user()

    def _serve(self) -> Steps:
        yield READ
        binding = None
        if self._tls:
            self._expect_tls()
            yield from self._secure(self._trust.server_context)
            binding = self._binding()
        proof = yield from self._receive(PROOF_SIZE)
        try:
            if not hmac.compare_digest(proof, self._trust.proof(b"client", binding)):
                raise Refused(self._why_not_trusted(proof), True)
            self._check_user()
        except (Refused, PeerRefused):
            self._refuse(_REFUSAL)
            raise
        yield from self._send(_WELCOME + self._trust.proof(b"server", binding))

    def _expect_tls(self) -> None:
        """Refuse a peer that talks in the clear.

        It would not understand OpenSSL's reason to hang up.
        """
        first = self._sock.recv(len(_TLS_HELLO), socket.MSG_PEEK)
        if not _TLS_HELLO.startswith(first):
            self._refuse(_WRONG_PROTOCOL)
            raise Refused("it does not speak TLS, and this side has a secret or certificates", True)

    def _check_user(self) -> None:
        if not self._tls and not (
            self._sock.family != socket.AF_UNIX and config.value("allow_unauthenticated_tcp")
        ):
            check_same_user(self._sock)

    def _refuse(self, answer: bytes) -> None:
        """Say so, and no more."""
        with suppress(OSError):
            self._sock.send(answer)

    # the bytes

    def _secure(self, context: ssl.SSLContext) -> Steps:
        self._sock = sock = context.wrap_socket(
            self._sock, server_side=self._server_side, do_handshake_on_connect=False
        )
        yield from self._until_done(sock.do_handshake)

    def _binding(self) -> bytes:
        assert isinstance(self._sock, ssl.SSLSocket)
        binding = self._sock.get_channel_binding("tls-unique")
        if not binding or self._sock.session_reused or self._sock.version() != "TLSv1.3":
            raise Refused("its TLS session gives nothing to bind a proof to", True)
        return binding

    def _send(self, data: bytes) -> Steps:
        while data:
            sent = yield from self._until_done(functools.partial(self._sock.send, data))
            data = data[sent:]

    def _receive(self, size: int) -> Generator[int, None, bytes]:
        """Exactly `size` bytes."""
        data = b""
        while len(data) < size:
            more = yield from self._until_done(functools.partial(self._sock.recv, size - len(data)))
            if not more:
                if data.startswith(_TLS_ALERT):
                    raise Refused(_SPEAKS_TLS, True)
                raise Refused("it closed the connection before it said who it is", False)
            data += more
        return data

    def _until_done(self, operation: Callable[[], T]) -> Generator[int, None, T]:
        while True:
            try:
                return operation()
            except ssl.SSLWantWriteError:
                yield WRITE
            except (ssl.SSLWantReadError, BlockingIOError):
                yield READ

    # what went wrong

    @property
    def _by_secret(self) -> bool:
        return self._tls and self._trust.mode == SECRET

    def _why_refused(self) -> str:
        if self._by_secret:
            return "refused: wrong secret"
        return "refused: it lets in the processes of its own user on its own host only"

    def _why_not_trusted(self, said: bytes) -> str:
        if self._by_secret:
            return (
                "wrong secret" if self._server_side else "it could not prove that it has the secret"
            )
        return _SPEAKS_TLS if said.startswith((_TLS_HELLO, _TLS_ALERT)) else _NOT_OURS


def _explain(error: OSError) -> tuple[str, bool]:
    """Why, and whether to try again is pointless: where both sides would do the same once more."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate was not accepted: {error.verify_message}", True
    if isinstance(error, (ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError)):
        return "it closed the connection before both sides knew each other", False
    if not isinstance(error, ssl.SSLError):
        return str(error), False
    what = (error.reason or str(error)).replace("_", " ").lower()
    if "alert" in what:
        what = f"it refused our side of TLS: {what.partition('alert ')[2]}"
    elif "wrong version number" in what:
        what = "it does not speak TLS, and this side has a secret or certificates"
    elif "did not return a certificate" in what:
        what = "it has no certificate"
    else:
        what = f"TLS 1.3 was not possible: {what}"
    return what, error.reason is not None and any(word in error.reason for word in _FINAL)


# Of the reasons that OpenSSL gives, those that tell of how a side was set up, and not of a broken
# line.
_FINAL = (
    "CERTIFICATE", "UNKNOWN_CA", "VERSION", "PROTOCOL", "HANDSHAKE_FAILURE", "HTTP",
    "ACCESS_DENIED",
)  # fmt: skip
