"""Calls what takes sizes with absurd ones. Run as a program: absurd_calls.py SECONDS

A call is one of a child process, which is ended when it takes more than so many seconds. Prints `wrong: ...` for each call
that hangs, ends the process, or raises something that is none of the documented exceptions.
"""

import os
import resource
import signal
import sys
import warnings
from multiprocessing import get_context

import sluice as sl
from hostile_calls import MEMORY, complaint

SIZES = [-1, 0, 1 << 31, 1 << 40, 1 << 62, (1 << 63) - 1, 1 << 64, -(1 << 63), float("nan"), float("inf"), 1e300, 1.5, "x", None, True, (1 << 40, 1 << 40)]


def calls():
    """(name, function of a size)."""
    f, nn, m = sl.nn.functional, sl.nn, sl
    x, lines, images, volumes = m.zeros(2, 3), m.zeros(1, 1, 4), m.zeros(1, 1, 4, 4), m.zeros(1, 1, 4, 4, 4)
    kernel = m.zeros(1, 1, 2, 2)
    inputs = {"1d": lines, "2d": images, "3d": volumes}

    def halved(v):
        return v // 2 if isinstance(v, int) else v

    def named(prefix, names, call):
        return [(f"{prefix}.{n}", lambda v, n=n: call(n, v)) for n in names]

    pools = [f"{kind}_pool{dims}" for kind in ("max", "avg") for dims in inputs]
    found = [
        *named("adaptive", [f"adaptive_{kind}_pool{dims}" for kind in ("max", "avg") for dims in inputs],
               lambda n, v: getattr(f, n)(inputs[n[-2:]], v)),
        *named("kernel", pools, lambda n, v: getattr(f, n)(inputs[n[-2:]], v)),
        *named("stride", pools, lambda n, v: getattr(f, n)(inputs[n[-2:]], 2, stride=v)),
        *named("padding", pools, lambda n, v: getattr(f, n)(inputs[n[-2:]], 2, padding=v)),
        *named("kernel and padding", pools, lambda n, v: getattr(f, n)(inputs[n[-2:]], v, padding=halved(v))),
        *named("dilation", pools[:3], lambda n, v: getattr(f, n)(inputs[n[-2:]], 2, dilation=v)),
        *named("conv2d", ["stride", "padding", "dilation", "groups"], lambda n, v: f.conv2d(images, kernel, **{n: v})),
        *named("conv_transpose2d", ["stride", "padding", "dilation", "groups", "output_padding"],
               lambda n, v: f.conv_transpose2d(images, kernel, **{n: v})),
        *named("pad", ["constant"], lambda n, v: f.pad(images, (v, 1, 0, v), mode=n)),
        *named("made", ["zeros", "ones", "empty", "rand", "randn"], lambda n, v: getattr(m, n)(v)),
        *named("made of nothing", ["zeros", "ones", "empty", "rand", "randn"], lambda n, v: getattr(m, n)(0, v, v)),
        *named("whole number", ["full"], lambda n, v: m.full((2,), v, dtype=m.int64)),
        ("full", lambda v: m.full((v,), 1.0)), ("eye", lambda v: m.eye(v)), ("eye of columns", lambda v: m.eye(2, v)),
        ("arange", lambda v: m.arange(v)), ("arange by", lambda v: m.arange(0, 1, v)), ("arange of small steps", lambda v: m.arange(0.0, v, 1e-12)),
        ("linspace", lambda v: m.linspace(0, 1, v)), ("linspace from", lambda v: m.linspace(v, 1, 5)),
        ("randint", lambda v: m.randint(0, 2, (v,))), ("randint below", lambda v: m.randint(v, (2,))), ("randperm", lambda v: m.randperm(v)),
        ("one_hot", lambda v: f.one_hot(m.tensor([0, 1]), v)), ("one_hot of", lambda v: f.one_hot(m.tensor([0, v]))),
        ("repeat", lambda v: x.repeat(v, 1)), ("repeat twice", lambda v: x.repeat(v, v)), ("tile", lambda v: m.tile(x, (v, 2))),
        ("expand", lambda v: m.zeros(1, 1).expand(v, v) + 1), ("expand, clone", lambda v: m.zeros(1).expand(v).clone()),
        ("expand, reshape", lambda v: m.zeros(1, 1).expand(v, 2).reshape(-1)), ("expand, sort", lambda v: m.zeros(1).expand(v).sort()),
        ("expand, unbind", lambda v: m.zeros(1).expand(v).unbind(0)), ("expand, split", lambda v: m.zeros(1).expand(v).split(1)),
        ("expand, chunk", lambda v: m.zeros(1).expand(v).chunk(v)), ("expand, iterate", lambda v: list(zip(range(1), m.zeros(1).expand(v)))),
        ("expand, cumsum", lambda v: m.zeros(1).expand(v).cumsum(0)), ("expand, cat", lambda v: m.cat([m.zeros(1).expand(v)] * 2)),
        ("expand, tolist", lambda v: m.zeros(1, 1).expand(0, v).tolist()), ("expand, flip", lambda v: m.zeros(1).expand(v).flip(0)),
        ("chunk", lambda v: x.chunk(v)), ("chunk nothing", lambda v: m.zeros(0).chunk(v)), ("split", lambda v: x.split(v)),
        ("split by", lambda v: x.split([v, v])), ("broadcast_to", lambda v: m.broadcast_to(x, (v, 2, 3)) + 1),
        ("outer", lambda v: m.outer(m.zeros(1).expand(v), m.zeros(1).expand(v))),
        ("matmul", lambda v: m.zeros(1, 1).expand(v, 1) @ m.zeros(1, 1).expand(1, v)),
        ("matmul of long rows", lambda v: m.zeros(1, 1).expand(1, v) @ m.zeros(1, 1).expand(v, 1)),
        ("tril", lambda v: x.tril(v)), ("roll", lambda v: x.roll(v, 0)), ("narrow", lambda v: x.narrow(0, 0, v)),
        ("slice", lambda v: x[:v]), ("steps", lambda v: x[::v]), ("reshape", lambda v: x.reshape(v, -1)), ("view", lambda v: x.view(v, v)),
        ("unflatten", lambda v: x.unflatten(0, (v, -1))), ("topk", lambda v: x.topk(v)), ("pow", lambda v: m.tensor([2]) ** v),
        ("index", lambda v: x[m.tensor([v])]), ("index_select", lambda v: x.index_select(0, m.tensor([v]))),
        ("embedding", lambda v: f.embedding(m.tensor([v]), x)), ("group_norm", lambda v: f.group_norm(images, v)),
        ("Linear", lambda v: nn.Linear(v, 2)), ("Conv2d", lambda v: nn.Conv2d(2, 2, v)), ("Embedding", lambda v: nn.Embedding(v, 2)),
        ("BatchNorm2d", lambda v: nn.BatchNorm2d(v)), ("LayerNorm", lambda v: nn.LayerNorm(v)), ("new_zeros", lambda v: x.new_zeros(v)),
        ("micro-batches", lambda v: nn.Graph().config.set_gradient_accumulation_steps(v)),
        ("Dim", lambda v: sl.Dim("n", max=v)),
    ]
    return found


def child(pipe, start):
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    warnings.simplefilter("ignore")
    todo = [(name, call, size) for size in SIZES for name, call in calls()]
    pipe.send(len(todo))
    for name, call, size in todo[start:]:
        pipe.send(f"{name}({size!r})")
        try:
            call(size)
            wrong = None
        except Exception as error:  # noqa: BLE001
            wrong = complaint(error)
            wrong = wrong and f"{wrong}: {name}({size!r}): {type(error).__name__}: {str(error)[:200]}"
        pipe.send(wrong)
    pipe.close()
    os._exit(0)


def main(seconds):
    context = get_context("fork")  # of a process without an engine
    done, count = 0, 1
    while done < count:
        receive, send = context.Pipe(False)
        process = context.Process(target=child, args=(send, done))
        process.start()
        send.close()
        call = "the first call"

        def told():
            if receive.poll(seconds):
                return receive.recv()
            os.kill(process.pid, signal.SIGKILL)
            process.join()
            raise TimeoutError

        try:
            count = told()
            while done < count:
                call = told()
                wrong = told()
                if wrong:
                    print(f"wrong: {wrong}", flush=True)
                done += 1
        except TimeoutError:
            print(f"wrong: hangs: {call}", flush=True)
            done += 1
        except EOFError:
            process.join()
            print(f"wrong: ends with {process.exitcode}: {call}", flush=True)
            done += 1
        process.join()
    print(f"done: {count} calls", flush=True)


if __name__ == "__main__":
    main(float(sys.argv[1]))
