// Stages of a pipeline. While the micro-batches of a step run through stages on different streams, a stage works on
// several: it has begun those that the stages behind it have not finished. How many it may begin is the number of
// initial tokens from the last actor of its stream to the first, and what it keeps of each is as many slots. Which of
// them it works on next is nobody's decision: one backward for one forward follows once the tokens are used up.
#include <algorithm>

#include "base/log.h"
#include "compiler/plan_builder.h"

namespace sluice::compiler {

// Of the innermost module that has one, or -1.
int PlanBuilder::stage_of(const std::string& module) const {
  for (std::string name = module;;) {
    if (const auto found = options_.stages.find(name); found != options_.stages.end()) return found->second;
    const size_t end = name.find_last_of("./");
    if (end == std::string::npos) return -1;
    name.resize(end);
  }
}

void PlanBuilder::find_stages() {
  depth_.assign(plan_.streams.size(), 1);
  int stages = 0;
  for (const auto& [module, stage] : options_.stages) stages = std::max(stages, stage + 1);
  staged_ = stages > 0 && batches_ > 1;
  if (stages > 0 && !staged_) {
    log(LogLevel::kWarn, LogArea::kCompiler,
        "plan '{}': its stages change nothing: a step is one micro-batch; set_gradient_accumulation_steps(n) makes it "
        "n",
        options_.name);
  }
  if (!staged_) return;
  for (const Task& task : lowered_.tasks) {
    const int stage = task.every == 1 ? stage_of(task.module) : -1;
    if (stage < 0) continue;
    int& depth = depth_[stream_map_[task.stream]];
    depth = std::max(depth, std::min(stages - stage, batches_));
  }
  for (size_t s = 0; s < depth_.size(); ++s)
    if (depth_[s] > 1) check_depth(static_cast<int>(s));
}

// A variable that each micro-batch changes would be read by a later one before an earlier one has written it.
void PlanBuilder::check_depth(int stream) const {
  for (size_t v = 0; v < lowered_.writer.size(); ++v) {
    const int write = lowered_.writer[v];
    if (write < 0 || lowered_.tasks[write].every != 1 || stream_map_[lowered_.tasks[write].stream] != stream) continue;
    for (const Task& task : lowered_.tasks) {
      const bool reads = std::any_of(task.inputs.begin(), task.inputs.end(), [&](const Operand& in) {
        return in.store == lowered_.variable_store[v] && stream_map_[task.stream] == stream;
      });
      if (!reads || actor_of_task(static_cast<int>(&task - lowered_.tasks.data())) == actor_of_task(write)) continue;
      fail(
          ErrorKind::kUnsupported,
          "stage {} on {}: '{}' changes in every micro-batch and is read by '{}', which several of them come to first; "
          "give the module no stage_id",
          stage_of(task.module), plan_.streams[stream].name, graph_.variables()[v].name, task.name);
    }
  }
}

}  // namespace sluice::compiler
