#include "tools/plan_viz/kernels_here.h"

#include <fmt/ranges.h>

#include <cstdlib>
#include <memory>

#include "kernels/guarded_kernel.h"
#include "kernels/kernel.h"
#include "kernels/kernel_cache.h"
#include "kernels/libraries.h"
#include "plan/query.h"
#include "runtime/session/engine.h"

namespace sluice::plan_viz {
namespace {

using Facts = std::vector<std::pair<std::string, std::string>>;

std::string instructions_here() {
  std::string text;
  for (const InstructionSet& set : cpu_instruction_sets())
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", set.part, set.name);
  const char* const limit = std::getenv("SLUICE_MAX_ISA");
  return text + (limit == nullptr ? ": the best that the processor has"
                                  : fmt::format(": the best that it has and SLUICE_MAX_ISA={} allows", limit));
}

// The implementation that computes the kernel, and the others that could.
void add_implementation(Engine& engine, const plan::Plan& plan, const plan::Kernel& kernel, const plan::Stream& stream,
                        Facts& facts) {
  const KernelDef& def = engine.kernels().get(kernel.op, stream.device.kind);
  if (!def.function.empty()) {
    facts.emplace_back("computed by", "a function of the program");
    return;
  }
  const plan::KernelQuery query = plan::query_of(plan, kernel, stream);
  const std::shared_ptr<const PreparedKernel> made = engine.kernel_cache().get(query);
  const auto* const named = dynamic_cast<const cpu::OfImplementation*>(made.get());
  const PrepareContext context{.threads = stream.cores, .functions = nullptr, .kernels = &engine.kernels()};
  std::vector<std::string> all;
  if (def.implementations) all = def.implementations(query, context);
  std::string text = named != nullptr ? named->implementation() : *made->library() != '\0' ? made->library() : "";
  if (all.size() > 1) text += fmt::format("{}of {}", text.empty() ? "" : ", ", fmt::join(all, ", "));
  if (!text.empty()) facts.emplace_back("computed by", text);
}

}  // namespace

Facts kernel_here(const plan::Plan& plan, int kernel) {
  const int s = plan::streams_of_kernels(plan)[kernel];
  const plan::Kernel& k = plan.kernels[kernel];
  if (s < 0 || k.collective >= 0) return {};
  const plan::Stream& stream = plan.streams[s];
  Engine engine(EngineOptions{.cores = stream.cores, .manual_stepping = true});
  std::vector<std::string> kinds;
  for (const DeviceKind kind : {DeviceKind::kCpu, DeviceKind::kSim})
    if (engine.kernels().find(k.op, kind) != nullptr) kinds.push_back(kind.str());
  Facts facts;
  if (!kinds.empty()) facts.emplace_back("kernels here", fmt::format("for {}", fmt::join(kinds, ", ")));
  if (stream.device.kind != DeviceKind::kCpu) return facts;
  try {
    add_implementation(engine, plan, k, stream, facts);
    facts.emplace_back("instructions", instructions_here());
  } catch (const Error& error) {  // the plan is of another machine, or needs an extension
    facts.emplace_back("computed by", std::string("nothing here: ") + error.what());
  }
  return facts;
}

}  // namespace sluice::plan_viz
