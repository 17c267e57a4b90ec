"""Batch 1, and other dims of one element, whose strides mean nothing: layers whose inputs and gradients come as views leave them.

An input of one image is a slice, an expanded or a transposed tensor, and behind the layer stands a view, as flatten(2).transpose(1, 2)
behind the convolutional stem of a vision transformer: gradients come back with any stride in dims of size 1. torch is the oracle."""

import itertools
import os

import numpy as np
import pytest
import torch

import sluice as sl

# Inputs: a tensor of `shape`, whose first dim is 1, from an array of its values.

def contiguous(m, a):
    return m.tensor(a)


def sliced(m, a):
    return m.tensor(np.concatenate([a, a + 1, a]))[2:3]


def unsqueezed(m, a):
    return m.tensor(np.moveaxis(a[0], 0, -1).copy()).movedim(-1, 0)[None]


def expanded(m, a):
    return m.tensor(a[0]).expand(1, *a.shape[1:])


def channels_last(m, a):
    return m.tensor(np.moveaxis(a, 1, -1).copy()).movedim(-1, 1)


def batch_last(m, a):
    return m.tensor(np.moveaxis(a, 0, -1).copy()).movedim(-1, 0)


def reversed_axes(m, a):
    return m.tensor(a.T.copy()).permute(*reversed(range(a.ndim)))


def stepped(m, a):
    return m.tensor(np.repeat(a, 5, axis=0))[::7]


INPUTS = [contiguous, sliced, unsqueezed, expanded, channels_last, batch_last, reversed_axes, stepped]

# Behind the layer stands a view of its result, which is then multiplied by numbers that differ.


def as_it_is(y):
    return y


def tokens(y):
    return y.flatten(min(2, y.ndim - 1)).transpose(-2, -1) if y.ndim > 1 else y[:, None]


def all_reversed(y):
    return y.permute(*reversed(range(y.ndim)))


def batch_behind(y):
    return y.movedim(0, -1)


def without_batch(y):
    return y[0].transpose(0, -1) if y.ndim > 2 else y[0]


def rows(y):
    return y.movedim(1, -1).reshape(-1, y.shape[1]) if y.ndim > 1 else y.reshape(1, -1)


VIEWS = [tokens, as_it_is, all_reversed, batch_behind, without_batch, rows]


def lazy(f):
    """A function of x and parameters, by name in `m.nn.functional`."""
    return lambda m, x, *p: f(m.nn.functional, x, *p)


def attend(F, x):
    q = x.unflatten(-1, (2, -1)).transpose(1, 2)
    return F.scaled_dot_product_attention(q, q * 2, q + 1).transpose(1, 2).flatten(2)


def recurrent(kind):
    def call(m, x, w_ih, w_hh, b):
        net = getattr(m.nn, kind)(x.shape[-1], w_hh.shape[1], batch_first=True, dtype=x.dtype)
        names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
        return m.func.functional_call(net, dict(zip(names, (w_ih, w_hh, b, b * 2))), (x,))[0]

    return call


IMAGE, LINE, VOLUME, SEQUENCE = (1, 4, 6, 6), (1, 4, 7), (1, 2, 3, 4, 3), (1, 5, 8)

# Name: function, shape of the input, shapes of the parameters.
LAYERS = {
    "batch_norm": (lazy(lambda F, x, w, b: F.batch_norm(x, None, None, w, b, training=True)), IMAGE, [(4,), (4,)]),
    "batch_norm of lines": (lazy(lambda F, x, w, b: F.batch_norm(x, None, None, w, b, training=True)), LINE, [(4,), (4,)]),
    "batch_norm of volumes": (lazy(lambda F, x, w, b: F.batch_norm(x, None, None, w, b, training=True)), VOLUME, [(2,), (2,)]),
    "batch_norm in evaluation": (lazy(lambda F, x, w, b: F.batch_norm(x, w.detach() * 0.1, w.detach() ** 2 + 1, w, b)), IMAGE, [(4,), (4,)]),
    "batch_norm, relu": (lazy(lambda F, x, w, b: F.relu(F.batch_norm(x, None, None, w, b, training=True) + x)), IMAGE, [(4,), (4,)]),
    "conv2d, batch_norm": (lazy(lambda F, x, k, w, b: F.batch_norm(F.conv2d(x, k), None, None, w, b, training=True)), IMAGE,
                           [(5, 4, 3, 3), (5,), (5,)]),
    "group_norm": (lazy(lambda F, x, w, b: F.group_norm(x, 2, w, b)), IMAGE, [(4,), (4,)]),
    "instance_norm": (lazy(lambda F, x, w, b: F.instance_norm(x, None, None, w, b)), IMAGE, [(4,), (4,)]),
    "layer_norm": (lazy(lambda F, x, w, b: F.layer_norm(x, (8,), w, b)), SEQUENCE, [(8,), (8,)]),
    "layer_norm of channels": (lazy(lambda F, x, w, b: F.layer_norm(x.permute(0, 2, 3, 1), (4,), w, b).permute(0, 3, 1, 2)), IMAGE, [(4,), (4,)]),
    "rms_norm": (lazy(lambda F, x, w: F.rms_norm(x, (8,), w)), SEQUENCE, [(8,)]),
    "local_response_norm": (lazy(lambda F, x: F.local_response_norm(x, 3)), IMAGE, []),
    "normalize": (lazy(lambda F, x: F.normalize(x, dim=1)), IMAGE, []),
    "conv1d": (lazy(lambda F, x, w, b: F.conv1d(x, w, b, padding=1)), LINE, [(3, 4, 3), (3,)]),
    "conv2d": (lazy(lambda F, x, w, b: F.conv2d(x, w, b, padding=1)), IMAGE, [(3, 4, 3, 3), (3,)]),
    "conv2d of patches": (lazy(lambda F, x, w, b: F.conv2d(x, w, b, stride=3)), IMAGE, [(8, 4, 3, 3), (8,)]),
    "conv2d of all": (lazy(lambda F, x, w, b: F.conv2d(x, w, b)), IMAGE, [(5, 4, 6, 6), (5,)]),
    "conv2d to a channel": (lazy(lambda F, x, w, b: F.conv2d(x, w, b, padding=1)), IMAGE, [(1, 4, 3, 3), (1,)]),
    "conv2d of points": (lazy(lambda F, x, w, b: F.conv2d(x, w, b)), IMAGE, [(3, 4, 1, 1), (3,)]),
    "conv2d in depth": (lazy(lambda F, x, w, b: F.conv2d(x, w, b, padding=1, groups=4)), IMAGE, [(4, 1, 3, 3), (4,)]),
    "conv3d": (lazy(lambda F, x, w, b: F.conv3d(x, w, b, padding=1)), VOLUME, [(3, 2, 3, 3, 3), (3,)]),
    "conv_transpose1d": (lazy(lambda F, x, w, b: F.conv_transpose1d(x, w, b, stride=2)), LINE, [(4, 3, 3), (3,)]),
    "conv_transpose2d": (lazy(lambda F, x, w, b: F.conv_transpose2d(x, w, b, stride=2)), IMAGE, [(4, 3, 2, 2), (3,)]),
    "conv_transpose3d": (lazy(lambda F, x, w, b: F.conv_transpose3d(x, w, b)), VOLUME, [(2, 3, 2, 2, 2), (3,)]),
    "max_pool1d": (lazy(lambda F, x: F.max_pool1d(x, 2)), LINE, []),
    "max_pool2d": (lazy(lambda F, x: F.max_pool2d(x, 3, 2, 1)), IMAGE, []),
    "max_pool2d of all": (lazy(lambda F, x: F.max_pool2d(x, 6)), IMAGE, []),
    "max_pool3d": (lazy(lambda F, x: F.max_pool3d(x, 2)), VOLUME, []),
    "avg_pool2d": (lazy(lambda F, x: F.avg_pool2d(x, 3, 2, 1)), IMAGE, []),
    "avg_pool3d": (lazy(lambda F, x: F.avg_pool3d(x, 2)), VOLUME, []),
    "adaptive_avg_pool2d": (lazy(lambda F, x: F.adaptive_avg_pool2d(x, (3, 1))), IMAGE, []),
    "adaptive_max_pool2d": (lazy(lambda F, x: F.adaptive_max_pool2d(x, 1)), IMAGE, []),
    "interpolate nearest": (lazy(lambda F, x: F.interpolate(x, scale_factor=2)), IMAGE, []),
    "interpolate bilinear": (lazy(lambda F, x: F.interpolate(x, size=(9, 1), mode="bilinear")), IMAGE, []),
    "interpolate bicubic": (lazy(lambda F, x: F.interpolate(x, size=(4, 9), mode="bicubic", align_corners=True)), IMAGE, []),
    "pixel_shuffle": (lazy(lambda F, x: F.pixel_shuffle(x, 2)), IMAGE, []),
    "unfold": (lazy(lambda F, x: F.unfold(x, 3, padding=1)), IMAGE, []),
    "grid_sample": (lazy(lambda F, x, g: F.grid_sample(x, g.tanh().expand(1, 3, 2, 2), align_corners=False)), IMAGE, [(3, 2, 2)]),
    "pad": (lazy(lambda F, x: F.pad(x, (1, 2, 0, 1), mode="reflect")), IMAGE, []),
    "softmax": (lambda m, x: m.softmax(x, -1), SEQUENCE, []),
    "softmax of channels": (lambda m, x: m.softmax(x, 1), IMAGE, []),
    "log_softmax": (lambda m, x: m.log_softmax(x, 1), SEQUENCE, []),
    "linear": (lazy(lambda F, x, w, b: F.linear(x, w, b)), SEQUENCE, [(3, 8), (3,)]),
    "linear to one": (lazy(lambda F, x, w, b: F.linear(x, w, b)), SEQUENCE, [(1, 8), (1,)]),
    "linear of a row": (lazy(lambda F, x, w, b: F.linear(x, w, b)), (1, 8), [(3, 8), (3,)]),
    "matmul": (lambda m, x, w: m.matmul(x, w), SEQUENCE, [(8, 3)]),
    "matmul of itself": (lambda m, x: m.matmul(x, x.mT), SEQUENCE, []),
    "matmul by one": (lambda m, x, w: m.matmul(x[:, :1], w), SEQUENCE, [(1, 8, 3)]),
    "bmm": (lambda m, x, w: m.bmm(x, w), SEQUENCE, [(1, 8, 3)]),
    "einsum": (lambda m, x, w: m.einsum("bik,bjk->bij", x, w), SEQUENCE, [(1, 3, 8)]),
    "attention": (lazy(attend), SEQUENCE, []),
    "attention of one": (lazy(lambda F, x: attend(F, x[:, 2:3])), SEQUENCE, []),
    "rnn": (recurrent("RNN"), SEQUENCE, [(3, 8), (3, 3), (3,)]),
    "gru": (recurrent("GRU"), SEQUENCE, [(9, 8), (9, 3), (9,)]),
    "lstm": (recurrent("LSTM"), SEQUENCE, [(12, 8), (12, 3), (12,)]),
    "cat": (lambda m, x, y: m.cat([x, y * x, x], 1), IMAGE, [(1, 4, 6, 6)]),
    "cat of batches": (lambda m, x, y: m.cat([x, y], 0), IMAGE, [(1, 4, 6, 6)]),
    "stack": (lambda m, x, y: m.stack([x, y], 1), SEQUENCE, [(1, 5, 8)]),
    "sum": (lambda m, x: x.sum((0, 2)), IMAGE, []),
    "sum, dims kept": (lambda m, x: x * x.sum((2, 3), keepdim=True), IMAGE, []),
    "mean": (lambda m, x: x.mean((2, 3)), IMAGE, []),
    "amax": (lambda m, x: x.amax(1), IMAGE, []),
    "var": (lambda m, x: x.var(1), IMAGE, []),
    "logsumexp": (lambda m, x: x.logsumexp(1), IMAGE, []),
    "norm": (lambda m, x: x.norm(dim=(1, 2)), IMAGE, []),
    "prod": (lambda m, x: x.prod(1), IMAGE, []),
    "cumsum": (lambda m, x: x.cumsum(1), IMAGE, []),
    "cumsum of batches": (lambda m, x: x.cumsum(0), SEQUENCE, []),
    "cumprod": (lambda m, x: x.cumprod(2), IMAGE, []),
    "sort": (lambda m, x: x.sort(1)[0], IMAGE, []),
    "topk": (lambda m, x: x.topk(2, 1)[0], IMAGE, []),
    "flip": (lambda m, x: x.flip(0, 2), IMAGE, []),
    "roll": (lambda m, x: x.roll((1, 2), (0, 3)), IMAGE, []),
    "gather": (lambda m, x: x.gather(1, m.tensor([[[2] * 8, [0] * 8]])), SEQUENCE, []),
    "index_select": (lambda m, x: x.index_select(1, m.tensor([2, 0, 2])), IMAGE, []),
    "index": (lambda m, x: x[:, m.tensor([1, 3, 1])], IMAGE, []),
    "index of one": (lambda m, x: x[m.tensor([0]), m.tensor([2])], IMAGE, []),
    "index_add": (lambda m, x: x.index_add(1, m.tensor([1, 1]), x[:, :2] * 3), IMAGE, []),
    "scatter_add": (lambda m, x: (x * 2).scatter_add(1, m.tensor([[[2] * 8, [0] * 8]]), x[:, :2]), SEQUENCE, []),
    "embedding": (lambda m, x, w: m.nn.functional.embedding(m.tensor([[2, 0, 1, 2, 2]]), w) * x, SEQUENCE, [(3, 8)]),
    "where": (lambda m, x, y: m.where(x > 0, x * 2, y), IMAGE, [(1, 4, 1, 1)]),
    "gelu": (lazy(lambda F, x: F.gelu(x) * x), IMAGE, []),
    "prelu": (lazy(lambda F, x, w: F.prelu(x, w)), IMAGE, [(4,)]),
    "glu": (lazy(lambda F, x: F.glu(x, 1)), IMAGE, []),
    "written slice": (lambda m, x: written(x), IMAGE, []),
}


def written(x):
    y = x * 1
    y[:, 1:2].mul_(3)
    y[0].add_(1)
    return y


def numbers(shape, seed):
    """Distinct ones, so that nothing is chosen by rounding."""
    draw = np.random.default_rng(seed)
    return (draw.permutation(int(np.prod(shape))).reshape(shape) / np.prod(shape) * 4 - 2 + draw.uniform(0, 1e-3, shape)).astype(np.float32)


def weighted(m, y):
    count = int(np.prod(tuple(y.shape)))
    return (y * m.linspace(0.5, 1.5, count).reshape(tuple(y.shape)).to(y.dtype)).pow(2).mean()


def result(m, layer, x, parameters):
    """torch's layers get contiguous inputs and gradients: its batch norm of one image takes others for those of other elements."""
    y = layer(m, x, *parameters)
    if m is torch and y.requires_grad:
        y.register_hook(lambda grad: grad.clone(memory_format=torch.contiguous_format))
    return y


def by_backward(run, x, parameters):
    y, loss = run(x, *parameters)
    loss.backward()
    return [y, *(p.grad for p in (x, *parameters))]


def compiled(run, x, parameters):
    return by_backward(sl.compile(run), x, parameters)


def as_graph(run, x, parameters):
    class Step(sl.nn.Graph):
        def build(self, x, *parameters):
            for t in (x, *parameters):
                t.requires_grad_()
            return by_backward(run, x, parameters)

    return Step()(x.detach(), *(p.detach() for p in parameters))


MODES = {"eager": by_backward, "compile": compiled, "graph": as_graph}


def check(name, made, view, mode):
    layer, shape, shapes = LAYERS[name]
    seed = sorted(LAYERS).index(name)
    x, values = numbers(shape, seed), [numbers(s, seed + 100 + i) for i, s in enumerate(shapes)]

    def run_of(m):
        def run(x, *parameters):
            y = result(m, layer, x, parameters)
            return y, weighted(m, view(y))

        return run

    def arguments(m, made):
        return made(m, x).detach().requires_grad_(), [m.tensor(v, requires_grad=True) for v in values]

    theirs = by_backward(run_of(torch), *arguments(torch, contiguous))
    ours = MODES[mode](run_of(sl), *arguments(sl, made))
    assert len(ours) == len(theirs)
    for i, (a, b) in enumerate(zip(ours, theirs)):
        b = b.detach().numpy()
        what = f"{name}, input {made.__name__}, view {view.__name__}, {mode}: {'result' if i == 0 else f'gradient {i - 1}'}"
        scale = np.abs(b).max() if b.size else 0
        np.testing.assert_allclose(a.detach().numpy(), b, rtol=2e-5, atol=2e-5 * scale, err_msg=what)


def cases(name, mode, everything):
    """Pairs of an input and a view: all of them, or each once in eager mode, and a few in the others."""
    if everything:
        return list(itertools.product(INPUTS, VIEWS))
    at = sorted(LAYERS).index(name)
    pairs = [(made, VIEWS[(i + at) % len(VIEWS)]) for i, made in enumerate(INPUTS)]
    if mode == "eager":
        return pairs
    return [(contiguous, tokens), pairs[(at + (mode == "graph")) % len(pairs)]]


@pytest.mark.soak
@pytest.mark.parametrize("mode", MODES)
def test_layers_of_one_sample_are_torchs(mode, repetitions, count):
    done = 0
    for name in LAYERS:
        for made, view in cases(name, mode, repetitions(False, True)):
            check(name, made, view, mode)
            done += 1
    count(f"dims of one, {mode}, up to {os.environ.get('SLUICE_MAX_ISA', 'all')}", done, "cases")


def by_definition(x, g, w, mean, var, training):
    """Gradients of x, weight and bias of a batch norm, in float64."""
    axes = (0, 2, 3)
    column = lambda v: v.reshape(1, -1, 1, 1)  # noqa: E731
    scale = 1 / np.sqrt(column(var) + 1e-5)
    normal = (x - column(mean)) * scale
    dx = column(w) * scale * g
    if training:
        dx = column(w) * scale * (g - g.mean(axes, keepdims=True) - normal * (g * normal).mean(axes, keepdims=True))
    return dx, (g * normal).sum(axes), g.sum(axes)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("batch", [1, 2])
def test_gradients_behind_a_norm_whose_result_becomes_tokens(mode, training, batch):
    """As behind the stem of a vision transformer. torch is no oracle: at batch 1 its own gradients are of other elements."""
    x = np.random.default_rng(0).standard_normal((batch, 8, 10, 10)).astype(np.float32)
    w, b = np.linspace(0.5, 1.5, 8, dtype=np.float32), np.linspace(-1, 1, 8, dtype=np.float32)
    mean = x.mean((0, 2, 3)) if training else np.linspace(-0.1, 0.1, 8, dtype=np.float32)
    var = x.var((0, 2, 3)) if training else np.linspace(0.5, 2, 8, dtype=np.float32)
    weights = np.random.default_rng(1).uniform(0, 1, (batch, 100, 8)).astype(np.float32)

    def run(x, w, b):
        given = (None, None) if training else (sl.tensor(mean), sl.tensor(var))
        y = sl.nn.functional.batch_norm(x, *given, w, b, training=training)
        return y, (tokens(y) * sl.tensor(weights)).sum()

    leaves = [sl.tensor(v, requires_grad=True) for v in (x, w, b)]
    ours = MODES[mode](run, leaves[0], leaves[1:])[1:]
    g = np.moveaxis(weights, 1, 2).reshape(x.shape)
    right = by_definition(*(v.astype(np.float64) for v in (x, g, w, mean, var)), training)
    for got, wanted in zip(ours, right):
        np.testing.assert_allclose(got.numpy(), wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())


def test_strides_are_told_as_torch_tells_them():
    for made in INPUTS:
        ours, theirs = made(sl, numbers(IMAGE, 0)), made(torch, numbers(IMAGE, 0))
        assert ours.stride() == theirs.stride(), made.__name__
        assert tokens(ours).stride() == tokens(theirs).stride(), made.__name__


@pytest.mark.parametrize("shape", [(0, 2, 2), (2, 0, 3), (3, 2, 0)])
@pytest.mark.parametrize("view", [lambda x: x.mT, lambda x: x.permute(2, 1, 0), lambda x: x.movedim(0, -1)])
def test_a_view_of_nothing_is_a_result_of_a_graph(shape, view):
    """Whatever the strides of a tensor without elements, it is contiguous."""

    class Seen(sl.nn.Graph):
        def build(self, x):
            return view(x)

    assert tuple(Seen()(sl.empty(shape)).shape) == tuple(view(torch.empty(shape)).shape)
    assert view(sl.empty(shape)).is_contiguous() and view(torch.empty(shape)).is_contiguous()
