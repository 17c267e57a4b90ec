"""sluice.compile over functions and modules as torch programs have them: values, gradients and effects are torch's."""

import collections
import dataclasses

import numpy
import pytest
import torch

import sluice as sl

GLOBAL_SCALE = 3


def of(T):
    """The corpus, written for `T`, torch or sluice: name -> (function, shapes of tensors that require grad)."""
    F, nn = T.nn.functional, T.nn
    Pair = collections.namedtuple("Pair", "first second")

    @dataclasses.dataclass
    class Batch:
        x: object
        scale: float = 2.0

    def branch(x, y, flag=True):
        return x.sin() + y if flag else x.cos() - y

    def loop(x, y):
        for i in range(3):
            x = x * (i + 1) + y
        return x

    def nest(x, y):
        return {"sum": x + y, "pair": Pair(x * y, [x - y, None]), "n": 5}

    def closure(x, y):
        def inner(z):
            return z * GLOBAL_SCALE + x
        return inner(y)

    def in_place_inside(x, y):
        z = x * 2
        z.add_(y).mul_(0.5)
        z[0] = 1
        return z

    def views(x, y):
        z = (x + y).reshape(-1)
        return z[1:] * z[:-1], z.view(2, -1).t().contiguous()

    def batch(x, y):
        b = Batch(x)
        return dataclasses.replace(b, x=b.x * b.scale + y).x

    def mask(x, y):
        return T.where(x > 0, x, y).masked_fill(y > 1, 0.0)

    def norm(x, y):
        return F.layer_norm(x, (4,)) + F.normalize(y, dim=-1)

    def attention(x, y):
        q, k = x.reshape(1, 1, 3, 4), y.reshape(1, 1, 3, 4)
        return F.scaled_dot_product_attention(q, k, q + k).squeeze()

    def soft(x, y):
        return F.gelu(x) @ F.softmax(y, dim=-1).T

    def no_grad(x, y):
        with T.no_grad():
            scale = x.abs().mean()
        return x * scale + y.detach()

    def unused(x, y):
        return x.exp()

    def several(x, y):
        return x.max(-1).values, (x * y).sum(), x.argmax(-1)

    def comprehension(x, y):
        return T.stack([f(x) for f in (T.sin, T.cos, lambda v: v * y)]).sum(0)

    def loss(x, y):
        return F.mse_loss(x, y) + F.cross_entropy(x, T.arange(3)) + F.smooth_l1_loss(x, y)

    def tries(x, y):
        try:
            return x.relu() + y
        finally:
            x = None

    def keyword(x, y, *, power=2, **rest):
        return x.abs() ** power + y * rest.get("more", 1)

    def einsum(x, y):
        return T.einsum("ij,kj->ik", x, y).cumsum(0)

    def indices(x, y):
        return x[:, [0, 2]] + y[T.tensor([2, 1, 0])][:, 1:3]

    def chunks(x, y):
        a, b = T.cat([x, y], 1).chunk(2, dim=1)
        return a.tanh() * b.sigmoid()

    def shapes(x, y):
        rows, columns = x.shape
        return x.view(columns, rows) / rows + y.numel()

    def recursion(x, y, n=3):
        return x if n == 0 else recursion(x * y, y, n - 1)

    def inner_grad(x, y):
        (g,) = T.autograd.grad((x ** 3).sum(), [x], create_graph=True)
        return g * y

    class Twice(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.exp()

        @staticmethod
        def backward(ctx, grad):
            return 2 * grad * ctx.saved_tensors[0].exp()

    def own_function(x, y):
        return Twice.apply(x * y)

    functions = [branch, loop, nest, closure, in_place_inside, views, batch, mask, norm, attention, soft, no_grad, unused, several, comprehension,
                 loss, tries, keyword, einsum, indices, chunks, shapes, recursion, inner_grad, own_function]
    return {f.__name__: f for f in functions}


def tensors_of(nest):
    if isinstance(nest, (sl.Tensor, torch.Tensor)):
        return [nest]
    if isinstance(nest, dict):
        return [t for v in nest.values() for t in tensors_of(v)]
    return [t for v in nest for t in tensors_of(v)] if isinstance(nest, (list, tuple)) else []


def near(ours, theirs, what):
    assert tuple(ours.shape) == tuple(theirs.shape), what
    assert str(ours.dtype).rpartition(".")[2] == str(theirs.dtype).rpartition(".")[2], what
    numpy.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-4, atol=1e-5, err_msg=what)


@pytest.mark.parametrize("name", list(of(torch)))
def test_functions(name):
    ours, theirs = sl.compile(of(sl)[name], fullgraph=True), of(torch)[name]
    generator = numpy.random.default_rng(0)
    for _ in range(2):
        arrays = [generator.standard_normal((3, 4)).astype("float32") for _ in range(2)]
        a = [sl.tensor(array, requires_grad=True) for array in arrays]
        b = [torch.tensor(array, requires_grad=True) for array in arrays]
        made, expected = tensors_of(ours(*a)), tensors_of(theirs(*b))
        assert len(made) == len(expected)
        for m, e in zip(made, expected):
            near(m, e, name)
            assert m.requires_grad == e.requires_grad
        sum((m * m).sum() for m in made if m.requires_grad).backward()
        sum((e * e).sum() for e in expected if e.requires_grad).backward()
        for m, e in zip(a, b):
            assert (m.grad is None) == (e.grad is None)
            if e.grad is not None:
                near(m.grad, e.grad, f"gradient of {name}")
    counts = sl.compile.stats(ours)
    assert counts["compiles"] == 1 and counts["eager_calls"] == 0


def modules_of(T):
    """name -> (module, shape of its input, or its dtype)."""
    nn, F = T.nn, T.nn.functional

    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6)
            self.norm = nn.LayerNorm(6)
            self.register_buffer("steps", T.zeros(()))

        def forward(self, x):
            if self.training:
                self.steps += 1
            return x + self.b(F.relu(self.a(self.norm(x))))

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
            self.norms = nn.ModuleList([nn.LayerNorm(8), nn.LayerNorm(8)])
            self.mlp = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))

        def forward(self, x):
            h = self.norms[0](x)
            x = x + self.attention(h, h, h, need_weights=False)[0]
            return x + self.mlp(self.norms[1](x))

    class Recurrent(nn.Module):
        def __init__(self, kind):
            super().__init__()
            self.rnn, self.head = getattr(nn, kind)(5, 7, num_layers=2, batch_first=True), nn.Linear(7, 3)

        def forward(self, x):
            return self.head(self.rnn(x)[0][:, -1])

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(11, 6)
            self.head = nn.Linear(6, 11, bias=False)
            self.head.weight = self.table.weight

        def forward(self, x):
            return self.head(self.table(x)).log_softmax(-1)

    return {"mlp": (nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)), (4, 6)),
            "cnn": (nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                                  nn.Linear(64, 3)), (4, 3, 8, 8)),
            "residual": (Residual(), (4, 6)), "block": (Block(), (2, 5, 8)), "lstm": (Recurrent("LSTM"), (3, 4, 5)),
            "gru": (Recurrent("GRU"), (3, 4, 5)), "tied": (Tied(), None),
            "encoder": (nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), (2, 4, 8)),
            "group norm": (nn.Sequential(nn.Conv1d(4, 6, 3), nn.GroupNorm(2, 6), nn.SiLU()), (2, 4, 9)),
            "transposed": (nn.Sequential(nn.ConvTranspose2d(2, 3, 3, stride=2), nn.InstanceNorm2d(3), nn.Tanh()), (2, 2, 4, 4))}


@pytest.mark.parametrize("name", list(modules_of(torch)))
def test_modules_train_and_evaluate(name):
    (net, shape), (theirs, _) = modules_of(sl)[name], modules_of(torch)[name]
    theirs.load_state_dict({k: torch.tensor(v.numpy()) for k, v in net.state_dict().items()})
    ours = sl.compile(net, fullgraph=True)
    sgd, other = sl.optim.SGD(ours.parameters(), 0.05, momentum=0.9), torch.optim.SGD(theirs.parameters(), 0.05, momentum=0.9)
    generator = numpy.random.default_rng(1)
    for step in range(6):
        training = step != 3
        ours.train(training), theirs.train(training)
        array = generator.integers(0, 11, (4, 5)) if shape is None else generator.standard_normal(shape).astype("float32")
        a, b = sl.tensor(array), torch.tensor(array)
        made, expected = ours(a), theirs(b)
        near(made, expected, name)
        if training:
            sgd.zero_grad(), other.zero_grad()
            made.square().mean().backward(), expected.square().mean().backward()
            sgd.step(), other.step()
    for key, value in theirs.state_dict().items():
        numpy.testing.assert_allclose(net.state_dict()[key].numpy(), value.numpy(), rtol=1e-3, atol=1e-4, err_msg=key)
    counts = sl.compile.stats(ours)
    assert counts["compiles"] == 2 and counts["backward_plans"] == 1 and counts["eager_calls"] == 0
