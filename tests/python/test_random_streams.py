"""Random numbers after manual_seed are torch's, and so is what is drawn next."""

import numpy as np
import pytest
import torch

import sluice as sl

SIZES = [(), (0,), (1,), (7,), (15,), (16,), (17,), (40,), (3, 5, 7), (3000,)]
FLOATS = ["float32", "float64", "float16", "bfloat16"]
# torch draws these with another generator, of MKL, where the processor is Intel's.
torch.manual_seed(5)
AS_DOUBLES = torch.rand(64, dtype=torch.float64) < 0.3
torch.manual_seed(5)
PLAIN = torch.equal(torch.empty(64).bernoulli_(0.3).bool(), AS_DOUBLES)
torch.manual_seed(5)
AS_LOGS = torch.log1p(-torch.rand(64, dtype=torch.float64)).neg()
torch.manual_seed(5)
PLAIN = PLAIN and torch.allclose(torch.empty(64, dtype=torch.float64).exponential_(), AS_LOGS)
of_mkl = pytest.mark.skipif(not PLAIN, reason="torch draws with MKL's generator on this processor")


def both(draw, *arguments):
    """(Sluice's, torch's) results as float64, and the next number of each."""
    found = []
    for lib in (sl, torch):
        lib.manual_seed(5)
        t = draw(lib, *arguments)
        t = lib.view_as_real(t) if t.dtype.is_complex else t
        found += [t.detach().to(lib.float64 if t.dtype.is_floating_point else lib.int64).numpy(), lib.rand(1).item()]
    assert found[1] == found[3], "another count of numbers is drawn"
    assert found[0].shape == found[2].shape
    return found[0], found[2]


def empty(lib, size, dtype):
    return lib.empty(size, dtype=getattr(lib, dtype))


EXACT = {
    "rand": lambda lib, s, d: lib.rand(s, dtype=getattr(lib, d)),
    "bernoulli": lambda lib, s, d: lib.bernoulli(lib.full(s, 0.3, dtype=getattr(lib, d))),
    "bernoulli_ of a tensor": lambda lib, s, d: empty(lib, s, d).bernoulli_(lib.full(s, 0.3)),
    "random_": lambda lib, s, d: empty(lib, s, d).random_(),
    "random_ of bounds": lambda lib, s, d: empty(lib, s, d).random_(5, 100),
    "geometric_": lambda lib, s, d: empty(lib, s, d).geometric_(0.3),
}
EXACT_BUT_FOR_MKL = {
    "bernoulli of a number": lambda lib, s, d: lib.bernoulli(lib.ones(s, dtype=getattr(lib, d)), 0.3),
    "bernoulli_": lambda lib, s, d: empty(lib, s, d).bernoulli_(0.3),
    "exponential_": lambda lib, s, d: empty(lib, s, d).exponential_(1.5),
    "dropout": lambda lib, s, d: lib.nn.functional.dropout(lib.ones(s, dtype=getattr(lib, d)), 0.3),
    "alpha_dropout": lambda lib, s, d: lib.nn.functional.alpha_dropout(lib.ones(s, dtype=getattr(lib, d)), 0.3, True) > 0,
}
NORMAL = {  # float32 within the rounding of logarithms and cosines
    "randn": lambda lib, s, d: lib.randn(s, dtype=getattr(lib, d)),
    "normal_": lambda lib, s, d: empty(lib, s, d).normal_(1, 3),
    "normal": lambda lib, s, d: lib.normal(lib.ones(s, dtype=getattr(lib, d)), lib.full(s, 2.0, dtype=getattr(lib, d))),
    "log_normal_": lambda lib, s, d: empty(lib, s, d).log_normal_(1, 0.5),
    "cauchy_": lambda lib, s, d: empty(lib, s, d).cauchy_(1, 2),
}


# Whether a product and a sum are rounded once or twice depends on the processor's instructions.
SPREAD = {
    "uniform_": lambda lib, s, d: empty(lib, s, d).uniform_(-0.3, 0.7),
    "uniform_ of whole bounds": lambda lib, s, d: empty(lib, s, d).uniform_(-2, 5),
}
UNIT = {"float32": 2e-7, "float64": 3e-16, "float16": 1e-3, "bfloat16": 8e-3}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", EXACT)
def test_in_every_bit(name, dtype):
    for size in SIZES:
        np.testing.assert_array_equal(*both(EXACT[name], size, dtype), err_msg=f"{size}")


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", SPREAD)
def test_between_bounds_to_the_last_bit(name, dtype):
    for size in SIZES:
        np.testing.assert_allclose(*both(SPREAD[name], size, dtype), rtol=0, atol=5 * UNIT[dtype], err_msg=f"{size}")


@of_mkl
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", EXACT_BUT_FOR_MKL)
def test_in_every_bit_without_mkl(name, dtype):
    for size in SIZES:
        ours, theirs = both(EXACT_BUT_FOR_MKL[name], size, dtype)
        if name == "exponential_":  # the logarithm is of another library
            np.testing.assert_allclose(ours, theirs, rtol={"float64": 4e-16, "float32": 2e-7, "float16": 1e-3, "bfloat16": 8e-3}[dtype], err_msg=f"{size}")
        else:
            np.testing.assert_array_equal(ours, theirs, err_msg=f"{size}")


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", NORMAL)
def test_normal_numbers_but_for_rounding(name, dtype):
    bound = {"float32": 1e-6, "float64": 1e-14, "float16": 2e-3, "bfloat16": 1.6e-2}[dtype]
    for size in SIZES:
        np.testing.assert_allclose(*both(NORMAL[name], size, dtype), rtol=bound, atol=10 * bound, err_msg=f"{size}")


@pytest.mark.parametrize("dtype", ["int64", "int32", "int16", "uint8", "bool"])
def test_integers(dtype):
    for size in SIZES:
        np.testing.assert_array_equal(*both(lambda lib: empty(lib, size, dtype).random_()))
        np.testing.assert_array_equal(*both(lambda lib: empty(lib, size, dtype).bernoulli_(lib.full(size, 0.3))))
        np.testing.assert_array_equal(*both(lambda lib: lib.randint(0, 2, size, dtype=getattr(lib, dtype))))
    np.testing.assert_array_equal(*both(lambda lib: lib.randint(-2**40, 2**62, (50,))))
    for n in (0, 1, 10, 1000, 70000):
        np.testing.assert_array_equal(*both(lambda lib: lib.randperm(n)))


def test_complex_numbers():
    for dtype, bound in (("complex64", 1e-6), ("complex128", 1e-14)):
        for size in SIZES:
            np.testing.assert_array_equal(*both(lambda lib: lib.rand(size, dtype=getattr(lib, dtype))))
            np.testing.assert_allclose(*both(lambda lib: lib.randn(size, dtype=getattr(lib, dtype))), rtol=bound, atol=bound)


@pytest.mark.parametrize("view", [lambda t: t.t(), lambda t: t[:, ::2], lambda t: t[3:7],
                                  lambda t: t.reshape(2, 5, 4, 20).permute(0, 3, 1, 2)])
@pytest.mark.parametrize("fill", [lambda t: t.normal_(), lambda t: t.uniform_(2, 3), lambda t: t.random_(100),
                                  lambda t: t.geometric_(0.2)])
def test_strided_tensors_are_filled_in_the_order_of_their_memory(view, fill):
    np.testing.assert_allclose(*both(lambda lib: fill(view(lib.zeros(40, 20)))), rtol=1e-6, atol=1e-6)


@of_mkl
def test_dropout_of_strided_tensors_and_of_channels():
    for draw in (lambda lib, f: f.dropout(lib.ones(5, 8).t(), 0.3), lambda lib, f: f.dropout(lib.ones(5, 1).expand(5, 6), 0.3),
                 lambda lib, f: f.dropout(lib.ones(2, 3, 4, 5).permute(0, 3, 1, 2), 0.5),
                 lambda lib, f: f.dropout1d(lib.ones(4, 5, 6), 0.4), lambda lib, f: f.dropout2d(lib.ones(4, 5, 6, 2), 0.4),
                 lambda lib, f: f.dropout3d(lib.ones(4, 5, 2, 1, 2), 0.4),
                 lambda lib, f: f.feature_alpha_dropout(lib.ones(4, 5, 6), 0.4, True)):
        np.testing.assert_allclose(*both(lambda lib: draw(lib, lib.nn.functional)), rtol=1e-6)


@of_mkl
def test_a_net_with_dropout_trains_as_torchs():
    losses = []
    for lib in (sl, torch):
        lib.manual_seed(1)
        net = lib.nn.Sequential(lib.nn.Linear(8, 32), lib.nn.ReLU(), lib.nn.Dropout(0.3), lib.nn.Linear(32, 4))
        optimizer, x = lib.optim.SGD(net.parameters(), lr=0.5), lib.rand(64, 8)
        for _ in range(5):
            optimizer.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    np.testing.assert_allclose(losses[:5], losses[5:], rtol=1e-5)


@pytest.mark.parametrize("replacement", [True, pytest.param(False, marks=of_mkl)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_multinomial(replacement, dtype):
    weights = np.random.default_rng(0).random((3, 50)).astype(dtype)
    weights[:, 7] = 0
    for count in (2, 7, 40):
        for w in (weights, weights[0]):
            np.testing.assert_array_equal(*both(lambda lib: lib.multinomial(lib.tensor(w), count, replacement)))


@of_mkl
def test_distributions_and_gumbel_softmax():
    for name, *given in (("Exponential", 2.0), ("Cauchy", 0.0, 1.0), ("Weibull", 1.0, 2.0), ("Geometric", 0.3),
                         ("Uniform", 0.0, 2.0)):
        def draw(lib):
            return getattr(lib.distributions, name)(*[lib.tensor(v) for v in given]).sample((100,))
        np.testing.assert_allclose(*both(draw), rtol=1e-6, err_msg=name)
    for size in ((1,), (20,)):
        np.testing.assert_array_equal(*both(lambda lib: lib.distributions.Categorical(lib.tensor([0.1, 0.9])).sample(size)))
    np.testing.assert_allclose(*both(lambda lib: lib.nn.functional.gumbel_softmax(lib.zeros(4, 30))), rtol=1e-5)


def test_normal_samples_are_those_of_their_uniform_samples():
    """They are made of 16 uniform samples each: 8 radii, 8 angles."""
    sl.manual_seed(1)
    uniform = sl.rand(16000).numpy().astype("f8").reshape(-1, 16)
    radius, angle = np.sqrt(-2 * np.log(1 - uniform[:, :8])), 2 * np.pi * uniform[:, 8:]
    exact = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)], 1).ravel()
    sl.manual_seed(1)
    np.testing.assert_allclose(sl.randn(16000).numpy(), exact, rtol=5e-7, atol=5e-7)


@pytest.mark.parametrize("drawn", [0, 1, 5, 623, 624, 625, 1000])
def test_a_state_goes_on_from_its_place(drawn):
    sl.manual_seed(3)
    sl.rand(drawn)
    state = sl.get_rng_state()
    after = sl.rand(700).numpy()
    sl.manual_seed(9)
    sl.set_rng_state(state)
    np.testing.assert_array_equal(sl.rand(700).numpy(), after)


def test_a_state_whose_words_are_not_all_used_is_refused():
    state = sl.get_rng_state()
    state[-4:] = 1  # another place, as earlier builds wrote
    with pytest.raises(RuntimeError, match="damaged, or of an earlier build: 16843009 of 624 words are used"):
        sl.set_rng_state(state)


INITIALISERS = {
    "kaiming_uniform_": (), "kaiming_normal_": (), "xavier_uniform_": (), "xavier_normal_": (), "sparse_": (0.3,),
    "trunc_normal_": (0, 1, -1, 1.5), "normal_": (1, 2), "uniform_": (-1, 3), "orthogonal_": (),
}


@pytest.mark.parametrize("name", INITIALISERS)
def test_initialisers(name):
    for shape in ((5, 9), (64, 30), (8, 4)):
        for dtype, bound in (("float32", 5e-6), ("float64", 1e-14)):  # torch's normal samples of float32 are approximate
            ours, theirs = both(lambda lib: getattr(lib.nn.init, name)(empty(lib, shape, dtype), *INITIALISERS[name]))
            if "uniform" in name:
                np.testing.assert_allclose(ours, theirs, rtol=0, atol=3 * UNIT[dtype])
            else:
                np.testing.assert_allclose(ours, theirs, rtol=bound, atol=(50 if name == "orthogonal_" else 1) * bound)


def test_means_and_deviations_are_broadcast():
    ours, theirs = both(lambda lib: lib.normal(lib.zeros(4, 1, dtype=lib.float64), lib.ones(1, 5, dtype=lib.float64)))
    np.testing.assert_allclose(ours, theirs, rtol=1e-14)


def test_bits_and_their_bounds():
    with pytest.raises(sl.Error, match="bits: 64 bits; must be 1 to 63"):
        sl.default_generator.bits([3], 64)
