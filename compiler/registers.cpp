// Actors, the registers and edges between them, and their instructions.
#include <algorithm>
#include <iterator>

#include "base/fix.h"
#include "compiler/plan_builder.h"
#include "plan/quota.h"

namespace sluice::compiler {

using plan::ActorRole;
using plan::Instr;
using plan::InstrKind;

PlanBuilder::PlanBuilder(const graph::Graph& graph, const Lowered& lowered, const Programs& programs,
                         const CompileOptions& options)
    : graph_(graph),
      lowered_(lowered),
      programs_(programs),
      options_(options),
      stream_map_(lowered.streams.size(), -1),
      position_(lowered.tasks.size(), 0),
      uses_(lowered.stores.size()),
      batches_(graph.micro_batches()) {
  for (const std::vector<int>& tasks : programs.actors) every_.push_back(lowered.tasks[tasks[0]].every);
}

std::string PlanBuilder::unique(std::unordered_set<std::string>& names, const std::string& base) {
  std::string name = base;
  for (int n = 2; !names.insert(name).second; ++n) name = fmt::format("{}#{}", base, n);
  return name;
}

// The first ones bring each rank's inputs, the last ones hand out its outputs, those between run the programs.
void PlanBuilder::make_actors() {
  const auto stream = [&](int lowered_stream) {
    int& mapped = stream_map_[lowered_stream];
    if (mapped < 0) {
      mapped = static_cast<int>(plan_.streams.size());
      plan_.streams.push_back(lowered_.streams[lowered_stream]);
      stream_actors_.emplace_back();
    }
    return mapped;
  };
  const auto of_rank = [](const char* name, int rank) { return rank == 0 ? name : fmt::format("{}@{}", name, rank); };
  for (int r = 0; r < ranks(); ++r) {
    plan_.actors.push_back(
        {unique(actor_names_, of_rank("inputs", r)), stream(lowered_.feed_streams[r]), ActorRole::kFeed, {}});
    actor_names_.insert(of_rank("outputs", r));
  }
  for (size_t a = 0; a < programs_.actors.size(); ++a) {
    const int s = stream(programs_.stream_of[a]);
    const bool single = options_.granularity == Granularity::kOp;
    const std::string& base = single ? lowered_.tasks[programs_.actors[a][0]].name : plan_.streams[s].name;
    stream_actors_[s].push_back(static_cast<int>(plan_.actors.size()));
    plan_.actors.push_back({unique(actor_names_, base), s, ActorRole::kNormal, {}});
  }
  for (int r = 0; r < ranks(); ++r)
    plan_.actors.push_back({of_rank("outputs", r), stream(lowered_.sink_streams[r]), ActorRole::kSink, {}});
  instructions_.resize(plan_.actors.size());
  for (const std::vector<int>& actors : stream_actors_) {
    int64_t position = 0;
    for (int actor : actors) {
      for (int task : tasks_of(actor)) position_[task] = position++;
    }
  }
}

void PlanBuilder::find_uses() {
  for (size_t s = 0; s < uses_.size(); ++s) {
    if (lowered_.stores[s].kind == Store::Kind::kVariable) uses_[s].place = Place::kVariable;
  }
  for (const Operand& output : lowered_.outputs) uses_[output.store].output = true;
  for (size_t t = 0; t < lowered_.tasks.size(); ++t) {
    const int task = static_cast<int>(t), actor = actor_of_task(task);
    for (const Operand& out : lowered_.tasks[t].outputs) {
      StoreUse& use = uses_[out.store];
      if (use.place == Place::kVariable) continue;
      use.writer = task;
      use.place = Place::kBuffer;
      use.begin = position_[t];
      use.end = position_[t] + 1;
    }
    for (const Operand& in : lowered_.tasks[t].inputs) {
      if (in.store < 0 || uses_[in.store].place == Place::kVariable) continue;
      StoreUse& use = uses_[in.store];
      use.end = std::max(use.end, position_[t] + 1);
      if (use.writer >= 0 && actor_of_task(use.writer) == actor) continue;
      // Tasks come in order, but those of different actors may be interleaved.
      const auto it =
          std::find_if(use.consumers.rbegin(), use.consumers.rend(), [&](auto& c) { return c.first == actor; });
      if (it == use.consumers.rend())
        use.consumers.emplace_back(actor, task);
      else
        it->second = task;
    }
  }
}

int PlanBuilder::add_register(const std::string& name, int producer, uint64_t bytes, int quota) {
  plan::Register r;
  r.name = unique(register_names_, name);
  r.producer = producer;
  r.bytes = bytes;
  r.quota = quota;
  plan_.registers.push_back(std::move(r));
  fixed_quota_.push_back(true);
  return static_cast<int>(plan_.registers.size()) - 1;
}

int PlanBuilder::add_edge(int reg, int consumer) {
  const plan::Register& r = plan_.registers[reg];
  const int there = every(r.producer) * r.emit_every, wanted = every(consumer);
  plan_.edges.push_back({reg, consumer, std::max(1, wanted / there), std::max(1, there / wanted)});
  if (r.initial_tokens == 0) linked_.emplace(std::pair(r.producer, consumer), reg);
  return static_cast<int>(plan_.edges.size()) - 1;
}

void PlanBuilder::make_data_registers() {
  const int in_flight = options_.outputs_buffer_size;
  for (size_t s = 0; s < uses_.size(); ++s) {
    StoreUse& use = uses_[s];
    const Store& store = lowered_.stores[s];
    const bool input = store.kind == Store::Kind::kInput;
    if (use.place == Place::kVariable || (!input && (use.writer < 0 || (use.consumers.empty() && !use.output))))
      continue;
    const int producer = input ? feed(rank_of_store(s)) : actor_of_task(use.writer);
    bool local = !input && !use.output, packed = false;
    for (const auto& [actor, task] : use.consumers) {
      local = local && stream_of_actor(actor) == stream_of_actor(producer) && every(actor) == every(producer);
      packed = packed || every(actor) > store.every;  // it takes several at once
    }
    const int depth = every(producer) == 1 ? depth_[stream_of_actor(producer)] : 1;
    local = local && depth == 1;
    std::string name = store.name;
    if (use.output) {
      for (size_t k = 0; k < lowered_.outputs.size(); ++k) {
        if (lowered_.outputs[k].store != static_cast<int>(s)) continue;
        name = graph_.outputs()[k].name;
        break;
      }
    }
    use.reg = add_register(name, producer, store.bytes, input ? in_flight * batches_ : use.output ? in_flight : 1);
    plan::Register& r = plan_.registers[use.reg];
    r.emit_every = store.every / every(producer);
    const auto wanted = options_.quotas.find(r.name);
    if (wanted != options_.quotas.end())
      r.quota = wanted->second;
    else if (!local && !input && store.quota > 0)
      r.quota = std::max(store.quota, use.output ? in_flight : 1);
    else if (!local && !input && !use.output && staged_ && store.every < batches_ && !packed)
      r.quota = std::max(2, depth);
    else if (!local && !input && !use.output)
      fixed_quota_[use.reg] = false;
    use.place = local && r.quota == 1 ? Place::kLocal : Place::kShared;
    if (!input)
      instructions_[producer].emits[use.writer].push_back(use.reg);
    else
      instructions_[producer].last_emits.push_back(use.reg);
    for (const auto& [actor, task] : use.consumers) {
      instructions_[actor].releases[task].push_back(add_edge(use.reg, actor));
    }
    const int end = sink(rank_of_store(s));
    if (use.output || use.consumers.empty()) instructions_[end].first_releases.push_back(add_edge(use.reg, end));
  }
}

void PlanBuilder::add_control(const std::string& kind, int from, int after_task, int to, int initial_tokens) {
  const int reg = add_register(fmt::format("{}: {} -> {}", kind, plan_.actors[from].name, plan_.actors[to].name), from,
                               0, std::max(1, initial_tokens));
  plan_.registers[reg].initial_tokens = initial_tokens;
  plan_.registers[reg].emit_every = std::max(1, every(to) / every(from));
  instructions_[to].first_releases.push_back(add_edge(reg, to));
  if (after_task < 0)
    instructions_[from].last_emits.push_back(reg);
  else
    instructions_[from].emits[after_task].push_back(reg);
}

// Readers of a variable's old content come before its writer, and after the writer of the step before. Within a stream
// the order of the programs says so.
void PlanBuilder::order_variables() {
  std::vector<std::vector<int>> readers(lowered_.writer.size());
  for (size_t t = 0; t < lowered_.tasks.size(); ++t) {
    for (const Operand& in : lowered_.tasks[t].inputs) {
      if (in.store < 0 || lowered_.stores[in.store].kind != Store::Kind::kVariable) continue;
      const int variable = lowered_.stores[in.store].index;
      if (lowered_.writer[variable] > static_cast<int>(t)) readers[variable].push_back(static_cast<int>(t));
    }
  }
  std::map<std::pair<int, int>, std::pair<int, int>> pairs;  // (reading, writing actor): last read, last write
  for (size_t v = 0; v < readers.size(); ++v) {
    const int write = lowered_.writer[v];
    for (int read : readers[v]) {
      if (lowered_.tasks[read].stream == lowered_.tasks[write].stream) continue;
      auto& last =
          pairs.emplace(std::pair(actor_of_task(read), actor_of_task(write)), std::pair(read, write)).first->second;
      last.first = std::max(last.first, read);
      last.second = std::max(last.second, write);
    }
  }
  for (const auto& [actors, tasks] : pairs) {
    add_control("read", actors.first, tasks.first, actors.second, 0);
    add_control("written", actors.second, tasks.second, actors.first, 1);
  }
}

// The actors of a stream run in one order when they share memory: its arena, or a variable that changes. Collectives
// come in one order on all ranks.
bool PlanBuilder::needs_order(int stream) const {
  if (stream_actors_[stream].size() < 2) return false;
  if (plan_.streams[stream].kind == plan::StreamKind::kCollective) return true;
  for (int actor : stream_actors_[stream]) {
    for (int t : tasks_of(actor)) {
      const Task& task = lowered_.tasks[t];
      if (task.workspace_bytes > 0) return true;
      for (const Operand& out : task.outputs) {
        const Place place = uses_[out.store].place;
        if (place == Place::kBuffer || place == Place::kLocal || place == Place::kVariable) return true;
      }
    }
  }
  return false;
}

void PlanBuilder::order_streams() {
  for (size_t s = 0; s < stream_actors_.size(); ++s) {
    if (!needs_order(static_cast<int>(s))) continue;
    const std::vector<int>& actors = stream_actors_[s];
    for (size_t i = 0; i + 1 < actors.size(); ++i) {
      if (!linked_.contains({actors[i], actors[i + 1]})) add_control("order", actors[i], -1, actors[i + 1], 0);
    }
    // The micro-batches' among themselves, and with those of the step, if any.
    std::vector<int> of_batches;
    std::copy_if(actors.begin(), actors.end(), std::back_inserter(of_batches), [&](int a) { return every(a) == 1; });
    if (of_batches.size() > 1) add_control("order", of_batches.back(), -1, of_batches.front(), depth_[s]);
    if (of_batches.size() < actors.size()) add_control("order", actors.back(), -1, actors.front(), 1);
  }
}

// Every actor is started by its rank's feed, and every step of a rank is over when its sink says so.
void PlanBuilder::start_and_finish() {
  std::vector<bool> fed(plan_.actors.size(), false), heard(plan_.actors.size(), false);
  for (const plan::Edge& edge : plan_.edges) {
    const plan::Register& r = plan_.registers[edge.reg];
    if (r.initial_tokens > 0) continue;
    fed[edge.consumer] = true;
    if (rank_of_actor(r.producer) == rank_of_actor(edge.consumer)) heard[r.producer] = true;
  }
  for (const Task& task : lowered_.tasks) {
    bool writes = task.effectful;
    for (const Operand& out : task.outputs) writes = writes || uses_[out.store].place == Place::kVariable;
    if (writes) heard[actor_of_task(static_cast<int>(&task - lowered_.tasks.data()))] = false;
  }
  for (int a = ranks(); a < sink(0); ++a) {
    if (heard[a]) continue;
    const int end = sink(rank_of_actor(a));
    const int reg = add_register("done: " + plan_.actors[a].name, a, 0, options_.outputs_buffer_size);
    plan_.registers[reg].emit_every = every(end) / every(a);
    instructions_[a].last_emits.push_back(reg);
    instructions_[end].first_releases.push_back(add_edge(reg, end));
    fed[end] = true;
  }
  std::vector<int> start(ranks(), -1);
  for (int a = ranks(); a < static_cast<int>(plan_.actors.size()); ++a) {
    if (fed[a]) continue;
    int& reg = start[rank_of_actor(a)];
    if (reg < 0) {
      const int from = feed(rank_of_actor(a));
      reg = add_register(from == 0 ? "start" : fmt::format("start@{}", from), from, 0,
                         options_.outputs_buffer_size * batches_);
      instructions_[from].last_emits.push_back(reg);
    }
    instructions_[a].first_releases.push_back(add_edge(reg, a));
  }
}

void PlanBuilder::set_quotas() {
  for (const auto& [name, quota] : options_.quotas) {
    std::string known;
    bool found = false;
    for (const plan::Register& r : plan_.registers) {
      if (r.bytes == 0) continue;
      found = found || r.name == name;
      if (known.size() < 400) known += (known.empty() ? "" : ", ") + r.name;
    }
    Fix fix = {{"option", std::string("quotas")}, {"key", name}, {"value", Attr()}};
    if (!found) {
      throw FixableError(ErrorKind::kValue,
                         fmt::format("quota of register '{}': there is no such register; the plan has {}", name, known),
                         fix);
    }
    fix.back().second = int64_t{1};
    if (quota < 1) {
      throw FixableError(ErrorKind::kValue, fmt::format("quota of register '{}': {}; must be at least 1", name, quota),
                         fix);
    }
  }
  const std::vector<int> quotas = plan::minimal_quotas(plan_, fixed_quota_);
  for (size_t r = 0; r < quotas.size(); ++r) plan_.registers[r].quota = quotas[r];
}

void PlanBuilder::write_programs() {
  for (size_t a = 0; a < plan_.actors.size(); ++a) {
    std::vector<Instr>& program = plan_.actors[a].program;
    const Instructions& i = instructions_[a];
    const auto add = [&](InstrKind kind, const std::vector<int>& indices) {
      for (int index : indices) program.push_back({kind, index});
    };
    const auto at = [](const std::map<int, std::vector<int>>& by_task, int task) {
      const auto it = by_task.find(task);
      return it == by_task.end() ? std::vector<int>() : it->second;
    };
    add(InstrKind::kRelease, i.first_releases);
    if (plan_.actors[a].role == ActorRole::kNormal) {
      for (int task : tasks_of(static_cast<int>(a))) {
        program.push_back({InstrKind::kRun, task});
        add(InstrKind::kEmit, at(i.emits, task));
        add(InstrKind::kRelease, at(i.releases, task));
      }
    }
    add(InstrKind::kEmit, i.last_emits);
  }
}

}  // namespace sluice::compiler
