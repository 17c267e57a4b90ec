"""torch.nn.utils.parametrizations and the hooks before them, against torch's."""

import copy
import pickle

import pytest
import torch
import torch.nn.utils.prune
from conftest import assert_same, to_sl

import sluice as sl
import sluice.nn as nn
from alike import T, U, alike, graphed_alike, pair, trained_alike

pytestmark = pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated:FutureWarning",
                                        "ignore:`torch.nn.utils.stateless:FutureWarning")

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
