"""Public functions as data (graph/forms): what every form refuses, and how it says so."""

import numpy as np
import pytest

import sluice as sl
from sluice.testing.autotest.signatures import parameters
from forms_calls import FUNCTIONS, calls, ours

HOSTILE = [object(), "text", None, [None], 1 << 70]


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_wrong_types_are_type_errors_that_name_the_argument(name):
    f = FUNCTIONS[name]
    *args, keywords = calls(name, f)[0]
    mine, named = [ours(a) for a in args], {k: ours(v) for k, v in keywords.items()}
    for i in range(len(mine)):
        with pytest.raises(TypeError) as raised:
            f(*mine[:i], object(), *mine[i + 1:], **named)
        text = str(raised.value)
        assert text.startswith(name.rpartition(".")[2] + "():") and "object" in text
        if len(f.signatures) == 1:
            listed = [p for p in parameters(f.signatures[0]) if not p.keyword_only]
            assert f"argument '{listed[min(i, len(listed) - 1)].name}' (position {i + 1}) must be" in text
    with pytest.raises(TypeError, match="object|unexpected|combination"):
        f(*mine, **named, no_such_argument=1)
    if not any("(Tensor..." in signature for signature in f.signatures):
        with pytest.raises(TypeError):
            f()


def test_errors_read_as_torchs():
    x = sl.ones(2, 3)
    cases = {
        "add(): argument 'other' (position 2) must be Tensor or Number, not str": lambda: sl.add(x, "a"),
        "add(): argument 'other' (position 1) must be Tensor or Number, not str": lambda: x.add("a"),
        "sin(): argument 'input' (position 1) must be Tensor, not int": lambda: sl.sin(1),
        "add(): missing a required argument: 'other' (position 2)": lambda: sl.add(x),
        "add(): takes 2 positional arguments but 3 were given": lambda: sl.add(x, 1, 2),
        "add(): got an unexpected keyword argument 'foo'": lambda: sl.add(x, 1, foo=2),
        "add(): got multiple values for argument 'other'": lambda: sl.add(x, 1, other=2),
        "permute(): argument 'dims' (position 1) must be tuple of ints, not str": lambda: x.permute("a"),
        "narrow(): argument 'dim' (position 2) must be int, not bool": lambda: sl.narrow(x, True, 0, 1),
        "max(): received an invalid combination of arguments - got (str, dim=Tensor); must be one of:\n * max(Tensor input)": (
            lambda: sl.max("a", dim=x)),
    }
    for text, call in cases.items():
        with pytest.raises(TypeError) as raised:
            call()
        assert isinstance(raised.value, sl.Error) and str(raised.value).startswith(text), str(raised.value)
    for operation in (lambda: x + "a", lambda: "a" - x, lambda: x < "a", lambda: x @ 3):
        with pytest.raises(TypeError, match="unsupported operand|not supported between"):
            operation()
    assert (x == "a") is False and (x != None) is True  # noqa: E711


class Boom:
    def __index__(self):
        raise KeyError("boom")


class Shrinks(list):
    """Loses its entries while they are read."""


class ShrinkIndex:
    def __init__(self, owner):
        self.owner = owner

    def __index__(self):
        del self.owner[1:]
        return 1


def test_arguments_that_fight_back_are_type_errors():
    x = sl.ones(2, 3)
    with pytest.raises(TypeError):
        x.narrow(Boom(), 0, 1)
    dims = Shrinks()
    dims += [ShrinkIndex(dims), 0, object()]
    assert x.sum(dims).shape == (2,)  # read as it is then
    with pytest.raises(TypeError):
        sl.cat([x, 3])


class _Unreadable:
    """Says that it is an array, and fails when it is read."""

    def __init__(self, error):
        self.error = error
        self.asked = 0

    @property
    def __array_interface__(self):
        self.asked += 1
        if self.asked > 1:
            raise self.error
        return {}


@pytest.mark.parametrize("error", [MemoryError("no room"), RuntimeError("device is gone"), KeyboardInterrupt()])
def test_arrays_that_cannot_be_read_tell_why(error):
    with pytest.raises(type(error)) as told:
        sl.add(sl.ones(2), _Unreadable(error))
    assert told.value is error
    with pytest.raises(ValueError, match="from_numpy: the array has 9 dims; at most 8 are supported"):
        sl.add(sl.ones(2), np.ones((1,) * 9))


@pytest.mark.parametrize("array", [np.array(["a"]), np.array([None]), np.array(["2020"], "datetime64[D]"),
                                   _Unreadable(TypeError("no array"))])
def test_arrays_of_no_numbers_are_no_operands(array):
    with pytest.raises(TypeError, match=r"add\(\): argument 'other' \(position 2\) must be Tensor or Number, not "):
        sl.add(sl.ones(2), array)
