"""Ways in which a program decides and repeats, by Python's values and by tensors'."""

import contextlib
import enum
import functools
import itertools

import torch

LIMIT = 3


class Mode(enum.Enum):
    DOUBLE = 2
    TRIPLE = 3


def if_by_shape(x, y):
    return x + y if x.shape[0] > 2 else x - y


def if_by_dtype(x, y):
    return x.long() if x.dtype == torch.int32 else x * y


def if_by_rank(x, y):
    if x.dim() == 1:
        return x
    elif x.dim() == 2:
        return x * 2 + y
    else:
        return y


def if_by_none(x, y, scale=None):
    return x * y if scale is None else x * scale


def if_by_grad(x, y):
    return x * 2 if x.requires_grad else x * 3


def if_by_training(x, y):
    drop = torch.nn.Dropout(0.5)
    drop.eval()
    return drop(x) + y if not drop.training else x


def if_by_isinstance(x, y):
    values = [x, 2, (y, 3)]
    total = 0
    for value in values:
        if isinstance(value, torch.Tensor):
            total = total + value
        elif isinstance(value, tuple):
            total = total + value[0] * value[1]
        else:
            total = total + value
    return total


def if_by_a_sum(x, y):
    return x + y if x.sum() > 0 else x - y


def if_by_any(x, y):
    if (x > 1).any():
        return x.clamp(max=1)
    return y


def if_by_all(x, y):
    return x.sqrt() if bool((x > 0).all()) else x.abs().sqrt()


def if_by_equal(x, y):
    return x if torch.equal(x, y) else x * y


def if_by_allclose(x, y):
    return x * 2 if torch.allclose(x, x + 0) else y


def if_by_item(x, y):
    return x * 2 if x[0, 0].item() > 0 else y


def if_by_a_walrus(x, y):
    if (n := x.shape[1]) > 2:
        return x / n
    return y


def if_by_a_match(x, y):
    match tuple(x.shape):
        case (3, n):
            return x * n
        case _:
            return y


def if_by_an_enum(x, y, mode=Mode.TRIPLE):
    return x * mode.value if mode is Mode.TRIPLE else y


def for_over_range(x, y):
    for i in range(LIMIT):
        x = x + y * i
    return x


def for_over_rows(x, y):
    return torch.stack([row * 2 for row in x])


def for_over_zip(x, y):
    return sum(a * b for a, b in zip(x, y))


def for_over_enumerate(x, y):
    for i, row in enumerate(y):
        x = x + row * i
    return x


def for_over_reversed(x, y):
    parts = []
    for row in reversed(list(x)):
        parts.append(row)
    return torch.stack(parts)


def for_over_items(x, y):
    result = {}
    for key, value in {"a": x, "b": y}.items():
        result[key] = value * 2
    return result


def for_over_product(x, y):
    return sum(x[i, j] for i, j in itertools.product(range(2), range(3)))


def for_over_split(x, y):
    return [part.sum() for part in x.split(2, dim=1)]


def for_with_else(x, y):
    for i in range(3):
        if i > 5:
            break
    else:
        x = x * y
    return x


def for_with_break(x, y):
    for i in range(10):
        if i == 2:
            break
        x = x * 2
    return x


def for_with_continue(x, y):
    for i in range(4):
        if i % 2:
            continue
        x = x + y
    return x


def while_by_a_count(x, y):
    n = 0
    while n < 3:
        x, n = x * 0.5, n + 1
    return x


def while_by_a_tensor(x, y):
    while x.abs().max() > 0.5:
        x = x * 0.5
    return x


def while_true(x, y):
    n = 0
    while True:
        n += 1
        x = x + y
        if n == 2:
            return x


def early_return(x, y):
    if x.shape[0] == 3:
        return x
    return y


def nested_loops(x, y):
    for i in range(2):
        for j in range(2):
            x = x + (i * 2 + j) * y
    return x


def recursion_by_size(x, y):
    def halves(t):
        return t if t.numel() <= 2 else halves(t.flatten()[: t.numel() // 2])
    return halves(x).sum() * y


def mutual_recursion(x, y):
    def even(t, n):
        return t if n == 0 else odd(t * 2, n - 1)

    def odd(t, n):
        return t if n == 0 else even(t + 1, n - 1)
    return even(x, 3)


def try_without_an_error(x, y):
    try:
        return x + y
    except ValueError:
        return x


def try_with_an_error(x, y):
    try:
        return x + torch.ones(7)
    except RuntimeError:
        return x - y


def try_with_a_key(x, y):
    table = {"a": x}
    try:
        return table["b"]
    except KeyError:
        return table["a"] * 2


def raises_a_value_error(x, y):
    if x.shape[1] == 4:
        raise ValueError("four columns")
    return x


def asserts_what_holds(x, y):
    assert x.shape == y.shape, "shapes differ"
    return x * y


def asserts_what_does_not_hold(x, y):
    assert x.shape[0] == 2, "two rows are needed"
    return x


def asserts_by_values(x, y):
    assert not x.isnan().any()
    return x + 1


def with_a_null_context(x, y):
    with contextlib.nullcontext():
        return x * y


def with_no_grad_inside(x, y):
    with torch.no_grad():
        weight = x.exp()
    return weight * y


def with_enable_grad(x, y):
    with torch.no_grad(), torch.enable_grad():
        z = x * y
    return z


def with_its_own_manager(x, y):
    @contextlib.contextmanager
    def doubled():
        yield 2
    with doubled() as factor:
        return x * factor


def with_an_exit_stack(x, y):
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        z = x * 2
    return z + y


def decorated_without_grad(x, y):
    @torch.no_grad()
    def weight(t):
        return t.sigmoid()
    return weight(x) * y


def conditional_expression(x, y):
    return (x if x.shape[0] == 3 else y) * (1 if LIMIT == 3 else 2)


def chained_comparison(x, y):
    return x if 1 < x.shape[0] < 5 else y


def short_circuit(x, y, other=None):
    return (other or x) if other is not None else x and y if False else x * 2


def select_by_where(x, y):
    return torch.where(x.sum() > 0, x + y, x - y)


def reduce_over_ops(x, y):
    return functools.reduce(lambda a, f: f(a), [torch.sin, torch.exp, torch.tanh], x) + y
