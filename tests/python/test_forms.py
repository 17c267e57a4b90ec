"""Public functions as data (graph/forms): every form in each of its spellings, with torch as the oracle."""

import copy
import inspect
import pathlib
import pickle
import re
import subprocess
import types

import numpy as np
import pytest
import torch
import torch.nn.functional as TF
from conftest import assert_same, to_sl

import sluice as sl
import sluice.nn.functional as F
from sluice import _C
from sluice.testing.autotest.signatures import parameters

Function, Method = type(sl.sum), type(sl.Tensor.sum)
MODULES = {"sluice": torch, "sluice.nn.functional": TF, "sluice.special": torch.special, "sluice.linalg": torch.linalg, "sluice.fft": torch.fft}


def members(owner, kind):
    return {name: f for name, f in vars(owner).items() if type(f) is kind}


FUNCTIONS = {f"{f.__module__}.{name}": f for module in vars(_C).values() if isinstance(module, types.ModuleType)
             for name, f in members(module, Function).items()}
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


# The same arguments as torch's


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


# Every spelling gives the same

X = torch.tensor([[0.5, -0.25, 0.75], [0.125, 0.6, -0.9]])
SQUARE = torch.tensor([[0.5, 0.25, 0.75], [0.125, 0.6, 0.9], [0.3, 0.2, 0.1]])
INTEGERS = torch.tensor([[5, 3, 6], [7, -4, 2]])
INDEX = torch.tensor([[0, 1, 0]])
LOGITS, CLASSES = torch.tensor([[0.1, 0.2, 0.7], [0.4, 0.5, 0.1]]), torch.tensor([2, 0])
PROBABILITIES = torch.tensor([[0.1, 0.2, 0.7], [0.4, 0.5, 0.1]])


CUBE = torch.arange(48.0).reshape(4, 3, 4)
REPEATED = torch.tensor([[2.0, 2.0, 1.0, 1.0], [3.0, 3.0, 3.0, 0.5], [2.0, 2.0, 1.0, 1.0]])
WITH_NAN = torch.tensor([[0.5, float("nan"), 0.75], [float("inf"), 0.25, -float("inf")]])


def images(dims):
    return torch.arange(2 * 4 * 6**dims, dtype=torch.float32).reshape(2, 4, *(6,) * dims).sin()


def weights(dims, *channels):
    return torch.arange(channels[0] * channels[1] * 3**dims, dtype=torch.float32).reshape(*channels, *(3,) * dims).cos()


# Arguments of functions that do not take what everything takes: name -> lists of arguments, keywords last in a dict.
CALLS = {
    **{f"bitwise_{n}": [(INTEGERS, 3, {}), (INTEGERS, INTEGERS + 1, {})] for n in ("and", "or", "xor")},
    **{f"bitwise_{n}_shift": [(INTEGERS, 2, {}), (INTEGERS, INTEGERS.abs() % 5, {})] for n in ("left", "right")},
    **{n: [(INTEGERS, INTEGERS + 3, {})] for n in ("gcd", "lcm")}, "polygamma": [(2, X, {}), (0, X, {})],
    **{n: [(X.abs() + 0.1, {})] for n in ("lgamma", "digamma")}, "acosh": [(X.abs() + 1, {})],
    "bitwise_not": [(INTEGERS, {}), (INTEGERS > 3, {})],
    "add": [(X, 2, {}), (X, X, {"alpha": 3}), (INTEGERS, INTEGERS, {"alpha": 2}), (X[0] > 0, X[0] < 0, {})],
    "sub": [(X, 2, {}), (X, X, {"alpha": 3})],
    "subtract": [(X, 2, {}), (X, X, {"alpha": 3})],
    "div": [(X, 2, {}), (X, X, {"rounding_mode": "floor"}), (INTEGERS, 2, {"rounding_mode": "trunc"})],
    "divide": [(X, 2, {}), (X, X, {"rounding_mode": None})],
    "pow": [(X.abs(), 2, {}), (2, X, {}), (X.abs(), X, {}), (X, 1, {})],
    "remainder": [(X, 0.2, {}), (X, X * 2, {}), (3, X, {})],
    "floor_divide": [(INTEGERS, 2, {}), (X, X * 2, {})],
    "clamp": [(X, 0, 0.5, {}), (X, {"min": 0.1}), (X, {"max": X * 0.5}), (X, X * 0.5, X, {})],
    "clip": [(X, 0, 0.5, {}), (X, {"min": 0.1})],
    "clamp_min": [(X, 0.1, {})],
    "clamp_max": [(X, 0.1, {})],
    "lerp": [(X, X * 2, 0.25, {}), (X, X * 2, X, {})],
    "addcmul": [(X, X, X, {"value": 0.5})],
    "addcdiv": [(X, X, X, {"value": 0.5})],
    "masked_fill": [(X, X > 0, 2.5, {}), (X, X > 0, torch.tensor(1.5), {})],
    "isclose": [(X, X + 1e-6, {}), (X, X + 1e-3, 0.0, 1e-2, {})],
    "allclose": [(X, X + 1e-7, {}), (X, X + 1, {"rtol": 1e-3})],
    "atan2": [(X, X + 2, {})], "arctan2": [(X, X + 2, {})], "fmod": [(X, 0.2, {}), (X, X * 2, {})],
    "erfinv": [(X, {})], "logical_not": [(X > 0, {}), (X, {})],
    **{n: [(X.abs(), {})] for n in ("log", "log10", "log2", "log1p", "sqrt", "rsqrt")},
    **{n: [(X, {}), (X, 1, {}), (X, (0, 1), {"keepdim": True}), (INTEGERS, {"dim": 0, "dtype": torch.float64})]
       for n in ("sum",)},
    "mean": [(X, {}), (X, 1, {}), (X, (0, 1), True, {}), (INTEGERS, {"dim": 0, "dtype": torch.float64})],
    "prod": [(X, {}), (X, 1, {}), (X, 1, True, {}), (X, {"dtype": torch.float64})],
    **{n: [(X, 1, {}), (X, (0, 1), True, {})] for n in ("amax", "amin", "logsumexp")},
    **{n: [(X > 0, {}), (X, 1, {}), (X, (0, 1), True, {})] for n in ("any", "all")},
    **{n: [(X, {}), (X, 1, {}), (X, 1, True, {})] for n in ("argmax", "argmin")},
    **{n: [(X, {}), (X, X + 0.1, {}), (X, 1, {}), (X, 0, True, {})] for n in ("max", "min")},
    **{n: [(X, {}), (X, 1, {}), (X, 1, False, {}), (X, False, {}), (X, {"dim": 1, "correction": 0, "keepdim": True}),
           (X, 1, {"unbiased": False, "keepdim": True})] for n in ("var", "std")},
    "norm": [(X, {}), (X, 1, {}), (X, 3, 1, True, {}), (X, "fro", {})],
    "cumsum": [(X, 1, {}), (X, {"dim": 0, "dtype": torch.float64})],
    "softmax": [(X, 1, {}), (X, {"dim": 0, "dtype": torch.float64})],
    "log_softmax": [(X, 1, {}), (X, {"dim": 0, "dtype": torch.float64})],
    "sort": [(X, {}), (X, 0, True, {}), (X, {"stable": True})], "argsort": [(X, {}), (X, 0, True, {}), (X, {"stable": True})],
    "topk": [(X, 2, {}), (X, 1, 0, False, {})],
    "reshape": [(X, (3, 2), {}), (X, (-1,), {})], "permute": [(X, (1, 0), {})], "view": [(X, (3, 2), {}), (X, (-1,), {})],
    "broadcast_to": [(X, (4, 2, 3), {})], "expand": [(X, (4, 2, 3), {}), (X, (4, -1, -1), {})],
    "squeeze": [(X[:1], {}), (X[:1], 0, {}), (X[:1], (0, 1), {})], "unsqueeze": [(X, 1, {})],
    "flatten": [(X, {}), (X[None], 1, 2, {})],
    **{n: [(X, 0, 1, {})] for n in ("transpose", "swapdims", "swapaxes")},
    **{n: [(X, 0, 1, {}), (X[None], (0, 1), (2, 0), {})] for n in ("movedim", "moveaxis")},
    "t": [(X, {}), (X[0], {})], "unflatten": [(X, 1, (1, 3), {}), (X, -1, (3, -1), {})], "narrow": [(X, 1, 0, 2, {})],
    "select": [(X, 1, 2, {})], "unbind": [(X, {}), (X, 1, {})], "chunk": [(X, 2, 1, {})],
    "split": [(X, 2, 1, {}), (X, (1, 2), 1, {})], "flip": [(X, (0, 1), {})], "tile": [(X, (2, 1), {}), (X, (1,), {})],
    "repeat": [(X, (2, 1), {}), (X, (1, 1), {})], "roll": [(X, 1, {}), (X, 1, 1, {}), (X, (1, 1), (0, 1), {}), (X, 2, 0, {})],
    "tril": [(SQUARE, {}), (SQUARE, 1, {})], "triu": [(SQUARE, {}), (SQUARE, -1, {})],
    **{n: [([X, X], {}), ([X, X], 1, {})] for n in ("cat", "concat", "concatenate", "stack")},
    **{n: [([X, X], {}), ([X[0], X[1]], {})] for n in ("hstack", "vstack", "row_stack")},
    "broadcast_tensors": [(X, X[0], {})], "meshgrid": [(X[0], X[1], {"indexing": "ij"}), (X[0], X[1], {"indexing": "xy"})],
    "gather": [(X, 0, INDEX, {})], "scatter": [(X, 0, INDEX, X, {}), (X, 0, INDEX, 2.5, {})],
    "scatter_add": [(X, 0, INDEX, X, {})], "index_select": [(X, 1, INDEX[0], {})],
    "index_add": [(X, 1, INDEX[0], X, {}), (X, 1, INDEX[0], X, {"alpha": 2})],
    "take_along_dim": [(X, INDEX, 0, {}), (X, INDEX, {})], "masked_select": [(X, X > 0, {}), (X, X[0] > 0, {})],
    "nonzero": [(X > 0, {}), (X > 0, {"as_tuple": True})], "where": [(X > 0, X, 0.5, {}), (X > 0, X, X + 1, {}), (X > 0, {})],
    "matmul": [(SQUARE, SQUARE, {})], "mm": [(X, SQUARE, {})], "bmm": [(X[None], SQUARE[None], {})], "mv": [(X, X[0], {})],
    "dot": [(X[0], X[1], {})], "outer": [(X[0], X[1], {})],
    "addmm": [(X, X, SQUARE, {}), (X, X, SQUARE, {"beta": 0, "alpha": 2}), (X[0], X, SQUARE, {"beta": 0.5})],
    "linear": [(X, SQUARE, {}), (X, SQUARE, X[0], {})],
    "gelu": [(X, {}), (X, {"approximate": "tanh"})], "glu": [(X[:, :2], {}), (X, 0, {})], "normalize": [(X, {}), (X, 1.0, 0, {})],
    "softplus": [(X, {}), (X, 2.0, 0.5, {})], "leaky_relu": [(X, {}), (X, 0.2, {})], "hardtanh": [(X, {}), (X, -0.5, 0.5, {})],
    "layer_norm": [(X, (3,), {}), (X, (3,), X[0], X[1], {})], "rms_norm": [(X, (3,), {}), (X, (3,), X[0], 1e-3, {})],
    "group_norm": [(X, 3, {}), (X, 1, X[0], X[1], {})],
    "batch_norm": [(X, None, None, {"training": True}), (X, X[0], X[1].abs(), {})],
    "embedding": [(INDEX, X, {}), (INDEX, X, -1, {})], "one_hot": [(INDEX, {}), (INDEX, 4, {})],
    "pad": [(X, (1, -1), {}), (X, (0, 1, 2, 0), {"value": 1.5})],
    "cosine_similarity": [(X, X + 1, {}), (X, X + 1, 0, {})],
    **{n: [(X, X + 0.2, {}), (X, X + 0.2, {"reduction": "sum"})] for n in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")},
    "cross_entropy": [(LOGITS, CLASSES, {}), (LOGITS, PROBABILITIES, {}), (LOGITS, CLASSES, X[0].abs(), {"label_smoothing": 0.1})],
    "nll_loss": [(LOGITS.log(), CLASSES, {}), (LOGITS.log(), CLASSES, {"reduction": "none"})],
    "binary_cross_entropy": [(PROBABILITIES, PROBABILITIES, {}), (PROBABILITIES, PROBABILITIES, X.abs(), {"reduction": "sum"})],
    "binary_cross_entropy_with_logits": [(X, PROBABILITIES, {}), (X, PROBABILITIES, {"pos_weight": X[0].abs()})],
    "kl_div": [(PROBABILITIES.log(), PROBABILITIES, {"reduction": "batchmean"}),
               (PROBABILITIES.log(), PROBABILITIES.log(), {"reduction": "sum", "log_target": True})],
    **{n: [(X, {}), (X, 0.3, {})] for n in ("celu", "hardshrink", "softshrink")}, "threshold": [(X, 0.1, 2.0, {})],
    "prelu": [(X, torch.tensor([0.3]), {}), (X, torch.tensor([0.3, 0.1, -0.2]), {})], "softmin": [(X, {"dim": 1})],
    "pairwise_distance": [(X, X + 1, {}), (X, X + 1, 1.0, 1e-3, True, {})], "pdist": [(SQUARE, {}), (SQUARE, 1.0, {})],
    "cdist": [(X, SQUARE, {}), (X, SQUARE, 1.0, {})], "bilinear": [(X, SQUARE[:2], weights(1, 4, 3), X.flatten()[:4], {})],
    "margin_ranking_loss": [(X, X.flip(0), X.sign(), 0.1, {}), (X, X.flip(0), X.sign(), {"reduction": "sum"})],
    "triplet_margin_loss": [(X, X + 0.2, X - 0.5, {}), (X, X + 0.2, X - 0.1, 0.5, 1.0, {"swap": True})],
    "hinge_embedding_loss": [(X, X.sign(), {}), (X, X.sign(), 0.5, {"reduction": "none"})],
    "cosine_embedding_loss": [(X, X + 0.5, torch.tensor([1, -1]), {}), (X[0], X[1], torch.tensor(-1), 0.1, {})],
    "gaussian_nll_loss": [(X, X + 0.3, X.abs(), {}), (X, X + 0.3, X[:, 0].abs(), {"full": True})],
    "poisson_nll_loss": [(X, X.abs() * 3, {}), (X.abs(), X.abs() * 3, {"log_input": False, "full": True})],
    "multilabel_margin_loss": [(X, torch.tensor([[2, 0, -1], [-1, 1, 1]]), {})], "multi_margin_loss": [(X, CLASSES, {}), (X, CLASSES, 2, 0.5, X[0].abs(), {})],
    "multilabel_soft_margin_loss": [(X, PROBABILITIES, {}), (X, PROBABILITIES, X[0].abs(), {"reduction": "none"})],
    "ctc_loss": [(images(1)[:2].permute(2, 0, 1).log_softmax(2), torch.tensor([[1, 2], [3, 3]]), torch.tensor([6, 5]), torch.tensor([2, 1]), {})],
    "fold": [(images(1).repeat(1, 3, 1), (4, 3), (2, 2), {}), (images(1)[0], 6, 2, 1, 0, {"stride": (4, 2)})],
    "pixel_shuffle": [(images(2), 2, {})], "pixel_unshuffle": [(images(2), 3, {})], "channel_shuffle": [(images(2), 2, {})],
    "local_response_norm": [(images(1), 2, {}), (images(2), 3, 0.1, 0.5, 2.0, {})],
    "interpolate": [(images(1), 4, {}), (images(2), None, 1.5, "bilinear", True, {}), (images(3), (2, 3, 9), {"mode": "trilinear"})],
    "affine_grid": [(SQUARE[None, :2], (1, 2, 3, 4), {}), (SQUARE[None, :2], [1, 2, 3, 4], True, {})],
    "grid_sample": [(images(2), images(2)[:, :2, :, :2], {}), (images(2), images(2)[..., :2] * 1.5, "bicubic", "reflection", True, {})],
    "instance_norm": [(images(2), {}), (images(1), X.flatten()[:4], X.flatten()[:4].abs(), X.flatten()[:4], X.flatten()[:4], False, {})],
    "embedding_bag": [(INDEX, X, {}), (INDEX[0], X, torch.tensor([0, 1]), {"mode": "sum"})],
    **{f"max_unpool{d}d": [(images(d)[..., :3] if d == 1 else images(d)[..., :3, :3] if d == 2 else images(d)[..., :3, :3, :3],
                            TF.max_pool3d(images(d)[(...,) + (None,) * (3 - d)], (2,) * d + (1,) * (3 - d), return_indices=True)[1][(...,) + (0,) * (3 - d)], 2, {})]
       for d in (1, 2, 3)},
    **{f"lp_pool{d}d": [(images(d), 2.0, 2, {}), (images(d)[0].abs(), 3.0, 3, 2, True, {})] for d in (1, 2, 3)},
    "numel": [(X, {})], "is_floating_point": [(X, {}), (INTEGERS, {})], "equal": [(X, X.clone(), {}), (X, X[0], {})],
    "expand_as": [(X[0], X, {})], "reshape_as": [(X, X.t(), {})], "view_as": [(X, X.t(), {})], "clone": [(X, {})],
    **{f"conv{d}d": [(images(d), weights(d, 6, 4), {}), (images(d), weights(d, 6, 2), torch.arange(6.0), 2, 1, 2, 2, {}),
                     (images(d)[0], weights(d, 6, 4), {"padding": "same"})] for d in (1, 2, 3)},
    **{f"conv_transpose{d}d": [(images(d), weights(d, 4, 6), {}), (images(d), weights(d, 4, 3), torch.arange(6.0), 2, 1, 1, 2, {})]
       for d in (1, 2, 3)},
    **{f"max_pool{d}d": [(images(d), 2, {}), (images(d), 3, 2, 1, {"ceil_mode": True}), (images(d), 2, {"return_indices": True})]
       for d in (1, 2, 3)},
    **{f"avg_pool{d}d": [(images(d), 2, {}), (images(d)[0], 3, 2, 1, {"count_include_pad": False})] for d in (1, 2, 3)},
    # diagonals, joins and cuts
    "diagonal": [(X, {}), (SQUARE, 1, {}), (CUBE, -1, 0, 2, {}), (CUBE, 9, {})], "trace": [(X, {}), (INTEGERS, {})],
    "diag_embed": [(X, {}), (X, 1, {}), (X, -2, 0, 2, {})], "diag": [(X, {}), (X[0], {}), (X[0], -1, {}), (X, 1, {})],
    "diagflat": [(X, {}), (X[0], 2, {})], "diagonal_scatter": [(X, X[0, :2], {}), (SQUARE, X[0, :2], -1, {})],
    "select_scatter": [(X, X[1], 0, 0, {}), (X, X[:, 1], 1, -1, {})],
    "slice_scatter": [(X, X[:1], {"start": 1}), (X, X[:, :2], 1, 0, None, 2, {}), (X, X[:, :1], 1, -1, {})],
    "vander": [(X[0], {}), (X[0], 5, True, {}), (X[0], 0, {}), (INTEGERS[0], 3, {})], "block_diag": [(X, X[0], SQUARE, {})],
    "unfold": [(X, 1, 2, 1, {}), (X, -1, 1, 2, {}), (CUBE, 0, 3, 2, {})], "as_strided": [(X, (2, 2), (1, 2), {}), (X, (2, 2), (1, 1), 1, {})],
    **{f"atleast_{d}d": [(X, {}), (X[0, 0], {}), (CUBE, {})] for d in (1, 2, 3)}, "ravel": [(X, {})], "adjoint": [(CUBE, {})],
    **{n: [([X, X], {}), ([X[0], X[1]], {})] for n in ("dstack", "column_stack")},
    "tensor_split": [(X, 2, {}), (X, 3, 1, {}), (CUBE, (1, 3), 2, {}), (X, (2, 1, 5), 1, {})], "split_with_sizes": [(X, (1, 2), 1, {})], "unsafe_split": [(X, 2, 1, {})],
    "hsplit": [(X, 3, {}), (X[0], (1,), {})], "vsplit": [(X, 2, {}), (X, (1, 1), {})], "dsplit": [(CUBE, 2, {}), (CUBE, (1, 2), {})],
    "cartesian_prod": [(X[0], X[1], X[0], {}), (X[0], {})], "combinations": [(X[0], {}), (X[0], 2, True, {}), (X[0], 4, {}), (X[0], 0, {})],
    "rot90": [(X, {}), (X, 2, {}), (CUBE, -1, (2, 1), {}), (X, 4, {})], "flipud": [(X, {}), (X[0], {})],
    # products
    "baddbmm": [(X[None, :, :2], X[None], X.t()[None], {}), (X[:, :1], X[None], X.t()[None], {"beta": 0.5, "alpha": 2})],
    "addbmm": [(X[:, :2], X[None], X.t()[None], {}), (X[:, :2], CUBE[:, :2], CUBE[:, :2].mT, {"beta": 0.5, "alpha": 2})],
    "addmv": [(X[:, 0], X, X[0], {}), (X[0, 0], X, X[0], {"beta": 0, "alpha": 2})], "addr": [(X, X[:, 0], X[0], {}), (X[0], X[:, 0], X[0], {"beta": 0.5})],
    "inner": [(X, SQUARE, {}), (X, X[0], {}), (X[0, 0], X, {})], "vdot": [(X[0], X[1], {})], "ger": [(X[0], X[1], {})],
    "kron": [(X, SQUARE, {}), (X[0], CUBE, {})], "chain_matmul": [(X, SQUARE, X.t(), {})],
    "cross": [(X, X + 1, {}), (SQUARE, X[:1], 1, {})], "einsum": [("ij,kj->ik", X, X, {}), ("ij->", X, {}), ("bii", CUBE[None, 0, :3, :3], {})],
    # order
    "msort": [(X, {}), (CUBE, {})], "kthvalue": [(X, 2, {}), (X, 1, 0, True, {})], "mode": [(REPEATED, {}), (REPEATED, 0, True, {})],
    "median": [(X, {}), (X, 1, {}), (X, 0, True, {}), (INTEGERS, {})], "nanmedian": [(X, {}), (X, 1, {}), (WITH_NAN, {}), (WITH_NAN, 0, {})],
    **{n: [(X, 0.3, {}), (X, torch.tensor([0.2, 0.9]), 1, True, {}), (WITH_NAN, 0.5, 1, {"interpolation": "nearest"})] for n in ("quantile", "nanquantile")},
    **{n: [(X, 1, {}), (WITH_NAN, 0, {}), (REPEATED, 1, {})] for n in ("cummax", "cummin")}, "logcumsumexp": [(X, 1, {}), (X * 300, 0, {})],
    "cumprod": [(X, 1, {}), (INTEGERS, 0, {}), (X, {"dim": 1, "dtype": torch.float64})], "aminmax": [(X, {}), (X, {"dim": 1, "keepdim": True})],
    "searchsorted": [(X[0].sort()[0], X, {}), (CUBE, CUBE[..., :2] + 0.1, {"right": True}), (X[0].sort()[0], 0.5, {"out_int32": True})],
    "bucketize": [(X, X[0].sort()[0], {}), (0.2, X[0].sort()[0], {"right": True})], "isin": [(X, X[0], {}), (INTEGERS, 3, {"invert": True}), (0.5, X, {})],
    # statistics
    **{n: [(WITH_NAN, {}), (WITH_NAN, 1, {}), (X, (0, 1), True, {"dtype": torch.float64})] for n in ("nansum", "nanmean")},
    "count_nonzero": [(INTEGERS - 3, {}), (X, 1, {}), (X, (0, 1), {})], "dist": [(X, X + 1, {}), (X, X * 2, 1, {})],
    **{n: [(X, {}), (X, 1, {}), (X, (0, 1), False, True, {}), (X, {"dim": 1, "correction": 0})] for n in ("var_mean", "std_mean")},
    "cov": [(X, {}), (X[0], {}), (X, {"correction": 0, "fweights": torch.tensor([1, 2, 3])})], "corrcoef": [(X, {}), (X[0], {})],
    "histc": [(X, {}), (X, 4, -0.5, 0.5, {})], "diff": [(X, {}), (X, 2, {}), (X, 1, 0, X[:1], X, {}), (X > 0, {})],
    **{n: [(X, {}), (X, X.cumsum(1), {}), (X, {"dx": 2, "dim": 0})] for n in ("trapezoid", "trapz", "cumulative_trapezoid")},
    # elementwise
    "float_power": [(X, 2, {}), (X.abs(), X, {}), (2, X, {}), (INTEGERS, INTEGERS, {})], "nan_to_num": [(WITH_NAN, {}), (WITH_NAN, 1.0, 2.0, -3.0, {}), (INTEGERS, {})],
    "frexp": [(X * 100, {}), (WITH_NAN, {}), (torch.tensor([8.0, 0.0, 1e-40, -3e38]), {})], "round": [(X * 10, {}), (X * 10, {"decimals": 1}), (X * 1000, {"decimals": -2})],
    "rsub": [(X, 2, {}), (X, X + 1, {"alpha": 2})], "logit": [(PROBABILITIES, {}), (PROBABILITIES, 0.2, {})], "fill": [(X, 2, {}), (X, torch.tensor(3.0), {})],
    "renorm": [(X, 2, 0, 0.5, {}), (X, 1, 1, 1.0, {})],
    # indices
    "take": [(X, INDEX, {}), (X, torch.tensor([-1, 5]), {})], "put": [(X, INDEX[0, :2], X[0, :2], {}), (X, INDEX, X[:1], True, {})],
    "scatter_reduce": [(X, 0, INDEX, X[:1], r, {}) for r in ("sum", "prod", "mean", "amax", "amin")] + [(X, 1, INDEX, X[:1], "amax", {"include_self": False})],
    "index_reduce": [(X, 1, INDEX[0], X, r, {}) for r in ("prod", "mean", "amax", "amin")] + [(INTEGERS, 1, INDEX[0], INTEGERS, "mean", {"include_self": False})],
    "index_fill": [(X, 1, INDEX[0], 2.5, {}), (X, 0, torch.tensor([-1]), torch.tensor(1.0), {})], "index_copy": [(X, 1, INDEX[0, :2], X[:, 1:], {})],
    "masked_scatter": [(X, X > 0, X.flip(0), {}), (X, torch.tensor([True, False, True]), X, {})],
    "index_put": [(X, (INDEX[0], torch.tensor([0, 2, -1])), X[0], {}), (X, (INDEX[0],), X[0], True, {})],
    # as long as the data say
    "argwhere": [(X > 0, {})], "nonzero_static": [(X > 0, {"size": 3}), (X > 0, {"size": 9, "fill_value": 7}), (X[0, 0], {"size": 2})],
    "unique": [(REPEATED, {}), (REPEATED, True, True, True, {}), (REPEATED, {"dim": 1, "return_inverse": True, "return_counts": True})],
    "unique_consecutive": [(REPEATED, {}), (REPEATED, True, True, {}), (REPEATED, {"dim": 0, "return_counts": True})],
    "bincount": [(INDEX[0], {}), (INDEX[0], X[0], {}), (INDEX[0], {"minlength": 5})],
    "repeat_interleave": [(X, 2, {}), (X, 2, 1, {}), (X, torch.tensor([1, 0, 3]), 1, {}), (X, torch.tensor([1, 2]), 0, {"output_size": 3})],
    **{f"adaptive_{k}_pool{d}d": [(images(d), 2, {}), (images(d)[0], (3,) * d, {})] for d in (1, 2, 3) for k in ("avg", "max")},
}
SPD = SQUARE @ SQUARE.t() + torch.eye(3)
FACTORS, PIVOTS = torch.linalg.lu_factor(SQUARE)
CALLS.update({
    **{n: [(SQUARE, {})] for n in ("inv", "inv_ex", "inverse", "det", "slogdet", "lu", "lu_factor", "lu_factor_ex", "matrix_exp", "svdvals",
                                   "pinv", "pinverse", "matrix_rank")},
    **{n: [(SPD, {})] for n in ("logdet", "cholesky_ex", "eigvalsh")}, "cholesky": [(SPD, {}), (SPD, {"upper": True})],
    "solve": [(SQUARE, X.t(), {}), (SQUARE, X[0], {}), (SQUARE, X, {"left": False})], "solve_ex": [(SQUARE, X.t(), {})],
    "solve_triangular": [(SQUARE, X.t(), {"upper": True}), (SQUARE, X, {"upper": False, "left": False})],
    "triangular_solve": [(X.t(), SQUARE, {})], "cholesky_solve": [(X.t(), SQUARE.tril(), {})],
    "cholesky_inverse": [(SQUARE.tril(), {})], "lu_unpack": [(FACTORS, PIVOTS, {})],
    "qr": [(X.t(), {}), (X, {})], "matrix_power": [(SQUARE, 3, {}), (SQUARE, -1, {})], 
    **{n: [(SPD, {}), (SPD - 5 * torch.eye(3), {})] for n in ("ldl_factor", "ldl_factor_ex")},
    "ldl_solve": [(*torch.linalg.ldl_factor(SPD), X.t(), {})],
    "lstsq": [(X.t(), X.t(), {}), (X, X, {"driver": "gelsd"})], "vecdot": [(X, X, {}), (X, X[:1], {"dim": 0})],
    "multi_dot": [([X, SQUARE], {}), ([X, SQUARE, X[0]], {})],
    "tensorinv": [(SQUARE, 1, {})], "tensorsolve": [(SQUARE, X[0], {})],
    **{n: [(SQUARE, X[0], {})] for n in ("householder_product", "orgqr")}, "cond": [(SQUARE, {}), (SQUARE, 1, {}), (SQUARE, "fro", {})],
    "vector_norm": [(X, {}), (X, 1, 1, True, {})], "matrix_norm": [(X, {}), (X, 1, {}), (X, "nuc", (1, 0), True, {})],
    "frobenius_norm": [(X, (0, 1), {})], "nuclear_norm": [(X, {}), (X, (1, 0), True, {}), (X, True, {})],
    "round": [(X, {})], "mvlgamma": [(X.abs() + 2, 3, {})], "multigammaln": [(X.abs() + 2, 3, {})],
    **{n: [(X.abs(), X.flip(0).abs(), {})] for n in ("igamma", "igammac", "gammainc", "gammaincc", "zeta")},
    **{n: [(X.abs(), {})] for n in ("psi", "gammaln", "ndtri", "logit", "bessel_y0", "bessel_y1", "modified_bessel_k0", "modified_bessel_k1",
                                    "scaled_modified_bessel_k0", "scaled_modified_bessel_k1", "entr")},
    "imag": [(torch.complex(X, X), {})], "view_as_real": [(torch.complex(X, X), {})], "view_as_complex": [(X[:, :2].contiguous(), {})],
    **{n: [(torch.complex(X, X.flip(0)), {}), (X, {})] for n in ("sgn", "angle", "isreal", "real", "is_complex")},
    **{n: [(torch.complex(X, X.flip(0)).resolve_conj(), {}), (X, {})] for n in ("cfloat", "cdouble")},
    **{n + end: [(X, {}), (X, {"norm": "ortho"})] + ([(X, 4, 0, {})] if not end else [(X, (2, 4), (0, 1), {})])
       for n in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft") for end in ("", "2", "n")},
    **{n: [(X, {}), (X, (1,), {})] for n in ("fftshift", "ifftshift")},
    "xlog1py": [(X, X.abs(), {}), (X, 0.5, {}), (2, X.abs(), {})], "xlogy": [(X, X.abs(), {}), (X, 0.5, {}), (2, X.abs(), {})],
})
BY_MODULE = {"sluice.nn.functional.unfold": [(images(2), 3, {}), (images(2)[0], (2, 3), 2, 1, 2, {})],
             "sluice.linalg.vander": [(X, {}), (X, {"N": 2})], "sluice.linalg.diagonal": [(SQUARE, {})],
             "sluice.linalg.lu_solve": [(FACTORS, PIVOTS, X.t(), {})], "sluice.lu_solve": [(X.t(), FACTORS, PIVOTS, {})],
             "sluice.linalg.norm": [(X, {}), (X, 1, {}), (X, "nuc", {}), (X, None, 1, True, {})], "sluice.linalg.cross": [(X, X.flip(0), {})]}
# In any order, or determined up to signs: tests/python/test_linalg.py and test_complex_linalg.py.
ELSEWHERE = {"sluice.linalg.eig", "sluice.linalg.eigvals", "sluice.linalg.eigh", "sluice.linalg.svd", "sluice.svd"}
ONE, TWO = [(X, {})], [(X, X + 0.1, {}), (X, 0.1, {})]


def calls(qualified, f):
    name = qualified.rpartition(".")[2]
    if qualified in BY_MODULE or name in CALLS:
        return BY_MODULE.get(qualified) or CALLS[name]
    required = [p.kind for p in parameters(f.signatures[0]) if p.required]
    return [(X, X.flip(0), {})] if required == ["Tensor", "Tensor"] else TWO if len(required) == 2 else ONE


def ours(value):
    if isinstance(value, torch.Tensor):
        return to_sl(value)
    if isinstance(value, torch.dtype):
        return getattr(sl, str(value).removeprefix("torch."))
    return type(value)(ours(v) for v in value) if isinstance(value, (list, tuple)) else value


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


# Wrong arguments

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


# How arguments may be given


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


# The reference, and names


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
