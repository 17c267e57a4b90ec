#pragma once
// The data of the page, in the form that page/src/wire.ts reads: columns of numbers, and texts that are kept once.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "plan/plan.h"
#include "tools/plan_viz/views.h"

namespace sluice::plan_viz {

// Files of the page's folder as the build has made them; empty where there was no esbuild.
extern const char* const kPageTemplate;
extern const char* const kPageStyle;
extern const char* const kPageScript;

// Texts that many entities share: each is written once, and columns have its number.
class Strings {
 public:
  int64_t number(const std::string& text);
  std::string json() const;

 private:
  std::map<std::string, int64_t> numbers_;
  std::vector<const std::string*> texts_;
};

// "[1,2,3]".
std::string plain(const std::vector<int64_t>& numbers);
// A list whose length its reader does not know: the numbers, or, where that is shorter, the first one, their count, and
// how much more each is than the one before it, which is one number where it is always the same.
std::string counted(const std::vector<int64_t>& numbers);
// The same; a column whose numbers are all the same is that number, of which its reader knows how many there are.
std::string column(const std::vector<int64_t>& numbers);

// A run of the plan: firings in the order of their begin, each with its kernels in order.
struct RunSpan {
  int kernel = 0;
  int64_t begin_ns = 0, end_ns = 0;
  int64_t met_ns = 0;  // of a collective: when all ranks had come
  int kernels = 1;     // from `kernel` on, as one
};
struct RunFiring {
  int actor = 0;
  uint64_t number = 0;  // of its actor; of a server's run: the step
  int64_t begin_ns = 0, end_ns = 0;
  int lane = 0;       // its stream; further instances of a plan have streams of their own behind those of the first
  int step = -1;      // of a server's run: its step of ServedTrace
  uint64_t item = 0;  // which step of the plan it is of
  std::vector<RunSpan> spans = {};
};
struct Run {
  std::string name;
  bool measured = false;
  int instances = 1;
  int64_t total_ns = 0;
  std::vector<RunFiring> firings;
  std::string more;  // further fields of its JSON
};
Run simulated_run(const plan::Plan& plan, const plan::Simulation& simulation);
// REQUIRES: `plan` has the recording's actors and kernels, by name.
Run recorded_run(const plan::Plan& plan, const plan::Recording& recording);
Run served_run(const plan::Plan& plan, const ServedTrace& served);
// `panels`: what panels_json() of summary.h says of it.
std::string run_json(const plan::Plan& plan, const Run& run, const std::string& panels);

// The plan as the page draws it, and its runs: the forecast of a few steps, and what was recorded or served.
struct Drawn {
  plan::Plan plan;
  plan::Simulation sim;
  std::vector<plan::DeviceUse> uses;
  bool costs = false;             // the plan predicts some; else every kernel is drawn with the same
  std::vector<int64_t> critical;  // actors of the cycle that limits the plan
  std::vector<Run> runs;
};
// A plan that is refused is drawn without its lanes: it may not even have a period.
Drawn drawn(const Page& page, bool refused);

}  // namespace sluice::plan_viz
