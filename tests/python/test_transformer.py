"""Attention of several heads and transformers against torch's: values, gradients, masks, names, errors; eager and in graphs."""

import copy
import itertools
import math

import pytest
import torch
from conftest import assert_same, to_sl

import sluice as sl
import sluice.nn as nn

pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor is True:UserWarning", "ignore:Support for mismatched:UserWarning",
                                        "ignore:The PyTorch API of nested:UserWarning")


def pair(kind, *args, **kwargs):
    """The same net of torch and of ours, from the same seed."""
    torch.manual_seed(3), sl.manual_seed(3)
    theirs, ours = getattr(torch.nn, kind)(*args, **kwargs), getattr(nn, kind)(*args, **kwargs)
    assert [n for n, _ in ours.named_modules()] == [n for n, _ in theirs.named_modules()]
    for (n, p), (m, q) in zip(ours.state_dict().items(), theirs.state_dict().items(), strict=True):
        assert n == m
        assert_same(p, q, 1e-6)  # the same draws in the same order
    with torch.no_grad():  # biases are 0 at first
        for p in theirs.parameters():
            p.add_(torch.randn_like(p) * 0.1)
    ours.load_state_dict({n: p.numpy() for n, p in theirs.state_dict().items()})
    return theirs, ours


def both(shape, requires_grad=True):
    a = torch.randn(shape, requires_grad=requires_grad)
    return a, to_sl(a)


def gradients_agree(ours, theirs, nets, inputs, tolerance=1e-3):
    (ours * ours).sum().backward(), (theirs * theirs).sum().backward()
    for a, x in inputs:
        assert_same(x.grad, a.grad, tolerance)
    for p, q in zip(nets[1].parameters(), nets[0].parameters(), strict=True):
        assert (p.grad is None) == (q.grad is None)
        if p.grad is not None:
            assert_same(p.grad, q.grad, tolerance)


def masks(kind, n, heads, length, steps):
    """(key_padding_mask, attn_mask) of torch; no row is left without a key."""
    g = torch.Generator().manual_seed(1)
    padding = torch.rand(n, steps, generator=g) < 0.3
    padding[:, 0] = False
    attn2 = torch.rand(length, steps, generator=g) < 0.3
    attn2[:, 0] = False
    attn3 = torch.rand(n * heads, length, steps, generator=g) < 0.3
    attn3[:, :, 0] = False
    numbers = torch.randn(length, steps, generator=g)
    return {"none": (None, None), "padding": (padding, None), "attn 2D": (None, attn2), "attn 3D": (padding, attn3),
            "numbers": (padding, numbers), "numbers only": (torch.randn(n, steps, generator=g), numbers)}[kind]


def given(t):
    return None if t is None else to_sl(t)


MASKS = ("none", "padding", "attn 2D", "attn 3D", "numbers", "numbers only")
FORMS = [{}, {"bias": False}, {"kdim": 5, "vdim": 7}, {"add_bias_kv": True}, {"add_zero_attn": True}, {"batch_first": True},
         {"add_bias_kv": True, "add_zero_attn": True, "bias": True, "kdim": 5, "batch_first": True}]


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_attention_equals_torchs(form, mask):
    theirs, ours = nets = pair("MultiheadAttention", 8, 2, **form)
    assert repr(ours) == repr(theirs)
    inputs = [both((4, 3, 8)), both((6, 3, form.get("kdim", 8))), both((6, 3, form.get("vdim", 8)))]
    padding, attn = masks(mask, 3, 2, 4, 6)
    for i, (need, average) in enumerate(((True, True), (True, False), (False, True))):
        kw = {"need_weights": need, "average_attn_weights": average}
        args = [tuple(t.transpose(0, 1) if form.get("batch_first") else t for t in pair_) for pair_ in inputs]
        b = theirs(*(a for a, _ in args), padding, attn_mask=attn, **kw)
        y = ours(*(x for _, x in args), given(padding), attn_mask=given(attn), **kw)
        assert_same(y[0], b[0])
        assert (y[1] is None) == (b[1] is None)
        if need:
            assert_same(y[1], b[1])
        if i != 1:
            gradients_agree(y[0], b[0], nets, inputs)


@pytest.mark.parametrize("form", [{}, {"batch_first": True}, {"add_bias_kv": True}], ids=str)
def test_unbatched_and_self_attention(form):
    theirs, ours = nets = pair("MultiheadAttention", 8, 4, **form)
    for shape, other in (((5, 8), (5, 8)), ((5, 8), (3, 8)), ((2, 3, 8), (2, 3, 8))):
        (a, x), (c, z) = both(shape), both(other)
        for key in (False, True):
            b, y = theirs(a, c if key else a, c if key else a), ours(x, z if key else x, z if key else x)
            for p, q in zip(y, b, strict=True):
                assert_same(p, q)
        gradients_agree(y[0], b[0], nets, [(a, x), (c, z)])


def test_causal_attention_and_rows_that_see_nothing():
    theirs, ours = pair("MultiheadAttention", 8, 2)
    a, x = both((4, 2, 8))
    mask = torch.nn.Transformer.generate_square_subsequent_mask(4)
    assert_same(nn.Transformer.generate_square_subsequent_mask(4), mask)
    assert nn.Transformer.generate_square_subsequent_mask(2, dtype=sl.float64).dtype is sl.float64
    for need in (True, False):
        b = theirs(a, a, a, attn_mask=mask, is_causal=True, need_weights=need)
        y = ours(x, x, x, attn_mask=to_sl(mask), is_causal=True, need_weights=need)
        assert_same(y[0], b[0])
    nothing = torch.zeros(4, 4, dtype=torch.bool)
    nothing[1] = True
    for need in (True, False):  # nan, or 0
        b = theirs(a, a, a, attn_mask=nothing, need_weights=need)[0]
        assert_same(ours(x, x, x, attn_mask=to_sl(nothing), need_weights=need)[0], b)


LAYERS = list(itertools.product([False, True], [False, True], [True, False], ["relu", "gelu"]))


@pytest.mark.parametrize("batch_first, norm_first, bias, activation", LAYERS)
def test_layers_equal_torchs(batch_first, norm_first, bias, activation):
    form = dict(batch_first=batch_first, norm_first=norm_first, bias=bias, activation=activation, dropout=0.0)
    src, tgt = [both((3, 5, 8) if batch_first else (5, 3, 8)), both((3, 4, 8) if batch_first else (4, 3, 8))]
    padding, mask = masks("padding", 3, 2, 5, 5)[0], masks("attn 2D", 3, 2, 5, 5)[1]
    theirs, ours = nets = pair("TransformerEncoderLayer", 8, 2, 16, **form)
    for p, m in ((None, None), (padding, mask), (None, mask)):
        y, b = ours(src[1], given(m), given(p)), theirs(src[0], m, p)
        assert_same(y, b)
    gradients_agree(y, b, nets, [src])
    theirs, ours = nets = pair("TransformerDecoderLayer", 8, 2, 16, **form)
    causal = torch.nn.Transformer.generate_square_subsequent_mask(4)
    y = ours(tgt[1], src[1].detach(), to_sl(causal), None, None, to_sl(padding), tgt_is_causal=True)
    b = theirs(tgt[0], src[0].detach(), causal, None, None, padding, tgt_is_causal=True)
    assert_same(y, b)
    gradients_agree(y, b, nets, [tgt])


def arguments():
    """The arguments of a Transformer: (src, tgt) and masks, of torch."""
    padding = torch.zeros(3, 5, dtype=torch.bool)
    padding[1, 3:] = True
    causal = torch.nn.Transformer.generate_square_subsequent_mask(4)
    return [both((3, 5, 8)), both((3, 4, 8))], {"tgt_mask": causal, "src_key_padding_mask": padding, "memory_key_padding_mask": padding}


@pytest.mark.parametrize("norm_first", [False, True])
def test_transformers_equal_torchs(norm_first):
    theirs, ours = nets = pair("Transformer", 8, 2, 2, 2, 16, 0.0, batch_first=True, norm_first=norm_first)
    assert repr(ours).replace(", bias=True)", ")") == repr(theirs).replace(", bias=True)", ")")
    inputs, kw = arguments()
    y = ours(*(x for _, x in inputs), **{n: to_sl(m) for n, m in kw.items()})
    b = theirs(*(a for a, _ in inputs), **kw)
    assert_same(y, b)
    gradients_agree(y, b, nets, inputs)
    ours.eval(), theirs.eval()
    assert_same(ours(*(x for _, x in inputs), **{n: to_sl(m) for n, m in kw.items()}), b)
    a, x = both((5, 8), False)  # without a batch
    assert_same(ours(x, x[:3]), theirs(a, a[:3]))
    stack = copy.deepcopy(ours.encoder.layers[0])
    alone = nn.TransformerEncoder(stack, 2)
    assert alone.norm is None and len(alone.layers) == 2 and alone.layers[0] is not stack
    one = nn.Transformer(8, 2, custom_encoder=alone, custom_decoder=ours.decoder)
    assert one.encoder is alone


class Encodes(nn.Graph):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def build(self, src, padding):
        with sl.no_grad():
            return self.net(src, src_key_padding_mask=padding)


@pytest.mark.parametrize("form", [{}, {"nhead": 1}, {"activation": "gelu"}, {"norm_first": True}, {"batch_first": False}, {"bias": False},
                                  {"enable_nested_tensor": False}, {"activation": "tanh"}, {"activation": "GELU"}], ids=str)
def test_padding_of_encoders_in_evaluation(form):
    nested = {"enable_nested_tensor": form.get("enable_nested_tensor", True)}
    form = {"nhead": 2, "batch_first": True} | {n: v for n, v in form.items() if n != "enable_nested_tensor"}
    nets = []
    for N, tanh in ((torch.nn, torch.tanh), (nn, sl.tanh)):
        own = form | {"tanh": {"activation": tanh}, "GELU": {"activation": N.GELU()}}.get(form.get("activation"), {})
        layer = N.TransformerEncoderLayer(8, dim_feedforward=16, **own)
        nets.append(N.TransformerEncoder(layer, 2, N.LayerNorm(8), **nested).eval())
    theirs, ours = nets
    ours.load_state_dict(theirs.state_dict())
    at_ends = torch.tensor([[0, 0, 0, 1], [0, 0, 1, 1], [0, 0, 0, 0]]).bool()
    graph = Encodes(ours)
    for padding in (at_ends, at_ends.flip(1), torch.zeros(3, 4).bool()):
        a = torch.randn((3, 4, 8) if form["batch_first"] else (4, 3, 8))
        b = theirs(a, src_key_padding_mask=padding)  # with gradients
        assert_same(ours(to_sl(a), src_key_padding_mask=to_sl(padding)), b)
        with torch.no_grad(), sl.no_grad():
            b, y = theirs(a, src_key_padding_mask=padding), ours(to_sl(a), src_key_padding_mask=to_sl(padding))
        assert_same(y, b)
        assert_same(graph(to_sl(a), to_sl(padding)), b)


class Trains(nn.Graph):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def build(self, src, tgt, masks):
        output = self.net(src, tgt, **masks)
        (output * output).sum().backward()
        return output, [p.grad for p in self.net.parameters()]


def test_transformers_in_graphs():
    theirs, ours = pair("Transformer", 8, 2, 1, 1, 16, 0.0, batch_first=True)
    inputs, kw = arguments()
    y, grads = Trains(ours)(*(x.detach() for _, x in inputs), {n: to_sl(m) for n, m in kw.items()})
    b = theirs(*(a for a, _ in inputs), **kw)
    (b * b).sum().backward()
    assert_same(y, b)
    for p, q in zip(grads, theirs.parameters(), strict=True):
        assert_same(p, q.grad, 1e-3)


def test_dropout_while_training():
    net = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.5)
    x = sl.randn(5, 3, 8)
    assert not sl.equal(net(x), net(x)) and sl.equal(net.eval()(x), net(x))
    _, weights = nn.MultiheadAttention(8, 2, dropout=1.0)(x, x, x)
    assert not weights.any()
    with pytest.warns(UserWarning, match="Support for mismatched src_key_padding_mask and src_mask is deprecated"):
        net(x, sl.zeros(5, 5), sl.zeros(3, 5, dtype=sl.bool))


REFUSED = [
    lambda N, z: N.MultiheadAttention(8, 3), lambda N, z: N.MultiheadAttention(0, 2), lambda N, z: N.MultiheadAttention(8, 0),
    lambda N, z: N.MultiheadAttention(8, 2)(z(2, 3, 4, 8), z(2, 3, 4, 8), z(2, 3, 8)),
    lambda N, z: N.MultiheadAttention(8, 2)(z(2, 3, 8), z(2, 8), z(2, 8)),
    lambda N, z: N.MultiheadAttention(8, 2)(z(3, 8), z(3, 2, 8), z(3, 2, 8)),
    lambda N, z: N.MultiheadAttention(8, 2)(z(2, 3, 7), z(2, 3, 7), z(2, 3, 7)),
    lambda N, z: N.MultiheadAttention(8, 2)(z(2, 3, 8), z(4, 3, 8), z(5, 3, 8)),
    lambda N, z: N.MultiheadAttention(8, 2)(z(2, 3, 8), z(4, 3, 8), z(4, 3, 8), attn_mask=z(3, 3)),
    lambda N, z: N.MultiheadAttention(8, 2)(z(2, 3, 8), z(4, 3, 8), z(4, 3, 8), attn_mask=z(2, 2, 4)),
    lambda N, z: N.MultiheadAttention(8, 2)(z(2, 3, 8), z(4, 3, 8), z(4, 3, 8), attn_mask=z(4)),
    lambda N, z: N.MultiheadAttention(8, 2)(z(2, 3, 8), z(4, 3, 8), z(4, 3, 8), key_padding_mask=z(3, 3)),
    lambda N, z: N.MultiheadAttention(8, 2)(z(2, 3, 8), z(4, 3, 8), z(4, 3, 8), key_padding_mask=z(3, 4).int()),
    lambda N, z: N.MultiheadAttention(8, 2)(z(2, 3, 8), z(4, 3, 8), z(4, 3, 8), is_causal=True),
    lambda N, z: N.MultiheadAttention(8, 2)(z(2, 8), z(4, 8), z(4, 8), key_padding_mask=z(3, 4)),
    lambda N, z: N.MultiheadAttention(8, 2)(z(2, 8), z(4, 8), z(4, 8), attn_mask=z(3, 2, 4)),
    lambda N, z: N.TransformerEncoderLayer(8, 2, activation="x"), lambda N, z: N.Transformer(8, 2, 1, 1)(z(2, 3, 8), z(2, 4, 8)),
    lambda N, z: N.Transformer(8, 2, 1, 1)(z(2, 3, 7), z(2, 3, 8)), lambda N, z: N.Transformer(8, 2, 1, 1)(z(2, 8), z(2, 3, 8)),
    lambda N, z: N.functional.multi_head_attention_forward(z(2, 1, 8), z(2, 1, 8), z(2, 1, 8), 8, 2, z(24, 8), None, z(1, 1, 8), None,
                                                           False, 0.0, z(8, 8), None),
    lambda N, z: N.functional.multi_head_attention_forward(z(2, 1, 8), z(2, 1, 8), z(2, 1, 8), 8, 2, z(24, 8), None, None, None, False,
                                                           0.0, z(8, 8), None, static_k=z(3, 2, 4)),
]


@pytest.mark.parametrize("call", REFUSED)
def test_errors_are_torchs(call):
    with pytest.raises(Exception) as theirs:
        call(torch.nn, lambda *shape: torch.zeros(shape))
    with pytest.raises(Exception) as ours:
        call(nn, lambda *shape: sl.zeros(shape))
    assert isinstance(ours.value, type(theirs.value))
    assert str(ours.value) == str(theirs.value).replace("torch.", "sluice.")


def test_static_keys_and_values():
    theirs, ours = pair("MultiheadAttention", 8, 2)
    a, x = both((3, 2, 8), False)
    k, v = both((4, 5, 4), False), both((4, 5, 4), False)

    def run(F, net, x, k, v):
        return F.multi_head_attention_forward(x, x, x, 8, 2, net.in_proj_weight, net.in_proj_bias, None, None, False, 0.0,
                                              net.out_proj.weight, net.out_proj.bias, static_k=k, static_v=v)

    for p, q in zip(run(nn.functional, ours, x, k[1], v[1]), run(torch.nn.functional, theirs, a, k[0], v[0]), strict=True):
        assert_same(p, q)
    assert math.isclose(1.0, run(nn.functional, ours, x, k[1], v[1])[1][0, 0].sum().item(), rel_tol=1e-6)
