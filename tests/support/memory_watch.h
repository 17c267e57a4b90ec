#pragma once
// Holds what an engine's allocators count against what the ledger of a plan says, space by space.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "plan/pack/ledger.h"
#include "runtime/session/engine.h"
#include "runtime/session/session.h"

namespace sluice::test {

using SpaceBytes = std::map<std::string, uint64_t>;

// Bytes of a plan's arenas and variables, by its ledger.
inline SpaceBytes ledger_bytes(const plan::Plan& plan, bool arenas, bool variables) {
  SpaceBytes bytes;
  for (const plan::LedgerLine& line : plan::ledger(plan).lines) {
    if (line.kind == plan::LedgerLine::Kind::kArena ? arenas : variables) {
      bytes[plan.spaces[line.space].str()] += line.bytes;
    }
  }
  return bytes;
}

// The memory that an engine's allocators have given since the watch began. REQUIRES: nothing else loads or frees there
// meanwhile.
class MemoryWatch {
 public:
  MemoryWatch(Engine& engine, std::vector<plan::Space> spaces) : engine_(engine), spaces_(std::move(spaces)) {
    for (const plan::Space& space : spaces_) {
      engine.reset_allocator_peak(space);
      before_.push_back(engine.allocator_stats(space).current_bytes);
    }
  }

  // Names where more or less is held now than `expected`; "" when all is as expected.
  std::string held_but_for(const SpaceBytes& expected) const {
    return compare(
        expected, [](const AllocatorStats& stats) { return stats.current_bytes; }, "held");
  }
  // Likewise of the most that was held at any moment.
  std::string peak_but_for(const SpaceBytes& expected) const {
    return compare(
        expected, [](const AllocatorStats& stats) { return stats.peak_bytes; }, "held at the peak");
  }

 private:
  template <class Bytes>
  std::string compare(const SpaceBytes& expected, Bytes bytes, const char* what) const {
    std::string text;
    for (size_t s = 0; s < spaces_.size(); ++s) {
      const auto it = expected.find(spaces_[s].str());
      const uint64_t want = it == expected.end() ? 0 : it->second;
      const auto got = static_cast<int64_t>(bytes(engine_.allocator_stats(spaces_[s])) - before_[s]);
      if (got == static_cast<int64_t>(want)) continue;
      text += fmt::format("memory of {}: {} bytes {}; the ledger says {}\n", spaces_[s].str(), got, what, want);
    }
    return text;
  }

  Engine& engine_;
  std::vector<plan::Space> spaces_;
  std::vector<uint64_t> before_;  // per space
};

// Session::load, watched: it takes the ledger's bytes for arenas and not one more, not even for a moment, and a plan
// that is refused leaves nothing behind. REQUIRES: as MemoryWatch; the plan's devices exist.
inline Session load_counted(Engine& engine, plan::Plan plan, const VariableBindings& variables = {},
                            SessionOptions options = {}) {
  const MemoryWatch watch(engine, plan.spaces);
  try {
    Session session = Session::load(engine, std::move(plan), variables, std::move(options));
    const SpaceBytes arenas = ledger_bytes(session.plan(), true, false);
    EXPECT_EQ(watch.held_but_for(arenas), "") << session.plan().name;
    EXPECT_EQ(watch.peak_but_for(arenas), "") << session.plan().name;
    for (const SessionMemory::Space& space : session.memory().spaces) {
      const auto it = arenas.find(space.name);
      EXPECT_EQ(space.arenas, it == arenas.end() ? 0 : it->second) << session.plan().name << ", " << space.name;
    }
    return session;
  } catch (...) {
    EXPECT_EQ(watch.held_but_for({}), "") << "left by a plan that was refused";
    throw;
  }
}

}  // namespace sluice::test
