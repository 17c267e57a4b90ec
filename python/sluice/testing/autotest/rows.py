"""Facts about the arguments of ops beyond their signatures (language.py), and signatures of functions that are no forms."""

from __future__ import annotations

from typing import Any

from sluice.testing.autotest.linear_algebra import LINEAR_ALGEBRA
from sluice.testing.autotest.network import NETWORK, NETWORK_SIGNATURES
from sluice.testing.autotest.spatial import SPATIAL

SIGNATURES = {
    "arange": "arange(Scalar start, Scalar end, Scalar step, *, ScalarType? dtype=None) -> Tensor",
    "range": "range(Scalar start, Scalar end, Scalar step, *, ScalarType? dtype=None) -> Tensor",
    "linspace": "linspace(Scalar start, Scalar end, int steps, *, ScalarType? dtype=None) -> Tensor",
    "logspace": "logspace(Scalar start, Scalar end, int steps, float base=10.0, *, ScalarType? dtype=None) -> Tensor",
    "eye": "eye(int n, int m, *, ScalarType? dtype=None) -> Tensor",
    "full": "full(int[] size, Scalar fill_value, *, ScalarType? dtype=None) -> Tensor",
    "full_like": "full_like(Tensor input, Scalar fill_value, *, ScalarType? dtype=None) -> Tensor",
    "scalar_tensor": "scalar_tensor(Scalar s, *, ScalarType? dtype=None) -> Tensor",
    "tensor": "tensor(Scalar data, *, ScalarType? dtype=None) -> Tensor",
    "as_tensor": "as_tensor(Scalar data, *, ScalarType? dtype=None) -> Tensor",
    "asarray": "asarray(Scalar obj, *, ScalarType? dtype=None) -> Tensor",
    **{n: f"{n}(int[] size, *, ScalarType? dtype=None) -> Tensor" for n in ("ones", "zeros", "rand", "randn")},
    **{n: f"{n}(Tensor input, *, ScalarType? dtype=None) -> Tensor" for n in ("ones_like", "zeros_like", "rand_like", "randn_like")},
    "randint": "randint(int low, int high, int[] size, *, ScalarType? dtype=None) -> Tensor",
    "randint_like": "randint_like(Tensor input, int low, int high) -> Tensor",
    "randperm": "randperm(int n, *, ScalarType? dtype=None) -> Tensor",
    **{f"{n}_window": f"{n}_window(int window_length, bool periodic=True, *, ScalarType? dtype=None) -> Tensor"
       for n in ("bartlett", "blackman", "hamming", "hann")},
    **{n: f"{n}(int row, int col, int offset=0, *, ScalarType? dtype=None) -> Tensor" for n in ("tril_indices", "triu_indices")},
    "bernoulli": "bernoulli(Tensor input) -> Tensor",
    "normal": "normal(float mean, float std, int[] size) -> Tensor",
    "tensordot": "tensordot(Tensor a, Tensor b, int dims) -> Tensor",
    "gradient": "gradient(Tensor input, *, Scalar spacing=1, int dim, int edge_order=1) -> Tensor[]",
    "histogram": "histogram(Tensor input, int bins, *, float[]? range=None, Tensor? weight=None, bool density=False) -> Tensor",
    "unravel_index": "unravel_index(Tensor indices, int[] shape) -> Tensor[]",
    "broadcast_shapes": "broadcast_shapes(int[] a, int[] b) -> int[]",
    "promote_types": "promote_types(ScalarType type1, ScalarType type2) -> ScalarType",
    "can_cast": "can_cast(ScalarType from_, ScalarType to) -> bool",
    "result_type": "result_type(Operand tensor1, Operand tensor2) -> ScalarType",
    "selu": "selu(Tensor input) -> Tensor",
    "celu": "celu(Tensor input, float alpha=1.0) -> Tensor",
    "threshold": "threshold(Tensor input, Scalar threshold, Scalar value) -> Tensor",
    **{n: f"{n}(Tensor input) -> bool" for n in ("is_complex", "is_conj", "is_neg", "is_nonzero", "is_signed", "is_tensor", "is_inference")},
    "is_same_size": "is_same_size(Tensor input, Tensor other) -> bool",
    "as_strided_scatter":
        "as_strided_scatter(Tensor input, Tensor src, int[] size, int[] stride, int? storage_offset=None) -> Tensor",
    "zero_": "zero_(Tensor input) -> Tensor", "fill_": "fill_(Tensor input, Operand value) -> Tensor",
    "embedding_bag": "embedding_bag(Tensor weight, Tensor input, Tensor offsets) -> Tensor[]",
    "layer_norm":
        "layer_norm(Tensor input, int[] normalized_shape, Tensor? weight=None, Tensor? bias=None, float eps=1e-05) -> Tensor",
    "rms_norm": "rms_norm(Tensor input, int[] normalized_shape, Tensor? weight=None, float? eps=None) -> Tensor",
    **{n: f"{n}(Tensor input) -> Tensor" for n in ("alias_copy", "detach_copy", "t_copy")},
    "expand_copy": "expand_copy(Tensor input, int[] size) -> Tensor",
    "view_copy": "view_copy(Tensor input, int[] size) -> Tensor",
    "permute_copy": "permute_copy(Tensor input, int[] dims) -> Tensor",
    "squeeze_copy": "squeeze_copy(Tensor input, int[1] dim) -> Tensor",
    "unsqueeze_copy": "unsqueeze_copy(Tensor input, int dim) -> Tensor",
    "select_copy": "select_copy(Tensor input, int dim, int index) -> Tensor",
    "transpose_copy": "transpose_copy(Tensor input, int dim0, int dim1) -> Tensor",
    "unbind_copy": "unbind_copy(Tensor input, int dim=0) -> Tensor[]",
    "diagonal_copy": "diagonal_copy(Tensor input, int offset=0, int dim1=0, int dim2=1) -> Tensor",
    "narrow_copy": "narrow_copy(Tensor input, int dim, int start, int length) -> Tensor",
    "split_copy": "split_copy(Tensor input, int split_size, int dim=0) -> Tensor[]",
    "split_with_sizes_copy": "split_with_sizes_copy(Tensor input, int[] split_sizes, int dim=0) -> Tensor[]",
    "unfold_copy": "unfold_copy(Tensor input, int dimension, int size, int step) -> Tensor",
    "as_strided_copy": "as_strided_copy(Tensor input, int[] size, int[] stride) -> Tensor",
    "unsafe_chunk": "unsafe_chunk(Tensor input, int chunks, int dim=0) -> Tensor[]",
    "unsafe_split": "unsafe_split(Tensor tensor, int split_size, int dim=0) -> Tensor[]",
    "unsafe_split_with_sizes": "unsafe_split_with_sizes(Tensor input, int[] split_sizes, int dim=0) -> Tensor[]",
    "Tensor.sum_to_size": "sum_to_size(Tensor input, int[] size) -> Tensor",
    "Tensor.to": "to(Tensor input, ScalarType dtype) -> Tensor",
    "Tensor.type_as": "type_as(Tensor input, Tensor other) -> Tensor",
    "Tensor.copy_": "copy_(Tensor input, Tensor src) -> Tensor",
    "Tensor.fill_diagonal_": "fill_diagonal_(Tensor input, Scalar value, bool wrap=False) -> Tensor",
    **{f"Tensor.{n}": f"{n}(Tensor input) -> Tensor" for n in ("cpu", "tolist", "item", "dim", "ndimension", "is_contiguous", "element_size", "size", "stride")},
    **{f"Tensor.{n}": f"{n}(Tensor input) -> Tensor"
       for n in ("T", "H", "mT", "mH", "ndim", "shape", "dtype", "itemsize", "nbytes", "is_leaf", "requires_grad", "is_cpu", "is_cuda", "grad",
                 "storage_offset", "is_pinned", "is_shared", "is_distributed", "get_device", "numpy",
                 "dim_order")},
    "Tensor.new_tensor": "new_tensor(Tensor input, Scalar data) -> Tensor", "Tensor.type": "type(Tensor input) -> str",
    "Tensor.is_set_to": "is_set_to(Tensor input, Tensor tensor) -> bool",
    "Tensor.resize_": "resize_(Tensor input, int[] size) -> Tensor",
    "Tensor.uniform_": "uniform_(Tensor input, float low, float high) -> Tensor",
    "Tensor.random_": "random_(Tensor input, int low, int high) -> Tensor",
    "get_device": "get_device(Tensor input) -> int", "is_distributed": "is_distributed(Tensor input) -> bool",
    "is_storage": "is_storage(Tensor obj) -> bool",
    "typename": "typename(Tensor obj) -> str",
    **{f"nn.functional.{n}": f"{n}(Tensor input, float p, bool training=True) -> Tensor"
       for n in ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")},
    "nn.functional.rrelu": "rrelu(Tensor input, float lower, float upper, bool training=False) -> Tensor",
    "nn.functional.rrelu_": "rrelu_(Tensor input, float lower, float upper, bool training=False) -> Tensor",
    "nn.functional.elu_": "elu_(Tensor input, float alpha=1.0) -> Tensor",
    "nn.functional.hardtanh_": "hardtanh_(Tensor input, float min_val=-1.0, float max_val=1.0) -> Tensor",
    "nn.functional.leaky_relu_": "leaky_relu_(Tensor input, float negative_slope=0.01) -> Tensor",
    "nn.functional.upsample_nearest": "upsample_nearest(Tensor input, int[1]? size=None, int? scale_factor=None) -> Tensor",
    "nn.functional.upsample_bilinear": "upsample_bilinear(Tensor input, int[1]? size=None, int? scale_factor=None) -> Tensor",
    "nn.functional.upsample":
        "upsample(Tensor input, int[1]? size=None, float? scale_factor=None, str mode=\"nearest\", bool? align_corners=None) "
        "-> Tensor",
    "Tensor.new_full": "new_full(Tensor input, int[] size, Scalar fill_value) -> Tensor",
    **{f"Tensor.new_{n}": f"new_{n}(Tensor input, int[] size, *, ScalarType? dtype=None) -> Tensor" for n in ("ones", "zeros")},
    "nn.functional.scaled_dot_product_attention":
        "scaled_dot_product_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, "
                                                  "float dropout_p=0.0, bool is_causal=False, *, float? scale=None, bool "
                                                  "enable_gqa=False) -> Tensor",
    "nn.functional.triplet_margin_with_distance_loss":
        "triplet_margin_with_distance_loss(Tensor anchor, Tensor positive, Tensor negative, *, "
                                                       "float margin=1.0, bool swap=False, str reduction=\"mean\") -> Tensor",
    **NETWORK_SIGNATURES,
}

_POSITIVE = (
    "log log10 log2 sqrt rsqrt lgamma digamma special.digamma special.psi special.gammaln special.bessel_y0 special.bessel_y1 "
    "special.modified_bessel_k0 special.modified_bessel_k1 special.scaled_modified_bessel_k0 special.scaled_modified_bessel_k1 "
    "special.entr")
_UNIT = "acos asin arccos arcsin atanh arctanh erfinv special.erfinv"
_REDUCED = "sum mean nansum nanmean"  # with keepdim or dtype they need a dim
ROWS: dict[str, Any] = {
    **dict.fromkeys(_POSITIVE.split(), "@positive"), **dict.fromkeys(_UNIT.split(), "@unit"), "acosh": "@above1",
    "arccosh": "@above1",
    "log1p": "@prob", "special.log1p": "@prob", "logit": "@prob", "special.logit": "@prob", "special.ndtri": "@prob",
    **{n: "n=0..3 @positive" for n in ("polygamma", "special.polygamma")}, "mvlgamma": "p=1..3 @shape",
    "special.multigammaln": "p=1..3 @shape",
    **{n: "@positive" for n in ("xlogy", "special.xlogy", "special.xlog1py", "float_power", "igamma", "igammac", "special.gammainc",
                               "special.gammaincc")},
    "special.zeta": "@above1", "pow": "@positive; @integers",
    **{n: "@integers other=0..5;@integers" for n in ("bitwise_left_shift", "bitwise_right_shift")},
    **{n: "@integers" for n in ("gcd", "lcm", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not")},
    "ldexp": "other=[]:int64;", "div": "rounding_mode=None|'floor'|'trunc'", "divide": "rounding_mode=None|'floor'|'trunc'",
    "round": "decimals=-1..3;", "special.round": "decimals=-1..3;", **{n: "min=0.5|-1;max=0.5|2;min=-1 max=0.7;input=[n m] min=[m] max=[n m]" for n in ("clamp", "clip")},
    "lerp": "input=[n m] end=[n m] @floats;weight=[]:wide @floats",
    "masked_fill": "input=[n m] mask=[n m]:mask;input=[n m] mask=[m]:mask value=[]",
    "where": "condition=[n m]:mask input=[n m];condition=[n m]:mask input=[m] other=[n 1]",
    "heaviside": "", "nextafter": "@wide", "copysign": "!double", "frexp": "@floats !double",
    "nan_to_num": "nan=0.5|None posinf=2.0|None neginf=-7.0|None", "isclose": "@floats", "allclose": "@floats",
    "is_nonzero": "input=[] !graph !grad;input=[1 1] !graph !grad",
    # reductions
    **{n: "dim=0..0;dim=dims;" for n in ("all", "any", "amax", "amin")},
    **{n: "dim=dim keepdim=True|False;dim=dims;keepdim=- dtype=- dim=-" for n in _REDUCED.split()},
    "prod": "dim=dim keepdim=True|False;keepdim=- dtype=- dim=-", "logsumexp": "dim=dim;dim=dims",
    "special.logsumexp": "dim=dim;dim=dims",
    **{n: "dim=dim;dim=-" for n in ("argmax", "argmin")}, "argsort": "dim=dim stable=True;dim=dim stable=True descending=True",
    "sort": "dim=dim stable=True;dim=dim stable=True descending=True", "msort": "@wide",
    "topk": "sorted=- input=[n M] k=0..M dim=-1|1 @wide !edges;sorted=- input=[M n] k=1..M dim=0 @wide !edges",
    "kthvalue": "input=[n M] k=1..M dim=-1 @wide !edges;input=[M] k=1..M @wide !edges",
    "mode": "dim=dim @wide !edges", "count_nonzero": "dim=dim;dim=dims;", "aminmax": "dim=dim;",
    "quantile": "input=[N M] q=0.0|0.3|0.5|1.0 dim=dim|None @wide;input=[N M] q=[3]:prob dim=0|1 @wide",
    "nanquantile": "input=[N M] q=0.0|0.3|0.5|1.0 dim=dim @wide;input=[N M] q=[3]:prob dim=0|1 @wide",
    **{n: "dim=dim" for n in ("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp", "softmax", "log_softmax", "special.softmax",
                             "special.log_softmax", "nn.functional.softmax", "nn.functional.log_softmax",
                             "nn.functional.softmin")},
    **{n: "dim=dim correction=0|1|2|0.5;dim=dims;unbiased=True|False dim=dim;dim=- correction=- keepdim=-" for n in ("var", "std", "var_mean", "std_mean")},
    "norm": "p=1|2|0.5|3|float('inf')|-float('inf')|0 dim=dim|None @floats;p='fro' dim=dim @floats",
    "dist": "p=1|2|3|0 @floats",
    "renorm": "input=[N M K] p=1|2|3 dim=dim maxnorm=0.5|2.0 @floats",
    "histc": "bins=1..5 min=-2 max=2|3 @floats;bins=1..5 min=- max=- @floats",
    "histogram": "bins=1..5 range=(-2.0,2.0) weight=- @wide !graph !grad",
    "cov":
        "input=[n M] fweights=- aweights=-;input=[n M] correction=0 fweights=[M]:counts @wide;"
        "input=[n M] aweights=[M]:positive @wide;input=[M] fweights=- aweights=-",
    "corrcoef": "input=[n M] @wide;input=[M] @wide",
    "diff": "n=0..2 dim=dim prepend=- append=-;input=[M n] prepend=[k n] append=[m n] dim=0",
    **{n: "y=[n M] x=[n M] dim=-1 @floats;y=[n M] x=[M] dim=-1 @floats;y=[M n] dx=0.5 dim=dim @floats" for n in ("trapezoid", "trapz", "cumulative_trapezoid")},
    "bincount": "input=[n]:index<7 weights?=[n]:wide minlength=0..9",
    "gradient": "input=[(M+2)] spacing=0.5|2 dim=0 edge_order=1|2 @wide",
    "unique": "dim=None|0 return_inverse=True|False sorted=True input=[M n];", "unique_consecutive": "dim=None|0 input=[M n]",
    "median": "@wide !edges", "nanmedian": "dim=dim @wide !edges;dim=- @wide !edges", "max": "", "min": "",
    # shapes
    # What a graph is given has memory of its own.
    "as_strided": ";".join(f"input=[4 5] {rest} {flag}" for flag in ("!graph", "!layouts") for rest in (
        "size=(2,3) stride=(1,2)|(5,1) storage_offset=0|2|None", "size=(3,) stride=(2,)|(6,)", "size=() stride=() storage_offset=3")),
    "as_strided_copy": ";".join(f"input=[4 5] size=(2,3) stride=(1,2)|(5,1) {flag}" for flag in ("!graph", "!layouts")),
    "as_strided_scatter": "input=[4 5] src=[2 3] size=(2,3) stride=(5,1)|(1,2) storage_offset=-",
    "broadcast_to": "input=[N 1 m] size=(N,3,m)|(2,N,1,m)|(-1,2,-1)",
    "Tensor.expand": "input=[N 1 m] size=(N,3,m)|(2,N,1,m)|(-1,2,-1)",
    "expand_copy": "input=[N 1 m] size=(N,3,m)|(2,N,1,m)|(-1,2,-1)", "Tensor.expand_as": "input=[N 1] other=[m N n]",
    **{n: "input=[N M K] {s}=(N*M,K)|(-1,K)|(N,-1)|(-1,)|(N,1,M,K)|(K,M,N)".replace("{s}", s)
       for n, s in (("reshape", "shape"), ("Tensor.view", "size"), ("view_copy", "size"))},
    "Tensor.view_as": "input=[N M] other=[M N]", "Tensor.reshape_as": "input=[N M] other=[M N]",
    "Tensor.unfold": "input=[(N+2) (M+2)] dimension=dim size=0..3 step=1..3",
    "unfold_copy": "input=[(N+2) (M+2)] dimension=dim size=0..3 step=1..3",
    "Tensor.repeat": "input=[n m] repeats=(1,2)|(2,1,3)|(0,1)", "tile": "input=[n m] dims=(1,2)|(2,)|(2,1,3)",
    "repeat_interleave": "input=[n m] repeats=0..3 dim=dim|None;input=[n 3] repeats=[3]:index<4 dim=1|-1;repeats=[n]:index<4",
    "unflatten": "input=[n (2*M)] dim=1|-1 sizes=(2,M)|(-1,2)|(2,-1)",
    **{n: "input=[a b c] dims=(2,0,1)|(0,2,1)|(-1,0,1)" for n in ("permute", "permute_copy")}, "flip": "dims=dims",
    **{n: "input=[a b c] source=0|-1 destination=1|2;input=[a b c] source=(0,1) destination=(2,0)|(1,0)" for n in ("movedim", "moveaxis")},
    "rot90": "input=[a b c] dims=(0,1)|(1,2)|(-1,0) k=-1..5",
    "roll": "input=[n m] shifts=-3..5 dims=dim;input=[n m] shifts=(1,2) dims=(0,1)|(1,0);shifts=-3..4 dims=-",
    "t": "input=[n m];input=[n]", "t_copy": "input=[n m];input=[n]", "adjoint": "input=[n m k]",
    **{n: "dim=dim;dim=dims;" for n in ("squeeze",)}, "squeeze_copy": "input=[1 n 1] dim=dims", "unsqueeze": "dim=dim",
    "unsqueeze_copy": "dim=dim",
    "flatten": "input=[a b c d] start_dim=0|1|-3 end_dim=2|-1|1", "narrow": "input=[n (M+2)] dim=1|-1 start=0|1|-2 length=0..2",
    "narrow_copy": "input=[n (M+2)] dim=1|-1 start=0|1 length=0..2 !double",
    "select": "input=[N M] dim=0 index=-N..N-1;input=[N M] dim=-1 index=0..M-1",
    "select_copy": "input=[N M] dim=0 index=0..N-1", "chunk": "chunks=1..4 dim=dim", "unsafe_chunk": "chunks=1..4 dim=dim",
    **{n: "{t}=[N M] {s}=1..4 dim=dim".replace("{t}", t).replace("{s}", s)
       for n, t,
       s in (("split", "tensor", "split_size_or_sections"), ("unsafe_split", "tensor", "split_size"), ("split_copy", "input", "split_size"))},
    **{n: "input=[n (M+2)] split_sizes=(1,M,1)|(2,M)|(M+2,0) dim=1" for n in ("split_with_sizes", "unsafe_split_with_sizes", "split_with_sizes_copy")},
    "tensor_split": "input=[n m] sections=1..4 dim=dim;input=[n m] indices=(1,3)|(2,1)|(-1,) dim=dim",
    "hsplit": "input=[n (2*M)] sections=2;input=[n m] indices=(1,3)",
    "vsplit": "input=[(2*M) n] sections=2;input=[n m] indices=(1,3)",
    "dsplit": "input=[n m (3*K)] sections=3;input=[n m k] indices=(1,2)",
    **{n: "tensors=-" for n in ()}, "diag": "input=[n m] diagonal=-2..2;input=[n] diagonal=-2..2", "diagflat": "offset=-2..2",
    "diagonal": "input=[a b c] offset=-2..2 dim1=0|1 dim2=2|-1",
    "diagonal_copy": "input=[a b c] offset=-2..2 dim1=0|1 dim2=2|-1", "linalg.diagonal": "A=[a b c] offset=-2..2",
    "diag_embed": "input=[n m] offset=-2..2 dim1=0|-2 dim2=1|-1",
    "diagonal_scatter": "input=[4 4] src=[4] offset=0;input=[4 5] src=[3] offset=-1",
    "select_scatter": "input=[N M] src=[M] dim=0 index=0..N-1",
    "slice_scatter": "input=[(N+2) m] src=[N m] start=1 end=N+1 step=1 dim=0;input=[n 5] src=[n 2] dim=1 start=0 end=4 step=2",
    "tril": "input=[... n m] diagonal=-2..3", "triu": "input=[... n m] diagonal=-2..3", "trace": "input=[n m]",
    "vander": "x=[n] N=0..4", "linalg.vander": "x=[... M] N=1..4 @wide", "kron": "input=[n m] other=[k];input=[n] other=[m k]",
    "combinations": "input=[M] r=0..3", "cartesian_prod": lambda d: _vectors(d), "meshgrid": "", "block_diag": "",
    "atleast_1d": "", "sum_to_size": "", "Tensor.sum_to_size": "input=[N M] size=(1,M)|(N,1)|(M,)|(1,)|()",
    "fliplr": "input=[n m k]", "flipud": "input=[n m]",
    # indices
    "gather": "input=[N m] dim=0 index=[k m]:index<N;input=[n M] dim=-1 index=[n k]:index<M",
    "take_along_dim": "input=[N m] dim=0 indices=[k m]:index<N;input=[N] indices=[k m]:index<N",
    "scatter":
        "input=[N m] dim=0 index=[N m]:index<N src=[N m];input=[n M] dim=1 index=[n 1]:index<M value=2|0.5;"
        "input=[N m] dim=0 index=[k m]:index<N src=[k m] reduce='add'|'multiply' !grad",
    "scatter_add": "input=[N m] dim=0 index=[k m]:index<N src=[k m];input=[n M] dim=-1 index=[n k]:index<M src=[n k]",
    "scatter_reduce": "input=[N m] dim=0 index=[k m]:index<N src=[k m] reduce='sum'|'prod'|'mean'|'amax'|'amin'",
    "index_add": "input=[N m] dim=0 index=[k]:index<N source=[k m] alpha=1|2;input=[n M] dim=1 index=[k]:index<M source=[n k]",
    "index_copy": "input=[N m] dim=0 index=[1]:index<N source=[1 m]",
    "index_fill": "input=[N m] dim=0 index=[k]:index<N value=2|0.5;input=[N m] dim=0 index=[k]:index<N value=[]",
    "index_reduce": "input=[N m] dim=0 index=[k]:index<N source=[k m] reduce='prod'|'mean'|'amax'|'amin'",
    "index_select": "input=[N m] dim=0 index=[k]:index<N;input=[n M] dim=-1 index=[k]:index<M",
    "take": "input=[N M] index=[k]:index<(N*M)",
    "put": "input=[N M] index=[1]:index<(N*M) source=[1];input=[N M] index=[k]:index<(N*M) source=[k] accumulate=True",
    "index_put": "input=[N m] indices=- values=[m]", "masked_select": "input=[n m] mask=[n m]:mask;input=[n m] mask=[m]:mask",
    "masked_scatter": "input=[n m] mask=[n m]:mask source=[n m]",
    "nonzero": "as_tuple=True|False", "nonzero_static": "size=0..6 fill_value=-1|7", "argwhere": "", "isin": "assume_unique=-",
    "bucketize": "boundaries=[M]:sorted @wide !edges", "searchsorted": "sorted_sequence=[M]:sorted input=[n] sorter=- side=- @wide !edges",
    "unravel_index": "indices=[n]:index<12 shape=(3,4)|(12,)|(2,2,3) !grad", "one_hot": "",
    # products
    "mm": "input=[n k] mat2=[k m] @numbers", "bmm": "input=[b n k] mat2=[b k m] @numbers", "mv": "input=[n k] vec=[k] @numbers",
    "dot": "input=[n] tensor=[n] @numbers",
    "vdot": "input=[n] other=[n] @numbers", "inner": "input=[n k] other=[m k] @numbers;input=[k] other=[m k] @numbers",
    "outer": "input=[n] vec2=[m]", "ger": "input=[n] vec2=[m]",
    **{n: "input=[... n k] other=[... k m] @numbers;input=[k] other=[... k m] @numbers;input=[... n k] other=[k] @numbers;input=[n] other=[n] @numbers" for n in ("matmul", "linalg.matmul")},
    # Without alpha of 0: in torch it depends on dtypes and sizes whether that leaves out products which are NaN.
    "addmm": "input=[n m] mat1=[n k] mat2=[k m] alpha?=-1.5|0.5|2 @numbers;input=[m] mat1=[n k] mat2=[k m] alpha?=-2|0.5 @floats",
    "addmv": "input=[n] mat=[n k] vec=[k] alpha?=-1.5|0.5|2 @numbers", "addr": "input=[n m] vec1=[n] vec2=[m] @numbers",
    "baddbmm": "input=[b n m] batch1=[b n k] batch2=[b k m] alpha?=-1.5|0.5|2 @numbers",
    "addbmm": "input=[n m] batch1=[b n k] batch2=[b k m] alpha?=-1.5|0.5|2 @numbers",
    "chain_matmul": lambda d: _chain(d), "linalg.multi_dot": lambda d: _chain(d, True), "einsum": lambda d: _einsum(d),
    "cross": "input=[n 3] other=[n 3] dim=1|-1 @numbers", "linalg.cross": "input=[... 3] other=[... 3] @numbers",
    "linalg.vecdot": "x=[n m] y=[n m] dim=dim @floats",
    "tensordot": "a=[n m k] b=[m k p] dims=2 @wide;a=[n m] b=[m p] dims=1 @wide;a=[n] b=[m] dims=0 @wide",
    "bilinear": "input1=[n A] input2=[n B] weight=[m A B] bias?=[m] @wide",
    # lists
    **{n: lambda d, n=n: _joined(d, n) for n in ("cat", "concat", "concatenate", "stack", "hstack", "vstack", "row_stack", "dstack", "column_stack")},
    # creation, and random numbers, which are torch's on the CPU
    "arange": "start=-2|0|0.5 end=3|7.2 step=1|2|0.7 !graph",
    "range": "start=-2|0 end=3|7 step=1|2|0.5 dtype=torch.float32|torch.float64 !graph",
    "linspace": "start=-2|0.5 end=3|7 steps=0..7", "logspace": "start=-1|0.5 end=1|2.7 steps=0..5",
    "eye": "n=0..4 m=0..4", "full": "size=(n,m)|() fill_value=2|0.5|True", "full_like": "fill_value=2|0.5",
    **{n: "data=2|0.5|True|-3" for n in ("tensor", "as_tensor")}, "scalar_tensor": "s=2|0.5|True",
    "asarray": "obj=2|0.5|True", **{n: "size=(n,m)|()|(n,)" for n in ("ones", "zeros")},
    **{n: "size=(n,m)|()|(n,)|(4,5,6) dtype=torch.float32|torch.float64 !graph" for n in ("rand", "randn")},
    "rand_like": "@wide dtype=- !graph !grad", "randn_like": "@wide dtype=- !graph !grad",
    "randint": "low=-3..0 high=1..9 size=(n,m)|(33,) dtype=torch.int64|torch.float32 !graph",
    "randint_like": "low=-3|0 high=5 @wide !graph !grad", "randperm": "n=0..33 dtype=torch.int64 !graph",
    "normal": "mean=0.0|1.5 std=0.5|2.0 size=(n,m)|(40,) !graph",
    "bernoulli": "@wide input=[n m]:prob !graph !grad !forms",
    **{f"{n}_window":
        "window_length=0..7 dtype=torch.float32|torch.float64" for n in ("bartlett", "blackman", "hamming", "hann")},
    **{n: "row=0..4 col=0..4 offset=-2..2 dtype=-" for n in ("tril_indices", "triu_indices")},
    "broadcast_shapes": "a=(n,1)|(1,) b=(m,)|(n,m) !graph !grad",
    **{n: "!graph !grad" for n in ("promote_types", "can_cast", "result_type", "is_tensor", "is_inference")},
    "promote_types":
        "type1=torch.int64|torch.float32|torch.bool|torch.uint8 type2=torch.float16|torch.bfloat16|torch.int8 !graph !grad",
    "can_cast": "from_=torch.int64|torch.float32|torch.bool to=torch.float16|torch.bool|torch.int8 !graph !grad",
    "zero_": "!grad", "fill_": "!grad", "Tensor.copy_": "!grad input=[n m] src=[n m];!grad input=[n m] src=[m]",
    "Tensor.fill_diagonal_": "!grad input=[N M] value=2",
    "Tensor.to": "dtype=torch.float32|torch.float64|torch.int64|torch.bool|torch.float16",
    "Tensor.item": "input=[] !graph;input=[1 1] !graph", "Tensor.tolist": "!graph @wide",
    "Tensor.new_full": "size=(n,m)|() fill_value=2", "Tensor.new_ones": "size=(n,m)|()", "Tensor.new_zeros": "size=(n,m)|()",
    **{f"Tensor.{n}": "!graph" for n in ("dim", "ndimension", "is_contiguous", "element_size", "size", "stride", "nelement")},
    **{n: "!graph" for n in ("numel", "equal", "allclose", "is_floating_point")},
    "Tensor.T": "input=[n m]", "Tensor.H": "input=[n m]", "Tensor.mT": "input=[... n m]", "Tensor.mH": "input=[... n m]",
    **{f"Tensor.{n}": "!graph !grad" for n in ("ndim", "shape", "dtype", "itemsize", "nbytes", "is_leaf", "requires_grad", "is_cpu", "is_cuda", "grad",
                                               "storage_offset", "is_pinned", "is_shared", "is_coalesced", "is_distributed",
                                               "get_device", "type")},
    "Tensor.numpy": "!graph !grad @wide", "Tensor.dim_order": "!graph !grad input=[N M K L]",
    "Tensor.new_tensor": "data=2|0.5|True !graph", "Tensor.is_set_to": "!graph !grad input=[n] tensor=[n]",
    "Tensor.resize_": "!graph !grad input=[N M] size=(1,1)|(1,)|(N,M)",
    "Tensor.uniform_": "!graph !grad @wide low=0.0|-1.0 high=1.0|2.5", "Tensor.random_": "!graph !grad low=0|2 high=5|9 @wide",
    **{n: "!graph !grad" for n in ("get_device", "is_distributed", "is_storage", "typename")},
    **{f"nn.functional.{n}":
        "input=[N 3 2 2] p=0.0 training=True @floats;input=[N 3 2 2] p=0.3 training=False @floats" for n in ("dropout", "dropout2d", "alpha_dropout", "feature_alpha_dropout")},
    "nn.functional.dropout1d": "input=[N 3 2] p=0.3 training=False @floats",
    "nn.functional.dropout3d": "input=[N 3 2 2 1] p=0.3 training=False @floats",
    "nn.functional.rrelu": "lower=0.1 upper=0.3 training=- @wide",
    "nn.functional.rrelu_": "lower=0.1 upper=0.3 training=- @wide !grad", "nn.functional.elu_": "@floats !grad alpha=1.0|0.5",
    "nn.functional.hardtanh_": "min_val=-1.0|-2.0 max_val=1.0|0.5 @floats !grad", "nn.functional.leaky_relu_": "@floats !grad",
    "nn.functional.upsample_nearest":
        "input=[N 2 3 4] size=- scale_factor=2 @wide;input=[N 2 3 4] size=5|(2,7) scale_factor=- @wide",
    "nn.functional.upsample_bilinear":
        "input=[N 2 3 4] size=- scale_factor=2 @wide;input=[N 2 3 4] size=5|(2,7) scale_factor=- @wide",
    "nn.functional.upsample":
        "input=[N 2 3 4] size=- scale_factor=2 mode='nearest'|'bicubic'|'bilinear' align_corners=- @wide;"
        "input=[N 2 3] size=5 scale_factor=- mode='linear' align_corners=True @wide",
    "embedding_bag": "weight=[N m] input=[4]:index<N offsets=[1]:index<1 @wide !double !strict",
    "layer_norm": "input=[n M] normalized_shape=(M,) weight?=[M] bias?=[M] eps=1e-5|0.1 @floats",
    "rms_norm": "input=[n M] normalized_shape=(M,) weight?=[M] eps=1e-5|None @floats",
    "frobenius_norm": "input=[n m k] dim=(0,1)|(1,)|1 @floats", "threshold": "threshold=0.5|-1 value=2.0|0",
    "celu": "alpha=0.5|1.0|2.0", "Tensor.contiguous": "memory_format=-",
    "channel_shuffle": "input=[n (2*M) a b] groups=2", "pixel_shuffle": "input=[n (4*M) a b] upscale_factor=2",
    "pixel_unshuffle": "input=[n m (2*A) (2*B)] downscale_factor=2",
    "cosine_similarity": "x1=[n m] x2=[n m] dim=dim @floats", "pairwise_distance": "x1=[n m] x2=[n m] p=1.0|2.0|3.0 @floats",
    "pdist": "input=[(n+2) M] p=0.0|1.0|2.0|3.0|float('inf') @wide !wrong",  # of no rows, torch's gradient ends the process
    "cdist": "x1=[... n k] x2=[... m k] p=0.0|1.0|2.0|3.0|float('inf') @wide compute_mode=-",
    **LINEAR_ALGEBRA, **SPATIAL, **NETWORK,
}


def _vectors(draw: Any) -> Any:
    dtype = draw.dtype("any")
    return [draw.array((draw.size(),), dtype) for _ in range(draw.whole(1, 3))], {}


def _chain(draw: Any, as_list: bool = False) -> Any:
    sizes = [draw.whole(1, 4) for _ in range(draw.whole(3, 5))]
    dtype = draw.dtype("wide")
    made = [draw.array(pair, dtype) for pair in zip(sizes, sizes[1:])]
    return ([made] if as_list else made), {}


EQUATIONS = {"ij,jk->ik": "n k; k m", "ij->": "n m", "ij->ji": "n m", "ii->i": "n n", "bij,bjk->bik": "b n k; b k m", "i,j->ij": "n; m", "ijk,ik->j": "n m k; n k",
             "...ij,...jk->...ik": "2 n k; k m", "ij,ij->i": "n m; n m", "abc,cd,d->ab": "n m k; k p; p", "i,i": "n; n",
             "ij,kj": "n m; p m"}


def _einsum(draw: Any) -> Any:
    from sluice.testing.autotest.language import Sizes

    equation = draw.pick(list(EQUATIONS))
    sizes, dtype = Sizes(draw), draw.dtype("floats")
    return [equation, *(draw.array(sizes.shape(s), dtype) for s in EQUATIONS[equation].split(";"))], {}


def _joined(draw: Any, name: str) -> Any:
    shape, dtype = list(draw.shape((1, 2, 2, 3))), draw.dtype("any")
    dim = draw.whole(-len(shape), len(shape) - 1)
    made = []
    for _ in range(draw.whole(1, 4)):
        own = list(shape)
        if name.startswith("c") and name != "column_stack":
            own[dim] = draw.size()
        made.append(draw.array(own, draw.dtype("any") if draw.chance(0.1) else dtype))
    if draw.chance(0.1):
        made.append(draw.array(draw.shape(), dtype))
    takes_dim = name in ("cat", "concat", "concatenate", "stack")
    return [made], {"dim": dim} if takes_dim and draw.chance(0.8) else {}
