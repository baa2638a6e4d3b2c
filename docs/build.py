"""Puts code and its output into the markdown pages, and checks that what is there is still true.

    python docs/build.py            write the blocks anew
    python docs/build.py --check    change nothing; exit 1 if a block or a link is out of date, or an example fails
    python docs/build.py --site     make a site of the pages in build/site, with the extra `docs`; a warning is an error

A page asks for a block by a marker on the line before it:

    <!-- include: docs/examples/actors.py -->            a whole file
    <!-- include: docs/examples/actors.py#counter -->    what stands between `# region counter` and `# endregion`
    <!-- output: examples/quickstart.py -->              what the program prints

Paths are relative to the root of the repository. Every file in docs/examples is run, included or
not.
"""

import argparse
import functools
import re
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(
    r"^<!-- (?P<kind>include|output): (?P<path>[^\s#]+)(?:#(?P<region>\S+))?"
    r" -->\n```(?P<language>\w*)\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
MARKER = re.compile(r"^ *<!-- *(?:include|output):.*$", re.MULTILINE)
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(
    r"""(?:\]\(|(?:src|href|srcset)=")(?!\w+:)(?P<path>[^)"#\s]*)(?:#(?P<anchor>[^)"\s]+))?"""
)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
PROGRAM_SECONDS = 60


class DocsError(Exception):
    """A page asks for something that isn't there, or a program of the docs fails."""


def pages() -> list[Path]:
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("**/*.md"))]


def region(path: Path, name: str | None) -> str:
    text = path.read_text()
    if name is None:
        return text
    found = re.search(
        rf"^ *# region {re.escape(name)}\n(.*?)^ *# endregion$", text, re.MULTILINE | re.DOTALL
    )
    if not found:
        raise DocsError(
            f"{path.relative_to(ROOT)} has no '# region {name}' that ends with '# endregion'"
        )
    return textwrap.dedent(found[1]).strip("\n") + "\n"


@functools.cache
def output(path: Path) -> str:
    """What the program prints on stdout. It must exit 0 and print nothing on stderr."""
    name = path.relative_to(ROOT)
    try:
        done = subprocess.run(
            [sys.executable, str(path)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=PROGRAM_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise DocsError(f"{name} had not ended after {PROGRAM_SECONDS} s") from None
    if done.returncode or done.stderr:
        raise DocsError(
            f"{name} ended with exit status {done.returncode}:\n{done.stdout}{done.stderr}"
        )
    return done.stdout


def run_examples() -> list[str]:
    """What is wrong with the programs of docs/examples, and those of examples that pages show.

    They mostly wait, so two run at a time.
    """

    def problem(path: Path) -> str | None:
        try:
            output(path)
        except DocsError as error:
            return str(error)
        return None

    asked = {
        ROOT / block["path"]
        for page in pages()
        for block in BLOCK.finditer(page.read_text())
        if block["kind"] == "output"
    }
    paths = sorted({*(ROOT / "docs" / "examples").glob("*.py"), *asked})
    problems = []
    with ThreadPoolExecutor(2) as threads:
        for path, found in zip(paths, threads.map(problem, paths), strict=True):
            print(f"run    {path.relative_to(ROOT)}", flush=True)
            problems += [found] if found else []
    return problems


def expand(page: str) -> str:
    """The page with the body of each marked block replaced by what its marker asks for."""
    for marker in MARKER.finditer(page):
        if not BLOCK.match(page, marker.start()):
            raise DocsError(
                f"{marker[0]} shows nothing: it wants a line that begins with ``` after it, and"
                " one that ends the block"
            )

    def replace(block: re.Match[str]) -> str:
        path = ROOT / block["path"]
        if not path.is_file():
            raise DocsError(f"{block['path']} is asked for, and does not exist")
        body = region(path, block["region"]) if block["kind"] == "include" else output(path)
        head = block[0][: block.start("body") - block.start()]
        return f"{head}{body}```"

    return BLOCK.sub(replace, page)


def anchors(page: str) -> set[str]:
    """The names under which a code host links to the headings of a page."""
    headings = HEADING.findall(FENCED.sub("", page))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(path: Path) -> list[str]:
    broken = []
    for link in LINK.finditer(FENCED.sub("", path.read_text())):
        target = (path.parent / link["path"]).resolve() if link["path"] else path
        if not target.exists():
            broken.append(link["path"])
        elif (
            link["anchor"]
            and target.suffix == ".md"
            and link["anchor"] not in anchors(target.read_text())
        ):
            broken.append(f"{link['path']}#{link['anchor']}")
    return broken


def site() -> int:
    options = ["--quiet", "--fail-on-warning", "--jobs", "2", "--conf-dir", "docs/site"]
    return subprocess.run(
        [sys.executable, "-m", "sphinx", *options, ".", "build/site"], cwd=ROOT, check=False
    ).returncode


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--check", action="store_true", help="change nothing; exit 1 if anything is out of date"
    )
    parser.add_argument(
        "--site", action="store_true", help="make a site of the pages as they are, in build/site"
    )
    options = parser.parse_args()
    if options.site:
        return site()
    check = options.check

    problems = run_examples()
    for page in pages():
        name, text = page.relative_to(ROOT), page.read_text()
        print(f"check  {name}", flush=True)
        try:
            wanted = expand(text)
        except DocsError as error:
            problems.append(f"{name}: {error}")
            continue
        if wanted != text and check:
            problems.append(f"{name} is out of date: run `python docs/build.py`")
        elif wanted != text:
            page.write_text(wanted)
        problems += [f"{name}: the link to {link} leads nowhere" for link in broken_links(page)]

    for problem in problems:
        print(f"\nproblem: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
