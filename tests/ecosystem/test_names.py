"""The names of torch that packages lack are found in the errors of their imports."""

import pytest

import sluice as sl
from ecosystem import beside, names, results
from ecosystem.names import name_in


def error_of(statement):
    with sl.mock_torch():
        try:
            exec(statement, {})
        except (AttributeError, ImportError) as error:
            return str(error).splitlines()[0]
    raise AssertionError(f"{statement}: nothing is lacking")


@pytest.mark.parametrize("statement,name", [
    ("import torch; torch.there_is_no_such_name", "torch.there_is_no_such_name"),
    ("import torch; torch.nn.functional.no_such_function", "torch.nn.functional.no_such_function"),
    ("from torch.nn import NoSuchLayer", "torch.nn.NoSuchLayer"),
    ("import torch.no_such_module", "torch.no_such_module")])
def test_a_lacking_name_is_told(statement, name):
    assert name_in(error_of(statement)) == name


def test_other_errors_name_nothing():
    assert name_in("No module named 'numba'") is None and name_in("division by zero") is None


def test_packages_that_are_known_to_import():
    """What the page says of packages that are imported once; a few of them, which lie beside the environment, are imported again below."""
    known = results.read()["imports"]
    asked = {module: said for module, said in known.items() if "excluded" not in said}
    assert len(asked) >= 25 and sum(not said["why"] for said in asked.values()) >= 0.9 * len(asked)
    assert all(said["version"] != "?" and "before" in said for said in known.values())


@pytest.mark.skipif(not beside.INSTALLED, reason="the packages do not lie beside the environment: tools/setup.sh puts them there")
@pytest.mark.parametrize("module", ["einx", "jaxtyping", "lightning_fabric", "torch_einops_utils"])
def test_packages_import_once(module):
    assert names.answer(module) == {"version": results.read()["imports"][module]["version"], "why": ""}


def test_names_by_how_many_need_them():
    found = {"a": {"why": "module 'torch.nn' has no attribute 'X'"}, "b": {"why": ""}, "c": {"why": "no such thing"},
             "d": {"why": "cannot import name 'X' from 'torch.nn' (there)"}, "e": {"excluded": "No module named 'numba'"}}
    assert names.lacking(found) == [("torch.nn.X", ["a", "d"]), ("no such thing", ["c"])]
