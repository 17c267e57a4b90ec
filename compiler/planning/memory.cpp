// A place for every store: buffers of an arena per stream, packed by lifetime along the stream's fixed order, and slots
// of registers that cross streams.
#include "base/log.h"
#include "compiler/planning/planning.h"
#include "plan/pack/packing.h"
#include "plan/pack/packing_search.h"

namespace sluice::compiler {
namespace {

class Placing {
 public:
  Placing(const Lowered& lowered, const ActorSet& actors) : lowered_(lowered), actors_(actors) {}

  int stream_arena(int stream, int space) {
    const plan::Stream& s = actors_.streams[stream];
    const auto& [kind, device] = lowered_.spaces[space];
    // A stream has an arena in each space that its actors write: its device's own, and others for memory that copies
    // need, such as pinned memory.
    const bool own = kind != plan::SpaceKind::kPinned && device == s.device;
    return arena(stream, space, own ? s.name : s.name + "/" + plan::space_kind_name(kind));
  }
  int shared_arena(int space) { return arena(-1, space, "registers/" + lowered_.spaces[space].str()); }

  // Alive from `begin` to `end` of its stream's order.
  int add_packed(const std::string& name, int arena, uint64_t bytes, int64_t begin, int64_t end) {
    const int buffer = add(name, arena, bytes);
    packed_[arena].push_back({{begin, end, bytes}, buffer});
    return buffer;
  }
  // Beside all others.
  int add_apart(const std::string& name, int arena, uint64_t bytes) {
    const int buffer = add(name, arena, bytes);
    put_at_end(buffer);
    memory.arenas[arena].lower_bound = memory.arenas[arena].bytes;
    return buffer;
  }

  void pack(const CompileOptions& options) {
    for (const auto& [index, items] : packed_) {
      plan::Arena& arena = memory.arenas[index];
      std::vector<plan::Interval> lives;
      for (const Item& item : items) lives.push_back(item.life);
      // Without reuse each buffer has bytes of its own; the lower bound still says how much reuse would save.
      if (!options.reuse_memory) {
        arena.lower_bound = plan::max_live_bytes(lives);
        for (const Item& item : items) put_at_end(item.buffer);
        continue;
      }
      const plan::Packing packing = options.packing == "search"
                                        ? plan::search_packing(lives)
                                        : plan::pack(lives, plan::kAlignment, options.packing == "every");
      for (size_t i = 0; i < items.size(); ++i) memory.buffers[items[i].buffer].offset = packing.offsets[i];
      arena.bytes = packing.bytes;
      arena.lower_bound = packing.lower_bound;
      report(arena, packing);
    }
  }

  Memory memory;

 private:
  static void report(const plan::Arena& arena, const plan::Packing& packing) {
    if (!log_enabled(LogLevel::kDebug, LogArea::kCompiler)) return;
    std::string tries;
    for (const plan::Packing::Try& t : packing.tries) tries += fmt::format("; {}: {} bytes", t.way, t.bytes);
    log(LogLevel::kDebug, LogArea::kCompiler, "arena {}: {} bytes, {} alive at once{}", arena.name, packing.bytes,
        packing.lower_bound, tries);
  }

  struct Item {
    plan::Interval life;
    int buffer = 0;
  };

  int arena(int stream, int space, std::string name) {
    const auto [it, fresh] = arenas_.try_emplace({stream, space}, static_cast<int>(memory.arenas.size()));
    if (fresh) memory.arenas.push_back({std::move(name), space, stream, 0, 0});
    return it->second;
  }
  int add(const std::string& name, int arena, uint64_t bytes) {
    memory.buffers.push_back({name, arena, 0, bytes});
    return static_cast<int>(memory.buffers.size()) - 1;
  }
  void put_at_end(int buffer) {
    plan::Buffer& b = memory.buffers[buffer];
    plan::Arena& arena = memory.arenas[b.arena];
    b.offset = arena.bytes;
    arena.bytes = checked_add(arena.bytes, align_up(b.bytes, plan::kAlignment));
  }

  const Lowered& lowered_;
  const ActorSet& actors_;
  std::map<std::pair<int, int>, int> arenas_;  // (stream or -1, space) -> arena
  std::map<int, std::vector<Item>> packed_;    // by arena
};

}  // namespace

Place place_of(const Lowered& lowered, const std::vector<StoreUse>& uses, const DataChannels& data, int store) {
  if (lowered.stores[store].kind == Store::Kind::kVariable) return Place::kVariable;
  const int channel = data.of_store[store];
  if (channel >= 0) return data.channels[channel].local ? Place::kLocal : Place::kShared;
  return uses[store].writer >= 0 ? Place::kBuffer : Place::kUnused;
}

// A value that stays on one stream lies in the stream's arena, packed by the order of its firings. A value that another
// stream reads may be alive at any time, so each slot of its register has bytes of its own.
Memory place_memory(const Lowered& lowered, const ActorSet& actors, const std::vector<StoreUse>& uses,
                    const DataChannels& data, const std::vector<plan::Register>& registers, const Sharing& sharing,
                    const CompileOptions& options) {
  Placing placing(lowered, actors);
  Memory& memory = placing.memory;
  memory.buffer_of.assign(uses.size(), -1);
  memory.slots.resize(data.channels.size());
  std::vector<Place> places;
  std::vector<int> arena(uses.size(), -1);
  for (size_t s = 0; s < uses.size(); ++s) {
    places.push_back(place_of(lowered, uses, data, static_cast<int>(s)));
    if (places[s] == Place::kBuffer || places[s] == Place::kLocal)
      arena[s] = placing.stream_arena(uses[s].home >= 0 ? uses[s].home : actors.stream_of[uses[s].writer],
                                      lowered.stores[s].space);
  }
  for (size_t s = 0; s < uses.size(); ++s) {
    const Store& store = lowered.stores[s];
    if (places[s] == Place::kShared && data.in_slots_of[data.of_store[s]] < 0) {
      const plan::Register& r = registers[data.of_store[s]];
      for (int slot = 0; slot < r.quota; ++slot) {
        const std::string name = r.quota == 1 ? r.name : fmt::format("{}[{}]", r.name, slot);
        memory.slots[data.of_store[s]].push_back(
            placing.add_apart(name, placing.shared_arena(store.space), store.bytes));
      }
      // Stores that share bytes are one buffer, which lives until the last of them is read.
    } else if (arena[s] >= 0 && sharing.with[s] == static_cast<int>(s)) {
      memory.buffer_of[s] = placing.add_packed(store.name, arena[s], store.bytes, uses[s].begin, sharing.end[s]);
    }
  }
  for (size_t c = 0; c < data.channels.size(); ++c)
    if (data.in_slots_of[c] >= 0) memory.slots[c] = memory.slots[data.in_slots_of[c]];
  for (size_t s = 0; s < uses.size(); ++s) {
    if (arena[s] < 0) continue;
    memory.buffer_of[s] = memory.buffer_of[sharing.with[s]];
    if (places[s] == Place::kLocal) memory.slots[data.of_store[s]] = {memory.buffer_of[s]};
  }
  for (size_t t = 0; t < lowered.tasks.size(); ++t) {
    const Task& task = lowered.tasks[t];
    memory.workspace.push_back(-1);
    if (task.workspace_bytes == 0) continue;
    const int arena_index = placing.stream_arena(actors.stream_of[t], lowered.stream_space[task.stream]);
    // A workspace is alive while its task runs, and at no other time.
    memory.workspace.back() = placing.add_packed(task.name + "/workspace", arena_index, task.workspace_bytes,
                                                 actors.position[t], actors.position[t] + 1);
  }
  placing.pack(options);
  return std::move(placing.memory);
}

}  // namespace sluice::compiler
