"""torch.nn.utils against torch's: pruning, fusion, vectors, calls with other parameters."""

import itertools

import pytest
import torch
import torch.nn.utils.prune
from conftest import assert_same, to_sl

import sluice as sl
import sluice.nn as nn
from alike import T, U, alike, graphed_alike, pair, trained_alike

pytestmark = pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated:FutureWarning",
                                        "ignore:`torch.nn.utils.stateless:FutureWarning")

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
