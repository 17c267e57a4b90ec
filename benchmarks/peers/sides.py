"""The contestants of `peers.py`: each function makes a workload ready in a process of its own and returns `run(steps)`."""
import contextlib
import io
import os

from workloads import PROMPT, TOKENS, made, next_logits, optimizer

THREADS = len(os.sched_getaffinity(0))


def sluice_graph(work, tiny, search=True):
    """(graph, its inputs) of Sluice, after its first call; `search`: with a trial run of the kernels."""
    import sluice as sl

    net, x, y = made(sl, work, tiny)
    half = work.precision == "bf16"
    if work.kind == "infer":
        net.eval()
        if half:
            net, x = net.bfloat16(), x.bfloat16() if x.is_floating_point() else x

    class Net(sl.nn.Graph):
        def __init__(self):
            super().__init__()
            self.net = net
            self.config.set_cores(THREADS)
            self.config.enable_kernel_trial_run(search)

    class Infer(Net):
        def build(self, x):
            with sl.no_grad():
                return self.net(x)

    class Train(Net):
        def __init__(self):
            super().__init__()
            self.add_optimizer(optimizer(sl, work, net))
            self.config.enable_amp(half)

        def build(self, x, y):
            loss = sl.nn.functional.cross_entropy(self.net(x), y)
            loss.backward()
            return loss

    class Generate(Net):
        def build(self, prompt):
            longest = PROMPT + TOKENS

            def write(cache, position, new):
                cache = cache.index_copy(2, position.reshape(1), new)
                return cache, cache, sl.arange(longest) <= position

            def read(state, token):
                position, caches, _ = state
                logits, caches = next_logits(sl, self.net, token, position, caches, write)
                return (position + 1, caches, logits), None

            def say(state, _):
                token = state[2].argmax(1)
                return read(state, token)[0], token

            heads = 2 if tiny else 12
            width = self.net.words.weight.shape[1]
            shape = work.batch, heads, longest, width // heads
            with sl.no_grad():
                caches = tuple((sl.zeros(shape), sl.zeros(shape)) for _ in self.net.blocks)
                state = sl.tensor(0), caches, sl.zeros(work.batch, self.net.words.weight.shape[0])
                state, _ = sl.scan(read, state, prompt.t())
                return sl.scan(say, state, length=TOKENS)[1].t()

    kinds = {"infer": (Infer, (x,)), "train": (Train, (x, y)), "generate": (Generate, (x[:, :PROMPT],))}
    make, inputs = kinds[work.kind]
    graph = make()
    with contextlib.redirect_stderr(io.StringIO()):  # the tables of all searches
        graph(*inputs).sync()
    return graph, inputs


def sluice(work, tiny):
    graph, inputs = sluice_graph(work, tiny)

    def run(steps):
        for _ in range(steps):
            result = graph(*inputs)
            if work.kind == "infer":
                result.sync()  # each answer is waited for, as a caller with one batch does
        result.sync()
    return run


def torch(work, tiny, how):
    """PyTorch: `how` is eager, channels_last, compile (of the loss, in training), or freezing (compiled, with weights as constants)."""
    import torch as pt
    if how == "freezing":
        from torch._inductor import config
        config.freezing = True

    pt.set_num_threads(THREADS)
    net, x, y = made(pt, work, tiny)
    half = work.precision == "bf16"
    train = work.kind == "train"
    if not train:
        net.eval()
        if half:
            net, x = net.bfloat16(), x.bfloat16() if x.is_floating_point() else x
    if how == "channels_last" or (how in ("compile", "freezing") and x.dim() == 4):
        net, x = net.to(memory_format=pt.channels_last), x.to(memory_format=pt.channels_last)
    if work.kind == "generate":
        return _torch_generates(pt, net, x[:, :PROMPT])
    forward = net if how in ("eager", "channels_last") else pt.compile(net)
    sgd = optimizer(pt, work, net, **({"fused": True} if train else {}))

    def step():
        if not train:
            with pt.no_grad():
                return forward(x)
        sgd.zero_grad(set_to_none=True)
        with pt.autocast("cpu", pt.bfloat16) if half else contextlib.nullcontext():
            loss = pt.nn.functional.cross_entropy(forward(x), y)
        loss.backward()
        sgd.step()
        return loss

    def run(steps):
        for _ in range(steps):
            step()
    return run


def _torch_generates(pt, net, prompt):
    longest = PROMPT + TOKENS
    n, width = prompt.shape[0], net.words.weight.shape[1]
    heads = 2 if width < 64 else 12

    def write(cache, position, new):  # written in place; what has not been written is not read
        end = int(position)
        cache[:, :, end:end + 1] = new
        return cache, cache[:, :, :end + 1], None

    def run(steps):
        with pt.inference_mode():
            for _ in range(steps):
                caches = tuple((pt.zeros(n, heads, longest, width // heads), pt.zeros(n, heads, longest, width // heads))
                               for _ in net.blocks)
                for i in range(longest):
                    token = prompt[:, i] if i < PROMPT else logits.argmax(1)  # noqa: F821 - of the turn before
                    logits, caches = next_logits(pt, net, token, pt.tensor(i), caches, write)
    return run


def onnxruntime(work, tiny):
    """ONNX Runtime, with the net from torch's exporter and all optimisations."""
    import warnings

    import onnxruntime as ort
    import torch as pt

    warnings.simplefilter("ignore")
    net, x, _ = made(pt, work, tiny)
    model = io.BytesIO()
    pt.onnx.export(net.eval(), (x,), model, input_names=["x"], dynamo=False)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = THREADS, 1, 3
    session = ort.InferenceSession(model.getvalue(), options)
    given = {"x": x.numpy()}

    def run(steps):
        for _ in range(steps):
            session.run(None, given)
    return run
