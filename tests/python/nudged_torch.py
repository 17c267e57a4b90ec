"""A torch whose roots, transcendental functions, sums and drawn logarithms are off by a bit in the last place.

Other processors' torch is such a torch: its libraries choose other algorithms there. A test that fails beside this one holds
us to bits of a peer, so it would fail on somebody's machine (SLUICE_NUDGE_TORCH=1 pytest; tools/check_isas.sh).
"""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

# Functions that IEEE 754 or the op's definition rounds in one way on every machine, that only move numbers, and draws of
# uniform ones.
EXACT = set("""abs absolute add alias all amax amin aminmax any arange argmax argmin as_strided bernoulli bitwise_and bitwise_or bitwise_xor cat ceil
clamp clamp_max clamp_min clone col2im complex conj constant_pad_nd contiguous copy copysign count_nonzero cummax cummin detach
diag_embed diagonal diagonal_backward div embedding empty empty_like empty_strided eq expand eye fill flip floor floor_divide fmax
fmin fmod frac frexp full full_like gather ge gt heaviside im2col imag index index_put index_select is_same_size isinf isnan kthvalue
ldexp le lift lift_fresh logical_and logical_not logical_or logical_xor lt masked_fill masked_scatter masked_select max
max_pool2d_with_indices max_pool3d_with_indices maximum median min minimum mode mul multinomial nan_to_num nanmedian ne neg new_empty
new_empty_strided new_full new_ones new_zeros nextafter nonzero ones ones_like permute pixel_shuffle pixel_unshuffle put
rand randint random randperm real reciprocal reflection_pad1d reflection_pad2d reflection_pad3d relu remainder repeat replication_pad1d
replication_pad2d replication_pad3d resize roll round rsub scalar_tensor scatter searchsorted select select_backward select_scatter
set sgn sign signbit slice slice_backward slice_scatter sort split split_with_sizes squeeze stack sub t take threshold
threshold_backward topk transpose tril triu trunc unbind unfold uniform unsafe_split unsafe_view unsqueeze
upsample_nearest1d upsample_nearest2d upsample_nearest3d view view_as_complex view_as_real where zero zeros zeros_like
_conj _local_scalar_dense _neg_view _reshape_alias _resize_output _to_copy _unique2 _unsafe_view""".split())
INTEGERS = {torch.float32: torch.int32, torch.float64: torch.int64}


def nudge(tensor):
    """Moves every number up or down by one unit in the last place, as its bits say, but those that are likely to be exact:
    small integers and such fractions; nor the least and the largest numbers, which would become zeros and infinities."""
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor._is_zerotensor():
        return
    if tensor.is_complex():
        if not tensor.is_conj():
            nudge(torch.view_as_real(tensor))
    elif tensor.dtype in INTEGERS and tensor.numel() and not tensor.is_neg():
        bits = tensor.view(INTEGERS[tensor.dtype])
        up = (bits ^ (bits >> 3) ^ (bits >> 7)) & 1
        size, limits = tensor.abs(), torch.finfo(tensor.dtype)
        inexact = ((bits & 0xFF) != 0) & (size > limits.tiny) & (size < limits.max / 2)
        bits.add_((2 * up - 1) * inexact)


class Nudged(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        result = function(*arguments, **(options or {}))
        chooses = any(isinstance(a, str) and a in ("amax", "amin") for a in arguments)  # scatter_reduce and its like
        if function.namespace == "aten" and not chooses and function.overloadpacket.__name__.rstrip("_") not in EXACT:
            for value in result if isinstance(result, (tuple, list)) else (result,):
                if type(value) in (torch.Tensor, torch.nn.Parameter):
                    nudge(value)
        return result
