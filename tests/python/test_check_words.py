"""tools/check_words.py: it finds comments and their sentences, and what crosses a bound fails."""
import importlib.util
import pathlib
import re

import pytest

CPP = '''// Holds a lock. Of a reader: waits.
int a = 1;  // Where it lies.
const char* text = "// What is quoted";
const char* raw = R"(// Who is raw)";
/* What a block says. */
// Two lines are one
// sentence.
'''
PYTHON = '''"""What a module holds."""
x = "# Where"  # Of x.


def f():
    """Gives nothing. Whose it is."""
    # A comment
    # of two lines.
'''


@pytest.fixture(scope="module")
def words():
    path = pathlib.Path(__file__).resolve().parents[2] / "tools/check_words.py"
    spec = importlib.util.spec_from_file_location("check_words", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def openers(words, comments):
    return [s for _, _, said in comments for s in words.sentences(said) if words.OPENER.match(s)]


def test_comments_of_cpp(words):
    found = words.cpp_comments(CPP)
    assert openers(words, found) == ["Of a reader: waits.", "Where it lies.", "What a block says."]
    assert [lines for _, lines, said in found if "Two lines" in said] == [2]


def test_comments_of_python(words):
    found = words.python_comments(PYTHON)
    assert sorted(openers(words, found)) == ["Of x.", "What a module holds.", "Whose it is."]
    assert [lines for _, lines, said in found if "of two lines" in said] == [2]


def test_a_bound_that_is_crossed_fails(words, monkeypatch, capsys):
    monkeypatch.setattr(words, "comments_by_folder", lambda paths: {"plan": words.Count()})
    monkeypatch.setattr(words, "subjects", lambda: ["x" * 72])
    monkeypatch.setattr(words, "release_notes", lambda: {"0.1.0": 90})
    monkeypatch.setattr(words, "glossary_words", lambda: {"plan": 2})
    monkeypatch.setattr("sys.argv", ["check_words.py"])
    assert words.main() == 0
    for name, value in [("subjects", ["x" * 73]), ("release_notes", {"0.1.0": 91}), ("glossary_words", {"regst": 1})]:
        with monkeypatch.context() as one:
            one.setattr(words, name, lambda value=value: value)
            capsys.readouterr()
            assert words.main() == 1
            assert len(re.findall("too many", capsys.readouterr().out)) == 1
