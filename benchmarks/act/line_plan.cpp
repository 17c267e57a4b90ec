#include "act/line_plan.h"

namespace sluice::bench {
namespace {

int add_kernel(plan::Plan& plan, const char* op, int actor) {
  plan::Kernel kernel;
  kernel.name = fmt::format("{}{}", op, actor);
  kernel.op = op;
  kernel.attrs = {{"actor", int64_t{actor}}};
  plan.kernels.push_back(std::move(kernel));
  return static_cast<int>(plan.kernels.size()) - 1;
}

}  // namespace

plan::Plan line_plan(const LineOptions& options) {
  plan::Plan plan;
  plan.name = "line";
  for (int i = 0; i < options.streams; ++i) {
    plan::Stream stream;
    stream.name = fmt::format("cpu:0/compute{}", i);
    stream.index = i;
    plan.streams.push_back(stream);
  }
  if (options.one_firing) {
    plan::Actor actor;
    actor.name = "actor";
    actor.role = plan::ActorRole::kSource;
    for (int i = 0; i < options.actors; ++i)
      actor.program.push_back({plan::InstrKind::kRun, add_kernel(plan, "idle", i)});
    plan.actors.push_back(actor);
    plan.certificate.push_back(0);
    return plan;
  }
  for (int i = 0; i < options.actors; ++i) {
    const bool first = i == 0, last = i + 1 == options.actors;
    plan::Actor actor;
    actor.name = fmt::format("actor{}", i);
    actor.stream =
        options.neighbours ? static_cast<int>(int64_t{i} * options.streams / options.actors) : i % options.streams;
    actor.role = first ? plan::ActorRole::kSource : plan::ActorRole::kNormal;
    if (options.stamps || options.idle)
      actor.program.push_back({plan::InstrKind::kRun, add_kernel(plan, options.stamps ? "stamp" : "idle", i)});
    if (!last) {
      actor.program.push_back({plan::InstrKind::kEmit, i});
      plan::Register reg;
      reg.name = fmt::format("token{}", i);
      reg.producer = i;
      reg.quota = options.quota;
      plan.registers.push_back(reg);
      plan::Edge edge;
      edge.reg = i;
      edge.consumer = i + 1;
      plan.edges.push_back(edge);
    }
    if (!first) actor.program.push_back({plan::InstrKind::kRelease, i - 1});
    plan.actors.push_back(actor);
    plan.certificate.push_back(i);
  }
  return plan;
}

}  // namespace sluice::bench
