#include "plan/ranks.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "base/shape.h"
#include "plan/classes.h"
#include "plan/transfers.h"

namespace sluice::plan {
namespace {

// Old indices to new ones; -1 is what stays behind.
using Renumbering = std::vector<int>;

// Keeps the elements whose `needed` is true.
template <class T>
Renumbering keep(const std::vector<T>& all, const std::vector<bool>& needed, std::vector<T>& kept) {
  Renumbering to(all.size(), -1);
  for (size_t i = 0; i < all.size(); ++i) {
    if (!needed[i]) continue;
    to[i] = static_cast<int>(kept.size());
    kept.push_back(all[i]);
  }
  return to;
}

constexpr int kAllRanks = -1, kOneProcess = -2;

class Taking {
 public:
  Taking(const Plan& plan, int rank) : plan_(plan), rank_(rank) {}

  Plan take() {
    mark();
    part_.schema_version = plan_.schema_version;
    part_.name = plan_.name;
    part_.options = plan_.options;
    part_.target = plan_.target;
    streams_to_ = keep(plan_.streams, streams_, part_.streams);
    arenas_to_ = keep(plan_.arenas, arenas_, part_.arenas);
    buffers_to_ = keep(plan_.buffers, buffers_, part_.buffers);
    variables_to_ = keep(plan_.variables, variables_, part_.variables);
    packed_to_ = keep(plan_.packed, packed_, part_.packed);
    kernels_to_ = keep(plan_.kernels, kernels_, part_.kernels);
    actors_to_ = keep(plan_.actors, actors_, part_.actors);
    registers_to_ = keep(plan_.registers, registers_, part_.registers);
    edges_to_ = keep(plan_.edges, edges_, part_.edges);
    renumber();
    pack();
    for (const Input& input : plan_.inputs) {
      if (registers_[input.reg]) part_.inputs.push_back({input.name, registers_to_[input.reg], input.spec});
    }
    for (const Output& output : plan_.outputs) {
      if (registers_[output.view.index])
        part_.outputs.push_back({output.name, moved(output.view), output.extent_of, output.axes});
    }
    for (const int a : plan_.certificate) {
      if (actors_[a]) part_.certificate.push_back(actors_to_[a]);
    }
    return std::move(part_);
  }

 private:
  void mark() {
    streams_.assign(plan_.streams.size(), false);
    arenas_.assign(plan_.arenas.size(), false);
    buffers_.assign(plan_.buffers.size(), false);
    variables_.assign(plan_.variables.size(), false);
    packed_.assign(plan_.packed.size(), false);
    kernels_.assign(plan_.kernels.size(), false);
    for (size_t s = 0; s < plan_.streams.size(); ++s) streams_[s] = rank_ < 0 || plan_.streams[s].device.rank == rank_;
    for (size_t a = 0; a < plan_.actors.size(); ++a) actors_.push_back(streams_[plan_.actors[a].stream]);
    for (const Register& r : plan_.registers) registers_.push_back(actors_[r.producer]);
    for (const Edge& e : plan_.edges) {
      const bool wire =
          rank_ != kOneProcess && rank_of(plan_, plan_.registers[e.reg].producer) != rank_of(plan_, e.consumer);
      if (wire) registers_[e.reg] = false;
      edges_.push_back(actors_[e.consumer] && !wire);
    }
    for (size_t r = 0; r < plan_.registers.size(); ++r) {
      for (const int slot : plan_.registers[r].slots) {
        if (registers_[r]) use_buffer(slot);
      }
    }
    for (size_t a = 0; a < plan_.actors.size(); ++a) {
      for (const Instr& instr : plan_.actors[a].program) {
        if (actors_[a] && instr.kind == InstrKind::kRun) use_kernel(instr.index);
      }
    }
  }
  void use_buffer(int buffer) {
    buffers_[buffer] = true;
    arenas_[plan_.buffers[buffer].arena] = true;
  }
  void use_kernel(int kernel) {
    const Kernel& k = plan_.kernels[kernel];
    kernels_[kernel] = true;
    if (k.workspace >= 0) use_buffer(k.workspace);
    for (const std::vector<View>* views : {&k.inputs, &k.outputs}) {
      for (const View& v : *views) {
        if (v.index < 0) continue;
        if (v.base == BaseKind::kBuffer) use_buffer(v.index);
        if (v.base == BaseKind::kVariable) variables_[v.index] = true;
        if (v.packed < 0) continue;
        packed_[v.packed] = true;
        for (const int source : sources_of(plan_.packed[v.packed])) variables_[source] = true;
      }
    }
  }

  View moved(View v) const {
    if (v.index < 0) return v;
    if (v.packed >= 0) v.packed = packed_to_[v.packed];
    switch (v.base) {
      case BaseKind::kBuffer: v.index = buffers_to_[v.index]; break;
      case BaseKind::kRegister: v.index = registers_to_[v.index]; break;
      case BaseKind::kVariable: v.index = variables_to_[v.index]; break;
    }
    return v;
  }
  // When only one rank is left, its devices are this process's.
  int rank_here(int rank) const { return rank_ == kAllRanks ? rank : 0; }
  // A space of the plan as this rank sees it.
  int space(int index) {
    Space space = plan_.spaces[index];
    space.device.rank = rank_here(space.device.rank);
    const auto known = std::find(part_.spaces.begin(), part_.spaces.end(), space);
    if (known != part_.spaces.end()) return static_cast<int>(known - part_.spaces.begin());
    part_.spaces.push_back(space);
    return static_cast<int>(part_.spaces.size()) - 1;
  }
  void renumber() {
    for (Stream& s : part_.streams) s.device.rank = rank_here(s.device.rank);
    for (Arena& a : part_.arenas) {
      a.stream = a.stream < 0 ? -1 : streams_to_[a.stream];
      a.space = space(a.space);
    }
    for (Variable& v : part_.variables) v.space = space(v.space);
    for (PackedCopy& p : part_.packed) {
      p.variable = variables_to_[p.variable];
      if (!p.derived) continue;
      for (int& source : p.derived->inputs)
        if (source >= 0) source = variables_to_[source];
    }
    for (Buffer& b : part_.buffers) b.arena = arenas_to_[b.arena];
    for (Kernel& k : part_.kernels) {
      if (k.workspace >= 0) k.workspace = buffers_to_[k.workspace];
      for (View& v : k.inputs) v = moved(v);
      for (View& v : k.outputs) v = moved(v);
    }
    for (Actor& a : part_.actors) {
      a.stream = streams_to_[a.stream];
      std::erase_if(a.program, [&](const Instr& i) {  // of wires
        return (i.kind == InstrKind::kEmit && registers_to_[i.index] < 0) ||
               (i.kind == InstrKind::kRelease && edges_to_[i.index] < 0);
      });
      for (Instr& i : a.program) {
        i.index = (i.kind == InstrKind::kRun    ? kernels_to_
                   : i.kind == InstrKind::kEmit ? registers_to_
                                                : edges_to_)[i.index];
      }
    }
    for (Register& r : part_.registers) {
      r.producer = actors_to_[r.producer];
      for (int& slot : r.slots) slot = buffers_to_[slot];
      if (r.in_place_of >= 0) r.in_place_of = edges_to_[r.in_place_of];
    }
    for (Edge& e : part_.edges) {
      e.reg = registers_to_[e.reg];
      e.consumer = actors_to_[e.consumer];
    }
  }
  // Arenas of disjoint buffers may be shared by ranks; here only one rank's buffers are left.
  void pack() {
    for (size_t a = 0; a < part_.arenas.size(); ++a) {
      Arena& arena = part_.arenas[a];
      if (arena.stream >= 0) continue;
      uint64_t bytes = 0;
      for (Buffer& b : part_.buffers) {
        if (b.arena != static_cast<int>(a)) continue;
        b.offset = bytes;
        bytes = checked_add(bytes, align_up(b.bytes, kAlignment));
      }
      arena.bytes = arena.lower_bound = bytes;
    }
  }

  const Plan& plan_;
  const int rank_;
  Plan part_;
  std::vector<bool> streams_, arenas_, buffers_, variables_, packed_, kernels_, actors_, registers_, edges_;
  Renumbering streams_to_, arenas_to_, buffers_to_, variables_to_, packed_to_, kernels_to_, actors_to_, registers_to_,
      edges_to_;
};

}  // namespace

std::map<int, std::vector<int>> callers_of_groups(const Plan& plan) {
  std::map<int, std::vector<int>> callers;
  for (int a = 0; a < static_cast<int>(plan.actors.size()); ++a) {
    for (const Instr& i : plan.actors[a].program) {
      if (i.kind != InstrKind::kRun || plan.kernels[i.index].collective < 0) continue;
      std::vector<int>& actors = callers[plan.kernels[i.index].collective];
      if (actors.empty() || actors.back() != a) actors.push_back(a);
    }
  }
  return callers;
}

std::map<int, std::vector<int>> ranks_of_groups(const Plan& plan) {
  std::map<int, std::vector<int>> groups;
  for (const auto& [group, actors] : callers_of_groups(plan)) {
    std::set<int> ranks;
    for (const int a : actors) ranks.insert(rank_of(plan, a));
    groups[group].assign(ranks.begin(), ranks.end());
  }
  return groups;
}

bool together(const Plan& plan) {
  return job_ranks(plan) > 1 ||
         std::any_of(plan.kernels.begin(), plan.kernels.end(), [](const Kernel& k) { return k.collective >= 0; });
}

int rank_count(const Plan& plan) {
  int count = 1;
  for (const Stream& stream : plan.streams) count = std::max(count, stream.device.rank + 1);
  return count;
}

RankPart part_of(const Plan& plan, int rank) {
  const Plan whole = with_transfers(plan);
  const std::optional<Classes> classes = classes_of(whole);
  if (!classes) return {Taking(whole, rank).take(), ranks_of_groups(whole)};
  const int number = classes->class_of(rank);
  SLUICE_CHECK(number >= 0, "plan '{}': is of the ranks at position {} of their classes; rank {} is none of them",
               plan.name, classes->position, rank);
  RankPart part{Taking(whole, number).take(), classes->groups};
  drop_classes(part.plan);
  return part;
}

Plan side_by_side(const Plan& plan) {
  return crosses_ranks(plan) ? Taking(with_transfers(plan), kAllRanks).take() : plan;
}

Plan in_one_process(const Plan& plan) {
  SLUICE_CHECK_KIND(kUnsupported, !classes_of(plan),
                    "plan '{}': is of one rank of each class; a process that runs all ranks needs the plan of all",
                    plan.name);
  const int ranks = rank_count(plan);
  std::map<int, int> position;
  for (const auto& [group, members] : ranks_of_groups(plan)) position.emplace(group, static_cast<int>(position.size()));
  Plan given = plan;
  std::vector<std::set<int>> users(plan.variables.size());
  std::set<int> written;
  for (size_t a = 0; a < plan.actors.size(); ++a) {
    const int rank = rank_of(plan, static_cast<int>(a));
    for (const Instr& instr : plan.actors[a].program) {
      if (instr.kind != InstrKind::kRun) continue;
      Kernel& kernel = given.kernels[instr.index];
      if (kernel.collective >= 0) kernel.collective = position.at(kernel.collective) * ranks + rank;
      for (const std::vector<View>* views : {&kernel.inputs, &kernel.outputs}) {
        for (const View& v : *views) {
          if (v.base != BaseKind::kVariable || v.index < 0) continue;
          users[v.index].insert(rank);
          if (views == &kernel.outputs) written.insert(v.index);
        }
      }
    }
  }
  for (const int v : written) {
    SLUICE_CHECK_KIND(kUnsupported, users[v].size() == 1,
                      "plan '{}': variable '{}' is written, and used by {} ranks, each of which has one of its own; in "
                      "one process they must have different names",
                      plan.name, plan.variables[v].name, users[v].size());
  }
  Plan here = Taking(given, kOneProcess).take();
  std::set<std::tuple<DeviceId, StreamKind, int>> taken;
  for (Stream& s : here.streams) {
    for (int next = 0; !taken.insert({s.device, s.kind, s.index}).second; ++next) s.index = next;
  }
  return here;
}

}  // namespace sluice::plan
