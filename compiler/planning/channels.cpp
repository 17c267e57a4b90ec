// The channels by which actors pass data: registers and their edges.
#include <algorithm>

#include "compiler/planning/planning.h"

namespace sluice::compiler {

DataChannels data_channels(const graph::Graph& graph, const Lowered& lowered, const ActorSet& actors,
                           const std::vector<StoreUse>& uses, const Stages& stages, const CompileOptions& options) {
  const int in_flight = options.outputs_buffer_size;
  DataChannels data;
  data.of_store.assign(uses.size(), -1);
  std::unordered_set<std::string> names;
  std::map<int, std::string> output_names;  // by store; of several the first
  for (size_t k = 0; k < lowered.outputs.size(); ++k)
    output_names.emplace(lowered.outputs[k].store, graph.outputs()[k].name);
  for (size_t s = 0; s < uses.size(); ++s) {
    const StoreUse& use = uses[s];
    const Store& store = lowered.stores[s];
    const bool input = store.kind == Store::Kind::kInput;
    if (store.kind == Store::Kind::kVariable || (!input && (use.writer < 0 || (use.consumers.empty() && !use.output))))
      continue;
    const int rank = lowered.spaces[store.space].device.rank;
    Channel c;
    c.producer = input ? actors.feed(rank) : actors.actor_of[use.writer];
    c.task = use.writer;
    c.bytes = store.bytes;
    const int stream = actors.actors[c.producer].stream, every = actors.every[c.producer];
    const int depth = every == 1 ? stages.depth[stream] : 1;
    bool packed = false;
    c.local = !input && !use.output && stages.depth[stream] == 1;  // else a later micro-batch may work in its bytes
    for (const auto& [actor, task] : use.consumers) {
      c.local = c.local && actors.actors[actor].stream == stream && actors.every[actor] == every;
      packed = packed || actors.every[actor] > store.every;  // it takes several at once
      c.consumers.push_back({actor, task});
    }
    c.local = c.local || use.home >= 0;
    if (use.output || use.consumers.empty()) c.consumers.push_back({.actor = actors.sink(rank)});
    c.name = unused_name(names, use.output ? output_names.at(static_cast<int>(s)) : store.name);
    c.emit_every = store.every / every;
    c.quota = input ? in_flight * actors.batches : use.output ? in_flight : 1;
    const auto wanted = options.quotas.find(c.name);
    if (wanted != options.quotas.end())
      c.quota = wanted->second;
    else if (!c.local && !input && store.quota > 0)
      c.quota = std::max(store.quota, use.output ? in_flight : 1);
    else if (!c.local && !input && !use.output && stages.any && store.every < actors.batches && !packed)
      c.quota = std::max(2, depth);
    else if (!c.local && !input && !use.output)
      c.fixed_quota = false;
    c.local = c.local && c.quota == 1;
    data.of_store[s] = static_cast<int>(data.channels.size());
    data.channels.push_back(std::move(c));
  }
  lay_over_inputs(graph, lowered, actors, uses, options, data);
  return data;
}

void tell_apart(std::vector<Channel>& channels) {
  std::unordered_set<std::string> names;
  for (Channel& channel : channels) channel.name = unused_name(names, channel.name);
}

RegisterSet make_registers(const ActorSet& actors, const std::vector<Channel>& channels) {
  RegisterSet set;
  for (size_t c = 0; c < channels.size(); ++c) {
    const Channel& channel = channels[c];
    plan::Register r;
    r.name = channel.name;
    r.producer = channel.producer;
    r.quota = channel.quota;
    r.bytes = channel.bytes;
    r.emit_every = channel.emit_every;
    r.initial_tokens = channel.initial_tokens;
    set.registers.push_back(std::move(r));
    const int there = actors.every[channel.producer] * channel.emit_every;
    for (const Channel::Consumer& consumer : channel.consumers) {
      const int wanted = actors.every[consumer.actor];
      set.edges.push_back(
          {static_cast<int>(c), consumer.actor, std::max(1, wanted / there), std::max(1, there / wanted)});
    }
  }
  return set;
}

}  // namespace sluice::compiler
