"""Functions of the user: how they are registered, shipped and told apart, and what is said when they fail."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from user_kit import answer

import penstock
from penstock.errors import PenstockError
from penstock.expressions.calls.user_functions import REGISTERED, make
from penstock.expressions.user import UserFunction
from penstock.expressions.user_calls import call_function, limited_calls
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

    from penstock.language.scripts import bind_script

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
        "from penstock.expressions.calls.user_functions import make\n"
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
        "import sys, pickle; from penstock.loading import modules; modules.look_beside(sys.argv[1])\n"
        "from penstock.expressions.calls.user_functions import make\n"
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
    "import sys, pickle; from penstock.loading import modules; modules.look_beside(sys.argv[1])\n"
    "from penstock.expressions.calls.user_functions import make\n"
    "from penstock.expressions.user import *\n"
    "f = make(UserFunction, load(sys.argv[2]), 'STRING', 'f', reference=sys.argv[2])\n"
    "sys.stdout.buffer.write(pickle.dumps(f))\n"
)
#: Calls each definition whose file is an argument, and says what became of it.
LOADS = (
    "import sys, pickle; from pathlib import Path; from penstock import errors; from penstock.loading import modules\n"
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


#: What each module of functions has, and what each helper: text that names its folder, and a helper of its own.
MODULES = {
    "{name}": (
        "import inner\n"
        "def early(numbers): return [inner.IT] * len(numbers)\n"
        "def late(numbers):\n    import beside\n    from package import part\n"
        "    return [beside.it() + part.IT] * len(numbers)\n"
        "class Sum:\n    def init(self): return []\n    def update(self, state, values):\n        import beside\n"
        "        return state + [beside.it()] * len(values)\n"
        "    def final(self, state):\n        import last\n        return last.IT + '|'.join(state)\n"
    ),
    "inner": "IT = 'early {folder}'\n",
    "beside": "def it():\n    import deep\n    return 'late {folder} ' + deep.IT\n",
    "deep": "IT = 'deep {folder} '\n",
    "last": "IT = 'last {folder} '\n",
    "package/__init__": "",
    "package/part": "IT = 'part {folder}'\n",
}
#: Two folders, and the module of functions in each.
NAMES = {"a": "words", "b": "other"}
#: Calls the functions of both modules in turn, as queries do.
IN_TURN = (
    "import pyarrow as pa\n"
    "from penstock.expressions.calls.user_functions import make\n"
    "from penstock.expressions.user_calls import *\n"
    "from penstock.expressions.user import *\n"
    "numbers = pa.array([1])\n"
    "def say(f):\n"
    "    try:\n"
    "        if isinstance(f, UserFunction): print(call_function(f, [numbers], 1)[0])\n"
    "        else: print(final(f, update(f, start(f), [numbers])))\n"
    "    except Exception as error: print(str(error).splitlines()[0])\n"
)
#: Loads what was shipped, each definition when it is first called.
SHIPPED = (
    "import sys, pickle; from pathlib import Path\n" + IN_TURN + "if sys.argv[1]:\n"
    "    from penstock.loading import modules; modules.look_beside(sys.argv[1])\n"
    "for name in sys.argv[2:]: say(pickle.loads(Path(name).read_bytes()))\n"
)
#: Loads the functions of two scripts, one after the other, and calls them in turn.
TWO_SCRIPTS = (
    "import sys; from penstock.loading import modules\n" + IN_TURN + "made = {}\n"
    "for folder, name in zip(sys.argv[1:3], ('words', 'other')):\n"
    "    modules.look_beside(folder)\n"
    "    for part, kind in (('early', UserFunction), ('late', UserFunction), ('Sum', UserAggregate)):\n"
    "        what = f'{name}:{part}'\n"
    "        made[what] = make(kind, load(what), 'STRING', 'f' + part, reference=what)\n"
    "for what in sys.argv[3:]: say(made[what])\n"
)


def with_helpers(tmp_path: Path) -> dict[str, Path]:
    """Write both folders; return them."""
    for folder, name in NAMES.items():
        for module, content in MODULES.items():
            path = tmp_path / folder / f"{module.replace('{name}', name)}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content.replace("{folder}", folder))
    return {folder: tmp_path / folder for folder in NAMES}


def shipped_from(folder: Path, what: str, kind: str) -> str:
    """Ship a definition from a process of its own; return the file."""
    call = [sys.executable, "-c", SHIPS.replace("UserFunction", kind), str(folder), what]
    out = folder / what.replace(":", ".")
    out.write_bytes(subprocess.run(call, check=True, capture_output=True).stdout)
    return str(out)


EXPECTED = {
    "early": "early {0}", "late": "late {0} deep {0} part {0}", "Sum": "last {0} late {0} deep {0} ",
}  # fmt: skip


def in_turn(order: str) -> list[tuple[str, str]]:
    """Return (folder, definition) of calls in an order of folders."""
    return [(folder, part) for part in ("late", "early", "Sum", "late") for folder in order]


Shipped = tuple[dict[str, Path], dict[tuple[str, str], str]]


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Shipped:
    """Return the folders, and the files of the definitions in them, by folder and name."""
    folders = with_helpers(tmp_path_factory.mktemp("shipped"))
    kinds = {"late": "UserFunction", "early": "UserFunction", "Sum": "UserAggregate"}
    return folders, {
        (folder, part): shipped_from(folders[folder], f"{NAMES[folder]}:{part}", kind)
        for folder in folders
        for part, kind in kinds.items()
    }


@pytest.mark.parametrize(("order", "beside"), [("ab", ""), ("ba", ""), ("ab", "b"), ("ba", "b"), ("aba", "a")])
def test_each_shipped_function_imports_the_helpers_beside_it(shipped: Shipped, order: str, beside: str) -> None:
    folders, files = shipped
    calls = in_turn(order)
    script = str(folders[beside]) if beside else ""
    call = [sys.executable, "-c", SHIPPED, script, *(files[one] for one in calls)]
    found = subprocess.run(call, check=True, capture_output=True, text=True).stdout.splitlines()
    assert found == [EXPECTED[part].format(folder) for folder, part in calls]


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_functions_of_two_scripts_in_one_process_import_the_helpers_beside_them(tmp_path: Path, order: str) -> None:
    folders = with_helpers(tmp_path)
    calls = in_turn(order)
    names = [f"{NAMES[folder]}:{part}" for folder, part in calls]
    call = [sys.executable, "-c", TWO_SCRIPTS, *map(str, folders.values()), *names]
    found = subprocess.run(call, check=True, capture_output=True, text=True).stdout.splitlines()
    assert found == [EXPECTED[part].format(folder) for folder, part in calls]


def test_a_helper_that_is_gone_is_not_found_in_the_folder_of_another_function(tmp_path: Path) -> None:
    folders = with_helpers(tmp_path)
    first, second = (shipped_from(folders[folder], f"{NAMES[folder]}:late", "UserFunction") for folder in "ab")
    (folders["b"] / "beside.py").unlink()
    for files in ((first, second), (second, first)):
        call = [sys.executable, "-c", SHIPPED, "", *files]
        found = subprocess.run(call, check=True, capture_output=True, text=True).stdout.splitlines()
        said = dict(zip(files, found, strict=True))
        assert said[first] == EXPECTED["late"].format("a")
        assert "No module named 'beside'" in said[second]


def test_a_package_without_a_file_is_found_where_it_was(tmp_path: Path) -> None:
    (tmp_path / "rooms").mkdir()
    (tmp_path / "rooms" / "words.py").write_text("def late(numbers): return ['found'] * len(numbers)\n")
    file = shipped_from(tmp_path, "rooms.words:late", "UserFunction")
    found = subprocess.run([sys.executable, "-c", SHIPPED, "", file], check=True, capture_output=True, text=True)
    assert found.stdout == "found\n"


def test_the_modules_of_two_scripts_are_not_taken_for_each_other(tmp_path: Path) -> None:
    folders = with_helpers(tmp_path)
    (folders["b"] / "words.py").write_text("def late(numbers): return ['b'] * len(numbers)\n")
    call = (
        "import sys; from penstock.loading import modules; from penstock.expressions.user import load\n"
        "for folder in sys.argv[1:]:\n    modules.look_beside(folder)\n    load('words:late')\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", call, *map(str, folders.values())], check=False, capture_output=True, text=True
    )
    assert f"module words has been imported from {folders['a']} for another function" in ended.stderr


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


def test_a_module_that_another_one_imports_is_no_part_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that allows one module would otherwise allow what it imports, such as `os`."""
    (tmp_path / "imports_much.py").write_text("import os\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(PenstockError, match="P0221: os in") as caught:
        Session().execute("CREATE FUNCTION f RETURNS STRING AS 'imports_much:os.getcwd'")
    assert "os:name" in str(caught.value)


def test_a_call_that_takes_too_long() -> None:
    """In the main thread it is ended, elsewhere it fails when it returns; a limit grows with the rows."""
    values = pa.array([1, 2, 3])

    def slow(numbers: pa.Array) -> pa.Array:
        try:
            time.sleep(0.3 if elsewhere else 600)
        except ValueError:
            raise AssertionError from None
        return numbers

    function = UserFunction("slow", pa.int64(), slow)
    failures: list[PenstockError] = []

    def call() -> None:
        with limited_calls(0.05), pytest.raises(PenstockError) as caught:
            call_function(function, [values], 3)
        failures.append(caught.value)

    elsewhere = False
    call()
    elsewhere = True
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    for failure_ in failures:
        assert failure_.code == "P0621" and failure_.hint == "a faster function, or SET function_timeout"
        assert "takes longer than 0.08 seconds over 3 rows (function_timeout)" in failure_.message
    assert len(failures) == 2
    with limited_calls(0.05):
        many = pa.array([1] * 100)
        assert call_function(function, [many], 100) == many
    assert call_function(function, [values], 3) == values


def test_a_call_that_ends_its_process_is_not_tried_for_ever(tmp_path: Path) -> None:
    """A task is repeated where its process has ended; what it was doing stands in a file."""
    mark = tmp_path / "mark"
    code = f"""
import os
from pathlib import Path
import pyarrow as pa
from penstock.errors import PenstockError
from penstock.expressions.user import UserFunction
from penstock.expressions.user_calls import call_function, limited_calls
try:
    with limited_calls(None, Path({str(mark)!r})):
        call_function(UserFunction("calm", pa.int64(), lambda values: values), [pa.array([1])], 1)
        call_function(UserFunction("dying", pa.int64(), lambda values: os._exit(7)), [pa.array([1])], 1)
except PenstockError as error:
    print(error.code, error.message.splitlines()[0])
"""
    ends = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True) for _ in range(4)]
    assert [end.returncode for end in ends] == [7, 7, 0, 0]
    said = "P0621 the user-defined function dying failed: the process in which it ran has ended each time\n"
    assert ends[2].stdout == said
