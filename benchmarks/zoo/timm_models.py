"""Image classifiers as timm has them, small, in plain PyTorch. A function returns (net, inputs, targets, loss of the
answer)."""
import torch
import torch.nn.functional as F
from torch import nn

CLASSES = 10


def classify(net, side=32, batch=8):
    return net, (torch.randn(batch, 3, side, side),), (torch.randint(0, CLASSES, (batch,)),), F.cross_entropy


def conv_norm(i, o, kernel=1, stride=1, groups=1, activation=nn.ReLU):
    layers = [nn.Conv2d(i, o, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(o)]
    return nn.Sequential(*layers, *([] if activation is None else [activation()]))


def head(channels):
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES))


class Residual(nn.Module):
    """An addition around `body`, through a convolution where shapes differ."""

    def __init__(self, body, i, o, stride=1, last=None):
        super().__init__()
        self.body, self.last = body, nn.Identity() if last is None else last
        self.short = nn.Identity() if i == o and stride == 1 else conv_norm(i, o, 1, stride, activation=None)

    def forward(self, x):
        return self.last(self.body(x) + self.short(x))


class Squeeze(nn.Module):
    """Squeeze and excitation: a weight for each channel."""

    def __init__(self, channels, squeezed, activation=nn.ReLU):
        super().__init__()
        self.weights = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, squeezed, 1), activation(),
                                     nn.Conv2d(squeezed, channels, 1), nn.Sigmoid())

    def forward(self, x):
        return x * self.weights(x)


def resnet18():
    layers, last = [conv_norm(3, 16, 3)], 16
    for o, stride in ((16, 1), (16, 1), (32, 2), (32, 1), (64, 2), (64, 1)):
        body = nn.Sequential(conv_norm(last, o, 3, stride), conv_norm(o, o, 3, activation=None))
        layers.append(Residual(body, last, o, stride, nn.ReLU()))
        last = o
    return classify(nn.Sequential(*layers, head(last)))


def resnet50():
    from nets import resnet50
    return classify(resnet50(torch, (1, 1, 1, 1), 8, CLASSES), 64)


def regnet_y():
    layers, last = [conv_norm(3, 16, 3, 2)], 16
    for o, stride in ((24, 2), (48, 2), (48, 1)):
        body = nn.Sequential(conv_norm(last, o), conv_norm(o, o, 3, stride, groups=o // 8), Squeeze(o, last // 4),
                             conv_norm(o, o, activation=None))
        layers.append(Residual(body, last, o, stride, nn.ReLU()))
        last = o
    return classify(nn.Sequential(*layers, head(last)))


def vgg11_bn():
    layers, last = [], 3
    for o, count in ((16, 1), (32, 1), (64, 2), (64, 2)):
        for _ in range(count):
            layers.append(conv_norm(last, o, 3))
            last = o
        layers.append(nn.MaxPool2d(2))
    return classify(nn.Sequential(*layers, nn.Flatten(), nn.Linear(4 * last, 64), nn.ReLU(), nn.Linear(64, CLASSES)))


def mobilenet_v2():
    from graphs import mobilenet
    return classify(mobilenet(torch, CLASSES))


def efficientnet():
    layers, last = [conv_norm(3, 8, 3, 2, activation=nn.SiLU)], 8
    for expand, kernel, stride, o in ((1, 3, 1, 8), (6, 3, 2, 12), (6, 5, 2, 20), (6, 5, 1, 20)):
        wide = expand * last
        parts = [] if expand == 1 else [conv_norm(last, wide, activation=nn.SiLU)]
        parts += [conv_norm(wide, wide, kernel, stride, wide, nn.SiLU), Squeeze(wide, last // 4, nn.SiLU),
                  conv_norm(wide, o, activation=None)]
        body = nn.Sequential(*parts)
        layers.append(Residual(body, last, o) if stride == 1 and last == o else body)
        last = o
    return classify(nn.Sequential(*layers, conv_norm(last, 80, activation=nn.SiLU), head(80)))


class Fire(nn.Module):
    def __init__(self, i, squeezed, o):
        super().__init__()
        self.squeeze = nn.Conv2d(i, squeezed, 1)
        self.narrow, self.wide = nn.Conv2d(squeezed, o, 1), nn.Conv2d(squeezed, o, 3, padding=1)

    def forward(self, x):
        x = F.relu(self.squeeze(x))
        return torch.cat([F.relu(self.narrow(x)), F.relu(self.wide(x))], 1)


def squeezenet():
    net = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), Fire(16, 8, 16), Fire(32, 8, 16),
                        nn.MaxPool2d(3, 2, ceil_mode=True),
                        Fire(32, 16, 32), nn.Conv2d(64, CLASSES, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return classify(net)


class DenseLayer(nn.Module):
    def __init__(self, i, growth):
        super().__init__()
        self.body = nn.Sequential(nn.BatchNorm2d(i), nn.ReLU(), nn.Conv2d(i, 4 * growth, 1, bias=False),
                                  nn.BatchNorm2d(4 * growth),
                                  nn.ReLU(), nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False))

    def forward(self, x):
        return torch.cat([x, self.body(x)], 1)


def densenet():
    layers, last, growth = [nn.Conv2d(3, 16, 3, padding=1, bias=False)], 16, 8
    for _ in range(2):
        for _ in range(3):
            layers.append(DenseLayer(last, growth))
            last += growth
        layers += [nn.BatchNorm2d(last), nn.ReLU(), nn.Conv2d(last, last // 2, 1, bias=False), nn.AvgPool2d(2)]
        last //= 2
    return classify(nn.Sequential(*layers, nn.BatchNorm2d(last), nn.ReLU(), head(last)))


class Shuffle(nn.Module):
    """Half of the channels pass, the other half is convolved; then both are mixed."""

    def __init__(self, channels):
        super().__init__()
        half = channels // 2
        self.body = nn.Sequential(conv_norm(half, half), conv_norm(half, half, 3, groups=half, activation=None),
                                  conv_norm(half, half))

    def forward(self, x):
        passed, convolved = x.chunk(2, dim=1)
        x = torch.cat([passed, self.body(convolved)], 1)
        n, c, h, w = x.shape
        return x.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)


def shufflenet_v2():
    net = nn.Sequential(conv_norm(3, 32, 3, 2), Shuffle(32), Shuffle(32), conv_norm(32, 64, 3, 2), Shuffle(64), Shuffle(64),
                        head(64))
    return classify(net)


class Inception(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.branches = nn.ModuleList([
            conv_norm(i, o), nn.Sequential(conv_norm(i, o), conv_norm(o, o, 3)),
            nn.Sequential(conv_norm(i, o), conv_norm(o, o, 5)),
            nn.Sequential(nn.MaxPool2d(3, 1, 1), conv_norm(i, o))])

    def forward(self, x):
        return torch.cat([branch(x) for branch in self.branches], 1)


def inception():
    net = nn.Sequential(conv_norm(3, 16, 3, 2), Inception(16, 8), Inception(32, 12), nn.MaxPool2d(2), Inception(48, 16),
                        head(64))
    return classify(net)


class ConvNextBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.mlp = nn.Sequential(nn.Linear(channels, 4 * channels), nn.GELU(), nn.Linear(4 * channels, channels))
        self.scale = nn.Parameter(torch.full((channels,), 1e-1))

    def forward(self, x):
        y = self.depthwise(x).permute(0, 2, 3, 1)
        return x + (self.scale * self.mlp(self.norm(y))).permute(0, 3, 1, 2)


def convnext():
    net = nn.Sequential(nn.Conv2d(3, 24, 4, 4), ConvNextBlock(24), ConvNextBlock(24), nn.GroupNorm(1, 24),
                        nn.Conv2d(24, 48, 2, 2),
                        ConvNextBlock(48), ConvNextBlock(48), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(48),
                        nn.Linear(48, CLASSES))
    return classify(net)


class Attention(nn.Module):
    """Self-attention over rows; `bias` is added to the scores."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, bias=None):
        n, rows, width = x.shape
        q, k, v = self.qkv(x).reshape(n, rows, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        return self.out(F.scaled_dot_product_attention(q, k, v, attn_mask=bias).transpose(1, 2).reshape(n, rows, width))


def mlp(width, wide):
    return nn.Sequential(nn.Linear(width, wide), nn.GELU(), nn.Linear(wide, width))


class Vit(nn.Module):
    def __init__(self, width=64, depth=3, patch=4, side=32):
        super().__init__()
        self.patches, self.token = nn.Conv2d(3, width, patch, patch), nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(0.02 * torch.randn(1, (side // patch) ** 2 + 1, width))
        self.blocks = nn.ModuleList([nn.ModuleList([nn.LayerNorm(width), Attention(width, 4), nn.LayerNorm(width),
                                                    mlp(width, 4 * width)])
                                     for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, CLASSES)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places
        for norm1, attention, norm2, mlp in self.blocks:
            x = x + attention(norm1(x))
            x = x + mlp(norm2(x))
        return self.head(self.norm(x)[:, 0])


def vit():
    return classify(Vit())


class Mixer(nn.Module):
    def __init__(self, width=64, depth=3, patch=4, side=32):
        super().__init__()
        rows = (side // patch) ** 2
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.blocks = nn.ModuleList([nn.ModuleList([nn.LayerNorm(width), mlp(rows, 2 * rows), nn.LayerNorm(width),
                                                    mlp(width, 4 * width)])
                                     for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, CLASSES)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        for norm1, rows, norm2, channels in self.blocks:
            x = x + rows(norm1(x).transpose(1, 2)).transpose(1, 2)
            x = x + channels(norm2(x))
        return self.head(self.norm(x).mean(1))


def mlp_mixer():
    return classify(Mixer())


class SwinBlock(nn.Module):
    """Attention within windows of 4 x 4, which every other block shifts by half a window."""

    def __init__(self, width, heads, side, shift, window=4):
        super().__init__()
        self.side, self.shift, self.window = side, shift, window
        self.norm1, self.attention = nn.LayerNorm(width), Attention(width, heads)
        self.norm2, self.mlp = nn.LayerNorm(width), mlp(width, 4 * width)
        self.table = nn.Parameter(0.02 * torch.randn((2 * window - 1) ** 2, heads))
        row, column = torch.arange(window * window) // window, torch.arange(window * window) % window
        apart = (row[:, None] - row[None] + window - 1) * (2 * window - 1) + column[:, None] - column[None] + window - 1
        self.register_buffer("apart", apart.flatten())
        # Pieces of opposite edges in a shifted window do not see each other.
        piece = torch.zeros(side, side)
        if shift:
            edge = (torch.arange(side) >= side - window).float() + (torch.arange(side) >= side - shift).float()
            piece = 3 * edge[:, None] + edge[None]
        piece = self.windows(piece[None, :, :, None]).squeeze(-1)
        self.register_buffer("mask", (piece[:, None] != piece[:, :, None]).float() * -100)

    def windows(self, x):
        n, count, w = x.shape[0], self.side // self.window, self.window
        return x.reshape(n, count, w, count, w, -1).transpose(2, 3).reshape(n * count * count, w * w, -1)

    def forward(self, x):
        n, side, _, width = x.shape
        y = self.windows(torch.roll(self.norm1(x), (-self.shift, -self.shift), (1, 2)))
        rows, heads = self.window ** 2, self.table.shape[1]
        bias = self.table[self.apart].reshape(rows, rows, heads).permute(2, 0, 1)[None] + self.mask[:, None]
        y = self.attention(y, bias.repeat(n, 1, 1, 1))
        count, w = side // self.window, self.window
        y = y.reshape(n, count, count, w, w, width).transpose(2, 3).reshape(n, side, side, width)
        x = x + torch.roll(y, (self.shift, self.shift), (1, 2))
        return x + self.mlp(self.norm2(x))


class Swin(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.first = nn.Sequential(SwinBlock(width, 2, 8, 0), SwinBlock(width, 2, 8, 2))
        self.merge = nn.Sequential(nn.LayerNorm(4 * width), nn.Linear(4 * width, 2 * width, bias=False))
        self.second = SwinBlock(2 * width, 4, 4, 0)
        self.norm, self.head = nn.LayerNorm(2 * width), nn.Linear(2 * width, CLASSES)

    def forward(self, x):
        x = self.first(self.patches(x).permute(0, 2, 3, 1))
        x = self.merge(torch.cat([x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]], -1))
        return self.head(self.norm(self.second(x)).mean((1, 2)))


def swin():
    return classify(Swin())


MODELS = (resnet18, resnet50, regnet_y, vgg11_bn, mobilenet_v2, efficientnet, squeezenet, densenet, shufflenet_v2, inception,
          convnext, vit,
          mlp_mixer, swin)
