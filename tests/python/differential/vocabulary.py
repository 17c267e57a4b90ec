"""The vocabulary that statements are drawn from: templates by feature, and the features that are off.

Fields of a template, drawn anew for each statement. The first of x, i, v is the statement's operand:
    {x} a floating tensor     {i} an integer tensor     {v} any tensor      {m2} {m3} {m4} a floating one of that rank
    {y} a floating tensor that broadcasts with the operand              {z} of its shape and dtype
    {b} a bool tensor that broadcasts with it          {j} an integer one that does
    {d} {d2} an axis, maybe negative; {d2} another one   {D} where an axis can be added      {ds} some axes
    {s} a number      {p} a positive one      {n} a small int      {k} an int in 1 to 4
    {shape} the operand's shape   {newshape} another of as many elements   {perm} a permutation of its axes
    {slice} a basic index   {at} an index tensor for axis {d0}, which is >= 0   {size} the extent of {d0}
    {f} a dtype
"""

from __future__ import annotations

UNARY = """tanh sin cos sigmoid erf neg abs square relu floor ceil round trunc sign expm1 frac sinh cosh exp exp2 isnan isinf
isfinite logical_not""".split()
ACTIVATIONS = """relu relu6 silu mish leaky_relu elu hardtanh hardsigmoid hardswish gelu softplus logsigmoid softsign sigmoid
tanh""".split()
COMPARISONS = "eq ne lt le gt ge".split()

STATEMENTS = {
    "arithmetic": [
        *(f"{{x}}.{name}()" for name in UNARY), *(f"torch.{name}({{x}})" for name in UNARY),
        *(f"{{x}} {op} {{y}}" for op in "+-*+-*"), *(f"{{x}} {op} {{s}}" for op in "+-*"),
        *(f"{{s}} {op} {{x}}" for op in "+-*"), "{x} / ({y}.abs() + 0.5)", "{x} / {p}", "{s} / ({x}.abs() + 0.5)",
        "({x}.abs() + 0.25).sqrt()", "({x}.abs() + 0.25).log()", "{x}.abs().log1p()", "({x}.abs() + 0.5).rsqrt()",
        "({x}.abs() + 0.5).reciprocal()", "({x}.abs() + 0.5).log2()", "({x}.abs() + 0.5).log10()", "{x} ** 2", "{x} ** 3",
        "{x}.pow({k})", "({x}.abs() + 0.5) ** {y}", "({x}.abs() + 0.5) ** {s}", "{p} ** {x}", "({x}.abs() + 0.5).pow(-1)",
        "torch.add({x}, {y}, alpha={s})", "{x}.sub({y}, alpha={s})", "torch.maximum({x}, {y})", "{x}.minimum({y})",
        "torch.atan2({x}, {y}.abs() + 0.5)", "torch.remainder({x}, {p})", "{x}.fmod({p})", "{x} % ({y}.abs() + 0.5)",
        "{x} // {p}", "torch.floor_divide({x}, {y}.abs() + 0.5)", "{x}.div({p}, rounding_mode='trunc')",
        "{x}.div({y}.abs() + 0.5, rounding_mode='floor')", "torch.lerp({x}, {z}, 0.25)", "{x}.lerp({z}, {z})",
        "torch.addcmul({x}, {y}, {y}, value=0.5)", "torch.addcdiv({x}, {y}, {y}.abs() + 0.5)", "{x}.clamp(-0.5, 0.5)",
        "{x}.clamp(min=0)", "{x}.clamp(max={s})", "torch.clamp({x}, {y} - 0.5, {y} + 0.5)", "{x}.clip(-1, 1)",
        "-{x}", "abs({x})", "+{x}", "{x}.mul({x})", "{x} - {x}", "torch.pow({x}, 2.0)", "{x}.pow(1)", "{x}.pow(0)", "{x}.tan()",
        "torch.erfinv({x}.tanh() * 0.9).detach()", "torch.where({b}, {x}, {y})", "torch.where({b}, {x}, {s})",
        "{x}.masked_fill({b}, {s})",
    ],
    "integers": [
        "{i} + {n}", "{i} * {j}", "{i} - {j}", "{i} // {k}", "{i} % {k}", "-{i}", "{i}.abs()", "{i}.square()", "{i} & {j}",
        "{i} | {j}", "{i} ^ {n}", "~{i}", "{i}.sum()", "{i}.sum({d})", "{i}.prod()", "{i}.cumsum({d})", "{i}.amax({d})",
        "{i}.max({d})[0]", "{i}.min()", "{i} / {k}", "{i} + {s}", "{i} == {j}", "{i} < {n}", "{i}.clamp(-1, 1)", "{i}.to(torch.{f})",
        "{x} * {j}", "{x} + {b}", "{i}.sign()", "{i}.float().mean()", "{i}.bool()", "{x} < {y}", "{x} >= {s}", "{x}.ne({y})",
        "{b} & {b}", "{b} | ~{b}", "{b}.sum()", "{b}.any()", "{b}.all({db})", "{b}.float()", "{x}.long()", "{x}.int()", "{x} > 0",
        "torch.logical_xor({b}, {b})", "{x}.argmax({d})", "{x}.argmin()", "torch.argmax({x}, {d}, keepdim=True)", "{i}.pow(2)",
        "torch.full_like({i}, 3)", "torch.arange({k})", "torch.isclose({x}, {y})", "{b} ^ {b}", "{i} >= {x}", "{i}.float()",
        "torch.tensor({n})", "{i}.fmod({k})", "torch.remainder({i}, {k})", "{i}.div({k}, rounding_mode='floor')",
        "{i}.div({k}, rounding_mode='trunc')", "{i}.min({d})[1]", "{i}.mean(dtype=torch.float64)",
    ],
    "reductions": [
        *(f"{{x}}.{name}()" for name in "sum mean amax amin max min prod std var logsumexp_ norm".split() if name != "logsumexp_"),
        *(f"{{x}}.{name}({{d}})" for name in "sum mean amax amin prod var std logsumexp cumsum softmax log_softmax".split()),
        *(f"{{x}}.{name}({{d}}, keepdim=True)" for name in "sum mean amax amin var logsumexp".split()),
        "{x}.sum({ds})", "{x}.mean({ds}, keepdim=True)", "{x}.amax({ds})", "{x}.var({ds})", "{x}.norm(2, {d})", "{x}.norm(1)",
        "{x}.norm(float('inf'), {d}, keepdim=True)", "{x}.norm(2)", "{x}.std(unbiased=False)", "{x}.var({d}, correction=0)",
        "{x}.max({d})[0]", "{x}.min({d}, keepdim=True)[0]", "{x}.max({d}).indices", "torch.logsumexp({x}, {ds})",
        "torch.softmax({x}, {d})", "torch.mean({x}, {d}, keepdim=True)", "{x}.prod({d}, keepdim=True)", "{x}.norm(3, {d})",
        "{x}.sum(dtype=torch.float64)", "torch.nn.functional.normalize({x}, dim={d})", "torch.cumsum({x}, {d})",
        "torch.nn.functional.cosine_similarity({x}, {z}, dim={d})", "torch.max({x}, {y})", "torch.std({x}, {d}, keepdim=True)",
    ],
    "views": [
        "{v}.reshape({newshape})", "{v}.view({newshape})", "{v}.permute({perm})", "{v}.transpose({d}, {d2})", "{m2}.t()", "{m2}.T",
        "{v}.unsqueeze({D})", "{v}.squeeze()", "{v}.squeeze({d})", "{v}.flatten()", "{v}.flatten({d0})", "{v}.narrow({d0}, {narrow})",
        "{v}.select({d}, 0)", "{v}.unbind({d})[0]", "{v}.split({k}, {d})[-1]", "{v}.chunk(2, {d})[0]", "{v}[{slice}]", "{v}[{slice}]",
        "{v}[{slice}]", "{v}[None]", "{v}[..., None]", "{v}.movedim({d}, {d2})", "{v}.detach()", "{v}.expand({expanded})",
        "{v}.view(-1)", "{v}.reshape(-1)", "{v}.contiguous()", "{v}.swapaxes({d}, {d2})", "{v}.view_as({v})", "{v}.unsqueeze(0)",
        "torch.transpose({v}, {d}, {d2})", "torch.squeeze({v}, {d})", "{v}.unflatten({d0}, (1, {size}))", "{m3}.mT", "{m2}.mT",
        "{v}.to({v}.dtype)", "{v}.expand_as({v})", "torch.broadcast_to({v}, {expanded})", "{v}.reshape_as({v})", "{v}.data",

    ],
    "movement": [
        "{v}.clone()", "{v}.flip({ds})", "{v}.roll({n}, {d})", "{v}.roll({size}, {d0})", "torch.roll({v}, {n})", "{v}.repeat({reps})",
        "torch.tile({v}, {reps})", "torch.cat([{v}, {v}], {d})", "torch.cat([{x}, {z}], {d})", "torch.stack([{x}, {z}], {D})",
        "torch.nn.functional.pad({x}, (1, {k}))", "torch.nn.functional.pad({x}, (-1, 1), value={s})", "{m2}.tril({n})", "{m2}.triu()",
        "torch.zeros_like({x})", "torch.ones_like({x})", "torch.full_like({x}, {s})", "{x}.new_zeros({shape})", "torch.cat([{v}], {d})",
        "torch.broadcast_tensors({x}, {y})[1]", "torch.stack([{x}, {x}])", "{x}.to(torch.float32)", "{x}.double()", "{x}.to(torch.{f})",
        "{v}.type_as({x})", "torch.vstack([{x}, {z}])", "torch.hstack([{x}, {z}])", "torch.eye({k}, dtype=torch.{dtype})",
        "torch.linspace(-1, 1, {k}, dtype=torch.{dtype})", "torch.meshgrid({x}.flatten(), {y}.flatten(), indexing='ij')[0]",
        "torch.zeros({shape}, dtype=torch.{dtype})", "torch.tensor({s}, dtype=torch.{dtype})",
    ],
    "indexing": [
        "{x}.index_select({d0}, {at})", "{x}[{at0}]", "{x}[:, {at1}]", "{x}[{at0}, ..., 0]", "{x}.gather({d0}, {gather})",
        "torch.take_along_dim({x}, {gather}, {d0})", "{x}.scatter({d0}, {gather_once}, {s})", "{x}.scatter_add({d0}, {gather}, {x})",
        "{x}.index_add({d0}, {at_all}, {x})", "torch.nn.functional.one_hot({at_all}, {size})", "{x}[{at0}, {at1_same}]",
        "torch.nn.functional.embedding({at0}, {m2})", "{x}.scatter({d0}, {gather_once}, {z})", "{x}[[0]]", "{x}[-1]", "{x}[{at0}][..., None]",
        "{x}[None, {at0}]", "{x}[{at0}.unsqueeze(0)]", "{x}.index_select({d0}, {at}).t()", "{x}[..., {at_last}]",
    ],
    "products": [
        "{m2} @ {right}", "torch.matmul({m2}, {right})", "{m2}.mm({right})", "{m2} @ {m2}.t()", "{m3} @ {m3}.transpose(1, 2)",
        "torch.bmm({m3}, {m3}.transpose(1, 2))", "{m2}.mv({m2}[0])", "{x}.flatten().dot({z}.flatten())", "{m2}.t() @ {m2}",
        "torch.outer({x}.flatten(), {y}.flatten())", "torch.nn.functional.linear({x}, {weight})", "{m3} @ {m3}.mT", "{x} @ {x}.flatten()",
        "torch.addmm({m2}[0, 0], {m2}, {m2}.t())", "torch.addmm({m2}[0], {m2} @ {m2}.t(), {m2}, beta=0.5, alpha=2)",
        "torch.nn.functional.scaled_dot_product_attention({m3}, {m3}, {m3})", "torch.nn.functional.linear({x}, {weight}, {weight}[:, 0])",

    ],
    "networks": [
        *(f"torch.nn.functional.{name}({{x}})" for name in ACTIVATIONS), "torch.nn.functional.leaky_relu({x}, 0.2)",
        "torch.nn.functional.layer_norm({x}, {last})", "torch.nn.functional.gelu({x}, approximate='tanh')",
        "torch.nn.functional.softmax({x}, dim={d})", "torch.nn.functional.glu(torch.cat([{x}, {x}], -1))",
        "torch.nn.functional.hardtanh({x}, -0.5, 0.5)", "torch.nn.functional.dropout({x}, 0.5, training=False)",
        "torch.nn.functional.max_pool1d({m3}, 2)", "torch.nn.functional.avg_pool1d({m3}, 2, stride=1)",
        "torch.nn.functional.adaptive_avg_pool1d({m3}, 1)", "torch.nn.functional.max_pool2d({m4}, 2, stride=1)",
        "torch.nn.functional.avg_pool2d({m4}, 2, padding=1)", "torch.nn.functional.group_norm({m3}, 1)",
        "torch.nn.functional.rms_norm({x}, {last})", "torch.nn.functional.softplus({x}, beta=2)",
    ],
    "losses": [
        *(f"torch.nn.functional.{loss}({{x}}, {{z}})" for loss in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")),
        "torch.nn.functional.mse_loss({x}, {z}, reduction='none')", "torch.nn.functional.cross_entropy({m2}, {classes})",
        "torch.nn.functional.cross_entropy({m2}, {classes}, label_smoothing=0.1, reduction='none')",
        "torch.nn.functional.nll_loss({m2}.log_softmax(1), {classes})", "torch.nn.functional.cross_entropy({m2}, {m2}.softmax(1))",
        "torch.nn.functional.binary_cross_entropy_with_logits({x}, {z}.sigmoid())",
        "torch.nn.functional.binary_cross_entropy({x}.sigmoid(), {z}.sigmoid(), reduction='sum')",
        "torch.nn.functional.kl_div({x}.log_softmax(-1), {z}.softmax(-1), reduction='batchmean')",
        "torch.nn.functional.cross_entropy({m2}, {classes}, ignore_index=0)",
    ],
    "modules": [  # (constructor, call)
        ("torch.nn.Linear({last_extent}, {k}, dtype=torch.{dtype})", "{module}({x})"),
        ("torch.nn.Linear({last_extent}, {k}, bias=False, dtype=torch.{dtype})", "{module}({x})"),
        ("torch.nn.LayerNorm({last_extent}, dtype=torch.{dtype})", "{module}({x})"),
        ("torch.nn.Embedding(5, {k}, dtype=torch.{dtype})", "{module}({small_index})"),
        ("torch.nn.Embedding(5, {k}, padding_idx=1, dtype=torch.{dtype})", "{module}({small_index})"),
        ("torch.nn.GELU()", "{module}({x})"), ("torch.nn.ReLU()", "{module}({x})"), ("torch.nn.Softmax(-1)", "{module}({x})"),
        ("torch.nn.Conv1d({channels}, 2, 2, padding=1, dtype=torch.{dtype})", "{module}({m3})"),
        ("torch.nn.Conv2d({channels}, 2, 3, padding=1, dtype=torch.{dtype})", "{module}({m4})"),
        ("torch.nn.Conv2d({channels}, {channels}, 2, groups={channels}, bias=False, dtype=torch.{dtype})", "{module}({m4})"),
        ("torch.nn.ConvTranspose2d({channels}, 2, 2, dtype=torch.{dtype})", "{module}({m4})"),
        ("torch.nn.GroupNorm(1, {channels}, dtype=torch.{dtype})", "{module}({m3})"), ("torch.nn.Flatten()", "{module}({x})"),
        ("torch.nn.Sequential(torch.nn.Linear({last_extent}, 3, dtype=torch.{dtype}), torch.nn.Tanh())", "{module}({x})"),
        ("torch.nn.AvgPool2d(2)", "{module}({m4})"),
    ],
    "batch_norm": [
        ("torch.nn.BatchNorm1d({channels}, dtype=torch.{dtype})", "{module}({m2})"),
        ("torch.nn.BatchNorm1d({channels}, momentum=0.3, affine=False, dtype=torch.{dtype})", "{module}({m3})"),
        ("torch.nn.BatchNorm2d({channels}, dtype=torch.{dtype})", "{module}({m4})"),
        ("torch.nn.BatchNorm1d({channels}, track_running_stats=False, dtype=torch.{dtype})", "{module}({m2})"),
    ],
    "writes": [
        *(f"{{x}}.{name}_()" for name in "tanh sin cos sigmoid neg abs square relu floor round trunc sign zero".split()),
        "{x}.add_({y})", "{x}.sub_({y})", "{x}.mul_({y})", "{x}.add_({y}, alpha={s})", "{x}.mul_({s})", "{x}.div_({p})", "{x}.add_({s})",
        "{x}.copy_({y})", "{x}.fill_({s})", "{x}.clamp_(-0.5, 0.5)", "{x}.clamp_(min=0)", "{x}.lerp_({z}, 0.25)", "{x}.masked_fill_({b}, {s})",
        "{x}.addcmul_({y}, {y}, value=0.5)", "{x}.pow_(2)", "{x} += {y}", "{x} -= {s}", "{x} *= {y}", "{x} /= {p}", "{x}[{slice}] = {s}",
        "{x}[{slice}] = {x}[{slice}]", "{x}[{slice}].add_({s})", "{x}[{slice}].mul_({y}[{slice}])", "{x}[{slice}] *= {s}", "{x}[0] = {x}[-1]",
        "{m2}.t().add_({s})", "{m2}.t()[0].mul_({s})", "{x}.view(-1)[1:].zero_()", "{x}.reshape(-1)[0] = {s}", "{x}.transpose({d}, {d2}).tanh_()",
        "{x}.unsqueeze({D}).add_({y})", "{x}.flatten().mul_({s})", "{x}.narrow({d0}, {narrow}).fill_({s})", "{x}.select({d}, 0).copy_({y}.sum())",
        "{x}[{b_same}] = {s}", "{x}[{at_once}] = {s}", "{x}[{at_once}] += {s}", "{x}.index_add_({d0}, {at_all}, {x}.detach())",
        "{x}.scatter_({d0}, {gather_once}, {s})", "{x}.scatter_add_({d0}, {gather}, {z})", "{i}.add_({n})", "{i}[{slice}] = {n}",
        "{x}.detach().mul_({s})", "{x}.squeeze().add_({s})", "{x}.exp_()", "{x}.permute({perm}).add_({y})", "{x}.expand_as({x}).add_({s})",
        "{x}.unbind({d})[0].add_({s})", "{x}.chunk(2, {d})[1].mul_({s})", "{i} += {j}", "{i}.zero_()", "{x}.data.mul_({s})", "{m2}.tril_()",
    ],
    "double_backward": [
        "torch.autograd.grad({x}.tanh().sum(), {leaf}, create_graph=True)[0]",
        "torch.autograd.grad(({x} * {x}).mean(), {leaf}, create_graph=True)[0]",
    ],
    "gradients": ["torch.autograd.grad({x}.sum(), {leaf}, retain_graph=True)[0]"],
    "eager_only": [
        "{x}.sort({d})[0]", "{x}.argsort({d})", "{x}.topk(1, {d})[0]", "{i}.sort({d}, descending=True)[0]", "{x}.nonzero()", "{b}.nonzero()",
        "{x}[{b_same}]", "torch.masked_select({x}, {b})", "{x}.sort({d}, descending=True)[0]", "{i}.topk(1, {d})[0]", "{i}.topk(1, {d}, largest=False)[0]",
        "torch.allclose({x}, {y})", "torch.equal({x}, {z})", "{x}.sum().item()", "{i}.tolist()", "torch.where({b})",
        "torch.sort({x}.flatten(), stable=True)[1]", "{x}.round().topk({k})[0]",
    ],
}

# How often a feature's statements are drawn.
WEIGHTS = {"arithmetic": 5, "integers": 2, "reductions": 3, "views": 4, "movement": 2, "indexing": 2, "products": 2, "networks": 1.5,
           "losses": 0.7, "modules": 2, "batch_norm": 0.8, "writes": 4, "double_backward": 0.2, "gradients": 0.2, "eager_only": 1}
