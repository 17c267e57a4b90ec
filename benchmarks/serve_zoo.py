"""The nets of serve.nets.*, as their papers have them, for pictures of 3 x N x N; N is a multiple of 32."""

import math

import sluice as sl
from sluice import nn
from sluice.nn import functional as F


def alexnet(image):
    def conv(i, o, kernel, stride=1, pool=False):
        layers = [nn.Conv2d(i, o, kernel, stride, padding=kernel // 2 if stride == 1 else 2), nn.ReLU()]
        return layers + [nn.MaxPool2d(3, 2)] if pool else layers
    return nn.Sequential(*conv(3, 64, 11, 4, pool=True), *conv(64, 192, 5, pool=True), *conv(192, 384, 3), *conv(384, 256, 3),
                         *conv(256, 256, 3, pool=True), nn.AdaptiveAvgPool2d(6), nn.Flatten(), nn.Linear(9216, 4096), nn.ReLU(),
                         nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 1000))


def vgg19(image):
    layers, last = [], 3
    for width, count in ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4)):
        for _ in range(count):
            layers += [nn.Conv2d(last, width, 3, padding=1), nn.ReLU()]
            last = width
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(7), nn.Flatten(), nn.Linear(25088, 4096), nn.ReLU(), nn.Linear(4096, 4096),
                         nn.ReLU(), nn.Linear(4096, 1000))


def conv_norm(i, o, kernel=1, stride=1, groups=1, activation=None, eps=1e-5):
    layers = [nn.Conv2d(i, o, kernel, stride, padding=kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(o, eps=eps)]
    return nn.Sequential(*layers, *([] if activation is None else [activation()]))


class Bottleneck(nn.Module):
    def __init__(self, i, width, stride):
        super().__init__()
        self.body = nn.Sequential(conv_norm(i, width, activation=nn.ReLU), conv_norm(width, width, 3, stride, activation=nn.ReLU),
                                  conv_norm(width, 4 * width))
        self.shortcut = nn.Identity() if stride == 1 and i == 4 * width else conv_norm(i, 4 * width, 1, stride)

    def forward(self, x):
        return F.relu(self.body(x) + self.shortcut(x))


def resnet(counts):
    layers, last = [conv_norm(3, 64, 7, 2, activation=nn.ReLU), nn.MaxPool2d(3, 2, padding=1)], 64
    for stage, count in enumerate(counts):
        for block in range(count):
            layers.append(Bottleneck(last, 64 << stage, 2 if stage > 0 and block == 0 else 1))
            last = 256 << stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(last, 1000))


class Squeeze(nn.Module):
    """Squeeze and excitation: a weight for each channel."""

    def __init__(self, channels, squeezed, activation, gate):
        super().__init__()
        self.weights = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, squeezed, 1), activation(), nn.Conv2d(squeezed, channels, 1),
                                     gate())

    def forward(self, x):
        return x * self.weights(x)


class Inverted(nn.Module):
    """An inverted residual: wide inside, narrow outside."""

    def __init__(self, i, wide, o, kernel, stride, activation, squeeze, eps):
        super().__init__()
        layers = [] if wide == i else [conv_norm(i, wide, activation=activation, eps=eps)]
        layers.append(conv_norm(wide, wide, kernel, stride, wide, activation, eps))
        layers += [] if squeeze is None else [squeeze]
        self.body = nn.Sequential(*layers, conv_norm(wide, o, eps=eps))
        self.residual = stride == 1 and i == o

    def forward(self, x):
        return x + self.body(x) if self.residual else self.body(x)


def divisible(value):
    """The nearest multiple of 8, and no less than nine tenths of it."""
    near = max(8, int(value + 4) // 8 * 8)
    return near + 8 if near < 0.9 * value else near


def mobilenet_v3_large(image):
    table = [(3, 16, 16, False, nn.ReLU, 1), (3, 64, 24, False, nn.ReLU, 2), (3, 72, 24, False, nn.ReLU, 1), (5, 72, 40, True, nn.ReLU, 2),
             (5, 120, 40, True, nn.ReLU, 1), (5, 120, 40, True, nn.ReLU, 1), (3, 240, 80, False, nn.Hardswish, 2),
             (3, 200, 80, False, nn.Hardswish, 1), (3, 184, 80, False, nn.Hardswish, 1), (3, 184, 80, False, nn.Hardswish, 1),
             (3, 480, 112, True, nn.Hardswish, 1), (3, 672, 112, True, nn.Hardswish, 1), (5, 672, 160, True, nn.Hardswish, 2),
             (5, 960, 160, True, nn.Hardswish, 1), (5, 960, 160, True, nn.Hardswish, 1)]
    layers, last = [conv_norm(3, 16, 3, 2, activation=nn.Hardswish, eps=1e-3)], 16
    for kernel, wide, o, squeezes, activation, stride in table:
        squeeze = Squeeze(wide, divisible(wide / 4), nn.ReLU, nn.Hardsigmoid) if squeezes else None
        layers.append(Inverted(last, wide, o, kernel, stride, activation, squeeze, 1e-3))
        last = o
    return nn.Sequential(*layers, conv_norm(160, 960, activation=nn.Hardswish, eps=1e-3), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(960, 1280), nn.Hardswish(), nn.Linear(1280, 1000))


def efficientnet_b7(image):
    table = [(1, 3, 1, 32, 16, 1), (6, 3, 2, 16, 24, 2), (6, 5, 2, 24, 40, 2), (6, 3, 2, 40, 80, 3), (6, 5, 1, 80, 112, 3),
             (6, 5, 2, 112, 192, 4), (6, 3, 1, 192, 320, 1)]
    width, depth = 2.0, 3.1
    last = divisible(32 * width)
    layers = [conv_norm(3, last, 3, 2, activation=nn.SiLU, eps=1e-3)]
    for expand, kernel, stride, _, o, count in table:
        o = divisible(o * width)
        for block in range(math.ceil(count * depth)):
            wide = divisible(last * expand)
            layers.append(Inverted(last, wide, o, kernel, stride if block == 0 else 1, nn.SiLU,
                                   Squeeze(wide, max(1, last // 4), nn.SiLU, nn.Sigmoid), 1e-3))
            last = o
    return nn.Sequential(*layers, conv_norm(last, 4 * last, activation=nn.SiLU, eps=1e-3), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(4 * last, 1000))


class Patches(nn.Module):
    """A row of 768 numbers for each square of 16 x 16."""

    def __init__(self):
        super().__init__()
        self.project = nn.Conv2d(3, 768, 16, 16)

    def forward(self, x):
        return self.project(x).flatten(2).transpose(1, 2)


class VitBase(nn.Module):
    def __init__(self, image):
        super().__init__()
        self.patches = Patches()
        self.token = nn.Parameter(sl.zeros(1, 1, 768))
        self.places = nn.Parameter(sl.randn(1, (image // 16) ** 2 + 1, 768) * 0.02)
        self.blocks = nn.ModuleList([nn.ModuleDict({
            "norm": nn.LayerNorm(768, eps=1e-6), "qkv": nn.Linear(768, 2304), "out": nn.Linear(768, 768),
            "mlp": nn.Sequential(nn.LayerNorm(768, eps=1e-6), nn.Linear(768, 3072), nn.GELU(), nn.Linear(3072, 768))}) for _ in range(12)])
        self.head = nn.Sequential(nn.LayerNorm(768, eps=1e-6), nn.Linear(768, 1000))

    def forward(self, x):
        x = self.patches(x)
        rows = x.shape[0]
        x = sl.cat([self.token.expand(rows, -1, -1), x], dim=1) + self.places
        for block in self.blocks:
            q, k, v = (part.reshape(rows, -1, 12, 64).transpose(1, 2) for part in block["qkv"](block["norm"](x)).chunk(3, dim=2))
            x = x + block["out"](F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(rows, -1, 768))
            x = x + block["mlp"](x)
        return self.head(x[:, 0])


class MlpMixer(nn.Module):
    def __init__(self, image):
        super().__init__()
        squares = (image // 16) ** 2
        self.patches = Patches()
        self.blocks = nn.ModuleList([nn.ModuleDict({
            "norm": nn.LayerNorm(768, eps=1e-6), "tokens": nn.Sequential(nn.Linear(squares, 384), nn.GELU(), nn.Linear(384, squares)),
            "channels": nn.Sequential(nn.LayerNorm(768, eps=1e-6), nn.Linear(768, 3072), nn.GELU(), nn.Linear(3072, 768))}) for _ in range(12)])
        self.head = nn.Sequential(nn.LayerNorm(768, eps=1e-6))
        self.classes = nn.Linear(768, 1000)

    def forward(self, x):
        x = self.patches(x)
        for block in self.blocks:
            x = x + block["tokens"](block["norm"](x).transpose(1, 2)).transpose(1, 2)
            x = x + block["channels"](x)
        return self.classes(self.head(x).mean(1))


# By name: how it is made, and its parameters for pictures of 224 x 224.
NETS = {"alexnet": (alexnet, 61_100_840), "efficientnet_b7": (efficientnet_b7, 66_347_960),
        "mobilenet_v3_large": (mobilenet_v3_large, 5_483_032), "resnet50": (lambda image: resnet((3, 4, 6, 3)), 25_557_032),
        "resnet101": (lambda image: resnet((3, 4, 23, 3)), 44_549_160), "vgg19": (vgg19, 143_667_240),
        "vit_base": (VitBase, 86_567_656), "mlp_mixer": (MlpMixer, 59_880_472)}
