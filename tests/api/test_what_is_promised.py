"""What the pages promise is held by tests: `tests/promises.py` has an entry for each row and each
bullet of them, with tests that exist, and none for what a page does not say any more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from promises import (
    LIFE,
    NO_PROMISES,
    PAGES_OF_A_PLAIN_RUN,
    PAINS,
    PROMISES,
    TESTS,
    Held,
    is_named,
    is_promised,
)

ROOT = Path(__file__).parents[2]
HELPERS = [str(path.relative_to(ROOT)) for path in (ROOT / "tests" / "helpers").glob("*.py")]
DEFINED = re.compile(r"^(class|def|    def) (\w+)", re.MULTILINE)
WHOLE = "*"  # the key of an entry that stands for its whole section


class Claim(NamedTuple):
    section: str
    text: str
    """A line: of prose, of a bullet, or of a row its first two cells."""
    is_listed: bool
    """Whether it is a row or a bullet, which has an entry. Prose may have one."""


def claims_of(page: str) -> Iterator[Claim]:
    section, first, in_code = "", "", False
    lines = page.splitlines()
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if line.startswith("```"):
            in_code = not in_code
        elif in_code or is_rule(line) or is_rule(following):  # below the heads of a table
            continue
        elif heading := re.match(r"#+ (.+)", line):
            section = heading[1]
        elif bullet := re.match(r" *(?:\*|\d+\.) (.+)", line):
            yield Claim(section, bullet[1], is_listed=True)
        elif line.startswith("|"):
            cells = [cell.strip() for cell in line.split("|")]
            # rows that share their first cell have it in the first of them
            first = cells[1] or first
            yield Claim(section, f"{first}: {cells[2]}", is_listed=True)
        else:
            yield Claim(section, line, is_listed=False)


def is_rule(line: str) -> bool:
    return line.startswith(("|-", "| -"))


def wrong_with(
    page: str, promises: Mapping[str, Mapping[str, Held]], without: Mapping[str, str]
) -> list[str]:
    """What the page says and has no entry, and the other way around."""
    wrong = []
    claims = list(claims_of(page))
    sections = {claim.section for claim in claims}
    left = {section: set(entries) for section, entries in promises.items()}
    for section, text, is_listed in claims:
        keys = [key for key in left.get(section, ()) if text.startswith(key)]
        if keys:
            left[section].remove(max(keys, key=len))
        elif is_listed and section not in without and WHOLE not in promises.get(section, ()):
            wrong.append(f"nothing holds what {section!r} says: {text!r}")
    for section, keys_left in left.items():
        gone = keys_left - {WHOLE} if section in sections else keys_left
        wrong += [f"{section!r} does not say this any more: {key!r}" for key in sorted(gone)]
    return wrong + [f"there is no {section!r} any more" for section in without.keys() - sections]


@pytest.mark.parametrize("page", PROMISES)
def test_each_row_and_bullet_of_a_page_has_an_entry(page: str) -> None:
    wrong = wrong_with((ROOT / page).read_text(), PROMISES[page], NO_PROMISES.get(page, {}))
    assert not wrong, (
        f"{page} and tests/promises.py differ. A promise has an entry that begins as its row or"
        " bullet does, with a test that fails if it is broken; what is gone has none.\n"
        + "\n".join(wrong)
    )


@pytest.mark.parametrize("section", ["What is defended, against whom", "Pages in a browser"])
def test_each_row_of_the_tables_of_attacks_names_the_files_that_hold_it(section: str) -> None:
    page, first, wrong = "docs/security.md", "", []
    text = (ROOT / page).read_text().partition(f"## {section}")[2].partition("\n## ")[0]
    rows = [line for line in text.splitlines() if line.startswith("|")]
    for line in rows[2:]:
        cells = [cell.strip() for cell in line.split("|")]
        first = cells[1] or first
        entries = PROMISES[page][section]
        key = max((key for key in entries if f"{first}: {cells[2]}".startswith(key)), key=len)
        files = dict.fromkeys(f"`{test.partition('::')[0]}`" for test in entries[key])
        if cells[4] != (held := ", ".join(files).replace("tests/", "")):
            wrong.append(f"{key!r} is held by {held}, not {cells[4]}")
    assert not wrong, "\n".join(wrong)


PAGE = """
# Fruit

Apples are red.

* **Pears** are green.

| fruit | colour |
| --- | --- |
| plum | blue |
| | yellow, too |

```
* a lemon
```

## Trees

1. Oaks are tall.
"""
WHOLLY = {
    "Fruit": {"Apples": (), "**Pears**": (), "plum: blue": (), "plum: yellow": ()},
    "Trees": {"Oaks": ()},
}


def test_a_page_with_an_entry_for_all_that_it_says_is_right() -> None:
    assert wrong_with(PAGE, WHOLLY, {}) == []
    assert wrong_with(PAGE, {"Fruit": {WHOLE: ()}}, {"Trees": "they are not fruit"}) == []


@pytest.mark.parametrize("key", ["**Pears**", "plum: blue", "plum: yellow"])
def test_a_row_or_a_bullet_without_an_entry_is_found(key: str) -> None:
    held = {other: () for other in WHOLLY["Fruit"] if other != key}
    (wrong,) = wrong_with(PAGE, {**WHOLLY, "Fruit": held}, {})
    assert "nothing holds" in wrong and key in wrong


@pytest.mark.parametrize("section", ["Fruit", "Trees", "Stones"])
def test_an_entry_for_what_is_not_said_is_found(section: str) -> None:
    held = {**WHOLLY, section: {**WHOLLY.get(section, {}), "a lemon": ()}}
    assert wrong_with(PAGE, held, {}) == [f"{section!r} does not say this any more: 'a lemon'"]


def test_two_rows_that_begin_alike_need_two_entries() -> None:
    held = {**WHOLLY, "Fruit": {"**Pears**": (), "plum": ()}}
    (wrong,) = wrong_with(PAGE, held, {})
    assert "yellow" in wrong


def test_a_section_that_is_left_out_and_not_there_is_found() -> None:
    assert wrong_with(PAGE, WHOLLY, {"Stones": "no"}) == ["there is no 'Stones' any more"]


@cache
def functions_of(file: str) -> set[str]:
    """As pytest names them, without parameters."""
    path = ROOT / file
    found, of_class = set(), ""
    for kind, name in DEFINED.findall(path.read_text()) if path.is_file() else ():
        if kind == "class":
            of_class = name
        else:
            found.add(name if kind == "def" else f"{of_class}::{name}")
    return found


def exists(test: str) -> bool:
    file, _, function = test.partition("::")
    name, _, parameters = function.partition("[")
    if not function:
        return bool(functions_of(file))
    # what parameters are called stands there as well, or in helpers, if not always in one piece
    words = set(re.findall(r"\w+", parameters))
    return name in functions_of(file) and words <= words_of(file) | words_of(*HELPERS)


@cache
def words_of(*files: str) -> set[str]:
    return {word for file in files for word in re.findall(r"\w+", (ROOT / file).read_text())}


def test_the_tests_that_hold_promises_exist() -> None:
    gone = {
        test: f"{page}, {section!r}: {key!r}"
        for page, sections in PROMISES.items()
        for section, entries in sections.items()
        for key, held in entries.items()
        for test in ([] if isinstance(held, str) else held)
        if not exists(test)
    }
    for table in (LIFE, PAINS):
        gone |= {test: key for key, tests in table.items() for test in tests if not exists(test)}
    assert not gone, "say in tests/promises.py which test holds it now"


def test_what_holds_a_promise_is_one_test_at_least() -> None:
    empty = [
        f"{page}, {section!r}: {key!r}"
        for page, sections in PROMISES.items()
        for section, entries in sections.items()
        for key, held in entries.items()
        if not held
    ]
    assert empty == []


def test_a_test_is_promised_with_all_of_its_parameters_or_one_of_them() -> None:
    one_by_one = (test for test in TESTS if test.partition("::")[0] not in TESTS)
    whole = next(test for test in one_by_one if "::" in test and "[" not in test)
    assert is_promised(whole) and is_promised(f"{whole}[1-a]")
    assert not is_promised(f"{whole}_too") and not is_promised(f"{whole}_too[1-a]")
    file = next(test for test in TESTS if "::" not in test)
    assert is_promised(f"{file}::test_of_any_name")


def test_a_plain_run_has_what_users_are_promised_and_names_the_rest() -> None:
    of_users = {
        test
        for page in PAGES_OF_A_PLAIN_RUN
        for entries in PROMISES[page].values()
        for held in entries.values()
        for test in ([] if isinstance(held, str) else held)
    }
    assert of_users <= TESTS and all(map(is_promised, of_users))
    of_figures = "tests/procs/test_preload.py::test_a_module_of_the_user_runs_once_for_all_procs"
    assert is_named(of_figures) and not is_promised(of_figures)
    assert not is_named(f"{of_figures}_too")
