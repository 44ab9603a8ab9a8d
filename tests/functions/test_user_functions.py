"""Functions of the user: how they are registered, shipped and told apart, and what is said when they fail."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from user_kit import answer

import penstock
from penstock.errors import PenstockError
from penstock.expressions.user import REGISTERED, UserFunction, make
from penstock.session import Session
from penstock.testing import samples
from tests.commands import penstock as command_words

ROWS = [(1, 1), (2, -2), (3, 3), (4, -4)]


@pytest.fixture(autouse=True)
def _nothing_stays_registered() -> Iterator[None]:
    before = dict(REGISTERED)
    yield
    REGISTERED.clear()
    REGISTERED.update(before)


def declared(name: str, returns: str = "BIGINT") -> str:
    return f"CREATE FUNCTION f RETURNS {returns} AS 'penstock.testing.samples:{name}';"


def failure(script: str) -> PenstockError:
    with pytest.raises(PenstockError) as caught:
        answer(script, ROWS)
    return caught.value


def test_a_decorator_registers_for_every_script() -> None:
    @penstock.function(returns="DOUBLE", parameters=["DOUBLE"])
    def halved(numbers: pa.Array) -> pa.Array:
        return pc.divide(numbers, 2.0)

    assert answer("SELECT Halved(a) FROM S", ROWS[:1]) == [(1, 0.5)]
    assert halved(pa.array([4.0])).to_pylist() == [2.0]


def test_a_session_has_functions_of_its_own() -> None:
    one, other = Session(), Session()

    @one.function(returns="BIGINT", name="Plus")
    def anything(numbers: pa.Array) -> pa.Array:
        return pc.add(numbers, 1)

    assert one.execute("SHOW FUNCTIONS").texts == ("FUNCTION Plus RETURNS BIGINT",)
    assert other.execute("SHOW FUNCTIONS").texts == ("",)
    with pytest.raises(PenstockError, match="P0206"):
        one.function(returns="BIGINT", name="plus")(anything)
    with pytest.raises(PenstockError, match="P0206"):
        one.function(returns="BIGINT", name="Concat")(anything)


def test_a_function_is_told_the_number_of_rows() -> None:
    @penstock.function(returns="INT")
    def ones(rows: int) -> list[int]:
        return [1] * rows

    assert answer("SELECT ones() AS o FROM S", ROWS[:2]) == [(1, 1), (2, 1)]


def test_the_rows_it_raises_on_are_shown() -> None:
    error = failure(declared("checked") + "CREATE QUERY fine AS SELECT f(a) FROM S;")
    assert error.code == "P0621"
    assert error.message.startswith("query fine: the user-defined function f failed: ValueError: -2 is negative\n")
    assert "it fails on:\n    (-2)\n    (-4)\n" in error.message
    assert "samples.py" in error.message
    assert "raise ValueError" in error.message
    assert "user_calls.py" not in error.message


def test_too_few_values() -> None:
    assert "f failed: it returned 3 values for 4 rows" in failure(declared("short") + "SELECT f(a) FROM S;").message


def test_a_wrong_type() -> None:
    message = failure(declared("words") + "SELECT f(a) FROM S;").message
    assert "f failed: it returned a list, which is not BIGINT" in message


def test_one_value_is_no_array() -> None:
    make_scalar = make(UserFunction, lambda numbers: 5, "BIGINT", "five")
    REGISTERED["five"] = make_scalar
    assert "it returned one int, not an array of 4 values" in failure("SELECT five(a) FROM S;").message


def test_an_empty_batch_calls_nothing() -> None:
    assert answer(declared("short") + "SELECT f(a) FROM S WHERE a > 100", ROWS) == []


def test_equal_definitions_are_equal_plans() -> None:
    def script(name: str, volatile: str = "") -> str:
        return (
            f"CREATE FUNCTION {name} RETURNS BIGINT {volatile} AS 'penstock.testing.samples:twice';"
            f"CREATE QUERY q AS SELECT {name}(a) AS x FROM S [NOW];"
        )

    from user_kit import SOURCE

    from penstock.language import bind_script

    prints = [bind_script(SOURCE + s).queries[0].root.fingerprint for s in (script("f"), script("F"), script("g"))]
    assert prints[0] == prints[1] != prints[2]
    other = bind_script(SOURCE + script("f", "VOLATILE")).queries[0].root.fingerprint
    assert other != prints[0]
    one, two = (make(UserFunction, body, "BIGINT", "h") for body in (lambda x: x, lambda x: -x))
    assert repr(one) != repr(two)
    assert repr(one) == repr(make(UserFunction, lambda x: x, "BIGINT", "h"))


def test_what_can_be_imported_travels_by_reference() -> None:
    user = make(UserFunction, samples.twice, "BIGINT", "f")
    shipped = pickle.dumps(user)
    assert b"penstock.testing.samples:twice" in shipped
    assert pickle.loads(shipped).body is samples.twice


def test_what_cannot_travels_by_value(tmp_path: Path) -> None:
    script = tmp_path / "notebook.py"
    script.write_text(
        "import sys, penstock, pyarrow.compute as pc\n"
        "from pyspark import cloudpickle\n"
        "FACTOR = 3\n"
        "@penstock.function(returns='BIGINT')\n"
        "def tripled(numbers): return pc.multiply(numbers, FACTOR)\n"
        "open(sys.argv[1], 'wb').write(cloudpickle.dumps(tripled))\n"
    )
    subprocess.run([sys.executable, str(script), str(tmp_path / "f")], check=True)
    shipped = pickle.loads((tmp_path / "f").read_bytes())
    assert shipped(pa.array([2])).to_pylist() == [6]


def test_a_module_beside_the_script_is_found_in_another_process(tmp_path: Path) -> None:
    (tmp_path / "my_functions.py").write_text("def same(numbers): return numbers\n")
    ship = (
        "import sys, pickle; sys.path.insert(0, sys.argv[1])\n"
        "from penstock.expressions.user import *\n"
        "f = make(UserFunction, load('my_functions:same'), 'BIGINT', 'f', reference='my_functions:same')\n"
        "sys.stdout.buffer.write(pickle.dumps(f))\n"
    )
    blob = subprocess.run([sys.executable, "-c", ship, str(tmp_path)], check=True, capture_output=True).stdout
    there = "import sys, pickle; f = pickle.loads(sys.stdin.buffer.read()); print(f(41) + 1)"
    said = subprocess.run([sys.executable, "-c", there], input=blob, check=True, capture_output=True).stdout
    assert said == b"42\n"


def test_a_failure_on_spark_keeps_its_lines() -> None:
    from penstock.runtime.spark.output.failures import translate

    error = failure(declared("checked") + "CREATE QUERY fine AS SELECT f(a) FROM S;")
    told = (
        "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
        f'  File "worker.py", line 7, in main\npenstock.errors.PenstockError: {error}\n\n\tat org.apache.Task.run\n'
    )
    assert translate(told).message == error.message
    assert translate(told).code == "P0621"


@pytest.mark.parametrize("last", ["AssertionError", "pyarrow.lib.ArrowInvalid: Float value 1.5 was truncated"])
def test_the_last_line_of_a_traceback_is_told(last: str) -> None:
    from penstock.runtime.spark.output.failures import translate

    told = (
        "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
        f'  File "worker.py", line 7, in main\n    assert now is not None\n{last}\n\n=== Streaming Query ===\n'
    )
    assert translate(ValueError(told)).message == f"the run failed: {last.removeprefix('pyarrow.lib.')}"


def test_a_module_beside_the_script_can_be_named(tmp_path: Path) -> None:
    """Also one that makes its values with pandas, which a command without such functions does not load."""
    (tmp_path / "beside_the_script.py").write_text(
        "def same(numbers):\n"
        "    import pandas, pyarrow\n"
        "    values = pandas.Series([None if v == 2 else v for v in numbers.to_pylist()], dtype=float)\n"
        "    return pyarrow.array(values)\n"
    )
    script = tmp_path / "script.cql"
    script.write_text(
        "CREATE STREAM S (ts INT, a INT) FROM MEMORY () TIMESTAMP BY ts; INSERT INTO S VALUES (1, 1), (2, 2);\n"
        "CREATE FUNCTION same RETURNS DOUBLE AS 'beside_the_script:same';\n"
        "CREATE QUERY q AS SELECT same(a) AS b FROM S;\n"
    )
    command = [*command_words(), "query", str(script), "SELECT b, b IS NULL AS no FROM q"]
    answer = subprocess.run(command, check=True, capture_output=True, cwd="/", text=True).stdout
    assert answer == "b,no\n1,false\n,true\n"


DECLARES = (
    "CREATE STREAM S (ts INT, a INT) FROM MEMORY () TIMESTAMP BY ts;\n"
    "CREATE FUNCTION f RETURNS STRING AS '{name}';\n"
    "INSERT INTO S VALUES (1, 1);\n"
    "CREATE QUERY q AS SELECT f(a) AS said FROM S;\n"
)


def explained(folder: Path, name: str, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """What `penstock check` says of a script in `folder` whose function is `name`."""
    script = folder / "script.cql"
    script.write_text(DECLARES.format(name=name))
    call = [*command_words(), "check", str(script)]
    return subprocess.run(call, capture_output=True, cwd="/", env=os.environ | environ, text=True, check=False)


def test_the_script_s_folder_comes_before_python_s_path(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "beside").mkdir()
    (tmp_path / "elsewhere" / "words.py").write_text("raise RuntimeError('the wrong one')\n")
    (tmp_path / "beside" / "words.py").write_text("def said(numbers): return ['beside'] * len(numbers)\n")
    environ = {"PYTHONPATH": str(tmp_path / "elsewhere")}
    found = explained(tmp_path / "beside", "words:said", environ)
    assert found.returncode == 0, found.stderr
    (tmp_path / "beside" / "words.py").unlink()
    assert "the wrong one" in explained(tmp_path / "beside", "words:said", environ).stderr


def test_a_worker_takes_the_module_that_the_driver_took(tmp_path: Path) -> None:
    for place in ("elsewhere", "beside"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "words.py").write_text(f"def said(numbers): return '{place}'\n")
    ship = (
        "import sys, pickle; from penstock import modules; modules.look_beside(sys.argv[1])\n"
        "from penstock.expressions.user import *\n"
        "f = make(UserFunction, load('words:said'), 'STRING', 'f', reference='words:said')\n"
        "sys.stdout.buffer.write(pickle.dumps(f))\n"
    )
    call = [sys.executable, "-c", ship, str(tmp_path / "beside")]
    blob = subprocess.run(call, check=True, capture_output=True).stdout
    there = "import sys, pickle; print(pickle.loads(sys.stdin.buffer.read())(1))"
    environ = os.environ | {"PYTHONPATH": str(tmp_path / "elsewhere")}
    said = subprocess.run(
        [sys.executable, "-c", there], input=blob, check=True, capture_output=True, env=environ
    ).stdout
    assert said == b"beside\n"


SHIPS = (
    "import sys, pickle; from penstock import modules; modules.look_beside(sys.argv[1])\n"
    "from penstock.expressions.user import *\n"
    "f = make(UserFunction, load(sys.argv[2]), 'STRING', 'f', reference=sys.argv[2])\n"
    "sys.stdout.buffer.write(pickle.dumps(f))\n"
)
#: Calls each definition whose file is an argument, and says what became of it.
LOADS = (
    "import sys, pickle; from pathlib import Path; from penstock import modules, errors\n"
    "if sys.argv[1]: modules.look_beside(sys.argv[1])\n"
    "for name in sys.argv[2:]:\n"
    "    try: print(pickle.loads(Path(name).read_bytes())(1))\n"
    "    except errors.PenstockError as error: print(error.code, error.message)\n"
)


def in_two_folders(tmp_path: Path) -> dict[str, str]:
    """Write functions in the folders `a` and `b`, ship them, and return the files of what was shipped."""
    places = {"a/words": "a.words", "b/words": "b.words", "b/other": "b.other"}
    for place in ("a", "b"):
        (tmp_path / place).mkdir()
    for module, said in places.items():
        (tmp_path / f"{module}.py").write_text(
            f"def said(numbers):\n    import beside\n    return '{said}' + beside.IT\n"
        )
    (tmp_path / "a" / "beside.py").write_text("IT = '!'\n")
    (tmp_path / "b" / "beside.py").write_text("IT = '!'\n")
    for module, said in places.items():
        call = [sys.executable, "-c", SHIPS, str(tmp_path / module[0]), f"{module[2:]}:said"]
        (tmp_path / said).write_bytes(subprocess.run(call, check=True, capture_output=True).stdout)
    return {said: str(tmp_path / said) for said in places.values()}


def loaded(beside: str, *shipped: str) -> list[str]:
    """Return what a new process says of definitions that were shipped to it. beside: the folder of its script."""
    call = [sys.executable, "-c", LOADS, beside, *shipped]
    return subprocess.run(call, check=True, capture_output=True, text=True).stdout.splitlines()


def test_a_module_that_is_gone_is_not_found_in_the_folder_of_another_function(tmp_path: Path) -> None:
    shipped = in_two_folders(tmp_path)
    # What a function imports when it is called is found beside it.
    assert loaded("", shipped["b.other"], shipped["b.words"]) == ["b.other!", "b.words!"]
    (tmp_path / "a" / "words.py").unlink()
    other, gone = loaded("", shipped["b.other"], shipped["a.words"])
    assert other == "b.other!" and gone.startswith("P0221 module words cannot be imported: ModuleNotFoundError")
    # A script that was moved with its modules names its new folder.
    assert loaded(str(tmp_path / "b"), shipped["a.words"]) == ["b.words!"]


def test_two_modules_of_one_name_are_not_taken_for_each_other(tmp_path: Path) -> None:
    shipped = in_two_folders(tmp_path)
    first, second = loaded("", shipped["b.words"], shipped["a.words"])
    assert first == "b.words!"
    assert second.startswith(f"P0221 module words has been imported from {tmp_path / 'b'} for another function")


def test_a_module_called_like_one_of_python_s_own(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("def said(numbers): return numbers\n")
    found = explained(tmp_path, "json:said", {})
    assert found.returncode == 2
    assert "error P0221: module json has no said" in found.stderr
    assert "hint: json.py beside the script is called like a module that Python has already: rename it" in found.stderr


def test_a_module_that_lacks_another(tmp_path: Path) -> None:
    (tmp_path / "words.py").write_text("import not_installed_anywhere\n")
    told = explained(tmp_path, "words:said", {}).stderr
    assert "hint: words was found, but not the module not_installed_anywhere that it imports" in told
    told = explained(tmp_path, "wards:said", {}).stderr
    assert "hint: put wards.py beside the script or its folder into PYTHONPATH" in told
