// Registers without bytes, which say in what order actors fire.
#include <algorithm>
#include <iterator>
#include <set>

#include "compiler/planning/planning.h"

namespace sluice::compiler {
namespace {

// `from`, after its task (-1: at the end), before all of `to`.
Channel control(const ActorSet& actors, const char* kind, int from, int task, int to, int initial_tokens) {
  return {.name = fmt::format("{}: {} -> {}", kind, actors.actors[from].name, actors.actors[to].name),
          .producer = from,
          .task = task,
          .quota = std::max(1, initial_tokens),
          .emit_every = std::max(1, actors.every[to] / actors.every[from]),
          .initial_tokens = initial_tokens,
          .consumers = {{.actor = to}}};
}

// Actors of a stream share bytes of its arena by the order in which they fire, so that order must be forced wherever
// they have buffers or workspaces there. Collectives need it because all ranks must call them in one order.
bool needs_order(const Lowered& lowered, const ActorSet& actors, const DataChannels& data, int stream) {
  if (actors.of_stream[stream].size() < 2) return false;
  if (actors.streams[stream].kind == plan::StreamKind::kCollective) return true;
  for (int actor : actors.of_stream[stream]) {
    for (int t : actors.tasks[actor]) {
      const Task& task = lowered.tasks[t];
      if (task.workspace_bytes > 0) return true;
      for (const Operand& out : task.outputs) {
        const int channel = data.of_store[out.store];
        if (channel < 0 || data.channels[channel].local) return true;
      }
    }
  }
  return false;
}

}  // namespace

std::vector<Channel> variable_order(const Lowered& lowered, const ActorSet& actors) {
  std::vector<std::vector<int>> readers(lowered.writer.size());
  for (size_t t = 0; t < lowered.tasks.size(); ++t) {
    for (const Operand& in : lowered.tasks[t].inputs) {
      if (in.store < 0 || lowered.stores[in.store].kind != Store::Kind::kVariable) continue;
      const int variable = lowered.stores[in.store].index;
      // A task before the writer reads the variable's old content; one behind it reads what the writer makes, by a
      // register.
      if (lowered.writer[variable] > static_cast<int>(t)) readers[variable].push_back(static_cast<int>(t));
    }
  }
  std::map<std::pair<int, int>, std::pair<int, int>> pairs;  // (reading, writing actor): last read, last write
  for (size_t v = 0; v < readers.size(); ++v) {
    const int write = lowered.writer[v];
    for (int read : readers[v]) {
      if (lowered.tasks[read].stream == lowered.tasks[write].stream) continue;
      const std::pair key(actors.actor_of[read], actors.actor_of[write]);
      // One pair of registers serves all variables of two actors: it says that the last of them was read, or written.
      auto& last = pairs.emplace(key, std::pair(read, write)).first->second;
      last.first = std::max(last.first, read);
      last.second = std::max(last.second, write);
    }
  }
  std::vector<Channel> channels;
  for (const auto& [pair, tasks] : pairs) {
    // The writer waits until this step's readers have read, and the readers of the next step wait until it has written.
    // The initial token lets the first step's readers go.
    channels.push_back(control(actors, "read", pair.first, tasks.first, pair.second, 0));
    channels.push_back(control(actors, "written", pair.second, tasks.second, pair.first, 1));
  }
  return channels;
}

std::vector<Channel> stream_order(const Lowered& lowered, const ActorSet& actors, const DataChannels& data,
                                  const Stages& stages, const std::vector<Channel>& joined) {
  std::set<std::pair<int, int>> linked;  // by a register without tokens
  for (const Channel& channel : joined) {
    for (const Channel::Consumer& consumer : channel.consumers)
      if (channel.initial_tokens == 0) linked.emplace(channel.producer, consumer.actor);
  }
  std::vector<Channel> channels;
  const auto add = [&](int from, int to, int tokens) {
    channels.push_back(control(actors, "order", from, -1, to, tokens));
  };
  for (size_t s = 0; s < actors.of_stream.size(); ++s) {
    if (!needs_order(lowered, actors, data, static_cast<int>(s))) continue;
    const std::vector<int>& row = actors.of_stream[s];
    for (size_t i = 0; i + 1 < row.size(); ++i)
      // A register with data already forces the order of the two.
      if (!linked.contains({row[i], row[i + 1]})) add(row[i], row[i + 1], 0);
    // The micro-batches' among themselves, and with those of the step, if any.
    std::vector<int> of_batches;
    std::copy_if(row.begin(), row.end(), std::back_inserter(of_batches), [&](int a) { return actors.every[a] == 1; });
    // The tokens that go back to the front let as many micro-batches be under way as the stage may have.
    if (of_batches.size() > 1) add(of_batches.back(), of_batches.front(), stages.depth[s]);
    if (of_batches.size() < row.size()) add(row.back(), row.front(), 1);
  }
  return channels;
}

std::vector<Channel> width_order(const ActorSet& actors, int width, const std::vector<Channel>& joined) {
  const int first = actors.ranks, last = actors.sink(0);  // feeds and sinks compute nothing
  const auto is_program = [&](int actor) { return actor >= first && actor < last; };
  std::vector<std::vector<int>> next(actors.actors.size());
  std::vector<int> waits(actors.actors.size(), 0);
  for (const Channel& channel : joined) {
    if (channel.initial_tokens > 0 || !is_program(channel.producer)) continue;
    for (const Channel::Consumer& consumer : channel.consumers) {
      if (!is_program(consumer.actor) || consumer.actor == channel.producer) continue;
      next[channel.producer].push_back(consumer.actor);
      ++waits[consumer.actor];
    }
  }
  // In an order in which they may run; of those that could, the one whose first task is first.
  const auto key = [&](int actor) {
    return std::pair(actors.tasks[actor].empty() ? -1 : actors.tasks[actor][0], actor);
  };
  std::set<std::pair<int, int>> ready;
  for (int a = first; a < last; ++a)
    if (waits[a] == 0) ready.insert(key(a));
  std::vector<int> order;
  while (!ready.empty()) {
    order.push_back(ready.begin()->second);
    ready.erase(ready.begin());
    for (const int actor : next[order.back()])
      if (--waits[actor] == 0) ready.insert(key(actor));
  }
  std::vector<Channel> channels;
  const auto add = [&](int from, int to, int tokens) {
    if (from != to) channels.push_back(control(actors, "width", from, -1, to, tokens));
  };
  // Each row is a chain of every width-th actor, and no two actors of a chain run at the same time: so at most `width`
  // actors do.
  for (size_t row = 0; row < std::min(order.size(), static_cast<size_t>(width)); ++row) {
    std::vector<int> of_row, of_batches;
    for (size_t i = row; i < order.size(); i += static_cast<size_t>(width)) of_row.push_back(order[i]);
    std::copy_if(of_row.begin(), of_row.end(), std::back_inserter(of_batches),
                 [&](int a) { return actors.every[a] == 1; });
    for (size_t i = 0; i + 1 < of_row.size(); ++i) add(of_row[i], of_row[i + 1], 0);
    if (!of_batches.empty()) add(of_batches.back(), of_batches.front(), 1);
    if (of_batches.size() < of_row.size()) add(of_row.back(), of_row.front(), 1);
  }
  return channels;
}

std::vector<Channel> start_and_finish(const Lowered& lowered, const ActorSet& actors,
                                      const std::vector<Channel>& joined, int in_flight) {
  std::vector<bool> fed(actors.actors.size(), false), heard(actors.actors.size(), false);
  for (const Channel& channel : joined) {
    if (channel.initial_tokens > 0) continue;
    for (const Channel::Consumer& consumer : channel.consumers) {
      fed[consumer.actor] = true;
      if (actors.rank_of(channel.producer) == actors.rank_of(consumer.actor)) heard[channel.producer] = true;
    }
  }
  for (size_t t = 0; t < lowered.tasks.size(); ++t) {
    const Task& task = lowered.tasks[t];
    bool writes = task.effectful;
    for (const Operand& out : task.outputs) writes = writes || lowered.stores[out.store].kind == Store::Kind::kVariable;
    // A step is over only when its effects are there, even if somebody on the way to the sink has heard of this actor.
    if (writes) heard[actors.actor_of[t]] = false;
  }
  std::vector<Channel> channels;
  // An actor that nobody waits for tells the sink of its rank that it is done: otherwise a step could end before it has
  // fired.
  for (int a = actors.ranks; a < actors.sink(0); ++a) {
    if (heard[a]) continue;
    const int end = actors.sink(actors.rank_of(a));
    channels.push_back({.name = "done: " + actors.actors[a].name,
                        .producer = a,
                        .quota = in_flight,
                        .emit_every = actors.every[end] / actors.every[a],
                        .consumers = {{.actor = end}}});
    fed[end] = true;
  }
  std::vector<int> start(actors.ranks, -1);
  for (int a = actors.ranks; a < static_cast<int>(actors.actors.size()); ++a) {
    // An actor without inputs of the step would fire at any time: it waits for the feed of its rank, which fires once
    // it is told to.
    if (fed[a]) continue;
    const int from = actors.feed(actors.rank_of(a));
    int& channel = start[from];
    if (channel < 0) {
      channel = static_cast<int>(channels.size());
      channels.push_back({.name = from == 0 ? "start" : fmt::format("start@{}", from),
                          .producer = from,
                          .quota = in_flight * actors.batches});
    }
    channels[channel].consumers.push_back({.actor = a});
  }
  return channels;
}

}  // namespace sluice::compiler
