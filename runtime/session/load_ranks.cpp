#include "runtime/session/load_ranks.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "plan/classes.h"
#include "plan/firing/firing_counts.h"
#include "plan/json/json.h"
#include "plan/ranks.h"
#include "plan/transfers.h"
#include "plan/verify.h"
#include "runtime/session/engine.h"

namespace sluice {
namespace {

// The facts that a rank tells the others about the plan it loads.
struct Loading {
  uint64_t content = 0;
  uint32_t channel = 0;
  char name[116] = {};
};

// All ranks have this alike in their plans: everything; of plans of classes, all but names, and where their kernels
// cut.
std::string common_text(const plan::Plan& plan) {
  const std::optional<plan::Classes> classes = plan::classes_of(plan);
  if (!classes) return plan::to_json(plan);
  std::string text;
  for (const std::vector<int>& ranks : classes->ranks) text += plan::ranks_str(ranks) + ";";
  for (const plan::Actor& a : plan.actors) {
    text += fmt::format("\n{} {}:", a.stream, static_cast<int>(a.role));
    for (const plan::Instr& i : a.program) text += fmt::format(" {}/{}", static_cast<int>(i.kind), i.index);
  }
  for (const plan::Kernel& k : plan.kernels) {
    text += fmt::format("\n{} {}", k.op, k.collective);
    for (const std::vector<plan::View>* views : {&k.inputs, &k.outputs})
      for (const plan::View& v : *views)
        text += fmt::format(" {}/{} {} {}", static_cast<int>(v.base), v.index, dtype_name(v.spec.dtype),
                            v.spec.shape.str());
  }
  for (const plan::Register& r : plan.registers)
    text += fmt::format("\n{} {} {} {} {}", r.producer, r.quota, r.bytes, r.emit_every, r.initial_tokens);
  for (const plan::Edge& e : plan.edges) text += fmt::format("\n{} {} {} {}", e.reg, e.consumer, e.take, e.hold);
  return text;
}

// All ranks load the same plan, and use the same channels for it.
void agree(collective::World& world, const plan::Plan& plan, uint32_t channel) {
  Loading own;
  own.content = std::hash<std::string>()(common_text(plan));
  own.channel = channel;
  std::memcpy(own.name, plan.name.data(), std::min(plan.name.size(), sizeof own.name - 1));
  std::vector<Loading> all(world.size());
  world.control().all_gather(&own, all.data(), sizeof own);
  for (int r = 0; r < world.size(); ++r) {
    const bool same_name = std::strncmp(all[r].name, own.name, sizeof own.name) == 0;
    SLUICE_CHECK(same_name && all[r].content == own.content,
                 "plan '{}': rank {} loads {}; all ranks must load the same plans in the same order", plan.name, r,
                 same_name ? "another plan of that name" : fmt::format("plan '{:.116}'", all[r].name));
    SLUICE_CHECK(
        all[r].channel == own.channel,
        "plan '{}': rank {} has loaded other plans before; all ranks must load the same plans in the same order",
        plan.name, r);
  }
}

// The world whose ranks run the plan; null when this process runs all of it.
std::shared_ptr<collective::World> world_of(const Engine& engine, const plan::Plan& plan) {
  const int ranks = plan::job_ranks(plan);
  std::shared_ptr<collective::World> world = engine.world();
  if (world == nullptr || (world->size() == 1 && ranks > 1)) return nullptr;
  SLUICE_CHECK(world->size() == ranks, "plan '{}': is for {} ranks; the job has {}", plan.name, ranks, world->size());
  return world;
}

// Streams that wait for other ranks must not hold back another session: they get lanes of their own.
void give_lanes(Engine& engine, plan::Plan& plan, LoadedPlan& loaded) {
  for (plan::Stream& stream : plan.streams) {
    if (stream.kind != plan::StreamKind::kCollective) continue;
    loaded.lanes.push_back(engine.take_lane());
    stream.index = plan::kFirstLane + *loaded.lanes.back();
  }
}

// All ranks here.
plan::Plan join_here(Engine& engine, const plan::Plan& plan, LoadedPlan& loaded) {
  plan::Plan here = plan::in_one_process(plan);
  const auto groups = plan::ranks_of_groups(plan);
  if (groups.empty()) return here;
  const int ranks = plan::rank_count(plan);
  const auto worlds = collective::World::in_one_process(ranks);
  for (const auto& world : worlds)
    if (!engine.spins()) world->forbid_looks();
  int position = 0;
  for (const auto& [group, members] : groups) {
    const uint32_t channel = collective::kFirstChannel + static_cast<uint32_t>(position);
    for (const int r : members) loaded.communicators[position * ranks + r] = worlds[r]->communicator(members, channel);
    ++position;
  }
  loaded.worlds = worlds;
  give_lanes(engine, here, loaded);
  return here;
}

}  // namespace

plan::Plan plan_here(const Engine& engine, const plan::Plan& plan) {
  if (!plan::together(plan)) return plan;
  plan::check(plan);
  const std::shared_ptr<collective::World> world = world_of(engine, plan);
  return world == nullptr ? plan::in_one_process(plan) : plan::part_of(plan, world->rank()).plan;
}

plan::Plan join_ranks(Engine& engine, const plan::Plan& plan, LoadedPlan& loaded) {
  const std::shared_ptr<collective::World> world = world_of(engine, plan);
  if (world == nullptr) return join_here(engine, plan, loaded);
  if (!engine.spins()) world->forbid_looks();
  plan::RankPart part = plan::part_of(plan, world->rank());
  uint32_t channel = world->take_channels(static_cast<uint32_t>(part.groups.size()));
  agree(*world, plan, channel);
  for (const auto& [group, members] : part.groups) {
    if (std::binary_search(members.begin(), members.end(), world->rank()))
      loaded.communicators[group] = world->communicator(members, channel);
    ++channel;
  }
  give_lanes(engine, part.plan, loaded);
  loaded.world = world;
  // A rank may need several steps of another one before it can answer the first.
  const plan::Plan whole = plan::with_transfers(plan);
  const plan::FiringCounts counts(whole);
  for (size_t a = 0; a < whole.actors.size(); ++a) {
    if (whole.actors[a].role == plan::ActorRole::kSink)
      loaded.least_in_flight = std::max(loaded.least_in_flight, counts.least_in_flight(static_cast<int>(a)));
  }
  return std::move(part.plan);
}

}  // namespace sluice
