// Which outputs lie in the slots of donated inputs.
//
// A slot of such an input holds the input until its only reader has read it for the last time, and then the output
// that the same actor writes in the same firing. For that the registers have to move in step: one token each per
// firing, as many slots.
#include <algorithm>

#include "compiler/planning/planning.h"

namespace sluice::compiler {
namespace {

class Layer {
 public:
  Layer(const Lowered& lowered, const ActorSet& actors, const std::vector<StoreUse>& uses, DataChannels& data)
      : lowered_(lowered), actors_(actors), uses_(uses), data_(data) {}

  // Lets the output that a kernel makes of the input's last content lie there, or else, without `same_kernel`, one
  // that a later kernel writes.
  void lay(int input, bool same_kernel) {
    if (!alone(input)) return;
    for (const Operand& output : lowered_.outputs) {
      if (!moves_as(input, output.store) || !(same_kernel ? made_of(input, output.store) : after(input, output.store)))
        continue;
      const int from = data_.of_store[input], to = data_.of_store[output.store];
      data_.in_slots_of[to] = from;
      data_.channels[from].consumers[0].task = uses_[output.store].writer;
      return;
    }
  }

 private:
  // One actor reads it, once a firing, and nothing has taken its slots yet.
  bool alone(int input) const {
    const int channel = data_.of_store[input];
    if (channel < 0 || data_.channels[channel].consumers.size() != 1 || uses_[input].consumers.size() != 1)
      return false;
    const std::vector<int>& taken = data_.in_slots_of;
    return actors_.every[uses_[input].consumers[0].first] == 1 &&
           std::find(taken.begin(), taken.end(), channel) == taken.end();
  }

  bool moves_as(int input, int output) const {
    const int writer = uses_[output].writer, from = data_.of_store[input], to = data_.of_store[output];
    if (writer < 0 || to < 0 || data_.in_slots_of[to] >= 0) return false;
    const Channel &in = data_.channels[from], &out = data_.channels[to];
    return actors_.actor_of[writer] == uses_[input].consumers[0].first && out.emit_every == 1 &&
           out.quota == in.quota && out.bytes == in.bytes &&
           lowered_.stores[output].space == lowered_.stores[input].space;
  }

  int64_t last_read(int input) const { return actors_.position[uses_[input].consumers[0].second]; }
  bool after(int input, int output) const { return actors_.position[uses_[output].writer] > last_read(input); }

  // The output is made by a kernel that may write it over this input, which it reads for the last time, and once.
  bool made_of(int input, int output) const {
    if (actors_.position[uses_[output].writer] != last_read(input)) return false;
    const Task& task = lowered_.tasks[uses_[output].writer];
    const auto reads = [&](const Operand& in) { return in.store == input; };
    if (std::count_if(task.inputs.begin(), task.inputs.end(), reads) != 1) return false;
    return std::any_of(task.in_place.begin(), task.in_place.end(), [&](const plan::InPlacePair& pair) {
      if (pair.output >= static_cast<int>(task.outputs.size()) || pair.input >= static_cast<int>(task.inputs.size()))
        return false;
      const Operand &in = task.inputs[pair.input], &out = task.outputs[pair.output];
      return in.store == input && out.store == output && same_elements(in, out);
    });
  }

  const Lowered& lowered_;
  const ActorSet& actors_;
  const std::vector<StoreUse>& uses_;
  DataChannels& data_;
};

}  // namespace

void lay_over_inputs(const graph::Graph& graph, const Lowered& lowered, const ActorSet& actors,
                     const std::vector<StoreUse>& uses, const CompileOptions& options, DataChannels& data) {
  data.in_slots_of.assign(data.channels.size(), -1);
  if (!options.in_place) return;
  Layer layer(lowered, actors, uses, data);
  for (const bool same_kernel : {true, false}) {
    for (size_t s = 0; s < lowered.stores.size(); ++s) {
      const Store& store = lowered.stores[s];
      if (store.kind != Store::Kind::kInput) continue;
      const std::string& name = graph.inputs()[store.index].name;
      if (std::find(options.donated.begin(), options.donated.end(), name) != options.donated.end())
        layer.lay(static_cast<int>(s), same_kernel);
    }
  }
}

}  // namespace sluice::compiler
