"""torch.sin_(x) and its like: in-place methods as functions."""

from types import FunctionType
from typing import Any

from sluice._C import Tensor

# Torch's, then those that OneFlow alone has.
NAMES = """abs_ acos_ acosh_ addmv_ arccos_ arccosh_ arcsin_ arcsinh_ arctan_ arctanh_ as_strided_ asin_ asinh_ atan_ atanh_ ceil_
clamp_ clamp_max_ clamp_min_ clip_ conj_physical_ cos_ cosh_ deg2rad_ detach_ erf_ erfc_ exp2_ exp_ expm1_ fill_ fix_ floor_
frac_ gcd_ i0_ index_put_ lcm_ ldexp_ log10_ log1p_ log2_ log_ logit_ nan_to_num_ neg_ negative_ rad2deg_ reciprocal_ relu_
round_ rsqrt_ sigmoid_ sin_ sinc_ sinh_ sqrt_ square_ tan_ tanh_ trunc_ xlogy_ zero_ resize_as_
div_ erfinv_ gt_ index_add_ lerp_ masked_fill_ normal_""".split()


def _function(name: str) -> Any:
    method = getattr(Tensor, name)
    if not isinstance(method, FunctionType):
        return method  # of a form: it checks its arguments

    def write(input, *args, **options):
        if not isinstance(input, Tensor):
            raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}")
        return method(input, *args, **options)

    write.__name__ = write.__qualname__ = name
    write.__doc__ = f"input.{name}(...); torch.{name}."
    return write


FUNCTIONS = {name: _function(name) for name in NAMES}
