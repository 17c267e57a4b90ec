"""The nets of `peers.py`, on either framework: `torch` is PyTorch or Sluice. `tiny` ones are there to see that it works."""
import dataclasses

from nets import bert, gpt2, resnet50


@dataclasses.dataclass(frozen=True)
class Workload:
    """One line of the table: NET.KIND[.bBATCH].PRECISION."""
    net: str
    kind: str  # infer, train, generate
    batch: int
    precision: str  # fp32, bf16: weights cast for inference, autocast in training
    peers: tuple[str, ...]
    aim: float  # the ratio to the fastest peer that is asked for

    @property
    def name(self):
        return ".".join((self.net, self.kind, f"b{self.batch}", self.precision))


IMAGES, TEXT = ("eager", "channels_last", "freezing"), ("eager", "freezing")
WORKLOADS = [
    Workload("resnet50", "infer", 1, "fp32", (*IMAGES, "onnxruntime"), 1.05),
    Workload("resnet50", "infer", 16, "fp32", (*IMAGES, "onnxruntime"), 1.05),
    Workload("resnet50", "infer", 1, "bf16", IMAGES, 1.8),
    Workload("resnet50", "infer", 16, "bf16", IMAGES, 1.1),
    Workload("resnet50", "train", 16, "fp32", ("eager", "channels_last", "compile"), 1.5),
    Workload("resnet50", "train", 16, "bf16", ("eager", "channels_last", "compile"), 1.4),
    Workload("bert", "infer", 1, "fp32", (*TEXT, "onnxruntime"), 1.28),
    Workload("bert", "infer", 8, "fp32", (*TEXT, "onnxruntime"), 1.28),
    Workload("bert", "infer", 1, "bf16", TEXT, 1.4),
    Workload("bert", "infer", 8, "bf16", TEXT, 1.4),
    Workload("bert", "train", 8, "fp32", ("eager", "compile"), 1.6),
    Workload("bert", "train", 8, "bf16", ("eager", "compile"), 1.4),
    Workload("gpt2", "train", 4, "fp32", ("eager", "compile"), 1.7),
    Workload("gpt2", "train", 4, "bf16", ("eager", "compile"), 1.5),
    Workload("gpt2", "generate", 1, "fp32", ("eager",), 1.5),
    Workload("mlp", "train", 64, "fp32", ("eager", "compile"), 1.5),
    Workload("mlp_small", "train", 32, "fp32", ("eager", "compile"), 5),
    Workload("lstm", "train", 32, "fp32", ("eager",), 1.5),
]
PROMPT, TOKENS = 16, 64  # of gpt2.generate


def lstm(torch, width, length, batch):
    """Two layers, and a head on the last output."""
    nn = torch.nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers, self.head = nn.LSTM(width, width, num_layers=2), nn.Linear(width, 10)

        def forward(self, x):
            return self.head(self.layers(x)[0][-1])

    return Net(), torch.randn(length, batch, width)


def mlp(torch, sizes):
    layers = []
    for fan_in, fan_out in zip(sizes, sizes[1:]):
        layers += [torch.nn.Linear(fan_in, fan_out), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


def made(torch, work, tiny):
    """(net, input, targets) of a workload, with the same numbers on both frameworks."""
    torch.manual_seed(0)
    n = work.batch
    if work.net == "resnet50":
        net = resnet50(torch, (1, 1, 1, 1), 4, 10) if tiny else resnet50(torch, (3, 4, 6, 3), 64, 1000)
        side, classes = (32, 10) if tiny else (224, 1000)
        return net, torch.randn(n, 3, side, side), torch.randint(0, classes, (n,))
    if work.net == "lstm":
        width, length = (16, 4) if tiny else (512, 64)
        return *lstm(torch, width, length, n), torch.randint(0, 10, (n,))
    if work.net.startswith("mlp"):
        sizes = (64, 128, 128, 10) if tiny or work.net == "mlp_small" else (784, 512, 512, 10)
        return mlp(torch, sizes), torch.randn(n, sizes[0]), torch.randint(0, 10, (n,))
    shape = dict(layers=2, width=32, heads=2, words=50) if tiny else dict(layers=12, width=768, heads=12)
    if work.net == "bert":
        shape = {"words": 30522, **shape, "length": 8 if tiny else 128}
        return (bert(torch, **shape, classes=2), torch.randint(0, shape["words"], (n, shape["length"])), torch.randint(0, 2, (n,)))
    length = 8 if tiny else 256
    if work.kind == "generate":
        length = PROMPT + TOKENS
    shape = {"words": 50257, **shape, "length": length}
    text = torch.randint(0, shape["words"], (n, length + 1))
    return gpt2(torch, **shape), text[:, :-1].contiguous(), text[:, 1:].reshape(-1)


def optimizer(torch, work, net, **options):
    if work.net in ("bert", "gpt2"):
        return torch.optim.AdamW(net.parameters(), lr=1e-4, **options)
    return torch.optim.SGD(net.parameters(), lr=0.001, momentum=0.9)


def next_logits(torch, net, token, position, caches, write):
    """The logits of GPT-2 behind `token`: `write(cache, position, new)` keeps keys or values and gives back what attention
    reads of them, and a mask."""
    F = torch.nn.functional
    x = net.words(token) + net.places(position)
    made = []
    for block, (keys, values) in zip(net.blocks, caches):
        n, width = x.shape
        heads = keys.shape[1]
        q, k, v = block.qkv(block.norm1(x)).reshape(n, 3, heads, 1, width // heads).unbind(1)
        keys, seen_keys, mask = write(keys, position, k)
        values, seen_values, _ = write(values, position, v)
        made.append((keys, values))
        y = F.scaled_dot_product_attention(q, seen_keys, seen_values, attn_mask=mask)
        x = x + block.out(y.reshape(n, width))
        x = x + block.feed(block.norm2(x))
    return F.linear(net.norm(x), net.words.weight), tuple(made)
