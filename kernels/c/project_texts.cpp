#include "kernels/c/project_texts.h"

namespace sluice::c {

// What a Cortex-M does before main(), and what the program says to who debugs it (Arm's semihosting).
const char* const kMachineSource = R"(#include <stdint.h>

extern uint32_t sluice_data_from[], sluice_data_begin[], sluice_data_end[], sluice_bss_begin[], sluice_bss_end[];
extern uint32_t sluice_stack[];
int main(void);
void say(const char* text);

static int debugger(int operation, const void* argument) {
  register int r0 __asm__("r0") = operation;
  register const void* r1 __asm__("r1") = argument;
  __asm__ volatile("bkpt 0xAB" : "+r"(r0) : "r"(r1) : "memory");
  return r0;
}

void say(const char* text) { (void)debugger(0x04, text); }

static void leave(uint32_t status) {
  const uint32_t reason[2] = {0x20026u, status};
  for (;;) (void)debugger(0x20, reason);
}

static void reset(void) {
  const uint32_t* from = sluice_data_from;
  uint32_t* to;
  *(volatile uint32_t*)0xE000ED88u |= 0xFu << 20; /* the unit for floating point */
  __asm__ volatile("dsb\n isb" ::: "memory");
  for (to = sluice_data_begin; to != sluice_data_end; ++to) *to = *from++;
  for (to = sluice_bss_begin; to != sluice_bss_end; ++to) *to = 0;
  leave((uint32_t)main());
}

static void fault(void) {
  say("fault\n");
  leave(3);
}

typedef union {
  void (*function)(void);
  uint32_t* stack;
} Vector;
extern const Vector vectors[16];
__attribute__((section(".vectors"), used)) const Vector vectors[16] = {
    {.stack = sluice_stack}, {reset}, {fault}, {fault}, {fault}, {fault}, {fault}, {fault},
    {fault}, {fault}, {fault}, {fault}, {fault}, {fault}, {fault}, {fault}};
)";

const char* const kCheckSource = R"(/* Runs the steps of vectors.h, and compares every bit of what they give. */
#include <stddef.h>
#include <stdint.h>

#include "@NAME@.h"

void say(const char* text);
#ifdef SLUICE_HOST
#include <stdio.h>
void say(const char* text) { fputs(text, stdout); }
#endif

static void say_number(uint32_t value, uint32_t base) {
  char text[12];
  size_t at = sizeof(text) - 1;
  text[at] = 0;
  do {
    text[--at] = "0123456789abcdef"[value % base];
    value /= base;
  } while (value != 0);
  say(text + at);
}

static int different(size_t step, const char* port, size_t element, uint32_t got, uint32_t expected) {
  say("@NAME@: step ");
  say_number((uint32_t)step, 10);
  say(": ");
  say(port);
  say("[");
  say_number((uint32_t)element, 10);
  say("]: bits 0x");
  say_number(got, 16);
  say("; must be 0x");
  say_number(expected, 16);
  say("\n");
  return 1;
}

#include "vectors.h"

int main(void) {
  size_t step;
  for (step = 0; step < STEPS; ++step) {
    int error;
    give(step);
    error = @NAME@_run();
    if (error != 0) {
      say("@NAME@: ");
      say(@NAME@_error(error));
      say("\n");
      return 2;
    }
    if (compare(step) != 0) return 1;
  }
  say("@NAME@: ");
  say_number((uint32_t)STEPS, 10);
  say(" steps, every bit as in the engine\n");
  return 0;
}
)";

const char* const kRunSource =
    R"(/* Reads the inputs of steps from standard input, one after the other, as they lie in this machine's memory, and writes
   the results of each step to standard output. */
#include <stdio.h>

#include "@NAME@.h"

static int get(void* to, size_t bytes, size_t* read) {
  const size_t some = fread(to, 1, bytes, stdin);
  *read += some;
  return some == bytes;
}

static int put(const void* from, size_t bytes) { return fwrite(from, 1, bytes, stdout) == bytes; }

int main(void) {
  size_t read, step = 0;
  (void)get;
  (void)put;
  for (;; ++step) {
    int error;
    read = 0;
    if (!(@READS@)) break;
    error = @NAME@_run();
    if (error != 0) {
      fprintf(stderr, "@NAME@: step %lu: %s\n", (unsigned long)step, @NAME@_error(error));
      return 2;
    }
    if (!(@WRITES@) || fflush(stdout) != 0) {
      perror("@NAME@: standard output");
      return 1;
    }
  }
  if (read == 0) return 0;
  fprintf(stderr, "@NAME@: step %lu: its inputs end after %lu bytes; must be @INPUT_BYTES@\n", (unsigned long)step,
          (unsigned long)read);
  return 1;
}
)";

const char* const kLinkerScript =
    R"(/* Exactly the machine's memories: what does not fit is an error. `flash` and `table` are where they begin. */
MEMORY {
  TABLE (rx) : ORIGIN = table, LENGTH = 64
  FLASH (rx) : ORIGIN = flash, LENGTH = @FLASH@ - 64
  RAM (rwx) : ORIGIN = 0x20000000, LENGTH = @RAM@
}
ENTRY(vectors)
SECTIONS {
  .vectors : { KEEP(*(.vectors)) } > TABLE
  .text : { *(.text*) *(.rodata*) . = ALIGN(8); } > FLASH
  .ARM.exidx : { *(.ARM.exidx*) } > FLASH
  .data : ALIGN(8) {
    sluice_data_begin = .;
    *(.data*)
    . = ALIGN(8);
    sluice_data_end = .;
  } > RAM AT> FLASH
  sluice_data_from = LOADADDR(.data);
  .bss (NOLOAD) : ALIGN(8) {
    sluice_bss_begin = .;
    *(.bss*) *(COMMON)
    . = ALIGN(8);
    sluice_bss_end = .;
  } > RAM
  .stack (NOLOAD) : ALIGN(8) {
    . += @STACK@;
    sluice_stack = .;
  } > RAM
}
ASSERT(sluice_stack <= ORIGIN(RAM) + LENGTH(RAM), "@NAME@ needs more than @RAM@ bytes of RAM: @NEEDS_RAM@; stack @STACK@")
ASSERT(LOADADDR(.data) + SIZEOF(.data) <= ORIGIN(FLASH) + LENGTH(FLASH), "@NAME@ needs more than @FLASH@ bytes of flash: @NEEDS_FLASH@; the rest is code, and vectors.h")
)";

const char* const kMakefile = R"(# make check       build and run on this machine
# make sanitized   the same under the address and undefined behaviour sanitizers
# make runner      @NAME@-run, a program of its own without a shared library, which reads inputs and writes results
# make library     lib@NAME@.a, to link with a program; both print their size
# make cortex-m4   build for it (also cortex-m7, cortex-m55) and print the size: gcc-arm-none-eabi, libnewlib-arm-none-eabi
# make run-cortex-m4   run that in qemu-system-arm
CC ?= cc
ARM ?= arm-none-eabi-
QEMU ?= qemu-system-arm
OPT ?= -O2
LDSCRIPT ?= memory.ld
CFLAGS ?= -std=c99 $(OPT) -Wall -Wextra -Wconversion -pedantic -Werror
SOURCES := @NAME@.c check.c
FILES := $(SOURCES) @NAME@.h vectors.h

.PHONY: all check sanitized size clean
all: check
check: @NAME@
	./@NAME@
@NAME@: $(FILES)
	$(CC) $(CFLAGS) -DSLUICE_HOST $(SOURCES) -o $@ -lm
sanitized: $(FILES)
	$(CC) $(CFLAGS) -g -DSLUICE_HOST -fsanitize=address,undefined -fno-sanitize-recover=all $(SOURCES) -o @NAME@.sanitized -lm
	./@NAME@.sanitized

.PHONY: runner library
GC := -ffunction-sections -fdata-sections
runner: @NAME@-run
@NAME@-run: @NAME@.c @NAME@.h run.c
	$(CC) $(CFLAGS) $(GC) -static -s -Wl,--gc-sections @NAME@.c run.c -o $@ -lm
	@echo "$@: $$(wc -c < $@) bytes"
library: lib@NAME@.a
lib@NAME@.a: @NAME@.c @NAME@.h
	$(CC) $(CFLAGS) $(GC) -c @NAME@.c -o @NAME@.o
	$(AR) rcs $@ @NAME@.o
	@echo "$@: $$(wc -c < $@) bytes"

cortex-m4_FLAGS := -mcpu=cortex-m4 -mfloat-abi=hard -mfpu=fpv4-sp-d16
cortex-m4_FLASH := 64
cortex-m4_MACHINE := mps2-an386
cortex-m7_FLAGS := -mcpu=cortex-m7 -mfloat-abi=hard -mfpu=fpv5-sp-d16
cortex-m7_FLASH := 64
cortex-m7_MACHINE := mps2-an500
cortex-m55_FLAGS := -mcpu=cortex-m55 -mfloat-abi=hard
cortex-m55_FLASH := 0x01000000
cortex-m55_MACHINE := mps3-an547

define machine
.PHONY: $(1) run-$(1)
$(1): @NAME@.$(1).elf
@NAME@.$(1).elf: $(FILES) machine.c $(LDSCRIPT)
	$(ARM)gcc $$(CFLAGS) -mthumb $$($(1)_FLAGS) -ffunction-sections -fdata-sections -nostartfiles -Wl,--gc-sections \
	  -Wl,--defsym=table=0,--defsym=flash=$$($(1)_FLASH) -Wl,-T,$(LDSCRIPT) $(SOURCES) machine.c -o $$@ -lm
	$(ARM)size $$@
run-$(1): @NAME@.$(1).elf
	$(QEMU) -M $$($(1)_MACHINE) -nographic -semihosting-config enable=on,target=native $(QEMU_FLAGS) -kernel $$< < /dev/null
endef
$(foreach one,cortex-m4 cortex-m7 cortex-m55,$(eval $(call machine,$(one))))

clean:
	rm -f @NAME@ @NAME@-run lib@NAME@.a @NAME@.o @NAME@.sanitized @NAME@.*.elf
)";

const char* const kReadme = R"(# @NAME@

A plan as C, written by Sluice: `@NAME@.c` and `@NAME@.h` are all that a program needs. The other files build and check
it: `machine.c` begins on a Cortex-M, `memory.ld` has exactly the machine's memories, `check.c` runs the steps of
`vectors.h` and compares every bit of what they give. @VECTORS@.

- `make check`: on this machine; `make sanitized`: with every read and write watched.
- `make runner`: `@NAME@-run`, which reads inputs from standard input and writes results to standard output, as bytes;
  `make library`: `lib@NAME@.a`. Both print their size.
- `make cortex-m4`, `cortex-m7`, `cortex-m55`: for these, with the sizes; `make run-cortex-m4`: in qemu.

| | bytes |
|---|---:|
| RAM: values of a step | @MEMORY@ |
| RAM: variables that steps change (flash has what they begin with) | @STATE@ |
| flash: weights that stay | @CONSTANTS@ |
| the machine's RAM | @RAM@ |
| the machine's flash | @FLASH@ |

## Where they go

@TENSORS@)";

}  // namespace sluice::c
