#include "actors/build.h"

#include <algorithm>
#include <limits>

#include "actors/branches.h"
#include "kernels/kernel.h"
#include "kernels/meeting.h"
#include "plan/time/cores.h"
#include "streams/stream.h"

namespace sluice::actors {
namespace {

using plan::ActorRole;
using plan::BaseKind;
using plan::InstrKind;
using plan::Plan;
using plan::View;

int position(const std::vector<int>& list, int value) {
  return static_cast<int>(std::find(list.begin(), list.end(), value) - list.begin());
}

// Adds the operands of views to a program: fixed addresses at once, slots as patches.
class Operands {
 public:
  Operands(const RunState& run, const Bindings& bindings, int actor, NodeProgram& program)
      : run_(run), bindings_(bindings), actor_(actor), program_(program) {}

  uint32_t add(const std::vector<View>& views, bool written) {
    const auto first = static_cast<uint32_t>(program_.pointers.size());
    for (const View& view : views) add(view, written);
    return first;
  }
  void add(const View& view, bool written) {
    const auto at = static_cast<uint32_t>(program_.pointers.size());
    program_.pointers.push_back(nullptr);
    if (view.index < 0) return;  // an absent optional input
    const Plan& plan = *run_.plan;
    switch (view.base) {
      case BaseKind::kBuffer: {
        const plan::Buffer& buffer = plan.buffers[view.index];
        program_.pointers[at] = bindings_.arenas[buffer.arena] + buffer.offset + view.offset;
        break;
      }
      case BaseKind::kVariable:
        program_.pointers[at] =
            view.packed >= 0 ? bindings_.packed[view.packed] : bindings_.variables[view.index] + view.offset;
        break;
      case BaseKind::kRegister: {
        const Patch patch{at, view.token, view.offset, &run_.slots[view.index]};
        // An actor may both take and make a value (feedback to itself): it reads the token taken and writes the next.
        const auto in = std::find_if(program_.ins.begin(), program_.ins.end(),
                                     [&](const InPort& port) { return port.reg == view.index; });
        if (in != program_.ins.end() && !written) {
          in->patches.push_back(patch);
        } else if (plan.registers[view.index].producer == actor_) {
          program_.outs[position(run_.adjacency.out_registers[actor_], view.index)].patches.push_back(patch);
        }
        break;
      }
    }
  }

 private:
  const RunState& run_;
  const Bindings& bindings_;
  const int actor_;
  NodeProgram& program_;
};

// The time that the node's kernels are predicted to take; it is endless where one of them, or a neighbour, may make the
// node wait.
double timely_ns(const Plan& plan, const Bindings& bindings, const NodeProgram& program) {
  constexpr double kEndless = std::numeric_limits<double>::infinity();
  double cost_ns = 0;
  for (const KernelRun& run : program.kernels) {
    const plan::Kernel& kernel = plan.kernels[run.index];
    if (kernel.cost_ns <= 0 || bindings.timely.empty() || !bindings.timely[run.index]) return kEndless;
    cost_ns += kernel.cost_ns;
  }
  const auto waits_for_readers = [](const OutPort& out) { return !out.wait_edges.empty(); };
  const bool waits = program.asynchronous ||
                     std::any_of(program.ins.begin(), program.ins.end(), [](const InPort& in) { return in.waits; }) ||
                     std::any_of(program.outs.begin(), program.outs.end(), waits_for_readers);
  return waits ? kEndless : cost_ns;
}

bool asynchronous(const Bindings& bindings, int stream) { return bindings.streams[stream]->stream().asynchronous(); }

std::byte* slot_address(const Plan& plan, const Bindings& bindings, int buffer) {
  return bindings.arenas[plan.buffers[buffer].arena] + plan.buffers[buffer].offset;
}

}  // namespace

std::vector<int> outputs_of(const Plan& plan, const plan::Adjacency& adjacency, int actor) {
  std::vector<int> outputs;
  for (int o = 0; o < static_cast<int>(plan.outputs.size()); ++o) {
    const std::vector<int>& edges = adjacency.register_edges[plan.outputs[o].view.index];
    // The first sink among the consumers delivers it.
    const auto sink = std::find_if(edges.begin(), edges.end(),
                                   [&](int e) { return plan.actors[plan.edges[e].consumer].role == ActorRole::kSink; });
    if (sink != edges.end() && plan.edges[*sink].consumer == actor) outputs.push_back(o);
  }
  return outputs;
}

namespace {

// Feedback that only orders steps does not carry one step's failure into the next.
bool poisons(const plan::Register& reg) { return reg.bytes != 0 || reg.initial_tokens == 0; }

// Actors with a kernel after which they tell nobody who tells a sink.
std::vector<bool> unseen_actors(const Plan& plan, const plan::Adjacency& adjacency) {
  std::vector<bool> reaches(plan.actors.size());
  std::vector<int> queue;
  for (int a = 0; a < static_cast<int>(plan.actors.size()); ++a) {
    if (plan.actors[a].role != ActorRole::kSink) continue;
    reaches[a] = true;
    queue.push_back(a);
  }
  for (size_t i = 0; i < queue.size(); ++i) {
    for (const int e : adjacency.in_edges[queue[i]]) {
      const plan::Register& reg = plan.registers[plan.edges[e].reg];
      if (!poisons(reg) || reaches[reg.producer]) continue;
      reaches[reg.producer] = true;
      queue.push_back(reg.producer);
    }
  }
  std::vector<bool> unseen(plan.actors.size());
  for (size_t a = 0; a < plan.actors.size(); ++a) {
    for (const plan::Instr& instr : plan.actors[a].program) {
      if (instr.kind == InstrKind::kRun) unseen[a] = true;
      if (instr.kind != InstrKind::kEmit || !poisons(plan.registers[instr.index])) continue;
      for (const int e : adjacency.register_edges[instr.index]) {
        if (reaches[plan.edges[e].consumer]) unseen[a] = false;
      }
    }
  }
  return unseen;
}

}  // namespace

void build_tables(RunState& run, const Bindings& bindings) {
  const Plan& plan = *run.plan;
  run.slots.resize(plan.registers.size());
  run.register_slots.resize(plan.registers.size());
  run.edge_slots.resize(plan.edges.size());
  int register_slots = 0, edge_slots = 0;
  for (size_t r = 0; r < plan.registers.size(); ++r) {
    run.register_slots[r] = register_slots;
    register_slots += plan.registers[r].quota;
    for (const int buffer : plan.registers[r].slots) run.slots[r].push_back(slot_address(plan, bindings, buffer));
  }
  for (size_t e = 0; e < plan.edges.size(); ++e) {
    run.edge_slots[e] = edge_slots;
    edge_slots += plan.registers[plan.edges[e].reg].quota;
  }
  run.slot_states.resize(register_slots);
  find_voids(run, bindings);
  run.ready_events.resize(register_slots);
  run.ack_events.resize(edge_slots);
  run.span_events.resize(2 * plan.registers.size());
  run.unseen = unseen_actors(plan, run.adjacency);
  run.unseen_events.resize(2 * plan.actors.size());
  for (size_t s = 0; s < plan.streams.size(); ++s) {
    if (!asynchronous(bindings, static_cast<int>(s))) continue;
    StreamExecutor& home = *bindings.streams[s];
    home.run_sync([&] {
      for (size_t r = 0; r < plan.registers.size(); ++r) {
        if (plan.actors[plan.registers[r].producer].stream != static_cast<int>(s)) continue;
        for (int i = 0; i < plan.registers[r].quota; ++i) {
          run.ready_events[run.register_slots[r] + i].event = home.stream().create_event();
        }
        for (size_t i = 0; plan.registers[r].emit_every > 1 && i < 2; ++i) {
          run.span_events[2 * r + i].event = home.stream().create_event();
        }
      }
      for (size_t a = 0; a < plan.actors.size(); ++a) {
        if (plan.actors[a].stream != static_cast<int>(s) || !run.unseen[a]) continue;
        for (size_t i = 0; i < 2; ++i) run.unseen_events[2 * a + i].event = home.stream().create_event();
      }
      for (size_t e = 0; e < plan.edges.size(); ++e) {
        if (plan.actors[plan.edges[e].consumer].stream != static_cast<int>(s)) continue;
        for (int i = 0; i < plan.registers[plan.edges[e].reg].quota; ++i) {
          run.ack_events[run.edge_slots[e] + i].event = home.stream().create_event();
        }
      }
    });
  }
}

namespace {

// The ports of an actor.
std::unique_ptr<NodeProgram> make_ports(const RunState& run, int actor, bool asynchronous) {
  const Plan& plan = *run.plan;
  auto program = std::make_unique<NodeProgram>();
  program->asynchronous = asynchronous;
  for (const int e : run.adjacency.in_edges[actor]) {
    const plan::Edge& edge = plan.edges[e];
    const plan::Register& reg = plan.registers[edge.reg];
    InPort in;
    in.edge = e;
    in.reg = edge.reg;
    in.take = edge.take;
    in.poisons = poisons(reg);
    program->ins.push_back(std::move(in));
  }
  for (const int r : run.adjacency.out_registers[actor]) {
    OutPort out;
    out.reg = r;
    out.late = asynchronous && plan.registers[r].bytes == 0 && plan.registers[r].initial_tokens > 0;
    out.spans = asynchronous && !out.late && plan.registers[r].emit_every > 1;
    out.in_place = plan.registers[r].in_place_of >= 0;
    program->outs.push_back(std::move(out));
  }
  return program;
}

// Kernels of a program that follow each other, [first, first + kernels), as a chain; their operands are in pointers
// [begin, end).
std::unique_ptr<KernelChain> make_chain(const NodeProgram& program, size_t first, size_t kernels, Stream& stream,
                                        const std::vector<bool>& exchanged) {
  auto chain = std::make_unique<KernelChain>();
  chain->context = fmt::format("{} kernels from {}", kernels, program.kernels[first].context);
  chain->work = stream.create_chain(chain->context);
  if (chain->work == nullptr) return nullptr;
  chain->kernels = kernels;
  const size_t after = first + kernels;
  const uint32_t begin = program.kernels[first].inputs;
  const uint32_t end = after < program.kernels.size() ? program.kernels[after].inputs : program.sink_outputs;
  // The addresses in a slot change together, so one of them stands for all.
  const auto add = [&](int reg, const std::vector<Patch>& patches) {
    const bool fixed = exchanged.empty() || !exchanged[reg];
    std::vector<int> known;
    for (const Patch& patch : patches) {
      if (patch.pointer < begin || patch.pointer >= end || (fixed && patch.slots->size() == 1)) continue;
      if (std::find(known.begin(), known.end(), patch.token) != known.end()) continue;
      known.push_back(patch.token);
      chain->varying.push_back(patch.pointer);
    }
  };
  for (const InPort& in : program.ins) add(in.reg, in.patches);
  for (const OutPort& out : program.outs) add(out.reg, out.patches);
  for (size_t k = first; k < after; ++k) {
    const int port = program.kernels[k].fills;
    if (port >= 0 && std::find(chain->fills.begin(), chain->fills.end(), port) == chain->fills.end())
      chain->fills.push_back(port);
  }
  std::vector<int> written;
  for (size_t k = first; k < after; ++k) {
    const KernelRun& run = program.kernels[k];
    for (const int at : run.void_inputs) {
      if (at >= 0 && std::find(written.begin(), written.end(), at) == written.end()) chain->voids.push_back(at);
    }
    written.insert(written.end(), run.void_outputs.begin(), run.void_outputs.end());
  }
  chain->key.resize(chain->varying.size() + chain->fills.size());
  return chain;
}

void make_chains(NodeProgram& program, const std::vector<plan::Instr>& instructions, Stream& stream,
                 const std::vector<bool>& exchanged) {
  size_t first = 0, kernel = 0;
  const auto close = [&] {
    if (kernel - first > 1)
      program.kernels[first].chain = make_chain(program, first, kernel - first, stream, exchanged);
  };
  for (const plan::Instr& instr : instructions) {
    const bool runs = instr.kind == InstrKind::kRun;
    if (!runs || !program.kernels[kernel].kernel->repeatable()) {
      close();
      first = kernel + runs;
    }
    kernel += runs;
  }
  close();
}

}  // namespace

std::unique_ptr<NodeProgram> make_program(const RunState& run, const Bindings& bindings, int actor, bool* needed) {
  const Plan& plan = *run.plan;
  const plan::Actor& source = plan.actors[actor];
  const bool own_async = asynchronous(bindings, source.stream);
  std::unique_ptr<NodeProgram> program = make_ports(run, actor, own_async);
  *needed = own_async || source.role == ActorRole::kSink;
  for (InPort& in : program->ins) {
    const int producer = plan.actors[plan.registers[in.reg].producer].stream;
    // On one stream order needs no event, but failures do: they surface late.
    in.waits = asynchronous(bindings, producer) && (in.poisons || producer != source.stream);
    *needed |= in.waits;
  }
  for (OutPort& out : program->outs) {
    out.records = own_async;
    for (const int e : run.adjacency.register_edges[out.reg]) {
      const int consumer = plan.actors[plan.edges[e].consumer].stream;
      if (consumer != source.stream && asynchronous(bindings, consumer)) out.wait_edges.push_back(e);
    }
    *needed |= !out.wait_edges.empty();
  }
  Operands operands(run, bindings, actor, *program);
  const bool keeps_voids = !run.void_registers.empty();
  VoidPlaces voids(run, actor, *program);
  for (const plan::Instr& instr : source.program) {
    if (instr.kind != InstrKind::kRun) continue;
    *needed = true;
    const plan::Kernel& kernel = plan.kernels[instr.index];
    KernelRun step;
    step.kernel = bindings.kernels[instr.index];
    step.meeting = dynamic_cast<const Meeting*>(step.kernel);
    step.index = instr.index;
    step.inputs = operands.add(kernel.inputs, false);
    step.outputs = operands.add(kernel.outputs, true);
    if (kernel.workspace >= 0) step.workspace = slot_address(plan, bindings, kernel.workspace);
    step.context =
        fmt::format("{}kernel '{}' ({}) of actor '{}'", kernel.prefix(), kernel.name, kernel.op, source.name);
    for (const View& view : kernel.inputs)
      program->touches_variables |= view.base == BaseKind::kVariable && view.index >= 0;
    for (const View& view : kernel.outputs) {
      if (view.base == BaseKind::kVariable) step.writes.push_back(view.index);
      if (view.base == BaseKind::kRegister && plan.registers[view.index].emit_every > 1)
        step.fills = position(run.adjacency.out_registers[actor], view.index);
    }
    program->writes_variables |= !step.writes.empty();
    if (keeps_voids) voids.add(step, instr.index, bindings.branches[instr.index]);
    // A collective waits for other ranks.
    if (!own_async && step.kernel->needs_cores() && kernel.collective < 0)
      step.cores = plan.streams[source.stream].cores;
    program->kernels.push_back(std::move(step));
  }
  program->touches_variables |= program->writes_variables;
  const double cost_ns = timely_ns(plan, bindings, *program);
  program->tiny = cost_ns <= plan::kTinyNs;
  program->brief = cost_ns <= bindings.inline_ns;
  program->sink_outputs = static_cast<uint32_t>(program->pointers.size());
  if (own_async && bindings.chains)
    make_chains(*program, source.program, bindings.streams[source.stream]->stream(), bindings.exchanged);
  if (source.role == ActorRole::kSink) {
    for (const int o : outputs_of(plan, run.adjacency, actor)) {
      operands.add(plan.outputs[o].view, false);
      if (keeps_voids) voids.add_output(plan.outputs[o].view);
    }
  }
  return program;
}

Node::Steps make_steps(const RunState& run, const NodeProgram& program, int actor) {
  Node::Steps steps;
  int kernel = 0, next = 0;  // the next of a kernel that begins a step
  for (const plan::Instr& instr : run.plan->actors[actor].program) {
    int index = 0;
    switch (instr.kind) {
      case InstrKind::kRun: {
        index = kernel++;
        if (index < next) continue;
        const KernelChain* chain = program.kernels[index].chain.get();
        next = index + (chain != nullptr ? static_cast<int>(chain->kernels) : 1);
        break;
      }
      case InstrKind::kEmit: index = position(run.adjacency.out_registers[actor], instr.index); break;
      case InstrKind::kRelease: index = position(run.adjacency.in_edges[actor], instr.index); break;
    }
    steps.push_back({instr.kind, index});
  }
  return steps;
}

}  // namespace sluice::actors
