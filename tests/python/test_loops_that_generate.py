"""Loops that generate text with caches, in one plan."""

import numpy as np
import pytest

import sluice as sl
import sluice.nn as nn

torch = pytest.importorskip("torch")
from looping import close


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def parts(self, x):
        batch, length, width = x.shape
        return [t.reshape(batch, length, self.heads, width // self.heads).transpose(1, 2)
                for t in self.qkv(self.norm1(x)).chunk(3, 2)]

    def join(self, x, attended):
        x = x + self.out(attended.transpose(1, 2).reshape(x.shape))
        return x + self.mlp(self.norm2(x))

    def forward(self, x):
        q, k, v = self.parts(x)
        return self.join(x, nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True))

    def step(self, x, cache, position, seen):
        """One token: `cache` has the keys and values of those before."""
        q, k, v = self.parts(x)
        keys, values = (c.index_copy(2, position.reshape(1), new) for c, new in zip(cache, (k, v)))
        return self.join(x, nn.functional.scaled_dot_product_attention(q, keys, values, attn_mask=seen)), (keys, values)


class CharGPT(nn.Module):
    def __init__(self, vocabulary=27, width=32, heads=4, layers=2, longest=256):
        super().__init__()
        self.longest, self.heads, self.width = longest, heads, width
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(longest, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions.weight[:tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(x)

    def step(self, token, position, caches):
        x = (self.tokens(token) + self.positions(position)).unsqueeze(1)
        seen = sl.arange(self.longest) <= position
        made = []
        for block, cache in zip(self.blocks, caches):
            x, cache = block.step(x, cache, position, seen)
            made.append(cache)
        return self.head(x)[:, 0], tuple(made)

    def caches(self, batch):
        shape = batch, self.heads, self.longest, self.width // self.heads
        return tuple((sl.zeros(shape), sl.zeros(shape)) for _ in self.blocks)


class Generate(nn.Graph):
    """Continues a prompt by so many tokens, as one step of one plan."""

    def __init__(self, model, count):
        super().__init__()
        self.model, self.count = model, count

    def build(self, prompt):
        model, batch = self.model, prompt.shape[0]

        def read(state, token):
            position, caches, _ = state
            logits, caches = model.step(token, position, caches)
            return (position + 1, caches, logits), None

        def write(state, _):
            position, caches, logits = state
            token = logits.argmax(1)
            return read((position, caches, logits), token)[0], (token, logits)

        with sl.no_grad():
            state = sl.tensor(0), model.caches(batch), sl.zeros(batch, model.head.out_features)
            state, _ = sl.scan(read, state, prompt.t())
            _, (tokens, logits) = sl.scan(write, state, length=self.count)
        return tokens.t(), logits


def test_a_plan_generates_text_with_caches(count=200):  # MLX-08
    sl.manual_seed(1)
    model = CharGPT()
    for p in model.parameters():
        p.data.mul_(2)  # so that what comes next depends on more than the last token
    prompt = sl.from_numpy(np.random.RandomState(0).randint(0, 27, (2, 7)))
    graph = Generate(model, count)
    tokens, logits = graph(prompt)
    assert tokens.shape == (2, count) and len({tuple(row) for row in tokens.tolist()}) == 2
    with sl.no_grad():
        everything = model(sl.cat([prompt, tokens], 1))[:, 6:-1]  # each token again from all before it
        close(logits.transpose(0, 1), everything, 1e-4)
        assert everything.argmax(2).tolist() == tokens.tolist()
        sequence = prompt
        for i in range(20):
            sequence = sl.cat([sequence, model(sequence)[:, -1].argmax(1, keepdim=True)], 1)
        assert sequence[:, 7:].tolist() == tokens[:, :20].tolist()

    caches = 2 * 2 * 2 * 256 * 32 * 4
    loops = [k for k in graph.plan["kernels"] if k["op"] == "loop"]
    assert len(loops) == 2
    for loop in loops:  # the caches are written in place: a turn has room for less than one of them
        assert graph.plan["buffers"][loop["workspace"]]["bytes"] < caches / 4


def test_generation_ends_where_the_text_does():
    """The number of tokens is data: a loop that stops behind token 0, with its text in a state."""
    sl.manual_seed(3)
    model, longest = CharGPT(), 64

    class Until(nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = model

        def build(self, token, stop):
            def step(token, position, text, caches):
                logits, caches = self.model.step(token, position, caches)
                token = logits.argmax(1)
                return token, position + 1, text.index_copy(0, position.reshape(1), token), caches

            go_on = lambda token, position, text, caches: (token[0] != stop) & (position < longest)
            with sl.no_grad():
                state = token, sl.tensor(0), sl.zeros(longest, dtype=sl.int64), self.model.caches(1)
                return sl.while_loop(go_on, step, state)[:3]

    graph = Until()
    _, count, text = graph(sl.tensor([5]), sl.tensor(-1))
    assert count.item() == longest
    stop = text[10].item()
    expected = text.tolist()[:text.tolist().index(stop) + 1]
    _, count, text = graph(sl.tensor([5]), sl.tensor(stop))
    assert count.item() == len(expected) and text.tolist()[:len(expected)] == expected
    assert not any(text.tolist()[len(expected):])
