"""Draws programs: statement by statement, each tried on torch at once, so that what torch refuses is never part of one."""

from __future__ import annotations

import math
import random
import re

import torch
from differential import vocabulary
from differential.executor import Numbers, fill_modules, run
from differential.fields import Fields, Retry
from differential.program import source

LARGEST = 240  # elements of a tensor
ONES = 0.2  # the share of programs of one sample, whose dims of one element have strides that mean nothing
BOUND = 50.0  # of a value, so that nothing grows without end
PASSES = ["common_subexpressions", "fold_constants", "fuse_activation", "fuse_convolution", "fuse_elementwise", "fuse_pad", "fuse_bias",
          "fuse_rows", "simplify"]  # "decompose" is needed: some ops have no kernel
COPIES = re.compile(r"\w+\.(reshape|reshape_as|flatten|contiguous)\([^()]*\)$")
RANK = ["bfloat16", "float16", "float32", "float64"]


class Draft:
    """A program while it is drawn, and the values that its statements have in the first step."""

    def __init__(self, draw, switches):
        self.draw, self.switches = draw, switches
        self.program = {}
        self.tensors, self.others = {}, {}  # by name: tensors; other values, which can only be returned
        self.modules = torch.nn.Module()
        self.persistent = set()  # where the memory of parameters and buffers is
        self.count = 0
        self.scope = {"torch": torch}

    # Tensors that there are

    def pick(self, wanted):
        names = [name for name, t in self.tensors.items() if wanted(t)]
        if not names:
            raise Retry
        return self.draw.choice(names[-8:] if self.draw.random() < 0.6 else names)

    def add(self, name, tensor):
        self.tensors[name] = self.scope[name] = tensor

    def lasting(self, tensor):
        return tensor.untyped_storage().data_ptr() in self.persistent

    # Statements

    def state(self, code, scopes=()):
        """Runs a statement; whether torch took it."""
        modes = [torch.no_grad()] if any("no_grad" in s for s in scopes) else []
        try:
            for mode in modes:
                mode.__enter__()
            exec(code, self.scope)
        except Exception:  # noqa: BLE001
            return False
        finally:
            for mode in modes:
                mode.__exit__(None, None, None)
        return True

    def append(self, code, scopes):
        self.program["body"].append({"code": code, **({"scopes": list(scopes)} if scopes else {})})

    def sound(self, t):
        if t.numel() > LARGEST or t.is_complex() or t.is_sparse or t.layout != torch.strided:
            return False
        if not t.is_floating_point() or self.program["special"]:
            return t.dtype not in (torch.int16,) and (t.is_floating_point() or t.numel() == 0 or int(t.long().abs().max()) < 2**40)
        return t.numel() == 0 or float(t.detach().double().abs().max()) <= BOUND  # false for NaN as well

    def scopes(self):
        chosen = []
        if self.program["graph"] and self.placed and self.draw.random() < 0.2:
            chosen.append(self.draw.choice(['place("device", "sim:0")', 'place("device", "sim:1")', 'place("stream", "host")',
                                            'place("register_quota", 4)', 'place("stream", "compute:1")']))
        if self.draw.random() < 0.05:
            chosen.append("torch.no_grad()")
        return chosen

    def expression(self, code, scopes):
        name = f"t{self.count}"
        if not self.state(f"{name} = {code}", scopes):
            return False
        value = self.scope[name]
        if isinstance(value, torch.Tensor):
            if COPIES.match(code) and value._base is None and not self.switches.allows("layout"):
                return False
            # Some views that torch makes under no_grad() require gradients all the same.
            if not self.sound(value) or (value.requires_grad and any("no_grad" in s for s in scopes)):
                return False
            self.add(name, value)
        elif isinstance(value, (int, float, bool, list, tuple)):
            if any(isinstance(v, torch.Tensor) for v in value) if isinstance(value, (list, tuple)) else not math.isfinite(value):
                return False
            self.others[name] = value
        else:
            return False
        self.count += 1
        self.append(f"{name} = {code}", scopes)
        return True

    def write(self, code, operand, scopes):
        """An in-place statement: on a copy first, since it cannot be taken back."""
        t = self.tensors[operand]
        if re.search(r"\.(reshape|flatten)\(", code) and not t.is_contiguous() and not self.switches.allows("layout"):
            return False
        if self.lasting(t):
            if t.is_floating_point() and self.program["micro_batches"] > 1 and not self.switches.allows("written_parameter"):
                return False
            scopes = [s for s in scopes if "no_grad" not in s] + ["torch.no_grad()"]
        saved, copy = self.scope[operand], t.detach().clone()
        self.scope[operand] = copy
        fine = self.state(code, ["torch.no_grad()"]) and self.sound(copy)
        self.scope[operand] = saved
        if not fine or not self.state(code, scopes):
            return False
        if self.scope[operand] is not saved:  # `x += y` binds the name again
            self.add(operand, self.scope[operand])
        self.append(code, scopes)
        return True

    def statement(self, feature):
        template = self.draw.choice(vocabulary.STATEMENTS[feature])
        constructor = None
        if feature in ("modules", "batch_norm"):
            constructor, template = template
            self.module_name = f"m{len(self.program['modules'])}"
        fields = Fields(self, template)
        code = template.format_map(fields)
        if self.switches.excludes(code):
            return False
        if feature == "batch_norm" and self.is_constant(code):
            return False
        scopes = self.scopes()
        if feature == "writes":
            return self.write(code, fields.name, scopes)
        if constructor is not None:
            made = constructor.format_map(fields)
            if not self.state(f"{self.module_name} = {made}"):
                return False
            setattr(self.modules, self.module_name, self.scope[self.module_name])
            fill_modules(self.modules, Numbers(torch))
            if not self.expression(code, scopes):
                delattr(self.modules, self.module_name)
                return False
            self.program["modules"].append({"name": self.module_name, "code": made})
            return True
        return self.expression(code, scopes)

    def is_constant(self, code):
        """Whether a channel has, or may have in a later step, equal values alone: what rounding makes of their differences becomes a
        hundred times as large."""
        x = self.tensors[re.search(r"\((\w+)\)$", code)[1]].detach()
        if x.dim() < 2 or self.program["special"] or (x.dtype != torch.float64 and x.numel() < 6 * x.shape[1]):
            return True
        return bool((x.double().transpose(0, 1).flatten(1).std(1, correction=0) < 1e-2).any())

    # Training

    def is_normalized(self, name):
        """Whether a batch norm gives it: the gradient of its sum is 0, and what rounding leaves of that has any sign."""
        code = next((s["code"] for s in self.program["body"] if s["code"].startswith(f"{name} = ")), "")
        module = re.search(r"= (m\d+)\(", code)
        return module is not None and "BatchNorm" in type(self.scope[module[1]]).__name__

    def trainable(self):
        """The tensors of which gradients can be taken, after all the writes."""
        leaves = [t for t in self.tensors.values() if t.requires_grad and t.is_leaf]
        leaves += list(self.modules.parameters())
        found = []
        for name, t in self.tensors.items():
            if t.requires_grad and not t.is_leaf and t.numel():
                try:
                    grads = torch.autograd.grad(t.sum(), leaves, retain_graph=True, allow_unused=True)
                except RuntimeError:
                    continue
                if all(g is None or bool(g.isfinite().all()) for g in grads):
                    found.append(name)
        return found

    def backward(self):
        names = self.trainable()
        if not names:
            return False
        chosen = self.draw.sample(names[-6:], min(self.draw.randint(1, 3), len(names[-6:])))
        forms = ["{t}.mean()", "({t} * 0.3).sum()", "{t}.sum()", "{t}.square().mean()", "{t}.tanh().sum()"]
        code = " + ".join(self.draw.choice(forms[3:] if self.is_normalized(name) else forms).format(t=name) for name in chosen)
        if self.draw.random() < 0.15 and len(chosen) > 1:  # two backward passes, whose gradients add up
            one, two = code.split(" + ", 1)
            body = [f"({one}).backward(retain_graph=True)", f"({two}).backward()"]
        else:
            name = f"t{self.count}"
            if not self.expression(code, []):
                return False
            body = [f"{name}.backward()"]
        for line in body:
            if not self.state(line):
                return False
            self.append(line, [])
        if self.draw.random() < 0.2:
            clip = self.draw.choice(["clip_grad_norm_(self.parameters(), 0.5)", "clip_grad_value_(self.parameters(), 0.1)",
                                     "clip_grad_norm_(self.parameters(), 1.0, norm_type=1.0)"])
            self.append(f"torch.nn.utils.{clip}", [])
        return True


class Generator:
    """The programs of numbers. switches: what is left out (see switches.py)."""

    def __init__(self, switches):
        self.switches = switches
        self.reference = None  # what torch makes of the last program
        self.refused = 0  # programs that torch refuses as a whole, or that grow without end

    def __call__(self, seed):
        for attempt in range(100):
            try:
                program = self._draw(random.Random(f"{seed}.{attempt}"), seed)
            except RuntimeError:  # torch only tells later what it thinks of a view written to
                program = None
            if program is not None and self._is_sound(program):
                return program
            self.refused += 1
        raise RuntimeError(f"seed {seed}: no program in 100 attempts")

    def _data(self, draw, dtype):
        kind = "special" if self.special and draw.random() < 0.5 else "whole" if draw.random() < self.whole else "normal"
        return [kind if dtype.startswith("float") or kind == "whole" else "whole", draw.randrange(1000)]

    def _draw(self, draw, seed):
        draft = Draft(draw, self.switches)
        self.special, self.whole = draw.random() < 0.05, draw.choice([0.0, 0.1, 1.0])
        dtype = "float32" if draw.random() < 0.2 else "float64"
        parts = draw.choice([2, 3, 4]) if draw.random() < 0.2 else 1
        program = draft.program
        program.update(seed=seed, dtype=dtype, special=self.special, parameters=[], buffers=[], modules=[], inputs=[], body=[],
                       outputs=["constant", None], optimizers=[], steps=20, training=draw.random() < 0.8, micro_batches=parts,
                       config=[], pipelined=draw.random() < 0.4, graph=draw.random() < 0.85)
        draft.placed = draw.random() < 0.3
        numbers = Numbers(torch)
        extents = [draw.randint(1, 5) for _ in range(3)]
        draft.ones = draw.random() < ONES

        def shape(rank):
            """In programs of one sample the first dim is mostly 1, and each other one often."""
            return [1 if draft.ones and draw.random() < (0.4 if i else 0.8) else draw.choice(extents) for i in range(rank)]

        for i in range(draw.randint(1, 4)):
            name = f"w{i}"
            if i and draw.random() < 0.15:
                program["parameters"].append({"name": name, "tied": "w0"})
                draft.add(name, draft.tensors["w0"])
                continue
            entry = {"name": name, "shape": shape(draw.choice([0, 1, 1, 2, 2, 2, 3])), "data": self._data(draw, dtype)}
            program["parameters"].append(entry)
            draft.add(name, torch.nn.Parameter(numbers(tuple(entry["shape"]), dtype, entry["data"])))
        for i in range(draw.randint(0, 2)):
            kind = draw.choice([dtype, dtype, "int64", "bool"])
            entry = {"name": f"b{i}", "shape": shape(draw.randint(0, 2)), "dtype": kind, "data": self._data(draw, kind)}
            program["buffers"].append(entry)
            draft.add(entry["name"], numbers(tuple(entry["shape"]), kind, entry["data"]))
        draft.persistent = {t.untyped_storage().data_ptr() for t in draft.tensors.values()}
        program["inputs"] = self._inputs(draft, shape, numbers, dtype)
        self._body(draft)
        lowest = [str(t.dtype)[6:] for t in draft.tensors.values() if t.is_floating_point()]
        program["precision"] = min([*lowest, dtype], key=RANK.index)
        return program

    def _inputs(self, draft, shape, numbers, dtype):
        draw, number = draft.draw, iter(range(100))

        def leaf():
            kind = draw.choice([dtype] * 5 + ["int64", "int64", "bool", "float32"])
            entry = {"name": f"x{next(number)}", "shape": shape(draw.choice([0, 1, 2, 2, 2, 3, 4])), "dtype": kind,
                     "data": self._data(draw, kind)}
            if draw.random() < (0.5 if draft.ones else 0.2):
                entry["strided"] = True
            draft.add(entry["name"], numbers(tuple(entry["shape"]), kind, entry["data"], entry.get("strided", False)))
            return ["leaf", entry]

        def nest(depth):
            kind = draw.choice(["leaf"] * 5 + ["dict", "list", "tuple", "constant"]) if depth < 3 else "leaf"
            if kind == "leaf":
                return leaf()
            if kind == "constant":
                return ["constant", draw.choice([None, 3, "word", 0.5, True])]
            children = [nest(depth + 1) for _ in range(draw.randint(1, 3))]
            return [kind, {f"k{i}": c for i, c in enumerate(children)} if kind == "dict" else children]

        return [leaf(), *(nest(0) for _ in range(draw.randint(0, 2)))]

    def _body(self, draft):
        draw, program = draft.draw, draft.program
        wants_gradient = [n for n, t in draft.tensors.items() if n[0] == "x" and str(t.dtype)[6:] == program["dtype"]]
        given = draw.choice(wants_gradient) if wants_gradient and draw.random() < 0.15 else None
        if given and draft.state(f"{given}.requires_grad_()"):
            draft.append(f"{given}.requires_grad_()", [])
        features = [f for f in vocabulary.WEIGHTS if f != "eager_only" or not program["graph"]]
        weights = [vocabulary.WEIGHTS[f] for f in features]
        length = draw.randint(5, 45)
        for _ in range(6 * length):
            if len(program["body"]) >= length:
                break
            try:
                draft.statement(draw.choices(features, weights)[0])
            except (Retry, IndexError, ValueError):
                continue
        trained = draw.random() < 0.85 and draft.backward()
        if trained:
            for name in [n for n, t in draft.tensors.items() if t.is_leaf and t.requires_grad and t.grad is not None]:
                if name == given or draw.random() < 0.1:
                    draft.expression(f"{name}.grad" + draw.choice(["", " * 2", ".norm()"]), [])
        if draw.random() < 0.3:
            for _ in range(draw.randint(1, 3)):
                try:
                    draft.statement(draw.choice(["writes", "arithmetic", "views"]))
                except (Retry, IndexError, ValueError):
                    continue
        program["outputs"] = self._outputs(draft)
        if trained and not program["special"] and draw.random() < 0.9:
            self._optimizers(draft)
        if program["graph"]:
            self._config(draft)

    def _outputs(self, draft):
        draw = draft.draw
        names = [*draft.tensors, *draft.others]

        def nest(depth):
            kind = draw.choice(["leaf"] * 4 + ["dict", "list", "tuple", "constant"]) if depth < 2 else "leaf"
            if kind == "leaf":
                return ["leaf", draw.choice(names[-10:] if draw.random() < 0.7 else names)]
            if kind == "constant":
                return ["constant", draw.choice([None, 7, "text"])]
            children = [nest(depth + 1) for _ in range(draw.randint(1, 4))]
            return [kind, {f"k{i}": c for i, c in enumerate(children)} if kind == "dict" else children]

        return ["list", [["leaf", names[-1]], *(nest(0) for _ in range(draw.randint(0, 3)))]]

    def _optimizers(self, draft):
        # A small eps would make a step of what rounding leaves of a gradient that is zero.
        draw, program = draft.draw, draft.program
        owned = [f"net.{p['name']}" for p in program["parameters"] if "tied" not in p]
        owned += [f"net.{name}" for name, _ in draft.modules.named_parameters()]
        draw.shuffle(owned)
        for _ in range(draw.choice([1, 1, 1, 2, 3])):
            if not owned:
                break
            take = [owned.pop() for _ in range(draw.randint(1, len(owned)))]
            groups = [take] if len(take) == 1 or draw.random() < 0.7 else [take[:1], take[1:]]
            kind, options = draw.choice([
                ("SGD", {"lr": 0.02}), ("SGD", {"lr": 0.01, "momentum": 0.9}), ("SGD", {"lr": 0.01, "momentum": 0.9, "nesterov": True}),
                ("SGD", {"lr": 0.01, "momentum": 0.5, "dampening": 0.1, "weight_decay": 0.05}), ("SGD", {"lr": 0.001, "maximize": True}),
                ("Adam", {"lr": 0.01, "eps": 1e-3}), ("Adam", {"lr": 0.01, "eps": 1e-3, "amsgrad": True, "weight_decay": 0.1}),
                ("AdamW", {"lr": 0.005, "eps": 1e-3}), ("AdamW", {"lr": 0.005, "betas": (0.8, 0.99), "eps": 1e-2, "maximize": True})])
            made = [{"params": g} for g in groups]
            if draw.random() < 0.3:
                made[0]["lr"] = 0.003
            if draw.random() < 0.15:
                made[-1]["clip_grad_max_norm"] = 0.3
            schedule = draw.choice([None, None, "StepLR(3, 0.5)", "MultiStepLR([3, 7], 0.5)", "ExponentialLR(0.9)", "CosineAnnealingLR(20, 0.001)",
                                    "LinearLR(0.2, 1.0, 5)", "ConstantLR(0.5, 4)", "PolynomialLR(15, 2.0)", "LambdaLR(lambda step: 0.95 ** step)"])
            program["optimizers"].append({"class": kind, "groups": made, "options": options, "schedule": schedule})

    def _config(self, draft):
        draw, config = draft.draw, draft.program["config"]
        for chance, option in ((0.2, ["set_granularity", "op"]), (0.15, ["enable_inplace", False]), (0.1, ["enable_reuse_mem", False]),
                               (0.2, ["set_outputs_buffer_size", draw.choice([1, 3])]), (0.1, ["set_device", "sim:0"]),
                               (0.15, ["disable_pass", draw.choice(PASSES)])):
            if draw.random() < chance:
                config.append(option)

    def _is_sound(self, program):
        """Whether torch runs all of it, and its values stay small."""
        theirs = self.reference = run(torch, source(program), program)
        if theirs.error:
            return False
        if program["special"]:
            return True
        from differential.compare import items_of

        for _, value in items_of(theirs):
            if isinstance(value, tuple) and not isinstance(value[1], (int, list)) and value[1].dtype.kind == "f" and value[1].size:
                if not abs(value[1]).max() < 1e4:
                    return False
        return True


