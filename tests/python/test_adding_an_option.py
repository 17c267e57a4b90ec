"""docs/adding-an-option.md: its examples are options like any others, in the files that the page names and in no more."""

import inspect
import pathlib
import re
import subprocess
import sys

import pytest
import sluice as sl
from sluice import nn
from sluice._graph.setters import Setters, setters

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools" / "docs"))
import option_list as listing  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "adding-an-option.md").read_text()
TABLE = sl._C.option_table()
EXAMPLES = {"reuse_memory": {"compiler/options.inc", "compiler/planning/memory.cpp"},
            "sync_check": {"runtime/options.inc", "runtime/session/session_state.cpp"}}


def name_of(row):
    return f"{row['table']}-{row['name']}"


WITH_SETTER = [row for row in TABLE if row["setter"]]
PUBLIC = [row for row in TABLE if row["c_name"]]


def test_the_page_quotes_the_sources():
    sources = "".join((ROOT / path).read_text() for files in EXAMPLES.values() for path in sorted(files))
    blocks = re.findall(r"```cpp\n(.*?)```", PAGE, re.S)
    assert len(blocks) == 4
    for block in blocks:
        assert block.rstrip() in sources
    for path in set().union(*EXAMPLES.values()):
        assert f"`{path}`" in PAGE


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_option_stands_in_the_table_and_where_it_is_asked_for(name):
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    where = ["*.cpp", "*.h", "*.inc", "*.py", "*.cu", "*.txt", "*.cmake", ":!tests"]
    found = subprocess.run(["git", "grep", "-lw", name, "--", *where], cwd=ROOT, capture_output=True, text=True, check=True)
    assert set(found.stdout.split()) == EXAMPLES[name]


def test_the_page_names_every_fact():
    facts = re.search(r"struct OptionFacts \{(.*?)\n\};", (ROOT / "base" / "option.h").read_text(), re.S)[1]
    fields = set(re.findall(r"\b(\w+) = (?:\{\}|true|kAnyNumber)", facts)) - {"c_name"}
    rows = re.findall(r"^\| (`\..*?) \|", PAGE, re.M)
    assert len(fields) == 10 and fields == set(re.findall(r"`\.(\w+)", " ".join(rows)))


@pytest.mark.parametrize("row", WITH_SETTER, ids=name_of)
def test_every_entry_with_a_setter_has_its_method(row):
    config = nn.Graph().config
    method = getattr(config, row["setter"])
    assert method.__qualname__ == f"GraphConfig.{row['setter']}" and method.__name__ == row["setter"]
    assert inspect.getdoc(method) == inspect.cleandoc(row["doc"]) and len(row["doc"]) > 30
    (parameter,) = inspect.signature(method).parameters.values()
    if parameter.default is not inspect.Parameter.empty:  # a switch
        assert (parameter.name, parameter.annotation, parameter.default) == ("mode", "bool", True)
        values = [(True, row["on"] or True), (False, row["default"] if row["on"] else False), (0, row["default"] if row["on"] else False)]
    elif row["accepts"]:
        assert parameter.name == row["name"]
        values = [(text, text) for text in row["accepts"]]
    else:
        values = [(7, 7)]
    for given, kept in values:
        assert method(given) is None
        assert config._options[row["name"]] == kept
        assert config.options.get(row["name"], row["default"]) == kept
    config.freeze()
    with pytest.raises(RuntimeError, match=f"^graph.config: '{row['name']}' cannot be set after the graph was compiled"):
        method(values[0][0])


def test_what_no_entry_allows_is_refused():
    config = nn.Graph().config
    with pytest.raises(ValueError, match="^set_outputs_buffer_size: got 0; must be at least 1$"):
        config.set_outputs_buffer_size(0)
    with pytest.raises(ValueError, match="^set_granularity: got 'ops'; must be 'program' or 'op'$"):
        config.set_granularity(granularity="ops")


def test_a_new_entry_makes_its_method():
    """Of each kind, among them those that no option of today has."""
    row = {"setter": "set_it", "name": "it", "on": "", "reports": "", "accepts": [], "least": None, "zero": "", "kind": "int",
           "default": 0, "doc": "Sets it.\n       Twice."}

    class Config:
        def _set(self, name, value):
            self.kept = (name, value)

        def _ask(self, option, passes, mode, name, value):
            self.kept = (option, passes, mode, name, value)

    def tried(value, **facts):
        config = Config()
        setters([{**row, **facts}])["set_it"](config, value)
        return config.kept

    assert tried(3, least=0, zero="no limit") == ("it", 3)
    with pytest.raises(ValueError, match=r"^set_it: got -1; must be at least 0 \(0 = no limit\)$"):
        tried(-1, least=0, zero="no limit")
    assert tried("b", kind="str", accepts=["a", "b", "c"]) == ("it", "b")
    with pytest.raises(ValueError, match="^set_it: got 'd'; must be 'a', 'b' or 'c'$"):
        tried("d", kind="str", accepts=["a", "b", "c"])
    assert tried(1, kind="bool", reports="fuse") == ("set_it", "fuse", True, "it", True)
    assert tried(False, kind="str", on="all", default="one", reports="fuse") == ("set_it", "fuse", False, "it", "one")
    assert tried("2.5", kind="seconds") == ("it", 2.5)
    assert setters([{**row, "least": 0}])["set_it"].__doc__ == "Sets it.\nTwice."


def test_the_stubs_have_every_method():
    stub = pathlib.Path(sl.__file__).parent / "_C" / "setters.pyi"
    if not stub.exists():
        pytest.skip("a build without stubs")
    declared = re.findall(r"^    def (\w+)\(self, \w+: \S+", stub.read_text(), re.M)
    assert declared == [row["setter"] for row in WITH_SETTER] == [n for n, f in vars(Setters).items() if inspect.isfunction(f)]


def test_embedders_have_the_options_that_the_table_says():
    """And no other, but for objects, of which the table knows some, for weights and folders of data, and the size of C's struct."""
    objects = set(re.findall(r"^OBJECT\([^,]+, (\w+),", (ROOT / "runtime" / "options.inc").read_text(), re.M))
    text = {name: (ROOT / "include" / "sluice" / name).read_text() for name in ("session.h", "sluice.h")}
    cpp = re.search(r"^struct SessionOptions \{(.*?)^\};", text["session.h"], re.S | re.M)[1]
    c = re.search(r"^typedef struct sluice_session_options \{(.*?)^\} sluice_session_options;", text["sluice.h"], re.S | re.M)[1]
    in_cpp = set(re.findall(r"^  (?!//)[\w:<>(), &]+? (\w+)(?:\{\w*\}| = [\w{}]+);", re.sub(r"std::function<.*?> (?=\w+ =)", "f ", cpp), re.M))
    in_c = set(re.findall(r"^  [\w* ]+?\*?(\w+);", re.sub(r"/\*.*?\*/", "", c, flags=re.S), re.M))
    assert len(PUBLIC) >= 8
    assert in_cpp - objects - {"weights", "data_roots"} == {row["name"] for row in PUBLIC}
    assert in_c - objects - {"size", "context", "weight_names", "weights", "num_weights", "data_roots", "num_data_roots"} == {row["c_name"] for row in PUBLIC}


def test_the_list_of_options_is_up_to_date():
    assert listing.page_with_tables(listing.PAGE.read_text()) == listing.PAGE.read_text(), "run python tools/docs/option_list.py --write"
    assert {row["name"] for row in TABLE} == set(re.findall(r"^\| `(\w+)`", listing.PAGE.read_text(), re.M))
    print(f"count: {len(TABLE)} options")
