"""Loaders within datasets of loaders, and what state_dict() says wherever an iteration is."""

import copy
import gc
import itertools
import pickle

import pytest
import torch

import sluice as sl
from sluice.utils import data as ours

LARGE = 1 << 19  # floats of a sample whose batches lie in memory that is used again


def inner_values(kind, module):
    """The values that a dataset reads of loaders of its own for item i."""
    if kind == "whole":
        return lambda i: [int(b.sum()) for b in module.DataLoader([i, 2, 3])]
    if kind == "unbatched":
        return lambda i: [int(b) for b in module.DataLoader([i, 2, 3], batch_size=None)]
    if kind == "left":
        return lambda i: [int(next(iter(module.DataLoader([i, 2, 3], batch_size=2)))[0])]
    kept = iter(module.DataLoader(range(100), batch_size=2))
    return lambda i: next(kept).tolist()


class Map:
    def __init__(self, kind, module):
        self.read = inner_values(kind, module)

    def __len__(self):
        return 6

    def __getitem__(self, i):
        return sum(self.read(i))


def stream_of(module):
    class Stream(module.IterableDataset):
        def __init__(self, kind):
            self.read = inner_values(kind, module)

        def __iter__(self):
            for i in range(6):
                yield sum(self.read(i))

    class OverLoader(module.IterableDataset):
        def __init__(self, kind):
            self.loader = module.DataLoader(range(7), batch_size=None if kind == "unbatched" else 2)

        def __iter__(self):
            for batch in self.loader:
                yield sum(batch.tolist() if hasattr(batch, "tolist") else [batch])

    return {"stream": Stream, "stream over a loader": OverLoader}


@pytest.mark.parametrize("batch_size", [1, 4, None])
@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("kind", ["whole", "unbatched", "left", "kept"])
@pytest.mark.parametrize("outer", ["map", "stream", "stream over a loader"])
def test_a_loader_within_the_dataset_of_another(outer, kind, workers, batch_size):
    def values(module):
        dataset = Map(kind, module) if outer == "map" else stream_of(module)[outer](kind)
        return [b.tolist() if hasattr(b, "tolist") else b
                for b in module.DataLoader(dataset, batch_size=batch_size, num_workers=workers and (module is ours))]

    assert values(ours) == values(torch.utils.data)


def test_three_loaders_within_each_other_and_what_large_batches_hold():
    class Large:
        def __len__(self):
            return 2

        def __getitem__(self, i):
            return sl.full((LARGE,), float(i))

    class Middle(Large):
        def __getitem__(self, i):
            batches = list(ours.DataLoader(Large(), batch_size=2))
            assert [b[:, 0].tolist() for b in batches] == [[0, 1]]
            return batches[0][1] + i

    class Outer(Large):
        def __getitem__(self, i):
            return next(iter(ours.DataLoader(Middle(), batch_size=2)))[1] + i

    for workers in (0, 1):
        batches = list(ours.DataLoader(Outer(), batch_size=2, num_workers=workers))
        assert [b[:, -1].tolist() for b in batches] == [[2, 3]] and batches[0].shape == (2, LARGE)


def test_an_error_within_leaves_the_outer_loader_as_it_was():
    class Fails:
        def __len__(self):
            return 3

        def __getitem__(self, i):
            with pytest.raises(KeyError):
                list(ours.DataLoader([{}], collate_fn=lambda batch: batch[0]["none"]))
            return sl.full((LARGE,), float(i))

    assert [b[:, 0].tolist() for b in ours.DataLoader(Fails(), batch_size=3)] == [[0, 1, 2]]


def loader(workers, **options):
    return ours.DataLoader(range(7), batch_size=2, num_workers=workers, **options)


def lists(batches):
    return [b.tolist() for b in batches]


def after(state, workers, **options):
    """The results of the next two iterations of a new loader."""
    resumed = loader(workers, **options)
    resumed.load_state_dict(copy.deepcopy(state))
    assert resumed.state_dict() == state
    return lists(resumed), lists(resumed)


WHOLE = [[0, 1], [2, 3], [4, 5], [6]]
WAYS = {"held": lambda it: it, "dropped": lambda it: None, "collected": lambda it: gc.collect() and None}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("workers, persistent", [(0, False), (2, False), (2, True)])
@pytest.mark.parametrize("given", [0, 1, 3, 4, "end"])
def test_the_state_at_every_place_of_an_epoch(given, workers, persistent, way):
    source = loader(workers, persistent_workers=persistent)
    batches = iter(source)
    seen = lists(batches if given == "end" else itertools.islice(batches, given))
    kept = WAYS[way](batches)
    del batches
    if way == "collected":
        gc.collect()
    for _ in range(2):  # asking changes nothing
        state = source.state_dict()
        rest = WHOLE if given == "end" else WHOLE[given:]
        assert after(state, 0) == (rest, WHOLE)
    assert after(state, workers, persistent_workers=persistent) == (rest, WHOLE)
    if kept is not None and given != "end":
        assert lists(kept) == rest and seen + rest == WHOLE  # asking has taken nothing from it


@pytest.mark.parametrize("workers", [0, 2])
def test_the_state_of_two_epochs_and_of_loops_that_are_left(workers):
    source = loader(workers)
    for _ in range(2):
        for number, _ in enumerate(source):
            if number == 1:
                break
        assert after(source.state_dict(), 0) == (WHOLE[2:], WHOLE)
        lists(source)
        assert source.state_dict() == {"base_seed": None, "batches": None}


@pytest.mark.parametrize("workers", [0, 2])
def test_the_state_is_that_of_the_iterator_that_was_made_last(workers):
    source = loader(workers)
    first = iter(source)
    next(first), next(first)
    second = iter(source)
    next(second)
    next(first)
    assert after(source.state_dict(), 0) == (WHOLE[1:], WHOLE)
    lists(first)  # its end is not that of the other
    assert after(source.state_dict(), 0) == (WHOLE[1:], WHOLE)
    assert lists(second) == WHOLE[1:]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_resumed_epoch_is_saved_again(workers):
    source = loader(workers)
    next(iter(source))
    again = loader(workers)
    again.load_state_dict(source.state_dict())
    next(iter(again))
    assert after(again.state_dict(), workers) == (WHOLE[2:], WHOLE)
    again.load_state_dict({"base_seed": None, "batches": None})
    assert lists(again) == WHOLE


def test_copies_of_a_loader_begin_at_the_beginning():
    source = loader(0)
    next(iter(source))
    for other in (copy.copy(source), pickle.loads(pickle.dumps(source))):
        assert lists(other) == WHOLE


@pytest.mark.parametrize("workers", [0, 2])
def test_the_order_of_a_shuffled_epoch_goes_on_after_its_loop_was_left(workers):
    sl.manual_seed(3)
    source, seen = loader(workers, shuffle=True), []
    for batch in source:
        seen += batch.tolist()
        if len(seen) >= 4:
            break
    state = source.state_dict()
    sl.manual_seed(99)
    rest, whole = after(state, workers, shuffle=True)
    assert sorted(seen + sum(rest, [])) == list(range(7)) and sorted(sum(whole, [])) == list(range(7))
