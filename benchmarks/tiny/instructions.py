"""Instructions of a step on a Cortex-M in qemu, which counts them: its clock goes on by a nanosecond for each (-icount shift=0)."""
from __future__ import annotations

import pathlib
import re
import shutil
import subprocess

CLOCK = 25_000_000  # of the boards mps2-an386 and mps2-an500, in Hz: a tick of the processor's timer is 40 instructions
PROGRAMS = ("arm-none-eabi-gcc", "qemu-system-arm")

# Runs the steps of vectors.h; the timer counts down, 24 bits of it, which no step may outlast.
SOURCE = """#include <stddef.h>
#include <stdint.h>
#include "@NAME@.h"
void say(const char* text);
static int different(size_t step, const char* port, size_t element, uint32_t got, uint32_t expected) {
  (void)step, (void)port, (void)element, (void)got, (void)expected;
  return 1;
}
#include "vectors.h"
#define TIMER(at) (*(volatile uint32_t*)(0xE000E010u + (at)))
int main(void) {
  uint32_t ticks = 0;
  size_t step, at = 10;
  char text[12] = {0};
  TIMER(4) = 0xFFFFFFu;
  for (step = 0; step < STEPS; ++step) {
    give(step);
    TIMER(8) = 0;
    TIMER(0) = 5;
    if (@NAME@_run() != 0) return 2;
    if ((TIMER(0) >> 16 & 1u) != 0) return 3; /* it has gone round */
    ticks += 0xFFFFFFu - TIMER(8);
    TIMER(0) = 0;
    if (compare(step) != 0) return 1;
  }
  do text[at--] = (char)('0' + ticks % 10); while ((ticks /= 10) != 0);
  say("ticks ");
  say(text + at + 1);
  say("\\n");
  return 0;
}
"""


def available() -> bool:
    return all(shutil.which(program) for program in PROGRAMS)


def of_a_step(folder: str, name: str, core: str = "cortex-m4", options: str = "-O2") -> float:
    """The mean of the known steps of a folder of sluice.tiny.export(). Their results are compared, too."""
    path = pathlib.Path(folder)
    steps = int(re.search(r"#define STEPS (\d+)", (path / "vectors.h").read_text())[1])
    (path / "count.c").write_text(SOURCE.replace("@NAME@", name))
    words = ["make", "-s", "-B", "-C", folder, f"run-{core}", f"SOURCES={name}.c count.c", f"CFLAGS=-std=c99 {options}",
             "QEMU_FLAGS=-icount shift=0"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600)
    found = re.search(r"ticks (\d+)", done.stdout + done.stderr)
    if done.returncode != 0 or found is None:
        raise RuntimeError(f"{' '.join(words)}: status {done.returncode}: {done.stdout}{done.stderr}")
    return int(found[1]) * (1e9 / CLOCK) / steps
