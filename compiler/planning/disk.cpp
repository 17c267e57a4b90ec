// Values that go to the disk and come back (`spill` and `fetch`). Another stream reads or writes them, but their own
// one says when: so they lie in its arena, and their lifetimes follow from its order, as if it did that itself.
#include <algorithm>

#include "compiler/planning/planning.h"

namespace sluice::compiler {
namespace {

// The tasks that read a store.
using Readers = std::vector<std::vector<int>>;

// The position at which a stream knows that a task of another one is done, since it reads what that makes; -1: none.
int64_t heard_at(int task, int stream, const Lowered& lowered, const ActorSet& actors, const Readers& readers) {
  int64_t first = -1;
  for (const Operand& out : lowered.tasks[task].outputs)
    for (const int reader : readers[out.store])
      if (actors.stream_of[reader] == stream && (first < 0 || actors.position[reader] < first))
        first = actors.position[reader];
  return first;
}

// A value that some tasks of the disk read, alive until its stream has heard of them.
void keep_until_spilled(int store, StoreUse& use, const Lowered& lowered, const ActorSet& actors,
                        const Readers& readers) {
  const int home = actors.stream_of[use.writer];
  int64_t end = use.begin + 1;
  bool spilled = false;
  for (const int reader : readers[store]) {
    if (actors.stream_of[reader] == home) {
      end = std::max(end, actors.position[reader] + 1);
      continue;
    }
    const int64_t heard =
        lowered.tasks[reader].op == "spill" ? heard_at(reader, home, lowered, actors, readers) : int64_t{-1};
    if (heard < 0) return;
    end = std::max(end, heard + 1);
    spilled = true;
  }
  if (!spilled) return;
  use.home = home;
  use.end = end;
}

// A value that the disk brings back, alive from where the stream of its readers has told the disk to.
void keep_from_fetched(int store, StoreUse& use, const std::vector<StoreUse>& uses, const Lowered& lowered,
                       const ActorSet& actors, const Readers& readers) {
  if (readers[store].empty()) return;
  const int home = actors.stream_of[readers[store].front()];
  const Operand& told = lowered.tasks[use.writer].inputs.front();
  const int teller = told.store < 0 ? -1 : uses[told.store].writer;
  if (teller < 0 || actors.stream_of[teller] != home) return;
  int64_t end = 0;
  for (const int reader : readers[store]) {
    if (actors.stream_of[reader] != home) return;
    end = std::max(end, actors.position[reader] + 1);
  }
  use.home = home;
  use.begin = actors.position[teller];
  use.end = end;
}

}  // namespace

void find_homes_of_spilled(const Lowered& lowered, const ActorSet& actors, const Stages& stages,
                           std::vector<StoreUse>& uses) {
  const auto moves = [](const Task& task) { return task.op == "spill" || task.op == "fetch"; };
  if (stages.any || std::none_of(lowered.tasks.begin(), lowered.tasks.end(), moves)) return;
  Readers readers(lowered.stores.size());
  for (size_t t = 0; t < lowered.tasks.size(); ++t)
    for (const Operand& in : lowered.tasks[t].inputs)
      if (in.store >= 0) readers[in.store].push_back(static_cast<int>(t));
  for (size_t s = 0; s < uses.size(); ++s) {
    const int store = static_cast<int>(s);
    if (lowered.stores[s].kind != Store::Kind::kTemp || uses[s].writer < 0 || uses[s].output) continue;
    if (lowered.tasks[uses[s].writer].op == "fetch")
      keep_from_fetched(store, uses[s], uses, lowered, actors, readers);
    else
      keep_until_spilled(store, uses[s], lowered, actors, readers);
  }
}

}  // namespace sluice::compiler
