"""sluice.compile over 200 functions of all kinds (PT-14): each is captured or runs eagerly with a reason, and none is wrong."""

import inspect
import pathlib
import random
import sys
import types
import warnings

import numpy
import pytest
import torch

import sluice as sl

CORPUS = pathlib.Path(__file__).parent / "corpus"


def program(name, library):
    """A module of the corpus, which is a program of torch, with `library` for torch."""
    path = CORPUS / f"{name}.py"
    source = path.read_text()
    if library != "torch":
        source = source.replace("import torch\n", f"import {library} as torch\n").replace("from torch", f"from {library}")
    module = types.ModuleType(f"corpus_{name}_{library}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    exec(compile(source, str(path), "exec"), module.__dict__)
    return module


def names_of(name):
    module = program(name, "torch")
    return [(name, f) for f, value in vars(module).items() if inspect.isfunction(value) and value.__module__ == module.__name__]


FUNCTIONS = [case for name in ("control", "effects", "python", "tensors") for case in names_of(name)]


BREAKS = {  # which read values of tensors, raise, or leave something behind that a plan would not
    "if_by_a_sum", "if_by_any", "if_by_all", "if_by_equal", "if_by_allclose", "if_by_item", "while_by_a_tensor", "raises_a_value_error",
    "asserts_what_does_not_hold", "asserts_by_values",
    "appends_to_a_global", "counts_in_a_global", "counts_in_a_dict", "keeps_a_tensor", "keeps_in_an_object", "keeps_on_the_function",
    "mutable_default", "writes_an_argument", "writes_a_buffer", "trains_a_norm", "prints", "prints_a_tensor", "reads_a_file",
    "reads_the_clock", "draws_by_python", "draws_by_numpy", "shuffles", "seeds", "calls_backward", "looks_at_grad", "returns_nothing",
    "returns_a_view", "returns_a_number",
    "dict_comprehension", "numpy_of_an_input", "to_list", "float_of_a_tensor", "int_of_a_tensor",
    "indexes_by_a_mask", "nonzero", "unique", "is_of_size_one",
}


def same(ours, theirs, what):
    assert isinstance(ours, sl.Tensor) == isinstance(theirs, torch.Tensor), what
    if isinstance(theirs, torch.Tensor):
        assert tuple(ours.shape) == tuple(theirs.shape) and ours.requires_grad == theirs.requires_grad, what
        assert str(ours.dtype).rpartition(".")[2] == str(theirs.dtype).rpartition(".")[2], what
        numpy.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-4, atol=1e-5, err_msg=what)
    elif isinstance(theirs, dict):
        assert list(ours) == list(theirs), what
        for key, value in theirs.items():
            same(ours[key], value, f"{what}[{key!r}]")
    elif isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs), what
        for i, (a, b) in enumerate(zip(ours, theirs)):
            same(a, b, f"{what}[{i}]")
    else:
        assert ours == theirs or ours == pytest.approx(theirs, rel=1e-4), what


def floats_of(nest):
    if isinstance(nest, (sl.Tensor, torch.Tensor)):
        return [nest] if nest.requires_grad else []
    values = nest.values() if isinstance(nest, dict) else nest if isinstance(nest, (list, tuple)) else []
    return [t for value in values for t in floats_of(value)]


def run(function, tensor, arrays):
    """Results and gradients of each call, or what it raises."""
    told = []
    random.seed(1), numpy.random.seed(1)
    for pair in arrays:
        x, y = (tensor(array, requires_grad=True) for array in pair)
        try:
            result = function(x, y)
        except (ValueError, AssertionError) as error:
            told.append(f"{type(error).__name__}: {error}")
            continue
        losses = [(t * t).sum() for t in floats_of(result)]
        if losses:
            sum(losses).backward()
        told.append([result, x.grad, y.grad])
    return told


@pytest.mark.parametrize("name, function", FUNCTIONS, ids=[f"{name}.{f}" for name, f in FUNCTIONS])
def test_a_function_is_captured_or_breaks(name, function):
    generator = numpy.random.default_rng(0)
    first = [generator.standard_normal((3, 4)).astype("float32") for _ in range(2)]
    arrays = [first, [-a for a in first], first]
    ours, theirs = program(name, "sluice"), program(name, "torch")
    compiled = sl.compile(getattr(ours, function))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made = run(compiled, sl.tensor, arrays)
    same(made, run(getattr(theirs, function), torch.tensor, arrays), function)
    same(getattr(ours, "LOG", []), getattr(theirs, "LOG", []), f"what {function} leaves")
    eager = sl.compile.stats(compiled)["eager_calls"]
    assert (eager > 0) == (function in BREAKS)
    raises = any(isinstance(call, str) for call in made)  # which says enough by itself
    assert eager == 0 or raises or any("compile: " in str(w.message) for w in caught), f"{function} runs eagerly, and nobody is told why"


def test_most_of_more_than_two_hundred_are_captured(count):
    everything = len(FUNCTIONS) + 25  # which are in test_compile_corpus.py, where all are captured
    count("functions that sl.compile captures", everything - len(BREAKS), f"of {everything}")
    assert everything >= 200 and BREAKS <= {function for _, function in FUNCTIONS}
