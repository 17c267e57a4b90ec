"""torch.special: special functions."""

from sluice._C.special import *  # noqa: F403


def __getattr__(name):
    if "polynomial" in name or name == "airy_ai":
        raise AttributeError(f"sluice.special has no {name}(); use numpy.polynomial or scipy.special of x.numpy()")
    raise AttributeError(f"module 'sluice.special' has no attribute '{name}'")
