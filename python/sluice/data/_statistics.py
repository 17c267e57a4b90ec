"""The memory that stages of a pipeline were given, and how much of it they have used: DALI's executor_statistics."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

from sluice import _C

_meters = itertools.count(1)
_LEAST_DECODER = 1 << 20


def new_meter() -> int:
    """A number under which a stage counts what its images take."""
    return next(_meters)


@dataclasses.dataclass(frozen=True)
class StageUse:
    """A stage's memory, or a limit: what is set aside, or allowed, the most that was used, and what to do about it. More than a limit
    can have been used: that was refused. `memory`: it is a part of Pipeline.memory(), which all such parts make up."""

    stage: str
    what: str
    reserved: int
    used: int
    hint: str = ""
    unit: str = "bytes"
    memory: bool = False


class Statistics(tuple[StageUse, ...]):
    """A line for each part of memory of each stage, which str() puts into a table."""

    def __str__(self) -> str:
        rows = [("stage", "what", "reserved", "most used", "hint")]
        rows += [(r.stage, r.what, _told(r.reserved, r.unit), _told(r.used, r.unit), r.hint) for r in self]
        widths = [max(len(row[k]) for row in rows) for k in range(4)]
        return "\n".join("  ".join([f"{row[0]:<{widths[0]}}", f"{row[1]:<{widths[1]}}", f"{row[2]:>{widths[2]}}", f"{row[3]:>{widths[3]}}",
                                    row[4]]).rstrip() for row in rows)


def _told(count: int, unit: str) -> str:
    if unit != "bytes":
        return f"{count:,} {unit}"
    for size, name in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count >= 1 << size:
            return f"{count / (1 << size):.1f} {name}"
    return f"{count} B"


def _rounded(count: int, least: int = 1) -> int:
    """The next power of two that leaves a quarter to spare."""
    return max(least, 1 << max(int(count * 1.25) - 1, 0).bit_length())


def _limit(stage: str, what: str, name: str, limit: int, used: int, unit: str = "bytes", least: int = 1, copies: int = 1) -> StageUse:
    """A limit that decode() has been given, of which there are `copies`."""
    wanted, hint = _rounded(used, least), ""
    if used > limit:
        hint = f"raise: an image was refused; decode({name}={wanted}) would take it"
    elif used and wanted <= limit // 2 and copies * (limit - wanted) >= _LEAST_DECODER:
        hint = f"lower: decode({name}={wanted}) would do"
    return StageUse(stage, what, copies * limit, copies * used, hint, unit, memory=name == "max_decoder_bytes")


def of_registers(plan: Any, counters: Any) -> list[StageUse]:
    """The slots between the actors of a plan."""
    peaks, found = {r["name"]: r["peak"] for r in counters["registers"]}, []
    for register in plan["registers"]:
        if not register["bytes"]:
            continue
        quota, peak = register["quota"], min(peaks.get(register["name"], 0), register["quota"])
        hint = f"lower: {peak} of {quota} slots were used at once" if 0 < peak < quota else ""
        found.append(StageUse(register["name"], "slots", quota * register["bytes"], peak * register["bytes"], hint, memory=True))
    return found


def of_images(limits: dict[str, int], meter: int, cores: int) -> list[StageUse]:
    """The decoders of a stage, and what files may be."""
    use = _C.image_use(meter)
    most = use["decoder_bytes"]
    return [_limit("decode", "decoders", "max_decoder_bytes", limits["max_decoder_bytes"], most, least=_LEAST_DECODER, copies=cores),
            _limit("decode", "largest file", "max_bytes", limits["max_bytes"], use["file_bytes"]),
            _limit("decode", "largest image", "max_pixels", limits["max_pixels"], use["pixels"], "pixels")]


def of_padding(most: int, longest: int, slot: int) -> StageUse:
    """The rows of padded_batch(), of which a slot has `most`."""
    hint = f"lower: padded_batch(most={longest}) would do" if 0 < longest < most else ""
    return StageUse("padded_batch", "rows of a slot", slot, slot * longest // most, hint)
