"""Llama blocks: RMSNorm, rotary positions, grouped queries, SwiGLU, and decoding with a cache of keys and values."""

import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

DIM, HEADS, KV_HEADS, LAYERS, VOCABULARY, LENGTH = 32, 4, 2, 2, 16, 32


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def rotary_table(head_dim, length, theta=10000.0):
    freqs = 1.0 / (theta ** (torch.arange(0, head_dim, 2).float() / head_dim))
    angles = torch.outer(torch.arange(length).float(), freqs)
    return torch.cat((angles, angles), dim=-1)


def rotate_half(x):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((-b, a), dim=-1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.head_dim = DIM // HEADS
        self.wq = nn.Linear(DIM, HEADS * self.head_dim, bias=False)
        self.wk = nn.Linear(DIM, KV_HEADS * self.head_dim, bias=False)
        self.wv = nn.Linear(DIM, KV_HEADS * self.head_dim, bias=False)
        self.wo = nn.Linear(HEADS * self.head_dim, DIM, bias=False)

    def forward(self, x, cos, sin, cache=None):
        b, t, _ = x.shape
        q = self.wq(x).view(b, t, HEADS, self.head_dim).transpose(1, 2)
        k = self.wk(x).view(b, t, KV_HEADS, self.head_dim).transpose(1, 2)
        v = self.wv(x).view(b, t, KV_HEADS, self.head_dim).transpose(1, 2)
        q, k = q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin
        if cache is not None:
            start, (keys, values) = cache[2], cache[:2]
            keys[:, :, start:start + t] = k
            values[:, :, start:start + t] = v
            k, v = keys[:, :, :start + t], values[:, :, :start + t]
        k = k.repeat_interleave(HEADS // KV_HEADS, dim=1)
        v = v.repeat_interleave(HEADS // KV_HEADS, dim=1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=t > 1)
        return self.wo(y.transpose(1, 2).reshape(b, t, -1))


class FeedForward(nn.Module):
    def __init__(self, hidden=80):
        super().__init__()
        self.w1, self.w3 = nn.Linear(DIM, hidden, bias=False), nn.Linear(DIM, hidden, bias=False)
        self.w2 = nn.Linear(hidden, DIM, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.feed_forward = Attention(), FeedForward()
        self.attention_norm, self.ffn_norm = RMSNorm(DIM), RMSNorm(DIM)

    def forward(self, x, cos, sin, cache=None):
        h = x + self.attention(self.attention_norm(x), cos, sin, cache)
        return h + self.feed_forward(self.ffn_norm(h))


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok_embeddings = nn.Embedding(VOCABULARY, DIM)
        self.layers = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = RMSNorm(DIM)
        self.output = nn.Linear(DIM, VOCABULARY, bias=False)
        self.register_buffer("angles", rotary_table(DIM // HEADS, LENGTH), persistent=False)

    def forward(self, tokens, caches=None, start=0):
        angles = self.angles[start:start + tokens.shape[1]]
        h = self.tok_embeddings(tokens)
        for i, layer in enumerate(self.layers):
            h = layer(h, angles.cos(), angles.sin(), None if caches is None else (*caches[i], start))
        return self.output(self.norm(h))

    @torch.inference_mode()
    def generate(self, tokens, count):
        shape = (tokens.shape[0], KV_HEADS, LENGTH, DIM // HEADS)
        caches = [(torch.zeros(shape), torch.zeros(shape)) for _ in self.layers]
        new, start = tokens, 0
        for _ in range(count):
            logits = self(new, caches, start)
            start += new.shape[1]
            new = logits[:, -1].argmax(-1, keepdim=True)
            tokens = torch.cat([tokens, new], dim=1)
        return tokens


def initialise(model, seed=0):
    rng = np.random.default_rng(seed)
    for p in model.parameters():
        if p.dim() == 2:
            p.data.copy_(torch.from_numpy(rng.normal(0, 0.1, tuple(p.shape)).astype(np.float32)))


model = Llama()
initialise(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, betas=(0.9, 0.95), weight_decay=0.1)


def train_step(x, y):
    loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


if "--graph" in sys.argv and hasattr(nn, "Graph"):
    class TrainStep(nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = model
            self.add_optimizer(optimizer)

        def build(self, x, y):
            loss = F.cross_entropy(self.model(x).flatten(0, 1), y.flatten())
            loss.backward()
            return loss

    train_step = TrainStep()

rng = np.random.default_rng(1)
for step in range(25):
    sequence = rng.integers(0, VOCABULARY, (16, 1)) * 3 ** np.arange(17) % 16 + np.arange(17)
    tokens = torch.from_numpy(sequence % VOCABULARY)
    print(step, f"{train_step(tokens[:, :-1], tokens[:, 1:]).item():.8g}")

prompt = torch.tensor([[1, 4], [5, 0]])
generated = model.generate(prompt, 20)
with torch.no_grad():
    again = model(generated[:, :-1]).argmax(-1)[:, 1:]  # the whole sequence at once, without a cache
print("tokens", *generated.flatten().tolist())
print("agree", torch.equal(again, generated[:, 2:]))
