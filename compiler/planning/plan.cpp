// The parts of a plan, put together.
#include "compiler/planning/planning.h"

namespace sluice::compiler {
namespace {

plan::View view_of(const Operand& operand, const Lowered& lowered, const DataChannels& data, const Memory& memory) {
  plan::View view;
  view.offset = operand.offset;
  view.spec = operand.spec;
  view.token = operand.token;
  view.index = -1;
  if (operand.store < 0) return view;
  const Store& store = lowered.stores[operand.store];
  const int channel = data.of_store[operand.store];
  if (store.kind == Store::Kind::kVariable) {
    view.base = plan::BaseKind::kVariable;
    view.index = store.index;
  } else if (channel >= 0) {
    view.base = plan::BaseKind::kRegister;
    view.index = channel;
  } else {
    view.index = memory.buffer_of[operand.store];
  }
  return view;
}

std::vector<plan::Kernel> make_kernels(const Lowered& lowered, const DataChannels& data, const Memory& memory) {
  const std::vector<int> groups = meeting_groups(lowered);
  std::vector<plan::Kernel> kernels;
  kernels.reserve(lowered.tasks.size());
  for (size_t t = 0; t < lowered.tasks.size(); ++t) {
    const Task& task = lowered.tasks[t];
    plan::Kernel kernel;
    kernel.name = task.name;
    kernel.op = task.op;
    kernel.attrs = task.attrs;
    kernel.inputs.reserve(task.inputs.size());
    kernel.outputs.reserve(task.outputs.size());
    for (const Operand& in : task.inputs) kernel.inputs.push_back(view_of(in, lowered, data, memory));
    for (const Operand& out : task.outputs) kernel.outputs.push_back(view_of(out, lowered, data, memory));
    kernel.workspace = memory.workspace[t];
    static_cast<Provenance&>(kernel) = task;
    kernel.cost_ns = task.cost_ns;
    kernel.collective = groups[t];
    kernels.push_back(std::move(kernel));
  }
  return kernels;
}

// REQUIRES: the plan has its variables and kernels.
void add_packed_copies(const Lowered& lowered, plan::Plan& plan) {
  for (size_t t = 0; t < lowered.tasks.size(); ++t) {
    const std::map<int, plan::Derivation>& derived = lowered.tasks[t].derived;
    for (const plan::PackedInput& packing : lowered.tasks[t].packings) {
      plan::View& view = plan.kernels[t].inputs[packing.input];
      const auto made = derived.find(packing.input);
      view.packed = plan::packed_copy(plan, view.index, packing.format, packing.bytes,
                                      made == derived.end() ? std::nullopt : std::optional(made->second));
    }
    for (const auto& [input, made] : derived) {
      plan::View& view = plan.kernels[t].inputs[input];
      if (view.packed < 0) view.packed = plan::derived_copy(plan, made);
    }
  }
}

std::vector<Channel> join(const Lowered& lowered, const ActorSet& actors, const DataChannels& data,
                          const Stages& stages, const CompileOptions& options) {
  std::vector<Channel> channels = data.channels;
  const auto add = [&](const std::vector<Channel>& more) { channels.insert(channels.end(), more.begin(), more.end()); };
  add(variable_order(lowered, actors));
  add(stream_order(lowered, actors, data, stages, channels));
  if (options.concurrency > 0) add(width_order(actors, options.concurrency, channels));
  add(start_and_finish(lowered, actors, channels, options.outputs_buffer_size));
  tell_apart(channels);
  return channels;
}

}  // namespace

plan::Plan build_plan(const graph::Graph& graph, const Lowered& lowered, const Programs& programs,
                      const CompileOptions& options, uint64_t spare_bytes) {
  const ActorSet actors = make_actors(lowered, programs, graph.micro_batches(), options.granularity);
  const Stages stages = find_stages(graph, lowered, actors, options);
  std::vector<StoreUse> uses = find_uses(lowered, actors);
  find_homes_of_spilled(lowered, actors, stages, uses);
  const DataChannels data = data_channels(graph, lowered, actors, uses, stages, options);
  const std::vector<Channel> channels = join(lowered, actors, data, stages, options);
  const std::vector<std::vector<plan::Instr>> instructions = write_programs(actors, channels);
  const RegisterSet registers = make_registers(actors, channels);

  plan::Plan plan;
  plan.name = options.name;
  plan.spaces = lowered.spaces;
  plan.streams = actors.streams;
  plan.actors = actors.actors;
  for (size_t a = 0; a < plan.actors.size(); ++a) {
    plan.actors[a].program = instructions[a];
    if (plan::is_started(plan.actors[a])) plan.actors[a].starts = actors.batches / actors.every[a];
  }
  plan.registers = registers.registers;
  plan.edges = registers.edges;
  std::vector<bool> fixed;
  for (const Channel& channel : channels) fixed.push_back(channel.fixed_quota);
  const std::vector<int> quotas = choose_quotas(plan, lowered, fixed, options, spare_bytes);
  for (size_t r = 0; r < quotas.size(); ++r) plan.registers[r].quota = quotas[r];

  const Sharing sharing = share_in_place(lowered, actors, uses, data, registers, options);
  Memory memory = place_memory(lowered, actors, uses, data, plan.registers, sharing, options);
  for (size_t r = 0; r < data.channels.size(); ++r) {
    plan.registers[r].slots = memory.slots[r];
    plan.registers[r].in_place_of = sharing.in_place_of[r];
  }
  plan.kernels = make_kernels(lowered, data, memory);
  plan.arenas = std::move(memory.arenas);
  plan.buffers = std::move(memory.buffers);
  for (size_t i = 0; i < graph.variables().size(); ++i) {
    const graph::Variable& v = graph.variables()[i];
    const Store& store = lowered.stores[lowered.variable_store[i]];
    plan.variables.push_back({v.name, store.space, TensorSpec::contiguous(graph.type(v.value)), v.constant});
  }
  add_packed_copies(lowered, plan);
  for (size_t s = 0; s < uses.size(); ++s) {
    if (lowered.stores[s].kind != Store::Kind::kInput) continue;
    const graph::Input& input = graph.inputs()[lowered.stores[s].index];
    plan.inputs.push_back({input.name, data.of_store[s], TensorSpec::contiguous(graph.type(input.value))});
  }
  for (size_t k = 0; k < lowered.outputs.size(); ++k) {
    const graph::Output& output = graph.outputs()[k];
    plan.outputs.push_back(
        {output.name, view_of(lowered.outputs[k], lowered, data, memory), output.extent_of, output.axes});
  }
  return plan;
}

}  // namespace sluice::compiler
