"""sluice.data: stages that choose, join, keep and pad samples, against plain lists."""

import json
import os
import random
import subprocess
import sys

import numpy as np
import pytest

from sluice import data, nn
from sluice.data._order import mixed, permuted

N = 23


def plain(batch):
    """A batch as lists."""
    return [v.tolist() for v in (batch if isinstance(batch, tuple) else (batch,))]


def numbers(n=N, begin=0, seed=0):
    return data.arrays(np.arange(begin, begin + n, dtype=np.int64), seed=seed)


def flat(pipeline):
    return [v for batch in pipeline for v in batch.tolist()]


class Words:
    """Samples of any length."""

    def __init__(self, n=N):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return np.arange(i * 7 % 5 + 1, dtype=np.int64) + i, i


# The oracle: what a pipeline is, in lists of samples.

class Lists:
    def __init__(self, base, seed):
        self.base, self.seed = base, seed  # base(epoch): samples, tuples of lists and numbers
        self.shuffled, self.skipped, self.taken, self.rank, self.world, self.drop, self.epochs = False, 0, None, 0, 1, False, 1
        self.pool, self.size, self.drop_last, self.most = None, 0, False, None

    def epoch(self, e):
        samples = self.base(e)
        if self.shuffled:
            samples = [samples[i] for i in permuted(np.arange(len(samples)), len(samples), mixed(self.seed, e)).tolist()] if samples else []
        samples = samples[self.skipped:]
        samples = samples if self.taken is None else samples[:self.taken]
        if self.drop:
            samples = samples[:len(samples) // self.world * self.world]
        elif samples:
            samples = samples + [samples[i % len(samples)] for i in range(-len(samples) % self.world)]
        samples = samples[self.rank::self.world]
        return self.bucketed(samples, e) if self.pool else samples

    def bucketed(self, samples, e):
        out, span = [], self.pool * self.size
        for number, begin in enumerate(range(0, len(samples), span)):
            group = sorted(samples[begin:begin + span], key=lambda sample: len(sample[0]))
            whole = [group[i:i + self.size] for i in range(0, len(group) - self.size + 1, self.size)]
            rest = group[len(whole) * self.size:]
            if self.shuffled and len(whole) > 1:
                whole = [whole[i] for i in permuted(np.arange(len(whole)), len(whole), mixed(self.seed, e, number, 0xB0C)).tolist()]
            out += [sample for batch in whole for sample in batch] + rest
        return out

    def batches(self):
        samples = [sample for e in range(self.epochs) for sample in self.epoch(e)]
        groups = [samples[i:i + self.size] for i in range(0, len(samples), self.size)]
        return [self.batch(g) for g in groups if len(g) == self.size or not self.drop_last]

    def batch(self, group):
        if self.most is None:
            return [list(part) for part in zip(*group)]
        longest = max(len(sample[0]) for sample in group)
        return [[sample[0] + [-1] * (longest - len(sample[0])) for sample in group], [len(sample[0]) for sample in group],
                *(list(part) for part in zip(*(sample[1:] for sample in group)))]

    def changed(self, f):
        before = self.base
        self.base = lambda e: f(before(e))


def turns(parts, weights, block):
    """Samples of several lists in turn."""
    given, out = [0] * len(parts), []
    while any(given[k] < len(part) for k, part in enumerate(parts)):
        left = [k for k, part in enumerate(parts) if given[k] < len(part)]
        k = min(left, key=lambda k: given[k] // block if weights is None else (given[k] + 0.5) / weights[k])
        out.append(parts[k][given[k]])
        given[k] += 1
    return out


def leaf(draw, begin, ragged):
    n, seed = draw.randint(1, N), draw.randint(0, 3)
    if ragged:
        return data.dataset(Words(n), seed=seed), Lists(lambda e: [(Words()[i][0].tolist(), i) for i in range(n)], seed)
    if draw.random() < 0.3:
        samples = [(begin + i, 2 * i) for i in range(n)]
        return data.dataset(samples, seed=seed), Lists(lambda e: samples, seed)
    x = np.arange(begin, begin + n)
    return data.arrays(x, 2 * np.arange(n), seed=seed), Lists(lambda e: [(begin + i, 2 * i) for i in range(n)], seed)


def chosen(draw, pipeline, lists, shuffles=True):
    """With some of skip, take, filter and shuffle, which are of all samples whatever their order."""
    for _ in range(draw.randint(0, 2)):
        kind = draw.choice(["skip", "take", "filter", "shuffle", "map", "branch", "cache"])
        n = draw.randint(1, 9)
        if kind == "skip":
            pipeline, lists.skipped = pipeline.skip(n), lists.skipped + n
            lists.taken = None if lists.taken is None else max(lists.taken - n, 0)
        elif kind == "take":
            pipeline, lists.taken = pipeline.take(n + 5), n + 5 if lists.taken is None else min(n + 5, lists.taken)
        elif kind == "filter" and lists.fixed:
            pipeline = pipeline.filter(lambda sample: int(np.sum(sample[-1])) // 2 % n != 0)
            lists.changed(lambda samples, n=n: [s for s in samples if int(np.sum(s[-1])) // 2 % n != 0])
        elif kind == "shuffle" and shuffles:
            pipeline, lists.shuffled = pipeline.shuffle(), True
        elif kind == "map":
            pipeline = pipeline.map(lambda sample, n=n: (sample[0], sample[1] + n, *sample[2:]))
            lists.changed(lambda samples, n=n: [(s[0], added(s[1], n), *s[2:]) for s in samples])
        elif kind == "branch":
            pipeline = pipeline.branch(lambda sample: int(np.sum(sample[1])) % 2, lambda sample: sample,
                                       lambda sample: (sample[0], sample[1] + 1, *sample[2:]))
            lists.changed(lambda samples: [(s[0], added(s[1], 1), *s[2:]) if int(np.sum(s[1])) % 2 else s for s in samples])
        elif kind == "cache" and not lists.ragged:
            pipeline = pipeline.cache()
    return pipeline, lists


def added(value, n):
    return (np.array(value) + n).tolist()


def composed(draw):
    ragged = draw.random() < 0.3
    kind = draw.choice(["leaf", "zip", "interleave", "window"])
    parts = []
    for k in range(1 if kind in ("leaf", "window") else draw.randint(1, 3)):
        pipeline, lists = leaf(draw, 100 * k, ragged and kind in ("leaf", "interleave"))
        lists.fixed, lists.ragged = True, ragged and kind in ("leaf", "interleave")
        parts.append(chosen(draw, pipeline, lists, shuffles=kind == "interleave"))
    seed = draw.randint(0, 3)
    if kind == "leaf":
        pipeline, lists = parts[0]
    elif kind == "zip":
        pipeline = data.zip(*(p for p, _ in parts), seed=seed)
        lists = Lists(lambda e: [sum(row, ()) for row in zip(*(q.epoch(0) for _, q in parts))], seed)
    elif kind == "interleave":
        weights, block = (None, draw.randint(1, 3)) if draw.random() < 0.5 else ([draw.choice([1, 2, 3.5]) for _ in parts], 1)
        pipeline = data.interleave(*(p for p, _ in parts), weights=weights, block=block, seed=seed)
        lists = Lists(lambda e: turns([q.epoch(e) for _, q in parts], weights, block), seed)
    else:
        pipeline, inner = parts[0]
        size, shift, stride = draw.randint(1, 3), draw.randint(1, 3), draw.randint(1, 2)
        pipeline = pipeline.window(size, shift, stride)
        got = inner.epoch(0)
        rows = [[got[i + k * stride] for k in range(size)] for i in range(0, len(got) - stride * (size - 1), shift)]
        lists = Lists(lambda e: [tuple(list(part) for part in zip(*row)) for row in rows], inner.seed)
    lists.fixed = kind != "interleave" or not any(q.shuffled for _, q in parts)
    lists.ragged = ragged and kind in ("leaf", "interleave")
    pipeline, lists = chosen(draw, pipeline, lists)
    return ended(draw, pipeline, lists)


def ended(draw, pipeline, lists):
    if draw.random() < 0.3:
        lists.world, lists.drop = draw.randint(2, 3), draw.random() < 0.5
        lists.rank = draw.randrange(lists.world)
        pipeline = pipeline.shard(lists.rank, lists.world, "drop" if lists.drop else "pad")
    if draw.random() < 0.4:
        lists.epochs = draw.randint(2, 3)
        pipeline = pipeline.repeat(lists.epochs)
    lists.size, lists.drop_last = draw.randint(1, 6), draw.random() < 0.3
    if not lists.ragged:
        return pipeline.batch(lists.size, lists.drop_last), lists
    lists.most = 9
    if draw.random() < 0.6:
        lists.pool = draw.randint(1, 3)
        pipeline = pipeline.bucket(lambda sample: len(sample[0]), pool=lists.pool)
    return pipeline.padded_batch(lists.size, 9, -1, drop_last=lists.drop_last), lists


@pytest.mark.soak
def test_any_stages_together_are_those_of_plain_lists(repetitions, count):
    n = repetitions(40, 2000)
    batches = 0
    for number in range(n):
        try:
            pipeline, lists = composed(random.Random(number))
            empty = pipeline._order.length == 0 or pipeline._source.count == 0
            want = lists.batches()
            got = [] if empty else [plain(batch) for batch in pipeline]
            assert got == want
            batches += len(want)
            if want:
                at = random.Random(number).randrange(len(want))
                first, again = composed(random.Random(number))[0], composed(random.Random(number))[0]
                steps = iter(first)
                for _ in range(at + 1):
                    next(steps)
                again.load_state_dict(json.loads(json.dumps(first.state_dict())))
                assert [plain(batch) for batch in again] == want[at + 1:]
        except Exception as error:
            raise AssertionError(f"composition {number}: {error}") from error
    count("composing", n, f"pipelines of {batches} batches, each also from a place within")


# Each alone.

def test_shares_of_a_mixture_hold_at_any_place():
    mixed_ = data.interleave(numbers(900).shuffle(), numbers(300, 1000), weights=[3, 1]).batch(40)
    shares = [float((x.numpy() >= 1000).mean()) for x in mixed_]
    assert shares == [0.25] * 30
    one, two = list(data.interleave(numbers(900).shuffle(), numbers(300, 1000)).batch(100)), list(mixed_)
    assert sorted(sum((x.tolist() for x in one), [])) == sorted(sum((x.tolist() for x in two), []))
    orders = data.interleave(numbers(50).shuffle(), numbers(50, 100)).repeat(2).batch(100)
    first, second = (x.tolist() for x in orders)
    assert first != second and sorted(first) == sorted(second) and first[1::2] == second[1::2]  # a part shuffles by epochs


def test_encoded_images_of_several_folders_come_in_turn_and_beside_arrays(tmp_path):
    Image = pytest.importorskip("PIL.Image")
    for kind, value in (("a", 10), ("b", 200)):
        (tmp_path / kind / "x").mkdir(parents=True)
        for i in range(5):
            Image.fromarray(np.full((9, 9, 3), value + i, np.uint8)).save(tmp_path / kind / "x" / f"{kind * (i + 1)}.png")
    with data.RecordWriter(tmp_path / "r") as file:
        for i in range(5):
            file.write((tmp_path / "b" / "x" / f"{'b' * (i + 1)}.png").read_bytes(), 7)
    mixed_ = data.interleave(data.images(tmp_path / "a"), data.records(tmp_path / "r"))
    x, y = next(iter(mixed_.batch(10).decode(4)))
    assert x[:, 0, 0, 0].tolist() == [10, 200, 11, 201, 12, 202, 13, 203, 14, 204] and y.tolist() == [0, 7] * 5
    zipped = data.zip(data.images(tmp_path / "a").skip(1), numbers(9)).shuffle().batch(4)
    for x, y, z in zipped.decode(4):
        assert x[:, 0, 0, 0].tolist() == [11 + i for i in z.tolist()] and y.tolist() == [0] * len(z)
    (tmp_path / "a" / "x" / "aa.png").write_bytes(b"none")
    for policy, want in (("skip", [0, 2, 3, 4]), ("replace", [0, 2, 2, 3, 4])):
        x, y, z = next(iter(data.zip(data.images(tmp_path / "a"), numbers(9)).batch(5).decode(4).on_error(policy)))
        assert z.tolist() == want and x[:, 0, 0, 0].tolist() == [10 + i for i in want]  # what is beside an image goes with it


CALLS = []


def slow(sample):
    CALLS.append(int(sample))
    return np.full(3, sample, np.float32), sample * 2


def test_a_cache_makes_each_sample_once_in_memory_and_in_a_folder(tmp_path):
    want = [plain(batch) for batch in data.dataset(range(N)).map(slow).shuffle().repeat(3).batch(5)]
    for folder in (None, tmp_path / "kept"):
        CALLS.clear()
        pipeline = data.dataset(range(N)).map(slow, out=[((3,), np.float32), ((), np.int64)]).cache(folder).shuffle().repeat(3).batch(5)
        assert [plain(batch) for batch in pipeline] == want
        assert sorted(CALLS) == list(range(N))
        memory = pipeline.memory()
        assert memory["cache"] == (N * 20 if folder is None else 0) and memory["total"] == sum(memory.values()) - memory["total"]
    CALLS.clear()
    again = data.dataset(range(N)).map(slow, workers=1).cache(tmp_path / "kept").shuffle().repeat(3).batch(5)
    assert [plain(batch) for batch in again] == want and len(CALLS) <= 1  # which tells what samples are like
    with pytest.raises(ValueError, match=r"cache: .*kept: is of .*; remove the folder, or name another"):
        next(iter(data.dataset(range(N)).map(lambda s: np.zeros(2)).cache(tmp_path / "kept").batch(5)))
    with pytest.raises(ValueError, match="cache: behind a function with random numbers"):
        data.dataset(range(N)).map(lambda sample, rng: sample).map(lambda sample: sample).cache()


def test_a_cache_with_workers_is_the_same(tmp_path):
    pipeline = data.dataset(range(N)).map(slow, workers=2).cache(tmp_path / "kept").shuffle().repeat(2).shard(1, 2).batch(3)
    want = data.dataset(range(N)).map(slow).shuffle().repeat(2).shard(1, 2).batch(3)
    assert [plain(batch) for batch in pipeline] == [plain(batch) for batch in want]


CACHING = """
import os, sys
import numpy as np
from sluice import data

def made(sample):
    if os.path.exists(sys.argv[2]):
        print(f"made {sample}\\n", end="", flush=True)
    return np.full(100, sample, np.int64)

pipeline = data.dataset(range(1000)).map(made, out=((100,), np.int64)).cache(sys.argv[1]).batch(10).prefetch(1)
for k, x in enumerate(pipeline):
    assert (x.numpy() == 10 * k + np.arange(10)[:, None]).all()
    print("batch\\n", end="", flush=True)
"""


def test_a_cache_of_a_killed_process_has_whole_samples_alone(tmp_path):
    folder, mark = tmp_path / "kept", tmp_path / "mark"
    child = subprocess.Popen([sys.executable, "-c", CACHING, str(folder), str(mark)], stdout=subprocess.PIPE, text=True)
    for _ in range(50):
        assert child.stdout.readline() == "batch\n"
    child.kill()
    child.communicate()
    mark.write_text("")
    done = subprocess.run([sys.executable, "-c", CACHING, str(folder), str(mark)], capture_output=True, text=True, check=True)
    made = [int(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("made")]
    assert 0 < len(made) <= 600 and made == list(range(1000 - len(made), 1000))


def test_buckets_have_samples_of_like_length():
    lengths = np.random.default_rng(0).integers(1, 200, 2000)
    samples = [np.zeros(n, np.float32) for n in lengths]

    def waste(pipeline):
        sizes = [x.shape for x, _ in pipeline]
        return sum(a * b for a, b in sizes) / lengths.sum() - 1, [s[1] for s in sizes]

    plain_, _ = waste(data.dataset(samples).shuffle().padded_batch(20, 200))
    bucketed, longest = waste(data.dataset(samples).shuffle().bucket(lengths, pool=50).padded_batch(20, 200))
    assert bucketed < 0.05 < 0.5 < plain_
    assert longest != sorted(longest)  # short batches and long ones in any order


def test_lines_become_tokens(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    words = ["all", "cats", "sleep", "long", "[UNK]"]
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel({w: i for i, w in enumerate(words)}, "[UNK]"))
    model.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    model.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "text").write_text("all cats sleep\ncats\nall dogs sleep long\n")
    for tokenizer in (tmp_path / "tokenizer.json", model, lambda text: model.encode(text).ids):
        x, n = next(iter(data.lines(tmp_path / "text", 64).tokenize(tokenizer).padded_batch(3, 8, -1)))
        assert x.tolist() == [[0, 1, 2, -1], [1, -1, -1, -1], [0, 4, 2, 3]] and n.tolist() == [3, 1, 4]
    got = data.lines(tmp_path / "text", 64).bucket().tokenize(model, workers=1).padded_batch(2, 8, -1)
    assert [n.tolist() for _, n in got] == [[1, 3], [4]]


def trained(kind, lines):
    """A tokenizer of the kind of BERT, of GPT-2 and RoBERTa, or of T5."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    size = {"vocab_size": 1200, "show_progress": False}
    if kind == "bert":
        made, trainer = Tokenizer(models.WordPiece(unk_token="[UNK]")), trainers.WordPieceTrainer(special_tokens=["[PAD]", "[UNK]"], **size)
        made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(lowercase=False), pre_tokenizers.BertPreTokenizer()
        made.decoder = decoders.WordPiece()
    elif kind == "gpt2":
        letters = pre_tokenizers.ByteLevel.alphabet()
        made, trainer = Tokenizer(models.BPE()), trainers.BpeTrainer(special_tokens=["<pad>"], initial_alphabet=letters, **size)
        made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    else:
        made, trainer = Tokenizer(models.Unigram()), trainers.UnigramTrainer(special_tokens=["<pad>", "<unk>"], unk_token="<unk>", **size)
        made.pre_tokenizer, made.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    made.train_from_iterator(lines, trainer)
    return made


@pytest.mark.parametrize("kind", ["bert", "gpt2", "t5"])
def test_a_thousand_lines_become_tokens_and_lines_again(tmp_path, kind):  # LB-22
    pytest.importorskip("tokenizers")
    texts = [" ".join(line.split()) for name in ("Apache-2.0", "GPL-3", "LGPL-2.1") for line in open(f"/usr/share/common-licenses/{name}")]
    texts = [text for text in texts if text][:1000]
    (tmp_path / "lines").write_text("\n".join(texts) + "\n")
    model = trained(kind, texts)
    model.save(str(tmp_path / "tokenizer.json"))
    again = []
    for ids, lengths in data.lines(tmp_path / "lines", 160).tokenize(tmp_path / "tokenizer.json").padded_batch(250, 160, 0):
        again += [model.decode(row[:n]) for row, n in zip(ids.tolist(), lengths.tolist())]
    assert len(again) == 1000
    if kind == "bert":  # which does not know where there were spaces around signs
        assert ["".join(text.split()) for text in again] == ["".join(text.split()) for text in texts]
    else:
        assert again == texts


def test_a_tokenizer_that_is_not_installed_is_told(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ImportError, match="tokenize: a tokenizer by its file needs the package tokenizers; install it"):
        numbers().tokenize(tmp_path / "tokenizer.json")


def test_branches_of_batches_are_taken_by_row():
    x = np.arange(12, dtype=np.float32).reshape(6, 2)
    pipeline = data.arrays(x, np.arange(6)).batch(4).branch(lambda x, y: y % 3, lambda x, y: (x, y), lambda x, y: (x * 10, y),
                                                          lambda x, y: (-x, y + 100))
    got = [plain(batch) for batch in pipeline]
    assert got == [[[[0, 1], [20, 30], [-4, -5], [6, 7]], [0, 1, 102, 3]], [[[80, 90], [-10, -11]], [4, 105]]]
    with pytest.raises(ValueError, match="branch: functions gave .*; all must give tensors of one shape and dtype"):
        next(iter(data.arrays(x).batch(3).branch(lambda x: x[:, 0] > 3, lambda x: x, lambda x: x[:, :1])))


def test_padded_batches_are_of_full_length_inside_of_a_plan():
    class Sums(nn.Graph):
        def build(self):
            x, n, _ = pipeline()
            return x.sum(1), n, x

    pipeline = data.dataset(Words()).repeat().padded_batch(4, 9)
    total, n, x = Sums()()
    assert x.shape == (4, 9) and total.tolist() == [sum(Words()[i][0].tolist()) for i in range(4)] and n.tolist() == [1, 3, 5, 2]


@pytest.mark.parametrize(("make", "error", "text"), [
    (lambda: numbers().shuffle().window(2), ValueError, r"window: behind shuffle\(\); must come before"),
    (lambda: numbers().batch(2).window(2), ValueError, r"window: behind batch\(\), repeat\(\), shard\(\)"),
    (lambda: numbers().window(0), ValueError, "window: size 0, shift 0, stride 1; must be at least 1"),
    (lambda: data.zip(numbers(), numbers().shuffle()), ValueError, r"zip: behind shuffle\(\)"),
    (lambda: data.interleave(numbers().bucket(range(N))), ValueError, r"interleave: behind .* bucket\(\) or torchvision's transforms"),
    (lambda: data.zip(), ValueError, "data.zip: no pipelines"),
    (lambda: data.interleave(), ValueError, "data.interleave: 0 pipelines"),
    (lambda: data.interleave(numbers(), numbers().repeat(2)), ValueError, r"interleave: behind batch\(\), repeat\(\)"),
    (lambda: data.interleave(numbers(), data.arrays(np.ones(3))), ValueError, r"interleave: part 1 has samples of .*float64.*; all must be alike"),
    (lambda: data.interleave(numbers(), weights=[0]), ValueError, r"weights \[0\] of 1 pipelines; must be a positive number for each"),
    (lambda: data.interleave(numbers().shuffle(), numbers()).filter(bool), ValueError, r"filter: behind interleave\(\) of shuffled"),
    (lambda: numbers().bucket(), ValueError, "bucket: the samples have no length that is known"),
    (lambda: numbers().bucket([1, 2]), ValueError, r"bucket: lengths of shape \(2,\); must be one for each of 23 samples"),
    (lambda: numbers().bucket(pool=0), ValueError, "bucket: pool: 0 batches"),
    (lambda: numbers().batch(2).cache(), ValueError, "cache: of encoded images, or behind batch"),
    (lambda: numbers().padded_batch(2, 4, longer="drop"), ValueError, "padded_batch: most 4, longer 'drop'"),
    (lambda: next(iter(data.dataset(Words()).padded_batch(2, 2))), RuntimeError, "a sample of length 3; must be at most 2; longer='cut'"),
    (lambda: next(iter(numbers().padded_batch(2, 2))), ValueError, "the first part of a sample is a number"),
    (lambda: numbers().branch(bool), ValueError, "branch: no functions"),
    (lambda: next(iter(numbers().branch(lambda s: 2, abs, abs).batch(2))), ValueError, "branch: function 2 of 2 was chosen"),
    (lambda: numbers().tokenize("/nowhere/tokenizer.json"), FileNotFoundError, "/nowhere/tokenizer.json: there is no such file"),
    (lambda: numbers().tokenize(3), TypeError, "tokenize: int; must be the path"),
    (lambda: next(iter(data.arrays(np.ones(3)).tokenize(len).batch(1))), TypeError, "tokenize: the first part of a sample is float64"),
    (lambda: numbers().map(abs, out=3), TypeError, "map: out: 3; must be"),
    (lambda: numbers().map(abs, timeout=-1), ValueError, "map: timeout: -1"),
])
def test_misuse_of_stages_is_told(make, error, text):
    with pytest.raises(error, match=text):
        make()


def test_functions_of_batches_see_rows_that_are_there(tmp_path):
    """Of a smaller last batch, and of one that on_error() has made smaller."""
    centred = data.arrays(np.array([8.0, 9.0, 10.0], np.float32)).batch(2).map(lambda v: v - v.mean())
    assert [v.tolist() for v in centred] == [[-0.5, 0.5], [0.0]]
    images, classes = np.full((5, 1, 2, 2), 50, np.float32), np.full(5, 3)
    for mix in (data.augment.mixup(classes=5), data.augment.cutmix(classes=5)):
        for x, y in data.arrays(images, classes).batch(4).map(mix):
            assert np.allclose(x.numpy(), 50) and np.allclose(y.numpy(), np.eye(5)[3])

    def fails(s):
        return 1 / (s - 2)

    skipped = data.dataset(range(1, 5)).map(lambda s: fails(s) + 10, out=((), np.float32)).batch(4).on_error("skip").map(lambda v: v.min() + 0 * v)
    assert [v.tolist() for v in skipped] == [[9, 9, 9]]


def test_functions_may_change_what_they_are_given():
    kept = np.zeros((4, 2), np.float32)

    def add(sample):
        row = sample[0]
        row += 1
        return row

    for _ in range(2):
        assert [v.tolist() for v in data.arrays(kept).map(add).batch(4)] == [[[1, 1]] * 4]
    assert not kept.any()


def first(sample):
    return np.float32(np.ravel(sample[0])[0]) if isinstance(sample, tuple) else np.float32(len(sample) if isinstance(sample, str) else sample)


def next_of(pipeline):
    return next(iter(pipeline))


def contents(tmp_path):
    """Pairs of sources whose samples differ in one place, of like names and sizes."""
    rows = np.zeros((300, 2), np.float32)
    other = rows.copy()
    other[150] = 1
    yield data.arrays(rows), lambda: data.arrays(other)
    yield data.dataset([1.0, 2.0]), lambda: data.dataset([1.0, 3.0])
    yield data.zip(data.arrays(rows), data.arrays(rows)), lambda: data.zip(data.arrays(rows), data.arrays(other))
    (tmp_path / "images" / "a").mkdir(parents=True)
    image = tmp_path / "images" / "a" / "0.png"
    image.write_bytes(b"a" * 9)

    def files():
        return data.images(tmp_path / "images").map(lambda s: (np.frombuffer(s[0], np.uint8)[0],))

    def replaced():
        image.write_bytes(b"b" * 9)
        os.utime(image, ns=(1, 1))
        return files()

    yield files(), replaced
    (tmp_path / "lines").write_text("aa\nbb\n")
    lines = data.lines(tmp_path / "lines", 4)

    def written():
        (tmp_path / "new").write_text("aa\ncc\n")
        os.utime(tmp_path / "new", ns=(1, 1))
        os.replace(tmp_path / "new", tmp_path / "lines")
        return data.lines(tmp_path / "lines", 4)

    yield lines, written


def test_a_folder_of_other_samples_is_refused(tmp_path):
    for number, (source, changed) in enumerate(contents(tmp_path)):
        folder = tmp_path / str(number)
        made = [next_of(source.map(first).cache(folder).batch(2)) for _ in range(2)]
        assert made[0].tolist() == made[1].tolist()
        with pytest.raises(ValueError, match="remove the folder, or name another"):
            next_of(changed().map(first).cache(folder).batch(2))
