"""Names that are not generated, and differences from torch that are meant, each with its reason."""

from __future__ import annotations

import re
from typing import NamedTuple

STATE = "a switch of the process: tests/python/test_dtypes.py, test_precision.py and test_amp.py"
FILES = "files and memory of others: tests/python/test_serialization.py, test_exchange.py and test_tensor.py"
ASKED = "says what a tensor is: tests/python/test_tensor_state.py and test_attributes.py"
BASES = "a base class or a container, which computes nothing: tests/python/test_modules.py and test_module_api.py"

# (regular expression of whole names, as "Tensor.item", why no case is generated)
NOT_GENERATED: list[tuple[str, str]] = [
    (r"(get|set|is|are|use|clear)_(autocast|default|deterministic|float32|num_threads|rng|printoptions|grad_enabled|inference_mode).*|"
     r"use_deterministic_algorithms|set_num_threads|manual_seed|seed|initial_seed|get_rng_state|compiled_with.*", STATE),
    (r"save|load|from_dlpack|to_dlpack|frombuffer|from_file|from_numpy|Tensor\.(set_|share_memory_|pin_memory|data|data_ptr|cuda)",
     FILES),
    (r"Tensor\.(device|grad_fn|name|layout|output_nr|retains_grad|is_[a-z]+|grad)", ASKED),
    (r"Tensor\.(backward|register_hook|register_post_accumulate_grad_hook|requires_grad_|retain_grad)",
     "every gradient here; hooks: tests/python/test_autograd.py"),
    (r"Tensor\.(map_|map2_|apply_)", "calls Python for each element: tests/python/test_tensor.py"),
    (r"vmap|cond|scan|while_loop", "takes functions: tests/python/test_func.py, test_cond.py and test_loops.py"),
    (r"compile", "takes functions: tests/python/test_compile.py"),
    (r"(Tensor\.)?(new_)?(empty|resize_as_)(_like|_strided|_permuted)?|Tensor\.new",
     "of any contents: tests/python/test_tensor_state.py and test_layouts.py"),
    (r"(Tensor\.)?(multinomial|binomial|poisson|cauchy_|exponential_|geometric_|log_normal_|normal_)|nn\.functional\.gumbel_softmax",
     "random: tests/python/test_random_streams.py and test_distributions.py"),
    (r"nn\.functional\.fractional_max_pool.*|nn\.FractionalMaxPool.*",
     "draws its regions: tests/python/test_functional_spatial.py"),
    (r"nn\.functional\.multi_head_attention_forward", "what nn.MultiheadAttention calls, which is generated"),
    (r"nn\.(Module(List|Dict)?|Parameter(List|Dict)?|Sequential|Buffer|Uninitialized.*|RNNBase|RNNCellBase|Container|DataParallel)",
     BASES),
    (r"nn\.Lazy.*", "becomes the module of its name at the first call: tests/python/test_modules_torchs.py"),
    (r"nn\.(TransformerEncoder|TransformerDecoder)",
     "takes a module: its layers are generated, and nn.Transformer, which has both"),
    (r"linalg\.eig(vals)?", "in any order: tests/python/test_complex_linalg.py"),
    (r"(Tensor\.)?imag", "of complex numbers: tests/python/test_complex.py"),
    (r"(Tensor\.)?(eig|lstsq|matrix_rank|solve|symeig)", "raises, since torch has removed it: tests/python/test_more_names.py"),
    (r"Tensor\.resize_as", "torch's has no forward of its own, and warns: tests/python/test_more_names.py"),
    (r"get_device_module", "gives a Python module: tests/python/test_eager_devices.py"),
    (r"lobpcg|pca_lowrank|svd_lowrank",
     "starts from random vectors, and its vectors have any sign: tests/python/test_lowrank.py"),
    (r"nn\.LinearCrossEntropyOptions", "holds options: tests/python/test_projections.py"),
    (r"nn\.functional\.grouped_mm", "takes rows of multiples of 16 bytes: tests/python/test_projections.py"),
    (r"nn\.SyncBatchNorm", "needs several processes: tests/distributed"),
]


class Difference(NamedTuple):
    """What may differ: regular expressions of the op, of how it was called, of the difference and of the call, and why."""

    op: str
    how: str
    text: str
    why: str
    call: str = ""


DIFFERENCES: list[Difference] = [
    Difference(r".*", "graph|global", r"has no shape while a graph is built|give minlength|item: the tensor is part of a graph|"
               r"index out of range: \d+ at axis 0 of size",
               "how long the result is depends on values, which a plan does not wait for"),
    Difference(r".*", "eager", r"argument '\w+' \(position \d\) must be Tensor, not (int|float|bool)",
               "torch takes numbers for some tensors, as torch.mul(2, 3)"),
    Difference(r"special\..*", "eager|graph|global", "gradient \\d: torch has none",
               "torch gives no gradient of these functions"),
    Difference(r"ldexp", "eager|graph|global", "gradient", "torch's gradient takes 2 to a negative integer for 0"),
    Difference(r"addcdiv|addcmul", "eager|graph|global", "gradient",
               "torch's gradient is computed in integers where operands are integers"),
    Difference(r"as_strided_scatter", "eager|graph|global", "gradient 0",
               "torch gives the input the gradient of what was replaced in it"),
    Difference(r"cholesky_(solve|inverse)", "eager|graph|global", "gradient",
               "torch gives the half of the factor that is not read a gradient, too"),
    Difference(r"(special\.)?logsumexp", "eager", "doesn't match the broadcast shape",
               "torch refuses no dims of integers by accident"),
    Difference(r"(nn\.functional\.)?cosine_.*|nn\.Cosine.*|nn\.functional\.normalize", "eager", r"second gradient \d: differs by inf.*should be nan",
               "of a vector of zeros, where the norm has no slope, torch's is NaN"),
    Difference(r"nn\.functional\.group_norm|nn\.GroupNorm", "eager", "Expected more than 1 value per channel",
               "a group of one value is 0, as in torch.group_norm, which takes it"),
    Difference(r"tile|Tensor\.repeat|.*expand.*|.*unsqueeze.*", "eager|x", "at most 8 are supported",
               "tensors have at most 8 dims: docs/differences-from-pytorch.md"),
    Difference(r"cumsum|cumprod", "_$", "can't be cast to the desired output type bool",
               "torch looks at no dtype where there are no elements"),
    Difference(r"Tensor\.resize_", "eager", "storage that is not resizable",
               "a tensor that grows gets memory of its own, whoever the old one belongs to"),
    Difference(r"logit|special\.logit", "eager|graph|global", "gradient",
               "where the result is NaN the gradient is that of the formula"),
    Difference(r"masked_scatter|cov|.*searchsorted|bucketize", "eager", "accepted what torch refuses",
               "values are not looked at before a call, as in a plan"),
    Difference(r"nn\.functional\.(hardtanh|relu6)", "eager|x", "unsigned type",
               "limits below 0 do nothing to unsigned numbers"),
    Difference(r"(nn\.functional\.)?group_norm|nn\.GroupNorm", "eager|graph|global",
               r"gradient [12]: differs by inf.*where 0\.0 should be nan", "of nothing the gradient is 0, in torch NaN"),
    Difference(r"(nn\.functional\.)?group_norm", "eager|x|graph|global", "output 0: differs by inf.*should be nan",
               "torch takes the mean times an infinite weight from the result, which is NaN"),
    Difference(r"sum|mean|nansum|nanmean|prod|argmax|argmin|count_nonzero|logsumexp", "eager|x", "accepted what torch refuses",
               "one signature stands for torch's overloads with and without dims"),
    Difference(r"nn\.functional\.lp_pool\dd", "eager", "must be Tensor, not tuple",
               "torch takes kernels of one size only by mistake"),
    Difference(r"cumsum|cumprod|float_power|detach", "_$", "accepted what torch refuses",
               "in-place methods cast to the tensor's dtype, and views may be detached"),
    Difference(r"nn\.functional\..*", "eager", "refused as TypeError", "a reduction that is no text has the wrong type"),
    Difference(r"(special\.|nn\.functional\.)?(log_)?softm(ax|in)", "eager", "must be floating",
               "torch takes integers where there are none"),
    Difference(r"nn\.BatchNorm\dd", "graph|global", "part of a graph", "momentum=None counts batches on the host"),
    Difference(r".*", ".*", "more than one element of the written-to",
               "torch lets some writes to memory that elements share pass"),
    Difference(r".*",
               "eager|x", r"accepted what torch refuses: TypeError: .*(must be (int|bool|float), not|got \(|descriptor )",
               "functions in Python take what Python takes for a number or a truth"),
    Difference(r"(std|var)(_mean)?", "eager|graph|global", "gradient",
               "of an empty list of dims torch's gradient counts one element", call=r", (dim=)?\(\)"),
    Difference(r"(std|var)(_mean)?", "eager", "second gradient 0: torch has none",
               "of one number the spread is NaN, and so are its gradients", call=r"tensor\(\[*(-?[\d.]+|\([^()]*j\))\]*, dtype"),
    Difference(r"std(_mean)?", "eager|graph|global", r"gradient 0: differs.*(where (0\.0|0j) should be|should be (0\.0|0j)$)",
               "of equal numbers the spread is 0, where it has no slope, or what rounding leaves"),
    Difference(r"(std|var)(_mean)?", "eager|graph|global", "gradient.*where [(]?[-+]?nan.* should be",
               "where no fewer elements are subtracted than there are, the gradient is NaN"),
    Difference(r"(nn\.functional\.)?pixel_unshuffle", "eager|graph|global", r"\b0\b",
               "torch leaves images without elements as they are"),
    Difference(r"polygamma|special\.polygamma", "eager|x|graph|global", "differs by inf.*where -?inf should be",
               "at negative integers the value is infinite"),
    Difference(r"lgamma|special\.gammaln", "eager", "second gradient 0: differs by inf.*where -?inf should be",
               "at negative integers the slope is infinite"),
    Difference(r"logaddexp2?", "eager", r"second gradient \d: differs by inf.*should be nan",
               "of numbers far apart, torch's is NaN"),
    Difference(r"bmm|cdist", "eager|x|out|graph|global", r"output 0: got \w+(\([\d, ]*\)); torch has \w+\1$",
               "torch looks at dtypes only where there are elements; here they are promoted in either case", call=r"empty\("),
    Difference(r"index_reduce|scatter_reduce", "eager", r"second gradient \d: differs by \d[.\d]*e\+",
               "of products with a factor near 0, the terms that cancel are large"),
    Difference(r"Tensor\.resize_", "eager", "output 0: differs", "what a tensor grows by may hold anything"),
    Difference(r"cummin|cummax", "eager|x", "axis out of range", "torch looks at no dim where there are no elements"),
    Difference(r"(float_)?pow", "eager", r"second gradient \d: differs by inf.*should be nan",
               "of 0 to a power, torch's is 0 times the infinite logarithm"),
    Difference(r"nn\.functional\.local_response_norm", "eager", "must be (int|float), not (str|NoneType|tuple)",
               "torch looks at no number where there are no elements"),
    Difference(r"range", "eager", "argument 'end' .* must be Number, not NoneType", "range(5) starts at 0, as arange(5) does"),
    Difference(r"diff", r"out=", "start out of range", "torch's out= cuts what has no elements"),
    Difference(r"ravel", "eager", "is a view", "ravel() is a view where it can be"),
    Difference(r"unique_consecutive", "eager", "gave|output 1",
               "torch forgets return_inverse by position when return_counts is there, too"),
    Difference(r"nn\.functional\.(upsample|interpolate).*", "eager", "same number of spatial dimensions",
               "a tuple of one stands for all dims"),
    Difference(r"as_strided(_copy)?", "eager|graph|global", "the input is not contiguous",
               "the gradient of a view that is not dense is refused"),
    Difference(r"(nn\.functional\.)?conv_transpose\dd", "eager", "Output size is too small",
               "torch refuses some images without elements, and gives others"),
    Difference(r"addbmm|baddbmm", "eager", "must be a 3D tensor", "torch says it of sizes first"),
    Difference(r".*", "global", "output \\d+: differs by inf.*where (-?inf|nan) should be", "sums of parts overflow where the sum of all does not"),
    Difference(r"cartesian_prod", "eager", "memory of its own", "of one tensor, torch gives a view"),
    Difference(r"fft\..*", "eager", "Dimension specified as -?\\d but tensor has no dimensions",
               "of numbers without dims, what the length would be is said first"),
    Difference(r"fft\..*|stft", "eager", "MKL FFT error", "torch's library fails on some tensors without elements"),
    Difference(r"fft\.ihfft[2n]", r"out=", "output 0", "torch leaves some of out= unwritten"),
    Difference(r"view_as_complex(_copy)?", "eager", "must have a last dimension with stride 1",
               "parts that lie apart are brought together in a copy"),
    Difference(r"(conj|adjoint|Tensor\.(m?H|adjoint))", "eager", "memory of its own", "conj() computes its result"),
    Difference(r".*", "eager|x", r"reduction is -?\d+; must be", "torch takes any number for a reduction"),
    Difference(r"histogramdd", "eager", "accepted what torch refuses: TypeError: expected Tensor as element",
               "one signature stands for torch's overloads"),
    Difference(r"special\..*polynomial.*", "graph|global", "n is a tensor that the graph computes",
               "n says how many steps there are, which a plan has to know"),
    Difference(r"special\.airy_ai", "eager|x|out|graph|global", "output 0: differs by \\d\\.?\\d*e-0[678]",
               "torch is off by some 3e-6 below x = -2.09, as sums of its series in rational numbers show"),
    Difference(r"special\..*polynomial.*", "eager", "refused as NotImplementedError", "the dtype is looked at first"),
    Difference(r"(nn\.functional\.)?conv_tbc", "eager", "kernel is (empty|larger than)",
               "kernels and results without elements are refused, as conv1d does"),
    Difference(r"(nn\.functional\.)?(feature_)?dropout\d?d?", "eager",
               "argument 'input' .* must be Tensor, not NoneType|accepted what torch refuses: AttributeError",
               "what is not changed is given back, whatever it is"),
    Difference(r"nn\.functional\..*|kl_div|histogram|randint_like", "eager", "refused as .*(complex|handles only)", "the dtype is looked at first"),
    Difference(r"cumprod", "eager|graph|global", r"gradient 0: differs.*got [\[(]*-?[\d.]+[+-]0j",
               "of complex numbers summed up as real ones the parts have no gradient; torch's is of complex products"),
    Difference(r"nn\.functional\.\w+_loss|bucketize|.*searchsorted", "eager", "[cC]omplex",
               "complex numbers have no order; which of a loss's operands may be complex is not looked at"),
    Difference(r"(linalg\.)?cholesky(_ex)?", "eager|graph|global", r"gradient 0: differs.*\dj",
               "torch gives Hermitian matrices a gradient that is not, where that of the diagonal, which is real, is complex"),
    Difference(r"index_add", "eager|graph|global", r"gradient 1: differs.*\dj",
               "torch's gradient has a complex alpha, where the rule asks for its conjugate"),
    Difference(r"cdist|nn\.functional\.(pdist|pairwise_distance)|pdist", "eager|graph|global", r"nan|inf",
               "where coordinates are infinite: torch's sums by products, and its largest differences, take NaN otherwise"),
    Difference(r"histc", "eager", "accepted what torch refuses: RuntimeError: .*is not finite",
               "values are not looked at before a call, as in a plan"),
    Difference(r"nn\.CrossMapLRN2d", "eager|graph|global", "gradient",
               "torch's gradient does not know that the first channel stays in the sums"),
    Difference(r"histogram", "out", "'out'", "there is no out="),
    Difference(r"randn_like", "eager", "output 0: differs",
               "torch draws 16 numbers and more otherwise where memory is not contiguous"),
    Difference(r"Tensor.to", "eager", "refused at forward: TypeError", "torch takes what is no dtype"),
    Difference(r".*", "eager", "refused as AttributeError", "functions in Python find wrong types where they are used"),
]


def not_generated(name: str) -> str | None:
    return next((why for pattern, why in NOT_GENERATED if re.fullmatch(pattern, name)), None)


def known(op: str, how: str, text: str, call: str = "") -> Difference | None:
    """The entry that allows this difference. call: the case in Python."""
    return next((d for d in DIFFERENCES if re.fullmatch(d.op, op) and re.search(d.how, how) and re.search(d.text, text) and
                 re.search(d.call, call)), None)
