#pragma once
// From tasks to a plan, as functions from plain data to plain data, in the order of this file; plan.cpp puts the parts
// together.
#include <cstdint>
#include <map>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "compiler/lowered.h"

namespace sluice::compiler {

// ---- actors.cpp

// `base`, with a number where that is in `names`, to which it is added.
std::string unused_name(std::unordered_set<std::string>& names, const std::string& base);

// The plan's actors: a feed for each rank, the programs, a sink for each rank. Tasks tell what they run.
struct ActorSet {
  int ranks = 1;
  int batches = 1;  // micro-batches of a step
  std::vector<plan::Stream> streams;
  std::vector<plan::Actor> actors;          // programs to be written
  std::vector<std::vector<int>> tasks;      // per actor, in order; none of feeds and sinks
  std::vector<int> every;                   // per actor: it fires once per so many micro-batches
  std::vector<std::vector<int>> of_stream;  // per stream, in fixed order, without feeds and sinks
  std::vector<int> actor_of, stream_of;     // per task
  std::vector<int64_t> position;            // per task, along its stream

  int feed(int rank) const { return rank; }
  int sink(int rank) const { return static_cast<int>(actors.size()) - ranks + rank; }
  int rank_of(int actor) const { return streams[actors[actor].stream].device.rank; }
};
ActorSet make_actors(const Lowered& lowered, const Programs& programs, int batches, Granularity granularity);

// The writer of a store, and its readers.
struct StoreUse {
  int writer = -1;                             // task; -1 for inputs
  std::vector<std::pair<int, int>> consumers;  // other actors and their last task that reads, in order of the first
  bool output = false;                         // the sink reads it
  int64_t begin = 0, end = 0;                  // along its stream's fixed order; read there by its own actor or another
  int home = -1;  // the stream in whose order and arena it lives although another one reads or makes it; -1: none such
};
std::vector<StoreUse> find_uses(const Lowered& lowered, const ActorSet& actors);

// ---- stages.cpp

// Stages of a pipeline, where options name some and a step has several micro-batches.
struct Stages {
  bool any = false;
  std::vector<int> depth;  // per stream of the plan: micro-batches between its first and its last actor
};
Stages find_stages(const graph::Graph& graph, const Lowered& lowered, const ActorSet& actors,
                   const CompileOptions& options);

// ---- disk.cpp

// Sets the homes, and lifetimes there, of what is spilled and of what is fetched.
void find_homes_of_spilled(const Lowered& lowered, const ActorSet& actors, const Stages& stages,
                           std::vector<StoreUse>& uses);

// ---- channels.cpp, control.cpp

// A register with its edges, and where in their programs the actors emit and release it.
struct Channel {
  struct Consumer {
    int actor = 0;
    int task = -1;  // released after it; -1: at the beginning
  };
  std::string name;
  int producer = 0;
  int task = -1;  // emitted after it; -1: at the end
  uint64_t bytes = 0;
  int quota = 1;
  bool fixed_quota = true;
  bool local = false;  // between actors of one stream, its one slot in the stream's arena
  int emit_every = 1, initial_tokens = 0;
  std::vector<Consumer> consumers = {};
};

struct DataChannels {
  std::vector<Channel> channels;
  std::vector<int> of_store;          // or -1: not read outside of the actor that writes it
  std::vector<int> in_slots_of = {};  // per channel: that of the donated input whose slots it takes over, or -1
};
DataChannels data_channels(const graph::Graph& graph, const Lowered& lowered, const ActorSet& actors,
                           const std::vector<StoreUse>& uses, const Stages& stages, const CompileOptions& options);

// ---- donation.cpp

// Which outputs lie in the slots of options.donated: DataChannels::in_slots_of. Such an input is released once the
// output has been written, if not before.
void lay_over_inputs(const graph::Graph& graph, const Lowered& lowered, const ActorSet& actors,
                     const std::vector<StoreUse>& uses, const CompileOptions& options, DataChannels& data);

// Readers of a variable's old content come before its writer, and after the writer of the step before. Within a stream
// the order of the programs says so.
std::vector<Channel> variable_order(const Lowered& lowered, const ActorSet& actors);
// The actors of a stream run in one order when they share memory: its arena, or a variable that changes. Collectives
// come in one order on all ranks. `joined`: the channels there are.
std::vector<Channel> stream_order(const Lowered& lowered, const ActorSet& actors, const DataChannels& data,
                                  const Stages& stages, const std::vector<Channel>& joined);
// At most `width` actors run at the same time: they are that many rows, of which each runs one after the other, step by
// step. REQUIRES: one rank.
std::vector<Channel> width_order(const ActorSet& actors, int width, const std::vector<Channel>& joined);
// Every actor is started by its rank's feed, and every step of a rank is over when its sink says so.
std::vector<Channel> start_and_finish(const Lowered& lowered, const ActorSet& actors,
                                      const std::vector<Channel>& joined, int in_flight);

// Gives channels of one name different ones.
void tell_apart(std::vector<Channel>& channels);

struct RegisterSet {
  std::vector<plan::Register> registers;  // by channel; slots to be placed
  std::vector<plan::Edge> edges;
};
// Edges take and hold as often as their two ends fire.
RegisterSet make_registers(const ActorSet& actors, const std::vector<Channel>& channels);

// ---- instructions.cpp

// Writes the program of each actor: what it runs, emits and releases, in order.
std::vector<std::vector<plan::Instr>> write_programs(const ActorSet& actors, const std::vector<Channel>& channels);

// ---- quotas.cpp

// How many slots each register gets. `plan` has its actors, programs of tasks, registers and edges; `fixed` quotas
// stay. Slots that make it faster may take `spare_bytes` beyond the fewest. Throws kValue where options.quotas names
// what is no register.
std::vector<int> choose_quotas(const plan::Plan& plan, const Lowered& lowered, const std::vector<bool>& fixed,
                               const CompileOptions& options, uint64_t spare_bytes);

// ---- memory.cpp, in_place.cpp

enum class Place : uint8_t {
  kUnused,
  kVariable,
  kBuffer,  // of one actor, in its stream's arena
  kLocal,   // a register between actors of one stream, its single slot in the stream's arena
  kShared,  // a register across streams, or an input or output: its own slots
};
Place place_of(const Lowered& lowered, const std::vector<StoreUse>& uses, const DataChannels& data, int store);

// Stores that lie in the bytes of others, whose content dies where theirs is made.
struct Sharing {
  std::vector<int> with;         // per store: the store whose buffer it is in, or itself
  std::vector<int64_t> end;      // per store: when the last of those in its buffer dies
  std::vector<int> in_place_of;  // per data channel: edge, or -1
};
// The same bytes, seen alike and as a whole.
bool same_elements(const Operand& in, const Operand& out);
Sharing share_in_place(const Lowered& lowered, const ActorSet& actors, const std::vector<StoreUse>& uses,
                       const DataChannels& data, const RegisterSet& registers, const CompileOptions& options);

struct Memory {
  std::vector<plan::Arena> arenas;
  std::vector<plan::Buffer> buffers;
  std::vector<int> buffer_of;           // per store: of kBuffer and kLocal, or -1
  std::vector<std::vector<int>> slots;  // per data channel
  std::vector<int> workspace;           // per task: buffer, or -1
};
Memory place_memory(const Lowered& lowered, const ActorSet& actors, const std::vector<StoreUse>& uses,
                    const DataChannels& data, const std::vector<plan::Register>& registers, const Sharing& sharing,
                    const CompileOptions& options);

}  // namespace sluice::compiler
