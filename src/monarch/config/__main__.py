"""Print docs/config.md: `python -m monarch.config > docs/config.md`."""

from __future__ import annotations

from enum import Enum

from ._kinds import SIZE
from ._table import KNOBS, Knob
from ._units import size_text

_INTRODUCTION = """\
# Configuration

<!-- Generated: python -m monarch.config > docs/config.md -->

```python
from monarch.config import configure, configured

configure(message_delivery_timeout="1m 30s", preload=["numpy"])  # from here on
with configured(tail_log_lines=100):                             # inside the block
    ...
```

The highest of these that has a value wins:

1. `configure(...)` and `configured(...)` in this process;
2. the environment variable, if it is set and not empty;
3. what the client had in force when it spawned this process or attached its host;
4. the default.

In a child, a variable counts only if its text differs from the one that the client saw: what `configure` has overruled
in the client does not come back through an environment that was merely passed on.

A setting holds for the process and all its threads. Procs get the settings in force when they are spawned; later changes
do not reach them. The environment is read when a knob is first needed and after each call of `configure`.

* **duration**: `"30s"`, `"1h 30m"`, `"250ms"`, a number of seconds, or a `timedelta`; reads back as a normalised text.
* **size**: a number of bytes, or a text such as `"10 GiB"` or `"1.5 MB"`; reads back as bytes.
* **bool** in the environment: `1`, `true`, `yes`, `on`, or `0`, `false`, `no`, `off`. **None** there: `none`.
"""


_INEFFECTIVE = """\
## Accepted for compatibility

These keys of Monarch 0.7 can be set, and are checked, inherited and listed like the others. They have no effect, for the
reason given; what the environment has for them is ignored if it can't be read.
"""


def markdown() -> str:
    """Return the reference of all knobs as a Markdown page."""
    columns = ("key", "type", "default", "environment variable")
    effective = [_cells(knob) for knob in KNOBS if knob.applies]
    ineffective = [_cells(knob) for knob in KNOBS if not knob.applies]
    page = [_INTRODUCTION, "## Knobs that apply\n", *_table((*columns, "effect"), effective), ""]
    page += [_INEFFECTIVE, *_table((*columns, "no effect:"), ineffective)]
    return "\n".join(page) + "\n"


def _table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    return [_row(header), "|---" * len(header) + "|", *map(_row, rows)]


def _cells(knob: Knob) -> tuple[str, ...]:
    names = " or ".join(f"`{name}`" for name in (knob.name, *knob.aliases))
    return names, knob.kind.name, _default(knob), f"`{knob.env}`", knob.effect


def _default(knob: Knob) -> str:
    shown = knob.kind.show(knob.kind.keep(knob.default))
    if shown in ("", []):
        return "empty"
    if isinstance(shown, Enum):
        return f"`{shown}`"
    return f"`{size_text(shown) if knob.kind is SIZE else shown}`"


def _row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    print(markdown(), end="")
