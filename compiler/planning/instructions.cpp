#include <algorithm>
#include <utility>

#include "compiler/planning/planning.h"

namespace sluice::compiler {

using plan::Instr;
using plan::InstrKind;

std::vector<std::vector<Instr>> write_programs(const ActorSet& actors, const std::vector<Channel>& channels) {
  struct Around {  // the tasks of an actor; -1: what is released before them, and emitted after
    std::map<int, std::vector<Instr>> emits, releases;
  };
  std::vector<Around> around(actors.actors.size());
  int edge = 0;
  for (size_t c = 0; c < channels.size(); ++c) {
    const Channel& channel = channels[c];
    around[channel.producer].emits[channel.task].push_back({InstrKind::kEmit, static_cast<int>(c)});
    for (const Channel::Consumer& consumer : channel.consumers) {
      // A source has told nobody anything before it knows that its data has not ended.
      const bool source = actors.actors[consumer.actor].role == plan::ActorRole::kSource;
      const int task = source ? std::max(consumer.task, actors.tasks[consumer.actor].front()) : consumer.task;
      around[consumer.actor].releases[task].push_back({InstrKind::kRelease, edge++});
    }
  }
  std::vector<std::vector<Instr>> programs(actors.actors.size());
  for (size_t a = 0; a < programs.size(); ++a) {
    const auto add = [&](const std::map<int, std::vector<Instr>>& by_task, int task) {
      const auto it = by_task.find(task);
      if (it != by_task.end()) programs[a].insert(programs[a].end(), it->second.begin(), it->second.end());
    };
    add(around[a].releases, -1);
    for (int task : actors.tasks[a]) {
      programs[a].push_back({InstrKind::kRun, task});
      add(around[a].emits, task);
      add(around[a].releases, task);
    }
    add(around[a].emits, -1);
  }
  return programs;
}

}  // namespace sluice::compiler
