"""Recurrent nets and torch.nn.utils.rnn against torch's: values, gradients, names, errors; eager and in graphs."""

import copy
import itertools
import pickle

import numpy as np
import pytest
import torch
from conftest import assert_same, to_sl

import sluice as sl
import sluice.nn as nn
from sluice.nn.utils import rnn as U

T = torch.nn.utils.rnn
pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported:UserWarning")


def pair(kind, *args, **kwargs):
    """The same net of torch and of ours, from the same seed."""
    torch.manual_seed(3), sl.manual_seed(3)
    return getattr(torch.nn, kind)(*args, **kwargs), getattr(nn, kind)(*args, **kwargs)


def listed(state):
    return [state] if not isinstance(state, (tuple, list)) else list(state)


def double(shape):
    a = torch.randn(shape, requires_grad=True)
    return a, to_sl(a)


def loss_of(output, state):
    return (output * output).sum() + sum((s * s * s).sum() for s in listed(state))


KINDS = [("RNN", {}), ("RNN", {"nonlinearity": "relu"}), ("LSTM", {}), ("LSTM", {"proj_size": 3}), ("GRU", {})]
FORMS = [dict(num_layers=n, bidirectional=b, bias=w, batch_first=f)
         for n, b, w, f in itertools.product([1, 3], [False, True], [True, False], [False, True])]


@pytest.mark.parametrize("kind, extra", KINDS, ids=str)
def test_nets_equal_torchs(kind, extra):
    for form in FORMS:
        theirs, ours = pair(kind, 4, 5, **form, **extra)
        assert repr(ours) == repr(theirs)
        assert [tuple(p.shape) for row in ours.all_weights for p in row] == [tuple(p.shape) for row in theirs.all_weights for p in row]
        for (n, p), (m, q) in zip(ours.state_dict().items(), theirs.state_dict().items(), strict=True):
            assert n == m
            assert_same(p, q, 1e-6)  # the same draws in the same order
        a, x = double((6, 3, 4))
        rows = form["num_layers"] * (1 + form["bidirectional"])
        batch = 6 if form["batch_first"] else 3
        initial = [double((rows, batch, extra.get("proj_size", 5)))] + [double((rows, batch, 5))] * (kind == "LSTM")
        for given in (False, True):
            b0, x0 = (tuple(s[i] for s in initial) if kind == "LSTM" else initial[0][i] for i in (0, 1))
            b, y = theirs(a, b0) if given else theirs(a), ours(x, x0) if given else ours(x)
            assert_same(y[0], b[0])
            for p, q in zip(listed(y[1]), listed(b[1]), strict=True):
                assert_same(p, q)
            loss_of(*y).backward(), loss_of(*b).backward()
        assert_same(x.grad, a.grad, 1e-4)
        for q, p in initial:
            assert_same(p.grad, q.grad, 1e-4)
        for p, q in zip(ours.parameters(), theirs.parameters()):
            assert_same(p.grad, q.grad, 1e-3)


@pytest.mark.parametrize("kind, extra", KINDS, ids=str)
def test_unbatched_inputs(kind, extra):
    for form in FORMS[::3]:
        theirs, ours = pair(kind, 4, 5, **form, **extra)
        a, x = double((6, 4))
        b, y = theirs(a), ours(x)
        b, y = theirs(a, b[1]), ours(x, y[1])  # states are unbatched, too
        assert_same(y[0], b[0])
        for p, q in zip(listed(y[1]), listed(b[1]), strict=True):
            assert_same(p, q)


@pytest.mark.parametrize("kind, extra", KINDS, ids=str)
@pytest.mark.parametrize("lengths", [(5, 3, 3, 1), (2, 5, 1, 4), (3, 3), (4,)], ids=str)
def test_packed_sequences(kind, extra, lengths):
    theirs, ours = pair(kind, 4, 5, 2, bidirectional=True, **extra)
    a, x = double((5, len(lengths), 4))
    state = [double((4, len(lengths), extra.get("proj_size", 5)))] + [double((4, len(lengths), 5))] * (kind == "LSTM")
    results = []
    for i, (net, lib, input) in enumerate(((theirs, T, a), (ours, U, x))):
        packed = lib.pack_padded_sequence(input, list(lengths), enforce_sorted=False)
        output, last = net(packed, tuple(s[i] for s in state) if kind == "LSTM" else state[0][i])
        padded, back = lib.pad_packed_sequence(output, padding_value=0.5, total_length=6)
        assert back.tolist() == list(lengths) and output.batch_sizes.tolist() == packed.batch_sizes.tolist()
        loss_of(padded, last).backward()
        results.append((padded, *listed(last), output.data, input.grad, *(s[i].grad for s in state),
                        *(p.grad for p in net.parameters())))
    for q, p in zip(*results, strict=True):
        assert_same(p, q, 1e-3)


class Trains(nn.Graph):
    def __init__(self, net, lengths=None):
        super().__init__()
        self.net, self.lengths = net, lengths

    def build(self, x):
        given = x if self.lengths is None else U.pack_padded_sequence(x, self.lengths, enforce_sorted=False)
        output, state = self.net(given)
        if self.lengths is not None:
            output, _ = U.pad_packed_sequence(output)
        loss_of(output, state).backward()
        return output, state, [p.grad for p in self.net.parameters()]


@pytest.mark.parametrize("kind, extra", KINDS, ids=str)
@pytest.mark.parametrize("lengths", [None, [2, 4, 3]], ids=str)
def test_nets_in_graphs(kind, extra, lengths):
    theirs, ours = pair(kind, 3, 4, 2, bidirectional=True, **extra)
    a = torch.randn(4, 3, 3)
    output, state, grads = Trains(ours, lengths)(to_sl(a))
    b = theirs(a if lengths is None else T.pack_padded_sequence(a, lengths, enforce_sorted=False))
    b = b if lengths is None else (T.pad_packed_sequence(b[0])[0], b[1])
    loss_of(*b).backward()
    assert_same(output, b[0])
    for p, q in zip(listed(state), listed(b[1]), strict=True):
        assert_same(p, q)
    for p, q in zip(grads, theirs.parameters(), strict=True):
        assert_same(p, q.grad, 1e-3)


def test_dropout_lies_between_layers():
    theirs, ours = pair("LSTM", 3, 4, 3, dropout=1.0, bidirectional=True)
    a = torch.randn(5, 2, 3)
    assert_same(ours(to_sl(a))[0], theirs(a)[0])  # layers after the first see zeros
    assert_same(ours.eval()(to_sl(a))[0], theirs.eval()(a)[0])
    halved = nn.GRU(3, 64, 2, dropout=0.5)
    x = sl.randn(4, 2, 3)
    assert not sl.equal(halved(x)[0], halved(x)[0]) and sl.equal(halved.eval()(x)[0], halved(x)[0])
    with pytest.warns(UserWarning, match="non-zero dropout expects num_layers greater than 1"):
        nn.GRU(3, 4, dropout=0.5)


CELLS = [("RNNCell", {}), ("RNNCell", {"nonlinearity": "relu", "bias": False}), ("LSTMCell", {}), ("LSTMCell", {"bias": False}),
         ("GRUCell", {}), ("GRUCell", {"bias": False})]


@pytest.mark.parametrize("kind, extra", CELLS, ids=str)
def test_cells_equal_torchs(kind, extra):
    theirs, ours = pair(kind, 3, 4, **extra)
    assert repr(ours) == repr(theirs)
    for (n, p), (m, q) in zip(ours.state_dict().items(), theirs.state_dict().items(), strict=True):
        assert n == m
        assert_same(p, q, 1e-6)
    for shape in ((2, 3), (3,), (0, 3)):
        a, x = double(shape)
        b, y = theirs(a), ours(x)
        b, y = theirs(a, b), ours(x, y)
        for p, q in zip(listed(y), listed(b), strict=True):
            assert_same(p, q)
        sum((q * q).sum() for q in listed(b)).backward(), sum((p * p).sum() for p in listed(y)).backward()
        assert_same(x.grad, a.grad, 1e-4)


def test_gradients_of_gradients():
    for kind in ("RNN", "LSTM", "GRU"):
        theirs, ours = pair(kind, 3, 4)
        a, x = double((3, 2, 3))
        g = torch.autograd.grad((theirs(a)[0] ** 2).sum(), a, create_graph=True)[0]
        (h,) = sl.autograd.grad((ours(x)[0] ** 2).sum(), x, create_graph=True)
        (g * g).sum().backward(), (h * h).sum().backward()
        assert_same(x.grad, a.grad, 1e-4)


SEQUENCES = [[(3, 2), (1, 2), (4, 2)], [(2,), (2,)], [(1, 2, 3)], [(0, 2), (2, 2)]]


@pytest.mark.parametrize("shapes", SEQUENCES, ids=str)
def test_padding_and_unpadding(shapes):
    a = [torch.randn(s, requires_grad=True) for s in shapes]
    x = [to_sl(t) for t in a]
    for first, side in itertools.product([False, True], ["left", "right"]):
        b, y = T.pad_sequence(a, first, 0.5, side), U.pad_sequence(x, first, 0.5, side)
        assert_same(y, b)
        if side == "right":
            lengths = [len(t) for t in a]
            back = zip(U.unpad_sequence(y, sl.tensor(lengths), first), T.unpad_sequence(b, torch.tensor(lengths), first), strict=True)
            for p, q in back:
                assert_same(p, q)
    (y * y).sum().backward(), (b * b).sum().backward()
    for p, q in zip(x, a):
        assert_same(p.grad, q.grad)
    if all(len(t) for t in a):
        b, y = T.pack_sequence(a, enforce_sorted=False), U.pack_sequence(x, enforce_sorted=False)
        for p, q in zip(y, b, strict=True):
            assert_same(p, q)
        for p, q in zip(U.unpack_sequence(y), T.unpack_sequence(b), strict=True):
            assert_same(p, q)
        assert_same(U.pack_sequence([s.long() for s in x], False).data, T.pack_sequence([s.long() for s in a], False).data)


def test_packed_sequences_convert():
    p = U.pack_padded_sequence(sl.randn(2, 3, 4), [3, 1], batch_first=True)
    assert p.double().data.dtype is sl.float64 and p.half().data.dtype is sl.float16 and p.int().data.dtype is sl.int32
    assert p.cpu() is p and p.to(sl.float32) is p and not p.is_cuda and not p.is_pinned() and p.sorted_indices is None
    assert isinstance(p.double(), U.PackedSequence) and p.batch_sizes.dtype is sl.int64
    data, batch_sizes, sorted_indices, unsorted_indices = p
    again = U.PackedSequence((data, batch_sizes))
    assert sl.equal(again.data, data) and unsorted_indices is None and sorted_indices is None
    assert U.invert_permutation(sl.tensor([2, 0, 1])).tolist() == [1, 2, 0] and U.invert_permutation(None) is None
    assert copy.deepcopy(p).batch_sizes.tolist() == pickle.loads(pickle.dumps(p)).batch_sizes.tolist() == [2, 1, 1]


REFUSED = [
    lambda N, L, U: N.LSTM(3, 4)(L.zeros(2, 3, 5)), lambda N, L, U: N.LSTM(3, 4)(L.zeros(2, 2, 3), (L.zeros(2, 2, 4), L.zeros(1, 2, 4))),
    lambda N, L, U: N.LSTM(3, 4)(L.zeros(2, 2, 3), (L.zeros(1, 2, 4), L.zeros(1, 3, 4))), lambda N, L, U: N.GRU(3, 4)(L.zeros(2, 2, 2, 3)),
    lambda N, L, U: N.LSTM(3, 4)(L.zeros(2, 3), (L.zeros(1, 1, 4), L.zeros(1, 1, 4))),
    lambda N, L, U: N.LSTM(3, 4)(L.zeros(2, 2, 3), (L.zeros(1, 4), L.zeros(1, 4))),
    lambda N, L, U: N.GRU(3, 4)(L.zeros(2, 2, 3), L.zeros(1, 4)), lambda N, L, U: N.GRU(3, 4)(L.zeros(2, 3), L.zeros(1, 1, 4)),
    lambda N, L, U: N.RNN(3, 4)(L.zeros(2, 2, 3), L.zeros(2, 2, 4)), lambda N, L, U: N.RNN(3, 4)(L.zeros(2, 2, 3).double()),
    lambda N, L, U: N.RNN(3, 4)(L.zeros(0, 2, 3)), lambda N, L, U: N.RNN(3, 4, nonlinearity="x"), lambda N, L, U: N.GRU(3, 4, proj_size=2),
    lambda N, L, U: N.LSTM(0, 4), lambda N, L, U: N.LSTM(3, 4, proj_size=4), lambda N, L, U: N.LSTM(3, 0), lambda N, L, U: N.LSTM(3, 4, 0),
    lambda N, L, U: N.LSTM(3, 4, dropout=2), lambda N, L, U: N.LSTM(3, 4.0), lambda N, L, U: N.LSTM(3, 4, proj_size=-1),
    lambda N, L, U: N.RNNBase("x", 3, 4), lambda N, L, U: N.LSTM(3, 4, 2, nonlinearity="relu"),
    lambda N, L, U: N.LSTMCell(3, 4)(L.zeros(1, 2, 3)), lambda N, L, U: N.LSTMCell(3, 4)(L.zeros(2, 5)),
    lambda N, L, U: N.LSTMCell(3, 4)(L.zeros(2, 3), (L.zeros(1, 4), L.zeros(1, 4))),
    lambda N, L, U: N.GRUCell(3, 4)(L.zeros(2, 3), L.zeros(2, 5)), lambda N, L, U: N.GRUCell(3, 4)(L.zeros(2, 3), L.zeros(4)),
    lambda N, L, U: N.RNNCell(3, 4, nonlinearity="x")(L.zeros(2, 3)),
    lambda N, L, U: U.pack_padded_sequence(L.zeros(3, 2, 1), [2, 3]), lambda N, L, U: U.pack_padded_sequence(L.zeros(3, 2, 1), [3, 0]),
    lambda N, L, U: U.pack_padded_sequence(L.zeros(3, 2, 1), [3]), lambda N, L, U: U.pack_padded_sequence(L.zeros(3, 0, 1), []),
    lambda N, L, U: U.pad_sequence([]), lambda N, L, U: U.pad_sequence([L.zeros(2)], padding_side="x"), lambda N, L, U: U.pad_sequence(3),
    lambda N, L, U: U.pad_packed_sequence(U.pack_sequence([L.zeros(3, 2)]), total_length=2), lambda N, L, U: U.PackedSequence(L.zeros(3)),
    lambda N, L, U: U.pack_sequence([L.zeros(2), L.zeros(3)]),
]


@pytest.mark.parametrize("call", REFUSED)
def test_errors_are_torchs(call):
    with pytest.raises(Exception) as theirs:
        call(torch.nn, torch, T)
    with pytest.raises(Exception) as ours:
        call(nn, sl, U)
    assert isinstance(ours.value, type(theirs.value))
    text = str(theirs.value).replace("torch.", "sluice.")
    if not isinstance(theirs.value, TypeError) and "arg of type" not in text:
        assert str(ours.value) == text


def test_what_only_we_refuse():
    with pytest.raises(TypeError, match=r"LSTM: hx is Tensor; must be a tuple of two tensors"):
        nn.LSTM(3, 4)(sl.zeros(2, 2, 3), sl.zeros(1, 2, 4))
    with pytest.raises(RuntimeError, match="a length is 4; the input has 3 steps"):
        U.pack_padded_sequence(sl.zeros(3, 1, 1), [4])

    with pytest.raises(ValueError, match="unpad_sequence: got 1 lengths; there are 2 sequences"):
        U.unpad_sequence(sl.zeros(3, 2), [1])

    class Packs(nn.Graph):
        def build(self, x, lengths):
            return U.pack_padded_sequence(x, lengths).data

    with pytest.raises(RuntimeError, match="lengths is an input of the graph.*pack inside of build"):
        Packs()(sl.zeros(2, 1, 1), sl.tensor([2]))


def test_weights_follow_conversions_and_copies():
    net = nn.LSTM(3, 4, 2)
    net.flatten_parameters()
    again = pickle.loads(pickle.dumps(copy.deepcopy(net).double()))
    x = np.random.default_rng(0).standard_normal((2, 2, 3))
    assert_same(again(sl.tensor(x))[0].float(), torch.from_numpy(net(sl.tensor(x).float())[0].detach().numpy()))
    net.weight_hh_l0 = nn.Parameter(sl.zeros(16, 4))
    assert net._flat_weights[1] is net.weight_hh_l0 and net.all_weights[0][1] is net.weight_hh_l0


class Runs(nn.Graph):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def build(self, x):
        return self.net(x)


def test_batches_of_several_sizes_in_one_plan():
    for net, dim in ((nn.LSTM(3, 4, 2, bidirectional=True), 1), (nn.GRU(3, 4, batch_first=True), 0)):
        graph = Runs(net)
        graph.config.set_dims({"x": {dim: sl.Dim("batch", max=4)}})
        for n in (3, 4, 1):
            x = sl.randn(n, 5, 3).transpose(0, dim)
            output, state = graph(x)
            expected, last = net(x)
            assert sl.allclose(output, expected, atol=1e-6)
            for p, q in zip(listed(state), listed(last), strict=True):
                assert p.shape[1] == n and sl.allclose(p, q, atol=1e-6)


@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU"])
def test_complex_numbers(name):
    results = []
    for m in (torch, sl):
        m.manual_seed(0)
        net = getattr(m.nn, name)(3, 4, num_layers=2, bidirectional=True, dtype=m.complex64)
        x = m.tensor([[[1 + 2j, 0.5, -1j], [2, 1j, 0.25 - 1j]]], dtype=m.complex64).requires_grad_()
        y = net(x)[0]
        m.view_as_real(y).sum().backward()
        results.append((y, x.grad, net.weight_hh_l0.grad))
    for theirs, ours in zip(*results):
        assert_same(ours, theirs, 1e-4)
