"""Sequence to sequence with attention: a GRU encoder of padded words, a GRU decoder that looks back; it learns to reverse."""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence

PAD, SOS, EOS, VOCABULARY, HIDDEN = 0, 1, 2, 14, 32


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, HIDDEN, padding_idx=PAD)
        self.gru = nn.GRU(HIDDEN, HIDDEN // 2, batch_first=True, bidirectional=True)

    def forward(self, source):
        output, hidden = self.gru(self.embedding(source))
        return output, torch.cat((hidden[0], hidden[1]), dim=1)


class BahdanauAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(HIDDEN, HIDDEN)
        self.key = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.score = nn.Linear(HIDDEN, 1, bias=False)

    def forward(self, query, keys, mask):
        scores = self.score(torch.tanh(self.query(query).unsqueeze(1) + self.key(keys))).squeeze(2)
        weights = F.softmax(scores.masked_fill(mask, float("-inf")), dim=-1)
        return torch.bmm(weights.unsqueeze(1), keys).squeeze(1), weights


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, HIDDEN)
        self.attention = BahdanauAttention()
        self.cell = nn.GRUCell(2 * HIDDEN, HIDDEN)
        self.out = nn.Linear(2 * HIDDEN, VOCABULARY)

    def forward(self, memory, hidden, mask, target=None, length=8):
        token = torch.full((memory.shape[0],), SOS, dtype=torch.int64)
        outputs = []
        for t in range(length if target is None else target.size(1)):
            context, _ = self.attention(hidden, memory, mask)
            hidden = self.cell(torch.cat([self.embedding(token), context], dim=1), hidden)
            outputs.append(self.out(torch.cat([hidden, context], dim=1)))
            token = outputs[-1].argmax(1) if target is None else target[:, t]  # teacher forcing
        return torch.stack(outputs, dim=1)


class Seq2Seq(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = Encoder(), Decoder()

    def forward(self, source, target=None):
        memory, hidden = self.encoder(source)
        return self.decoder(memory, hidden, source == PAD, target)


def initialise(model, seed=0):
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.from_numpy(rng.uniform(-0.2, 0.2, tuple(p.shape)).astype(np.float32)))


def batch(rng, size=16):
    words = [rng.integers(3, VOCABULARY, n) for n in [6] + list(rng.integers(2, 7, size - 1))]
    sources = pad_sequence([torch.from_numpy(w) for w in words], batch_first=True, padding_value=PAD)
    targets = pad_sequence([torch.from_numpy(np.append(w[::-1], EOS)) for w in words], batch_first=True, padding_value=PAD)
    return sources, targets


def main():
    model = Seq2Seq()
    initialise(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    criterion = nn.CrossEntropyLoss(ignore_index=PAD)

    def train_step(source, target):
        optimizer.zero_grad()
        loss = criterion(model(source, target).transpose(1, 2), target)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    if "--graph" in sys.argv and hasattr(nn, "Graph"):
        class TrainStep(nn.Graph):
            def __init__(self):
                super().__init__()
                self.model = model
                self.add_optimizer(optimizer)

            def build(self, source, target):
                loss = criterion(self.model(source, target).transpose(1, 2), target)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                return loss

        train_step = TrainStep()

    rng = np.random.default_rng(1)
    for step in range(20):
        print(step, f"{train_step(*batch(rng)).item():.8g}")
    with torch.no_grad():
        print("tokens", *model(batch(rng, 2)[0]).argmax(-1).flatten().tolist())


if __name__ == "__main__":
    main()
