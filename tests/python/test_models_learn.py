"""Whole models that learn from real text and real images: a GPT, a BERT, and a ViT, on a core alone."""

import pathlib

import numpy as np
from mesh_models import First, Last

import sluice as sl
from sluice import nn

LICENSES = pathlib.Path("/usr/share/common-licenses")


class Train(nn.Graph):
    """A step of AdamW, whose learning rate falls to nothing in so many steps."""

    def __init__(self, net, lr, steps):
        super().__init__()
        self.net = net
        self.config.set_cores(1)
        self.config.set_outputs_buffer_size(4)
        adam = sl.optim.AdamW(net.parameters(), lr=lr)
        self.add_optimizer(adam, lr_sch=sl.optim.lr_scheduler.CosineAnnealingLR(adam, T_max=steps))

    def build(self, x, y):
        logits = self.net(x)
        loss = nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1), ignore_index=-100)
        loss.backward()
        return loss


class Call(nn.Graph):
    def __init__(self, net):
        super().__init__()
        self.net = net
        self.config.set_cores(1)

    def build(self, x):
        return self.net(x)


def characters(name):
    text = (LICENSES / name).read_text()
    letters = sorted(set(text))
    return letters, np.array([letters.index(c) for c in text])


def test_a_gpt_learns_the_gpl_and_writes():  # LB-17
    letters, ids = characters("GPL-3")
    length, batch, rng = 32, 16, np.random.default_rng(0)
    sl.manual_seed(0)
    net = nn.Sequential(First(len(letters), length, 96, 4), Last(len(letters), 96, 4))
    train, losses = Train(net, 4e-3, 400), []
    for _ in range(300):
        rows = np.stack([ids[at:at + length + 1] for at in rng.integers(0, len(ids) - length, batch)])
        losses.append(train(sl.tensor(rows[:, :-1].copy()), sl.tensor(rows[:, 1:].copy())))
    losses = [loss.item() for loss in losses]
    assert losses[0] > 4 and np.mean(losses[-10:]) < 2.0, losses[::30]
    call, text = Call(net.eval()), list(ids[:length])
    for _ in range(60):
        logits = call(sl.tensor(np.array([text[-length:]])))[0, -1].numpy()
        chances = np.exp((logits - logits.max()) / 0.7)
        text.append(int(rng.choice(len(letters), p=chances / chances.sum())))
    written = "".join(letters[i] for i in text[length:])
    assert len(set(written)) > 5 and " " in written
    print("a sample:", repr(written))


class Bert(nn.Module):
    def __init__(self, letters, length, width):
        super().__init__()
        self.tokens, self.places = nn.Embedding(letters, width), nn.Embedding(length, width)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, activation="gelu", batch_first=True)
        self.layers, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(width, letters)

    def forward(self, ids):
        return self.head(self.layers(self.tokens(ids) + self.places(sl.arange(ids.shape[1]))))


def test_a_bert_learns_what_is_masked():  # LB-16
    letters, ids = characters("GPL-2")
    mask, rng, losses = len(letters), np.random.default_rng(0), []
    sl.manual_seed(0)
    train = Train(Bert(len(letters) + 1, 32, 48), 3e-3, 200)
    for _ in range(50):
        rows = np.stack([ids[at:at + 32] for at in rng.integers(0, len(ids) - 32, 16)])
        hidden = rng.random(rows.shape) < 0.15
        losses.append(train(sl.tensor(np.where(hidden, mask, rows)), sl.tensor(np.where(hidden, rows, -100))))
    losses = [loss.item() for loss in losses]
    assert losses[0] > 3.5 and np.mean(losses[-10:]) < 0.85 * np.mean(losses[:5]), losses[::5]


class Vit(nn.Module):
    """Images (N, 1, 32, 32) in 16 patches."""

    def __init__(self, width=48):
        super().__init__()
        self.patches, self.places = nn.Conv2d(1, width, 8, stride=8), nn.Parameter(sl.randn(1, 16, width) * 0.5)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
        self.layers, self.norm, self.head = nn.TransformerEncoder(layer, 2), nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2) + self.places
        return self.head(self.norm(self.layers(x)).mean(1))


def test_a_vit_tells_digits_apart():  # LB-18
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = np.kron(digits.images.astype(np.float32) / 8 - 1, np.ones((1, 4, 4), np.float32))[:, None]
    order = np.random.default_rng(0).permutation(len(images))
    images, classes = images[order], digits.target[order].astype(np.int64)
    sl.manual_seed(0)
    net = Vit()
    train, rng = Train(net, 3e-3, 230), np.random.default_rng(1)
    for _ in range(10):
        shuffled = rng.permutation(1472)
        for rows in shuffled.reshape(-1, 64):
            loss = train(sl.tensor(images[rows]), sl.tensor(classes[rows]))
    loss.item()
    right = (Call(net.eval())(sl.tensor(images[1472:])).numpy().argmax(1) == classes[1472:]).mean()
    assert right > 0.95, right
