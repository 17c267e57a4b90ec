// Stages of a pipeline. While the micro-batches of a step run through stages on different streams, a stage works on
// several: it has begun those that the stages behind it have not finished. How many it may begin is the number of
// initial tokens from the last actor of its stream to the first, and what it keeps of each is as many slots. Which of
// them it works on next is nobody's decision: one backward for one forward follows once the tokens are used up. A
// micro-batch begins where its forward pass is: where only gradients of a stage's modules are made, it is begun and
// finished in one go.
#include <algorithm>

#include "base/log.h"
#include "compiler/planning/planning.h"

namespace sluice::compiler {
namespace {

// The stage of the innermost module that has one, or -1.
int stage_of(const std::string& module, const std::map<std::string, int>& stages) {
  for (std::string name = module;;) {
    if (const auto found = stages.find(name); found != stages.end()) return found->second;
    const size_t end = name.find_last_of("./");
    if (end == std::string::npos) return -1;
    name.resize(end);
  }
}

// A variable that each micro-batch changes would be read by a later one before an earlier one has written it.
void check_depth(int stream, int stage, const graph::Graph& graph, const Lowered& lowered, const ActorSet& actors) {
  for (size_t v = 0; v < lowered.writer.size(); ++v) {
    const int write = lowered.writer[v];
    if (write < 0 || lowered.tasks[write].every != 1 || actors.stream_of[write] != stream) continue;
    for (size_t t = 0; t < lowered.tasks.size(); ++t) {
      const Task& task = lowered.tasks[t];
      const bool reads = std::any_of(task.inputs.begin(), task.inputs.end(), [&](const Operand& in) {
        return in.store == lowered.variable_store[v] && actors.stream_of[t] == stream;
      });
      if (!reads || actors.actor_of[t] == actors.actor_of[write]) continue;
      fail(
          ErrorKind::kUnsupported,
          "stage {} on {}: '{}' changes in every micro-batch and is read by '{}', which several of them come to first; "
          "give the module no stage_id",
          stage, actors.streams[stream].name, graph.variables()[v].name, task.name);
    }
  }
}

}  // namespace

Stages find_stages(const graph::Graph& graph, const Lowered& lowered, const ActorSet& actors,
                   const CompileOptions& options) {
  Stages found;
  found.depth.assign(actors.streams.size(), 1);
  int stages = 0;
  for (const auto& [module, stage] : options.stages) stages = std::max(stages, stage + 1);
  found.any = stages > 0 && actors.batches > 1;
  if (stages > 0 && !found.any) {
    log(LogLevel::kWarn, LogArea::kCompiler,
        "plan '{}': its stages change nothing: a step is one micro-batch; set_gradient_accumulation_steps(n) makes it "
        "n",
        options.name);
  }
  if (!found.any) return found;
  std::vector<int> first(actors.streams.size(), stages);  // of a stream's stages
  for (size_t t = 0; t < lowered.tasks.size(); ++t) {
    const Task& task = lowered.tasks[t];
    if (task.every != 1 || task.role == Role::kBackward || task.role == Role::kUpdate) continue;
    const int stage = stage_of(task.module, options.stages);
    if (stage >= 0) first[actors.stream_of[t]] = std::min(first[actors.stream_of[t]], stage);
  }
  for (size_t s = 0; s < first.size(); ++s) {
    found.depth[s] = std::max(1, std::min(stages - first[s], actors.batches));
    if (found.depth[s] > 1) check_depth(static_cast<int>(s), first[s], graph, lowered, actors);
  }
  return found;
}

}  // namespace sluice::compiler
