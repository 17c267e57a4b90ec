// Which outputs take over the bytes of an input.
#include <algorithm>
#include <numeric>

#include "compiler/planning/planning.h"

namespace sluice::compiler {
namespace {

class Sharer {
 public:
  Sharer(const Lowered& lowered, const ActorSet& actors, const std::vector<StoreUse>& uses, const DataChannels& data,
         const RegisterSet& registers, Granularity granularity)
      : lowered_(lowered),
        actors_(actors),
        uses_(uses),
        data_(data),
        granularity_(granularity),
        first_edge_(data.channels.size(), -1) {
    sharing_.with.resize(uses.size());
    std::iota(sharing_.with.begin(), sharing_.with.end(), 0);
    for (const StoreUse& use : uses) sharing_.end.push_back(use.end);
    for (size_t e = registers.edges.size(); e-- > 0;) {
      const size_t reg = static_cast<size_t>(registers.edges[e].reg);
      if (reg < first_edge_.size()) first_edge_[reg] = static_cast<int>(e);
    }
    for (const int input : data.in_slots_of) sharing_.in_place_of.push_back(input < 0 ? -1 : first_edge_[input]);
  }

  // Lets output and input of a task lie in the same bytes, when the input's content dies there.
  void share(int task_index, const plan::InPlacePair& pair) {
    const Task& task = lowered_.tasks[task_index];
    if (pair.output >= static_cast<int>(task.outputs.size()) || pair.input >= static_cast<int>(task.inputs.size()))
      return;
    const Operand &out = task.outputs[pair.output], &in = task.inputs[pair.input];
    if (in.store < 0 || !same_elements(in, out) || shares(out.store)) return;
    if (uses_[in.store].home >= 0 || uses_[out.store].home >= 0) return;  // its bytes are the disk's, too
    const int from = sharing_.with[in.store];
    if (!same_arena(from, out.store) || lowered_.stores[out.store].bytes > lowered_.stores[from].bytes) return;
    if (sharing_.end[from] != actors_.position[task_index] + 1) return;  // read later
    for (size_t i = 0; i < task.inputs.size(); ++i) {
      const int store = task.inputs[i].store;
      if (static_cast<int>(i) != pair.input && store >= 0 && sharing_.with[store] == from) return;  // seen twice
    }
    for (const Operand& other : task.outputs)
      if (other.store != out.store && shares(other.store) && sharing_.with[other.store] == from) return;
    if (place(out.store) == Place::kLocal && !take_over_slot(task, out.store, in.store)) return;
    sharing_.with[out.store] = from;
    sharing_.end[from] = std::max(sharing_.end[from], sharing_.end[out.store]);
  }

  Sharing take() { return std::move(sharing_); }

 private:
  bool shares(int store) const { return sharing_.with[store] != store; }
  Place place(int store) const { return place_of(lowered_, uses_, data_, store); }

  bool same_arena(int a, int b) const {
    const Place where = place(a);
    if (where != place(b) || (where != Place::kBuffer && where != Place::kLocal)) return false;
    return actors_.stream_of[uses_[a].writer] == actors_.stream_of[uses_[b].writer] &&
           lowered_.stores[a].space == lowered_.stores[b].space;
  }

  // Registers: the sole consumer takes over the slot. Only where an actor is one kernel, so that its firing is.
  bool take_over_slot(const Task& task, int out, int in) {
    const int to = data_.of_store[out], last = data_.of_store[in];
    if (granularity_ != Granularity::kOp || last < 0 || uses_[in].consumers.size() != 1) return false;
    if (data_.channels[to].bytes > data_.channels[last].bytes) return false;
    for (const Operand& other : task.outputs) {
      const int channel = data_.of_store[other.store];
      if (channel >= 0 && sharing_.in_place_of[channel] >= 0) return false;
    }
    sharing_.in_place_of[to] = first_edge_[last];
    return true;
  }

  const Lowered& lowered_;
  const ActorSet& actors_;
  const std::vector<StoreUse>& uses_;
  const DataChannels& data_;
  const Granularity granularity_;
  std::vector<int> first_edge_;  // per data channel
  Sharing sharing_;
};

}  // namespace

bool same_elements(const Operand& in, const Operand& out) {
  return in.offset == 0 && out.offset == 0 && in.spec.shape == out.spec.shape && in.spec.strides == out.spec.strides &&
         dtype_size(in.spec.dtype) == dtype_size(out.spec.dtype) && is_dense(in.spec.shape, in.spec.strides);
}

Sharing share_in_place(const Lowered& lowered, const ActorSet& actors, const std::vector<StoreUse>& uses,
                       const DataChannels& data, const RegisterSet& registers, const CompileOptions& options) {
  Sharer sharer(lowered, actors, uses, data, registers, options.granularity);
  for (const std::vector<int>& row : actors.of_stream) {
    for (int actor : row) {
      for (int task : actors.tasks[actor]) {
        if (!options.in_place) continue;
        for (const plan::InPlacePair& pair : lowered.tasks[task].in_place) sharer.share(task, pair);
      }
    }
  }
  return sharer.take();
}

}  // namespace sluice::compiler
