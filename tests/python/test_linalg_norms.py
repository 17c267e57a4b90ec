"""torch.linalg's norms, ranks, inverses and products, with torch as the oracle."""

import numpy as np
import pytest
import torch
from conftest import assert_same

import sluice as sl
from linalg_oracle import both, check, draw, inf, same_call, symmetric, top


@pytest.mark.parametrize("ord", [0, 1, 2, 3, 0.5, -1, -2, inf, -inf])
@pytest.mark.parametrize("dim", [None, 0, -1, (0, 2), (2, 0, 1), ()])
@pytest.mark.parametrize("keepdim", [False, True])
def test_vector_norm(ord, dim, keepdim):
    f, g = same_call("vector_norm", ord, dim, keepdim)
    if ord == 0:
        ours, theirs = both(np.round(draw((2, 3, 4))))
        assert_same(f(*ours), g(*theirs), 1e-12)
    else:
        check(f, g, draw((2, 3, 4)), tolerance=1e-9)


@pytest.mark.parametrize("ord", ["fro", "nuc", 1, -1, 2, -2, inf, -inf])
@pytest.mark.parametrize("dim", [(-2, -1), (0, 2), (2, 0), (1, 0)])
@pytest.mark.parametrize("keepdim", [False, True])
def test_matrix_norm(ord, dim, keepdim):
    check(*same_call("matrix_norm", ord, dim, keepdim), draw((2, 3, 4)), tolerance=1e-8, twice=ord not in ("nuc", 2, -2))
    want = np.linalg.norm(draw((2, 3, 4)), ord, dim, keepdim)
    np.testing.assert_allclose(sl.linalg.norm(sl.from_numpy(draw((2, 3, 4))), ord, dim, keepdim).numpy(), want, rtol=1e-10)


@pytest.mark.parametrize("ord", [None, "fro", "nuc", 0, 1, 2, -1, 3, inf, -inf])
@pytest.mark.parametrize("dim", [None, 0, (1,), (0, 1), (0, 1, 2)])
@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 3, 4), ()])
def test_norm_is_of_vectors_or_matrices(ord, dim, shape):
    ours, theirs = both(draw(shape))
    try:
        want = torch.linalg.norm(*theirs, ord, dim)
    except (RuntimeError, IndexError) as refusal:
        with pytest.raises(type(refusal)):
            sl.linalg.norm(*ours, ord, dim)
    else:
        assert_same(sl.linalg.norm(*ours, ord, dim), want, 1e-9)


@pytest.mark.parametrize("p", ["fro", "nuc", None, 0, 1, 2, 3.5, inf, -inf])
@pytest.mark.parametrize("dim", [None, 0, (0, 1), (1, 2)])
@pytest.mark.parametrize("keepdim", [False, True])
def test_torch_norm(p, dim, keepdim):
    ours, theirs = both(draw((2, 3, 4)))
    try:
        want = torch.norm(*theirs, p, dim, keepdim)
    except RuntimeError:
        with pytest.raises(RuntimeError):
            sl.norm(*ours, p, dim, keepdim)
        return
    assert_same(sl.norm(*ours, p, dim, keepdim), want, 1e-9)
    assert_same(ours[0].norm(p, dim, keepdim), theirs[0].norm(p, dim, keepdim), 1e-9)


def test_norms_dtypes_and_refusals():
    ours, theirs = sl.tensor([3.0, 4.0]), torch.tensor([3.0, 4.0])
    assert_same(sl.linalg.vector_norm(ours, dtype=sl.float64), torch.linalg.vector_norm(theirs, dtype=torch.float64), 1e-12)
    assert_same(sl.norm(ours, dtype=sl.float64), torch.norm(theirs, dtype=torch.float64), 1e-12)
    assert_same(sl.linalg.matrix_norm(ours.reshape(1, 2), dtype=sl.float64),
                torch.linalg.matrix_norm(theirs.reshape(1, 2), dtype=torch.float64))
    assert_same(sl.linalg.norm(ours.half()), torch.linalg.norm(theirs.half()), 1e-2)
    for ord in ("fro", "nuc", 1, 2, inf):
        assert_same(sl.linalg.matrix_norm(sl.zeros(0, 3), ord), torch.linalg.matrix_norm(torch.zeros(0, 3), ord))
    for call, message in (
            (lambda: sl.linalg.vector_norm(sl.tensor([1, 2])), "Expected a floating point or complex tensor as input. Got int64"),
            (lambda: sl.linalg.vector_norm(ours.double(), dtype=sl.float32), "convertible without narrowing"),
            (lambda: sl.linalg.vector_norm(ours, dtype=sl.int64), "dtype should be floating point or complex, but got int64"),
            (lambda: sl.linalg.vector_norm(sl.zeros(0), inf), "on an empty tensor because the operation does not have an identity"),
            (lambda: sl.linalg.matrix_norm(ours), "must have at least 2 dimensions"),
            (lambda: sl.linalg.matrix_norm(sl.eye(2), 3), "Order 3 not supported"),
            (lambda: sl.linalg.matrix_norm(sl.eye(2), "foo"), "Order foo not supported"),
            (lambda: sl.linalg.matrix_norm(sl.eye(2), dim=(0, 0)), r"dims must be different. Got \(0, 0\)"),
            (lambda: sl.linalg.matrix_norm(sl.eye(2), dim=(0,)), "dim must be a 2-tuple"),
            (lambda: sl.linalg.matrix_norm(sl.eye(2).half(), 2), "Low precision dtypes not supported")):
        with pytest.raises(RuntimeError, match=message):
            call()


@pytest.mark.parametrize("p", [None, "fro", "nuc", 1, -1, 2, -2, inf, -inf])
def test_cond(p):
    def product(a):  # torch's own gradient of cond raises
        return torch.linalg.norm(a, p, (-2, -1)) * torch.linalg.norm(torch.linalg.inv(a), p, (-2, -1))

    f, g = same_call("cond", p)
    check(f, g if p in (None, 2, -2) else product, draw((2, 3, 3)), tolerance=1e-7, twice=False)
    for a in (np.zeros((3, 3)), np.zeros((0, 0)), np.ones((2, 2, 2))):
        if p in (None, 2, -2) and a.any():
            continue  # of rounding errors
        if p == "nuc" and a.size:
            assert (sl.linalg.cond(sl.from_numpy(a), p) == inf).all()  # torch gives NaN
            continue
        ours, theirs = both(a)
        assert_same(sl.linalg.cond(*ours, p), torch.linalg.cond(*theirs, p))
    if p in (None, 2, -2):
        check(*same_call("cond", p), draw((4, 3)), tolerance=1e-8, twice=False)


@pytest.mark.parametrize("shape", [(3, 3), (5, 3), (3, 5), (2, 4, 3), (0, 3), (2, 3, 0)])
def test_pinv(shape):
    check(*same_call("pinv"), draw(shape), tolerance=1e-8)
    low = draw((5, 2)) @ draw((2, 4), 1)
    for f, g in (same_call("pinv", rtol=1e-8), same_call("pinv", 1e-8), top("pinverse", 1e-8), same_call("pinv", atol=1e-9)):
        check(f, g, low, tolerance=1e-7, twice=False)


def test_pinv_of_symmetric_matrices_and_tolerances():
    a = symmetric((2, 3, 3))
    ours, theirs = both(a)
    assert_same(sl.linalg.pinv(*ours, hermitian=True), torch.linalg.pinv(*theirs, hermitian=True), 1e-9)
    assert_same(sl.linalg.pinv(*ours, rtol=sl.tensor([0.1, 0.5], dtype=sl.float64)),
                torch.linalg.pinv(*theirs, rtol=torch.tensor([0.1, 0.5], dtype=torch.float64)), 1e-9)


def test_matrix_rank():
    a = np.stack([np.eye(4), np.diag([1.0, 1e-5, 0, 0]), np.zeros((4, 4)), np.ones((4, 4))])
    ours, theirs = both(a)
    for arguments, options in (((), {}), ((0.5,), {}), ((), {"atol": 1e-3}), ((), {"rtol": 1e-3}), ((), {"atol": 1e-6, "rtol": 1e-3}),
                               ((), {"hermitian": True}), ((1e-3, True), {}), ((), {"tol": 1e-3})):
        got, want = sl.linalg.matrix_rank(*ours, *arguments, **options), torch.linalg.matrix_rank(*theirs, *arguments, **options)
        assert got.dtype == sl.int64 and got.tolist() == want.tolist()
    assert sl.linalg.matrix_rank(ours[0], atol=sl.tensor(0.5)).tolist() == [4, 1, 0, 1]
    assert sl.linalg.matrix_rank(sl.ones(3, 2)).item() == 1 and sl.linalg.matrix_rank(sl.empty(0, 3)).item() == 0


@pytest.mark.parametrize("driver", [None, "gels", "gelsy", "gelsd", "gelss"])
@pytest.mark.parametrize("a, b", [((5, 3), (5, 2)), ((3, 5), (3, 2)), ((2, 5, 3), (2, 5, 1)), ((2, 4, 3), (2, 4)), ((4, 4), (4, 1))])
def test_lstsq(driver, a, b):
    ours, theirs = both(draw(a), draw(b, 1))
    got, want = sl.linalg.lstsq(*ours, driver=driver), torch.linalg.lstsq(*theirs, driver=driver)
    for name in ("solution", "residuals", "rank", "singular_values"):
        assert_same(getattr(got, name), getattr(want, name), 1e-8)
    check(lambda a, b: sl.linalg.lstsq(a, b).solution, lambda a, b: torch.linalg.lstsq(a, b).solution, draw(a), draw(b, 1),
          tolerance=1e-8)


def test_matrix_power_of_extreme_exponents():
    for n in (1 << 40, -(1 << 63)):
        assert sl.linalg.matrix_power(sl.eye(2), n).tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize("n", [-3, -1, 0, 1, 2, 3, 7])
def test_matrix_power(n):
    for f, g in (same_call("matrix_power", n), top("matrix_power", n)):
        check(f, g, draw((2, 3, 3)), tolerance=1e-6)


def test_products():
    check(*same_call("matmul"), draw((2, 3, 4)), draw((4, 2), 1))
    check(*same_call("vecdot"), draw((2, 3)), draw((4, 1, 3), 1))
    check(*same_call("vecdot", dim=0), draw((3, 2)), draw((3, 1), 1))
    for shapes in ([(5, 3), (3, 4)], [(5, 30), (30, 2), (2, 7), (7, 3)], [(3,), (3, 4), (4, 2)], [(3, 4), (4, 2), (2,)],
                   [(3,), (3, 4), (4,)], [(2, 0), (0, 3), (3, 1)]):
        check(lambda *x: sl.linalg.multi_dot(x), lambda *x: torch.linalg.multi_dot(x), *[draw(s, i) for i, s in enumerate(shapes)])
    check(*same_call("cross"), draw((2, 3)), draw((1, 3), 1))
    check(*same_call("cross", dim=0), draw((3, 2, 1)), draw((3, 1, 4), 1))
    ours, theirs = sl.tensor([[1, 2, 3], [4, 5, 6]]), torch.tensor([[1, 2, 3], [4, 5, 6]])
    assert_same(sl.linalg.cross(ours, ours.flip(0)), torch.linalg.cross(theirs, theirs.flip(0)))
