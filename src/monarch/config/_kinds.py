"""How each type of knob is read, kept and shown.

Pure functions; knows nothing of names, layers or the environment.
"""

from __future__ import annotations

import operator
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any

from .._namedtuple import NamedTuple
from ._units import SECOND, OutOfRange, Unreadable, duration_text, read_duration, read_size

if TYPE_CHECKING:
    from collections.abc import Callable

_LONGEST_WAIT = 2**63 - 1  # nanoseconds, 292 years: what the waits of `threading` can take


class Encoding(Enum):
    """Wire formats of Monarch 0.7.

    Accepted everywhere, without effect: here there is one wire format.
    """

    Bincode = "bincode"
    Json = "json"
    Multipart = "multipart"


def _same(value: Any) -> Any:
    return value


class Kind(NamedTuple):
    """One type of knob. The functions that read raise `Unreadable`.

    `wanted` and `example` complete the sentence of an error. `keep` turns what a caller passed into
    the stored form, which is immutable; `from_text` turns an environment variable's text into
    something for `keep`; `show` gives users the stored form back, `native` gives it to the package.
    """

    name: str
    wanted: str
    example: object
    keep: Callable[[Any], Any]
    from_text: Callable[[str], Any] = _same
    show: Callable[[Any], Any] = _same
    native: Callable[[Any], Any] = _same


def text_of(shown: object) -> str:
    """Return a shown value as one would write it in an environment variable."""
    if shown is None or isinstance(shown, bool):
        return str(shown).lower()
    if isinstance(shown, (list, tuple)):
        return ",".join(map(str, shown))
    if isinstance(shown, Enum):
        return shown.name
    return str(shown)


def _whole(raw: object) -> int:
    # True is an int in Python, and never meant as a number of lines or bytes.
    if isinstance(raw, bool) or not hasattr(raw, "__index__"):
        raise Unreadable
    try:
        return operator.index(raw)
    except TypeError:  # an array has `__index__`, and refuses unless it holds one number
        raise Unreadable from None


def _nanoseconds(raw: object) -> int:
    if isinstance(raw, str):
        return read_duration(raw)
    if isinstance(raw, float):
        # The comparison is also false for NaN.
        return round(raw * SECOND) if abs(raw) * SECOND <= _LONGEST_WAIT else _LONGEST_WAIT + 1
    if hasattr(raw, "__index__"):
        return _whole(raw) * SECOND
    from datetime import timedelta  # late: its caller has paid for the import

    if isinstance(raw, timedelta):
        return raw // timedelta(microseconds=1) * 1000
    raise Unreadable


def _keep_duration(raw: object) -> int:
    nanoseconds = _nanoseconds(raw)
    if not 0 <= nanoseconds <= _LONGEST_WAIT:
        raise Unreadable(
            "it is negative" if nanoseconds < 0 else "it is not a time up to 292 years"
        )
    return nanoseconds


def _keep_size(raw: object) -> int:
    size = read_size(raw) if isinstance(raw, str) else _whole(raw)
    if not 1 <= size < 2**63:
        raise OutOfRange(
            "it is less than one byte" if size < 1 else "it is more than an address space"
        )
    return size


def _keep_float(raw: object) -> float:
    if isinstance(raw, bool) or not isinstance(raw, (int, float)) or raw != raw:
        raise Unreadable
    return float(raw)


def _number_from_text(kind: Callable[[str], object], text: str) -> object:
    try:
        return kind(text)
    except ValueError:
        return text


def _keep_bool(raw: object) -> bool:
    if not isinstance(raw, bool):
        raise Unreadable
    return raw


def _keep_str(raw: object) -> str:
    if not isinstance(raw, str):
        raise Unreadable
    # Of a subclass only the text is kept: the class need not exist where this is unpickled.
    return str.__str__(raw)


def _keep_modules(raw: object) -> tuple[str, ...]:
    if not isinstance(raw, (list, tuple)):
        raise Unreadable
    for name in raw:
        if not isinstance(name, str) or not all(part.isidentifier() for part in name.split(".")):
            raise Unreadable(f"{name!r} is not a module name")
    return tuple(raw)


def _keep_encoding(raw: object) -> Encoding:
    if isinstance(raw, Encoding):
        return raw
    # Monarch 0.7 says "serde_multipart" in its environment variable.
    wanted = raw.lower().replace("serde_", "") if isinstance(raw, str) else None
    for member in Encoding:
        if member.value == wanted:
            return member
    raise Unreadable


_TRANSPORT_NAMES = (
    "Unix", "TcpWithLocalhost", "TcpWithHostname", "MetaTlsWithHostname", "MetaTlsWithIpV6", "Tls",
    "Local", "Quic", "MetaQuicWithHostname", "MetaQuicWithIpV6",
)  # fmt: skip
_TRANSPORTS = {name.lower(): name for name in _TRANSPORT_NAMES} | {
    "ipc": "Unix",
    "tcp": "TcpWithHostname",
    "metatls": "MetaTlsWithIpV6",
    "metatls-hostname": "MetaTlsWithHostname",
}
_ADDRESSES = ("tcp://", "metatls://", "ipc://", "inproc://")


def _keep_transport(raw: object) -> str:
    # ChannelTransport lives in a higher layer, so its members are known here by their names only.
    spelling = raw.name if isinstance(raw, Enum) else raw
    if not isinstance(spelling, str):
        raise Unreadable
    if spelling.startswith(_ADDRESSES):
        return str.__str__(spelling)
    try:
        return _TRANSPORTS[spelling.lower()]
    except KeyError:
        raise OutOfRange from None


def count(
    minimum: int = 0, maximum: int = 2**63 - 1, *, example: int = 16, optional: bool = False
) -> Kind:
    """Return the kind of whole numbers in a range.

    `optional` ones may be None, "none" in the environment.
    """

    def keep(raw: object) -> int | None:
        if raw is None and optional:
            return None
        number = _whole(raw)
        if not minimum <= number <= maximum:
            raise OutOfRange("it is out of range")
        return number

    name = "int or None" if optional else "int"
    span = f"{minimum} or more" if maximum == 2**63 - 1 else f"{minimum} to {maximum}"
    wanted = f"a whole number, {span}{', or None' if optional else ''}"
    from_text = partial(_number_from_text, int)
    return Kind(name, wanted, example, keep, _or_none(from_text) if optional else from_text)


def _or_none(from_text: Callable[[str], object]) -> Callable[[str], object]:
    return lambda text: None if text.lower() == "none" else from_text(text)


def choice(*allowed: str) -> Kind:
    """Return the kind of texts that must be one of `allowed`."""

    def keep(raw: object) -> str:
        text = _keep_str(raw)
        if text not in allowed:
            raise Unreadable
        return text

    listed = " or ".join(f'"{text}"' for text in allowed)
    return Kind(listed, listed, allowed[-1], keep)


_BOOLS = {
    "1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False,
    "off": False,
}  # fmt: skip

BOOL = Kind(
    "bool", "True or False", True, _keep_bool, lambda text: _BOOLS.get(text.strip().lower(), text)
)
STR = Kind("str", "a text", "text", _keep_str)
SIZE = Kind("size", 'a size: a number of bytes, or a text like "64 MiB"', "64 MiB", _keep_size)
DURATION = Kind(
    "duration",
    'a duration: a text like "30s", "1h 30m" or "250ms", a number of seconds, or a timedelta',
    "30s",
    _keep_duration,
    show=duration_text,
    native=lambda nanoseconds: nanoseconds / SECOND,
)
DURATION_OR_NONE = Kind(
    "duration or None",
    f"{DURATION.wanted}, or None",
    "30s",
    lambda raw: None if raw is None else _keep_duration(raw),
    from_text=_or_none(_same),
    show=lambda kept: None if kept is None else duration_text(kept),
    native=lambda kept: (_LONGEST_WAIT if kept is None else kept) / SECOND,
)
FLOAT = Kind("float", "a number", 0.5, _keep_float, partial(_number_from_text, float))
MODULES = Kind(
    "list of module names", "a list of module names", ["numpy", "package.module"], _keep_modules,
    from_text=lambda text: [name.strip() for name in text.split(",") if name.strip()], show=list,
)  # fmt: skip
ENCODING = Kind(
    "Encoding", "Encoding.Bincode, Encoding.Json or Encoding.Multipart", "Multipart", _keep_encoding
)
TRANSPORT = Kind(
    "transport",
    'a ChannelTransport or its name, "tcp", "ipc", "tls", "metatls", "metatls-hostname", or an'
    " address",
    "tcp",
    _keep_transport,
)
