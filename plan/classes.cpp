#include "plan/classes.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "plan/ranks.h"

namespace sluice::plan {
namespace {

constexpr const char *kClasses = "classes", *kPosition = "classes.position", *kGroups = "classes.groups";

template <class T>
std::string joined(const T& all, const char* by) {
  return fmt::format("{}", fmt::join(all, by));
}

std::vector<std::string_view> pieces(std::string_view text, char by) {
  std::vector<std::string_view> all;
  while (!text.empty()) {
    const size_t end = std::min(text.find(by), text.size());
    all.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return all;
}

constexpr int kMostRanks = 1 << 20;

int number(std::string_view text) {
  int value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  SLUICE_CHECK(error == std::errc() && end == text.data() + text.size() && value >= 0 && value < kMostRanks,
               "classes: '{}' is no rank; must be a number below {}", text, kMostRanks);
  return value;
}

std::vector<int> ranks_in(std::string_view text) {
  std::vector<int> ranks;
  for (const std::string_view run : pieces(text, ',')) {
    const size_t dash = run.find('-'), colon = run.find(':');
    const int first = number(run.substr(0, std::min(dash, run.size())));
    const int last =
        dash == run.npos ? first : number(run.substr(dash + 1, colon == run.npos ? run.npos : colon - dash - 1));
    const int step = colon == run.npos ? 1 : std::max(1, number(run.substr(colon + 1)));
    for (int rank = first; rank <= last; rank += step) ranks.push_back(rank);
  }
  return ranks;
}

// Puts the plans of sections into one.
class Unrolling {
 public:
  explicit Unrolling(Plan& whole) : whole_(whole) {}

  void add(const Plan& plan, const Classes& classes) {
    classes_ = &classes;
    begin_ = {size(whole_.spaces),    size(whole_.streams), size(whole_.arenas),  size(whole_.buffers),
              size(whole_.variables), size(whole_.packed),  size(whole_.kernels), size(whole_.actors),
              size(whole_.registers), size(whole_.edges)};
    for (Space s : plan.spaces) {
      s.device.rank = classes_->rank_at(s.device.rank);
      whole_.spaces.push_back(s);
    }
    for (Stream s : plan.streams) {
      s.device.rank = classes_->rank_at(s.device.rank);
      name(s.name);
      whole_.streams.push_back(std::move(s));
    }
    for (Arena a : plan.arenas) {
      name(a.name);
      a.space += begin_.spaces;
      if (a.stream >= 0) a.stream += begin_.streams;
      whole_.arenas.push_back(std::move(a));
    }
    for (Buffer b : plan.buffers) {
      name(b.name);
      b.arena += begin_.arenas;
      whole_.buffers.push_back(std::move(b));
    }
    add_variables(plan);
    for (const Kernel& k : plan.kernels) whole_.kernels.push_back(moved(k));
    add_network(plan);
    for (Input i : plan.inputs) {
      name(i.name);
      i.reg += begin_.registers;
      whole_.inputs.push_back(std::move(i));
    }
    for (Output o : plan.outputs) {
      name(o.name);
      o.view = moved(o.view);
      if (o.extent_of) name(o.extent_of->output);
      whole_.outputs.push_back(std::move(o));
    }
    for (const int a : plan.certificate) whole_.certificate.push_back(a + begin_.actors);
  }

 private:
  struct Begin {  // where the section's own begin
    int spaces, streams, arenas, buffers, variables, packed, kernels, actors, registers, edges;
  };
  template <class T>
  static int size(const std::vector<T>& all) {
    return static_cast<int>(all.size());
  }
  void name(std::string& text) const { text += fmt::format("@{}", classes_->position); }

  void add_variables(const Plan& plan) {
    for (Variable v : plan.variables) {
      name(v.name);
      v.space += begin_.spaces;
      whole_.variables.push_back(std::move(v));
    }
    for (PackedCopy p : plan.packed) {
      name(p.name);
      p.variable += begin_.variables;
      if (p.derived)
        for (int& source : p.derived->inputs)
          if (source >= 0) source += begin_.variables;
      whole_.packed.push_back(std::move(p));
    }
  }
  View moved(View v) const {
    if (v.index < 0) return v;
    if (v.packed >= 0) v.packed += begin_.packed;
    switch (v.base) {
      case BaseKind::kBuffer: v.index += begin_.buffers; break;
      case BaseKind::kRegister: v.index += begin_.registers; break;
      case BaseKind::kVariable: v.index += begin_.variables; break;
    }
    return v;
  }
  Kernel moved(Kernel k) {
    name(k.name);
    for (View& v : k.inputs) v = moved(v);
    for (View& v : k.outputs) v = moved(v);
    if (k.workspace >= 0) k.workspace += begin_.buffers;
    if (k.collective < 0) return k;
    const std::pair key{k.collective, classes_->groups.at(k.collective)};
    k.collective = groups_.emplace(key, static_cast<int>(groups_.size())).first->second;
    return k;
  }
  void add_network(const Plan& plan) {
    for (Actor a : plan.actors) {
      name(a.name);
      a.stream += begin_.streams;
      for (Instr& i : a.program)
        i.index += i.kind == InstrKind::kRun    ? begin_.kernels
                   : i.kind == InstrKind::kEmit ? begin_.registers
                                                : begin_.edges;
      whole_.actors.push_back(std::move(a));
    }
    for (Register r : plan.registers) {
      name(r.name);
      r.producer += begin_.actors;
      for (int& slot : r.slots) slot += begin_.buffers;
      if (r.in_place_of >= 0) r.in_place_of += begin_.edges;
      whole_.registers.push_back(std::move(r));
    }
    for (Edge e : plan.edges) {
      e.reg += begin_.registers;
      e.consumer += begin_.actors;
      whole_.edges.push_back(e);
    }
  }

  Plan& whole_;
  const Classes* classes_ = nullptr;
  Begin begin_ = {};
  std::map<std::pair<int, std::vector<int>>, int> groups_;  // of the job, by their number in a section and their ranks
};

}  // namespace

int Classes::class_of(int rank) const {
  for (size_t c = 0; c < ranks.size(); ++c)
    if (rank_at(static_cast<int>(c)) == rank) return static_cast<int>(c);
  return -1;
}

std::string ranks_str(const std::vector<int>& ranks) {
  std::vector<std::string> runs;
  for (size_t i = 0; i < ranks.size();) {
    size_t last = i;
    const int step = i + 1 < ranks.size() ? ranks[i + 1] - ranks[i] : 0;
    while (step > 0 && last + 1 < ranks.size() && ranks[last + 1] - ranks[last] == step) ++last;
    if (last < i + 2) {
      runs.push_back(std::to_string(ranks[i++]));
      continue;
    }
    runs.push_back(fmt::format("{}-{}{}", ranks[i], ranks[last], step == 1 ? "" : fmt::format(":{}", step)));
    i = last + 1;
  }
  return joined(runs, ",");
}

std::optional<Classes> classes_of(const Plan& plan) {
  Classes classes;
  bool any = false;
  for (const auto& [name, value] : plan.options) {
    if (name == kPosition && std::holds_alternative<int64_t>(value))
      classes.position = static_cast<int>(std::clamp<int64_t>(std::get<int64_t>(value), -1, kMostRanks));
    if (!std::holds_alternative<std::string>(value)) continue;
    const std::string& text = std::get<std::string>(value);
    if (name == kClasses) {
      any = true;
      for (const std::string_view one : pieces(text, ' ')) classes.ranks.push_back(ranks_in(one));
    }
    if (name != kGroups) continue;
    for (const std::string_view one : pieces(text, ' ')) {
      const size_t equals = std::min(one.find('='), one.size());
      classes.groups[number(one.substr(0, equals))] = ranks_in(one.substr(std::min(equals + 1, one.size())));
    }
  }
  return any ? std::optional(std::move(classes)) : std::nullopt;
}

void set_classes(Plan& plan, const Classes& classes) {
  drop_classes(plan);
  std::vector<std::string> all, groups;
  for (const std::vector<int>& ranks : classes.ranks) all.push_back(ranks_str(ranks));
  for (const auto& [group, ranks] : classes.groups) groups.push_back(fmt::format("{}={}", group, ranks_str(ranks)));
  plan.options.emplace_back(kClasses, joined(all, " "));
  plan.options.emplace_back(kPosition, int64_t{classes.position});
  if (!groups.empty()) plan.options.emplace_back(kGroups, joined(groups, " "));
}

void drop_classes(Plan& plan) {
  std::erase_if(plan.options, [](const auto& option) {
    return option.first == kClasses || option.first == kPosition || option.first == kGroups;
  });
}

int job_ranks(const Plan& plan) {
  const std::optional<Classes> classes = classes_of(plan);
  return classes ? classes->job_ranks() : rank_count(plan);
}

Plan unrolled(const std::vector<Plan>& sections) {
  std::vector<Classes> classes;
  for (const Plan& section : sections) classes.push_back(classes_of(section).value_or(Classes{}));
  SLUICE_CHECK(!sections.empty() && static_cast<int>(sections.size()) == classes[0].positions(),
               "unrolled: {} sections of classes of {} ranks; must be one for each position", sections.size(),
               classes.empty() ? 0 : classes[0].positions());
  Plan whole;
  whole.name = sections[0].name;
  whole.options = sections[0].options;
  whole.target = sections[0].target;
  drop_classes(whole);
  Unrolling unrolling(whole);
  for (size_t p = 0; p < sections.size(); ++p) {
    SLUICE_CHECK(classes[p].ranks == classes[0].ranks && classes[p].position == static_cast<int>(p),
                 "unrolled: section {} is at position {}; sections must be those of one job, by position", p,
                 classes[p].position);
    unrolling.add(sections[p], classes[p]);
  }
  if (std::any_of(sections.begin(), sections.end(), [](const Plan& s) { return s.certificate.empty(); }))
    whole.certificate.clear();
  return whole;
}

}  // namespace sluice::plan
