#pragma once
// Plans written by hand, for tests: names in, indices out.
//
//   PlanBuilder b("two stages");
//   int host = b.stream("cpu:0", StreamKind::kHost), compute = b.stream("cpu:0");
//   int feed = b.feed("feed", host), net = b.actor("net", compute), sink = b.sink("sink", compute);
//   int x = b.reg("x", feed, {net}, {.quota = 2, .bytes = 64});
//   int y = b.reg("y", net, {sink}, {.bytes = 64});
//   b.input("x", x, b.f32({16}));
//   b.run(net, "relu", {b.of_reg(x, {16})}, {b.of_reg(y, {16})});
//   b.output("y", b.of_reg(y, {16}));
//   Plan plan = b.build();
//
// build() appends the missing emits (after everything) and releases (last), gives registers their slots in one
// arena per space without a stream, and fills in the certificate unless told otherwise.
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "plan/plan.h"
#include "plan/verify.h"

namespace sluice::plan {

struct RegOptions {
  int quota = 1;
  uint64_t bytes = 0;
  int emit_every = 1;
  int initial_tokens = 0;
  int in_place_of = -1;
  int space = 0;
};

class PlanBuilder {
 public:
  explicit PlanBuilder(std::string name = "test") {
    plan.name = std::move(name);
    plan.target = "test";
    plan.spaces.push_back({SpaceKind::kHost, {}});
  }

  Plan plan;  // may be edited freely at any time

  static TensorSpec f32(Shape shape) { return TensorSpec::contiguous({DType::kFloat32, std::move(shape)}); }
  static View of_reg(int reg, Shape shape, int token = 0) {
    return {BaseKind::kRegister, reg, token, 0, f32(std::move(shape))};
  }
  static View of_variable(int variable, Shape shape) {
    return {BaseKind::kVariable, variable, 0, 0, f32(std::move(shape))};
  }
  static View of_buffer(int buffer, Shape shape) { return {BaseKind::kBuffer, buffer, 0, 0, f32(std::move(shape))}; }

  int space(SpaceKind kind, const std::string& device) {
    plan.spaces.push_back({kind, parse_device(device)});
    return static_cast<int>(plan.spaces.size()) - 1;
  }
  int stream(const std::string& device = "cpu:0", StreamKind kind = StreamKind::kCompute, int index = 0,
             int cores = 1) {
    const std::string name = device + "/" + stream_kind_name(kind) + std::to_string(index);
    plan.streams.push_back({name, parse_device(device), kind, index, cores});
    return static_cast<int>(plan.streams.size()) - 1;
  }
  int actor(const std::string& name, int stream = 0, ActorRole role = ActorRole::kNormal) {
    plan.actors.push_back({name, stream, role, {}});
    return static_cast<int>(plan.actors.size()) - 1;
  }
  int feed(const std::string& name, int stream = 0) { return actor(name, stream, ActorRole::kFeed); }
  int source(const std::string& name, int stream = 0) { return actor(name, stream, ActorRole::kSource); }
  int sink(const std::string& name, int stream = 0) { return actor(name, stream, ActorRole::kSink); }

  // A register and one edge (take 1, hold 1) per consumer.
  int reg(const std::string& name, int producer, const std::vector<int>& consumers, const RegOptions& o = {}) {
    Register r;
    r.name = name;
    r.producer = producer;
    r.quota = o.quota;
    r.bytes = o.bytes;
    r.emit_every = o.emit_every;
    r.initial_tokens = o.initial_tokens;
    r.in_place_of = o.in_place_of;
    plan.registers.push_back(r);
    register_space_.push_back(o.space);
    const int index = static_cast<int>(plan.registers.size()) - 1;
    for (const int c : consumers) edge(index, c);
    return index;
  }
  int edge(int reg, int consumer, int take = 1, int hold = 1) {
    plan.edges.push_back({reg, consumer, take, hold});
    return static_cast<int>(plan.edges.size()) - 1;
  }
  int edge_of(int reg, int consumer) const {
    for (int e = 0; e < static_cast<int>(plan.edges.size()); ++e) {
      if (plan.edges[e].reg == reg && plan.edges[e].consumer == consumer) return e;
    }
    return -1;
  }
  int variable(const std::string& name, Shape shape, bool constant = false, int space = 0) {
    plan.variables.push_back({name, space, f32(std::move(shape)), constant});
    return static_cast<int>(plan.variables.size()) - 1;
  }
  // A buffer in an arena of its space without a stream.
  int buffer(const std::string& name, uint64_t bytes, int space = 0) {
    const int arena = shared_arena(space);
    plan.buffers.push_back({name, arena, plan.arenas[arena].bytes, bytes});
    plan.arenas[arena].bytes += align_up(bytes, kAlignment);
    plan.arenas[arena].lower_bound = plan.arenas[arena].bytes;
    return static_cast<int>(plan.buffers.size()) - 1;
  }

  // A kernel at the end of the actor's program; its name is the op's, made unique.
  int run(int actor, const std::string& op, std::vector<View> inputs = {}, std::vector<View> outputs = {},
          double cost_ns = 0, NamedAttrs attrs = {}) {
    Kernel k;
    k.name = plan.actors[actor].name + "/" + op;
    const int seen = names_[k.name]++;
    if (seen) k.name += "_" + std::to_string(seen);
    k.op = op;
    k.attrs = std::move(attrs);
    k.inputs = std::move(inputs);
    k.outputs = std::move(outputs);
    k.cost_ns = cost_ns;
    plan.kernels.push_back(std::move(k));
    const int index = static_cast<int>(plan.kernels.size()) - 1;
    plan.actors[actor].program.push_back({InstrKind::kRun, index});
    return index;
  }
  void emit(int actor, int reg) { plan.actors[actor].program.push_back({InstrKind::kEmit, reg}); }
  void release(int actor, int reg) { plan.actors[actor].program.push_back({InstrKind::kRelease, edge_of(reg, actor)}); }

  void input(const std::string& name, int reg, TensorSpec spec) { plan.inputs.push_back({name, reg, spec}); }
  void output(const std::string& name, View view, std::optional<ExtentOf> extent_of = {}) {
    plan.outputs.push_back({name, std::move(view), std::move(extent_of)});
  }

  Plan build(bool with_certificate = true) {
    const Adjacency adjacency(plan);
    for (int a = 0; a < static_cast<int>(plan.actors.size()); ++a) {
      std::vector<Instr>& program = plan.actors[a].program;
      const auto append = [&program](Instr instr) {
        if (std::find(program.begin(), program.end(), instr) == program.end()) program.push_back(instr);
      };
      for (const int r : adjacency.out_registers[a]) append({InstrKind::kEmit, r});
      for (const int e : adjacency.in_edges[a]) append({InstrKind::kRelease, e});
    }
    for (int r = 0; r < static_cast<int>(plan.registers.size()); ++r) {
      Register& reg = plan.registers[r];
      if (reg.bytes == 0 || !reg.slots.empty()) continue;
      if (reg.in_place_of >= 0) {
        reg.slots = plan.registers[plan.edges[reg.in_place_of].reg].slots;
        continue;
      }
      for (int i = 0; i < reg.quota; ++i) {
        reg.slots.push_back(buffer(reg.name + "." + std::to_string(i), reg.bytes, register_space_[r]));
      }
    }
    if (with_certificate) plan.certificate = find_schedule(plan);
    return plan;
  }

 private:
  int shared_arena(int space) {
    for (int a = 0; a < static_cast<int>(plan.arenas.size()); ++a) {
      if (plan.arenas[a].space == space && plan.arenas[a].stream < 0) return a;
    }
    plan.arenas.push_back({plan.spaces[space].str(), space, -1, 0, 0});
    return static_cast<int>(plan.arenas.size()) - 1;
  }
  std::vector<int> register_space_;
  std::map<std::string, int> names_;
};

}  // namespace sluice::plan
