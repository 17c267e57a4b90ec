"""A character-level LSTM language model: truncated backpropagation through time, clipped gradients, greedy text."""

import math
import sys

import numpy as np
import torch
import torch.nn as nn

TEXT = "the quick brown fox jumps over the lazy dog and the lazy dog sleeps while the quick fox runs over the hill. " * 24
SEQ, BATCH = 24, 8


class CharLSTM(nn.Module):
    def __init__(self, vocabulary, embedding=16, hidden=48, layers=2):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.lstm = nn.LSTM(embedding, hidden, num_layers=layers, batch_first=True)
        self.head = nn.Linear(hidden, vocabulary)

    def forward(self, tokens, state=None):
        output, state = self.lstm(self.embedding(tokens), state)
        return self.head(output), state


def initialise(model, seed=0):
    rng = np.random.default_rng(seed)
    for p in model.parameters():
        nn.init.constant_(p, 0.0)
        p.data += torch.from_numpy(rng.uniform(-0.15, 0.15, tuple(p.shape)).astype(np.float32))


def main():
    characters = sorted(set(TEXT))
    index = {c: i for i, c in enumerate(characters)}
    data = torch.tensor([index[c] for c in TEXT], dtype=torch.long)
    columns = data[:len(data) // BATCH * BATCH].reshape(BATCH, -1)
    model = CharLSTM(len(characters))
    initialise(model)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)

    def train_step(x, y, h, c):
        optimizer.zero_grad()
        logits, (h, c) = model(x, (h, c))
        loss = criterion(logits.reshape(-1, logits.size(-1)), y.reshape(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.5)
        optimizer.step()
        return loss, h.detach(), c.detach()

    if "--graph" in sys.argv and hasattr(nn, "Graph"):
        class TrainStep(nn.Graph):
            def __init__(self):
                super().__init__()
                self.model = model
                self.add_optimizer(optimizer)

            def build(self, x, y, h, c):
                logits, (h, c) = self.model(x, (h, c))
                loss = criterion(logits.reshape(-1, logits.size(-1)), y.reshape(-1))
                loss.backward()
                nn.utils.clip_grad_norm_(self.model.parameters(), max_norm=0.5)
                return loss, h.detach(), c.detach()

        train_step = TrainStep()

    step = 0
    for epoch in range(2):
        h, c = torch.zeros(2, BATCH, 48), torch.zeros(2, BATCH, 48)
        for start in range(0, columns.size(1) - SEQ - 1, SEQ):
            x, y = columns[:, start:start + SEQ], columns[:, start + 1:start + SEQ + 1]
            loss, h, c = train_step(x.contiguous(), y.contiguous(), h, c)
            print(step, f"{loss.item():.8g}", f"{math.exp(loss.item()):.8g}")
            step += 1

    model.eval()
    token, state, text = torch.tensor([[index["t"]]]), None, "t"
    with torch.no_grad():
        for _ in range(20):
            logits, state = model(token, state)
            token = logits[:, -1].argmax(dim=-1, keepdim=True)
            text += characters[token.item()]
    print("text", text.replace(" ", "_"))


if __name__ == "__main__":
    main()
