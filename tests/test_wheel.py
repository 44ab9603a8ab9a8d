"""The wheel: what `pip install` gives somebody who has no checkout. It is built, installed into an environment of its
own and runs a query from a folder elsewhere. The dependencies are those of this environment, but for one slow test,
which installs all of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = """
CREATE STREAM Orders (ts INT, item STRING, price INT) FROM MEMORY () TIMESTAMP BY ts;
INSERT INTO Orders VALUES (1, 'tea', 5), (2, 'rum', 50), (3, 'ale', 12);
CREATE QUERY dear AS SELECT item, price FROM Orders WHERE price > 10;
"""
ANSWER = "ts,item,price\n2,rum,50\n3,ale,12\n"


def call(*command: object, folder: Path) -> str:
    """Standard output of a command that knows nothing of this checkout."""
    environ = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYSPARK_PYTHON")}
    words = [str(word) for word in command]
    found = subprocess.run(words, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    assert found.returncode == 0, f"{words}\n{found.stdout}\n{found.stderr}"
    return found.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, as a build leaves files beside what it builds."""
    place = tmp_path_factory.mktemp("wheel")
    copy = place / "source"
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "-q"]
    call(sys.executable, "-m", "pip", "wheel", *options, "-w", place, copy, folder=place)
    (built,) = place.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def environment(wheel: Path) -> Path:
    """An environment with the wheel alone; what it depends on is found where this process finds it."""
    place = wheel.parent / "environment"
    venv.create(place, with_pip=False)
    python = place / "bin" / "python"
    options = ["--no-deps", "--no-index", "--no-compile", "--disable-pip-version-check", "-q"]
    call(sys.executable, "-m", "pip", "--python", python, "install", *options, wheel, folder=wheel.parent)
    (packages,) = place.glob("lib/python*/site-packages")
    _take_over_what_is_compiled(packages)
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (wheel.parent / "orders.cql").write_text(SCRIPT)
    return place


def _take_over_what_is_compiled(packages: Path) -> None:
    """Copy what has been compiled of the checkout, which counts for files of the same time and size; that everything
    can be compiled where it is installed is seen in an environment that was empty."""
    source = ROOT / "src"
    for path in (source / "penstock").rglob("*.py"):
        shutil.copystat(path, packages / path.relative_to(source))
    # Not what others are about to rename.
    unwanted = shutil.ignore_patterns("*.py", "*.egg-info", "*.tmp.*", "*.pyc.*")
    shutil.copytree(source, packages, ignore=unwanted, dirs_exist_ok=True)


def test_the_wheel_has_all_modules_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        metadata = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        told = archive.read(metadata).decode()
    source = ROOT / "src"
    modules = {str(path.relative_to(source)) for path in (source / "penstock").rglob("*.py")}
    catalog = source / "penstock" / "pgwire" / "catalog"
    page = source / "penstock" / "server" / "page" / "static"
    read = [*page.rglob("*.*"), *catalog.glob("*.txt"), *catalog.glob("*.sql")]
    assert names == modules | {"penstock/py.typed"} | {str(path.relative_to(source)) for path in read}
    assert "Requires-Dist: pyspark" in told and "\nCREATE QUERY delays AS" in told.replace("\r", "")


def test_the_command_works_outside_of_the_checkout(environment: Path) -> None:
    folder = environment.parent
    where = call(environment / "bin" / "python", "-c", "import penstock; print(penstock.__file__)", folder=folder)
    assert Path(where.strip()).is_relative_to(environment)
    command = environment / "bin" / "penstock"
    assert call(command, "check", "orders.cql", folder=folder).startswith("orders.cql: correct, 1 query\n")
    assert "rows out 2" in call(command, "explain", "--analyze", "orders.cql", folder=folder)


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_it_runs_a_query(environment: Path) -> None:
    assert call(environment / "bin" / "penstock", "run", "orders.cql", folder=environment.parent) == ANSWER


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_it_runs_a_query_in_an_environment_that_was_empty(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "environment", with_pip=True)
    programs = tmp_path / "environment" / "bin"
    call(programs / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check", wheel, folder=tmp_path)
    (tmp_path / "orders.cql").write_text(SCRIPT)
    assert call(programs / "penstock", "run", "orders.cql", folder=tmp_path) == ANSWER
