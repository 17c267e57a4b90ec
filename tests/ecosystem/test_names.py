"""The names of torch that packages lack are found in the errors of their imports."""

import pytest

import sluice as sl
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
