"""The debugger of saved graphs, as sluice.debug has it."""

from __future__ import annotations

from dataclasses import dataclass
from os import fspath, PathLike
from typing import Any, Callable, Mapping, Sequence

from sluice import _C
from sluice._C import Tensor


@dataclass(frozen=True)
class Firing:
    """One firing of an actor: of which step, and which of the actor's firings in that step. `wrote`: (register, slot) of what it has made."""

    actor: str
    step: int
    micro_batch: int = 0
    of: int = 1
    wrote: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Stop:
    """Why a run has stopped: "stepped", "breakpoint" (`firing` is next), "nan" (`firing` has just written it to `slot` of `register`, and
    nobody has read it) or "end". `firings`: how many there were since it went on. `finished`: (step, None or its error) of these."""

    reason: str
    firings: int
    firing: Firing | None = None
    breakpoint: int | None = None
    register: str | None = None
    slot: int | None = None
    element: int | None = None
    value: float | None = None
    finished: tuple[tuple[int, str | None], ...] = ()


@dataclass(frozen=True)
class Slot:
    """The content of a slot of a register: "free", "being written" or "written"; the number of the value; who has yet to read it, and who is
    reading it and has not given it back."""

    state: str
    value: int | None
    to_be_read_by: tuple[str, ...]
    held_by: tuple[str, ...]


@dataclass(frozen=True)
class Register:
    """A register: who makes its values, how many slots it has, and the (name, type) of each tensor in a slot."""

    name: str
    producer: str
    quota: int
    parts: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Actor:
    """How often an actor has fired, whether it may fire now, and if not, what it waits for. `next`: its next firing."""

    name: str
    firings: int
    ready: bool
    waits: tuple[str, ...]
    next: Firing


class Debugger:
    """Runs a saved graph one firing at a time, in the thread that calls: what `plan-viz debug` does.

        with debug.Debugger("out/net", [x], steps=2) as d:
            d.break_at(nan=True)
            stop = d.run()                    # nobody has read the NaN yet
            print(stop.firing.actor, d.look(stop.register))
            d.change(stop.register, sl.zeros(4))
            d.run()
            y, = d.results()

    path: of a bundle. inputs: tensors in the plan's order, or by name; each of `steps` steps gets them, and submit() adds others. functions:
    what saved graphs call in Python, by name. seed: it chooses who fires next; without one, the oldest step goes first.
    """

    def __init__(self, path: str | PathLike[str], inputs: Sequence[Tensor] | Mapping[str, Tensor] = (), steps: int = 1, *,
                 functions: Mapping[str, Callable[..., Any]] | None = None, cores: int = 0, seed: int | None = None) -> None:
        self._held: Any = _C.Debugger(fspath(path), dict(functions or {}), cores, seed)
        if steps:
            self.submit(inputs, steps)

    @property
    def _own(self) -> Any:
        if self._held is None:
            raise _C.RuntimeError("Debugger: it is closed; make another one")
        return self._held

    def submit(self, inputs: Sequence[Tensor] | Mapping[str, Tensor] = (), steps: int = 1) -> None:
        """More steps, which begin as soon as there is room."""
        if steps < 1:
            raise ValueError(f"Debugger: steps: got {steps}; must be at least 1")
        names = self._own.inputs()
        if isinstance(inputs, Mapping):
            if sorted(inputs) != sorted(names):
                raise ValueError(f"Debugger: inputs: got {', '.join(inputs)}; the plan takes {', '.join(names) or 'none'}")
            inputs = [inputs[name] for name in names]
        self._own.submit(list(inputs), steps)

    def break_at(self, actor: str | None = None, *, step: int | None = None, micro_batch: int | None = None, nan: bool = False,
                 register: str | None = None) -> int:
        """Stops before `actor` (None: anybody) fires, of `step`, and there of `micro_batch`; or, with nan, when a firing has written a NaN
        or an infinity to a register (to `register`), before anybody reads it. Returns the breakpoint's number."""
        if register is not None and not nan:
            raise ValueError(f"Debugger.break_at: register '{register}' without nan=True; who writes it is an actor: break_at(actor)")
        if (step or 0) < 0 or (micro_batch or 0) < 0:
            raise ValueError(f"Debugger.break_at: step {step}, micro-batch {micro_batch}; they count from 0")
        if actor is None and step is None and micro_batch is None and not nan:
            raise ValueError("Debugger.break_at: where? Give an actor, a step, a micro-batch or nan=True")
        return int(self._own.add(actor, step, micro_batch, nan, register))

    def remove(self, breakpoint: int) -> None:  # noqa: A002 as break_at() has called it
        self._own.remove(breakpoint)

    def step(self) -> Stop:
        """One message: one firing."""
        return _stop(self._own.step())

    def run(self) -> Stop:
        """Goes on until a breakpoint, or the end."""
        return _stop(self._own.run())

    def look(self, register: str, slot: int | None = None, part: int = 0) -> Tensor:
        """A copy of the value in a slot; of the newest one where none is named."""
        value: Tensor = self._own.look(register, -1 if slot is None else slot, part)
        return value

    def change(self, register: str, value: Tensor, slot: int | None = None, part: int = 0) -> None:
        """Another value in its place, of the same shape and dtype: whoever reads it from now on sees this one."""
        self._own.change(register, value, -1 if slot is None else slot, part)

    def slots(self, register: str) -> list[Slot]:
        return [Slot(**slot) for slot in self._own.slots(register)]

    def actors(self) -> list[Actor]:
        return [Actor(a["actor"], a["firings"], a["ready"], a["waits"], Firing(a["actor"], a["step"], a["micro_batch"], a["of"]))
                for a in self._own.actors()]

    def registers(self) -> list[Register]:
        return [Register(*register) for register in self._own.registers()]

    def results(self) -> list[Tensor]:
        """The results of the last step that is finished; none before."""
        return list(self._own.results())

    def steps_left(self) -> int:
        return int(self._own.steps_left())

    def close(self) -> None:
        """Gives up what is not finished, and lets go of all memory."""
        self._held = None

    def __enter__(self) -> Debugger:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _stop(told: dict[str, Any]) -> Stop:
    if "firing" in told:
        told["firing"] = Firing(**told["firing"])
    return Stop(**told)
