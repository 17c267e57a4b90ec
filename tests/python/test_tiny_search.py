"""sluice.tiny.search: schemes by what their tensors give, under a budget of bytes."""

import pathlib
import sys

import pytest

import sluice as sl
from sluice.tiny import Scheme, TrainStep, quantize
from sluice.tiny._int8 import layers_of
from sluice.tiny._table import ledger

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "benchmarks/tiny"
pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="the benchmarks are not here")
if FOLDER.exists():
    sys.path.insert(0, str(FOLDER))
    import tasks


@pytest.fixture(scope="module")
def task():
    """A network that knows upright digits, batches of turned ones, and a step of one picture."""
    train, held = tasks.digits()
    net = tasks.upright(train, epochs=4)
    x, y = held.turned().x, held.turned().y
    batches = list(train.turned().batches(1, 0))
    measure = [(sl.tensor(x[i:i + 100]), sl.tensor(y[i:i + 100])) for i in range(0, 400, 100)]
    return net, batches, measure, (batches[0][0][:1], batches[0][1][:1])


def test_a_scheme_is_found_that_is_no_worse_than_the_last_layers(task, count):
    net, batches, held, example = task
    quantized = quantize(net, [x for x, _ in batches[:20]])
    names = list(layers_of(quantized))
    # Less than the last two layers take, so that parts of tensors are what is left.
    last_two = ledger(quantized, example, Scheme(dict.fromkeys(names[-2:], 1.0), frozenset(names[-2:])))
    budget = last_two.memory + last_two.state - 1
    found = sl.tiny.search(net, batches, budget, held=held, example=example, lr=0.02, ratios=(0.5,))
    print(found)
    last = next(t for t in found.trials if t.scheme == Scheme.of(quantized, "last-only"))
    made = ledger(quantized, example, found.scheme)
    assert made.memory + made.state == found.ram <= budget
    assert found.score == max(t.score for t in found.trials) and found.score > last.score
    assert found.scheme != last.scheme and all(t.ram <= budget for t in found.trials)
    step = TrainStep(quantized, lr=0.02, scheme=str(found.scheme))
    assert step.scheme == found.scheme
    gains = [c.gain for c in found.contributions]
    assert gains == sorted(gains, reverse=True) and {c.ratio for c in found.contributions} <= {0, 0.5}
    assert str(found).splitlines()[0].split() == ["layer", "changes", "gain", "RAM"]
    count("share of turned digits that are right with what was found", found.score,
          f"{last.score} with the last layer, within {budget} bytes")


@pytest.mark.parametrize("given, kind, told", [
    ({"budget": "1KB"}, MemoryError, r"search: budget of 1024 bytes: the last layer alone needs \d+; give more"),
    ({"budget": "much"}, ValueError, "search: budget: 'much'; must be a number of bytes"),
    ({"budget": "1MB", "ratios": (0, 1)}, ValueError, "search: ratio 0; must be above 0, and 1 at most"),
    ({"budget": "1MB", "held": []}, ValueError, "search: 250 batches train and 0 measure; both need one at least"),
])
def test_what_cannot_be_searched_is_refused(task, given, kind, told):
    with pytest.raises(kind, match=told):
        sl.tiny.search(task[0], task[1], **given)
