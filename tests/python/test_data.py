"""Datasets, samplers, collate functions and pipes, as torch's."""

import collections

import numpy as np
import pytest
import torch.utils.data as theirs

import sluice as sl
import sluice.utils.data as ours
from data_cases import BOTH, Squares, assert_same_outcomes, generator, rows, stream

DATASETS = {  # DL-02
    "tensors": lambda lib, d: [d.TensorDataset(*rows(lib))[i]
                               for i in (0, 3, -1, slice(2, 4))] + [len(d.TensorDataset(*rows(lib)))],
    "tensors of other sizes": lambda lib, d: d.TensorDataset(lib.ones(2), lib.ones(3)),
    "tensors, beyond": lambda lib, d: d.TensorDataset(*rows(lib))[10],
    "stack": lambda lib, d: [d.StackDataset(Squares(5), d.TensorDataset(*rows(lib, 5)))[2],
                             d.StackDataset(a=Squares(5), b=Squares(5))[4]],
    "stack at once": lambda lib, d: d.StackDataset(Squares(5), d.Subset(Squares(9), [8, 7, 6, 5, 4])).__getitems__([0, 3]),
    "stack of nothing": lambda lib, d: d.StackDataset(),
    "stack of both": lambda lib, d: d.StackDataset(Squares(2), a=Squares(2)),
    "stack of other sizes": lambda lib, d: d.StackDataset(Squares(2), Squares(3)),
    "concat": lambda lib, d: [d.ConcatDataset([Squares(3), Squares(2), Squares(4)])[i] for i in (0, 2, 3, 4, 5, 8, -1, -9)],
    "concat sizes": lambda lib, d: [d.ConcatDataset([Squares(3), Squares(2)]).cumulative_sizes,
                                    len(d.ConcatDataset([Squares(3)]))],
    "concat, below": lambda lib, d: d.ConcatDataset([Squares(3)])[-4],
    "concat, beyond": lambda lib, d: d.ConcatDataset([Squares(3)])[3],
    "concat of nothing": lambda lib, d: d.ConcatDataset([]),
    "concat of streams": lambda lib, d: d.ConcatDataset([stream(d)]),
    "plus": lambda lib, d: list(d.Subset(Squares(5), [1, 2]) + d.Subset(Squares(5), [3])),
    "chain": lambda lib, d: [list(stream(d, 2) + stream(d, 3)), len(d.ChainDataset([stream(d, 2, 2), stream(d, 3, 5)]))],
    "chain of others": lambda lib, d: list(d.ChainDataset([Squares(3)])),
    "subset": lambda lib, d: [d.Subset(Squares(9), [4, 2])[0], d.Subset(Squares(9), [4, 2]).__getitems__([1, 0]),
                              len(d.Subset(Squares(9), [1]))],
    "subset of a list": lambda lib, d: d.Subset(d.TensorDataset(*rows(lib)), [4, 2, 1])[[0, 2]],
    "abstract": lambda lib, d: d.Dataset()[0],
    "no length": lambda lib, d: len(d.Dataset()),
    "abstract sampler": lambda lib, d: list(d.Sampler()),
}


@pytest.mark.parametrize("name", DATASETS)
def test_datasets_are_as_in_torch(name):
    assert_same_outcomes(DATASETS[name])


SAMPLERS = {  # DL-02
    "sequential": lambda lib, d: [list(d.SequentialSampler(range(5))), len(d.SequentialSampler(range(5)))],
    "random": lambda lib, d: [list(d.RandomSampler(range(50))) for _ in range(2)],
    "random, more": lambda lib, d: list(d.RandomSampler(range(5), num_samples=13)),
    "random, less": lambda lib, d: list(d.RandomSampler(range(50), num_samples=7)),
    "random, replaced": lambda lib, d: list(d.RandomSampler(range(5), replacement=True, num_samples=70)),
    "random, own generator": lambda lib, d: [list(s) for s in [d.RandomSampler(range(9), generator=generator(lib))] * 3],
    "random of nothing": lambda lib, d: d.RandomSampler([]),
    "random, wrong count": lambda lib, d: d.RandomSampler(range(5), num_samples=0),
    "random, count of float": lambda lib, d: d.RandomSampler(range(5), num_samples=2.0),
    "random, wrong flag": lambda lib, d: d.RandomSampler(range(5), replacement=1),
    "subset": lambda lib, d: [list(d.SubsetRandomSampler([4, 7, 1, 2])) for _ in range(2)],
    "weighted": lambda lib, d: [list(d.WeightedRandomSampler([0.1, 3.0, 0.0, 1.5, 2.0], 200)) for _ in range(2)],
    "weighted, one": lambda lib, d: list(d.WeightedRandomSampler(lib.tensor([2.0]), 3, generator=generator(lib))),
    "weighted, wrong count": lambda lib, d: d.WeightedRandomSampler([1.0], True),
    "weighted, wrong flag": lambda lib, d: d.WeightedRandomSampler([1.0], 1, replacement=1),
    "weighted, two dims": lambda lib, d: d.WeightedRandomSampler([[1.0]], 1),
    "weighted, negative": lambda lib, d: list(d.WeightedRandomSampler([1.0, -1.0], 1)),
    "weighted, nan": lambda lib, d: list(d.WeightedRandomSampler([1.0, float("nan")], 1)),
    "weighted, all": lambda lib, d: list(d.WeightedRandomSampler([1.0, 0.0], 2, replacement=False)),
    "weighted, too many": lambda lib, d: list(d.WeightedRandomSampler([1.0, 2.0], 3, replacement=False)),
    "weighted, of sum 0": lambda lib, d: list(d.WeightedRandomSampler([0.0, 0.0], 1)),
    "batches": lambda lib, d: [list(d.BatchSampler(range(7), 3, drop)) for drop in (False, True)],
    "batches, lengths": lambda lib, d: [len(d.BatchSampler(range(7), 3, drop)) for drop in (False, True)],
    "batches, wrong size": lambda lib, d: d.BatchSampler(range(7), 0, False),
    "batches, size of bool": lambda lib, d: d.BatchSampler(range(7), True, False),
    "batches, wrong flag": lambda lib, d: d.BatchSampler(range(7), 1, None),
    "split": lambda lib, d: [list(s.indices) for s in d.random_split(range(10), [3, 7])],
    "split, fractions": lambda lib, d: [list(s.indices) for s in d.random_split(range(11), [0.3, 0.3, 0.4], generator(lib))],
    "split, wrong sum": lambda lib, d: d.random_split(range(10), [3, 6]),
    "split, wrong fraction": lambda lib, d: d.random_split(range(10), [1.5, -0.5]),
    "distributed": lambda lib, d: [list(d.DistributedSampler(range(11), 3, r, shuffle=s, drop_last=x)) for r in range(3)
                                   for s in (0, 1) for x in (0, 1)],
    "distributed sizes": lambda lib, d: [(s.num_samples, s.total_size) for s in [d.DistributedSampler(range(11), 3, 1)]],
    "distributed, tiny": lambda lib, d: [list(d.DistributedSampler(range(1), 5, r, shuffle=False)) for r in range(5)],
    "distributed, wrong rank": lambda lib, d: d.DistributedSampler(range(11), 3, 3),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_samplers_are_as_in_torch(name):
    assert_same_outcomes(SAMPLERS[name])


def test_split_warns_of_empty_parts():
    with pytest.warns(UserWarning, match="Length of split at index 1 is 0"):
        ours.random_split(range(2), [0.9, 0.1])


def test_weighted_samples_without_replacement_have_torchs_distribution():
    weights = [1.0, 2.0, 5.0, 0.0, 2.0]
    sl.manual_seed(0)
    first = np.bincount([next(iter(ours.WeightedRandomSampler(weights, 1, replacement=False))) for _ in range(4000)],
                        minlength=5) / 4000
    np.testing.assert_allclose(first, np.array(weights) / 10, atol=0.03)
    assert sorted(ours.WeightedRandomSampler(weights, 4, replacement=False)) == [0, 1, 2, 4]


Pair = collections.namedtuple("Pair", ["left", "right"])


class Record(dict):
    pass


COLLATED = {
    "tensors": lambda lib: [lib.ones(2, 3), lib.zeros(2, 3)],
    "scalars": lambda lib: [lib.tensor(1), lib.tensor(2)],
    "other sizes": lambda lib: [lib.ones(2), lib.ones(3)],
    "floats": lambda lib: [1.5, 2],
    "ints": lambda lib: [1, 2, 3],
    "bools": lambda lib: [True, False],
    "texts": lambda lib: ["a", "b"],
    "bytes": lambda lib: [b"a", b"b"],
    "arrays": lambda lib: [np.ones((2, 2), np.float32), np.zeros((2, 2), np.float32)],
    "array of no dims": lambda lib: [np.array(2), np.array(3)],
    "numbers of numpy": lambda lib: [np.float32(1), np.float32(2)],
    "ints of numpy": lambda lib: [np.int16(1), np.int16(2)],
    "bools of numpy": lambda lib: [np.bool_(True), np.bool_(False)],
    "arrays of text": lambda lib: [np.array(["a"]), np.array(["b"])],
    "tuples": lambda lib: [(1, lib.ones(2)), (2, lib.zeros(2))],
    "lists": lambda lib: [[1, "a"], [2, "b"]],
    "named tuples": lambda lib: [Pair(1, lib.ones(1)), Pair(2, lib.zeros(1))],
    "dicts": lambda lib: [{"a": 1, "b": [lib.ones(1)]}, {"a": 2, "b": [lib.zeros(1)]}],
    "ordered": lambda lib: [collections.OrderedDict(a=1), collections.OrderedDict(a=2)],
    "subclass of dict": lambda lib: [Record(a=1), Record(a=2)],
    "other lengths": lambda lib: [[1, 2], [1]],
    "missing keys": lambda lib: [{"a": 1}, {"b": 1}],
    "nothing": lambda lib: [None, None],
    "objects": lambda lib: [len, len],
    "large": lambda lib: [lib.full((300, 300), float(i)) for i in range(5)],
    "large, turned": lambda lib: [lib.full((300, 400), float(i)).t() for i in range(5)],
    "large, other sizes": lambda lib: [lib.ones(600, 600), lib.ones(600, 601)],
    "large, bfloat16": lambda lib: [lib.ones(600, 600, dtype=lib.bfloat16)] * 3,
    "large ints": lambda lib: [lib.arange(300000)] * 3,
    "empty": lambda lib: [],
}


@pytest.mark.parametrize("name", COLLATED)
@pytest.mark.parametrize("function", ["default_collate", "default_convert"])
def test_collate_is_as_in_torch(name, function):
    assert_same_outcomes(lambda lib, d: getattr(d, function)(COLLATED[name](lib)))


def test_collated_tensors_have_gradients():
    x = sl.ones(3, requires_grad=True)
    ours.default_collate([x, x * 2]).sum().backward()
    assert x.grad.tolist() == [3, 3, 3]


def test_collate_of_own_types():
    class Text(str):
        pass

    def lengths(batch, *, collate_fn_map=None):
        return [len(t) for t in batch]

    table = {Text: lengths, **ours.collate.default_collate_fn_map}
    assert ours.collate.collate([Text("ab"), Text("c")], collate_fn_map=table) == [2, 1]


def test_subscripts_of_types():
    assert ours.Dataset[int] and ours.DataLoader[int] and ours.Sampler[int] and ours.IterableDataset[str]


def test_what_subclasses_must_define_is_named():
    class Lazy(ours.IterableDataset):
        pass

    for f in (lambda: iter(Lazy()), lambda: iter(ours.Sampler()), lambda: ours.Dataset()[0]):
        with pytest.raises(NotImplementedError, match="define __"):
            f()


def pipes(d, name="scaled_for_test"):
    class Count(d.IterDataPipe):
        def __init__(self, n):
            self.n = n

        def __iter__(self):
            return iter(range(self.n))

    @d.functional_datapipe(name)
    class Scaled(d.IterDataPipe):
        def __init__(self, source, factor=2):
            self.source, self.factor = source, factor

        def __iter__(self):
            return (x * self.factor for x in self.source)

    @d.functional_datapipe(name)
    class Plus(d.MapDataPipe):
        def __init__(self, source, by):
            self.source, self.by = source, by

        def __getitem__(self, i):
            return self.source[i] + self.by

    return Count, Scaled, Plus


def test_pipes_are_chained_by_registered_methods():
    results = []
    for _, d in BOTH:
        count, scaled, plus = pipes(d)
        chained = count(5).scaled_for_test(factor=3).scaled_for_test()
        results.append([list(chained), type(chained) is scaled, plus([1, 2], 10).scaled_for_test(by=5)[1]])
        if d is ours:
            assert [b.tolist() for b in d.DataLoader(chained, batch_size=2)] == [[0, 6], [12, 18], [24]]
        with pytest.raises(AttributeError, match="has no attribute 'missing"):
            count(5).missing()
        with pytest.raises(Exception, match="already taken"):
            pipes(d)
    assert results[0] == results[1]
    with pytest.raises(TypeError, match="can only decorate IterDataPipe or MapDataPipe"):
        ours.functional_datapipe("other_for_test")(int)


def test_pipes_that_are_not_deterministic_are_refused_within():
    for _, d in BOTH:
        count, scaled, _ = pipes(d, "scaled_once_more")
        marked, sometimes = d.non_deterministic(scaled), d.non_deterministic(lambda source, factor=2: factor > 5)(scaled)
        assert list(marked(count(3))) == [0, 2, 4]
        with d.guaranteed_datapipes_determinism():
            with pytest.raises(TypeError, match="Scaled is non-deterministic, but you set 'guaranteed_datapipes_determinism'"):
                marked(count(3))
        with pytest.raises(TypeError, match="(?i)only .*IterDataPipe.* can be decorated"):
            d.non_deterministic(int)
        assert list(sometimes(count(3))) == [0, 2, 4]
    count, scaled, _ = pipes(ours, "scaled_last")
    sometimes = ours.non_deterministic(lambda source, factor=2: factor > 5)(scaled)
    with ours.guaranteed_datapipes_determinism():
        assert list(sometimes(count(3))) == [0, 2, 4]
        with pytest.raises(TypeError, match="non-deterministic"):
            sometimes(count(3), 9)


def test_what_is_left_out_says_what_to_use():
    for name in ("DFIterDataPipe", "DataChunk", "argument_validation", "runtime_validation", "runtime_validation_disabled"):
        with pytest.raises(AttributeError, match=f"no '{name}': (use|check)"):
            getattr(ours, name)
    missing = [name for name in theirs.__all__ if not name.startswith("_") and not hasattr(ours, name)]
    assert sorted(missing) == ["DFIterDataPipe", "DataChunk", "argument_validation", "runtime_validation",
                               "runtime_validation_disabled"]
