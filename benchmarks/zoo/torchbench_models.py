"""Nets of several fields as TorchBench has them, small, in plain PyTorch. A function returns (net, inputs, targets, loss of
the answer)."""
import math

import torch
import torch.nn.functional as F
from torch import nn


def dense(*sizes, activation=nn.ReLU):
    layers = []
    for i, o in zip(sizes, sizes[1:]):
        layers += [nn.Linear(i, o), activation()]
    return nn.Sequential(*layers[:-1])


def of_words(scores, target):
    return F.cross_entropy(scores.reshape(-1, scores.shape[-1]), target.reshape(-1))


def upward(i, o, kernel, stride, padding):
    return nn.Sequential(nn.ConvTranspose2d(i, o, kernel, stride, padding, bias=False), nn.BatchNorm2d(o), nn.ReLU())


def downward(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 4, 2, 1, bias=False), nn.BatchNorm2d(o), nn.LeakyReLU(0.2))


def generator():
    return nn.Sequential(upward(16, 48, 4, 1, 0), upward(48, 24, 4, 2, 1), upward(24, 12, 4, 2, 1),
                         nn.ConvTranspose2d(12, 3, 4, 2, 1),
                         nn.Tanh())


def discriminator():
    return nn.Sequential(nn.Conv2d(3, 12, 4, 2, 1), nn.LeakyReLU(0.2), downward(12, 24), downward(24, 48), nn.Conv2d(48, 1, 4),
                         nn.Flatten())


def dcgan_generator():
    """Its pictures are judged by a discriminator that does not learn in this step."""
    judge = discriminator().requires_grad_(False)
    net = nn.Sequential(generator(), judge)
    return net, (torch.randn(8, 16, 1, 1),), (torch.ones(8, 1),), F.binary_cross_entropy_with_logits


def dcgan_discriminator():
    return discriminator(), (torch.randn(8, 3, 32, 32),), (torch.ones(8, 1),), F.binary_cross_entropy_with_logits


class CharLstm(nn.Module):
    def __init__(self, words, width):
        super().__init__()
        self.table, self.head = nn.Embedding(words, width), nn.Linear(width, words)
        self.lstm = nn.LSTM(width, width, 2, batch_first=True)

    def forward(self, x):
        return self.head(self.lstm(self.table(x))[0])


def char_lstm():
    text = torch.randint(0, 64, (8, 33))
    return CharLstm(64, 64), (text[:, :-1],), (text[:, 1:],), of_words


class UNet(nn.Module):
    def __init__(self, widths=(8, 16, 32)):
        super().__init__()
        def pair(i, o):
            return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(), nn.Conv2d(o, o, 3, padding=1),
                                 nn.BatchNorm2d(o),
                                 nn.ReLU())
        self.down = nn.ModuleList([pair(i, o) for i, o in zip((3, *widths), widths)])
        back = widths[::-1]
        self.up = nn.ModuleList([nn.ConvTranspose2d(i, o, 2, 2) for i, o in zip(back, back[1:])])
        self.join = nn.ModuleList([pair(2 * o, o) for o in back[1:]])
        self.head = nn.Conv2d(widths[0], 2, 1)

    def forward(self, x):
        kept = []
        for block in self.down:
            x = block(F.max_pool2d(x, 2) if kept else x)
            kept.append(x)
        for up, join, skipped in zip(self.up, self.join, kept[-2::-1]):
            x = join(torch.cat([skipped, up(x)], 1))
        return self.head(x)


def unet():
    return UNet(), (torch.randn(4, 3, 32, 32),), (torch.randint(0, 2, (4, 32, 32)),), F.cross_entropy


class Dlrm(nn.Module):
    """Numbers through a net and categories through tables of bags; products of each two of them decide."""

    def __init__(self, tables=4, rows=1000, width=16):
        super().__init__()
        self.tables = nn.ModuleList([nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables)])
        self.bottom, self.top = dense(13, 32, width), dense(width + tables * (tables + 1) // 2, 32, 1)
        self.register_buffer("pairs", torch.tril_indices(tables + 1, tables + 1, -1))

    def forward(self, numbers, ids, offsets):
        x = self.bottom(numbers)
        rows = torch.stack([x, *[table(ids[i], offsets) for i, table in enumerate(self.tables)]], 1)
        products = rows @ rows.transpose(1, 2)
        return self.top(torch.cat([x, products[:, self.pairs[0], self.pairs[1]]], 1)).squeeze(1)


def dlrm():
    inputs = (torch.randn(32, 13), torch.randint(0, 1000, (4, 96)), torch.arange(0, 96, 3))
    return Dlrm(), inputs, (torch.randint(0, 2, (32,)).float(),), F.binary_cross_entropy_with_logits


def super_resolution():
    net = nn.Sequential(nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(),
                        nn.Conv2d(32, 16, 3, padding=1),
                        nn.ReLU(), nn.Conv2d(16, 9, 3, padding=1), nn.PixelShuffle(3))
    return net, (torch.rand(4, 1, 16, 16),), (torch.rand(4, 1, 48, 48),), F.mse_loss


class WaveNet(nn.Module):
    def __init__(self, values=64, width=16, dilations=(1, 2, 4, 8, 1, 2, 4, 8)):
        super().__init__()
        self.table, self.dilations = nn.Embedding(values, width), dilations
        self.both = nn.ModuleList([nn.Conv1d(width, 2 * width, 2, dilation=d) for d in dilations])
        self.out, self.skip = (nn.ModuleList([nn.Conv1d(width, width, 1) for _ in dilations]) for _ in range(2))
        self.head = nn.Sequential(nn.ReLU(), nn.Conv1d(width, width, 1), nn.ReLU(), nn.Conv1d(width, values, 1))

    def forward(self, x):
        x, skipped = self.table(x).transpose(1, 2), 0
        for dilation, both, out, skip in zip(self.dilations, self.both, self.out, self.skip):
            value, gate = both(F.pad(x, (dilation, 0))).chunk(2, dim=1)  # what is to come is not seen
            y = value.tanh() * gate.sigmoid()
            x, skipped = x + out(y), skipped + skip(y)
        return self.head(skipped)


def wavenet():
    sound = torch.randint(0, 64, (4, 129))
    return WaveNet(), (sound[:, :-1],), (sound[:, 1:],), F.cross_entropy


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * self.weight


class LlamaBlock(nn.Module):
    """Attention whose heads share keys and values by twos, turned by their places, and a gated net."""

    def __init__(self, width, heads, length):
        super().__init__()
        self.heads, self.shared, size = heads, heads // 2, width // heads
        self.norm1, self.norm2 = RmsNorm(width), RmsNorm(width)
        self.q, self.k, self.v = (nn.Linear(width, n * size, bias=False) for n in (heads, self.shared, self.shared))
        self.out = nn.Linear(width, width, bias=False)
        self.gate, self.up = (nn.Linear(width, 3 * width, bias=False) for _ in range(2))
        self.down = nn.Linear(3 * width, width, bias=False)
        angle = torch.arange(length)[:, None] / 10000 ** (torch.arange(0, size, 2) / size)
        self.register_buffer("cos", torch.cat([angle, angle], 1).cos())
        self.register_buffer("sin", torch.cat([angle, angle], 1).sin())

    def turned(self, x):
        a, b = x.chunk(2, dim=-1)
        return x * self.cos + torch.cat([-b, a], -1) * self.sin

    def forward(self, x):
        n, length, width = x.shape
        y = self.norm1(x)
        q, k, v = (f(y).reshape(n, length, -1, width // self.heads).transpose(1, 2) for f in (self.q, self.k, self.v))
        k, v = (t.repeat_interleave(self.heads // self.shared, 1) for t in (self.turned(k), v))
        y = F.scaled_dot_product_attention(self.turned(q), k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(n, length, width))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def llama():
    text = torch.randint(0, 100, (4, 33))
    net = nn.Sequential(nn.Embedding(100, 64), LlamaBlock(64, 4, 32), LlamaBlock(64, 4, 32), RmsNorm(64),
                        nn.Linear(64, 100, bias=False))
    return net, (text[:, :-1],), (text[:, 1:],), of_words


def gpt():
    from nets import gpt2
    text = torch.randint(0, 100, (4, 33))
    return gpt2(torch, 2, 64, 4, 32, 100), (text[:, :-1],), (text[:, 1:],), of_words


class Vae(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = dense(196, 64, 32), dense(16, 64, 196)

    def forward(self, x, noise):
        mean, log_variance = self.encoder(x).chunk(2, dim=1)
        return self.decoder(mean + noise * (0.5 * log_variance).exp()), mean, log_variance


def vae_loss(answer, x):
    picture, mean, log_variance = answer
    apart = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum(1).mean()
    return F.binary_cross_entropy_with_logits(picture, x, reduction="sum") / x.shape[0] + apart


def variational_autoencoder():
    x = torch.rand(32, 196)
    return Vae(), (x, torch.randn(32, 16)), (x,), vae_loss


def recommender():
    """Ratings through a narrow place; those that are not there do not count."""
    x = (torch.rand(32, 200) < 0.2) * torch.randint(1, 6, (32, 200)).float()
    return dense(200, 64, 32, 64, 200,
                 activation=nn.SELU), (x,), (x,), lambda answer, x: ((answer - x) * (x != 0)).square().sum() / (x != 0).sum()


class SoftActor(nn.Module):
    """An actor's choice, and what the lesser of two critics, which do not learn in this step, says of it."""

    def __init__(self, state=17, action=6, width=64):
        super().__init__()
        self.actor = dense(state, width, width, 2 * action)
        self.critics = nn.ModuleList([dense(state + action, width, width, 1).requires_grad_(False) for _ in range(2)])

    def forward(self, state, noise):
        mean, log_scale = self.actor(state).chunk(2, dim=1)
        log_scale = log_scale.clamp(-5, 2)
        free = mean + noise * log_scale.exp()
        action = free.tanh()
        normal = -0.5 * noise.square() - log_scale - 0.5 * math.log(2 * math.pi)
        log_chance = (normal - 2 * (math.log(2) - free - F.softplus(-2 * free))).sum(1)
        both = [critic(torch.cat([state, action], 1)).squeeze(1) for critic in self.critics]
        return 0.2 * log_chance - torch.minimum(*both)


def soft_actor_critic():
    return SoftActor(), (torch.randn(64, 17), torch.randn(64, 6)), (), lambda answer: answer.mean()


class Speech(nn.Module):
    def __init__(self, bands=32, width=32, letters=20):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, 8, (11, 5), (2, 2), (5, 2)), nn.BatchNorm2d(8), nn.Hardtanh(0, 20))
        self.gru, self.head = nn.GRU(8 * bands // 2, width, bidirectional=True), nn.Linear(2 * width, letters)

    def forward(self, x):
        x = self.conv(x)
        n, channels, times, bands = x.shape
        x = self.gru(x.permute(2, 0, 1, 3).reshape(times, n, channels * bands))[0]
        return self.head(x).log_softmax(-1)


def ctc(answer, letters):
    times, n = answer.shape[:2]
    return F.ctc_loss(answer, letters, torch.full((n,), times), torch.full((n,), letters.shape[1]))


def deep_speech():
    return Speech(), (torch.randn(4, 1, 48, 32),), (torch.randint(1, 20, (4, 8)),), ctc


class Reflected(nn.Sequential):
    def __init__(self, i, o, kernel, stride=1):
        super().__init__(nn.ReflectionPad2d(kernel // 2), nn.Conv2d(i, o, kernel, stride), nn.InstanceNorm2d(o, affine=True))


class StyleBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.body = nn.Sequential(Reflected(channels, channels, 3), nn.ReLU(), Reflected(channels, channels, 3))

    def forward(self, x):
        return x + self.body(x)


def fast_neural_style():
    net = nn.Sequential(Reflected(3, 8, 9), nn.ReLU(), Reflected(8, 16, 3, 2), nn.ReLU(), StyleBlock(16), StyleBlock(16),
                        nn.Upsample(scale_factor=2, mode="nearest"), Reflected(16, 8, 3), nn.ReLU(),
                        nn.ReflectionPad2d(4), nn.Conv2d(8, 3, 9))
    return net, (torch.randn(2, 3, 32, 32),), (torch.randn(2, 3, 32, 32),), F.mse_loss


class Translator(nn.Module):
    def __init__(self, words=100, width=32, length=16):
        super().__init__()
        self.table, self.places = nn.Embedding(words, width), nn.Parameter(0.1 * torch.randn(length, width))
        self.transformer = nn.Transformer(width, 4, 2, 2, 64, dropout=0.0, batch_first=True)
        self.head = nn.Linear(width, words)
        self.register_buffer("mask", torch.triu(torch.full((length, length), -math.inf), 1))

    def forward(self, source, target):
        source, target = (self.table(t) + self.places for t in (source, target))
        return self.head(self.transformer(source, target, tgt_mask=self.mask))


def transformer_translation():
    text = torch.randint(0, 100, (4, 17))
    return Translator(), (torch.randint(0, 100, (4, 16)), text[:, :-1]), (text[:, 1:],), of_words


class GraphNet(nn.Module):
    """Kipf and Welling's: a node becomes the weighted sum of its neighbours."""

    def __init__(self, features=32, width=32, classes=7):
        super().__init__()
        self.first, self.second = nn.Linear(features, width), nn.Linear(width, classes)

    def forward(self, x, source, target):
        scale = torch.zeros(x.shape[0]).index_add(0, target, torch.ones(target.shape[0])).clamp(min=1).rsqrt()
        weight = (scale[source] * scale[target])[:, None]

        def gathered(x):
            return torch.zeros_like(x).index_add(0, target, x[source] * weight)
        return gathered(self.second(F.relu(gathered(self.first(x)))))


def graph_convolutions():
    nodes, edges = 200, 800
    inputs = (torch.randn(nodes, 32), torch.randint(0, nodes, (edges,)), torch.randint(0, nodes, (edges,)))
    return GraphNet(), inputs, (torch.randint(0, 7, (nodes,)),), F.cross_entropy


class Forces(nn.Module):
    """An energy of a distance, and the force, which is its derivative."""

    def __init__(self):
        super().__init__()
        self.energy = dense(1, 32, 32, 1, activation=nn.Tanh)

    def forward(self, r):
        energy = self.energy(r)
        (slope,) = torch.autograd.grad(energy.sum(), [r], create_graph=True)
        return energy, -slope


def forces_loss(answer, r):
    energy, force = 4 * (r ** -12 - r ** -6), 4 * (12 * r ** -13 - 6 * r ** -7)
    return F.mse_loss(answer[0], energy) + F.mse_loss(answer[1], force)


def lennard_jones():
    r = 1 + torch.rand(64, 1)
    return Forces(), (r.clone().requires_grad_(),), (r,), forces_loss


MODELS = (dcgan_generator, dcgan_discriminator, char_lstm, unet, dlrm, super_resolution, wavenet, llama, gpt,
          variational_autoencoder, recommender,
          soft_actor_critic, deep_speech, fast_neural_style, transformer_translation, graph_convolutions, lennard_jones)
