"""Public functions as data (graph/forms): every form in each of its spellings, with torch as the oracle."""

import copy
import inspect
import pathlib
import pickle
import re
import subprocess

import numpy as np
import pytest
import torch
import torch.nn.functional as TF
from conftest import assert_same, to_sl

import sluice as sl
import sluice.nn.functional as F
from sluice.testing.autotest.signatures import parameters
from forms_calls import FUNCTIONS, Method, X, calls, members, ours

MODULES = {"sluice": torch, "sluice.nn.functional": TF, "sluice.special": torch.special, "sluice.linalg": torch.linalg, "sluice.fft": torch.fft}

METHODS = members(sl.Tensor, Method)


def peer(name):
    """Torch's function of that name."""
    module, _, last = name.rpartition(".")
    return getattr(MODULES[module], last)


def test_the_forms_are_found():
    assert len(FUNCTIONS) > 200 and len(METHODS) > 200
    modules = {"sluice": sl, "sluice.nn.functional": F, "sluice.special": sl.special, "sluice.linalg": sl.linalg,
               "sluice.fft": sl.fft}
    assert all(f is getattr(modules[name.rpartition(".")[0]], name.rpartition(".")[2]) for name, f in FUNCTIONS.items())


def schema_lists(name):
    """Per overload of torch's: its parameters as (name, keyword only, default)."""
    for schema in torch._C._jit_get_schemas_for_operator("aten::" + name):
        yield [("input" if a.name == "self" else a.name, a.kwarg_only, a.default_value if a.has_default_value() else "required")
               for a in schema.arguments if not a.is_out]


def same_default(ours, value):
    if isinstance(ours, list) and isinstance(value, int):
        value = [value]
    if isinstance(ours, int) and not isinstance(ours, bool) and isinstance(value, list):
        ours = [ours] * len(value)
    return (ours is None) == (value is None) and (ours == value or (isinstance(ours, bool) is isinstance(value, bool) and ours == value))


def differs(ours, theirs):
    """Why a signature of ours is not this one of torch's; None where it is. Torch may have more, with defaults."""
    by_name = {name: (keyword_only, default) for name, keyword_only, default in theirs}
    for p in ours:
        if p.name not in by_name:
            return f"torch has no parameter {p.name}"
        keyword_only, default = by_name.pop(p.name)
        if p.required != (isinstance(default, str) and default == "required"):
            return f"{p.name} is required in one of both"
        if not p.required and not same_default(p.default, default):
            return f"the default of {p.name} is {default!r} in torch"
        if p.keyword_only and not keyword_only:
            return f"{p.name} is keyword-only here alone"
    missing = [name for name, (_, default) in by_name.items() if isinstance(default, str) and default == "required"]
    positional = [p.name for p in ours if not p.keyword_only]
    order = [name for name, keyword_only, _ in theirs if name in positional and not keyword_only]
    if missing:
        return f"torch requires {missing}"
    return None if order == [n for n in positional if n in order] else f"torch's order is {order}"


# Signatures that are in none of torch's overloads, and why.
ONE_FOR_TWO = "one signature for torch's overloads with and without it"
DIFFERENT = {
    **dict.fromkeys(("sluice.div", "sluice.divide"), ONE_FOR_TWO), **dict.fromkeys(("sluice.sum", "sluice.mean"), ONE_FOR_TWO),
    "sluice.prod": "takes several dims, as sum does",
    "sluice.nonzero": "as_tuple is of torch's Python alone",
    "sluice.unique": "torch's schemas are of the functions below it",
    "sluice.einsum": "torch's schema takes a list, its Python tensors one by one too",
    "sluice.norm": "numbers are tried first; 'fro', the default in torch, is 2",
    **{f"sluice.nn.functional.avg_pool{d}d": "no stride is None, as torch documents it" for d in (1, 2, 3)},
}


def python_lists(f):
    try:
        yield [(p.name, p.kind is p.KEYWORD_ONLY, "required" if p.default is p.empty else p.default)
               for p in inspect.signature(f).parameters.values()]
    except (TypeError, ValueError):
        return


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_signatures_are_torchs(name):
    last = name.rpartition(".")[2]
    dispatched = getattr(TF, last + "_with_indices", None)  # its signature is hidden by a dispatch on return_indices
    theirs = [*python_lists(peer(name)), *python_lists(dispatched), *schema_lists(last), *schema_lists("special_" + last),
              *schema_lists("linalg_" + last)]
    if not theirs:
        pytest.skip("torch does not say")
    for signature in FUNCTIONS[name].signatures:
        reasons = [differs(parameters(signature), t) for t in theirs]
        agrees = any(reason is None for reason in reasons)
        if agrees:
            assert name not in DIFFERENT or len(FUNCTIONS[name].signatures) > 1, f"{name} no longer differs: {DIFFERENT[name]}"
        else:
            assert name in DIFFERENT, f"{signature}: {reasons}"


# In any order, or determined up to signs: tests/python/test_linalg.py and test_complex_linalg.py.
ELSEWHERE = {"sluice.linalg.eig", "sluice.linalg.eigvals", "sluice.linalg.eigh", "sluice.linalg.svd", "sluice.svd"}


def check(result, expected):
    if isinstance(expected, torch.Tensor) and expected.dtype is torch.bfloat16:  # which NumPy has not
        assert result.dtype is sl.bfloat16
        check(result.float(), expected.float())
    elif isinstance(expected, torch.Tensor):
        assert_same(result, expected, 2e-5)
    elif isinstance(expected, (list, tuple)):
        assert len(result) == len(expected) and isinstance(result, tuple)
        for r, e in zip(result, expected):
            check(r, e)
    else:
        assert type(result) is type(expected) and result == expected


# These give their argument as it is, as torch does.
ITSELF = {f"sluice.{n}" for n in ("positive", "real", "conj", "conj_physical", "resolve_conj", "resolve_neg", "atleast_1d", "atleast_2d", "atleast_3d", "adjoint")}


@pytest.mark.parametrize("name", sorted(FUNCTIONS.keys() - ELSEWHERE))
def test_functions_give_what_torchs_give(name):
    f, theirs = FUNCTIONS[name], peer(name)
    for *args, keywords in calls(name, f):
        expected = theirs(*args, **keywords)
        mine, named = [ours(a) for a in args], {k: ours(v) for k, v in keywords.items()}
        result = f(*mine, **named)
        check(result, expected)
        assert not any(result is a for a in mine) or name in ITSELF
        kinds = [p.kind for p in parameters(f.signatures[0])]
        if any(kind.endswith("...") for kind in kinds):
            first = len(kinds) - 1 if len(kinds) < 3 and not named else 0
            check(f(*mine[:first], mine[first:], **named), expected)
            continue
        for signature in f.signatures:  # the same by keyword
            names = [p.name for p in parameters(signature) if not p.keyword_only]
            if len(mine) > len(names):
                continue
            try:
                by_keyword = f(**dict(zip(names, mine)), **named)
            except TypeError:
                assert len(f.signatures) > 1
            else:
                check(by_keyword, expected)
                break
        else:
            pytest.fail("no overload takes its arguments by keyword")


@pytest.mark.parametrize("name", sorted(n for n in METHODS if not n.startswith("__") and not n.endswith("_")))
def test_methods_give_what_torchs_give(name):
    if name == "where":
        return check(to_sl(X).where(to_sl(X > 0), 0.5), X.where(X > 0, 0.5))
    for *args, keywords in calls("sluice." + name, METHODS[name]):
        if not isinstance(args[0], torch.Tensor):
            continue
        if name == "svd":  # determined up to signs
            continue
        expected = getattr(args[0], name)(*args[1:], **keywords)
        mine, named = [ours(a) for a in args], {k: ours(v) for k, v in keywords.items()}
        check(getattr(mine[0], name)(*mine[1:], **named), expected)
        if len(args) == 2 and isinstance(args[1], tuple) and name not in ("squeeze", "unflatten", "any", "all"):
            try:
                spread = getattr(args[0], name)(*args[1])
            except TypeError:
                with pytest.raises(TypeError):
                    getattr(mine[0], name)(*mine[1])
            else:
                check(getattr(mine[0], name)(*mine[1]), spread)


@pytest.mark.parametrize("name", sorted(n for n in METHODS if n.endswith("_") and not n.startswith("__")))
def test_in_place_methods_write_what_functions_give(name):
    assert hasattr(torch.Tensor, name), "torch has no such method"
    for *args, keywords in calls(name[:-1], METHODS[name]):
        if not isinstance(args[0], torch.Tensor):
            continue
        expected = args[0].clone()
        mine, named = [ours(a) for a in args], {k: ours(v) for k, v in keywords.items()}
        try:
            getattr(expected, name)(*args[1:], **keywords)
        except (RuntimeError, TypeError):  # a result that does not fit, a keyword that writing does not take
            continue
        assert getattr(mine[0], name)(*mine[1:], **named) is mine[0]
        check(mine[0], expected)


@pytest.mark.parametrize("name", sorted(METHODS))
def test_methods_are_torchs(name):
    assert hasattr(torch.Tensor, name)
    if not name.startswith("__") and not name.endswith("_"):
        assert (name + "_" in METHODS) == hasattr(torch.Tensor, name + "_") or name in NOT_IN_PLACE


# In-place methods that are no forms.
NOT_IN_PLACE = {"detach", "i0"}


def takes_out(theirs, args, keywords, like):
    try:
        with torch.no_grad():
            theirs(*args, **keywords, out=like)
    except (TypeError, NotImplementedError):
        return False
    return True


@pytest.mark.parametrize("name", sorted(n for n in FUNCTIONS.keys() - ELSEWHERE if n.count(".") == 1))
def test_out_takes_the_result_where_torchs_does(name):
    f, theirs, taken = FUNCTIONS[name], peer(name), []
    for *args, keywords in calls(name, f):
        expected = theirs(*args, **keywords)
        several = isinstance(expected, tuple)
        if not several and not isinstance(expected, torch.Tensor):
            return
        def empty():
            return tuple(e.new_empty(0) for e in expected) if several else expected.new_empty(0)

        named = {k: ours(v) for k, v in keywords.items()}
        if "out=None" not in (f.__text_signature__ or "out=None"):
            return
        out = ours(empty())
        try:
            result = f(*[ours(a) for a in args], **named, out=out)
        except TypeError as error:
            assert "'out'" in str(error) or "invalid combination" in str(error)
            return
        taken.append(takes_out(theirs, args, keywords, empty()))
        assert result is out
        check(out, expected)
    assert any(taken), "torch takes no out="


def test_out_is_resized_cast_and_checked_as_torchs():
    x = sl.ones(2, 3)
    out = sl.zeros(2, 3, dtype=sl.float64)
    assert sl.add(x, 1, out=out) is out and out.dtype is sl.float64 and out.tolist() == [[2.0] * 3] * 2
    with pytest.warns(UserWarning, match="resized"):
        sl.add(x, 1, out=(small := sl.zeros(2)))
    assert small.shape == (2, 3)
    part = sl.zeros(4, 3)
    sl.add(x, 1, out=part[1:3])  # through a view
    assert part.sum().item() == 12
    with pytest.raises(RuntimeError, match="can't be cast to the desired output type int64"):
        sl.add(x, 1, out=sl.zeros(2, 3, dtype=sl.int64))
    with pytest.raises(RuntimeError, match="do not support automatic differentiation"):
        sl.add(x.requires_grad_(), 1, out=out)
    with sl.no_grad():
        sl.add(x, 2, out=out)
    with pytest.raises(TypeError, match="argument 'out' must be Tensor, not int"):
        sl.add(sl.ones(1), 1, out=3)


def test_numpys_names_and_numbers_are_taken():
    x = sl.arange(6.0).reshape(2, 3)
    assert x.sum(axis=1).tolist() == x.sum(1).tolist()
    assert sl.sum(x, axis=0, keepdims=True).shape == (1, 3)
    assert sl.mul(x1=x, x2=2).tolist() == (x * 2).tolist()
    for number in (2, 2.0, np.float32(2), np.float64(2), np.int64(2), np.array(2.0), sl.tensor(2.0)):
        assert sl.add(x, number).tolist() == (x + 2).tolist() and sl.add(x, number).dtype is sl.float32
    whole = sl.arange(3)
    assert (whole + np.int32(1)).dtype is sl.int64 and (whole + np.bool_(True)).dtype is sl.int64
    assert (whole + np.float32(1)).dtype is sl.float32
    assert x.narrow(np.int64(1), sl.tensor(0), 2).shape == (2, 2)


def test_results_have_torchs_names():
    x = sl.tensor([[1.0, 3.0], [4.0, 2.0]])
    result = x.max(1)
    assert result.values.tolist() == [3.0, 4.0] and result.indices.tolist() == [1, 0]
    values, indices = result
    assert values is result[0] and isinstance(result, tuple)
    assert type(result) is sl.return_types.max and type(result).__name__ == "max"
    assert type(sl.sort(x)).__module__ == "sluice.return_types"


def test_results_are_tensors_of_their_own():
    x = sl.ones(2, 3)
    for same in (x.pow(1), x.clamp(-5, 5), sl.cat([x]), x.repeat(1, 1), x.roll(2, 0), x.tile(1)):
        same.add_(1)
        assert x.sum().item() == 6
    for view in (x.view(2, 3), x.reshape(2, 3), x.expand(2, 3), x.squeeze(), x.transpose(0, 0), x.movedim(0, 0), x.t().t()):
        assert view is not x and not view.requires_grad_().requires_grad == x.requires_grad
        assert view.data_ptr() == x.data_ptr()
    assert x.contiguous() is x and x.float() is x and x.double() is not x


def test_inplace_of_activations_writes():
    x = sl.tensor([-1.0, 2.0])
    assert F.relu(x, inplace=True) is x and x.tolist() == [0.0, 2.0]
    assert F.relu(x) is not x


def test_functions_are_those_of_their_modules():
    for f in (sl.add, F.conv2d, sl.special.expit, sl.Tensor.add_):
        assert copy.deepcopy(f) is f and pickle.loads(pickle.dumps(f)) is f
        assert repr(f).startswith("<") and f.__doc__
    assert str(inspect.signature(sl.add)) == "(input, other, *, alpha=1, out=None)"
    assert str(inspect.signature(sl.Tensor.add)) == "(self, /, other, *, alpha=1)"
    assert str(inspect.signature(F.gelu)) == "(input, approximate='none')"

    class Holder:
        function = F.relu  # as torch's builtins: it does not bind

    assert Holder().function(sl.tensor([-1.0])).tolist() == [0.0]


def test_the_reference_has_every_public_function():
    listed = {name: (signatures, doc) for name, signatures, doc in sl.info.functions()}
    expected = {*FUNCTIONS, *(f"sluice.Tensor.{name}" for name in METHODS)}
    assert expected == set(listed)
    for name, (signatures, doc) in listed.items():
        assert signatures and all(s in doc for s in signatures), name
        assert "torch." in doc or "F." in doc, name


def test_public_names_are_torchs():
    for name in FUNCTIONS:
        assert callable(peer(name)), name


def test_the_composite_of_the_page_is_one_file():
    """docs/adding-an-op.md: what it quotes is all that there is of torch.dot."""
    root = pathlib.Path(__file__).resolve().parents[2]
    section = (root / "docs" / "adding-an-op.md").read_text().split("## A composite is one file")[1].split("\n## ")[0]
    source = (root / "graph/ops/product/matmul_forms.cpp").read_text()
    blocks = re.findall(r"```cpp\n(.*?)```", section, re.S)
    assert len(blocks) == 2 and all(block in source for block in blocks)
    if (root / ".git").exists():
        found = subprocess.run(["git", "grep", "-lE", r"Value dot\(|\"dot\(", "--", "graph", "tensor", "python_bindings/src"], cwd=root, capture_output=True, text=True,
                               check=True).stdout.split()
        assert found == ["graph/ops/product/matmul_forms.cpp"]
    x, y, z = sl.tensor([1.0, 2.0]), sl.tensor([3.0, 4.0]), sl.zeros(())
    assert sl.dot(x, y).item() == x.dot(tensor=y).item() == sl.dot(x, y, out=z).item() == z.item() == 11
    assert str(inspect.signature(sl.dot)) == "(input, tensor, *, out=None)"
