#pragma once
// The state of building a plan from lowered tasks: registers.cpp joins the actors, programs of instructions follow,
// memory.cpp gives every store a place.
#include <cstdint>
#include <map>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "compiler/lowered.h"

namespace sluice::compiler {

class PlanBuilder {
 public:
  PlanBuilder(const graph::Graph& graph, const Lowered& lowered, const Programs& programs,
              const CompileOptions& options);
  plan::Plan build();

 private:
  // Where a store's bytes are.
  enum class Place : uint8_t {
    kUnused,
    kVariable,
    kBuffer,  // of one actor, in its stream's arena
    kLocal,   // a register between actors of one stream, its single slot in the stream's arena
    kShared,  // a register across streams, or an input or output: its own slots
  };
  struct StoreUse {
    Place place = Place::kUnused;
    int writer = -1;                             // task; -1 for inputs
    std::vector<std::pair<int, int>> consumers;  // other actors (of the plan) and their last task, ascending
    bool output = false;                         // the sink reads it
    int reg = -1;
    int64_t begin = 0, end = 0;  // along the stream's fixed order; of kBuffer and kLocal
    int arena = -1, buffer = -1;
  };
  struct Instructions {                           // of one actor, by task
    std::vector<int> first_releases, last_emits;  // control
    std::map<int, std::vector<int>> emits, releases;
  };

  // pipeline.cpp
  void find_stages();
  int stage_of(const std::string& module) const;
  void check_depth(int stream) const;

  // registers.cpp
  void make_actors();
  void find_uses();
  void make_data_registers();
  void order_variables();
  void order_streams();
  void start_and_finish();
  void set_quotas();
  void write_programs();
  int add_register(const std::string& name, int producer, uint64_t bytes, int quota);
  // Takes and holds as often as the two fire.
  int add_edge(int reg, int consumer);
  // A zero-byte register: `from`, after its task (-1: at the end), before all of `to`.
  void add_control(const std::string& kind, int from, int after_task, int to, int initial_tokens);
  bool needs_order(int stream) const;
  std::string unique(std::unordered_set<std::string>& names, const std::string& base);

  // memory.cpp
  void place_stores();
  void share_in_place();
  bool share(int task, const plan::InPlacePair& pair);
  void make_arenas();
  void make_kernels();
  int stream_arena(int stream, int space);
  int shared_arena(int space);
  plan::View view_of(const Operand& operand) const;
  int root(int store) const;

  // Actors: a feed for each rank, the programs, a sink for each rank.
  int ranks() const { return static_cast<int>(lowered_.feed_streams.size()); }
  int actor_of_task(int task) const { return programs_.actor_of[task] + ranks(); }
  const std::vector<int>& tasks_of(int actor) const { return programs_.actors[actor - ranks()]; }
  int stream_of_actor(int actor) const { return plan_.actors[actor].stream; }
  int rank_of_actor(int actor) const { return plan_.streams[stream_of_actor(actor)].device.rank; }
  int rank_of_store(size_t store) const { return lowered_.spaces[lowered_.stores[store].space].device.rank; }
  // It fires once per so many micro-batches.
  int every(int actor) const { return actor < ranks() ? 1 : actor >= sink(0) ? batches_ : every_.at(actor - ranks()); }
  int feed(int rank) const { return rank; }
  int sink(int rank) const { return static_cast<int>(plan_.actors.size()) - ranks() + rank; }

  const graph::Graph& graph_;
  const Lowered& lowered_;
  const Programs& programs_;
  const CompileOptions& options_;
  plan::Plan plan_;
  std::vector<int> stream_map_;                  // lowered -> plan, -1 when unused
  std::vector<std::vector<int>> stream_actors_;  // per plan stream, in fixed order, without feed and sink
  std::vector<int64_t> position_;                // per task, along its stream
  std::vector<StoreUse> uses_;
  const int batches_;                       // micro-batches of a step
  std::vector<int> every_;                  // per program
  std::vector<int> depth_;                  // per plan stream: micro-batches between its first and its last actor
  bool staged_ = false;                     // some module has a stage
  std::vector<Instructions> instructions_;  // per actor
  std::vector<bool> fixed_quota_;
  std::map<std::pair<int, int>, int> controls_;  // (producer, consumer) joined by a control register
  std::map<std::pair<int, int>, int> linked_;    // consecutive actors of a stream with a token-less register between
  std::unordered_set<std::string> register_names_, actor_names_;
  std::vector<int> shares_with_;               // per store: the store whose buffer it is in, or -1
  std::vector<int> workspace_;                 // per task: buffer, or -1
  std::map<std::pair<int, int>, int> arenas_;  // (stream or -1, space) -> arena
};

}  // namespace sluice::compiler
