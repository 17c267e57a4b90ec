"""fusion.*: a plan with what the compiler's passes fuse against the same plan without one of them (`without`), or against a copy.

fusion.chain.*: twelve elementwise ops; `.pass` against a copy of as many bytes: 1 is one pass over memory. fusion.sum4: a + b + c + d.
fusion.softmax.*, fusion.layer_norm.*: written out in arithmetic and sums of rows, against the one kernel that the functions of these
names are; `.generated`: by code that is made for them, `.cached`: of as much as stays in the cache, `.plain`: against the same plan
without fuse_rows. fusion.dropout: dropout and a residual. fusion.linear: a product, a row, and gelu. fusion.bce: the mean of a binary
cross-entropy, with its gradient. fusion.batch_norm: the training step of residual blocks. fusion.updates.*: AdamW of many small
parameters; of clipped gradients.
"""
import os

from common import Side, compare, wanted

THREADS = len(os.sched_getaffinity(0))


def chain(torch, x, row):
    y = torch.tanh(x * row + 0.5).exp() - x
    y = torch.where(y > 0.5, y, torch.sigmoid(y * 0.3))
    return torch.nn.functional.gelu(y.abs() + row) * row


def light(torch, x, row):
    y = ((x * row + 0.5) - x).abs() * 0.3 + row
    return torch.maximum((y - 1.5) * y, x).relu() * 2.0 + y


def softmax(x):
    e = (x - x.amax(-1, keepdim=True)).exp()
    return e / e.sum(-1, keepdim=True)


def layer_norm(x, weight, bias):
    d = x - x.mean(-1, keepdim=True)
    return d * ((d * d).mean(-1, keepdim=True) + 1e-5).rsqrt() * weight + bias


def rows_of(name, torch):
    """Written out, or, of ".kernel", the function."""
    x = torch.randn(256 if ".cached" in name else 4096, 1024)
    if name.startswith("softmax"):
        return (lambda x: torch.softmax(x, -1)) if name.endswith(".kernel") else softmax, (x,)
    if name.endswith(".kernel"):
        return lambda x, w, b: torch.nn.functional.layer_norm(x, (1024,), w, b), (x, torch.randn(1024), torch.randn(1024))
    return layer_norm, (x, torch.randn(1024), torch.randn(1024))


def residual_blocks(torch, blocks=4, channels=64):
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(channels, channels, 1, bias=False), nn.BatchNorm2d(channels)
            self.conv2, self.bn2 = nn.Conv2d(channels, channels, 1, bias=False), nn.BatchNorm2d(channels)
            self.relu = nn.ReLU()

        def forward(self, x):
            return self.relu(self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x))))) + x)

    return nn.Sequential(*[Block() for _ in range(blocks)])


def forward_of(name, torch):
    """The function and its arguments."""
    if name.startswith(("softmax", "layer_norm")):
        return rows_of(name, torch)
    big = torch.randn(1024, 4096)
    if name.startswith("chain.light"):
        return lambda x, row: light(torch, x, row), (big, torch.randn(4096))
    if name.startswith("chain"):
        return lambda x, row: chain(torch, x, row), (big, torch.randn(4096))
    if name == "sum4":
        return lambda a, b, c, d: a + b + c + d, tuple(torch.randn(1024, 2048) for _ in range(4))
    if name == "dropout":
        drop = torch.nn.Dropout(0.1)
        return lambda x, y: x + drop(y), (torch.randn(1024, 2048), torch.randn(1024, 2048))
    net = torch.nn.Linear(256, 1024)
    return lambda x: torch.nn.functional.gelu(net(x)), (torch.randn(4096, 256),)


def infer_side(name, without=None, fused_activations=False, generated=False):
    """Reads and writes buffers, so that a call copies nothing."""
    import sluice as torch
    function, arguments = forward_of(name, torch)

    class Buffers(torch.nn.Module):
        def __init__(self):
            super().__init__()
            for i, x in enumerate(arguments):
                self.register_buffer(f"x{i}", x)
            with torch.no_grad():
                self.register_buffer("y", torch.zeros_like(function(*arguments)))

    class Infer(torch.nn.Graph):
        def __init__(self):
            super().__init__()
            self.held = Buffers()
            for one in without or ():
                self.config.disable_pass(one)
            if fused_activations:
                self.config.enable_fused_activations()
            self.config.enable_generated_kernels(generated)

        def build(self):
            with torch.no_grad():
                self.held.y.copy_(function(*[getattr(self.held, f"x{i}") for i in range(len(arguments))]))
            return torch.zeros(())

    graph = Infer()

    def run(steps):
        for _ in range(steps):
            result = graph()
        result.item()
        graph.synchronize()
    return run


def copy_side():
    """Reads and writes as many bytes as the chain: x in, the result out."""
    import sluice as torch
    x, y = torch.randn(1024, 4096), torch.empty(1024, 4096)

    def run(steps):
        for _ in range(steps):
            y.copy_(x)
        y.flatten()[0].item()
    return run


def train_side(name, without=None):
    import sluice as torch
    torch.manual_seed(0)
    optim, group = torch.optim.AdamW, {}
    if name == "batch_norm":
        net, x = residual_blocks(torch), torch.randn(8, 64, 56, 56)
        optim = torch.optim.SGD
    elif name == "bce":
        net, x = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 1)), torch.randn(1 << 18, 64)
    else:
        net, x = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(60)]), torch.randn(2, 64)
        group = {"clip_grad_max_norm": 1.0} if name == "updates.clipped" else {}

    class Train(torch.nn.Graph):
        def __init__(self):
            super().__init__()
            self.net = net
            self.add_optimizer(optim([{"params": net.parameters(), **group}], lr=1e-3))
            for one in without or ():
                self.config.disable_pass(one)
            if name.startswith("updates") and without is None:
                self.config.enable_multi_tensor_update()
                self.config.allow_fuse_model_update_ops()

        def build(self, x):
            y = self.net(x)
            if name == "bce":
                loss = torch.nn.functional.binary_cross_entropy(torch.sigmoid(y), torch.full_like(y, 0.3))
            else:
                loss = y.square().mean()
            loss.backward()
            return loss

    graph = Train()

    def run(steps):
        for _ in range(steps):
            loss = graph(x)
        loss.item()
    return run


ROWS = [(f"{op}{size}{how}", (infer_side, op + size, None, False, how == ".generated"), (infer_side, f"{op}{size}.kernel"), f"the kernel {op}")
        for op in ("softmax", "layer_norm") for size in ("", ".cached") for how in ("", ".generated")]
ROWS += [(f"{op}.plain", (infer_side, op), (infer_side, op, ("fuse_rows",)), "without fuse_rows") for op in ("softmax", "layer_norm")]

LINES = [  # name, ours, peer, what the peer is
    *ROWS,
    ("chain", (infer_side, "chain"), (infer_side, "chain", ("fuse_elementwise",)), "without fuse_elementwise"),
    ("chain.light", (infer_side, "chain.light"), (infer_side, "chain.light", ("fuse_elementwise",)), "without fuse_elementwise"),
    ("chain.light.pass", (infer_side, "chain.light"), (copy_side,), "a copy"),
    ("sum4", (infer_side, "sum4"), (infer_side, "sum4", ("fuse_elementwise",)), "without fuse_elementwise"),
    ("dropout", (infer_side, "dropout"), (infer_side, "dropout", ("fuse_elementwise",)), "without fuse_elementwise"),
    ("linear", (infer_side, "linear", None, True), (infer_side, "linear", ("fuse_bias", "fuse_activation")), "without fuse_activation"),
    ("bce", (train_side, "bce"), (train_side, "bce", ("fuse_elementwise",)), "without fuse_elementwise"),
    ("batch_norm", (train_side, "batch_norm"), (train_side, "batch_norm", ("fuse_batch_norm",)), "without fuse_batch_norm"),
    ("updates.small", (train_side, "updates.small"), (train_side, "updates.small", ("fuse_updates",)), "without fuse_updates"),
    ("updates.clipped", (train_side, "updates.clipped"), (train_side, "updates.clipped", ("fuse_updates",)), "without fuse_updates"),
]

if __name__ == "__main__":
    for name, ours, peer, peer_name in LINES:
        if wanted(f"fusion.{name}"):
            compare(f"fusion.{name}", Side(*ours), Side(*peer), peer_name)
