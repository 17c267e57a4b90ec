"""BLEU and the metrics of regression: values from their definitions, whatever parts the rows come in."""

import collections
import math

import numpy as np
import pytest

import sluice as sl
from sluice import nn, trainer

# Two systems' sentences of three, with two references each; tokens are words and full stops.
SAID = ["The dog bit the man .", "It wasn't surprising .", "The man had just bitten him ."]
MEANT = [["The dog bit the man .", "The dog had bit the man ."], ["It was not unexpected .", "No one was surprised ."],
         ["The man bit him first .", "The man had bitten the dog ."]]


def encoded(sentences, references):
    """Ids (rows, tokens) and (rows, references, tokens), filled up with -1."""
    words = {word: i for i, word in enumerate(sorted({word for text in [*sentences, *sum(references, [])] for word in text.split()}))}
    longest = max(len(text.split()) for text in [*sentences, *sum(references, [])])

    def ids(text):
        found = [words[word] for word in text.split()]
        return found + [-1] * (longest - len(found))

    return np.array([ids(text) for text in sentences]), np.array([[ids(text) for text in row] for row in references])


def defined(said, meant, n=4, smooth="exp"):
    """Corpus BLEU of lists of tokens, by counting n-grams."""
    found, counts, length, closest = [0] * n, [0] * n, 0, 0
    for own, references in zip(said, meant):
        length += len(own)
        closest += min((abs(len(r) - len(own)), len(r)) for r in references)[1]
        for k in range(1, n + 1):
            grams = [collections.Counter(tuple(t[i:i + k]) for i in range(len(t) - k + 1)) for t in (own, *references)]
            found[k - 1] += sum(min(count, max(g[gram] for g in grams[1:])) for gram, count in grams[0].items())
            counts[k - 1] += max(0, len(own) - k + 1)
    if not any(found) or not all(counts):
        return 0.0
    missing, logs = 0, []
    for matches, count in zip(found, counts):
        if not matches:
            missing += 1
            if smooth == "none":
                return 0.0
        logs.append(math.log((matches or 0.5 ** missing) / count))
    return 100 * min(1.0, math.exp(1 - closest / length)) * math.exp(sum(logs) / n)


def of_parts(evaluator, outputs, targets, parts):
    """Metrics of rows in parts of any sizes, each filled up with rows that do not count; sums are computed in a graph and at once."""
    class Sums(nn.Graph):
        def build(self, outputs, targets, mask):
            return evaluator.sums(outputs, targets, mask)

    totals, graph = 0, Sums()
    for rows in np.split(np.arange(len(outputs)), parts):
        filled = [*rows, *[0] * (len(outputs) + 1 - len(rows))]
        given = (sl.tensor(outputs[filled]), sl.tensor(targets[filled]), sl.tensor([1.0] * len(rows) + [0.0] * (len(filled) - len(rows))))
        found = [s.item() for s in graph(*given)]
        assert found == [s.item() for s in evaluator.sums(*given)]
        totals = totals + np.array(found)
    return evaluator.metrics(totals.tolist())


@pytest.mark.parametrize("parts", [[], [1], [1, 2]])
def test_bleu_of_sentences_is_that_of_the_definition(parts):
    outputs, targets = encoded(SAID, MEANT)
    found = of_parts(trainer.Bleu(), outputs, targets, parts)
    # References have 14 of 17 words, 7 of 14 pairs, 5 of 11 triples and 3 of 8 fours; the closest references have 18 words.
    assert found == pytest.approx({"bleu": 48.530827009929865, "precision1": 1400 / 17, "precision2": 50.0, "precision3": 500 / 11,
                                   "precision4": 37.5, "brevity": math.exp(1 - 18 / 17)}, rel=1e-12)
    said, meant = [text.split() for text in SAID], [[text.split() for text in row] for row in MEANT]
    assert found["bleu"] == pytest.approx(defined(said, meant), rel=1e-12)


def test_matches_are_clipped_and_lengths_are_the_closest():
    outputs, targets = encoded(["the the the the the the the"], [["the cat is on the mat", "there is a cat on the mat"]])
    assert of_parts(trainer.Bleu(n=1), outputs, targets, []) == pytest.approx({"bleu": 200 / 7, "precision1": 200 / 7, "brevity": 1.0})
    # Lengths 2 and 4 are as close to 3; the shorter one counts, so that nothing is taken off.
    outputs, targets = encoded(["a b c"], [["a b", "a b c d"]])
    assert of_parts(trainer.Bleu(n=2), outputs, targets, [])["brevity"] == 1.0


@pytest.mark.parametrize("smooth", ["exp", "none"])
@pytest.mark.parametrize("classes, parts", [(3, [5]), (3, [1, 8]), (12, [2, 3, 4]), (40, [])])
def test_bleu_of_random_ids_is_that_of_the_definition(classes, parts, smooth):
    rng = np.random.default_rng(classes)
    outputs, targets = rng.integers(0, classes, (10, 9)), rng.integers(0, classes, (10, 3, 7))
    lengths, others = rng.integers(0, 10, 10), rng.integers(1, 8, (10, 3))
    end = classes  # ends what is said; what is meant is filled up with -1
    for i in range(10):
        outputs[i, lengths[i]:lengths[i] + 1] = end
        for j in range(3):
            targets[i, j, others[i, j]:] = -1
    expected = defined([list(outputs[i, :lengths[i]]) for i in range(10)],
                       [[list(targets[i, j, :others[i, j]]) for j in range(3)] for i in range(10)], smooth=smooth)
    evaluator = trainer.Bleu(end=end, smooth=smooth)
    assert of_parts(evaluator, outputs, targets, parts)["bleu"] == pytest.approx(expected, rel=1e-12)
    logits = np.eye(classes + 1, dtype=np.float32)[outputs]
    assert of_parts(evaluator, logits, targets, parts)["bleu"] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("said, meant, bleu", [
    (["a b c d"], [["a b c d"]], 100.0), (["a b c d"], [["e f g h"]], 0.0), (["a b c"], [["a b c"]], 0.0),  # nothing of four words
    ([""], [["a b"]], 0.0), (["a x b y"], [["a b y z"]], defined([["a", "x", "b", "y"]], [[["a", "b", "y", "z"]]]))])
def test_bleu_at_its_ends(said, meant, bleu):
    outputs, targets = encoded(said, meant)
    assert of_parts(trainer.Bleu(), outputs, targets, [])["bleu"] == pytest.approx(bleu)
    assert of_parts(trainer.Bleu(), outputs, targets[:, 0], [])["bleu"] == pytest.approx(bleu)


@pytest.mark.parametrize("parts", [[], [50], [1, 2, 90, 100]])
def test_regression_of_103_rows_is_numpys(parts):
    rng = np.random.default_rng(1)
    y = rng.normal(size=(103, 2))
    x = y + rng.normal(size=(103, 2))
    found = of_parts(trainer.Regression(), x, y, parts)
    off = x - y
    assert found == pytest.approx({
        "mse": (off ** 2).mean(), "rmse": np.sqrt((off ** 2).mean()), "mae": np.abs(off).mean(),
        "r2": 1 - (off ** 2).sum() / ((y - y.mean()) ** 2).sum(), "pearson": np.corrcoef(x.ravel(), y.ravel())[0, 1]}, rel=1e-10)
    flat = of_parts(trainer.Regression(), x, np.ones_like(y), parts)
    assert math.isnan(flat["r2"]) and math.isnan(flat["pearson"])


@pytest.mark.parametrize("make, text", [
    (lambda: trainer.Bleu(n=0), "Bleu: n is 0; must be at least 1"),
    (lambda: trainer.Bleu(smooth="floor"), "Bleu: smooth is 'floor'; must be 'exp' or 'none'"),
    (lambda: trainer.Bleu().sums(sl.ones(2, 3), sl.ones(2, 3).long(), sl.ones(2)), "Bleu: outputs are float32 (2, 3), targets int64 (2, 3); must be"),
    (lambda: trainer.Bleu().sums(sl.ones(2, 3).long(), sl.ones(2).long(), sl.ones(2)), "Bleu: outputs are int64 (2, 3), targets int64 (2,); must"),
    (lambda: trainer.Regression().sums(sl.ones(2, 3), sl.ones(2), sl.ones(2)), "Regression: outputs are (2, 3), targets (2,); must be the same"),
])
def test_bad_rows_are_named(make, text):
    with pytest.raises(ValueError) as caught:
        make()
    assert str(caught.value).startswith(text), caught.value
