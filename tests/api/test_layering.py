"""The folder tree is the architecture: imports point downward only.

Read from the source, nothing is imported here.
"""

from __future__ import annotations

import ast
import gc
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "monarch"

# Package -> layer, the longest prefix counts. Packages of one layer do not import each other.
LAYERS = {
    "monarch._core.extension": -2,  # what may be added to the engine; all may call it
    "monarch._public": -1,
    "monarch.errors": 0,
    "monarch.config": 0,
    "monarch._connections": 0,
    "monarch._own_address": 0,
    "monarch._lazy": 0,
    "monarch._ours": 0.2,
    "monarch._rotating_file": 0.3,
    "monarch._engine_log": 0.5,
    "monarch._namedtuple": 0,
    "monarch._new_python": 0,
    "monarch._used_as_result": 0,
    "monarch._proc_stat": 0,
    "monarch._words": 0,
    "monarch._arguments": 0,
    "monarch._commands": 0,
    "monarch._extras": 0,
    "monarch._interrupts": 0,
    "monarch._selection": 0,
    "monarch._seeded_forks": 1,
    "monarch._seeds": 0,
    "monarch._generators": 0.1,
    "monarch._secret": 0,
    "monarch._title": 0.5,
    "monarch._guards": 0.5,
    "monarch._resources": 0.6,
    "monarch._oom_killer": 0.6,
    "monarch._unsendable": 0,
    "monarch._copying": 0,
    "monarch._shared_imports": 0,
    "monarch._stack_dump": 0,
    "monarch._startup": -0.5,  # scripts import it without the rest
    "monarch._child_watch": 0,
    "monarch._guests": 9,  # names those who are above the engine
    "monarch._slow_imports": 0,
    "monarch._core.shape": 1,
    "monarch._core.supervision": 1,
    "monarch._core.wire": 1,
    "monarch._core.routing": 2,
    "monarch._core.net": 2,
    "monarch._core.calls": 3,
    "monarch._core.hub": 3.1,
    "monarch._core.actors": 3.2,
    "monarch._core.processes": 3.3,
    "monarch._core.client": 3.4,
    "monarch._core.mesh": 4,
    "monarch._core.plane": 4.1,  # what planes may import of the engine
    "monarch._patterns": 4.2,
    "monarch.actor": 4.25,
    "monarch._rank_selector": 4.3,
    "monarch._core": 5,
    "monarch.supervision": 5,
    "monarch.trust": 5,
    "monarch._polled_store": 0,
    "monarch._answering": 4.2,  # answers of planes to control records
    "monarch._kept_store": 4.5,  # stores of torch, for planes
    "monarch.rdma": 4.5,  # what other planes move data with
    "monarch._listening": 4.5,  # who is at the other end of a connection
    "monarch._forwarding": 5,  # ports that lead to others
    "monarch.programs": 4.5,  # how other planes reach a running program
    "monarch.tensor_engine": 5,
    "monarch.spmd": 5.2,  # shows stacks
    "monarch.elastic": 5,
    "monarch.lightning": 5.3,  # sets the variables of `spmd`
    "monarch.logs": 5,
    "monarch.stacks": 5,
    "monarch.debugger": 5,
    "monarch.telemetry": 5.2,  # reads logs and stacks
    "monarch.why": 5.5,  # reads stacks and telemetry, and which services hold calls
    "monarch.service": 5.3,  # counts in telemetry
    "monarch.sync": 5,
    "monarch.mounts": 5,
    "monarch.gather_mount": 5.5,
    "monarch.remotemount": 5.5,
    "monarch.environments": 5.5,
    "monarch.testing": 5,
    "monarch.queues": 5,
    "monarch.data": 5,
    "monarch.builtins": 6,
    "monarch.memory": 6,
    "monarch.experimental": 6,
    "monarch.notebook": 6,
    "monarch.parallel": 6,
    "monarch.pytest_plugin": 5.5,  # uses `actor`, and the core
    "monarch.profiler": 6,
    "monarch.python_local_mesh": 6,
    "monarch.safe_torch": 6,
    "monarch.simulator": 6,
    "monarch.tensorboard": 6,
    "monarch.timer": 6,
    "monarch.random": 7,  # uses `builtins`
    "monarch.control": 5,
    "monarch.admin": 5.8,  # reads telemetry, logs, stacks and why
    "monarch.job": 6,
    "monarch.gpu_checks": 6,
    "monarch.doctor_gpu": 7,
    "monarch.jupyter": 6.5,  # asks the program that a notebook is
    "monarch.dashboard": 5.7,  # files, which `admin` serves
    "monarch.tui": 7,
    "monarch.tools": 8,
    "monarch.__main__": 9,
    # Old names for new places.
    "monarch.compat": 9,
    "monarch._src": 9,
    "monarch._rust_bindings": 9,
    "monarch": 9,
}

MAY_IMPORT_CORE = {4.2, 4.25, 4.5, 5, 5.2, 5.3, 5.5, 9}
PURE = (
    "monarch._core.shape",
    "monarch._core.supervision",
    "monarch._core.wire",
    "monarch._core.routing",
)
PURE_MODULES = ("monarch._core.hub.lifecycle", "monarch._core.processes.proc_entry")
NOT_PURE = {
    "asyncio", "concurrent", "multiprocessing", "queue", "sched", "select", "selectors", "socket", "ssl", "subprocess",
    "threading", "time", "_thread",
}  # fmt: skip
NOT_IN_CORE = {
    "torch",
    "http",
    "urllib",
    "aiohttp",
    "requests",
    "fastapi",
    "flask",
    "starlette",
    "uvicorn",
    "numpy",
}
# is a selector, which waits for what a connection of `net` reads
LOOP_OF_ACTORS = "monarch._core.actors.actor_loop"
SOCKETS_BETWEEN_PARENT_AND_CHILD = {
    "socket",
    "socketpair",
    "AF_UNIX",  # of a pair
    "SOCK_SEQPACKET",
    "MSG_CMSG_CLOEXEC",
    "send_fds",
    "recv_fds",
    "gethostname",
    "SHUT_RDWR",
    "SHUT_WR",
}

# Lines of code: neither blank, comment nor docstring. To raise one is a decision: say in the commit
# what the lines are for. What stands on the engine (attaching hosts, repeated calls, drawings of
# meshes) is in `monarch.actor`, and does not count as the engine's.
MOST_LINES = 73_999
MOST_LINES_OF_THE_ENGINE = 19_000
MOST_LINES_OF_A_FILE = 500
MOST_LINES_OF_A_FUNCTION = 50
MOST_LONGER_FUNCTIONS = 20  # to become none: split what you touch

# Words that leave the reader to guess who is meant, in sources, pages and names of tests.
MOST_WORDS_OF_A_DIALECT = 20
DIALECT = re.compile(r"\b(nobody|somebody|whoever|whatever|likewise)\b", re.IGNORECASE)
# Relative clauses in the place of a noun ("what is sent", "whose calls", "who asks"). They may not
# become more: name the thing, and lower the limit.
MOST_CLAUSES_FOR_NOUNS = {
    r"whose": (0, 7),
    r"what (?:is|are|was|were|has|have|had)": (3, 53),
    r"(?:^|[.:;,]) who": (0, 4),
}  # pattern -> docstrings and comments of sources, sentences of pages
COMMENT = re.compile(r"(?:^|\s)#:? (.*)$")
NAME_OF_A_TEST = re.compile(r"^ *(?:async )?def (test_\w+)", re.MULTILINE)
DOCS = SOURCE.parents[1] / "docs"
TESTS = SOURCE.parents[1] / "tests"
PAGES = "README.md", "CONTRIBUTING.md", "CHANGELOG.md"

# Where an import is put off for the sake of the start-up time. Keep it small.
MOST_LATE_IMPORTS = 18

# Tables of names, which are looked up at first use: who fills the points of the engine, and the
# import paths of Monarch 0.7.
TABLES = {"monarch._guests", "monarch.compat"}
NAMES_OF_LOGGERS = {"getLogger", "get_meter", "lazy_logger"}  # take what looks like a module
NO_MODULES = {("monarch.telemetry.otlp_records", "monarch.job")}  # a name in OpenTelemetry
MODULE = re.compile(r"\bmonarch(?:\.\w+)+")


@dataclass(frozen=True)
class Import:
    importer: str
    imported: str
    line: int
    inside_a_function: bool = False
    for_types_only: bool = False
    in_a_string: bool = False

    def __str__(self) -> str:
        how = "names in a string" if self.in_a_string else "imports"
        return f"{self.importer}, line {self.line}: {how} {self.imported}"


def module_name(path: Path) -> str:
    parts = ["monarch", *path.relative_to(SOURCE).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path) -> Iterator[Import]:
    name = module_name(path)
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]

    def visit(node: ast.AST, late: bool, types: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):  # most of a tree, and imports are statements
                continue
            if isinstance(child, ast.Import):
                for alias in child.names:
                    yield Import(name, alias.name, child.lineno, late, types)
            elif isinstance(child, ast.ImportFrom):
                base = child.module or ""
                if child.level:
                    above = package.split(".")[: len(package.split(".")) - child.level + 1]
                    base = ".".join([*above, *filter(None, [child.module])])
                for alias in child.names:
                    whole = f"{base}.{alias.name}"
                    yield Import(
                        name, whole if is_module(whole) else base, child.lineno, late, types
                    )
            yield from visit(
                child,
                late or isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)),
                types or (isinstance(child, ast.If) and names_type_checking(child.test)),
            )

    yield from visit(trees()[path], late=False, types=False)


def names_type_checking(test: ast.expr) -> bool:
    return any(
        "TYPE_CHECKING" in (getattr(node, "id", ""), getattr(node, "attr", ""))
        for node in ast.walk(test)
    )


@cache
def is_module(name: str) -> bool:
    if not name.startswith("monarch."):
        return False
    path = SOURCE.joinpath(*name.split(".")[1:])
    return path.with_suffix(".py").exists() or path.is_dir()


@cache
def package_of(module: str) -> str:
    return max((p for p in LAYERS if module == p or module.startswith(p + ".")), key=len)


SOURCES = sorted(SOURCE.rglob("*.py"))


@cache
def trees() -> dict[Path, ast.Module]:
    """Syntax trees of all sources: some 600,000 objects, none of which the garbage collector need
    look at while they are made, nor later.
    """
    gc.disable()
    try:
        return {path: ast.parse(path.read_text(), str(path)) for path in SOURCES}
    finally:
        gc.freeze()
        gc.enable()


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    return list(ast.walk(trees()[path]))


@cache
def imports() -> list[Import]:
    return [found for path in SOURCES for found in imports_of(path)]


@cache
def own() -> list[Import]:
    return [
        found
        for found in imports()
        if found.imported == "monarch" or found.imported.startswith("monarch.")
    ]


@cache
def named() -> list[Import]:
    """Modules that stand in strings, as what is imported at first use, or run by ``-m``."""
    return [
        found
        for path in SOURCES
        if module_name(path) not in TABLES
        for found in strings_of(path)
        if (found.importer, found.imported) not in NO_MODULES
    ]


def strings_of(path: Path) -> Iterator[Import]:
    name = module_name(path)
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    loggers = {id(argument) for call in calls_of(path, *NAMES_OF_LOGGERS) for argument in call.args}
    for call in calls_of(path, "import_module", "_import_module"):
        match call.args[0]:
            case ast.Constant(value=str(text)) if text.startswith("."):
                rest = text.lstrip(".")
                above = package.split(".")[: len(package.split(".")) - (len(text) - len(rest) - 1)]
                yield Import(name, ".".join([*above, rest]), call.lineno, in_a_string=True)
    for node in nodes_of(path):
        match node:
            case ast.Constant(value=str(text)) if MODULE.fullmatch(text) and is_module(text):
                if id(node) not in loggers:
                    yield Import(name, text, node.lineno, in_a_string=True)


def calls_of(path: Path, *names: str) -> Iterator[ast.Call]:
    for node in nodes_of(path):
        match node:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in names:
                yield node


def listed(imports: list[Import]) -> str:
    return "\n".join(str(found) for found in imports)


def test_every_module_has_a_layer() -> None:
    unknown = [
        name
        for name in map(module_name, SOURCES)
        if package_of(name) == "monarch" and name.count(".") > 0
    ]
    assert unknown == [], "say in LAYERS where these belong"


def test_imports_point_downward_only() -> None:
    wrong = [
        found
        for found in own() + named()
        if (mine := package_of(found.importer)) != (other := package_of(found.imported))
        and LAYERS[other] >= LAYERS[mine] > 0
        and LAYERS[mine] != 9
    ]
    assert wrong == [], "upward or sideways:\n" + listed(wrong)


def test_the_lowest_layer_imports_nothing_above_itself() -> None:
    wrong = [
        found
        for found in own() + named()
        if LAYERS[package_of(found.importer)] <= 0 < LAYERS[package_of(found.imported)]
    ]
    assert wrong == [], listed(wrong)


def test_only_the_public_face_and_the_planes_import_the_core() -> None:
    wrong = [
        found
        for found in own()
        if found.imported.startswith("monarch._core")
        and found.imported != "monarch._core.extension"
        and not found.importer.startswith("monarch._core")
        and LAYERS[package_of(found.importer)] not in MAY_IMPORT_CORE
    ]
    assert wrong == [], listed(wrong)


def test_the_engine_does_not_name_what_is_above_it_in_any_text() -> None:
    """Neither in a string, nor in a docstring or comment: it does not know who fills its points."""
    wrong = [
        f"{module_name(path)}, line {number}: {line.strip()}"
        for path in SOURCES
        if module_name(path).startswith("monarch._core")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for found in MODULE.findall(line)
        if is_above_the_engine(found) and not any(each in line for each in NAMES_OF_LOGGERS)
    ]
    assert wrong == []


def is_above_the_engine(dotted: str) -> bool:
    """Whether this is a module above the engine, or a name in one, as in a docstring."""
    module = dotted
    while module != "monarch" and not is_module(module):
        module = module.rpartition(".")[0]
    return (
        module != "monarch"
        and LAYERS[package_of(module)] > LAYERS["monarch._core.plane"]
        and not module.startswith("monarch._core")
    )


def test_the_core_knows_neither_torch_nor_http() -> None:
    wrong = [
        found
        for found in imports()
        if found.importer.startswith("monarch._core")
        and found.imported.split(".")[0] in NOT_IN_CORE
    ]
    assert wrong == [], listed(wrong)


@pytest.mark.parametrize("package", [*PURE, *PURE_MODULES])
def test_a_pure_package_has_no_socket_no_thread_and_no_clock(package: str) -> None:
    wrong = [
        found
        for found in imports()
        if (found.importer + ".").startswith(package + ".")
        and found.imported.split(".")[0] in NOT_PURE
    ]
    assert wrong == [], listed(wrong)


def test_only_the_net_package_of_the_core_opens_connections() -> None:
    """Processes pass sockets that it inherits, and pairs between a parent and its child; they
    connect to nobody.
    """
    wrong = [
        f"{name}, line {node.lineno}: socket.{node.attr}"
        for path in SOURCES
        if (name := module_name(path)).startswith("monarch._core")
        and not name.startswith("monarch._core.net")
        for node in nodes_of(path)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "socket"
        and node.attr not in SOCKETS_BETWEEN_PARENT_AND_CHILD
    ]
    assert wrong == []
    also_wrong = [
        found
        for found in imports()
        if found.importer.startswith("monarch._core")
        and not found.importer.startswith("monarch._core.net")
        and found.imported.split(".")[0] in {"ssl", "selectors", "socketserver"}
        and (found.importer, found.imported) != (LOOP_OF_ACTORS, "selectors")
    ]
    assert also_wrong == [], listed(also_wrong)


def test_few_imports_of_the_package_hide_inside_functions() -> None:
    late = [found for found in own() if found.inside_a_function]
    assert len(late) <= MOST_LATE_IMPORTS, listed(late)


@pytest.mark.parametrize("package", ["monarch.errors", *PURE, "monarch._core.net"])
def test_no_import_of_another_package_hides_inside_a_function_of_a_low_layer(package: str) -> None:
    late = [
        found
        for found in own()
        if found.inside_a_function
        and (found.importer + ".").startswith(package + ".")
        and package_of(found.imported) != package
    ]
    assert late == [], listed(late)


def test_the_core_depends_on_the_standard_library_and_cloudpickle_only() -> None:
    wrong = [
        found
        for found in imports()
        if found.importer.startswith(
            ("monarch._core", "monarch.actor", "monarch.errors", "monarch.config")
        )
        and (top := found.imported.split(".")[0])
        not in {*sys.stdlib_module_names, "monarch", "cloudpickle"}
        and not found.for_types_only
        and not (top == "pytest" and found.importer.startswith("monarch.config"))
    ]
    assert wrong == [], listed(wrong)


def test_every_package_says_what_lives_there() -> None:
    silent = [
        module_name(path)
        for path in SOURCES
        if path.name == "__init__.py"
        and path.read_text().strip()
        and not ast.get_docstring(trees()[path])
    ]
    assert silent == []


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The groups of modules each of which imports, by way of others, every other one (Tarjan's
    algorithm).
    """
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        number[module] = lowest[module] = len(number)
        path.append(module)
        for imported in graph[module]:
            if imported not in number:
                visit(imported)
            if imported in path:
                lowest[module] = min(lowest[module], lowest[imported])
        if lowest[module] == number[module]:
            start = path.index(module)
            found.append(sorted(path[start:]))
            del path[start:]

    for module in graph:
        if module not in number:
            visit(module)
    return [members for members in found if len(members) > 1]


def circles_of(imports: list[Import]) -> list[list[str]]:
    graph: dict[str, set[str]] = {module_name(path): set() for path in SOURCES}
    for found in imports:
        if found.imported in graph and found.imported != found.importer:
            graph[found.importer].add(found.imported)
    return circles(graph)


def drawn(members: list[str]) -> str:
    lines = (
        f"{found}{' inside a function' * found.inside_a_function}{' for types' * found.for_types_only}"
        for found in own() + named()
        if found.importer in members and found.imported in members
    )
    return "\n".join(dict.fromkeys(lines))


def test_circles_are_found_in_a_graph() -> None:
    graph = {
        "a": {"b", "d"},
        "b": {"c"},
        "c": {"a", "d"},
        "d": {"e"},
        "e": set(),
        "f": {"g"},
        "g": {"f", "a"},
    }
    assert sorted(circles(graph)) == [["a", "b", "c"], ["f", "g"]]


def test_no_modules_import_each_other_in_a_circle() -> None:
    """An import that is put off into a function counts: it hides a circle, and does not cut it."""
    found = circles_of([each for each in own() if not each.for_types_only])
    assert found == [], "\n\n".join(map(drawn, found))


def test_no_more_than_three_modules_know_each_other_by_types_or_strings() -> None:
    found = [members for members in circles_of(own() + named()) if len(members) > 3]
    assert found == [], "\n\n".join(map(drawn, found))


def test_strings_that_name_modules_are_found() -> None:
    found = {(each.importer, each.imported) for each in named()}
    assert ("monarch.mounts.daemon", "monarch.mounts.fuse") in found  # relative
    assert ("monarch.telemetry.watch", "monarch.telemetry.messages") in found
    assert ("monarch._core.net.links", "monarch._core.net") not in found  # a logger


def test_no_file_has_more_than_500_lines_of_code() -> None:
    long = {name: n for name, n in lines_of_code().items() if n > MOST_LINES_OF_A_FILE}
    assert long == {}, "split these"


def test_growth_is_a_decision() -> None:
    found = lines_of_code()
    assert sum(found.values()) <= MOST_LINES
    engine = [n for name, n in found.items() if name.startswith("monarch._core")]
    assert sum(engine) <= MOST_LINES_OF_THE_ENGINE


def test_few_functions_are_longer_than_50_lines() -> None:
    long = [
        f"{module_name(path)}, line {node.lineno}: {node.name}"
        for path in SOURCES
        for node in nodes_of(path)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and lines_of(node) - (ast.get_docstring(node) is not None and lines_of(node.body[0]))
        > MOST_LINES_OF_A_FUNCTION
    ]
    assert len(long) <= MOST_LONGER_FUNCTIONS, "\n".join(long)


def test_the_prose_has_few_words_of_a_dialect() -> None:
    """Each names no subject, where a thread, a rank or a user is meant."""
    pages = [*DOCS.rglob("*.md"), *DOCS.rglob("*.py"), *(DOCS.parent / page for page in PAGES)]
    found = [
        f"{path}, line {number}: {line.strip()}"
        for path in [*SOURCES, *pages]
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for _ in DIALECT.findall(line)
    ]
    found += [
        f"{path}: {name}"
        for path in TESTS.rglob("*.py")
        for name in NAME_OF_A_TEST.findall(path.read_text())
        if DIALECT.search(name.replace("_", " "))
    ]
    assert len(found) <= MOST_WORDS_OF_A_DIALECT, "\n".join(found)


def sentences_of_a_source(path: Path) -> str:
    """Its docstrings and comments, on one line."""
    lines = path.read_text().splitlines()
    documented = prose(nodes_of(path))
    return " ".join(
        line.strip() if number in documented else "".join(COMMENT.findall(line))
        for number, line in enumerate(lines, 1)
    )


def sentences_of_a_page(path: Path) -> str:
    """What it says outside of blocks of code, on one line."""
    return " ".join(re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL).split())


def clauses_for_nouns(pattern: str, texts: dict[Path, str]) -> list[str]:
    return [
        f"{path}: ...{text[max(0, found.start() - 40) : found.end() + 40]}..."
        for path, text in texts.items()
        for found in re.finditer(rf"(?<!\w)(?:{pattern})\b", text, re.IGNORECASE)
    ]


def test_relative_clauses_do_not_stand_for_more_nouns() -> None:
    pages = [*DOCS.glob("*.md"), *(DOCS.parent / page for page in PAGES)]
    of_sources = {path: sentences_of_a_source(path) for path in SOURCES}
    of_pages = {path: sentences_of_a_page(path) for path in pages}
    for pattern, (most_in_sources, most_in_pages) in MOST_CLAUSES_FOR_NOUNS.items():
        in_sources = clauses_for_nouns(pattern, of_sources)
        in_pages = clauses_for_nouns(pattern, of_pages)
        assert len(in_sources) <= most_in_sources, "\n".join(in_sources)
        assert len(in_pages) <= most_in_pages, "\n".join(in_pages)


def test_relative_clauses_are_found_across_lines_and_not_in_code(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("Send what\nis due.\n\n```\nwhat is code\n```\n\nSomewhat is not it.\n")
    texts = {page: sentences_of_a_page(page)}
    assert len(clauses_for_nouns("what is", texts)) == 1
    assert COMMENT.findall("    x = 1  # whose turn") == ["whose turn"]


def test_words_of_a_dialect_are_found_in_texts_and_names() -> None:
    assert DIALECT.findall("Likewise, nobody waits, whatever happens.") != []
    assert DIALECT.search("test_who_waits_for_nobody".replace("_", " "))
    assert not DIALECT.search("everybody waits for what they need")


def test_lines_are_counted_as_by_their_tokens() -> None:
    texts = ['"""Words.\n\n# more\n"""\nx = 1\n\n# y\n', 'x = """\n\n# text\n"""\n']
    texts += ['x = (\n    "a"\n    # between\n    "b"\n)\n', "x = (\n\n    1,  # one\n)\n"]
    for text in [*texts, *(path.read_text() for path in SOURCES[::60])]:
        nodes = [*ast.walk(ast.parse(text))]
        assert written(text, nodes) - prose(nodes) == tokenized(text) - prose(nodes), text


def lines_of(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


@cache
def lines_of_code() -> dict[str, int]:
    """How many lines of each module are neither blank nor a comment, nor of a docstring."""
    return {
        module_name(path): len(written(path.read_text(), nodes_of(path)) - prose(nodes_of(path)))
        for path in SOURCES
    }


def written(text: str, nodes: list[ast.AST]) -> set[int]:
    """The numbers of lines on which something stands, other than a comment.

    A text over several lines may have blank ones, and some that look like comments: where there is
    one, other than a docstring, its file is taken apart.
    """
    found = {
        number
        for number, line in enumerate(text.split("\n"), 1)
        if line and NO_CODE.match(line) is None
    }
    inside = {
        number
        for node in nodes
        if isinstance(node, (ast.Constant, ast.JoinedStr))
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    return found if inside - prose(nodes) <= found else tokenized(text)


def tokenized(text: str) -> set[int]:
    """As `written`, by the tokens of a text, which takes ten times as long."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return {
        number
        for token in tokens
        if token.type not in NOTHING
        for number in range(token.start[0], token.end[0] + 1)
    }


def prose(nodes: list[ast.AST]) -> set[int]:
    """The numbers of lines of docstrings, also of those below an attribute."""
    return {
        number
        for body in (getattr(node, "body", ()) for node in nodes)
        for each in (body if isinstance(body, list) else ())
        if isinstance(each, ast.Expr)
        and isinstance(each.value, ast.Constant)
        and isinstance(each.value.value, str)
        for number in range(each.lineno, (each.end_lineno or each.lineno) + 1)
    }


NO_CODE = re.compile(r"\s*(#.*)?$")
NOTHING = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
}  # fmt: skip
