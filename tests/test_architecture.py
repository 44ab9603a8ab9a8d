"""The import rule of docs/architecture.md, and the habits that a machine can check."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from penstock.errors import CODES

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted((ROOT / "src" / "penstock").rglob("*.py"))
TEXTS = {path: path.read_text(encoding="utf-8") for path in SOURCES}

#: Lowest first. A module may import its own layer and those before it.
LAYERS = (
    ("redaction",),
    ("events", "temporary"),
    ("errors",),
    ("storage",),
    ("quantities", "arrays"),
    (
        "types",
        "time_zones",
        "settings",
        "figures",
        "deep_trees",
        "tree",
        "explain",
        "loading",
        "server_reports",
        "notebook",
        "compilation",
        "shedding",
    ),
    ("expressions",),
    ("algebra",),
    ("connectors",),
    ("language",),
    ("physical",),
    ("runtime",),
    ("handles",),
    ("session",),
    ("results",),
    ("control",),
    ("engines",),
    ("server",),
    ("pgwire",),
    ("client",),
    ("cli",),
)
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}

#: Narrower than their rank: folder or module -> all it may import of the project.
ONLY = {
    "connectors": {
        "connectors",
        "compilation",
        "quantities",
        "arrays",
        "redaction",
        "events",
        "errors",
        "storage",
        "temporary",
        "types",
        "time_zones",
        "settings",
        "tree",
        "expressions",
        "algebra",
    },
    "runtime.java": {"errors"},
    "client": {"client", "errors", "notebook", "server_reports", "types"},
    "notebook": {"notebook"},
    "shedding": {"shedding", "arrays", "compilation", "figures"},
}

#: Who may import only a part of a layer below: folder -> (the layer, what of it).
PARTS = {
    "language": ("connectors", {"connectors.options", "connectors.sources", "connectors.sinks"}),
    "physical": ("connectors", set()),
}

#: Rooms that nothing imports: the server starts them by their names (`server/http/application/doors.py`).
DOORS = {"pgwire"}

#: What the oracle, and every module of `testing` it leans on, may import: it shares nothing with what it judges.
ORACLE = {"arrays", "deep_trees", "errors", "types", "tree", "expressions", "algebra"}

#: Third-party package -> the only folders or modules that may import it. Its types alone, for the type checker, may be
#: named elsewhere: nothing is loaded.
OWNERS = {
    "sqlglot": {"language", "pgwire.catalog", "pgwire.analysis", "pgwire.statements.bound", "pgwire.statements.kinds"},
    "pyspark": {"runtime.spark"},
    "py4j": {"runtime.spark"},
    "typer": {"cli"},
    "prometheus_client": {"runtime.monitoring.prometheus"},
    "prompt_toolkit": {"cli.shell.terminal"},
    "fastapi": {"server"},
    "starlette": {"server"},
    "uvicorn": {"server"},
    "pydantic": {"server"},
    "sse_starlette": {"server"},
    "httpx": {"client"},
    # One measure of what a misspelt name is like.
    "difflib": {"errors"},
    "duckdb": {"pgwire.catalog.database.process"},
}

FORBIDDEN = re.compile(r"\b(?:TODO|FIXME|XXX|HACK|NotImplementedError)\b|/(?:work|tmp|root|home/\w+)/")


def module_name(path: Path) -> str:
    """`penstock/algebra/nodes/join.py` -> `algebra.join`; the package's own `__init__` -> ``."""
    parts = path.relative_to(ROOT / "src" / "penstock").with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def imports(source: str, module: str, is_package: bool) -> Iterator[tuple[int, str]]:
    """(line, absolute name) of everything imported anywhere in `source`, also lazily or by a string. Of the imports for
    the type checker those of the project."""
    package = ["penstock", *module.split(".")] if module else ["penstock"]
    if not is_package:
        package = package[:-1]
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    unloaded = {id(node) for branch in nodes if _for_types(branch) for node in ast.walk(branch)}
    for node in nodes:
        if id(node) in unloaded and "penstock" not in ast.unparse(node):
            continue
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            if base == "penstock":
                yield from ((node.lineno, f"penstock.{alias.name}") for alias in node.names)
            else:
                yield node.lineno, base
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = getattr(node.func, "attr", getattr(node.func, "id", None))
            if called in ("import_module", "__import__") and isinstance(node.args[0].value, str):
                yield node.lineno, node.args[0].value


def _for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and not node.orelse and getattr(node.test, "id", None) == "TYPE_CHECKING"


def belongs(module: str, place: str) -> bool:
    return module == place or module.startswith(place + ".")


def breaches(module: str, source: str, is_package: bool = False) -> list[str]:
    """What `source`, standing at `module`, imports against the rule."""
    found = []
    for line, name in imports(source, module, is_package):
        head, _, inner = name.partition(".")
        if head in OWNERS and not belongs(module, "testing"):
            if not any(belongs(module, owner) for owner in OWNERS[head]):
                found.append(f"{module}:{line} imports {head}")
        elif head == "penstock" and not may_import(module, inner):
            found.append(f"{module}:{line} imports {name}")
    return found


def may_import(module: str, target: str) -> bool:
    for place, allowed in ONLY.items():
        if belongs(module, place):
            return any(belongs(target, folder) for folder in allowed)
    top, target_top = module.split(".")[0], target.split(".")[0]
    layer, parts = PARTS.get(top, ("", set()))
    if target_top == layer:
        return target in parts
    if top in ("", "testing", "__main__") or target_top in ("", "__version__"):
        return True
    if target_top in DOORS and top != target_top:
        return False
    return target_top in RANK and RANK[target_top] <= RANK[top]


def test_imports_only_point_down() -> None:
    found = (breaches(module_name(path), TEXTS[path], path.name == "__init__.py") for path in SOURCES)
    assert [breach for some in found for breach in some] == []


def test_every_folder_has_a_layer() -> None:
    places = {module_name(path).split(".")[0] for path in SOURCES} - {"", "testing", "__main__"}
    assert places <= set(RANK)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("algebra.nodes.join", "from penstock.language import binder"),
        ("algebra.nodes.join", "from penstock import session"),
        ("algebra.nodes.join", "from ...physical import planner"),
        ("algebra.nodes.join", "def late():\n    import penstock.runtime.local.runtime"),
        ("algebra.nodes.join", "import importlib\nimportlib.import_module('penstock.cli')"),
        ("connectors.files", "from penstock.physical import batch"),
        ("connectors.files", "from penstock.language import binder"),
        ("language.binder", "from penstock.connectors.sources.kafka import KafkaSource"),
        ("physical.window", "from penstock.connectors.options import Options"),
        ("physical.window", "import sqlglot.expressions as exp"),
        ("language.binder", "from pyspark.sql import SparkSession"),
        ("runtime.local.runtime", "from pyspark.sql import SparkSession"),
        ("client.connection", "from penstock.server.roles import AccessRole"),
        ("control.log", "from fastapi import FastAPI"),
        ("cli.serve", "from penstock.pgwire.door import PgDoor"),
        ("pgwire.catalog.engine", "import duckdb"),
        ("algebra.nodes.join", "if TYPE_CHECKING:\n    from penstock.session import Session"),
    ],
)
def test_the_rule_notices_a_breach(module: str, source: str) -> None:
    assert breaches(module, source)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("physical.window", "from penstock.algebra.nodes.windows import Window\nfrom .batch import Batch"),
        ("language.dialect", "import sqlglot"),
        ("runtime.spark.job", "from pyspark.sql import SparkSession"),
        ("session", "if TYPE_CHECKING:\n    from pyspark.sql import SparkSession"),
        ("testing.random.worlds", "from penstock.physical.execution.executor import Executor"),
        ("cli.main", "from penstock import __version__"),
    ],
)
def test_the_rule_lets_the_rest_pass(module: str, source: str) -> None:
    assert breaches(module, source) == []


def test_the_oracle_stands_alone() -> None:
    seen: set[str] = set()
    waiting = {"testing.oracle"}
    while waiting:
        module = waiting.pop()
        seen.add(module)
        folder = ROOT / "src" / "penstock" / module.replace(".", "/")
        path = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
        for line, name in imports(path.read_text(encoding="utf-8"), module, is_package=folder.is_dir()):
            inner = name.removeprefix("penstock.")
            if inner == name or any(belongs(inner, layer) for layer in ORACLE):
                continue
            assert belongs(inner, "testing"), f"{module}:{line} imports {name}"
            waiting |= {inner} - seen


def test_files_are_clean() -> None:
    assert [line for path in SOURCES for line in lines_with(FORBIDDEN, path)] == []


def lines_with(pattern: re.Pattern[str], path: Path) -> Iterator[str]:
    """Yield the lines of a file that match, with their place."""
    if pattern.search(TEXTS[path]):
        for number, line in enumerate(TEXTS[path].splitlines(), 1):
            if pattern.search(line):
                yield f"{path}:{number}: {line}"


def test_what_the_formatter_may_not_touch_is_a_table() -> None:
    """A table of one line a row would take a line for each of its cells. Never for a signature or a call."""
    tables = (ast.Dict, ast.Set, ast.List, ast.Tuple)
    found, others = 0, []
    for path in SOURCES:
        last = [n for n, line in enumerate(TEXTS[path].splitlines(), 1) if line.endswith("# fmt: skip")]
        literals = {
            node.end_lineno
            for node in (ast.walk(ast.parse(TEXTS[path])) if last else ())
            if isinstance(node, ast.Assign | ast.AnnAssign)
            and any(isinstance(inner, tables) and len(ast.unparse(inner)) > 100 for inner in ast.walk(node))
        }
        found += len(last)
        others += [f"{module_name(path)}:{n}" for n in last if n not in literals]
    assert others == []
    assert 0 < found < 40


#: How many errors of the type checker are ignored in `src` at most. Never raise it: give the function its types.
IGNORED = 35
IGNORE = re.compile(r"# type: ignore(?P<code>\[[a-z, -]+\])?(?P<reason>  # \S.*)?")


def test_every_error_of_the_type_checker_that_is_ignored_has_its_code_and_a_reason() -> None:
    found = [match for path in SOURCES for match in IGNORE.finditer(TEXTS[path])]
    assert [match[0] for match in found if not (match["code"] and match["reason"])] == []
    assert 0 < len(found) <= IGNORED


#: How many compiled loops take more than ten parameters at most. Never raise it: take a tuple of arrays of records.
LONG_LISTS = 24


def test_few_compiled_loops_have_long_lists_of_parameters() -> None:
    compiled = re.compile(r"\b(?:loop|loop_per_constant|compiled|njit|for_cells)\b")
    found = [
        f"{module_name(path)}.{node.name}"
        for path in SOURCES
        for node in ast.walk(ast.parse(TEXTS[path]))
        if isinstance(node, ast.FunctionDef)
        and any(compiled.search(ast.unparse(one)) for one in node.decorator_list)
        and len(node.args.args) > 10
    ]
    assert "physical.operators.aggregates.running_sums.carry" in found
    assert len(found) <= LONG_LISTS


#: How often `Any` stands in what other rooms see at most. Never raise it: say the type, `object`, or a protocol.
OPEN_TYPES = 47


def test_few_types_are_open_across_rooms() -> None:
    structure = _structure()
    found = structure.modules()
    assert len(structure.open_types(found, structure.import_graph(found))) <= OPEN_TYPES


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("def f(a: Any, *b: list[Any]) -> int: ...\ndef g() -> dict[str, Any]: ...", ["f", "g"]),
        (
            "class C:\n    a: Any\n    _b: Any\n    def f(self) -> Any: ...\n    def _g(self) -> Any: ...",
            ["C.a", "C.f"],
        ),
        ("def _f(a: Any) -> int: ...\nclass _C:\n    a: Any", []),
        ("def f(a: object) -> int:\n    b: Any = a\n    return b", []),
    ],
)
def test_an_open_type_is_noticed(source: str, names: list[str], tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    path.write_text(source, encoding="utf-8")
    structure = _structure()
    found, graph = {"penstock.a.m": path}, {"penstock.b.n": {"penstock.a.m"}, "penstock.a.m": set()}
    assert [place.split()[1] for place in structure.open_types(found, graph)] == names
    assert structure.open_types(found, {"penstock.a.n": {"penstock.a.m"}}) == []


#: Folders of like things, a file each, that may be longer than others.
REGISTRIES = {
    "algebra/nodes", "algebra/optimizer/rules", "expressions/aggregates", "expressions/library",
    "language/statements", "physical/planning/lowering",
}  # fmt: skip


def _structure() -> ModuleType:
    spec = importlib.util.spec_from_file_location("structure", ROOT / "scripts" / "structure.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def hidden_writes(source: str) -> list[int]:
    """The lines that look into the `__dict__` of an object, or write into one past its class. A frozen object may set
    what is derived of itself, and `functools.cached_property` keeps it."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            found += [node.lineno] if node.attr == "__dict__" else []
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("object.__setattr__", "object.__delattr__"):
            found += [node.lineno] if ast.unparse(node.args[0]) != "self" else []
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            value = node.value
            found += [node.lineno] if isinstance(value, ast.Call) and ast.unparse(value.func) == "vars" else []
    return found


def test_no_object_is_written_into_past_its_class() -> None:
    assert [f"{module_name(path)}:{line}" for path in SOURCES for line in hidden_writes(TEXTS[path])] == []


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ('plan.__dict__["_known"] = 1', [1]),
        ('known = plan.__dict__.setdefault("_known", {})', [1]),
        ('vars(plan)["_known"] = 1', [1]),
        ('object.__setattr__(plan, "_known", 1)', [1]),
        ('object.__setattr__(self, "_known", 1)', []),
        ('found = vars(self)["known"]', []),
        ("@cached_property\ndef known(self): return 1", []),
    ],
)
def test_a_hidden_write_is_noticed(source: str, lines: list[int]) -> None:
    assert hidden_writes(source) == lines


def test_no_modules_import_each_other() -> None:
    """Also lazily, by a string, or for the type checker alone; in `src` and `benchmarks`."""
    structure = _structure()
    graph = structure.import_graph(structure.modules())
    assert graph["penstock.cli.main"] and graph["benchmarks.csql"]
    assert structure.circles(graph) == []


def test_imports_between_folders_run_one_way() -> None:
    """The own modules of a folder count as one beside those that stand in it. Where both of two need something, it is
    moved below both."""
    structure = _structure()
    found = structure.modules()
    assert structure.folder_circles(found, structure.import_graph(found)) == []


@pytest.mark.parametrize(
    ("imports", "circles"),
    [
        ({"a.low.one": "a.high.one", "a.high.two": "a.low.two"}, [["a.high", "a.low"]]),
        ({"a.low.one": "a.high.deep.one", "a.high.one": "a.low.one"}, [["a.high", "a.low"]]),
        ({"a.low.one": "a.own", "a.own": "a.low.two"}, [["a", "a.low"]]),
        ({"a.low.one": "a.high.one", "a.high.one": "a.low.two", "a.low.two": "own"}, [["a.high", "a.low"]]),
        ({"a.b.one": "a.c.one", "a.c.two": "a.d.one", "a.d.two": "a.b.two"}, [["a.b", "a.c", "a.d"]]),
        ({"a.one": "a.c.one", "a.c.two": "a.d.one", "a.d.two": "a.two"}, [["a", "a.c", "a.d"]]),
        ({"a.one": "b.one", "b.two": "c.one", "c.two": "own", "own": "a.two"}, [["a", "b", "c", "own"]]),
        ({"a.high.one": "a.low.one", "a.high.two": "a.low.two", "a.low.one": "a.low.two"}, []),
        ({"a.b.one": "a.c.one", "a.c.one": "a.d.one", "a.b.two": "a.d.two", "a.one": "a.b.one"}, []),
        ({"a.one": "own", "own": "b.one"}, []),
    ],
)
def test_a_circle_of_folders_is_noticed(imports: dict[str, str], circles: list[list[str]]) -> None:
    structure = _structure()
    names = {name for pair in imports.items() for name in pair}
    found = {f"penstock.{name}": Path(f"{name.replace('.', '/')}.py") for name in names}
    graph = {f"penstock.{name}": {f"penstock.{imports[name]}"} if name in imports else set() for name in names}
    noticed = structure.folder_circles(found, graph)
    assert noticed == [[f"penstock.{name}" for name in circle] for circle in circles]


@pytest.mark.parametrize(
    "source",
    [
        "from penstock import b",
        "def f():\n    import penstock.b",
        "if TYPE_CHECKING:\n    from .b import B",
        "import importlib\nimportlib.import_module('penstock.b')",
    ],
)
def test_a_circle_is_noticed(source: str, tmp_path: Path) -> None:
    structure = _structure()
    texts = {"penstock.a": source, "penstock.b": "from penstock.c import C", "penstock.c": "from penstock.a import A"}
    found = {name: tmp_path / f"{name.removeprefix('penstock.')}.py" for name in texts}
    for name, text in texts.items():
        found[name].write_text(text, encoding="utf-8")
    assert structure.circles(structure.import_graph(found)) == [sorted(texts)]


def test_no_folder_has_more_than_fifteen_files() -> None:
    """Sub-folders and `__init__.py` not counted, registries aside."""
    structure = _structure()
    sizes = structure.folders(structure.modules())
    allowed = {f"src/penstock/{folder}" for folder in REGISTRIES}
    assert allowed <= set(sizes)
    long = {folder for folder, n in sizes.items() if n > 15 and folder.startswith("src/")}
    assert long - allowed == set()


def test_no_class_name_stands_for_two_things() -> None:
    """An operator of the algebra and the physical one that carries it out may share theirs."""
    structure = _structure()
    assert structure.repeated_classes(structure.modules()) == {}


def test_no_two_test_modules_have_one_name() -> None:
    """The folders of the tests are no packages: pytest imports a module by its name alone."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, n in names.items() if n > 1] == []


def test_every_error_code_is_tested_and_documented() -> None:
    this = Path(__file__).resolve()
    untested = set(CODES)
    for path in (ROOT / "tests").rglob("*"):
        if path.suffix in (".py", ".cqltest", ".txt") and path != this:
            untested -= set(re.findall(r"P\d{4}", path.read_text(encoding="utf-8")))
    assert untested == set()
    page = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    assert [code for code in CODES if f"`{code}`" not in page] == []


def test_sqlglot_is_the_plain_package() -> None:
    """Compiled classes of `sqlglot[c]` cannot be subclassed, and the dialect subclasses them."""
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        importlib.metadata.version("sqlglotc")
    import sqlglot.parser

    assert sqlglot.parser.__file__.endswith(".py")


def test_the_lock_is_exact_hashed_and_names_no_host() -> None:
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    entries = [line for line in text.splitlines() if line and not line.startswith((" ", "#"))]
    assert entries
    assert all(re.match(r"^[A-Za-z0-9._-]+==[^\s]+ ", entry) for entry in entries)
    assert text.count("--hash=sha256:") >= len(entries)
    assert "://" not in text
    assert not re.search(r"^sqlglotc?\[|^sqlglotc", text, re.MULTILINE)


#: What may touch files by itself: the JVM's start, which needs the standard library alone, a cache of the user's,
#: files that the user names for the metrics, and the sockets of the workers.
UNSTORED = {
    "runtime.spark.startup.jvm",
    "runtime.spark.startup.daemon",
    "runtime.spark.startup.class_data_archive",
    "runtime.reporting",
    "runtime.spark.worker.shard_owners",
}
TOUCHES = re.compile(
    r"\.(?:write_text|write_bytes|unlink|mkdir|rmdir|touch)\(|rmtree\(|OSFile\([^)]*[\"']w"
    r"|os\.(?:replace|rename|fsync|open|remove)\(|open\(\s*[\"'][wax]|NamedTemporary|mkstemp"
)


def test_files_of_a_run_are_written_by_the_storage_alone() -> None:
    names = {path: module_name(path) for path in SOURCES}
    storing = [
        path
        for path, name in names.items()
        if name.startswith(("connectors", "runtime", "session", "control", "engines"))
    ]
    assert [line for path in storing if names[path] not in UNSTORED for line in lines_with(TOUCHES, path)] == []


def test_tests_that_start_servers_are_marked() -> None:
    """They are a line of their own in `make test`, between the fast ones and those with Spark."""
    starts = re.compile(
        r"^(from|import) (tests\.servers?\.|penstock\.server\.http\.application|playwright)", re.MULTILINE
    )
    tests = ROOT / "tests"
    files = {path: path.read_text(encoding="utf-8") for path in tests.rglob("test_*.py")}
    unmarked = [
        path.relative_to(ROOT).as_posix()
        for path, text in files.items()
        if starts.search(text)
        and path.relative_to(tests).parts[0] not in ("server", "page", "client", "spark")
        and "mark.server" not in text
    ]
    assert unmarked == []
