"""ResNet-50, BERT-base and GPT-2 small, on either framework: `torch` is PyTorch or Sluice."""


def resnet50(torch, blocks, width, classes):
    """He et al. 2015, with the stride in the 3x3 convolution; (3, 4, 6, 3) blocks of width 64 are ResNet-50."""
    nn = torch.nn

    class Bottleneck(nn.Module):
        def __init__(self, channels, width, stride):
            super().__init__()
            self.conv1, self.norm1 = nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width)
            self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
            self.norm2 = nn.BatchNorm2d(width)
            self.conv3, self.norm3 = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
            self.relu = nn.ReLU()
            self.short = nn.Identity()
            if stride != 1 or channels != 4 * width:
                self.short = nn.Sequential(nn.Conv2d(channels, 4 * width, 1, stride=stride, bias=False),
                                           nn.BatchNorm2d(4 * width))

        def forward(self, x):
            y = self.relu(self.norm1(self.conv1(x)))
            y = self.relu(self.norm2(self.conv2(y)))
            return self.relu(self.norm3(self.conv3(y)) + self.short(x))

    layers = [nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
              nn.MaxPool2d(3, stride=2, padding=1)]
    channels = width
    for stage, count in enumerate(blocks):
        for block in range(count):
            layers.append(Bottleneck(channels, width << stage, 2 if stage > 0 and block == 0 else 1))
            channels = 4 * (width << stage)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


def transformer_block(torch, width, heads, length, norm_first, **options):
    """Attention, then two layers four times as wide, each added to its input, with norms before (GPT-2) or behind (BERT).
    options: of scaled_dot_product_attention, and `approximate` of gelu."""
    nn, F = torch.nn, torch.nn.functional
    approximate = options.pop("approximate", "none")

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def attend(self, x):
            n = x.shape[0]
            q, k, v = self.qkv(x).reshape(n, length, 3, heads, width // heads).permute(2, 0, 3, 1, 4).unbind(0)
            y = F.scaled_dot_product_attention(q, k, v, **options)
            return self.out(y.transpose(1, 2).reshape(n, length, width))

        def feed(self, x):
            return self.down(F.gelu(self.up(x), approximate=approximate))

        def forward(self, x):
            if norm_first:
                x = x + self.attend(self.norm1(x))
                return x + self.feed(self.norm2(x))
            x = self.norm1(x + self.attend(x))
            return self.norm2(x + self.feed(x))

    return Block()


def initialised(torch, net, residual_layers=0):
    """The net with weights from N(0, 0.02) and biases of zero, as both papers have them. GPT-2 divides the layers that write to
    the residual stream by the root of their number. With torch's own N(0, 1) embeddings losses begin at some hundreds, and
    gradients soon are denormal numbers."""
    nn = torch.nn
    for module in net.modules():
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, 0.0, 0.02)
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)
    if residual_layers:
        for block in net.blocks:
            for layer in (block.out, block.down):
                nn.init.normal_(layer.weight, 0.0, 0.02 / residual_layers**0.5)
    return net


def gpt2(torch, layers, width, heads, length, words):
    """Radford et al. 2019, without dropout; 12 layers of width 768 with 12 heads are GPT-2 small."""
    nn, F = torch.nn, torch.nn.functional

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
            blocks = [transformer_block(torch, width, heads, length, True, is_causal=True, approximate="tanh") for _ in range(layers)]
            self.blocks, self.norm = nn.Sequential(*blocks), nn.LayerNorm(width)

        def forward(self, tokens):
            x = self.norm(self.blocks(self.words(tokens) + self.places.weight))
            return F.linear(x, self.words.weight).reshape(-1, words)  # the head is the embedding

    return initialised(torch, Net(), 2 * layers)


def bert(torch, layers, width, heads, length, words, classes):
    """Devlin et al. 2018, without dropout, and a head on the first token; 12 layers of width 768 with 12 heads are BERT-base."""
    nn = torch.nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places, self.norm = nn.Embedding(words, width), nn.Embedding(length, width), nn.LayerNorm(width)
            blocks = [transformer_block(torch, width, heads, length, False) for _ in range(layers)]
            self.blocks, self.head = nn.Sequential(*blocks), nn.Linear(width, classes)

        def forward(self, tokens):
            return self.head(self.blocks(self.norm(self.words(tokens) + self.places.weight))[:, 0])

    return initialised(torch, Net())


def workload(torch, name, tiny):
    """(net, inputs, targets, optimizer) of a named workload; inputs and targets on the host."""
    torch.manual_seed(0)
    if name == "resnet50":
        n, side = (2, 32) if tiny else (64, 224)
        net = resnet50(torch, (1, 1, 1, 1), 4, 10) if tiny else resnet50(torch, (3, 4, 6, 3), 64, 1000)
        x, y = torch.randn(n, 3, side, side), torch.randint(0, 10 if tiny else 1000, (n,))
        return net, x, y, torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    shape = dict(layers=2, width=16, heads=2, length=8, words=11) if tiny else dict(layers=12, width=768, heads=12, length=1024,
                                                                                 words=50257)
    n = 2 if tiny else 8
    text = torch.randint(0, shape["words"], (n, shape["length"] + 1))
    net = gpt2(torch, **shape)
    return net, text[:, :-1].contiguous(), text[:, 1:].reshape(-1), torch.optim.AdamW(net.parameters(), lr=1e-4)
