"""A contract of import-linter: no circle of modules that import each other is larger than `largest`."""
from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


def circles(imports: dict[str, set[str]]) -> list[list[str]]:
    """The strongly connected components of more than one module, largest first, by Tarjan's algorithm without recursion."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    path: list[str] = []  # modules whose component is not known yet
    waiting: set[str] = set()
    found = []
    for first in imports:
        if first in number:
            continue
        work = [(first, iter(sorted(imports[first])))]
        number[first] = low[first] = len(number)
        path.append(first)
        waiting.add(first)
        while work:
            module, targets = work[-1]
            for target in targets:
                if target not in number:
                    number[target] = low[target] = len(number)
                    path.append(target)
                    waiting.add(target)
                    work.append((target, iter(sorted(imports[target]))))
                    break
                if target in waiting:
                    low[module] = min(low[module], number[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[module])
                if low[module] == number[module]:
                    at = path.index(module)
                    waiting.difference_update(path[at:])
                    if len(path) - at > 1:
                        found.append(sorted(path[at:]))
                    del path[at:]
    return sorted(found, key=len, reverse=True)


class CirclesContract(Contract):
    type_name = "circles"

    largest = fields.IntegerField()

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        found = circles({module: graph.find_modules_directly_imported_by(module) for module in graph.modules})
        large = [circle for circle in found if len(circle) > self.largest]
        return ContractCheck(kept=not large, metadata={"large": large})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for circle in check.metadata["large"]:
            output.print_error(f"{len(circle)} modules import each other; at most {self.largest}: {', '.join(circle)}")
            output.new_line()
