"""The reference of Python: what `import sluice` has, from its docstrings, and the ops that plans consist of."""

import importlib
import inspect
import re

# Modules whose public names are listed, each on a page: title, and what it is.
MODULES = {
    "sluice": ("sluice: tensors, devices, graphs", "Functions of `sluice` itself that are not operations on elements."),
    "sluice.Tensor": ("sluice.Tensor", "Methods of tensors beside the operations, which stand with their families."),
    "sluice.nn": ("sluice.nn: modules", "Layers, losses and containers, as in `torch.nn`."),
    "sluice.nn.Graph": ("sluice.nn.Graph", "A step that is compiled into a plan. [Graphs and plans](../../graphs-and-plans.md) teaches it."),
    "sluice.nn.functional": ("sluice.nn.functional", ""),
    "sluice.nn.init": ("sluice.nn.init", ""),
    "sluice.nn.utils": ("sluice.nn.utils", ""),
    "sluice.optim": ("sluice.optim", "[Optimizers](../../optimizers.md) in plans."),
    "sluice.optim.lr_scheduler": ("sluice.optim.lr_scheduler", ""),
    "sluice.autograd": ("sluice.autograd", ""),
    "sluice.func": ("sluice.func", ""),
    "sluice.amp": ("sluice.amp", ""),
    "sluice.utils.data": ("sluice.utils.data", "[Data](../../data.md) teaches it."),
    "sluice.distributions": ("sluice.distributions", ""),
    "sluice.distributed": ("sluice.distributed", "[Several processes](../../distributed.md) teaches it."),
    "sluice.library": ("sluice.library", "[Ops of your own](../../custom-ops.md) teaches it."),
    "sluice.io": ("sluice.io", ""),
    "sluice.memory": ("sluice.memory", ""),
    "sluice.profiler": ("sluice.profiler", ""),
    "sluice.info": ("sluice.info", ""),
    "sluice.compiler": ("sluice.compiler", "[Compiling functions and modules](../../compile.md) teaches it."),
    "sluice.serving": ("sluice.serving", "[Serving](../../serving.md) teaches it."),
    "sluice.client": ("sluice.client", "A client of the Open Inference Protocol; [serving](../../serving.md) has an example."),
}
# Families of operations: the files of graph/ops that belong to one, and names that these do not tell.
FAMILIES = {
    "elementwise": ("arithmetic unary binary activation comparison numeric fused elementwise",
                    r"bitwise_\w+|logical_\w+|eq|ge|gt|le|lt|ne|gcd|lcm|deg2rad|rad2deg|erfinv|i0|igammac?|exp|greater|entr|erfcx|xlog1py|"
                    r"(log_)?ndtri?|zeta|arc(sin|tan)h?|equal|allclose|mvlgamma|__i\w+|(scaled_)?modified_bessel\w+|(spherical_)?bessel\w+|i0e|i1e?"),
    "complex": ("complex", r"conj\w*|imag|real|is_complex|resolve_\w+|cdouble|cfloat"),
    "reduction": ("reduction statistics", r"mean|std|var|\w+_mean|max|min|median|nan\w+|quantile|all|any|a?max|a?min|arg(max|min)|sum|cumsum|"
                  r"running_\w+|bincount|(cumulative_)?trapezoid"),
    "softmax": ("softmax", r"\w*softmax\w*"),
    "products": ("matmul fused_matmul matrix product einsum distance", r"bmm|mm|mv|einsum|inner|outer|ger|vdot|kron"),
    "convolution and pooling": ("convolution spatial pooling taps fractional_pooling fused_convolution quantization resampling "
                                "images",
                                r"conv\w*|\w+_pool\w*|grid_sample|weighted_taps"),
    "shape": ("shaping stacking diagonal movement view window strided_view",
              r"as_strided|atleast_\dd|[dhv]split|view\w*|numel|nelement|combinations|expand|flip|permute|reshape|concat|pad|strided_view"),
    "indexing and order": ("indexing order embedding", r"argwhere|nonzero\w*|masked_select|unique\w*|index_put|repeat_interleave"),
    "dtypes and copies": ("", r"bfloat16|bool|byte|char|double|float|half|int|long|short|is_floating_point|clone|contiguous|detach"),
    "layers and losses": ("network losses loss batch_norm normalization attention recurrent ctc", r"\w*lstm\w*"),
    "random": ("random", r"uniform|normal|bernoulli|randint|dropout"),
    "linear algebra": ("linalg linalg_norms linalg_decompositions linalg_functions", r""),
}
PLACES = {"nn.functional": "sluice.nn.functional", "linalg": "linalg", "fft": "fft", "special": "special"}


def escape(text):
    """Text of a docstring as Markdown: what is in backticks, and indented blocks, stay as they are."""
    out = []
    for line in text.splitlines():
        if line.startswith("    "):
            out.append(line)
            continue
        parts = re.split(r"(``[^`]+``|`[^`]+`)", line)
        out.append("".join(p if i % 2 else re.sub(r"([*_<>\[\]|#$\\])", r"\\\1", p) for i, p in enumerate(parts)))
    text = "\n".join(out)
    return re.sub(r"(?m)^(\d+)\. ", r"\1\\. ", re.sub(r"(?m)^([-+=]{2,})$", r"\\\1", text))


def entry(kind, signatures, text, options=""):
    """One definition, as Sphinx's directives for Python write it."""
    first, *more = signatures
    extra = "".join(f"\n{' ' * (len(kind) + 8)}{s}" for s in more)
    return f"``````{{py:{kind}}} {first}{extra}\n{options}\n{text.strip()}\n``````\n"


def signature_of(function):
    try:
        text = str(inspect.signature(function))
    except (TypeError, ValueError):
        return "(...)"
    text = re.sub(r"([:>]) '([^']*)'", r"\1 \2", text).replace("sluice._C.", "")
    text = re.sub(r"<module '([\w.]+)' from '[^']*'>", r"\1", text)
    text = re.sub(r"<([\w.]+) object at 0x[0-9a-f]+>|<(?:function|built-in function|class) '?([\w.]+).*?>", lambda m: m[1] or m[2], text)
    return re.sub(r" -> None$", "", text.replace("(self, ", "(").replace("(self)", "()"))


def is_form(value):
    return hasattr(type(value), "signatures")


def members(name):
    """The public functions and classes of a module or class: (name, object)."""
    *path, last = name.split(".")
    owner = getattr(importlib.import_module(".".join(path)), last, None) if path else None
    if owner is None or inspect.ismodule(owner):
        owner = importlib.import_module(name)
    names = getattr(owner, "__all__", None) or [n for n in dir(owner) if not n.startswith("_")]
    found = []
    for n in sorted(names, key=str.lower):
        value = getattr(owner, n, None)
        home = getattr(value, "__module__", None) or ""
        here = inspect.isclass(owner) or (home.startswith("sluice") if name == "sluice" else home.startswith(name))
        if callable(value) and not inspect.ismodule(value) and not is_form(value) and here:
            found.append((n, value))
    return found


def documented(value):
    return escape(inspect.cleandoc(value.__doc__)) if isinstance(getattr(value, "__doc__", None), str) else ""


def class_entry(name, value):
    methods = []
    for n, f in sorted(vars(value).items()):
        if not n.startswith("_") and inspect.isfunction(f) and f.__doc__:
            methods.append(entry("method", [n + signature_of(f)], documented(f)))
    body = documented(value) + "\n\n" + "\n".join(methods).replace("``````", "`````")
    return entry("class", [name + signature_of(value)], body)


def module_page(name, forms):
    title, what = MODULES[name]
    out = [f"# {title}\n", what, "", f"```{{py:currentmodule}} {name}\n```\n"]
    known = set()
    for n, value in members(name):
        if id(value) in known or n in ("Any",):
            continue
        known.add(id(value))
        if inspect.isclass(value):
            if f"{name}.{n}" not in MODULES:  # else on a page of its own
                out.append(class_entry(n, value))
        else:
            out.append(entry("function", [n + signature_of(value)], documented(value)))
    return "\n".join(out + [f.replace(f" {name.removeprefix('sluice.')}.", " ", 1) for f in forms]) + "\n"


def families(root):
    """The file of graph/ops that defines each name."""
    result = {}
    for path in sorted((root / "graph/ops").rglob("*.cpp"), key=lambda p: (not p.stem.endswith("_forms"), p.name)):
        named = r'"(?:[a-z_.]+\.)?(\w+)\([A-Z]\w+|DEFINE(?:_\w+)?\((\w+),|\.name = "(\w+)"|add\w*\("(\w+)"|\{"(\w+)"'
        for match in re.finditer(named, path.read_text()):
            result.setdefault(next(filter(None, match.groups())), path.stem.removesuffix("_forms"))
    return result


def family(name, files):
    for title, (stems, names) in FAMILIES.items():
        if names and re.fullmatch(names, name):
            return title
    for title, (stems, _) in FAMILIES.items():
        if files.get(name) in stems.split():
            return title
    return "other"


def form_entries(root):
    """The entries of functions that are data, by page: each once, with the methods and operators that are the same."""
    from sluice import info

    grouped = {}
    for name, signatures, doc in info.functions():
        grouped.setdefault((signatures, doc), []).append(name)
    where, pages = families(root), {}
    for (signatures, doc), names in sorted(grouped.items(), key=lambda item: item[0][0]):
        functions = [n for n in names if not n.startswith("sluice.Tensor.")]
        bare = signatures[0].partition("(")[0].rpartition(".")[2]
        main = min(functions or names, key=lambda n: (n.rpartition(".")[2] != bare, n))
        module = main.removeprefix("sluice.").rpartition(".")[0]
        page = PLACES.get(module) or family(main.rpartition(".")[2] if main != bare else bare, where)
        text = doc.split("\n\n", 1)[1] if "\n\n" in doc else doc
        also = [n for n in names if n != main]
        also = ", ".join(f"`{n.removeprefix('sluice.').replace('Tensor.', 'x.')}`" for n in sorted(also))
        shown = [main.removeprefix("sluice.") + s[s.index("("):] for s in signatures]
        pages.setdefault(page, []).append(entry("function", shown, escape(text) + (f"\n\nAlso: {also}." if also else "")))
    return pages


def ops_page(root):
    import sluice as sl

    where, groups = families(root), {}
    for name in sorted(n for n in dir(sl._C.ops) if not n.startswith("_")):
        doc = getattr(sl._C.ops, name).__doc__
        if not isinstance(doc, str) or "(" not in doc:
            continue
        head, _, text = doc.partition("\n\n")
        groups.setdefault(family(name, where), []).append(entry("function", [head.strip()], escape(text)))
    out = ["# Ops of plans\n",
           "The primitive operations that graphs and plans consist of. A kernel of a plan names one of them as its `op` "
           "([the plan format](../plan-format.md#kernels)). Programs call the functions of [the Python reference](python/index.md), which "
           "are made of these.\n",
           "```{py:currentmodule} sluice.ops\n```\n"]
    for title in sorted(groups):
        out += [f"## {title.capitalize()}\n", *groups[title]]
    return "\n".join(out)


def pages(root):
    forms = form_entries(root)
    result = {}
    for name in MODULES:
        result[f"reference/python/{name.replace('.', '_')}.md"] = module_page(name, forms.pop(name, []))
    for group, entries in forms.items():
        title = {"linalg": "sluice.linalg", "fft": "sluice.fft", "special": "sluice.special"}.get(group, f"Operations: {group}")
        page = "\n".join([f"# {title}\n", "```{py:currentmodule} sluice\n```\n", *entries])
        result[f"reference/python/ops_{group.replace(' ', '_')}.md"] = page
    listed = "\n".join(name.replace(".", "_") for name in MODULES)
    result["reference/python/index.md"] = f"""# Python

This reference is made from the docstrings. Signatures of operations are in torch's notation: `int[1]? dim=None` is an optional list
of whole numbers, and everything after `*` is given by name. Where a text ends with a name of torch, the function has the semantics
of that one. `x` stands for a tensor.

`python -m sluice.info --functions` prints the operations, and `help(sluice.add)` one of them.

```{{toctree}}
:caption: Modules
:maxdepth: 1

{listed}
```

```{{toctree}}
:caption: Operations
:maxdepth: 1
:glob:

ops_*
```
"""
    result["reference/ops.md"] = ops_page(root)
    return result
