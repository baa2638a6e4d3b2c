"""Roles and their keys: tokens, one-time codes and sessions, all derived from one secret. Pure.

Each role has a token, for programs. A code is part of a link for a person: it is exchanged once, by
a browser, for a session. Keys are compared in constant time.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterator

VIEW, ACT = "view", "act"
"""Roles: to read; and to have processes of the program do something: stacks, profiles, snapshots,
the end of a mesh.
"""
ROLES = (VIEW, ACT)

CODE_LIFE = 3600.0
"""Seconds in which a link must be opened."""
SESSION_LIFE = 12 * 3600.0
"""Seconds for which a browser is let in."""

_LABEL = b"monarch admin 2 "  # no other use of the secret begins with this
_HERE = ".here"  # at the end of a code that only one user may use
_EARLY = 60.0  # seconds by which the clock of the maker of a code may be ahead


class Keys:
    """The keys derived from a secret.

    Args:
        secret: Of the cluster; of the program where there is none.
        program: Which program of the cluster, and which server of it: what opens one opens no
            other.
        since: Codes that were made before are refused, in seconds since 1970: a server that starts
            again has forgotten which of them were used.
    """

    def __init__(self, secret: bytes, program: str, since: float = 0.0) -> None:
        self._secret = hmac.new(secret, _LABEL + program.encode(), hashlib.sha256).digest()
        self._since = since
        self._used: dict[str, float] = {}

    def token(self, role: str) -> str:
        """Return the token that a program sends as ``Authorization: Bearer TOKEN``."""
        return self._seal(f"token {role}")

    def role_of_token(self, token: str) -> str | None:
        """The role that a token stands for; None if it is none."""
        return next((role for role in ROLES if _equal(token, self.token(role))), None)

    def code(self, role: str, now: float, here: bool = False) -> str:
        """Return the one-time code that lets a browser in.

        Args:
            role: Of who comes in.
            now: In seconds since 1970.
            here: Let in only the user of the program, on its machine.
        """
        text = f"{role}.{now * 1000:.0f}.{secrets.token_hex(8)}{_HERE * here}"
        return f"{text}.{self._seal(f'code {text}')}"

    def use_code(self, code: str, now: float, is_ours: bool = False) -> str | None:
        """The role that a code stands for; None if it is none, or too old, or was used.

        Args:
            code: Of the link.
            now: In seconds since 1970.
            is_ours: Whether the user of the program gives it, on its machine.
        """
        text, _, seal = code.rpartition(".")
        if not _equal(seal, self._seal(f"code {text}")):
            return None
        if text.endswith(_HERE) and not is_ours:
            return None
        role, milliseconds, *_ = text.split(".")
        made = int(milliseconds) / 1000
        self._used = {each: at for each, at in self._used.items() if at >= now - CODE_LIFE}
        if text in self._used or made < self._since or not now - CODE_LIFE <= made <= now + _EARLY:
            return None
        self._used[text] = made
        return role

    def session(self, role: str, now: float) -> str:
        """Return what a browser that was let in says with each request."""
        text = f"{role}.{now + SESSION_LIFE:.0f}"
        return f"{text}.{self._seal(f'session {text}')}"

    def role_of_session(self, session: str, now: float) -> str | None:
        """The role that a session stands for; None if it is none, or too old."""
        text, _, seal = session.rpartition(".")
        if not _equal(seal, self._seal(f"session {text}")):
            return None
        role, _, end = text.partition(".")
        return role if now < float(end) else None

    def _seal(self, text: str) -> str:
        return hmac.new(self._secret, text.encode(), hashlib.sha256).hexdigest()


def may(role: str, needed: str) -> bool:
    """Return whether a role includes another one."""
    return needed in _includes(role)


def _includes(role: str) -> Iterator[str]:
    yield role
    if role == ACT:
        yield VIEW


def _equal(first: str, second: str) -> bool:
    return hmac.compare_digest(first.encode(), second.encode())
