// diff: what differs between two plans, by the names of what they have, or between two texts.
#include <algorithm>
#include <map>

#include "plan/json/json.h"
#include "plan/query.h"
#include "tools/plan_viz/text.h"
#include "tools/plan_viz/views.h"

namespace sluice::plan_viz {

using namespace plan;

namespace {

using Fields = std::vector<std::pair<std::string, std::string>>;

// What a plan has, as fields by name, in which others are named rather than numbered: so what is in both is found and
// compared wherever it stands.
class Described {
 public:
  explicit Described(const Plan& plan) : plan_(plan), adjacency_(plan) {
    add("plan", plan.name, {{"target", plan.target}});
    for (const auto& [name, value] : plan.options) add("option", name, {{"value", attr_str(value)}});
    for (const Stream& s : plan.streams)
      add("stream", stream_name(s),
          {{"kind", stream_kind_name(s.kind)}, {"cores", std::to_string(s.cores)}, {"device", s.device.str()}});
    for (const Actor& a : plan.actors) actor(a);
    const std::vector<int> streams = streams_of_kernels(plan);
    for (size_t k = 0; k < plan.kernels.size(); ++k) kernel(plan.kernels[k], streams[k]);
    for (size_t r = 0; r < plan.registers.size(); ++r) reg(static_cast<int>(r));
    for (const Variable& v : plan.variables)
      add("variable", v.name,
          {{"type", spec_str(v.spec)},
           {"memory", plan.spaces[v.space].str()},
           {"constant", v.constant ? "yes" : "no"}});
    for (const Arena& a : plan.arenas)
      add("arena", a.name, {{"bytes", std::to_string(a.bytes)}, {"memory", plan.spaces[a.space].str()}});
    for (const Input& i : plan.inputs) add("input", i.name, {{"type", spec_str(i.spec)}});
    for (const Output& o : plan.outputs) add("output", o.name, {{"of", view_str(plan, o.view)}});
  }

  struct Entity {
    std::string what, name;
    Fields fields;
  };
  const std::vector<Entity>& entities() const { return entities_; }

 private:
  void add(const char* what, const std::string& name, Fields fields) {
    entities_.push_back({what, name, std::move(fields)});
  }
  static std::string spec_str(const TensorSpec& spec) {
    std::string s = std::string(dtype_name(spec.dtype)) + spec.shape.str();
    return is_contiguous(spec.shape, spec.strides) ? s : s + " strides " + spec.strides.str();
  }
  static std::string stream_name(const Stream& s) {
    return s.device.rank > 0 ? fmt::format("{}/{}", s.device.rank, s.name) : s.name;
  }
  void actor(const Actor& a) {
    std::string program;
    for (const Instr& i : a.program) {
      const std::string& name = i.kind == InstrKind::kRun    ? plan_.kernels[i.index].name
                                : i.kind == InstrKind::kEmit ? plan_.registers[i.index].name
                                                             : plan_.registers[plan_.edges[i.index].reg].name;
      program += fmt::format("{}{} {}", program.empty() ? "" : ", ", instr_kind_name(i.kind), name);
    }
    add("actor", a.name,
        {{"stream", stream_name(plan_.streams[a.stream])},
         {"role", actor_role_name(a.role)},
         {"starts", std::to_string(a.starts)},
         {"program", program}});
  }
  void kernel(const Kernel& k, int stream) {
    const auto views = [&](const std::vector<View>& all) {
      std::string s;
      for (const View& v : all)
        s += (s.empty() ? "" : ", ") + (is_absent(v) ? std::string("none") : view_str(plan_, v));
      return s;
    };
    Fields fields{{"op", k.op},
                  {"stream", stream < 0 ? "none" : stream_name(plan_.streams[stream])},
                  {"inputs", views(k.inputs)},
                  {"outputs", views(k.outputs)},
                  {"cost", time_str(k.cost_ns)},
                  {"line", k.source.str()},
                  {"module", k.module},
                  {"role", role_name(k.role)},
                  {"collective", std::to_string(k.collective)}};
    for (const auto& [name, value] : k.attrs) fields.emplace_back("attribute " + name, attr_str(value));
    add("kernel", k.name, std::move(fields));
  }
  void reg(int index) {
    const Register& r = plan_.registers[index];
    std::string consumers;
    for (const int e : adjacency_.register_edges[index]) {
      const Edge& edge = plan_.edges[e];
      consumers += (consumers.empty() ? "" : ", ") + plan_.actors[edge.consumer].name;
      if (edge.take != 1 || edge.hold != 1) consumers += fmt::format(" (takes {}, holds {})", edge.take, edge.hold);
    }
    add("register", r.name,
        {{"of", plan_.actors[r.producer].name},
         {"for", consumers},
         {"quota", std::to_string(r.quota)},
         {"bytes", std::to_string(r.bytes)},
         {"emit every", std::to_string(r.emit_every)},
         {"initial tokens", std::to_string(r.initial_tokens)},
         {"in place of", r.in_place_of < 0 ? "nothing" : plan_.registers[plan_.edges[r.in_place_of].reg].name}});
  }

  const Plan& plan_;
  const Adjacency adjacency_;
  std::vector<Entity> entities_;
};

// Fields that differ, each with what it was and is; one that is missing is "nothing".
std::vector<std::string> changes(const Fields& a, const Fields& b) {
  const auto find = [](const Fields& fields, const std::string& name) {
    const auto at = std::ranges::find(fields, name, &Fields::value_type::first);
    return at == fields.end() ? std::string("nothing") : at->second;
  };
  std::vector<std::string> texts;
  const auto tell = [&](const std::string& name) {
    const std::string was = find(a, name), is = find(b, name);
    if (was != is) texts.push_back(fmt::format("{}: {} -> {}", name, was, is));
  };
  for (const auto& [name, value] : a) tell(name);
  for (const auto& [name, value] : b)
    if (std::ranges::find(a, name, &Fields::value_type::first) == a.end()) tell(name);
  return texts;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

}  // namespace

PlanDifference diff_plans(const Plan& a, const Plan& b) {
  const Described one(a), other(b);
  using Key = std::pair<std::string, std::string>;
  const auto index = [](const Described& described) {
    std::map<Key, const Fields*> known;
    for (const auto& entity : described.entities()) known.emplace(Key{entity.what, entity.name}, &entity.fields);
    return known;
  };
  const std::map<Key, const Fields*> in_a = index(one), in_b = index(other);
  PlanDifference found;
  for (const auto& entity : one.entities()) {
    const auto at = in_b.find({entity.what, entity.name});
    if (at == in_b.end()) {
      found.rows.push_back({'-', entity.what, entity.name, ""});
      continue;
    }
    for (const std::string& text : changes(entity.fields, *at->second))
      found.rows.push_back({'~', entity.what, entity.name, text});
  }
  for (const auto& entity : other.entities())
    if (!in_a.contains({entity.what, entity.name})) found.rows.push_back({'+', entity.what, entity.name, ""});
  return found;
}

PlanDifference diff_texts(const std::string& what, const std::string& a, const std::string& b) {
  const std::vector<std::string> one = lines_of(a), other = lines_of(b);
  size_t begin = 0, one_end = one.size(), other_end = other.size();
  while (begin < one_end && begin < other_end && one[begin] == other[begin]) ++begin;
  while (one_end > begin && other_end > begin && one[one_end - 1] == other[other_end - 1]) --one_end, --other_end;
  PlanDifference found;
  const auto row = [&](char kind, size_t line, const std::string& text) {
    found.rows.push_back({kind, what, fmt::format("line {}", line + 1), text});
  };
  // The longest common lines between; of texts that differ in very many, none.
  const size_t n = one_end - begin, m = other_end - begin;
  constexpr size_t kMostPairs = 16'000'000;
  const bool few = n == 0 || m <= kMostPairs / n;
  std::vector<uint32_t> common(few ? (n + 1) * (m + 1) : 0);
  const auto at = [&](size_t i, size_t j) -> uint32_t& { return common[i * (m + 1) + j]; };
  for (size_t i = n; few && i-- > 0;) {
    for (size_t j = m; j-- > 0;)
      at(i, j) = one[begin + i] == other[begin + j] ? at(i + 1, j + 1) + 1 : std::max(at(i + 1, j), at(i, j + 1));
  }
  size_t i = 0, j = 0;
  while (i < n || j < m) {
    if (few && i < n && j < m && one[begin + i] == other[begin + j]) {
      ++i, ++j;
    } else if (i < n && (j == m || !few || at(i + 1, j) >= at(i, j + 1))) {
      row('-', begin + i, one[begin + i]);
      ++i;
    } else {
      row('+', begin + j, other[begin + j]);
      ++j;
    }
  }
  return found;
}

std::string diff_text(const PlanDifference& difference, const TextOptions& options) {
  if (difference.rows.empty()) return "no difference\n";
  std::string s = paint(count_str(difference.rows.size(), "difference"), Color::kBold, options) + "\n";
  for (const PlanDifference::Row& row : difference.rows) {
    const Color color = row.kind == '-' ? Color::kRed : row.kind == '+' ? Color::kGreen : Color::kYellow;
    std::string line =
        fmt::format("{} {} {}{}{}", row.kind, row.what, row.name, row.text.empty() ? "" : "  ", row.text);
    if (!options.all) line = cut(line, std::min(columns(line), static_cast<size_t>(options.width)));
    s += paint(line, color, options) + "\n";
  }
  return s;
}

std::string diff_json(const PlanDifference& difference) {
  std::string s = fmt::format("{{\"equal\": {}, \"differences\": [", difference.rows.empty());
  const char* comma = "";
  for (const PlanDifference::Row& row : difference.rows)
    s += fmt::format("{}\n  {{\"kind\": \"{}\", \"what\": {}, \"name\": {}, \"text\": {}}}", std::exchange(comma, ","),
                     row.kind == '-'   ? "removed"
                     : row.kind == '+' ? "added"
                                       : "changed",
                     quoted_json(row.what), quoted_json(row.name), quoted_json(row.text));
  return s + "]}\n";
}

}  // namespace sluice::plan_viz
