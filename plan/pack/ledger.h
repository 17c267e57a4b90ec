#pragma once
// Every byte of a plan per memory space, before the first step. Each arena, variable and packed copy is one block, its
// size rounded up to kAlignment; these are the bytes the allocator will count.
#include <cstdint>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace sluice::plan {

struct LedgerLine {
  enum class Kind : uint8_t { kArena, kVariable, kConstant, kPacked };
  Kind kind = Kind::kArena;
  int index = 0;  // of the arena, variable or packed copy
  int space = 0;
  uint64_t bytes = 0;   // rounded up
  bool shared = false;  // a variable of shared_variables(), or a packed copy of one
};

struct Ledger {
  std::vector<LedgerLine> lines;
  std::vector<uint64_t> space_bytes;  // per space of the plan
  uint64_t arenas = 0, variables = 0, constants = 0, packed = 0;
  uint64_t shared = 0;  // of the total: what sessions of one engine hold once
  // The purposes of the arenas' buffers; they share bytes, so these may add up to more than the arenas.
  uint64_t register_slots = 0, workspaces = 0, intermediates = 0;
  uint64_t total = 0;
};

Ledger ledger(const Plan& plan);

// The name of a line's arena, variable or packed copy; of its kind: "arena", "variable", "constant", "packed".
const std::string& line_name(const Plan& plan, const LedgerLine& line);
const char* line_kind_name(LedgerLine::Kind kind);
// Why there is such a line, where it is not plain: "for kernel 'conv', in blocks..."; else "".
std::string line_note(const Plan& plan, const LedgerLine& line);

// Per arena: a step reads what an earlier step has left there. The content of the other arenas between steps matters to
// nobody.
// REQUIRES: structure and rates hold.
std::vector<bool> arenas_with_state(const Plan& plan);

// Which variables, with their packed copies, sessions of one engine hold once: those of the host that no kernel writes.
std::vector<bool> shared_variables(const Plan& plan);

// Throws kMemory when the plan needs more than `budget` bytes: names the largest registers and the smallest budget
// that works. 0 = no budget.
void check_budget(const Plan& plan, uint64_t budget);

// The registers whose slots take most, for messages: "'x' (2 slots of 1.0 MiB (1048576 bytes)), ...", at most three.
std::string largest_registers(const Plan& plan);

// "1.5 MiB (1572864 bytes)", "640 bytes".
std::string bytes_str(uint64_t bytes);

}  // namespace sluice::plan
