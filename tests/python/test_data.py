"""Datasets, samplers, collate functions and the rules of DataLoader's arguments, as torch's."""

import collections
import copy
import pickle
import warnings

import numpy as np
import pytest
import torch
import torch.utils.data as theirs

import sluice as sl
import sluice.utils.data as ours

BOTH = [(sl, ours), (torch, theirs)]


def plain(value):
    """A nest without tensors, with the types of its containers."""
    if isinstance(value, (sl.Tensor, torch.Tensor)):
        return ("tensor", str(value.dtype).rpartition(".")[2], value.tolist())
    if isinstance(value, dict):
        return type(value).__name__, {k: plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [plain(v) for v in value]
    return value


def outcome(f):
    """The outcome of a call: its value, or the builtin type of its error."""
    try:
        return plain(f())
    except Exception as error:
        kinds = (AssertionError, NotImplementedError, IndexError, KeyError, TypeError, ValueError, AttributeError, RuntimeError)
        return next(kind for kind in kinds if isinstance(error, kind))


def assert_same_outcomes(f):
    sl.manual_seed(7)
    torch.manual_seed(7)
    a, b = (outcome(lambda: f(lib, data)) for lib, data in BOTH)
    assert a == b
    assert sl.rand(2).tolist() == torch.rand(2).tolist()  # as much was drawn
    return a


class Squares:
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        if not 0 <= i < self.n:
            raise IndexError(i)
        return i * i


def stream(data, n=10, length=None):
    class Stream(data.IterableDataset):
        def __iter__(self):
            return iter(range(n))

    if length is not None:
        Stream.__len__ = lambda self: length
    return Stream()


def rows(lib, n=10):
    return lib.arange(float(3 * n)).reshape(n, 3), lib.arange(n)


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


def generator(lib, seed=3):
    g = lib.Generator()
    g.manual_seed(seed)
    return g


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


RULES = {  # DL-01
    "num_workers": dict(num_workers=-1), "no workers": dict(num_workers=None), "workers as text": dict(num_workers="1"),
    "timeout": dict(timeout=-1), "prefetch without workers": dict(prefetch_factor=2),
    "prefetch below 0": dict(prefetch_factor=-1, num_workers=1), "persistent without workers": dict(persistent_workers=True),
    "sampler and shuffle": dict(sampler=[0], shuffle=True), "batch_sampler and size": dict(batch_sampler=[[0]], batch_size=2),
    "batch_sampler and shuffle": dict(batch_sampler=[[0]], shuffle=True),
         "batch_sampler and sampler": dict(batch_sampler=[[0]], sampler=[0]),
    "batch_sampler and drop_last": dict(batch_sampler=[[0]], drop_last=True),
         "no batches, drop_last": dict(batch_size=None, drop_last=True),
    "batch size 0": dict(batch_size=0), "batch size of float": dict(batch_size=2.0), "drop_last of int": dict(drop_last=1),
    "context without workers": dict(multiprocessing_context="fork"),
         "no such context": dict(multiprocessing_context="x", num_workers=1),
    "context of int": dict(multiprocessing_context=3, num_workers=1), "unknown": dict(nonsense=1),
         "no batches, shuffled": dict(batch_size=None, shuffle=True),
}
STREAM_RULES = {"shuffle": dict(shuffle=True), "shuffle false": dict(shuffle=False), "sampler": dict(sampler=[0]),
                "batch_sampler": dict(batch_sampler=[[0]])}


@pytest.mark.parametrize("name", RULES)
def test_argument_rules_are_torchs(name):
    assert_same_outcomes(lambda lib, d: list(d.DataLoader(Squares(5), **RULES[name])))


@pytest.mark.parametrize("name", STREAM_RULES)
def test_argument_rules_of_streams_are_torchs(name):
    assert_same_outcomes(lambda lib, d: list(d.DataLoader(stream(d, 3), **STREAM_RULES[name])))


def test_messages_name_the_option():
    for options, text in [(dict(num_workers=-2), "num_workers option should be non-negative.*got -2"),
                          (dict(batch_size=0), "batch_size=0"), (dict(sampler=[0], shuffle=True), "sampler option is mutually "
                                                                                                  "exclusive with shuffle")]:
        with pytest.raises(ValueError, match=text):
            ours.DataLoader(Squares(3), **options)
    loader = ours.DataLoader(Squares(3))
    for name in ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"):
        with pytest.raises(ValueError, match=f"{name} attribute should not be set after DataLoader is initialized"):
            setattr(loader, name, 1)


LOADERS = {
    "plain": dict(), "batches": dict(batch_size=3), "drop_last": dict(batch_size=3, drop_last=True),
    "shuffled": dict(batch_size=4, shuffle=True), "sampler": dict(sampler=[4, 2, 0], batch_size=2),
    "batch_sampler": dict(batch_sampler=[[0, 1], [4], [2, 2, 2]]), "no batches": dict(batch_size=None),
    "no batches, sampler": dict(batch_size=None, sampler=[[1, 2], [0]]), "collate": dict(batch_size=4, collate_fn=tuple),
}


@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.parametrize("kind", ["rows", "squares", "subset"])
def test_batches_are_torchs(name, kind):
    def batches(lib, d):
        if kind == "squares":
            dataset = Squares(10)
        else:
            dataset = d.TensorDataset(*rows(lib))
            dataset = d.Subset(dataset, [8, 3, 3, 0, 1, 9, 7]) if kind == "subset" else dataset
        loader = d.DataLoader(dataset, **LOADERS[name])
        return [list(loader), list(loader), len(loader), len(iter(loader)), loader.batch_size, loader.drop_last,
                loader.num_workers, loader.prefetch_factor]

    assert_same_outcomes(batches)


@pytest.mark.parametrize("options", [dict(), dict(batch_size=3), dict(batch_size=3, drop_last=True), dict(batch_size=None)])
def test_streams_are_torchs(options):
    assert_same_outcomes(lambda lib, d: [list(d.DataLoader(stream(d), **options)),
                                         len(d.DataLoader(stream(d, 10, 10), **options))])
    assert_same_outcomes(lambda lib, d: len(d.DataLoader(stream(d), **options)))


def test_a_wrong_length_of_a_stream_is_warned_of():
    for (_, d), times in zip(BOTH, (1, 2)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            loader = d.DataLoader(stream(d, 6, 4), batch_size=None)
            assert len(loader) == 4 and sum(1 for _ in loader) == 6
        assert len([w for w in caught if "reported to be 4" in str(w.message)]) == times


def test_generators_order_epochs_as_torch():
    def epochs(lib, d):
        loader = d.DataLoader(range(20), batch_size=6, shuffle=True, generator=generator(lib))
        return [list(loader) for _ in range(3)]

    assert_same_outcomes(epochs)


def test_rows_of_subclasses_are_their_own():
    class Doubled(ours.TensorDataset):
        def __getitem__(self, i):
            return super().__getitem__(i)[0] * 2

    loader = ours.DataLoader(Doubled(sl.arange(4)), batch_size=4)
    assert next(iter(loader)).tolist() == [0, 2, 4, 6]


def test_batches_in_hand_keep_their_values():
    loader = ours.DataLoader([sl.full((512, 512), float(i)) for i in range(12)], batch_size=2)
    kept = [batch[0] for batch in loader]  # a view of each
    assert [t[0, 0].item() for t in kept] == [t[-1, -1].item() for t in kept] == [0, 2, 4, 6, 8, 10]


def test_loaders_are_copied_and_pickled():
    loader = ours.DataLoader([sl.full((512, 512), float(i)) for i in range(3)], batch_size=2)
    assert len(list(loader)) == 2
    for other in (copy.copy(loader), copy.deepcopy(loader), pickle.loads(pickle.dumps(loader))):
        assert [b[0, 0, 0].item() for b in other] == [0, 2]


def test_a_dataset_that_stops_is_an_error():
    class Stops(Squares):
        def __getitem__(self, i):
            if i == 3:
                raise StopIteration
            return i

    with pytest.raises(RuntimeError, match="StopIteration at sample index 3"):
        list(ours.DataLoader(Stops(5)))


def test_errors_of_datasets_pass_unchanged():
    class Missing(Squares):
        def __getitem__(self, i):
            return {}["name"]

    with pytest.raises(KeyError, match="name"):
        list(ours.DataLoader(Missing(5)))


@pytest.mark.parametrize("workers", [0, 2])
def test_the_position_is_saved_and_resumed(workers):  # DL-10
    options = dict(batch_size=4, shuffle=True, num_workers=workers)
    sl.manual_seed(0)
    loader = ours.DataLoader(Squares(50), **options)
    assert loader.state_dict() == {"base_seed": None, "batches": None}
    batches = iter(loader)
    seen = [next(batches).tolist() for _ in range(5)]
    state = loader.state_dict()
    rest = [batch.tolist() for batch in batches]
    assert sorted(sum(seen + rest, [])) == [i * i for i in range(50)]
    sl.manual_seed(99)
    other = ours.DataLoader(Squares(50), **options)
    other.load_state_dict(state)
    assert [batch.tolist() for batch in other] == rest
    assert len(list(other)) == 13
    with pytest.raises(NotImplementedError, match="IterableDataset"):
        ours.DataLoader(stream(ours)).state_dict()
    with pytest.raises(ValueError, match="keys are"):
        other.load_state_dict({})


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
