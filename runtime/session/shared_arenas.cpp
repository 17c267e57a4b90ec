#include "runtime/session/shared_arenas.h"

#include <algorithm>
#include <cstring>

#include "plan/pack/ledger.h"
#include "runtime/session/engine.h"

namespace sluice {

std::shared_ptr<Storage> allocate_for(Engine& engine, const plan::Plan& plan, const plan::Space& space,
                                      uint64_t bytes) {
  try {
    auto storage = std::make_shared<Storage>(engine.allocator(space), bytes, space);
    // Touching host memory now also keeps the process from growing later.
    if (space.kind != plan::SpaceKind::kDevice) std::memset(storage->data(), 0, bytes);
    return storage;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kMemory) throw;
    const std::string blame = plan::largest_registers(plan);
    const plan::Ledger needs = plan::ledger(plan);
    std::string parts;
    for (const auto& [part, of_part] : {std::pair{"arenas", needs.arenas},
                                        {"variables", needs.variables},
                                        {"constants", needs.constants},
                                        {"packed copies", needs.packed}})
      if (of_part > 0) parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", part, plan::bytes_str(of_part));
    fail(ErrorKind::kMemory, "plan '{}': {}; it needs {} in all: {}{}{}", plan.name, error.what(),
         plan::bytes_str(needs.total), parts, blame.empty() ? "" : "; largest registers: ", blame);
  }
}

void SharedArenas::reserve(const plan::Plan& plan) { place(plan); }

std::vector<SharedArenas::Place> SharedArenas::place(const plan::Plan& plan) {
  const std::vector<bool> own = plan::arenas_with_state(plan);
  std::vector<Place> places(plan.arenas.size());
  std::vector<uint64_t> needed(plan.spaces.size());
  for (size_t a = 0; a < plan.arenas.size(); ++a) {
    const plan::Arena& arena = plan.arenas[a];
    if (own[a]) continue;
    places[a].offset = needed[arena.space];
    needed[arena.space] = checked_add(needed[arena.space], align_up(arena.bytes, plan::kAlignment));
  }
  const MutexLock lock(mutex_);
  for (size_t a = 0; a < plan.arenas.size(); ++a) {
    const int space = plan.arenas[a].space;
    if (!own[a]) places[a].block = block(plan, plan.spaces[space], needed[space]);
  }
  return places;
}

std::shared_ptr<Storage>& SharedArenas::block(const plan::Plan& plan, const plan::Space& space, uint64_t bytes) {
  const auto known = std::find_if(blocks_.begin(), blocks_.end(),
                                  [&](const auto& block) { return block != nullptr && block->space() == space; });
  if (known != blocks_.end() && (*known)->bytes() >= bytes) return *known;
  // A block that no session has goes first, so that the two never exist at the same time without need.
  if (known != blocks_.end()) blocks_.erase(known);
  return blocks_.emplace_back(allocate_for(engine_, plan, space, bytes));
}

uint64_t SharedArenas::bytes(const plan::Space& space) const {
  const MutexLock lock(mutex_);
  for (const auto& block : blocks_) {
    if (block->space() == space) return block->bytes();
  }
  return 0;
}

}  // namespace sluice
