#pragma once
// Where the time of a recorded run went, and who was to blame for the waits.
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "plan/record/timeline.h"

namespace sluice::plan {

enum class BlameBy : uint8_t { kActor, kStream, kModule, kLine, kRole };
inline constexpr const char* kBlameBy[] = {"actor", "stream", "module", "line", "role"};

struct BlameWait {
  Spent spent = Spent::kInput;
  int who = -1;  // as in Segment
  int64_t ns = 0;
};
struct BlameRow {
  std::string name;
  int64_t total_ns = 0;  // the sum of the next, exactly; of an actor, the time that was recorded
  std::array<int64_t, kSpent> ns{};
  std::vector<BlameWait> waits;  // for input, credit and its stream, by whom; the longest first
};

// Rows by actor, in the plan's order; by anything else, the longest runs first. A kernel's time counts where the kernel
// belongs, the waits of its actor where the longest of the actor's kernels does.
std::vector<BlameRow> blame_of(const Plan& plan, const Timeline& timeline, BlameBy by);

// Who kept an actor waiting in the end: what the actor that it waited for did meanwhile, and so on. The longest first;
// together they are the time that the actor waited for input and credit.
struct BlameRoot {
  int actor = -1;  // -1: the program, which submits steps
  Spent spent = Spent::kRun;
  int64_t ns = 0;
};
std::vector<BlameRoot> roots_of(const Plan& plan, const Timeline& timeline, int actor);

// The actor that makes what the sink hands out: of those next to a sink with kernels, the busiest; -1: there is none.
int last_actor(const Plan& plan, const std::vector<BlameRow>& by_actor);

// "12.5 ms recorded; 'net' ran 38.0 % of it and waited 60.1 % for input and slots: 'prepare' ran 58.0 %, ...".
std::string headline_str(const Plan& plan, const Timeline& timeline, const std::vector<BlameRow>& by_actor);
// That, and a line for each of the busiest actors.
std::string summary_str(const Recording& recording);
std::string wait_str(const Plan& plan, const BlameWait& wait);  // "input 'images' of 'prepare'"
std::string root_str(const Plan& plan, const BlameRoot& root);  // "'prepare' ran"

}  // namespace sluice::plan
