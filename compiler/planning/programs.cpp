// Which actor runs which task. An actor's program is cut only where tasks run less often (once a step), and where one
// depends, through another stream, on what the actor itself emits; so actors depend on each other without cycles. A
// collective is an actor of its own: it needs what its tasks on all ranks need, and nothing more; so is a source, whose
// firing does not happen when its data has ended; and so is a function of the program that reads what another stream
// makes, since with others it would wait for what they read.
#include <algorithm>
#include <map>

#include "compiler/lowered.h"

namespace sluice::compiler {
namespace {

// Groups of tasks of one stream, with what each depends on. Groups of a stream run in the order they were opened.
class Grouping {
 public:
  explicit Grouping(size_t num_streams) : open_(num_streams, -1), closed_(num_streams), num_streams_(num_streams) {}

  // Puts a task of `stream` that depends on `groups` into the stream's last group if that group does not lead to any of
  // them, else into a new one. `alone`: into one that stays its own. Tasks of a group run equally often. Returns it.
  int place(int stream, const std::vector<int>& groups, bool alone, int every) {
    int group = alone || closed_[stream] ? -1 : open_[stream];
    if (group >= 0 && every_[group] != every) group = -1;
    closed_[stream] = alone;
    for (int g : groups) {
      if (group >= 0 && g != group && depends_[g][stream] >= ordinal_[group]) group = -1;
    }
    if (group < 0) {
      group = open(stream);
      every_.push_back(every);
    }
    for (int g : groups) {
      if (g != group) depend(group, g);
    }
    return group;
  }

  int count() const { return static_cast<int>(stream_.size()); }
  int stream(int group) const { return stream_[group]; }

 private:
  int open(int stream) {
    const int group = count();
    const int before = open_[stream];
    stream_.push_back(stream);
    ordinal_.push_back(before < 0 ? 0 : ordinal_[before] + 1);
    depends_.emplace_back(num_streams_, -1);
    dependents_.emplace_back();
    open_[stream] = group;
    if (before >= 0) depend(group, before);
    return group;
  }

  // `group` now depends on `on` and all that depends on; so does whatever depends on `group`.
  void depend(int group, int on) {
    if (depends_[group][stream_[on]] >= ordinal_[on] && covers(group, on)) return;
    dependents_[on].push_back(group);
    std::vector<int> changed{group};
    std::vector<int> sources{on};
    while (!changed.empty()) {
      const int g = changed.back(), from = sources.back();
      changed.pop_back();
      sources.pop_back();
      bool grew = false;
      const auto raise = [&](int stream, int to) {
        if (depends_[g][stream] >= to) return;
        depends_[g][stream] = to;
        grew = true;
      };
      raise(stream_[from], ordinal_[from]);
      for (size_t s = 0; s < num_streams_; ++s) raise(static_cast<int>(s), depends_[from][s]);
      if (!grew) continue;
      for (int d : dependents_[g]) {
        changed.push_back(d);
        sources.push_back(g);
      }
    }
  }

  bool covers(int group, int on) const {
    for (size_t s = 0; s < num_streams_; ++s) {
      if (depends_[group][s] < depends_[on][s]) return false;
    }
    return std::find(dependents_[on].rbegin(), dependents_[on].rend(), group) != dependents_[on].rend();
  }

  std::vector<int> open_;                      // per stream: its last group
  std::vector<bool> closed_;                   // per stream: nothing more goes into that
  std::vector<int> stream_, ordinal_, every_;  // per group
  std::vector<std::vector<int>> depends_;      // per group and stream: the latest ordinal it depends on
  std::vector<std::vector<int>> dependents_;   // per group: direct dependents
  size_t num_streams_;
};

}  // namespace

std::vector<std::vector<int>> predecessors(const Lowered& lowered) {
  std::vector<int> writer(lowered.stores.size(), -1);
  std::vector<std::vector<int>> readers(lowered.stores.size());
  std::vector<std::vector<int>> result(lowered.tasks.size());
  std::vector<int> last(lowered.streams.size(), -1);
  for (size_t t = 0; t < lowered.tasks.size(); ++t) {
    std::vector<int>& before = result[t];
    const Task& task = lowered.tasks[t];
    for (const Operand& in : task.inputs) {
      if (in.store < 0) continue;
      if (writer[in.store] >= 0) before.push_back(writer[in.store]);
      if (lowered.stores[in.store].kind == Store::Kind::kVariable) readers[in.store].push_back(static_cast<int>(t));
    }
    for (const Operand& out : task.outputs) {
      for (int reader : readers[out.store]) {
        if (reader != static_cast<int>(t)) before.push_back(reader);
      }
      writer[out.store] = static_cast<int>(t);
    }
    int& previous = last[task.stream];
    if (task.meeting >= 0 && previous >= 0) before.push_back(previous);
    previous = static_cast<int>(t);
  }
  std::map<int64_t, std::vector<int>> meetings;
  for (size_t t = 0; t < lowered.tasks.size(); ++t) {
    if (lowered.tasks[t].meeting < 0) continue;
    std::vector<int>& all = meetings[lowered.tasks[t].meeting];
    all.insert(all.end(), result[t].begin(), result[t].end());
  }
  for (size_t t = 0; t < lowered.tasks.size(); ++t) {
    std::vector<int>& before = result[t];
    if (lowered.tasks[t].meeting >= 0) before = meetings[lowered.tasks[t].meeting];
    std::sort(before.begin(), before.end());
    before.erase(std::unique(before.begin(), before.end()), before.end());
  }
  return result;
}

Programs make_programs(const Lowered& lowered, Granularity granularity) {
  Programs programs;
  const size_t num_tasks = lowered.tasks.size();
  programs.actor_of.resize(num_tasks);
  if (granularity == Granularity::kOp) {
    for (size_t t = 0; t < num_tasks; ++t) {
      programs.actor_of[t] = static_cast<int>(t);
      programs.stream_of.push_back(lowered.tasks[t].stream);
    }
  } else {
    Grouping grouping(lowered.streams.size());
    const std::vector<std::vector<int>> before = predecessors(lowered);
    std::vector<int> groups;
    const auto is_alone = [&](size_t t) {
      const Task& task = lowered.tasks[t];
      const auto elsewhere = [&](int p) { return lowered.tasks[p].stream != task.stream; };
      const bool of_disk = task.op == "spill" || task.op == "fetch";  // each as soon as it can
      return task.meeting >= 0 || task.source || of_disk ||
             (task.op == "host_function" && std::any_of(before[t].begin(), before[t].end(), elsewhere));
    };
    for (size_t t = 0; t < num_tasks; ++t) {
      groups.clear();
      for (int p : before[t]) groups.push_back(programs.actor_of[p]);
      std::sort(groups.begin(), groups.end());
      groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
      const Task& task = lowered.tasks[t];
      programs.actor_of[t] = grouping.place(task.stream, groups, is_alone(t), task.every);
    }
    for (int g = 0; g < grouping.count(); ++g) programs.stream_of.push_back(grouping.stream(g));
  }
  programs.actors.resize(programs.stream_of.size());
  for (size_t t = 0; t < num_tasks; ++t) programs.actors[programs.actor_of[t]].push_back(static_cast<int>(t));
  return programs;
}

}  // namespace sluice::compiler
