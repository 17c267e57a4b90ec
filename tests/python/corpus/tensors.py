"""Ways in which tensors are made, shaped, indexed, reduced and joined."""

import torch
from torch import nn
from torch.nn import functional as F

TABLE = torch.arange(12.0).reshape(3, 4)


class Scaled(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = nn.Parameter(torch.full((4,), float(scale)))
        self.register_buffer("shift", torch.ones(4))

    def forward(self, x, *, twice=False):
        x = x * self.scale + self.shift
        return self.forward(x) if twice else x


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleDict({"a": Scaled(2), "b": Scaled(3)})

    def forward(self, x):
        return sum(part(x) for part in self.parts.values())


class Shift(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, n):
        ctx.n = n
        return x + n

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.n, None


SCALED, GATE = Scaled(2), Gate()


def makes_zeros(x, y):
    return torch.zeros_like(x) + torch.ones(4) + y.new_full((4,), 2.0)


def makes_ranges(x, y):
    return x * torch.arange(x.shape[1]) + torch.linspace(0, 1, 4)


def makes_a_diagonal(x, y):
    return torch.eye(3) @ x + torch.diag(torch.ones(3)) @ y


def makes_from_lists(x, y):
    return x * torch.tensor([1.0, 2.0, 3.0, 4.0]) + torch.tensor(2)


def makes_on_its_device(x, y):
    return x + torch.ones(4, device=x.device, dtype=x.dtype)


def uses_a_global_tensor(x, y):
    return x * TABLE


def expands(x, y):
    return x[:, None].expand(3, 2, 4) + y.unsqueeze(1)


def permutes(x, y):
    return x.t().contiguous().view(2, 6).permute(1, 0).flatten()


def reshapes_by_minus_one(x, y):
    return x.reshape(-1, 2) + y.view(6, -1)


def slices_with_steps(x, y):
    return x[::2, 1:] + y[1:, :3][:, -3:].flip(0)


def indexes_by_ellipsis(x, y):
    return x[..., 0] + y[None, ..., -1]


def indexes_by_lists(x, y):
    return x[[0, 2]][:, [3, 1]]


def indexes_by_a_tensor(x, y):
    return x[torch.tensor([2, 0, 1]), torch.tensor([0, 1, 2])]


def indexes_by_a_mask(x, y):
    return x[x > 0].sum()


def nonzero(x, y):
    return (x > 0).nonzero()


def gathers(x, y):
    return x.gather(1, y.argsort(1))


def sorts(x, y):
    values, order = x.sort(dim=1, descending=True)
    return values, order


def top_k(x, y):
    return torch.topk(x, 2, dim=-1)


def unique(x, y):
    return (x * 2).round().unique().numel() * y


def reduces(x, y):
    return x.sum(), x.mean(0), x.std(1), x.amax(), y.prod(1), y.norm()


def reduces_with_names(x, y):
    result = x.max(dim=1)
    return result.values, result.indices


def cumulates(x, y):
    return x.cumsum(0), y.cumprod(1), torch.logsumexp(x, 1)


def joins(x, y):
    return torch.cat([x, y]), torch.stack((x, y), -1), torch.hstack([x, y])


def parts(x, y):
    a, b = x.chunk(2, 1)
    c, d = y.tensor_split(2, dim=0)
    return a * b, c.sum(0) + d.sum(0)


def pads(x, y):
    return F.pad(x, (1, 2), value=3.0), F.pad(y, (0, 0, 1, 1))


def compares(x, y):
    return x > y, (x == y) | (x < 0), ~(x >= 0)


def chooses(x, y):
    return torch.where(x > 0, x, y), torch.maximum(x, y), x.clip(-0.5, 0.5)


def casts(x, y):
    return x.double() * 2, y.to(torch.int64), x.half().float(), x.bool()


def promotes(x, y):
    return x + torch.arange(4), (x > 0) * 2, x * torch.tensor(2.0, dtype=torch.float64)


def divides(x, y):
    return x.detach() // 0.5, x % 0.75, torch.div(x.detach(), y.detach().abs() + 1, rounding_mode="floor"), 1 / (x.abs() + 1)


def raises_to_powers(x, y):
    return x ** 2, 2 ** x, x.abs() ** y, x.pow(3)


def operators_from_the_right(x, y):
    return 3 - x, 2 * x, 1.5 + y


def unary(x, y):
    return -x, +x, abs(y), x.sign(), x.round(), x.floor() + y.ceil()


def transcendental(x, y):
    return x.exp().log1p(), x.sinh().asinh(), torch.atan2(x, y), torch.erf(x), x.abs().lgamma()


def products(x, y):
    return x @ y.T, torch.mm(x, y.t()), torch.outer(x[0], y[0]), torch.dot(x[0], y[1])


def batched_products(x, y):
    return torch.bmm(x.view(1, 3, 4), y.view(1, 4, 3)), torch.baddbmm(x[:, :3].reshape(1, 3, 3), x[None], y.t()[None])


def sums_by_einstein(x, y):
    return torch.einsum("ij,ij->i", x, y), torch.einsum("ij,kj", x, y)


def inverts(x, y):
    return torch.linalg.solve(x @ x.T + 3 * torch.eye(3), y)


def norms(x, y):
    return F.layer_norm(x, (4,)), F.group_norm(y[None], 1), F.normalize(x)


def activates(x, y):
    return F.relu(x) + F.silu(y), F.gelu(x, approximate="tanh"), F.softplus(y), F.leaky_relu(x, 0.2)


def softens(x, y):
    return x.softmax(-1), F.log_softmax(y, 0), F.gumbel_softmax(x, hard=True).sum(-1)


def loses(x, y):
    return (F.mse_loss(x, y), F.l1_loss(x, y, reduction="sum"), F.huber_loss(x, y),
            F.binary_cross_entropy_with_logits(x, (y > 0).float()), F.kl_div(F.log_softmax(x, -1), F.softmax(y, -1), reduction="batchmean"))


def classifies(x, y):
    return F.cross_entropy(x, torch.tensor([0, 3, 1]), label_smoothing=0.1), F.nll_loss(F.log_softmax(y, 1), torch.tensor([1, 1, 2]))


def embeds(x, y):
    return F.embedding(torch.tensor([[0, 2], [1, 1]]), x), F.one_hot(torch.tensor([1, 3]), 4)


def convolves(x, y):
    return F.conv1d(x[None], y[:, :3].reshape(1, 3, 3)), F.conv2d(x.view(1, 1, 3, 4), y[:2, :2].reshape(1, 1, 2, 2), padding=1)


def pools(x, y):
    return F.max_pool1d(x[None], 2), F.avg_pool2d(y[None], 2, 1), F.adaptive_avg_pool1d(x[None], 2)


def interpolates(x, y):
    return F.interpolate(x[None, None], scale_factor=2, mode="bilinear", align_corners=False), F.interpolate(y[None], size=6)


def attends(x, y):
    return F.scaled_dot_product_attention(x[None, None], y[None, None], y[None, None], is_causal=True)


def calls_a_module(x, y):
    return SCALED(x, twice=True) + GATE(y)


def makes_a_module(x, y):
    return nn.Sequential(nn.ReLU(), nn.Flatten(0), nn.Softmax(0))(x)


def applies_a_function(x, y):
    return Shift.apply(x, 3) * y


def maps_over_a_batch(x, y):
    return torch.func.vmap(lambda a, b: (a * b).sum())(x, y)


def differentiates(x, y):
    return torch.func.grad(lambda a: (a ** 3).sum())(x), torch.func.jacrev(lambda a: a.sum(0) ** 2)(y)


def is_sparse_in_gradient(x, y):
    return x[1] * 2 + y[2, 3]


def is_of_size_one(x, y):
    return x[:1, :1] * y, x[:0].sum(), x[0, 0].expand(3)


def rolls(x, y):
    return x.roll(1, 0), y.rot90(), torch.tril(x), torch.triu(y, 1)


def counts_of_bins(x, y):
    return torch.bincount(torch.tensor([0, 1, 1, 3]), minlength=5), torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0]))


def complex_numbers(x, y):
    z = torch.complex(x, y)
    return (z * z.conj()).real, z.abs(), torch.view_as_real(z)


def transforms(x, y):
    return torch.fft.rfft(x).abs(), torch.fft.irfft(torch.fft.rfft(y), n=4)


def asks_where_views_begin(x, y):
    return x[1:].storage_offset(), x.t()[2:].storage_offset(), y[2, 1:].storage_offset(), (x * 2).view(-1)[5:].storage_offset()
