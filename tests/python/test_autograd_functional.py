"""torch.autograd.functional and gradcheck; torch is the oracle."""

import pytest
import torch
from conftest import assert_same, to_sl

import sluice as sl
from sluice.autograd.gradcheck import GradcheckError

NAMES = ["jacobian", "hessian", "vjp", "jvp", "vhp", "hvp"]
X = torch.tensor([[0.5, -1.0], [2.0, 0.25]], dtype=torch.float64)
Y = torch.tensor([1.5, -0.5], dtype=torch.float64)
Z = torch.tensor(0.75, dtype=torch.float64)

FUNCTIONS = {  # name: (function of a library and tensors, inputs)
    "elementwise": (lambda lib, x: x.exp() * x, X),
    "0-d": (lambda lib, z: z.sin() * z, Z),
    "two outputs": (lambda lib, x, y: (x @ y, (x * y).sum()), (X, Y)),
    "one of a tuple": (lambda lib, x: x**3, (X,)),
    "independent": (lambda lib, x, y: (x * 2, y.sin()), (X, Y)),
    "view": (lambda lib, x: x.t()[0] * x[1], X),
    "in place": (lambda lib, x: (x * 1).mul_(x).add_(x.t()), X),
    "tuple of one": (lambda lib, x: (x.tanh(),), X),
    "not contiguous": (lambda lib, x: x * x, torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2)).t()),
}
SCALARS = {
    "cube": (lambda lib, x: (x**3).sum(), X),
    "two inputs": (lambda lib, x, y: ((x @ y).sin() * y).sum(), (X, Y)),
    "linear": (lambda lib, x: (2 * x).sum(), X),
    "half linear": (lambda lib, x, y: (x * x).sum() + y.sum(), (X, Y)),
    "0-d": (lambda lib, z: z**4, Z),
    "network": (lambda lib, x, y: lib.nn.functional.linear(lib.tanh(lib.nn.functional.linear(x, x)), x, y).sigmoid().sum(), (X, Y)),
}


def converted(nest):
    return tuple(to_sl(t) for t in nest) if isinstance(nest, tuple) else to_sl(nest)


def assert_nests_equal(ours, theirs):
    assert isinstance(ours, tuple) == isinstance(theirs, tuple)
    if isinstance(theirs, tuple):
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs):
            assert_nests_equal(a, b)
    else:
        assert_same(ours, theirs, 1e-9)
        assert ours.requires_grad == theirs.requires_grad


def call(lib, name, case, inputs, **options):
    return getattr(lib.autograd.functional, name)(lambda *args: case(lib, *args), inputs, **options)


def vector_like(nest, seed):
    generator = torch.Generator().manual_seed(seed)
    draw = [torch.randn(t.shape, generator=generator, dtype=t.dtype) for t in (nest if isinstance(nest, tuple) else (nest,))]
    return tuple(draw) if isinstance(nest, tuple) else draw[0]


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("case", FUNCTIONS)
def test_first_derivatives_equal_torch(case, create_graph):
    f, inputs = FUNCTIONS[case]
    outputs = f(torch, *inputs) if isinstance(inputs, tuple) else f(torch, inputs)
    for name, v in (("jacobian", None), ("vjp", vector_like(outputs, 1)), ("jvp", vector_like(inputs, 2))):
        options = {"create_graph": create_graph}
        theirs = call(torch, name, f, inputs, **options, **({} if v is None else {"v": v}))
        ours = call(sl, name, f, converted(inputs), **options, **({} if v is None else {"v": converted(v)}))
        assert_nests_equal(ours, theirs)


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("case", SCALARS)
def test_second_derivatives_equal_torch(case, create_graph):  # PD-08
    f, inputs = SCALARS[case]
    for name, v in (("hessian", None), ("vhp", vector_like(inputs, 1)), ("hvp", vector_like(inputs, 2))):
        options = {"create_graph": create_graph}
        theirs = call(torch, name, f, inputs, **options, **({} if v is None else {"v": v}))
        ours = call(sl, name, f, converted(inputs), **options, **({} if v is None else {"v": converted(v)}))
        assert_nests_equal(ours, theirs)


@pytest.mark.parametrize("name", NAMES)
def test_derivatives_have_gradients_of_their_own(name):
    def run(lib, x):
        x = x.requires_grad_(True)
        w = (x * 2).detach().requires_grad_(True)
        options = {"v": w * x} if name in ("jvp", "vhp", "hvp") else {}
        found = getattr(lib.autograd.functional, name)(lambda x: (x**4 * w).sum(), x, create_graph=True, **options)
        (found[1] if isinstance(found, tuple) else found).sum().backward()
        return x.grad, w.grad

    for ours, theirs in zip(run(sl, to_sl(Y)), run(torch, Y.clone()), strict=True):
        assert_same(ours, theirs, 1e-9)


def test_third_derivatives():  # PD-08
    x = sl.tensor([2.0, -3.0], dtype=sl.float64, requires_grad=True)
    g = x**4
    for expected in (4 * x.detach() ** 3, 12 * x.detach() ** 2, 24 * x.detach()):
        (g,) = sl.autograd.grad(g.sum(), x, create_graph=True)
        assert g.allclose(expected, rtol=1e-12)


def test_hvp_of_a_network_equals_differences():  # PD-08
    sl.manual_seed(4)
    sizes = [(5, 6), (6, 6), (6, 1)]
    x = sl.randn(4, 5, dtype=sl.float64)
    ws = tuple(sl.randn(s, dtype=sl.float64) * 0.5 for s in sizes)
    vs = tuple(sl.randn(s, dtype=sl.float64) for s in sizes)

    def loss(a, b, c):
        return (((x @ a).tanh() @ b).tanh() @ c).square().mean()

    def gradient(eps):
        return sl.autograd.functional.vjp(loss, tuple(w + eps * v for w, v in zip(ws, vs)))[1]

    product = sl.autograd.functional.hvp(loss, ws, vs)[1]
    for ours, up, down in zip(product, gradient(1e-5), gradient(-1e-5)):
        assert ours.allclose((up - down) / 2e-5, rtol=1e-4, atol=1e-8)


def raises(kind, name, f, inputs, **options):
    for lib in (sl, torch):
        given = tuple(map(to_sl, inputs)) if isinstance(inputs, tuple) and lib is sl else to_sl(inputs) if (
            isinstance(inputs, torch.Tensor) and lib is sl) else inputs
        with pytest.raises(kind):
            call(lib, name, f, given, **{k: to_sl(v) if lib is sl and isinstance(v, torch.Tensor) else v for k, v in options.items()})


def test_misuse_is_refused_as_in_torch():
    f = FUNCTIONS["elementwise"][0]
    raises(TypeError, "jacobian", f, [1.0])
    raises(TypeError, "jacobian", lambda lib, x: 3, X)
    raises(RuntimeError, "hessian", f, X)
    raises(RuntimeError, "hessian", lambda lib, x: (x.sum(), x.sum()), X)
    raises(RuntimeError, "vjp", f, X)
    raises(RuntimeError, "jvp", f, X)
    raises(RuntimeError, "jvp", f, X, v=Y)
    raises(RuntimeError, "vhp", f, X, v=X)
    raises(RuntimeError, "vjp", f, X, v=(torch.ones(2, 2), torch.ones(1)) if False else Y)
    raises(NotImplementedError, "jacobian", f, X, strategy="forward-mode")
    raises(RuntimeError, "jacobian", f, X, vectorize=True, strict=True)
    raises(RuntimeError, "jacobian", FUNCTIONS["independent"][0], (X, Y), strict=True)
    raises(RuntimeError, "jacobian", lambda lib, x: lib.ones(2), X, strict=True)
    raises(RuntimeError, "jacobian", lambda lib, x: x * 2, X, strict=True, create_graph=True)
    raises(RuntimeError, "hessian", SCALARS["linear"][0], X, strict=True)
    raises(RuntimeError, "vhp", SCALARS["half linear"][0], (X, Y), strict=True, v=(X, Y) if False else None)
    with pytest.raises(ValueError, match="Expected strategy"):
        sl.autograd.functional.jacobian(lambda x: x, to_sl(X), strategy="sideways")


@pytest.mark.parametrize("strategy", ["reverse-mode", "forward-mode"])
def test_vectorized_jacobians(strategy):
    f, inputs = FUNCTIONS["two outputs"]
    ours = call(sl, "jacobian", f, converted(inputs), vectorize=True, strategy=strategy)
    assert_nests_equal(ours, call(torch, "jacobian", f, inputs))


def test_nothing_leaks_into_the_arguments():
    x = to_sl(X).requires_grad_(True)
    for name in NAMES:
        options = {"v": to_sl(X)} if name in ("jvp", "vhp", "hvp") else {}
        with sl.no_grad():
            getattr(sl.autograd, name)(lambda x: (x**2).sum(), x, **options)
    assert x.grad is None and x.is_leaf


@pytest.mark.parametrize("name", NAMES)
def test_in_a_graph(name):
    f, inputs = SCALARS["two inputs"]
    options = {} if name in ("jacobian", "hessian", "vjp") else {"v": tuple(map(to_sl, vector_like(inputs, 3)))}

    class Derive(sl.nn.Graph):
        def build(self, x, y):
            return call(sl, name, f, (x, y), **options)

    theirs = call(torch, name, f, inputs, **({"v": vector_like(inputs, 3)} if options else {}))
    assert_nests_equal(Derive()(*converted(inputs)), theirs)


# gradcheck


@pytest.mark.parametrize("fast_mode", [False, True])
def test_gradcheck_passes_what_is_right(fast_mode):
    check = {"fast_mode": fast_mode}
    x, y = to_sl(X).requires_grad_(True), to_sl(Y).requires_grad_(True)
    for f, inputs in ((lambda x: x.exp() * x, (x,)), (lambda x: x.sin(), x), (lambda x, y: (x @ y, y.sum()), (x, y)),
                      (lambda x, n: x**n, (x, 3)), (lambda x, y: x * y, (x, y.detach())), (lambda x: (x * 2, x.detach() * 0), (x,)),
                      (lambda x: x.clone().mul_(x), (x,)), (lambda x: sl.zeros(3, dtype=sl.float64), (x,)),
                      (sl.nn.Linear(2, 3).double(), (x,))):
        assert sl.autograd.gradcheck(f, inputs, **check)
    for f, inputs in ((lambda x: x.exp() * x, (x,)), (lambda x, y: (x @ y).tanh(), (x, y)), (lambda x, y: x**3 * y, (x, y.detach()))):
        assert sl.autograd.gradgradcheck(f, inputs, **check)
    assert sl.autograd.gradgradcheck(lambda x: x**3, x, to_sl(X * 2).requires_grad_(True), **check)
    assert sl.autograd.gradgradcheck(lambda x: x**3, x, gen_non_contig_grad_outputs=True, **check)


class WrongBackward(sl.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**2

    @staticmethod
    def backward(ctx, g):
        return g * 3 * ctx.saved_tensors[0]


class WrongSecond(WrongBackward):
    @staticmethod
    def backward(ctx, g):
        return g * 2 * ctx.saved_tensors[0].detach()


@pytest.mark.parametrize("fast_mode", [False, True])
def test_gradcheck_finds_what_is_wrong(fast_mode):
    x = to_sl(X).requires_grad_(True)
    with pytest.raises(GradcheckError, match="Jacobian mismatch for output 0 with respect to input 0"):
        sl.autograd.gradcheck(WrongBackward.apply, x, fast_mode=fast_mode)
    assert sl.autograd.gradcheck(WrongBackward.apply, x, fast_mode=fast_mode, raise_exception=False) is False
    assert sl.autograd.gradcheck(WrongSecond.apply, x, fast_mode=fast_mode)
    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        sl.autograd.gradgradcheck(WrongSecond.apply, x, fast_mode=fast_mode)
    with pytest.raises(RuntimeError, match="expected to be zero"):
        sl.autograd.gradcheck(lambda x: x.detach() * 2, x, fast_mode=fast_mode)
    state = [0]

    class Unsteady(WrongBackward):
        @staticmethod
        def backward(ctx, g):
            state[0] += 1
            return g * 2 * ctx.saved_tensors[0] + 1e-7 * state[0]

    with pytest.raises(RuntimeError, match="not reentrant"):
        sl.autograd.gradcheck(Unsteady.apply, x, fast_mode=fast_mode)
    assert sl.autograd.gradcheck(Unsteady.apply, x, fast_mode=fast_mode, nondet_tol=1e-3)

    class ReadsNone(sl.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 1, x * 2

        @staticmethod
        def backward(ctx, a, b):
            return (0 if a is None else a) + (0 if b is None else 2 * b) + (0 if a is None or b is None else 1)

    with pytest.raises(RuntimeError, match="undefined output grads"):
        sl.autograd.gradcheck(ReadsNone.apply, x, fast_mode=fast_mode)


def test_gradcheck_refuses_what_it_cannot_check():
    x = to_sl(X).requires_grad_(True)
    for lib, given in ((sl, to_sl(X)), (torch, X)):
        with pytest.raises(ValueError, match="at least one input tensor to require gradient"):
            lib.autograd.gradcheck(lambda x: x * 2, given)
        with pytest.warns(UserWarning, match="not a double precision"):
            lib.autograd.gradcheck(lambda x: x * 2, given.float().requires_grad_(True), eps=1e-2, atol=1e-2)
    for option in ("check_forward_ad", "check_batched_grad", "check_batched_forward_grad"):
        with pytest.raises(NotImplementedError, match=option):
            sl.autograd.gradcheck(lambda x: x * 2, x, **{option: True})
    with pytest.raises(NotImplementedError, match="check_fwd_over_rev"):
        sl.autograd.gradgradcheck(lambda x: x * 2, x, check_fwd_over_rev=True)


def layer_norm(lib, x):
    if lib is sl:
        return sl.nn.functional.layer_norm(x, (2,))
    centred = x - x.mean(-1, keepdim=True)  # torch's own has no third derivatives
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()


@pytest.mark.parametrize("name", ["tanh", "sigmoid", "softmax", "silu", "gelu", "log_softmax", "matmul", "norm"])
def test_gradients_by_one_operand_keep_the_history_of_the_others(name):
    ops = {"softmax": lambda lib, x: x.softmax(-1), "log_softmax": lambda lib, x: x.log_softmax(-1), "matmul": lambda lib, x: x @ x,
           "norm": layer_norm}
    op = ops.get(name, lambda lib, x: getattr(lib.nn.functional, name, getattr(lib, name, None))(x))

    def run(lib, x):
        x.requires_grad_(True)
        y = op(lib, x)
        v = lib.zeros(2, 2, dtype=lib.float64, requires_grad=True)
        (product,) = lib.autograd.grad(y, x, v, create_graph=True)
        (pushed,) = lib.autograd.grad(product, v, x.detach() * 0.5 + 1, create_graph=True)  # by v alone; depends on x
        return pushed, *lib.autograd.grad((pushed**2).sum(), x)

    for ours, theirs in zip(run(sl, to_sl(X)), run(torch, X.clone()), strict=True):
        assert_same(ours, theirs, 1e-9)
