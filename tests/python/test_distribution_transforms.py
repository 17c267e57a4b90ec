"""Transforms of torch.distributions, with torch as the oracle."""

import pytest
import torch
from conftest import assert_same, to_sl

import sluice as sl
from distribution_cases import A


@pytest.mark.parametrize("name", ["ExpTransform", "SigmoidTransform", "TanhTransform", "SoftplusTransform", "affine", "power", "composed",
                                  "independent", "inverse", "reshape"])
def test_transforms_equal_torch(name):
    special = {"affine": lambda d: d.AffineTransform(2.0, -3.0), "power": lambda d: d.PowerTransform(2.5),
               "composed": lambda d: d.ComposeTransform([d.SigmoidTransform(), d.AffineTransform(1.0, 2.0), d.ExpTransform()]),
               "independent": lambda d: d.IndependentTransform(d.ExpTransform(), 1), "inverse": lambda d: d.ExpTransform().inv, "reshape": lambda d: d.ReshapeTransform((2, 3), (3, 2))}
    make = special.get(name, lambda d: getattr(d, name)())
    ours, theirs = make(sl.distributions), make(torch.distributions)
    x = torch.tensor([[0.5, 1.0, 2.0], [0.1, 0.2, 3.0]], dtype=torch.float64)
    y = theirs(x)
    assert_same(ours(to_sl(x)), y, 1e-10)
    assert_same(ours.inv(to_sl(y)), theirs.inv(y), 1e-9)
    assert_same(ours.log_abs_det_jacobian(to_sl(x), to_sl(y)), theirs.log_abs_det_jacobian(x, y), 1e-9)
    assert_same(ours.inv.log_abs_det_jacobian(to_sl(y), to_sl(x)), theirs.inv.log_abs_det_jacobian(y, x), 1e-9)
    assert tuple(ours.forward_shape((2, 3))) == tuple(theirs.forward_shape((2, 3)))
    assert ours.domain.event_dim == theirs.domain.event_dim and ours.codomain.event_dim == theirs.codomain.event_dim
    assert ours.bijective == theirs.bijective and ours.inv.inv == ours and ours != sl.distributions.AbsTransform()


EVENTS = {
    "StickBreakingTransform": (lambda d: d.StickBreakingTransform(), torch.tensor([[0.5, 1.0, -2.0], [0.1, 0.2, 3.0]],
                                                                                  dtype=torch.float64)),
    "CorrCholeskyTransform": (lambda d: d.CorrCholeskyTransform(), torch.tensor([[0.5, 1.0, -2.0, 0.3, 0.1, -0.4]] * 2,
                                                                                dtype=torch.float64)),
    "CumulativeDistributionTransform": (lambda d: d.CumulativeDistributionTransform(d.Normal(0.5, 2.0)), A),
    "CatTransform": (lambda d: d.CatTransform([d.ExpTransform(), d.AffineTransform(1.0, 2.0)], 1, [2, 1]), torch.ones(4, 3,
                                                                                                                      dtype=torch.float64)),
    "CatTransform of ones": (lambda d: d.CatTransform([d.ExpTransform(), d.TanhTransform()], -1), torch.ones(4, 2,
                                                                                                             dtype=torch.float64)),
    "StackTransform": (lambda d: d.StackTransform([d.ExpTransform(), d.SigmoidTransform(), d.TanhTransform()], 1),
                       torch.ones(4, 3, dtype=torch.float64)),
}


@pytest.mark.parametrize("name", EVENTS)
def test_transforms_of_events_equal_torch(name):
    make, x = EVENTS[name]
    ours, theirs = make(sl.distributions), make(torch.distributions)
    x = x.clone().requires_grad_()
    mine, y = to_sl(x), theirs(x)
    assert_same(ours(mine), y, 1e-9)
    assert_same(ours.inv(to_sl(y)), theirs.inv(y), 1e-7)
    found, expected = ours.log_abs_det_jacobian(mine, ours(mine)), theirs.log_abs_det_jacobian(x, y)
    assert_same(found, expected, 1e-8)
    assert_same(sl.autograd.grad(found.sum() + ours(mine).square().sum(), mine)[0],
                torch.autograd.grad(expected.sum() + y.square().sum(), x)[0], 1e-7)
    assert ours.domain.event_dim == theirs.domain.event_dim and ours.codomain.event_dim == theirs.codomain.event_dim
    assert ours.bijective == theirs.bijective and bool(ours.codomain.check(ours(mine)).all())
    assert tuple(ours.forward_shape(tuple(x.shape))) == tuple(theirs.forward_shape(tuple(x.shape)))
    assert tuple(ours.inverse_shape(tuple(y.shape))) == tuple(theirs.inverse_shape(tuple(y.shape)))


def test_transforms_of_events_that_do_not_fit():
    d = sl.distributions
    with pytest.raises(ValueError, match="flattened lower-diagonal"):
        d.CorrCholeskyTransform()(sl.ones(4))
    with pytest.raises(ValueError, match="not square"):
        d.CorrCholeskyTransform().inverse_shape((3, 4))
    with pytest.raises(AssertionError, match="must have 2 entries"):
        d.StackTransform([d.ExpTransform(), d.ExpTransform()])(sl.ones(3))
    with pytest.raises(AssertionError, match="same length as tseq"):
        d.CatTransform([d.ExpTransform()], 0, [1, 2])


def test_transforms_by_constraint():
    def moved(d, lib, x):
        c = d.constraints
        return [t(kind)(x) for t in (d.biject_to, d.transform_to) for kind in (
            c.positive, c.real, c.unit_interval, c.interval(-1.0, 3.0), c.greater_than(2.0), c.less_than(1.0))] + [
                d.transform_to(c.simplex)(x), d.biject_to(c.independent(c.positive, 1))(x), d.biject_to(c.simplex)(x), d.biject_to(c.corr_cholesky)(x),
                d.transform_to(c.positive_definite)(x.reshape(1, 3).expand((3, 3))), d.biject_to(c.cat([c.positive, c.real], 0,
                                                                                                       [2, 1]))(x),
                d.transform_to(c.stack([c.positive, c.real, c.unit_interval]))(x)]

    for a, b in zip(moved(sl.distributions, sl, to_sl(A)), moved(torch.distributions, torch, A), strict=True):
        assert_same(a, b, 1e-9)
    with pytest.raises(NotImplementedError, match="Cannot transform"):
        sl.distributions.biject_to(sl.distributions.constraints.boolean)
