"""Runs the source of a program on torch or on Sluice. It needs nothing else of this package: reproducers carry it."""

import contextlib
import traceback
import zlib

import numpy as np


def library_of(torch):
    return "sluice" if hasattr(torch.nn, "Graph") else "torch"


class Run:
    """The results of a run: the outputs of each step, and at the end parameters, buffers, gradients, optimizers' state, rates."""

    def __init__(self):
        self.outputs, self.variables, self.gradients, self.state, self.rates = [], {}, {}, [], []
        self.error = None  # (where, exception, traceback)


class Numbers:
    """Tensors of `torch` from numbers that depend on nothing but their seed.

    noise: other than 0, the "normal" ones are changed in their last bits, those of `precision`, and so is what functions
        of torch make of any, to learn how much a program makes of that.
    """

    def __init__(self, torch, noise=0, precision="float64"):
        self.torch, self.noise = torch, noise
        self.last_bit = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}[precision]

    def __call__(self, shape, dtype, data, strided=False):
        kind, seed, *more = data
        draw = np.random.RandomState(seed % 2**32)
        if kind == "index":
            array = draw.randint(0, more[0], shape)
        elif dtype == "bool":
            array = draw.rand(*shape) < 0.5
        elif kind == "whole":  # ties, zeros
            array = draw.randint(0 if dtype == "uint8" else -2, 3, shape)
        elif kind == "special":
            array = draw.choice([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, 1e-30, 7e4], shape)
        else:
            array = draw.randn(*shape)
            if self.noise:
                array = array * (1 + self.last_bits(shape, seed))
        if strided and len(shape) > 1:  # torch.tensor would keep the order of the axes, sluice.tensor does not
            array = np.ascontiguousarray(array.T).T
            return self.torch.from_numpy(array.astype(dtype))
        return self.torch.tensor(np.asarray(array), dtype=getattr(self.torch, dtype))

    def last_bits(self, shape, seed):
        return self.last_bit * np.random.RandomState((self.noise + seed) % 2**32).randint(-16, 17, shape)

    def blur(self, net, step):
        """As rounding in an update, or in another write to a parameter, would."""
        for i, p in enumerate(net.parameters()):
            if self.noise:
                p.data.add_(self.torch.tensor(self.last_bits(tuple(p.shape), 100 * step + i), dtype=p.dtype))

    def blurring(self):
        """Inside, results of torch's functions that are rounded are changed in their last bits."""
        if not self.noise:
            return contextlib.nullcontext()
        from torch.overrides import TorchFunctionMode

        numbers, calls = self, 0

        def memory_of(value):
            return value.untyped_storage().data_ptr() if isinstance(value, numbers.torch.Tensor) else None

        class Blur(TorchFunctionMode):
            def __torch_function__(self, function, types, arguments=(), options=None):
                nonlocal calls
                result = function(*arguments, **(options or {}))
                if not isinstance(result, numbers.torch.Tensor) or not result.is_floating_point():
                    return result
                attribute = getattr(function, "__name__", "") == "__get__"
                if attribute or memory_of(result) in map(memory_of, arguments) or not numbers.is_rounded(result):
                    return result  # not made here, or exact
                calls += 1
                return result * numbers.torch.tensor(1 + numbers.last_bits(tuple(result.shape), calls), dtype=result.dtype)

        return Blur()

    def is_rounded(self, t):
        """Does a number use the last sixth of its bits? Small whole numbers and their halves and quarters do not."""
        bits = -int(np.log2(self.last_bit))
        mantissa = np.frexp(t.detach().double().numpy())[0] * 2.0 ** (bits - bits // 6)
        return bool(np.any(np.isfinite(mantissa) & (mantissa % 1 != 0)))


def values_of(t):
    """A copy of a tensor's values, with the name of its dtype."""
    name = str(t.dtype).rpartition(".")[2]
    t = t.detach().cpu()
    return name, np.array((t.float() if name == "bfloat16" else t).numpy(), copy=True)


def snapshot(nest):
    if isinstance(nest, dict):
        return {k: snapshot(v) for k, v in nest.items()}
    if isinstance(nest, (list, tuple)):
        return type(nest)(map(snapshot, nest))
    return values_of(nest) if hasattr(nest, "requires_grad") else nest


def cut(nest, part, parts):
    """Part number `part` of every tensor of a nest, along axis 0; scalars whole."""
    if isinstance(nest, dict):
        return {k: cut(v, part, parts) for k, v in nest.items()}
    if isinstance(nest, (list, tuple)):
        return type(nest)(cut(v, part, parts) for v in nest)
    if not hasattr(nest, "requires_grad"):
        return nest
    rows = nest.shape[0] // parts if nest.ndim else 0
    piece = nest[part * rows:(part + 1) * rows] if nest.ndim else nest
    return nest.new_empty(piece.shape).copy_(piece)  # each part may write to its own


def settled(nest, updated):
    """A snapshot, but for what lies in the memory of the tensors `updated`: what is returned of them is read later."""
    if isinstance(nest, dict):
        return {k: settled(v, updated) for k, v in nest.items()}
    if isinstance(nest, (list, tuple)):
        return type(nest)(settled(v, updated) for v in nest)
    if not hasattr(nest, "requires_grad"):
        return nest
    at = nest.data_ptr()
    return nest if any(p.data_ptr() <= at < p.data_ptr() + p.numel() * p.element_size() for p in updated) else values_of(nest)


def joined(nests):
    """The snapshots of all parts as one: along axis 0."""
    first = nests[0]
    if isinstance(first, dict):
        return {k: joined([n[k] for n in nests]) for k in first}
    if isinstance(first, tuple) and len(first) == 2 and isinstance(first[1], np.ndarray):
        arrays = [n[1] for n in nests]
        return first[0], np.stack(arrays) if first[1].ndim == 0 else np.concatenate(arrays)
    if isinstance(first, (list, tuple)):
        return type(first)(map(joined, zip(*nests)))
    return first


def fill_modules(net, numbers):
    """Parameters of modules, the same in both libraries."""
    for name, p in net.named_parameters():
        if "." in name:
            dtype = str(p.dtype).rpartition(".")[2]
            p.data.copy_(numbers(tuple(p.shape), dtype, ["normal", zlib.crc32(name.encode())]))


def lay_contiguous(torch, net):
    """torch's batch norm of one sample takes inputs and gradients that are not contiguous for those of other elements."""
    def before(module, arguments):
        return tuple(a.clone(memory_format=torch.contiguous_format) for a in arguments)

    def behind(module, arguments, result):
        if result.requires_grad:
            result.register_hook(lambda grad: grad.clone(memory_format=torch.contiguous_format))

    for module in net.modules():
        if "BatchNorm" in type(module).__name__:
            module.register_forward_pre_hook(before)
            module.register_forward_hook(behind)


def clip_groups(torch, optimizer):
    """Sluice's clip_grad_max_norm of a parameter group."""
    for group in optimizer.param_groups:
        grads = [p for p in group["params"] if p.grad is not None]
        if group.get("clip_grad_max_norm") is not None and grads:
            torch.nn.utils.clip_grad_norm_(grads, group["clip_grad_max_norm"], group.get("clip_grad_norm_type", 2.0))


def eager_step(torch, net, optimizers, parts):
    def forward(arguments):
        for p in net.parameters():
            p.grad = None
        return net(*arguments)

    def step(arguments):
        if parts == 1:
            result = forward(arguments)
        else:
            results, sums = [], {}
            for i in range(parts):
                updated = [p for optimizer, _ in optimizers for group in optimizer.param_groups for p in group["params"]]
                results.append(settled(forward(cut(arguments, i, parts)), updated))
                for p in net.parameters():
                    if p.grad is not None:
                        sums[p] = sums[p] + p.grad if p in sums else p.grad.detach().clone()
            for p, total in sums.items():
                p.grad = total * (1 / parts)
        for optimizer, schedule in optimizers:
            if library_of(torch) == "torch":
                clip_groups(torch, optimizer)
            optimizer.step()
            if schedule is not None:
                schedule.step()
        return joined([snapshot(r) for r in results]) if parts > 1 else snapshot(result)

    return step


def graph_step(torch, net, optimizers, program):
    class Program(torch.nn.Graph):
        def __init__(self):
            super().__init__(name="program")
            self.net = net
            for optimizer, schedule in optimizers:
                self.add_optimizer(optimizer, schedule)
            if program["micro_batches"] > 1:
                self.config.set_gradient_accumulation_steps(program["micro_batches"])
            for name, *values in program["config"]:
                getattr(self.config, name)(*values)

        def build(self, *arguments):
            return self.net(*arguments)

    graph = Program()
    return graph, lambda arguments: graph(*arguments)


def run(torch, source, program, in_graph=False, noise=0):
    """`source` on the module `torch`: a Run. An exception ends it, and is part of it."""
    result, where = Run(), "make"
    numbers = Numbers(torch, noise, program.get("precision", "float64"))

    def place(kind, value):
        """A scope of graphs: a device, a stream, or the quota of registers. Elsewhere it changes nothing."""
        return getattr(torch, kind)(value) if in_graph else contextlib.nullcontext()

    namespace = {"torch": torch, "numbers": numbers, "place": place}
    graph = None
    try:
        with numbers.blurring():
            exec(compile(source, "program.py", "exec"), namespace)
            net = namespace["Net"]()
            if library_of(torch) == "torch":
                lay_contiguous(torch, net)
            fill_modules(net, numbers)
            net.train(program["training"])
            optimizers = namespace["optimizers"](net)
            if in_graph:
                graph, step = graph_step(torch, net, optimizers, program)
            else:
                step = eager_step(torch, net, optimizers, program["micro_batches"])
            for i in range(program["steps"]):
                where = f"step {i}"
                result.outputs.append(step(namespace["arguments"](i)))
                if optimizers:
                    numbers.blur(net, i)
                if in_graph and not program["pipelined"]:
                    result.outputs[-1] = snapshot(result.outputs[-1])
            if in_graph and program["pipelined"]:
                where = "read"
                result.outputs = [snapshot(o) for o in result.outputs]
            where = "end"
            for name, tensor in [*net.named_parameters(), *net.named_buffers()]:
                result.variables[name] = values_of(tensor)
                if not in_graph and tensor.grad is not None:
                    result.gradients[name] = values_of(tensor.grad)
            for optimizer, schedule in optimizers:
                state = optimizer.state_dict()["state"]
                result.state.append({f"{p}.{k}": values_of(v) for p, s in state.items() for k, v in s.items()
                                     if hasattr(v, "requires_grad")})
                result.rates.append([float(r) for r in schedule.get_last_lr()] if schedule is not None else [])
    except Exception as error:  # noqa: BLE001
        result.error = (where, error, traceback.format_exc())
    finally:
        if graph is not None:
            graph.close()
    return result
