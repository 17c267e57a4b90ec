#pragma once
// Finds where the tokens of a run are, and what its actors wait for, from how often each has fired: by determinacy
// nothing more is needed.
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "plan/firing/firing.h"

namespace sluice::plan {

struct TokenCounts {
  uint64_t written = 0;   // so far, initial tokens among them
  uint64_t acquired = 0;  // slots, for these and for what is being written
  uint64_t freed = 0;     // slots that came back
  int used = 0;           // slots that are not free
  int ready = 0;          // tokens that some reader has yet to take
};

// Per register of the plan, once actor a has fired fired[a] times. Counters of a run that goes on may be a few firings
// apart; then no number is outside of what the register's quota allows.
std::vector<TokenCounts> token_counts(const Plan& plan, const Adjacency& adjacency, std::span<const uint64_t> fired);

// The first message that the next firing of `actor` lacks; none: all are there. `started`: firings of which its start
// credits have come. REQUIRES: `counts` are those of `fired`.
std::optional<FiringRule::Wait> missing_message(const Plan& plan, const Adjacency& adjacency,
                                                std::span<const TokenCounts> counts, std::span<const uint64_t> fired,
                                                int actor, uint64_t started);

}  // namespace sluice::plan
