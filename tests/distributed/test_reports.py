"""Each rank prints what it was asked for."""

from rank_programs import environment, ranks, start  # noqa: F401: fixtures

PROGRAM = """
from sluice import nn
dist.init()
sys.stderr = sys.stdout

class Train(nn.Graph):
    def __init__(self, net, **debug):
        super().__init__(name="train")
        self.net = net
        optimizer = sl.optim.SGD(net.parameters(), lr=0.1)
        self.add_optimizer(optimizer, sl.optim.lr_scheduler.ExponentialLR(optimizer, 0.5, verbose=bool(debug)))
        if debug:
            self.debug(1, **debug)

    def build(self, x):
        loss = self.net(x).sum()
        loss.backward()
        return loss

def run(name, net=None, steps=1, **debug):
    print("begin", name)
    graph = Train(net or nn.Linear(2, 1), **debug)
    for _ in range(steps):
        graph(sl.ones(3, 2))
    graph.synchronize()
"""


def parts(lines):
    """The lines printed by each run()."""
    found = {}
    for line in lines:
        if line.startswith("begin "):
            found[line.split()[1]] = []
        else:
            found[list(found)[-1]].append(line)
    return found


def test_graphs_and_modules_print_on_the_ranks_asked_for(ranks):  # NG-19
    first, second = map(parts, ranks(2, PROGRAM + """
for name, choice in {"default": None, "second": 1, "both": [0, 1], "all": -1}.items():
    run(name, ranks=choice)
net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
net[1].debug(1, ranks=1)
run("module", net)
dist.destroy()
"""))

    def printed(lines):
        return any("[graph train] module net" in line for line in lines)

    assert {name: (printed(first[name]), printed(second[name])) for name in first} == {
        "default": (True, False), "second": (False, True), "both": (True, True), "all": (True, True), "module": (False, True)}
    assert [line.split(":")[0] for line in second["module"]] == ["[graph train] module net.1"]


def test_rank_0_alone_prints_the_learning_rates(ranks):  # LR-14
    first, second = map(parts, ranks(2, PROGRAM + """
run("graph", steps=2, ranks=-1)
dist.destroy()
"""))
    lrs = [line for line in first["graph"] if line.startswith("step ")]
    assert lrs[-2:] == ["step 0: the learning rate of group 0 is 0.1", "step 1: the learning rate of group 0 is 0.05"]
    assert second["graph"] and not any(line.startswith("step ") for line in second["graph"])
