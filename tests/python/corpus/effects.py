"""Functions that leave something behind: in tensors, objects, globals, generators, files."""

import io
import logging
import os
import random
import time

import numpy
import torch

LOG = []
STATE = {"calls": 0, "last": None}
TOTAL = 0
BUFFER = torch.zeros(4)


class Memory:
    def __init__(self):
        self.values, self.count = [], 0


MEMORY = Memory()
LINEAR = torch.nn.Linear(4, 4)
NORM = torch.nn.BatchNorm1d(4)
with torch.no_grad():
    LINEAR.weight.copy_(torch.arange(16).reshape(4, 4) / 16)
    LINEAR.bias.zero_()


def appends_to_a_global(x, y):
    LOG.append("called")
    return x + y


def counts_in_a_global(x, y):
    global TOTAL
    TOTAL += 1
    LOG.append(TOTAL)
    return x * TOTAL


def counts_in_a_dict(x, y):
    STATE["calls"] += 1
    return x * STATE["calls"]


def keeps_a_tensor(x, y):
    STATE["last"] = (x * 2).detach()
    LOG.append(STATE["last"])
    return x


def keeps_in_an_object(x, y):
    MEMORY.values.append(x.detach().sum())
    MEMORY.count += 1
    LOG.append(MEMORY.count)
    return x * MEMORY.count


def keeps_on_the_function(x, y):
    keeps_on_the_function.calls = getattr(keeps_on_the_function, "calls", 0) + 1
    LOG.append(keeps_on_the_function.calls)
    return x * keeps_on_the_function.calls


def mutable_default(x, y, seen=[]):  # noqa: B006
    seen.append(1)
    return x * len(seen)


def writes_an_argument(x, y):
    with torch.no_grad():
        y.mul_(2)
    LOG.append(y.detach().clone())
    return x + 1


def writes_a_row(x, y):
    z = x.clone()
    z[1] = 0
    z[:, 0] += y[:, 0]
    return z


def writes_by_a_mask(x, y):
    z = x.clone()
    z[z < 0] = 0
    return z


def writes_by_an_index(x, y):
    z = torch.zeros(5, 4)
    z.index_add_(0, torch.tensor([0, 2, 2]), x)
    return z


def writes_a_buffer(x, y):
    BUFFER.add_(x.detach().sum(0))
    LOG.append(BUFFER.clone())
    return x * BUFFER


def writes_into_out(x, y):
    z = torch.empty(3, 4)
    torch.mul(x.detach(), y.detach(), out=z)
    return z


def copies_into(x, y):
    z = torch.zeros(3, 4)
    z.copy_(x)
    return z * y


def fills(x, y):
    return torch.empty(3, 4).fill_(2.5) * x


def in_place_chain(x, y):
    return x.clone().add_(1).mul_(y).clamp_(-1, 1)


def scatters(x, y):
    return torch.zeros(3, 4).scatter_(1, torch.tensor([[0], [1], [3]]), x[:, :1])


def trains_a_norm(x, y):
    z = NORM(x)
    LOG.append(NORM.running_mean.clone())
    LOG.append(NORM.num_batches_tracked.clone())
    return z


def uses_parameters(x, y):
    return LINEAR(x)


def freezes_parameters(x, y):
    for p in LINEAR.parameters():
        p.requires_grad_(False)
    z = LINEAR(x)
    for p in LINEAR.parameters():
        p.requires_grad_(True)
    return z


def prints(x, y):
    print("prints", x.shape[0], file=io.StringIO())
    return x * 2


def prints_a_tensor(x, y):
    text = io.StringIO()
    print(x.detach().sum() > -1e9, file=text)
    LOG.append(text.getvalue())
    return x * 2


def logs(x, y):
    logging.getLogger("corpus").debug("rows: %s", x.shape[0])
    return x + y


def reads_the_environment(x, y):
    return x * len(os.environ.get("CORPUS_SCALE", "ab"))


def reads_a_file(x, y):
    with open(__file__) as file:
        return x * len(file.readline()[:3])


def reads_the_clock(x, y):
    begin = time.perf_counter()
    z = x * y
    return z * float(time.perf_counter() >= begin)


def draws_by_python(x, y):
    return x * random.random()


def draws_by_numpy(x, y):
    return x * float(numpy.random.rand())


def shuffles(x, y):
    order = list(range(3))
    random.shuffle(order)
    return x[order]


def seeds(x, y):
    random.seed(3)
    return x * random.randint(1, 9)


def asks_whether_grad_is_on(x, y):
    return x * 2 if torch.is_grad_enabled() else y


def turns_grad_off_and_on(x, y):
    torch.set_grad_enabled(False)
    z = x * 2
    torch.set_grad_enabled(True)
    return z + y


def calls_backward(x, y):
    z = x.detach().requires_grad_()
    (z * 3).sum().backward()
    return z.grad + y


def asks_for_gradients(x, y):
    (g,) = torch.autograd.grad((x * x).sum(), x, create_graph=True)
    return g + y


def looks_at_grad(x, y):
    return x * 2 if x.grad is None else x * 3


def registers_a_hook(x, y):
    z = x * 2
    z.register_hook(lambda g: g * 10)
    return z


def detaches(x, y):
    return x.detach() * y


def requires_grad_inside(x, y):
    return torch.ones(4, requires_grad=True) * x


def closes_over_a_list(x, y):
    parts = []

    def keep(t):
        parts.append(t)
        return t
    keep(x)
    keep(y)
    return torch.stack(parts)


def returns_its_argument(x, y):
    return x


def returns_the_same_twice(x, y):
    z = x * 2
    return z, z


def returns_constants(x, y):
    return x * 2, 3, "name", None, True, 2.5


def returns_a_nest(x, y):
    return [{"a": (x, [y])}, (x + y,)]


def returns_nothing(x, y):
    LOG.append((x * y).detach())


def returns_a_view(x, y):
    return x[0], y.t()


def returns_a_number(x, y):
    return x.sum().item()


def returns_text(x, y):
    return x * 2, str(tuple(x.shape))


def returns_a_size(x, y):
    return x.size(), x.shape[0]


def returns_what_it_made_and_wrote(x, y):
    z = torch.zeros(3, 4)
    z[0] = x[1]
    z += y
    return z


def returns_it_beside_a_row_of_it(x, y):
    z = torch.zeros(3, 4)
    z[1] = x[0]
    return z, z[1] * 2


def multiplies_what_it_wrote(x, y):
    z = torch.ones(3, 4)
    z[:, 1] = x[:, 0]
    return (z * y).sum() + (z * z * x).sum()


def fills_a_list_of_rows(x, y):
    out = torch.empty(4, 3)
    for i in range(4):
        out[i] = x[:, i] * (i + 1)
    return out.softmax(-1)


def makes_a_mask(x, y):
    mask = torch.zeros(3, 4, dtype=torch.bool)
    mask[:, :2] = True
    return x.masked_fill(mask, 0.0) + y


def writes_after_a_product(x, y):
    z = torch.zeros(3, 4)
    z += x
    out = z.exp()
    z.add_(1)
    return out, z


def returns_views_of_each_other(x, y):
    w = x * y
    return w, w[1:], w.t()


def returns_rows_of_what_it_wrote(x, y):
    z = torch.zeros(3, 4)
    z[1] = x[0]
    return z[0], z[1], z
