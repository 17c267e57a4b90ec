"""torch.nn.utils and torch.nn.init against torch's: hooks, parametrizations, pruning, fusion, calls with other parameters."""

import copy
import itertools
import pickle

import numpy as np
import pytest
import torch
import torch.nn.utils.prune
from conftest import assert_same, to_sl

import sluice as sl
import sluice.nn as nn

U, T = nn.utils, torch.nn.utils
pytestmark = pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated:FutureWarning",
                                        "ignore:`torch.nn.utils.stateless:FutureWarning")


def pair(kind, *args, **kwargs):
    torch.manual_seed(5), sl.manual_seed(5)
    return getattr(torch.nn, kind)(*args, **kwargs), getattr(nn, kind)(*args, **kwargs)


def alike(ours, theirs, tolerance=1e-5):
    """The same names, in the same order, and values."""
    for (n, p), (m, q) in zip(ours.state_dict().items(), theirs.state_dict().items(), strict=True):
        assert n == m
        assert_same(p, q, tolerance)


def trained_alike(ours, theirs, shape, steps=2):
    """Outputs and gradients of some passes agree."""
    for _ in range(steps):
        a = torch.randn(shape, requires_grad=True)
        x = to_sl(a)
        y, b = ours(x), theirs(a)
        assert_same(y, b)
        (y * y).sum().backward(), (b * b).sum().backward()
        assert_same(x.grad, a.grad, 1e-4)
        for (n, p), (m, q) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
            assert n == m
            assert_same(p.grad, q.grad, 1e-4)
    alike(ours, theirs)


class Runs(nn.Graph):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def build(self, x):
        y = self.net(x)
        (y * y).sum().backward()
        return y, [p.grad for p in self.net.parameters()]


def graphed_alike(ours, theirs, shape):
    a = torch.randn(shape)
    ours.zero_grad(), theirs.zero_grad()
    y, grads = Runs(ours)(to_sl(a))
    b = theirs(a)
    (b * b).sum().backward()
    assert_same(y, b)
    for p, q in zip(grads, theirs.parameters(), strict=True):
        assert_same(p, q.grad, 1e-4)


NETS = [("Linear", (3, 4), (5, 3)), ("Conv1d", (2, 4, 3), (2, 2, 6)), ("ConvTranspose2d", (2, 3, 2), (1, 2, 3, 3)),
        ("LSTM", (3, 4), (5, 2, 3))]


@pytest.mark.parametrize("kind, args, shape", NETS[:3], ids=str)
@pytest.mark.parametrize("dim", [0, 1, None])
def test_weight_norm_by_hook(kind, args, shape, dim):  # PD-11
    theirs, ours = pair(kind, *args)
    assert U.weight_norm(ours, dim=dim) is ours
    T.weight_norm(theirs, dim=dim)
    alike(ours, theirs)
    trained_alike(ours, theirs, shape)
    graphed_alike(ours, theirs, shape)
    with pytest.raises(RuntimeError, match="Cannot register two weight_norm hooks on the same parameter weight"):
        U.weight_norm(ours)
    U.remove_weight_norm(ours), T.remove_weight_norm(theirs)
    alike(ours, theirs)
    assert isinstance(ours.weight, nn.Parameter) and not ours._forward_pre_hooks
    with pytest.raises(ValueError, match="weight_norm of 'weight' not found in"):
        U.remove_weight_norm(ours)
    with pytest.raises(TypeError, match="parameter `bias` is None"):
        U.weight_norm(nn.Linear(2, 2, bias=False), "bias")
    with pytest.raises(TypeError, match="'bias' of Linear.* is None"):
        U.prune.identity(nn.Linear(2, 2, bias=False), "bias")


def test_a_hook_of_ones_own_for_weight_norm():  # PD-11
    net = nn.Linear(3, 4)
    other = copy.deepcopy(net)
    net.g, net.v = nn.Parameter(net.weight.detach().norm(2, [1], True)), nn.Parameter(net.weight.detach())
    del net.weight
    net.register_forward_pre_hook(lambda m, args: setattr(m, "weight", m.v * (m.g / m.v.norm(2, [1], True))))
    U.weight_norm(other)
    x = sl.randn(2, 3)
    assert sl.allclose(net(x), other(x))


@pytest.mark.parametrize("kind, args, shape", NETS[:3], ids=str)
@pytest.mark.parametrize("form", [{}, {"n_power_iterations": 3}, {"dim": 1}], ids=str)
def test_spectral_norm_by_hook(kind, args, shape, form):
    theirs, ours = pair(kind, *args)
    U.spectral_norm(ours, **form), T.spectral_norm(theirs, **form)
    alike(ours, theirs)
    assert ours.state_dict()._metadata == theirs.state_dict()._metadata
    trained_alike(ours, theirs, shape)
    graphed_alike(ours, theirs, shape)  # buffers are updated in graphs, too
    alike(ours, theirs)
    a = torch.randn(shape)
    assert_same(ours.eval()(to_sl(a)), theirs.eval()(a))
    alike(ours, theirs)
    with pytest.raises(RuntimeError, match="Cannot register two spectral_norm hooks"):
        U.spectral_norm(ours)
    U.remove_spectral_norm(ours), T.remove_spectral_norm(theirs)
    alike(ours, theirs)
    assert ours.state_dict()._metadata == theirs.state_dict()._metadata
    with pytest.raises(ValueError, match="spectral_norm of 'weight' not found in"):
        U.remove_spectral_norm(ours)
    with pytest.raises(ValueError, match="Expected n_power_iterations to be positive"):
        U.spectral_norm(ours, n_power_iterations=0)


def test_parametrizations_of_norms():
    names = {"Linear": "weight", "Conv1d": "weight", "ConvTranspose2d": "weight", "LSTM": "weight_hh_l0"}
    for kind, args, shape in NETS[:3]:
        for what, form in (("weight_norm", {}), ("weight_norm", {"dim": 1}), ("weight_norm", {"dim": None}), ("spectral_norm", {}),
                           ("spectral_norm", {"n_power_iterations": 2, "dim": -1})):
            theirs, ours = pair(kind, *args)
            getattr(U.parametrizations, what)(ours, names[kind], **form)
            getattr(T.parametrizations, what)(theirs, names[kind], **form)
            assert repr(ours) == repr(theirs)
            alike(ours, theirs)
            trained_alike(ours, theirs, shape)
            graphed_alike(ours, theirs, shape)
            a = torch.randn(shape)
            assert_same(ours.eval()(to_sl(a)), theirs.eval()(a))
    vector = nn.LayerNorm(4)
    U.parametrizations.spectral_norm(vector)
    assert vector.weight.norm().item() == pytest.approx(1)
    with pytest.raises(IndexError, match="Dimension out of range"):
        U.parametrizations.spectral_norm(nn.Linear(2, 2), dim=2)
    with pytest.raises(ValueError, match="has no parameter or buffer with name 'nope'"):
        U.parametrizations.spectral_norm(nn.Linear(2, 2), "nope")


def test_parametrized_weights_of_an_lstm():
    theirs, ours = pair("LSTM", 3, 4)
    for net, lib in ((theirs, T), (ours, U)):
        lib.parametrizations.weight_norm(net, "weight_hh_l0")
        lib.parametrizations.weight_norm(net, "weight_ih_l0")
    a = torch.randn(5, 2, 3)
    assert_same(ours(to_sl(a))[0], theirs(a)[0])
    alike(ours, theirs)


@pytest.mark.skipif(not hasattr(sl, "linalg"), reason="sluice.linalg is not built")
@pytest.mark.parametrize("name, trivial", [("matrix_exp", True), ("cayley", True), ("householder", True), ("householder", False),
                                           (None, True)])
@pytest.mark.parametrize("sizes", [(4, 4), (3, 5), (6, 2)], ids=str)
def test_orthogonal_weights(name, trivial, sizes):
    theirs, ours = pair("Linear", *sizes)
    for net, lib in ((theirs, T), (ours, U)):
        torch.manual_seed(6), sl.manual_seed(6)
        lib.parametrizations.orthogonal(net, "weight", name, use_trivialization=trivial)
    assert repr(ours) == repr(theirs)
    alike(ours, theirs)
    trained_alike(ours, theirs, (5, sizes[0]))
    with torch.no_grad():
        for p in theirs.parameters():
            p += 0.1
    ours.load_state_dict(theirs.state_dict())
    trained_alike(ours, theirs, (5, sizes[0]))
    graphed_alike(ours, theirs, (5, sizes[0]))


def test_bad_orthogonal_weights_are_refused():
    with pytest.raises(ValueError, match="Expected a matrix or batch of matrices. Got a tensor of 1 dimensions."):
        U.parametrizations.orthogonal(nn.Linear(2, 2), "bias")
    with pytest.raises(ValueError, match="has no parameter or buffer with name 'nope'"):
        U.parametrizations.orthogonal(nn.Linear(2, 2), "nope")
    with pytest.raises(ValueError, match='orthogonal_map has to be one of "matrix_exp", "cayley", "householder". Got: x'):
        U.parametrizations.orthogonal(nn.Linear(2, 2), orthogonal_map="x")


def test_old_weight_norm_checkpoints_load():
    old, new = U.weight_norm(nn.Linear(3, 4)), U.parametrizations.weight_norm(nn.Linear(3, 4))
    new.load_state_dict(old.state_dict())
    x = sl.randn(2, 3)
    assert sl.allclose(new(x), old(x))


def modules_of(N, lib):
    class Symmetric(N.Module):
        def forward(self, x):
            return x.triu() + x.triu(1).transpose(-1, -2)

        def right_inverse(self, x):
            return x.triu()

    class Scaled(N.Module):
        def __init__(self, by):
            super().__init__()
            self.by = N.Parameter(lib.tensor(by))

        def forward(self, x):
            return x * self.by

    class Pair(N.Module):
        def forward(self, a, b):
            return a + b

        def right_inverse(self, x):
            return x * 0.25, x * 0.75

    class Casts(N.Module):
        def forward(self, x):
            return x.double()

    class Grows(N.Module):
        def forward(self, x):
            return x.repeat(2, 1)

    return Symmetric, Scaled, Pair, Casts, Grows


def test_parametrizations_of_ones_own():
    nets = []
    for N, lib, P in ((torch.nn, torch, T.parametrize), (nn, sl, U.parametrize)):
        Symmetric, Scaled, Pair, Casts, Grows = modules_of(N, lib)
        torch.manual_seed(5), sl.manual_seed(5)
        net = N.Linear(3, 3)
        weight = net.weight
        P.register_parametrization(net, "weight", Symmetric())
        P.register_parametrization(net, "weight", Scaled(2.0))
        P.register_parametrization(net, "bias", Pair())
        assert P.is_parametrized(net) and P.is_parametrized(net, "weight") and not P.is_parametrized(net, "nope")
        assert net.parametrizations.weight.original is weight and type(net).__name__ == "ParametrizedLinear"
        assert P.type_before_parametrizations(net) is N.Linear and len(net.parametrizations.weight) == 2
        with P.cached():
            assert net.weight is net.weight
        assert net.weight is not net.weight
        nets.append(net)
    theirs, ours = nets
    assert repr(ours) == repr(theirs)
    trained_alike(ours, theirs, (2, 3))
    graphed_alike(ours, theirs, (2, 3))
    x = sl.randn(2, 3)
    twin = copy.deepcopy(ours)
    assert sl.equal(twin(x), ours(x)) and twin.parametrizations.weight.original is not ours.parametrizations.weight.original
    for net, lib, P in ((theirs, torch, T.parametrize), (ours, sl, U.parametrize)):
        net.bias = lib.ones(3)
        assert net.parametrizations.bias.original1.tolist() == [0.75] * 3
        P.remove_parametrizations(net, "weight", leave_parametrized=True)
        P.remove_parametrizations(net, "bias")
        assert type(net).__name__ == "Linear" and not hasattr(net, "parametrizations")
    alike(ours, theirs)
    assert isinstance(ours.bias, nn.Parameter) and sl.equal(twin(x), twin(x)) and U.parametrize.is_parametrized(twin, "weight")
    U.parametrize.remove_parametrizations(twin, "weight", leave_parametrized=False)
    assert twin.weight.tril(-1).abs().sum().item() == 0  # the original is upper triangular


def test_parametrizations_are_checked():
    Symmetric, Scaled, Pair, Casts, Grows = modules_of(nn, sl)
    P, net = U.parametrize, nn.Linear(3, 3)
    with pytest.raises(ValueError, match="may not change the dtype of the tensor, unless the `unsafe` flag is enabled"):
        P.register_parametrization(net, "weight", Casts())
    with pytest.raises(ValueError, match="may not change the shape"):
        P.register_parametrization(net, "weight", Grows())
    with pytest.raises(ValueError, match="does not have a parameter, a buffer, or a parametrized element with name 'nope'"):
        P.register_parametrization(net, "nope", Symmetric())
    with pytest.raises(ValueError, match="does not have a parametrization on weight"):
        P.remove_parametrizations(net, "weight")
    assert not P.is_parametrized(net) and isinstance(net.weight, nn.Parameter)
    P.register_parametrization(net, "weight", Casts(), unsafe=True)
    assert net.weight.dtype is sl.float64
    with pytest.raises(RuntimeError, match="only supported through state_dict"):
        pickle.dumps(net)
    P.register_parametrization(net, "bias", Pair())
    with pytest.raises(ValueError, match="Cannot leave unparametrized"):
        P.remove_parametrizations(net, "bias", leave_parametrized=False)
    with pytest.raises(RuntimeError, match="Casts does not implement right_inverse"):
        net.weight = sl.zeros(3, 3)
    with pytest.raises(ValueError, match="may not change the shape"):
        P.register_parametrization(net, "bias", Grows().__class__())
    with pytest.raises(ValueError, match="requires one or more modules"):
        P.ParametrizationList([], net.parametrizations.bias.original0)
    other = nn.Linear(3, 3)
    P.transfer_parametrizations_and_params(net, other, "bias")
    assert sl.equal(other.bias, net.bias) and P.is_parametrized(other, "bias") and not P.is_parametrized(other, "weight")


PRUNING = [("identity", ()), ("random_unstructured", (3,)), ("random_unstructured", (0.5,)), ("random_unstructured", (0,)),
           ("l1_unstructured", (5,)), ("l1_unstructured", (0.3,)), ("random_structured", (1, 0)), ("random_structured", (0.5, 1)),
           ("random_structured", (1, -1)), ("ln_structured", (1, 2, 0)), ("ln_structured", (0.5, 1, 1)),
           ("ln_structured", (0.5, -float("inf"), 0)), ("ln_structured", (1, float("inf"), 1))]


@pytest.mark.parametrize("method, args", PRUNING, ids=str)
def test_pruning_equals_torchs(method, args):
    for (again, more) in [(None, ()), *PRUNING[::3]]:
        theirs, ours = pair("Conv1d", 2, 4, 3)
        for net, lib in ((theirs, T.prune), (ours, U.prune)):
            torch.manual_seed(7), sl.manual_seed(7)
            assert getattr(lib, method)(net, "weight", *args) is net and lib.is_pruned(net)
            if again:
                getattr(lib, again)(net, "weight", *more)
        alike(ours, theirs)
        trained_alike(ours, theirs, (2, 2, 5), 1)
    graphed_alike(ours, theirs, (2, 2, 5))
    for net, lib in ((theirs, T.prune), (ours, U.prune)):
        lib.remove(net, "weight")
        assert not lib.is_pruned(net)
    alike(ours, theirs)
    assert isinstance(ours.weight, nn.Parameter)


def test_pruning_by_masks_and_globally():
    theirs, ours = pair("Sequential")
    for N, net in ((torch.nn, theirs), (nn, ours)):
        torch.manual_seed(5), sl.manual_seed(5)
        for _ in range(2):
            net.append(N.Linear(4, 4))
    mask = torch.tensor([1.0, 0, 1, 1])
    for lib, net, given, scores in ((T.prune, theirs, mask, torch.arange(4.0)), (U.prune, ours, to_sl(mask), sl.arange(4.0))):
        lib.custom_from_mask(net[0], "bias", given)
        for _ in range(2):
            lib.global_unstructured([(net[0], "weight"), (net[1], "weight"), (net[1], "bias")], lib.L1Unstructured, amount=0.3,
                                    importance_scores={(net[1], "bias"): scores})
        lib.l1_unstructured(net[0], "bias", 1, importance_scores=scores)
    trained_alike(ours, theirs, (2, 4))
    method = next(iter(ours[0]._forward_pre_hooks.values()))
    assert isinstance(method, U.prune.PruningContainer) and len(method) == 2 and list(method)[0] is method[0]
    assert U.prune.L1Unstructured(1).prune(sl.tensor([3.0, -1, 2])).tolist() == [3, 0, 2]


def test_bad_pruning_is_refused():
    calls = [lambda m: ("l1_unstructured", (m, "weight", -1)), lambda m: ("l1_unstructured", (m, "weight", 1.5)),
             lambda m: ("l1_unstructured", (m, "weight", "x")), lambda m: ("l1_unstructured", (m, "weight", 100)),
             lambda m: ("ln_structured", (m, "bias", 1, 2, 0)), lambda m: ("ln_structured", (m, "weight", 1, 2, 5)),
             lambda m: ("custom_from_mask", (m, "weight", type(m.weight.detach())([1.0]) if isinstance(m, torch.nn.Module) else sl.ones(1))),
             lambda m: ("remove", (m, "weight")), lambda m: ("l1_unstructured", (m, "nope", 1)),
             lambda m: ("global_unstructured", ([(m, "weight")], None))]
    theirs, ours = pair("Linear", 3, 4)
    for call in calls:
        errors = []
        for lib, net in ((T.prune, theirs), (U.prune, ours)):
            name, args = call(net)
            if name == "global_unstructured":
                args = (args[0], lib.LnStructured)
                with pytest.raises(TypeError, match='Only "unstructured" PRUNING_TYPE supported'):
                    lib.global_unstructured(*args, amount=1, n=2)
                continue
            with pytest.raises(Exception) as error:
                getattr(lib, name)(*args)
            errors.append(error.value)
        if errors:
            assert type(errors[0]) is type(errors[1]) and str(errors[0]).replace("torch.", "sluice.") == str(errors[1])
        assert not U.prune.is_pruned(ours) and list(ours.state_dict()) == ["weight", "bias"]


@pytest.mark.parametrize("bias, affine", list(itertools.product([True, False], repeat=2)))
def test_fusion_of_batch_norms(bias, affine):
    cases = [("Conv2d", (2, 3, 2), "BatchNorm2d", (4, 2, 5, 5), {}), ("Linear", (2, 3), "BatchNorm1d", (4, 2), {}),
             ("ConvTranspose1d", (2, 3, 2), "BatchNorm1d", (4, 2, 5), {"transpose": True})]
    for kind, args, norm, shape, form in cases:
        if kind == "Linear" and not affine:
            continue  # torch's needs both
        (theirs, ours), (b, x) = pair(kind, *args, bias=bias), pair(norm, 3, affine=affine)
        a = torch.randn(shape)
        b(theirs(a)), x(ours(to_sl(a)))
        if affine:
            with torch.no_grad():
                b.weight.uniform_(0.5, 2), b.bias.uniform_(-1, 1)
            x.load_state_dict({n: v.numpy() for n, v in b.state_dict().items()})
        fuse = "fuse_linear_bn_eval" if kind == "Linear" else "fuse_conv_bn_eval"
        with pytest.raises(AssertionError, match="Fusion only for eval!"):
            getattr(U, fuse)(ours, x)
        fused, other = getattr(U, fuse)(ours.eval(), x.eval(), **form), getattr(T, fuse)(theirs.eval(), b.eval(), **form)
        alike(fused, other)
        assert_same(fused(to_sl(a)), b(theirs(a)), 1e-4)
    with pytest.raises(AssertionError, match="To fuse, linear.out_features == bn.num_features or bn.num_features == 1"):
        U.fuse_linear_bn_eval(nn.Linear(1, 3).eval(), nn.BatchNorm1d(2).eval())


def test_vectors_of_parameters():
    theirs, ours = pair("Linear", 3, 2)
    v, w = U.parameters_to_vector(ours.parameters()), T.parameters_to_vector(theirs.parameters())
    assert_same(v, w)
    v.sum().backward()
    assert ours.weight.grad.sum().item() == 6
    weight = ours.weight
    U.vector_to_parameters(sl.arange(8.0), ours.parameters()), T.vector_to_parameters(torch.arange(8.0), theirs.parameters())
    alike(ours, theirs)
    assert ours.weight is weight
    with pytest.raises(TypeError, match="expected sluice.Tensor, but got: list"):
        U.vector_to_parameters([1.0], ours.parameters())
    with pytest.raises(RuntimeError, match=r"shape '\[2, 3\]' is invalid for input of size 3"):
        U.vector_to_parameters(sl.ones(3), ours.parameters())


def test_skip_init_draws_nothing():
    sl.manual_seed(1)
    assert U.skip_init(nn.LSTMCell, 3, 4, bias=False).weight_hh.shape == (16, 4)
    assert U.skip_init(nn.MultiheadAttention, 4, 2).in_proj_weight.shape == (12, 4) and U.skip_init(nn.Linear, 2, 3, device="cpu").bias.shape == (3,)
    drawn = sl.rand(3)
    sl.manual_seed(1)
    assert sl.equal(drawn, sl.rand(3))
    with pytest.raises(RuntimeError, match="Module must support a 'device' arg to skip initialization"):
        U.skip_init(nn.ReLU)
    with pytest.raises(TypeError):
        U.skip_init(3)


def tied(N):
    net = N.Sequential(N.Linear(3, 3), N.BatchNorm1d(3), N.Linear(3, 3))
    net[2].weight = net[0].weight
    return net


def test_calls_with_other_parameters():
    torch.manual_seed(2), sl.manual_seed(2)
    theirs, ours = tied(torch.nn), tied(nn)
    before = {n: p.tolist() for n, p in ours.state_dict().items()}
    a = torch.randn(4, 3)
    given = {"0.weight": torch.randn(3, 3, requires_grad=True), "2.bias": torch.randn(3), "1.running_mean": torch.randn(3)}
    for form in ({}, {"tie_weights": False}):
        mine = {n: to_sl(t) for n, t in given.items()}
        with torch.no_grad():
            yours = {n: t.clone().requires_grad_(t.requires_grad) for n, t in given.items()}
        y, b = U.stateless.functional_call(ours, mine, to_sl(a), **form), torch.func.functional_call(theirs, yours, a, **form)
        assert_same(y, b)
        y.sum().backward(), b.sum().backward()
        assert_same(mine["0.weight"].grad, yours["0.weight"].grad, 1e-3)
        assert_same(mine["1.running_mean"], yours["1.running_mean"])  # written in place
    after = {n: p.tolist() for n, p in ours.state_dict().items() if "num_batches" not in n and "running_var" not in n}
    assert all(before[n] == v for n, v in after.items())
    assert_same(U.stateless.functional_call(ours.eval(), ({"0.bias": sl.ones(3)}, {"2.bias": sl.zeros(3)}), (to_sl(a),)),
                torch.func.functional_call(theirs.eval(), ({"0.bias": torch.ones(3)}, {"2.bias": torch.zeros(3)}), (a,)), 1e-3)
    line = nn.Linear(2, 2)
    assert sl.equal(U.stateless.functional_call(line, {}, sl.ones(1, 2)), line(sl.ones(1, 2)))


def test_bad_calls_with_other_parameters():
    theirs, ours = pair("Linear", 2, 2)
    calls = [lambda L: (({"nope": L.zeros(2)},), {"strict": True}), lambda L: (({"weight": L.zeros(2, 2)},), {"strict": True}),
             lambda L: (({"weight": 3},), {}), lambda L: (([{"weight": L.zeros(2, 2)}, {"weight": L.zeros(2, 2)}],), {}),
             lambda L: (({"a.b": L.zeros(2)},), {}), lambda L: ((3,), {}), lambda L: (([3],), {})]
    for call in calls:
        errors = []
        for lib, net in ((torch, theirs), (sl, ours)):
            args, kwargs = call(lib)
            with pytest.raises(Exception) as error:
                (U.stateless if lib is sl else torch.func).functional_call(net, *args, lib.zeros(1, 2), **kwargs)
            errors.append(error.value)
        assert type(errors[0]) is type(errors[1])
        assert str(errors[0]).replace("torch.", "sluice.") == str(errors[1])
    with pytest.raises(ValueError, match="got multiple values for keys .*which are tied"):
        U.stateless.functional_call(tied(nn), {"0.weight": sl.zeros(3, 3), "2.weight": sl.ones(3, 3)}, sl.zeros(2, 3))


class Inner(nn.Graph):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def build(self, x, weight):
        return U.stateless.functional_call(self.net, {"weight": weight}, x)


def test_calls_with_other_parameters_in_graphs():
    net, x, w = nn.Linear(3, 3), sl.randn(2, 3), sl.randn(3, 3)
    weight = net.weight
    assert sl.allclose(Inner(net)(x, w), U.stateless.functional_call(net, {"weight": w}, x)) and net.weight is weight


INITS = [("uniform_", (-2, 3)), ("normal_", (1, 2)), ("constant_", (4,)), ("xavier_uniform_", (2.0,)), ("xavier_normal_", ()),
         ("kaiming_uniform_", (0.1, "fan_out")), ("kaiming_normal_", (0, "fan_in", "relu")), ("ones_", ()), ("zeros_", ()), ("eye_", ()),
         ("orthogonal_", ()), ("orthogonal_", (2.0,)), ("sparse_", (0.3,)), ("sparse_", (0.1, 1.0)), ("dirac_", ()), ("dirac_", (2,)),
         ("trunc_normal_", ()), ("trunc_normal_", (0, 1, -0.5, 1.0)), ("trunc_normal_", (1, 2, 3, 3.5)), ("trunc_normal_", (0, 1, 1, 3))]


@pytest.mark.parametrize("name, args", INITS, ids=str)
def test_first_values_are_torchs(name, args):
    shapes = [(4, 3, 5), (2, 2, 3, 4), (4, 1, 2, 2, 3)] if name == "dirac_" else [(8, 30), (30, 8), (5, 5)]
    if name not in ("eye_", "sparse_", "dirac_"):
        shapes.append((6, 4, 3))
    for shape in shapes:
        torch.manual_seed(1), sl.manual_seed(1)
        a, x = torch.empty(shape), nn.Parameter(sl.empty(shape))
        assert getattr(nn.init, name)(x, *args) is x and x.requires_grad and x.is_leaf
        getattr(torch.nn.init, name)(a, *args)
        assert_same(x, a, 1e-4 if name == "orthogonal_" else 2e-6)
        assert sl.rand(1).item() == pytest.approx(torch.rand(1).item())  # as many draws


def test_gains_and_refusals_of_init():
    for name, param in [("linear", None), ("conv2d", None), ("conv_transpose3d", None), ("sigmoid", None), ("tanh", None), ("relu", None),
                        ("leaky_relu", None), ("leaky_relu", 0.3), ("selu", None)]:
        assert nn.init.calculate_gain(name, param) == torch.nn.init.calculate_gain(name, param)
    calls = [("calculate_gain", ("x",)), ("calculate_gain", ("leaky_relu", "x")), ("eye_", ((2, 2, 2),)), ("dirac_", ((2, 2),)),
             ("dirac_", ((3, 2, 2), 2)), ("xavier_normal_", ((3,),)), ("kaiming_normal_", ((3, 2), 0, "x")), ("orthogonal_", ((3,),)),
             ("sparse_", ((3, 2, 2), 0.1)), ("kaiming_uniform_", ((3, 2), 0, "fan_in", "x"))]
    for name, args in calls:
        errors = []
        for lib in (torch, sl):
            given = [lib.empty(args[0]) if isinstance(args[0], tuple) else args[0], *args[1:]]
            with pytest.raises(ValueError) as error:
                getattr(lib.nn.init, name)(*given)
            errors.append(str(error.value))
        assert errors[1].endswith(": " + errors[0])
    with pytest.warns(UserWarning, match="Initializing zero-element tensors is a no-op"):
        nn.init.kaiming_normal_(sl.empty(0, 3))
    with pytest.warns(UserWarning, match="mean is more than 2 std from"):
        nn.init.trunc_normal_(sl.empty(3), 5.0, 1.0, -1.0, 1.0)
    with pytest.warns(FutureWarning, match="`nn.init.uniform` is now deprecated in favor of `nn.init.uniform_`"):
        nn.init.uniform(sl.empty(3))
    g = sl.Generator().manual_seed(3)
    assert sl.equal(nn.init.normal_(sl.empty(4), generator=g), nn.init.normal_(sl.empty(4), generator=sl.Generator().manual_seed(3)))
    assert nn.init.orthogonal_(sl.empty(0, 3)).shape == (0, 3)
    q = nn.init.orthogonal_(sl.empty(3, 5, dtype=sl.float64)).numpy()
    assert np.allclose(q @ q.T, np.eye(3))
