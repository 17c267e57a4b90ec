"""Collectives on eager tensors, with torch.distributed's names and arguments.

Tensors lie in host memory; all ranks call the same functions in the same order, with equal shapes and dtypes. Results
of reductions are the same bits in every rank. Gradients do not flow through these calls. With async_op=True a call returns
a Work instead of waiting.
"""

from sluice._C import fn
from sluice._base.grad_mode import no_grad
from sluice._base.job import state
from sluice.errors import ValueError  # noqa: A004


class ReduceOp:
    """How values of several ranks become one. AVG is of floating dtypes alone; NaN wins over numbers."""

    SUM, PRODUCT, MIN, MAX, AVG = "sum", "product", "min", "max", "average"
    BAND, BOR, BXOR = "bitwise_and", "bitwise_or", "bitwise_xor"  # names that packages list; collectives refuse them
    RedOpType = str  # the type of the above


def barrier(async_op=False):
    """Returns when all ranks have called it."""
    return state.run("barrier", async_op, lambda world: world.barrier())


def all_reduce(tensor, op=ReduceOp.SUM, async_op=False):
    """Combines the ranks' tensors, in place, in every rank."""
    return state.run("all_reduce", async_op, lambda world: world.all_reduce(tensor, op))


def reduce(tensor, dst, op=ReduceOp.SUM, async_op=False):
    """Combines the ranks' tensors, in place, in rank dst; the others keep theirs."""
    world = state.get("reduce")
    _check_rank(world, "reduce", "dst", dst)
    target = tensor if world.rank == dst else tensor.detach().clone()
    return state.run("reduce", async_op, lambda world: world.all_reduce(target, op))


def broadcast(tensor, src, async_op=False):
    """Gives every rank the tensor of rank src, in place."""
    return state.run("broadcast", async_op, lambda world: world.broadcast(tensor, src))


def all_gather(tensor_list, tensor, async_op=False):
    """Fills tensor_list with the tensors of all ranks, in their order."""
    _check_list(state.get("all_gather"), "all_gather", "tensor_list", tensor_list, tensor)
    return state.run("all_gather", async_op,
                     lambda world: _fill(tensor_list, world.all_gather(tensor.detach().unsqueeze(0)).unbind(0)))


def all_gather_into_tensor(output_tensor, input_tensor, async_op=False):
    """Fills output_tensor with the tensors of all ranks, one after the other along dimension 0."""
    _check_whole(state.get("all_gather_into_tensor"), "all_gather_into_tensor", output_tensor, input_tensor)
    return state.run("all_gather_into_tensor", async_op,
                     lambda world: _fill([output_tensor], [world.all_gather(_rows(input_tensor)).reshape(output_tensor.shape)]))


def gather(tensor, gather_list=None, dst=0, async_op=False):
    """Fills gather_list, in rank dst alone, with the tensors of all ranks."""
    world = state.get("gather")
    _check_rank(world, "gather", "dst", dst)
    if world.rank != dst:
        _check_none("gather", "gather_list", gather_list, dst)
        return state.run("gather", async_op, lambda world: world.send(tensor, dst))
    _check_list(world, "gather", "gather_list", gather_list, tensor)

    def collect(world):
        for rank, part in enumerate(gather_list):
            if rank == dst:
                _fill([part], [tensor.detach()])
            else:
                world.receive(part, rank)

    return state.run("gather", async_op, collect)


def scatter(tensor, scatter_list=None, src=0, async_op=False):
    """Fills tensor with this rank's element of rank src's scatter_list."""
    world = state.get("scatter")
    _check_rank(world, "scatter", "src", src)
    if world.rank != src:
        _check_none("scatter", "scatter_list", scatter_list, src)
        return state.run("scatter", async_op, lambda world: world.receive(tensor, src))
    _check_list(world, "scatter", "scatter_list", scatter_list, tensor)

    def deal(world):
        for rank, part in enumerate(scatter_list):
            if rank == src:
                _fill([tensor], [part.detach()])
            else:
                world.send(part, rank)

    return state.run("scatter", async_op, deal)


def reduce_scatter(output, input_list, op=ReduceOp.SUM, async_op=False):
    """Combines the ranks' lists element by element; rank r gets element r."""
    _check_list(state.get("reduce_scatter"), "reduce_scatter", "input_list", input_list, output)
    return state.run("reduce_scatter", async_op,
                     lambda world: _fill([output], [world.reduce_scatter(fn.stack([t.detach() for t in input_list]), op)[0]]))


def reduce_scatter_tensor(output, input, op=ReduceOp.SUM, async_op=False):  # noqa: A002
    """Combines the ranks' tensors; rank r gets part r along dimension 0."""
    _check_whole(state.get("reduce_scatter_tensor"), "reduce_scatter_tensor", input, output)
    return state.run("reduce_scatter_tensor", async_op,
                     lambda world: _fill([output], [world.reduce_scatter(_rows(input), op).reshape(output.shape)]))


def all_to_all(output_tensor_list, input_tensor_list, async_op=False):
    """Element r of input_tensor_list goes to rank r; element r of output_tensor_list comes from rank r."""
    world = state.get("all_to_all")
    _check_list(world, "all_to_all", "input_tensor_list", input_tensor_list, input_tensor_list[0] if input_tensor_list else None)
    _check_list(world, "all_to_all", "output_tensor_list", output_tensor_list, input_tensor_list[0])
    return state.run("all_to_all", async_op, lambda world: _fill(
        output_tensor_list, world.all_to_all(fn.stack([t.detach() for t in input_tensor_list])).unbind(0)))


def all_to_all_single(output, input, async_op=False):  # noqa: A002
    """Part r of input along dimension 0 goes to rank r; part r of output comes from rank r."""
    state.get("all_to_all_single")
    if output.shape != input.shape or output.dtype != input.dtype:
        raise ValueError(f"all_to_all_single: output is {_type(output)}, input is {_type(input)}; they must be alike")
    return state.run("all_to_all_single", async_op, lambda world: _fill([output], [world.all_to_all(input)]))


def send(tensor, dst, tag=0):
    """Sends to rank dst, and returns when that has taken it."""
    state.run("send", False, lambda world: world.send(tensor, dst, tag))


def recv(tensor, src, tag=0):
    """Fills tensor with what rank src sends under this tag."""
    state.run("recv", False, lambda world: world.receive(tensor, src, tag))


def _fill(targets, sources):
    with no_grad():
        for target, source in zip(targets, sources):
            target.copy_(source)


def _rows(tensor):
    tensor = tensor.detach()
    return tensor if tensor.dim() else tensor.unsqueeze(0)


def _type(tensor):
    return f"{tensor.dtype.name} {tuple(tensor.shape)}"


def _check_rank(world, where, name, rank):
    if not 0 <= rank < world.size:
        raise ValueError(f"{where}: {name} is {rank}; it must be from 0 to {world.size - 1}")


def _check_none(where, name, value, rank):
    if value is not None:
        raise ValueError(f"{where}: {name} is given; only rank {rank} may give one")


def _check_list(world, where, name, tensors, like):
    if not isinstance(tensors, (list, tuple)) or len(tensors) != world.size:
        got = f"has {len(tensors)} tensors" if isinstance(tensors, (list, tuple)) else f"is {type(tensors).__name__}"
        raise ValueError(f"{where}: {name} {got}; it must be a list of {world.size}, one for each rank")
    for i, tensor in enumerate(tensors):
        if tensor.shape != like.shape or tensor.dtype != like.dtype:
            raise ValueError(f"{where}: {name}[{i}] is {_type(tensor)}; it must be {_type(like)} like the other tensors")


def _check_whole(world, where, whole, part):
    rows = tuple(part.shape) or (1,)
    if tuple(whole.shape) not in ((rows[0] * world.size, *rows[1:]), (world.size, *part.shape)) or whole.dtype != part.dtype:
        raise ValueError(f"{where}: the whole is {_type(whole)}, a part is {_type(part)}; dimension 0 of the whole must be {world.size} "
                         "times the part's, for that many ranks")
