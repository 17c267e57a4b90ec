// Actors, and who of them uses what.
#include <algorithm>

#include "compiler/planning/planning.h"

namespace sluice::compiler {

using plan::ActorRole;

std::string unused_name(std::unordered_set<std::string>& names, const std::string& base) {
  std::string name = base;
  for (int n = 2; !names.insert(name).second; ++n) name = fmt::format("{}#{}", base, n);
  return name;
}

// The first ones bring each rank's inputs, the last ones hand out its outputs, those between run the programs.
ActorSet make_actors(const Lowered& lowered, const Programs& programs, int batches, Granularity granularity) {
  ActorSet set;
  set.ranks = static_cast<int>(lowered.feed_streams.size());
  set.batches = batches;
  std::vector<int> stream_map(lowered.streams.size(), -1);  // lowered -> plan
  const auto stream = [&](int lowered_stream) {
    int& mapped = stream_map[lowered_stream];
    if (mapped < 0) {
      mapped = static_cast<int>(set.streams.size());
      set.streams.push_back(lowered.streams[lowered_stream]);
      set.of_stream.emplace_back();
    }
    return mapped;
  };
  std::unordered_set<std::string> names;
  const auto add = [&](std::string name, int lowered_stream, ActorRole role, int every) {
    set.actors.push_back({std::move(name), stream(lowered_stream), role, {}});
    set.tasks.emplace_back();
    set.every.push_back(every);
    return static_cast<int>(set.actors.size()) - 1;
  };
  const auto of_rank = [](const char* name, int rank) { return rank == 0 ? name : fmt::format("{}@{}", name, rank); };
  for (int r = 0; r < set.ranks; ++r) {
    add(unused_name(names, of_rank("inputs", r)), lowered.feed_streams[r], ActorRole::kFeed, 1);
    names.insert(of_rank("outputs", r));
  }
  set.actor_of.resize(lowered.tasks.size());
  set.stream_of.resize(lowered.tasks.size());
  set.position.resize(lowered.tasks.size());
  for (size_t a = 0; a < programs.actors.size(); ++a) {
    const Task& first = lowered.tasks[programs.actors[a][0]];
    const std::string name = granularity == Granularity::kOp ? first.name : lowered.streams[programs.stream_of[a]].name;
    const ActorRole role = first.source ? ActorRole::kSource : ActorRole::kNormal;
    const int actor = add(unused_name(names, name), programs.stream_of[a], role, first.every);
    set.tasks[actor] = programs.actors[a];
    set.of_stream[set.actors[actor].stream].push_back(actor);
    for (int task : set.tasks[actor]) {
      set.actor_of[task] = actor;
      set.stream_of[task] = set.actors[actor].stream;
    }
  }
  for (int r = 0; r < set.ranks; ++r) add(of_rank("outputs", r), lowered.sink_streams[r], ActorRole::kSink, batches);
  for (const std::vector<int>& actors : set.of_stream) {
    int64_t position = 0;
    for (int actor : actors) {
      for (int task : set.tasks[actor]) set.position[task] = position++;
    }
  }
  return set;
}

std::vector<int> meeting_groups(const Lowered& lowered) {
  std::map<std::vector<int64_t>, int> numbers;  // by ranks
  std::vector<int> groups;
  for (const Task& task : lowered.tasks)
    groups.push_back(
        task.meeting < 0 ? -1 : numbers.try_emplace(task.ranks, static_cast<int>(numbers.size())).first->second);
  return groups;
}

std::vector<StoreUse> find_uses(const Lowered& lowered, const ActorSet& actors) {
  std::vector<StoreUse> uses(lowered.stores.size());
  const auto is_variable = [&](int store) { return lowered.stores[store].kind == Store::Kind::kVariable; };
  for (const Operand& output : lowered.outputs) uses[output.store].output = true;
  for (size_t t = 0; t < lowered.tasks.size(); ++t) {
    const int task = static_cast<int>(t), actor = actors.actor_of[t];
    const int64_t now = actors.position[t];
    for (const Operand& out : lowered.tasks[t].outputs) {
      if (is_variable(out.store)) continue;
      uses[out.store].writer = task;
      uses[out.store].begin = now;
      uses[out.store].end = now + 1;
    }
    for (const Operand& in : lowered.tasks[t].inputs) {
      if (in.store < 0 || is_variable(in.store)) continue;
      StoreUse& use = uses[in.store];
      use.end = std::max(use.end, now + 1);
      if (use.writer >= 0 && actors.actor_of[use.writer] == actor) continue;
      // Tasks come in order, but those of different actors may be interleaved.
      const auto it =
          std::find_if(use.consumers.rbegin(), use.consumers.rend(), [&](auto& c) { return c.first == actor; });
      if (it == use.consumers.rend())
        use.consumers.emplace_back(actor, task);
      else
        it->second = task;
    }
  }
  return uses;
}

}  // namespace sluice::compiler
