"""A step as a C program on this machine's one core, and the same step in torch: time, and memory of the process."""
from __future__ import annotations

import json
import pathlib
import subprocess
import sys

# Repeats the first step of vectors.h, and says nanoseconds and KiB.
SOURCE = """#define _POSIX_C_SOURCE 200809L
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "@NAME@.h"
static int different(size_t step, const char* port, size_t element, uint32_t got, uint32_t expected) {
  (void)step, (void)port, (void)element, (void)got, (void)expected;
  return 1;
}
#include "vectors.h"
static long largest_kib(void) {  /* of this program: getrusage() counts what its process was before, too */
  char line[256];
  long kib = 0;
  FILE* status = fopen("/proc/self/status", "r");
  while (status != NULL && fgets(line, sizeof(line), status) != NULL)
    if (sscanf(line, "VmHWM: %ld", &kib) == 1) break;
  if (status != NULL) fclose(status);
  return kib;
}
int main(int argc, char** argv) {
  const long count = argc > 1 ? atol(argv[1]) : 1;
  struct timespec begin, end;
  long i;
  give(0);
  if (@NAME@_run() != 0 || compare(0) != 0) return 1;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  for (i = 0; i < count; ++i) {
    give(0);
    if (@NAME@_run() != 0) return 2;
  }
  clock_gettime(CLOCK_MONOTONIC, &end);
  printf("%.1f %ld\\n", ((double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec)) / (double)count, largest_kib());
  return 0;
}
"""

TORCH = """
import json, re, sys, time
import torch
torch.set_num_threads(1)
count = int(sys.argv[1])
nn = torch.nn
layer = lambda i, o: [nn.Conv2d(i, o, 3, 2, 1), nn.ReLU()]
net = nn.Sequential(*layer(1, 8), *layer(8, 16), *layer(16, 32), nn.Flatten(), nn.Linear(512, 10))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
x, y = torch.rand(1, 1, 32, 32), torch.tensor([3])
def step():
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(x), y).backward()
    optimizer.step()
for _ in range(20):
    step()
begin = time.perf_counter_ns()
for _ in range(count):
    step()
print(json.dumps([(time.perf_counter_ns() - begin) / count, int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])]))
"""


def build(folder: str, name: str) -> list[str]:
    """The words of a program that is made of a folder of sluice.tiny.export()."""
    path = pathlib.Path(folder)
    (path / "time.c").write_text(SOURCE.replace("@NAME@", name))
    subprocess.run(["cc", "-std=c99", "-O3", "-march=native", f"{name}.c", "time.c", "-o", "timed", "-lm"], cwd=path, check=True)
    return [str(path / "timed")]


def of_c(program: list[str], count: int) -> tuple[float, float]:
    """Nanoseconds of a step, and KiB of the process."""
    done = subprocess.run([*program, str(count)], capture_output=True, text=True, check=True)
    nanoseconds, kib = done.stdout.split()
    return float(nanoseconds), float(kib)


def of_torch(count: int) -> tuple[float, float]:
    done = subprocess.run([sys.executable, "-c", TORCH, str(count)], capture_output=True, text=True, check=True)
    nanoseconds, kib = json.loads(done.stdout)
    return nanoseconds, kib
