"""svd_lowrank, pca_lowrank, lobpcg, geqrf and ormqr, held to torch's and to what they promise."""

import pytest
import torch

import sluice as sl
from conftest import assert_same, to_sl


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def low_rank(*shape, rank=3):
    return normal(*shape[:-1], rank) @ normal(*shape[:-2], rank, shape[-1], seed=1)


@pytest.mark.parametrize("shape", [(9, 7), (7, 9), (2, 9, 6)])
def test_matrices_of_low_rank_are_met_exactly(shape):
    A = low_rank(*shape)
    M = normal(1, shape[-1], seed=2) if len(shape) == 2 else None
    for given in (None, M):
        U, S, V = sl.svd_lowrank(to_sl(A), 4, M=None if given is None else to_sl(given))
        exact = A if given is None else A - given
        assert U.shape == (*shape[:-1], 4) and S.shape == (*shape[:-2], 4) and V.shape == (*shape[:-2], shape[-1], 4)
        assert_same(U @ S.diag_embed() @ V.mT, exact, 1e-8)
        assert_same(S, torch.linalg.svdvals(exact)[..., :4], 1e-8)
    U, S, V = sl.pca_lowrank(to_sl(A), 4)
    assert_same(U @ S.diag_embed() @ V.mT, A - A.mean(-2, keepdim=True), 1e-8)
    theirs = torch.pca_lowrank(A, 4, center=False)
    assert_same(sl.pca_lowrank(to_sl(A), 4, center=False)[1], theirs[1], 1e-8)


def test_the_numbers_of_a_seed_are_torchs():
    A = normal(9, 6, dtype=torch.float32)
    torch.manual_seed(3)
    sl.manual_seed(3)
    theirs, ours = torch.svd_lowrank(A, 3, 1), sl.svd_lowrank(to_sl(A), 3, 1)
    assert_same(ours[1], theirs[1], 1e-4)
    assert_same((ours[0] * ours[1]) @ ours[2].mT, (theirs[0] * theirs[1]) @ theirs[2].mT, 1e-4)
    A = A.requires_grad_()
    mine = to_sl(A)
    torch.manual_seed(3)
    sl.manual_seed(3)
    torch.svd_lowrank(A, 3, 1)[1].sum().backward()
    sl.svd_lowrank(mine, 3, 1)[1].sum().backward()
    assert_same(mine.grad, A.grad, 1e-3)


def test_low_ranks_that_do_not_fit():
    with pytest.raises(ValueError, match="must be non-negative integer and not greater than min"):
        sl.pca_lowrank(sl.ones(4, 3), 4)
    with pytest.raises(ValueError, match="niter"):
        sl.pca_lowrank(sl.ones(4, 3), 2, niter=-1)
    with pytest.raises(ValueError, match="dtype must be of floats"):
        sl.svd_lowrank(sl.ones(4, 3, dtype=sl.int64))


@pytest.mark.parametrize("shape", [(5, 5), (6, 3), (3, 6), (2, 2, 4, 3), (1, 1), (0, 3), (3, 0)])
def test_reflections(shape):
    A = normal(*shape)
    ours, theirs = sl.geqrf(to_sl(A)), torch.geqrf(A)
    assert_same(ours.a, theirs.a, 1e-9)
    assert_same(ours.tau, theirs.tau, 1e-9)
    rows = shape[-2]
    for left in (True, False):
        other = normal(*shape[:-2], rows, 4, seed=1) if left else normal(*shape[:-2], 4, rows, seed=1)
        for transpose in (True, False):
            assert_same(sl.ormqr(*map(to_sl, (*theirs, other)), left, transpose), torch.ormqr(*theirs, other, left, transpose),
                        1e-9)


def test_reflections_of_what_is_triangular_already():
    for A in (torch.zeros(3, 3), torch.eye(3) * -2, torch.ones(2, 3), torch.tensor([[0.0, 1], [1, 0]]), torch.tensor([[3.0, 1],
                                                                                                                      [0, 2], [0, 0]])):
        ours, theirs = sl.geqrf(to_sl(A)), torch.geqrf(A)
        assert_same(ours.a, theirs.a)
        assert_same(ours.tau, theirs.tau)


def test_gradients_of_products_with_reflections():
    a, tau = torch.geqrf(normal(5, 3))
    other = normal(5, 2, seed=1)
    for left, transpose in ((True, False), (True, True), (False, True)):
        given = [t.clone().requires_grad_() for t in (a, tau, other if left else other.mT)]
        mine = [to_sl(t) for t in given]
        y, z = sl.ormqr(*mine, left, transpose), torch.ormqr(*given, left, transpose)
        for g, h in zip(sl.autograd.grad(y.square().sum() + y.sum(), mine), torch.autograd.grad(z.square().sum() + z.sum(),
                                                                                                given)):
            assert_same(g, h, 1e-8)


def test_reflections_in_a_graph():
    class Net(sl.nn.Graph):
        def build(self, x, y):
            a, tau = sl.geqrf(x)
            return a, sl.ormqr(a, tau, y, True, True)

    x, y = normal(5, 3), normal(5, 2, seed=1)
    a, z = Net()(to_sl(x), to_sl(y))
    theirs = torch.geqrf(x)
    assert_same(a, theirs.a, 1e-9)
    assert_same(z, torch.ormqr(*theirs, y, True, True), 1e-9)


def test_reflections_that_do_not_fit():
    with pytest.raises(RuntimeError, match="input must have at least 2 dimensions"):
        sl.geqrf(sl.ones(3))
    with pytest.raises(RuntimeError, match="other.shape.-2. is 4; must be equal to input.shape.-2., 3"):
        sl.ormqr(sl.ones(3, 2), sl.ones(2), sl.ones(4, 2))
    with pytest.raises(RuntimeError, match="tau.shape.-1. is 3; must be equal to the lesser"):
        sl.ormqr(sl.ones(3, 2), sl.ones(3), sl.ones(3, 2))
    with pytest.raises(RuntimeError, match="batch dimensions"):
        sl.ormqr(sl.ones(1, 3, 2), sl.ones(2), sl.ones(1, 3, 2))


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("k", [1, 3])
def test_a_few_eigenvalues(k, largest):
    A = normal(2, 20, 20)
    A = A @ A.mT
    E, V = sl.lobpcg(to_sl(A), k, largest=largest, niter=200)
    exact = torch.linalg.eigvalsh(A)
    assert_same(E, exact.flip(-1)[..., :k] if largest else exact[..., :k], 1e-6)
    assert_same(to_sl(A) @ V - V * E.unsqueeze(-2), torch.zeros(2, 20, k).double(), 1e-3)
    assert_same(V.mT @ V, torch.eye(k).double().expand(2, k, k), 1e-6)


def test_eigenvalues_by_another_product():
    A, B = normal(15, 15), normal(15, 15, seed=1)
    A, B = A @ A.T, B @ B.T + 15 * torch.eye(15)
    E, V = sl.lobpcg(to_sl(A), 2, to_sl(B), niter=200, tol=1e-9)
    theirs = torch.linalg.eigvals(torch.linalg.solve(B, A)).real.sort(descending=True).values[:2]
    assert_same(E, theirs, 1e-6)
    assert_same(V.mT @ to_sl(B) @ V, torch.eye(2).double(), 1e-6)
    steps = []
    sl.lobpcg(to_sl(A), 2, X=to_sl(normal(15, 2, seed=3)), iK=to_sl(torch.linalg.inv(A + torch.eye(15))), largest=False,
              niter=3, tol=0.0,
              tracker=lambda worker: steps.append((worker.ivars["istep"], worker.E.shape)))
    assert steps == [(1, (2,)), (2, (2,)), (3, (2,))]


def test_gradients_of_a_few_eigenvalues():
    A = normal(12, 12)
    A = (A @ A.T).requires_grad_()
    mine = to_sl(A)
    E, V = sl.lobpcg(mine, 2, niter=500, tol=1e-12)
    values, vectors = torch.linalg.eigh(A)
    theirs = values.flip(0)[:2].square().sum() + (vectors[:, -1].square() * torch.arange(12)).sum()
    ours = E.square().sum() + (V[:, 0].square() * sl.arange(12)).sum()
    assert_same(sl.autograd.grad(ours, mine)[0], torch.autograd.grad(theirs, A)[0], 1e-6)


def test_eigenvalues_that_cannot_be_found():
    with pytest.raises(ValueError, match="not applicable when the number of A rows"):
        sl.lobpcg(sl.ones(4, 4), 2)
    with pytest.raises(ValueError, match="method is 'no'"):
        sl.lobpcg(sl.eye(9), 2, method="no")
    with pytest.raises(ValueError, match="generalized eigenvalue problem is not supported"):
        sl.lobpcg(sl.eye(9), 2, sl.eye(9).requires_grad_())
