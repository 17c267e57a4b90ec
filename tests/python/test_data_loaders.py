"""DataLoader without workers: the rules of its arguments, its order, its batches, as torch's."""

import copy
import pickle
import warnings

import pytest

import sluice as sl
import sluice.utils.data as ours
from data_cases import BOTH, Squares, assert_same_outcomes, generator, rows, stream

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
