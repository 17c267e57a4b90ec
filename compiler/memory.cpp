// A place for every store: buffers of an arena per stream, packed by lifetime along the stream's fixed order, and slots
// of registers that cross streams.
#include <algorithm>

#include "compiler/plan_builder.h"
#include "plan/packing.h"

namespace sluice::compiler {

using plan::View;

int PlanBuilder::root(int store) const {
  while (shares_with_[store] >= 0) store = shares_with_[store];
  return store;
}

int PlanBuilder::stream_arena(int stream, int space) {
  const auto [it, fresh] = arenas_.try_emplace({stream, space}, static_cast<int>(plan_.arenas.size()));
  if (fresh) {
    const plan::Stream& s = plan_.streams[stream];
    const plan::SpaceKind kind = lowered_.spaces[space].kind;
    const bool own = kind == (s.device.kind == DeviceKind::kCpu ? plan::SpaceKind::kHost : plan::SpaceKind::kDevice);
    plan_.arenas.push_back({own ? s.name : s.name + "/" + plan::space_kind_name(kind), space, stream, 0, 0});
  }
  return it->second;
}

int PlanBuilder::shared_arena(int space) {
  const auto [it, fresh] = arenas_.try_emplace({-1, space}, static_cast<int>(plan_.arenas.size()));
  if (fresh) plan_.arenas.push_back({"registers/" + lowered_.spaces[space].str(), space, -1, 0, 0});
  return it->second;
}

// Lets output and input of a task lie in the same bytes, when the input's content dies there.
bool PlanBuilder::share(int task_index, const plan::InPlacePair& pair) {
  const Task& task = lowered_.tasks[task_index];
  if (pair.output >= static_cast<int>(task.outputs.size()) || pair.input >= static_cast<int>(task.inputs.size()))
    return false;
  const Operand &out = task.outputs[pair.output], &in = task.inputs[pair.input];
  if (in.store < 0 || in.offset != 0 || out.offset != 0) return false;
  const bool same_elements = in.spec.shape == out.spec.shape && in.spec.strides == out.spec.strides &&
                             dtype_size(in.spec.dtype) == dtype_size(out.spec.dtype) &&
                             is_dense(in.spec.shape, in.spec.strides);
  StoreUse &to = uses_[out.store], &from = uses_[root(in.store)];
  if (!same_elements || to.place != from.place || to.arena != from.arena || shares_with_[out.store] >= 0) return false;
  if (lowered_.stores[out.store].bytes > lowered_.stores[root(in.store)].bytes) return false;
  if (from.end != position_[task_index] + 1) return false;  // read later
  for (size_t i = 0; i < task.inputs.size(); ++i) {
    if (static_cast<int>(i) == pair.input || task.inputs[i].store < 0 || root(task.inputs[i].store) != root(in.store))
      continue;
    return false;  // seen through another operand as well
  }
  for (const Operand& other : task.outputs) {
    if (other.store != out.store && shares_with_[other.store] >= 0 && root(other.store) == root(in.store)) return false;
  }
  if (to.place == Place::kLocal) {
    // Registers: the sole consumer takes over the slot. Only where an actor is one kernel, so that its firing is.
    const StoreUse& last = uses_[in.store];
    if (options_.granularity != Granularity::kOp || last.consumers.size() != 1 || last.reg < 0) return false;
    if (plan_.registers[to.reg].bytes > plan_.registers[last.reg].bytes) return false;
    for (const Operand& other : task.outputs) {
      if (uses_[other.store].reg >= 0 && plan_.registers[uses_[other.store].reg].in_place_of >= 0) return false;
    }
    const int actor = actor_of_task(task_index);
    plan_.registers[to.reg].in_place_of = instructions_[actor].releases.at(task_index).front();
    for (int edge : instructions_[actor].releases.at(task_index)) {
      if (plan_.edges[edge].reg == last.reg) plan_.registers[to.reg].in_place_of = edge;
    }
  } else if (to.place != Place::kBuffer) {
    return false;
  }
  shares_with_[out.store] = root(in.store);
  from.end = std::max(from.end, to.end);
  return true;
}

void PlanBuilder::place_stores() {
  shares_with_.assign(uses_.size(), -1);
  for (size_t s = 0; s < uses_.size(); ++s) {
    StoreUse& use = uses_[s];
    if (use.place != Place::kBuffer && use.place != Place::kLocal) continue;
    use.arena = stream_arena(stream_of_actor(actor_of_task(use.writer)), lowered_.stores[s].space);
  }
  if (!options_.in_place) return;
  for (const std::vector<int>& actors : stream_actors_) {
    for (int actor : actors) {
      for (int task : tasks_of(actor)) {
        for (const plan::InPlacePair& pair : lowered_.tasks[task].in_place) share(task, pair);
      }
    }
  }
}

void PlanBuilder::make_arenas() {
  // What each stream arena holds: roots of shared stores, and workspaces.
  struct Item {
    plan::Interval life;
    int buffer = 0;
  };
  std::map<int, std::vector<Item>> items;
  const auto add_buffer = [&](const std::string& name, int arena, uint64_t bytes) {
    plan_.buffers.push_back({name, arena, 0, bytes});
    return static_cast<int>(plan_.buffers.size()) - 1;
  };
  for (size_t s = 0; s < uses_.size(); ++s) {
    StoreUse& use = uses_[s];
    const Store& store = lowered_.stores[s];
    if (use.place == Place::kShared) {
      const int arena_index = shared_arena(store.space);
      for (int slot = 0; slot < plan_.registers[use.reg].quota; ++slot) {
        plan::Register& r = plan_.registers[use.reg];
        r.slots.push_back(
            add_buffer(r.quota == 1 ? r.name : fmt::format("{}[{}]", r.name, slot), arena_index, store.bytes));
        plan::Arena& arena = plan_.arenas[arena_index];
        plan_.buffers.back().offset = arena.bytes;
        arena.bytes = checked_add(arena.bytes, align_up(store.bytes, plan::kAlignment));
        arena.lower_bound = arena.bytes;
      }
    } else if ((use.place == Place::kBuffer || use.place == Place::kLocal) && shares_with_[s] < 0) {
      use.buffer = add_buffer(store.name, use.arena, store.bytes);
      items[use.arena].push_back({{use.begin, use.end, store.bytes}, use.buffer});
    }
  }
  for (size_t s = 0; s < uses_.size(); ++s) {
    StoreUse& use = uses_[s];
    if (use.place != Place::kBuffer && use.place != Place::kLocal) continue;
    use.buffer = uses_[root(static_cast<int>(s))].buffer;
    if (use.place == Place::kLocal) plan_.registers[use.reg].slots = {use.buffer};
  }
  workspace_.assign(lowered_.tasks.size(), -1);
  for (size_t t = 0; t < lowered_.tasks.size(); ++t) {
    const Task& task = lowered_.tasks[t];
    if (task.workspace_bytes == 0) continue;
    const int arena = stream_arena(stream_map_[task.stream], lowered_.stream_space[task.stream]);
    workspace_[t] = add_buffer(task.name + "/workspace", arena, task.workspace_bytes);
    items[arena].push_back({{position_[t], position_[t] + 1, task.workspace_bytes}, workspace_[t]});
  }
  for (const auto& [index, list] : items) {
    plan::Arena& arena = plan_.arenas[index];
    std::vector<plan::Interval> lives;
    for (const Item& item : list) lives.push_back(item.life);
    if (options_.reuse_memory) {
      const plan::Packing packing = plan::pack(lives);
      for (size_t i = 0; i < list.size(); ++i) plan_.buffers[list[i].buffer].offset = packing.offsets[i];
      arena.bytes = packing.bytes;
      arena.lower_bound = packing.lower_bound;
    } else {
      arena.lower_bound = plan::max_live_bytes(lives);
      for (const Item& item : list) {
        plan_.buffers[item.buffer].offset = arena.bytes;
        arena.bytes = checked_add(arena.bytes, align_up(item.life.bytes, plan::kAlignment));
      }
    }
  }
}

View PlanBuilder::view_of(const Operand& operand) const {
  View view;
  view.offset = operand.offset;
  view.spec = operand.spec;
  view.token = operand.token;
  view.index = -1;
  if (operand.store < 0) return view;
  const StoreUse& use = uses_[operand.store];
  switch (use.place) {
    case Place::kVariable:
      view.base = plan::BaseKind::kVariable;
      view.index = lowered_.stores[operand.store].index;
      break;
    case Place::kBuffer: view.index = use.buffer; break;
    default:
      if (use.reg >= 0) {
        view.base = plan::BaseKind::kRegister;
        view.index = use.reg;
      }
  }
  return view;
}

void PlanBuilder::make_kernels() {
  std::map<std::vector<int64_t>, int> groups;  // by ranks
  for (size_t t = 0; t < lowered_.tasks.size(); ++t) {
    const Task& task = lowered_.tasks[t];
    plan::Kernel kernel;
    kernel.name = task.name;
    kernel.op = task.op;
    kernel.attrs = task.attrs;
    for (const Operand& in : task.inputs) kernel.inputs.push_back(view_of(in));
    for (const Operand& out : task.outputs) kernel.outputs.push_back(view_of(out));
    kernel.workspace = workspace_[t];
    kernel.source = task.source;
    kernel.module = task.module;
    kernel.cost_ns = task.cost_ns;
    if (task.meeting >= 0)
      kernel.collective = groups.try_emplace(task.ranks, static_cast<int>(groups.size())).first->second;
    plan_.kernels.push_back(std::move(kernel));
  }
}

plan::Plan PlanBuilder::build() {
  make_actors();
  find_stages();
  find_uses();
  make_data_registers();
  order_variables();
  order_streams();
  start_and_finish();
  write_programs();
  set_quotas();
  place_stores();
  make_arenas();
  make_kernels();
  plan_.name = options_.name;
  plan_.micro_batches = batches_;
  plan_.spaces = lowered_.spaces;
  for (size_t i = 0; i < graph_.variables().size(); ++i) {
    const graph::Variable& v = graph_.variables()[i];
    const Store& store = lowered_.stores[lowered_.variable_store[i]];
    plan_.variables.push_back({v.name, store.space, TensorSpec::contiguous(graph_.type(v.value)), v.constant});
  }
  for (size_t s = 0; s < uses_.size(); ++s) {
    if (lowered_.stores[s].kind != Store::Kind::kInput) continue;
    const graph::Input& input = graph_.inputs()[lowered_.stores[s].index];
    plan_.inputs.push_back({input.name, uses_[s].reg, TensorSpec::contiguous(graph_.type(input.value))});
  }
  for (size_t k = 0; k < lowered_.outputs.size(); ++k) {
    plan_.outputs.push_back({graph_.outputs()[k].name, view_of(lowered_.outputs[k])});
  }
  return std::move(plan_);
}

plan::Plan build_plan(const graph::Graph& graph, const Lowered& lowered, const Programs& programs,
                      const CompileOptions& options) {
  return PlanBuilder(graph, lowered, programs, options).build();
}

}  // namespace sluice::compiler
