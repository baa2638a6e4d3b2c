"""``monarch tui``: a dashboard in the terminal."""

from __future__ import annotations

import importlib.util
import logging
import os
import ssl
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from .. import tui as faces
from ..admin.door import Door
from ..admin.keys import ACT
from .admin import find_access
from .found import OPTION, PROGRAM, reach

app = typer.Typer()

_TOKEN, _ADDR = "MONARCH_ADMIN_TOKEN", "MONARCH_ADMIN_ADDR"


class _Theme(str, Enum):
    dark = "textual-dark"
    light = "textual-light"
    nord = "nord"
    doom_nord_light = "doom-nord-light"
    gruvbox = "gruvbox"


class _Language(str, Enum):
    english = "en"
    chinese = "zh"


@app.command(epilog="Example: monarch tui")
def tui(
    program: PROGRAM = None,
    option: OPTION = None,
    addr: Annotated[
        str | None,
        typer.Option(
            "--addr",
            "-a",
            envvar=_ADDR,
            help=(
                f"An admin interface: host:port or URL, with ${_TOKEN}. A link of `monarch admin`"
                f" is read from ${_ADDR} alone."
            ),
        ),
    ] = None,
    admin_port: Annotated[int, typer.Option(help="The port, where --addr names none.")] = 1729,
    refresh_ms: Annotated[int, typer.Option(min=100, help="Milliseconds between looks.")] = 2000,
    theme: Annotated[_Theme, typer.Option(help="Colours; NO_COLOR=1 for none.")] = _Theme.dark,
    lang: Annotated[
        _Language, typer.Option(help="Taken as Monarch takes it; the words are English.")
    ] = _Language.english,
    tls_ca: Annotated[
        Path | None, typer.Option(help="CA certificates by which to know the server.")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="A certificate to show to it.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="The key of that.")] = None,
    plaintext: Annotated[
        bool, typer.Option("--plaintext", help="Send the token to other machines without TLS.")
    ] = False,
    diagnose: Annotated[
        bool,
        typer.Option(
            "--diagnose", help="Print a health report as JSON; exit 0 if all is well, else 1."
        ),
    ] = False,
) -> None:
    """Watch a program in the terminal.

    Screens: verdict, ranks, stacks, waits, logs, failures, tree, SQL. Without --addr, a program of
    this machine. ? shows the keys.
    """
    if not diagnose:
        if importlib.util.find_spec("textual") is None:
            raise ImportError(
                "the terminal dashboard needs textual: pip install 'pymonarch[tui]'", name="textual"
            )
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise ValueError("the dashboard needs a terminal; --diagnose prints a report anywhere")
    if any("/login?code=" in each for each in sys.argv):
        raise ValueError(
            "other users of this machine can read a link in a command line, and use it first:"
            f" {_ADDR}='http://...' monarch tui"
        )
    context = _tls(tls_ca, tls_cert, tls_key)
    if addr is None:
        way: AbstractContextManager[faces.Access] = _own(program, option, context)
    else:
        token = os.environ.get(_TOKEN, "")
        way = nullcontext(
            faces.open_access(addr, token, port=admin_port, context=context, plaintext=plaintext)
        )
    with way as access:
        if diagnose:
            raise typer.Exit(faces.diagnose(access))
        # what they say would stand in the middle of the screen
        logging.getLogger().handlers.clear()
        shown = _Theme.light if theme is _Theme.doom_nord_light else theme
        faces.run(access, refresh_ms / 1000, shown.value)


def _tls(ca: Path | None, cert: Path | None, key: Path | None) -> ssl.SSLContext | None:
    """How to know the server, and be known to it; None: as the system has it."""
    if ca is None and cert is None:
        return None
    read = ca
    try:
        context = ssl.create_default_context(cafile=ca)
        if cert is not None:
            read = cert
            context.load_cert_chain(cert, key)
    except OSError as error:  # those of TLS do not say what they were about
        why = error.strerror or str(error)
        if isinstance(error, ssl.SSLError) and error.reason:
            why = error.reason
        raise ValueError(
            f"{read} can't be read as certificates: {why.replace('_', ' ').lower()}"
        ) from None
    return context


@contextmanager
def _own(
    program: str | None, option: str | None, context: ssl.SSLContext | None
) -> Iterator[faces.Access]:
    """The admin interface of a program of this machine.

    It is the one that the program has, or one that lives as long as it is looked at.
    """
    pid, access = find_access(reach(program, option), ACT)
    if access is not None:
        yield faces.open_access(access["url"], access["token"], context=context, plaintext=True)
        return
    door = Door(pid, "127.0.0.1:0", quiet=True)
    try:
        access = door.access(ACT)
        yield faces.open_access(access["url"], access["token"])
    finally:
        door.close()
