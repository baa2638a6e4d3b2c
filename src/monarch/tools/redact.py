"""Taking secrets out of text that is to be given away.

It finds the known ones, and what looks like one.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

SECRET_NAME = re.compile(
    r"secret|token|passw|passphrase|api_?key|private|credential|auth|cookie|session|signature|(?:^|_)keys?(?:_|$)|dsn$",
    re.IGNORECASE,
)
"""Names of variables with secret values."""

_SHORTEST = 6  # characters of a known secret: a shorter one is a word, and no secret
_MOST = 64 * 1024  # bytes that are read of a file with a secret

# Everything below is bounded in length: text of any kind, however long, takes time in proportion.
_WORD = r"secret|token|passw(?:or)?d?|passphrase|api[_-]?key|access[_-]?key|private[_-]?key|credentials?|authorization|cookie"
_NAME = rf"[\w.-]{{0,40}}(?:{_WORD})[\w.-]{{0,40}}"
_START = r"(?:(?<![\w/+.-])|(?<=\\[nrt]))"  # of a word, also behind an escaped newline
_PATTERNS = [
    # a private key in PEM, also on one line of a log, and one that was cut off
    re.compile(
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
    ),
    # name=value, name: value, "name": "value"
    re.compile(
        rf"(?P<keep>\b{_NAME}\\?[\"']?\s{{0,9}}[=:]\s{{0,9}})(?P<quote>\\?[\"']?)(?!<redacted)(?:Bearer\s+|Basic\s+)?[^\s\"',;}})\\]+",
        re.IGNORECASE,
    ),
    re.compile(r"(?P<keep>\b(?:Bearer|Basic)\s+)[\w.~+/=-]{8,}", re.IGNORECASE),
    re.compile(r"(?P<keep>\b\w{1,20}://)[^\s/@:]{0,200}:[^\s/@]{1,200}(?=@)"),  # of a URL
    # a JSON web token
    re.compile(rf"{_START}eyJ[\w-]{{8,2000}}\.[\w-]{{1,8000}}\.[\w-]{{0,2000}}"),
    re.compile(
        rf"{_START}(?:gh[pousr]_|github_pat_|glpat-|hf_|sk-|sk_|xox[a-z]-|AKIA|ASIA|AIza|pypi-|npm_)[\w-]{{8,}}"
    ),
    # not typed by hand: letters of both cases and digits, such as `monarch secret` makes
    re.compile(rf"{_START}(?=[\w+-]*[a-z])(?=[\w+-]*[A-Z])(?=[\w+-]*\d)[\w+-]{{32,}}={{0,2}}"),
    re.compile(rf"{_START}[0-9a-f]{{48,}}(?![\w-])", re.IGNORECASE),
]


def redactor(environ: Mapping[str, str], files: list[Path]) -> Callable[[str], str]:
    """Return a function that takes secrets out of text.

    Args:
        environ: The values of variables with a `SECRET_NAME` are secrets.
        files: Files with secret content.
    """
    values = [value for name, value in environ.items() if SECRET_NAME.search(name)]
    values += [line for path in files for line in _lines(path)]
    values += [json.dumps(value)[1:-1] for value in values]  # as they are in quotes
    long = {value.strip() for value in values if len(value.strip()) >= _SHORTEST}
    known = sorted(long, key=len, reverse=True)
    exact = re.compile("|".join(map(re.escape, known))) if known else None

    def redact(text: str) -> str:
        if exact is not None:
            text = exact.sub("<redacted>", text)
        for pattern in _PATTERNS:
            text = pattern.sub(_redacted, text)
        return text

    return redact


def secret_files(environ: Mapping[str, str]) -> list[Path]:
    """The files that may hold the secret of this user's hosts."""
    named = [environ[name] for name in ("MONARCH_SECRET_FILE",) if environ.get(name)]
    return [*map(Path, named), Path(environ.get("HOME", "~")).expanduser() / ".monarch" / "secret"]


def _lines(path: Path) -> list[str]:
    try:
        fd = os.open(path.expanduser(), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        text = os.read(fd, _MOST).decode(errors="replace")
    except OSError:
        return []
    finally:
        os.close(fd)
    return [text, *text.splitlines()]


def _redacted(match: re.Match[str]) -> str:
    groups = match.groupdict()
    return f"{groups.get('keep') or ''}{groups.get('quote') or ''}<redacted>"
