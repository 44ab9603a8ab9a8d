"""Measure the structure of the code: `python scripts/structure.py [--json]`.

Prints files per folder, sizes of files and functions, class names that occur twice, files that name certain classes,
import circles of modules and of folders, and how often types are left open. `tests/test_architecture.py` holds
limits on some of these.
"""

from __future__ import annotations

import ast
import json
import re
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: Folder in the repository -> the package that its modules belong to.
PACKAGES = {"src/penstock": "penstock", "benchmarks": "benchmarks"}
#: Words that refer to documents outside of the repository.
OUTSIDE = re.compile(r"\b(?:LANGUAGE|DESIGN|STYLE|HOUSE)\b(?:\.md)?(?=[ ,.;:)\]`']|$)")
AGGREGATES = ("COUNT", "SUM", "AVG", "MIN", "MAX", "FIRST", "LAST", "STDDEV", "VARIANCE", "MEDIAN", "QUANTILE", "MODE",
              "TOP_K", "ARRAY_AGG")  # fmt: skip
MORE_AGGREGATES = ("STRING_AGG", "MIN_BY", "MAX_BY", "COUNT_IF", "ANY_VALUE", "CORR", "COVAR_POP", "COVAR_SAMP", "MEAN",
                   "STDDEV_SAMP", "STDDEV_POP", "VAR_SAMP", "VAR_POP", "BOOL_AND", "BOOL_OR")  # fmt: skip
#: Generic classes of the project, which collections have of several kinds.
OWN_GENERICS = {"Attribute", "ControlRelation", "Option", "Setting", "StatementKind"}
#: Where an aggregate is named by rights: its own file, the oracle and the random queries. FIRST and LAST are words of
#: ORDER BY too, which two files read and write.
NAMES_AGGREGATES = (
    "penstock.expressions.aggregates",
    "penstock.testing",
    "penstock.language.grammar.queries",
    "penstock.algebra.nodes.first_rows",
)


def modules(root: Path = ROOT) -> dict[str, Path]:
    """Return every module of the project by its absolute name."""
    found = {}
    for folder, package in PACKAGES.items():
        for path in sorted((root / folder).rglob("*.py")):
            parts = path.relative_to(root / folder).with_suffix("").parts
            found[".".join([package, *(part for part in parts if part != "__init__")])] = path
    return found


def import_graph(found: Mapping[str, Path]) -> dict[str, set[str]]:
    """Return for each module the modules that it imports, lazily, by a string or for the type checker alone too; a
    package that is only imported because a module of it is, is left out."""
    return {
        module: {target for target in _targets(module, path, found) if target != module}
        for module, path in found.items()
    }


def _targets(module: str, path: Path, found: Mapping[str, Path]) -> Iterator[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in found)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, module, path.name == "__init__.py")
            for alias in node.names:
                name = f"{base}.{alias.name}"
                if name in found:
                    yield name
                elif base in found:
                    yield base
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = ast.unparse(node.func).rsplit(".", 1)[-1]
            if called == "import_module" and node.args[0].value in found:
                yield node.args[0].value


def _absolute(node: ast.ImportFrom, module: str, is_package: bool) -> str:
    if not node.level:
        return node.module or ""
    parts = module.split(".") if is_package else module.split(".")[:-1]
    return ".".join([*parts[: len(parts) - node.level + 1], *([node.module] if node.module else [])])


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that import each other, directly or not (Tarjan's strongly connected components)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    result: list[list[str]] = []

    def visit(module: str) -> None:
        order[module] = low[module] = len(order)
        stack.append(module)
        for target in sorted(graph[module]):
            if target not in order:
                visit(target)
            if target in stack:
                low[module] = min(low[module], low[target])
        if low[module] == order[module]:
            at = stack.index(module)
            component = stack[at:]
            del stack[at:]
            if len(component) > 1:
                result.append(sorted(component))

    sys.setrecursionlimit(10_000)
    for module in sorted(graph):
        if module not in order:
            visit(module)
    return sorted(result)


def folder_graph(found: Mapping[str, Path], graph: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Return which folders of `src` import which others, where both stand in the same folder.

    The own modules of a folder are a folder too, under its name, beside those that stand in it. Of the modules of
    `penstock` itself each is one, as it is a layer of its own.
    """
    imports: defaultdict[str, set[str]] = defaultdict(set)
    for module, targets in graph.items():
        for target in targets:
            ends = _folders_apart(_folder(module, found), _folder(target, found))
            if ends is not None:
                imports[ends[0]].add(ends[1])
                _ = imports[ends[1]]
    return dict(imports)


def folder_circles(found: Mapping[str, Path], graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the groups of folders that import each other, directly or by others."""
    return circles(folder_graph(found, graph))


def _folder(module: str, found: Mapping[str, Path]) -> str:
    above = module.rpartition(".")[0]
    return module if found[module].name == "__init__.py" or above == "penstock" else above


def _folders_apart(one: str, other: str) -> tuple[str, str] | None:
    """Return the folders at which two part, as they stand in the folder that both are in; None where they do not."""
    first, second = one.split("."), other.split(".")
    shared = next((i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), None)
    at = min(len(first), len(second)) if shared is None else shared
    ends = ".".join(first[: at + 1]), ".".join(second[: at + 1])
    return None if ends[0] == ends[1] or at == 0 or "penstock" in ends else ends


def folders(found: Mapping[str, Path]) -> dict[str, int]:
    """Return the number of Python files in each folder, sub-folders not counted; `__init__.py` is left out."""
    counts = Counter(str(path.parent.relative_to(ROOT)) for path in found.values() if path.name != "__init__.py")
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def functions(found: Mapping[str, Path]) -> list[tuple[int, str]]:
    """Return (lines, place) of every function, longest first."""
    sizes = []
    for module, path in found.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                sizes.append(((node.end_lineno or node.lineno) - node.lineno + 1, f"{module}:{node.name}"))
    return sorted(sizes, key=lambda item: (-item[0], item[1]))


def repeated_classes(found: Mapping[str, Path]) -> dict[str, list[str]]:
    """Return class names that are defined in more than one module of `src`, but for an operator of the algebra and the
    physical one that carries it out, which may share theirs."""
    places = defaultdict(list)
    for module, path in found.items():
        if not module.startswith("penstock"):
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(module)
    return {name: where for name, where in sorted(places.items()) if len(where) > 1 and not _both_sides(where)}


def _both_sides(modules_of_class: Sequence[str]) -> bool:
    logical = [module for module in modules_of_class if module.startswith("penstock.algebra.nodes.")]
    physical = [module for module in modules_of_class if module.startswith("penstock.physical.operators.")]
    return len(modules_of_class) == 2 and len(logical) == len(physical) == 1


def files_with(found: Mapping[str, Path], pattern: str) -> list[str]:
    """Return the modules of `src` whose code, comments and docstrings aside, matches `pattern`."""
    wanted = re.compile(pattern)
    return [
        module
        for module, path in found.items()
        if module.startswith("penstock") and wanted.search(ast.unparse(_bare(path)))
    ]


def _bare(path: Path) -> ast.Module:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if (
            isinstance(body, list)
            and body
            and isinstance(body[0], ast.Expr)
            and isinstance(body[0].value, ast.Constant)
        ):
            body[0] = ast.Pass()
    return tree


def count(found: Mapping[str, Path], pattern: str) -> int:
    """Return how often `pattern` occurs in the text of `src`."""
    wanted = re.compile(pattern)
    texts = (path.read_text(encoding="utf-8") for module, path in found.items() if module.startswith("penstock"))
    return sum(len(wanted.findall(text)) for text in texts)


def open_types(found: Mapping[str, Path], graph: Mapping[str, set[str]]) -> list[str]:
    """Return the places (module:line name) of `Any` in what other rooms see: in the signatures of public functions and
    methods, and in public fields, of modules of `src` that a module of another room imports."""
    seen = {target for module, targets in graph.items() for target in targets if _room(module) != _room(target)}
    return [
        f"{module}:{line} {name}"
        for module in sorted(seen)
        if module.startswith("penstock.")
        for line, name in _open_annotations(ast.parse(found[module].read_text(encoding="utf-8")).body)
    ]


def _room(module: str) -> str:
    return ".".join(module.split(".")[:2])


def _open_annotations(body: Sequence[ast.stmt], of: str = "") -> Iterator[tuple[int, str]]:
    for node in body:
        name = getattr(node, "name", "")
        if name.startswith("_") and name != "__init__":
            continue
        if isinstance(node, ast.ClassDef):
            yield from _open_annotations(node.body, f"{node.name}.")
        annotations: list[ast.expr | None] = []
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            every = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg)
            annotations = [node.returns, *(arg.annotation for arg in every if arg is not None)]
        elif isinstance(node, ast.AnnAssign) and not ast.unparse(node.target).startswith("_"):
            name, annotations = ast.unparse(node.target), [node.annotation]
        if any(_is_open(one) for one in annotations):
            yield node.lineno, of + name


def _is_open(node: ast.AST | None) -> bool:
    """Return whether an annotation has an `Any`, but as the parameter of a generic class of the project, of which it
    means: of any kind."""
    if isinstance(node, ast.Subscript) and getattr(node.value, "id", "") in OWN_GENERICS:
        return False
    if node is None or (isinstance(node, ast.Name) and node.id == "Any"):
        return node is not None
    return any(_is_open(part) for part in ast.iter_child_nodes(node))


def outside_references(root: Path = ROOT) -> int:
    """Return how often a file of the repository refers to a document outside of it."""
    read = (".py", ".md", ".cqltest", ".txt", ".sh")
    everywhere = [root / folder for folder in ("src", "tests", "benchmarks", "examples", "docs", "scripts")]
    places = [path for folder in everywhere for path in folder.rglob("*") if path.suffix in read]
    this = Path(__file__).resolve()
    return sum(len(OUTSIDE.findall(path.read_text(encoding="utf-8"))) for path in places if path.resolve() != this)


def measure() -> dict[str, object]:
    """Return all measures by name."""
    found = modules()
    graph = import_graph(found)
    sizes = sorted(
        (len(path.read_text(encoding="utf-8").splitlines()), module)
        for module, path in found.items()
        if module.startswith("penstock")
    )
    long = functions({module: path for module, path in found.items() if module.startswith("penstock")})
    quoted, more = "|".join(AGGREGATES), "|".join((*AGGREGATES, *MORE_AGGREGATES))
    return {
        "files": len(sizes),
        "files per folder, more than 15": {folder: n for folder, n in folders(found).items() if n > 15},
        "median file": statistics.median(size for size, _ in sizes),
        "largest files": [f"{size} {module}" for size, module in sizes[-3:][::-1]],
        "median function": statistics.median(size for size, _ in long),
        "largest functions": [f"{size} {place}" for size, place in long[:3]],
        "class names that occur twice": {name: len(where) for name, where in repeated_classes(found).items()},
        "files that name Window": len(files_with(found, r"\bWindow\b")),
        "files that name RowWindow": len(files_with(found, r"\bRowWindow\b")),
        "files that name an aggregate by a string": len(files_with(found, rf"""['"](?:{quoted})['"]""")),
        "files that name an aggregate by a string, its own and the oracle left out": [
            module
            for module in files_with(found, rf"""['"](?:{more})['"]""")
            if not module.startswith(NAMES_AGGREGATES)
        ],
        "import circles": circles(graph),
        "circles of folders": folder_circles(found, graph),
        "Any": count(found, r"\bAny\b"),
        "Any across rooms": open_types(found, graph),
        "type: ignore": count(found, r"# type: ignore"),
        "cast(": count(found, r"(?<![\w.])cast\("),
        "fmt: skip": count(found, r"# fmt: skip"),
        "references to documents outside": outside_references(),
    }


def main() -> None:
    measures = measure()
    if "--json" in sys.argv[1:]:
        print(json.dumps(measures, indent=1))
        return
    for name, value in measures.items():
        if isinstance(value, dict):
            print(f"{name}: {len(value)}")
            for key, part in value.items():
                print(f"    {key}: {part}")
        elif isinstance(value, list):
            print(f"{name}: {len(value)}")
            for part in value:
                print(f"    {part if isinstance(part, str) else ', '.join(part)}")
        else:
            print(f"{name}: {value}")


if __name__ == "__main__":
    main()
