"""Authentication between hosts: the trusted peers, and how both sides prove their identity.

Unpickling is running code, so no byte of a peer is looked at before it has proved that it may be
here. Four ways:

**Certificates** (`ca` and `private_key`). TLS 1.3 in which both sides have a certificate, and
verify that of the other against `ca`. The chain decides: a holder of a key that `ca` has
signed is let in. Host names are not compared, as workers are dialed by address, through forwarded
ports and under several names; use a CA for nothing but one cluster, and treat each key that it
signs as a key to all of it. A certificate that limits its use must allow both server and client.

**A shared secret** (RFC 2104 over a channel binding, RFC 5929). TLS 1.3 first, in which the
server's certificate is not verified: its key pair is in this package for all to see. So far the
line is safe from those who only listen, but either side may be talking to a man in the middle. Then
both prove that they have the secret *and are ends of the same TLS session*::

    key    = scrypt(secret)                            once per process; slow, so that guessing is
    client ──▶  HMAC-SHA256(key, "...client", binding)  32 bytes
    server ◀──  1, HMAC-SHA256(key, "...server", binding)    or 33 zeros: refused

`binding` is the client's Finished message, which `get_channel_binding("tls-unique")` gives on both
sides. In TLS 1.3 it is a MAC over the whole handshake (RFC 8446, 4.4.4): both key shares, both
randoms, the server's certificate; keyed by what the two ends agreed on. Why that is sound:

* A man in the middle ends one session and starts another. Each honest side put fresh randomness
  into its own, so the two Finished messages differ (to make them equal is to find a collision of
  SHA-256), and a proof that is passed on does not verify. What ruled out tls-unique in TLS 1.2, the
  triple handshake, does not exist in 1.3. Sessions are never resumed, and no tickets are given:
  resumption is the other case in which bindings may repeat.
* A recorded session cannot be replayed, for the same reason. A proof cannot be sent back to its
  maker: the roles differ.
* RFC 9266 defines tls-exporter for TLS 1.3, and leaves tls-unique undefined there. Python's `ssl`
  has no exporter. What it returns instead is well defined by OpenSSL, and a test checks that it is
  equal on both sides and new each time.
* AES-GCM is good for some 400 GB per key (RFC 8446, 5.5), and Python cannot renew one within a
  session. Beyond that, the margin shrinks slowly, from 2^-57; a link that is made anew has new
  keys.
* The client proves first, so one who can merely connect gets nothing to guess the secret from. An
  impostor that a client dials does get one proof and can test guesses against it: hence scrypt, and
  secrets of at least 16 bytes, to be drawn at random. The salt is fixed because the sides share
  nothing else; a random secret needs none.

**This user only** (Unix sockets, always): the kernel tells the user of the other side, and no other
is let in.

**Open** (`ca="trust_all_connections"`, for old programs, where there is no secret): loopback only,
and only the same user, by the kernel's table of connections. Elsewhere refused, unless
`allow_unauthenticated_tcp` says otherwise.

Lives here: who is trusted, as a value. `greeting` carries it out. Read `secret` for where secrets
come from.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..._secret import find_secret
from ..wire.channel import Channel, parse_channel

TRUST_ALL = "trust_all_connections"
PROOF_SIZE = 32

UNIX_ONLY, OPEN, SECRET, CERTIFICATES = "unix sockets only", "open", "shared secret", "certificates"

_PUBLIC_KEY_PAIR = Path(__file__).with_name("public_key_pair.pem")
_LABEL = b"monarch stream 1"
_NO_TRUST = (
    "there is no secret and no certificate, so a friend could not be told from a stranger. Run"
    " `monarch secret ~/.monarch/secret` once and copy the file to every host, or set"
    " MONARCH_SECRET or MONARCH_SECRET_FILE, or pass ca= and private_key="
)


@dataclass(frozen=True, repr=False)
class Trust:
    """Trust in peers, and the proof of one's own identity.

    It holds contents, no paths: it may be pickled for a process of our own.

    Attributes:
        mode: `UNIX_ONLY`, `OPEN`, `SECRET` or `CERTIFICATES`; for tcp. On Unix sockets it is always
            the user.
    """

    mode: str
    _ca: str = ""
    _private_key: str = ""
    _key: bytes = b""

    def __repr__(self) -> str:
        return f"<Trust: {self.mode}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return Trust, (self.mode, self._ca, self._private_key, self._key)  # not the contexts

    def require(self, channel: Channel) -> None:
        """Check that this trust can protect `channel`.

        Raises:
            ValueError: It is tcp, and there is neither a secret nor a certificate; or metatls,
                which is never open.
        """
        if channel.is_tcp and self.mode == UNIX_ONLY:
            raise ValueError(f"{channel.name} is open to other users and hosts, and {_NO_TRUST}.")
        if channel.scheme == "metatls" and self.mode == OPEN:
            raise ValueError(f"{channel.name} needs TLS, and {_NO_TRUST}.")

    def uses_tls(self, channel: Channel) -> bool:
        return channel.is_tcp and self.mode in (SECRET, CERTIFICATES)

    def proof(self, role: bytes, binding: bytes | None) -> bytes:
        """Return the proof of this role, `PROOF_SIZE` bytes; without a secret, only a greeting.

        Args:
            binding: Of the TLS session; None in the clear, where a proof would only be something to
                guess from.
        """
        if self.mode == SECRET and binding is not None:
            return hmac.digest(self._key, b"%s %s %s" % (_LABEL, role, binding), "sha256")
        return hashlib.sha256(b"%s %s" % (_LABEL, role)).digest()

    @functools.cached_property
    def server_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # no session is resumed: a binding may repeat in a resumed one (see the module)
        context.num_tickets = 0
        return self._prepare(context)

    @functools.cached_property
    def client_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # workers are dialed by address, through forwarded ports and under several names
        context.check_hostname = False
        return self._prepare(context)

    def _prepare(self, context: ssl.SSLContext) -> ssl.SSLContext:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.options |= ssl.OP_NO_TICKET
        if self.mode == CERTIFICATES:
            context.verify_mode = ssl.CERT_REQUIRED
            # every certificate in `ca` is trusted, also one that is no root
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            context.load_verify_locations(cadata=self._ca)
            _load_key(context, self._private_key)
        else:
            # its key pair is public: the proofs over the channel binding take the place of a
            # certificate
            context.verify_mode = ssl.CERT_NONE
            if context.protocol == ssl.PROTOCOL_TLS_SERVER:
                context.load_cert_chain(_PUBLIC_KEY_PAIR)
        return context


def trust_for(
    ca: str | os.PathLike[str] | None = None,
    private_key: str | os.PathLike[str] | None = None,
    *,
    secret: str | None = None,
) -> Trust:
    """Make a `Trust` from the arguments of the public functions.

    Args:
        ca: Certificates of those who sign, as PEM text or the path of a file; or
            "trust_all_connections"; or None for a shared secret.
        private_key: Own key and certificate, with those in between up to `ca`, as PEM text or the
            path of a file.
        secret: The shared secret; None = that of MONARCH_SECRET, of the file that
            MONARCH_SECRET_FILE names, or of ~/.monarch/secret. Without any, only Unix sockets can
            be used.

    Raises:
        ValueError: An argument cannot be read, they do not fit together, or give no protection; the
            message says which.
    """
    if ca == TRUST_ALL:
        if private_key is not None:
            raise ValueError(
                f'ca="{TRUST_ALL}" verifies no peer, so a private_key makes no sense with it: pass'
                " one or the other"
            )
        return _trust_secret(find_secret(secret), otherwise=OPEN)
    if ca is None and private_key is None:
        return _trust_secret(find_secret(secret), otherwise=UNIX_ONLY)
    if secret is not None:
        raise ValueError("pass ca and private_key, or a secret: not both")
    if ca is None or private_key is None:
        given, missing = ("private_key", "ca") if ca is None else ("ca", "private_key")
        raise ValueError(
            f"{given} was given without {missing}: both sides show a certificate and verify the"
            " other's"
        )
    return _trust_certificates(_read_pem("ca", ca), _read_pem("private_key", private_key))


def require_secret(address: str) -> None:
    """Check that a host can be reached by the trust of this process alone.

    Raises:
        ValueError: Not without a secret, and there is none.
    """
    trust_for().require(parse_channel(address))


def _trust_secret(secret: bytes | None, otherwise: str) -> Trust:
    return Trust(otherwise) if secret is None else Trust(SECRET, _key=_derive(secret))


@functools.lru_cache(maxsize=8)
def _derive(secret: bytes) -> bytes:
    # slow on purpose: an impostor that a client dials gets one proof to guess against
    return hashlib.scrypt(secret, salt=b"monarch secret 1", n=2**14, r=8, p=1, dklen=32)


def _trust_certificates(ca: str, private_key: str) -> Trust:
    if "BEGIN CERTIFICATE" not in ca:
        raise ValueError("ca: it holds no certificate (-----BEGIN CERTIFICATE-----)")
    if "PRIVATE KEY" not in private_key:
        raise ValueError("private_key: it holds no key (-----BEGIN PRIVATE KEY-----)")
    if "BEGIN CERTIFICATE" not in private_key:
        raise ValueError(
            "private_key: it holds a key and no certificate; put both into it: cat cert.pem key.pem"
            " > both.pem"
        )
    trust = Trust(CERTIFICATES, ca, private_key)
    try:
        _ = trust.client_context, trust.server_context  # made here, so that a mistake shows here
    except ssl.SSLError as error:
        raise ValueError(_what_is_wrong(trust, error)) from None
    return trust


def _what_is_wrong(trust: Trust, error: ssl.SSLError) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return "private_key: its key and its first certificate do not belong together"
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=trust._ca)
    except ssl.SSLError:
        return f"ca: its certificates cannot be read ({_plain(error)})"
    return f"private_key: its key or its certificates cannot be read ({_plain(error)})"


def _plain(error: ssl.SSLError) -> str:
    return (error.reason or "unknown reason").replace("_", " ").lower()


def _load_key(context: ssl.SSLContext, pem: str) -> None:
    """Load a key from memory; `ssl` reads files only, so it gets one that has no name and is never
    on a disk.
    """

    def encrypted() -> str:
        raise ValueError(
            "private_key: it is encrypted with a password; decrypt it, and let only its owner"
            " read it"
        )

    fd = os.memfd_create("monarch-key", os.MFD_CLOEXEC)
    with open(fd, "w") as file:
        file.write(pem)
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{fd}", password=encrypted)


def _read_pem(argument: str, given: str | os.PathLike[str]) -> str:
    """The text itself, or that of the file it names."""
    if isinstance(given, str) and "-----BEGIN" in given:
        return given
    if not isinstance(given, (str, os.PathLike)):
        raise ValueError(f"{argument}: wanted a path or PEM text, got {type(given).__name__}")
    try:
        return Path(given).expanduser().read_text()
    except (OSError, ValueError) as error:  # ValueError: no text, or a NUL in the path
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ValueError(
            f"{argument}: it is no PEM text, and cannot be read as a"
            f" file{_named(os.fspath(given))}: {why}"
        ) from None


def _named(path: str) -> str:
    """The path for a message, unless it looks as if it were no path but the key itself."""
    is_path = (
        len(path) < 300 and "\n" not in path and (path.startswith(("/", ".", "~")) or "." in path)
    )
    return f" {path!r}" if is_path else ""
