"""The dashboard's own words in Chinese, ``--lang zh``.

What comes of the program stays as it is: verdicts and reasons, names, logs, errors.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_spoken: Mapping[str, Any] = {}
"""Of `zh.json`: ``texts`` and ``help`` by what they are in English, and ``keys``.

Help is of each screen, by its English title; no line is wider than 72 columns.
"""


def speak(language: str) -> None:
    """Choose the language of `said`, for this process: it shows one dashboard.

    Args:
        language: ``en`` or ``zh``.

    Raises:
        ValueError: It is neither.
    """
    global _spoken
    if language not in ("en", "zh"):
        raise ValueError(f"the dashboard speaks en and zh, not {language!r}")
    texts = Path(__file__).with_name("zh.json")
    _spoken = json.loads(texts.read_text("utf-8")) if language == "zh" else {}


def said(text: str, /, **places: Any) -> str:
    """A text in the language that was chosen; as it is where there is no other.

    Args:
        text: In English.
        places: What stands in its braces.
    """
    found: str = _spoken["texts"].get(text, text) if _spoken else text
    return found.format(**places) if places else found


def help_of(title: str, text: str, keys: str) -> tuple[str, str]:
    """The help of a screen and of all keys.

    Args:
        title: Of the screen, in English.
        text: Its help, in English.
        keys: Those of all screens, in English.
    """
    if not _spoken:
        return text, keys
    return "\n".join(_spoken["help"][title]), "\n".join(_spoken["keys"])
