// The options of graphs: read from Python's dict, recorded in the plan, and shown to Python as tables.
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>

#include <filesystem>
#include <type_traits>

#include "base/files/file.h"
#include "bindings.h"
#include "graph_object.h"
#include "runtime/options.h"
#include "tensor/session/graph_session.h"

namespace sluice::python {
namespace {

// A value of Python as an option's.
template <class T>
void read_option(nb::handle given, T& value) {
  value = nb::cast<T>(given);
}
void read_option(nb::handle given, Granularity& value) {
  value = nb::cast<std::string>(given) == str_of(Granularity::kOp) ? Granularity::kOp : Granularity::kProgram;
}
void read_option(nb::handle given, Timeout& value) { value = nanoseconds_of(nb::cast<double>(given)); }
void read_option(nb::handle given, plan::Machine& value) { value = machine_of(nb::cast<std::string>(given)); }
void read_option(nb::handle given, std::vector<Pattern>& value) {
  for (nb::handle pattern : nb::cast<nb::list>(given)) value.push_back(pattern_of(pattern));
}
void read_option(nb::handle given, PlacementByName& value) {
  for (const auto& [name, lay] : nb::cast<std::map<std::string, std::pair<std::string, std::string>>>(given))
    value[name] = {parse_mesh(lay.first), parse_nd_sbp(lay.second)};
}

// The key of an option in Python's dict. Python names the file of a machine, not what is in it.
template <class T>
std::string key_of(const OptionFacts& facts) {
  return std::is_same_v<T, plan::Machine> ? "cost_file" : std::string(facts.name);
}

// How Python sees a default: of a time it is None, since what stands for "no limit" is no number of seconds.
template <class T>
nb::object default_of(const T& value) {
  if constexpr (std::is_same_v<T, Granularity>)
    return nb::cast(str_of(value));
  else if constexpr (std::is_same_v<T, Timeout> || std::is_same_v<T, plan::Machine>)
    return nb::none();
  else if constexpr (std::is_same_v<T, std::vector<Pattern>>)
    return nb::list();
  else if constexpr (std::is_same_v<T, PlacementByName>)
    return nb::dict();
  else
    return nb::cast(value);
}

template <class T>
const char* kind_of() {
  if constexpr (std::is_same_v<T, bool>) return "bool";
  if constexpr (std::is_same_v<T, int> || std::is_same_v<T, uint64_t>) return "int";
  if constexpr (std::is_same_v<T, double>) return "float";
  if constexpr (std::is_same_v<T, Timeout>) return "seconds";
  if constexpr (std::is_same_v<T, plan::Machine>) return "file";
  if constexpr (std::is_same_v<T, std::string> || std::is_same_v<T, Granularity>) return "str";
  if constexpr (std::is_same_v<T, DeviceId>) return "device";
  if constexpr (requires { typename T::key_type; }) return "dict";
  return "list";
}

template <class T>
nb::dict described(const char* table, const OptionFacts& facts, const T& initial) {
  const auto text = [](std::string_view view) { return nb::str(view.data(), view.size()); };
  nb::dict d;
  d["table"] = table;
  d["name"] = key_of<T>(facts);
  d["c_name"] = text(facts.c_name);
  d["kind"] = kind_of<T>();
  d["default"] = default_of(initial);
  d["accepts"] = nb::cast(accepted_texts(facts));
  d["least"] = facts.least == OptionFacts::kAnyNumber ? nb::object(nb::none()) : nb::cast(facts.least);
  d["zero"] = text(facts.zero);
  d["recorded"] = facts.recorded;
  d["graphs"] = facts.graphs;
  d["setter"] = text(facts.setter);
  d["on"] = text(facts.on);
  d["reports"] = text(facts.reports);
  d["doc"] = text(facts.doc);
  return d;
}

nb::list option_table() {
  nb::list table;
  const CompileOptions compile;
  each_compile_option(
      [&](const OptionFacts& facts, auto option) { table.append(described("compile", facts, compile.*option)); });
  const SessionOptions session;
  each_session_option(
      [&](const OptionFacts& facts, auto option) { table.append(described("session", facts, session.*option)); });
  return table;
}

// Graphs that are garbage in a cycle. What they held may be garbage only then: of a backward pass, of a module.
void collect_dropped() {
  constexpr int kRounds = 3;
  const GilAcquire gil;
  const nb::object collect = nb::module_::import_("gc").attr("collect");
  for (int round = 0; round < kRounds && nb::cast<int64_t>(collect()) > 0; ++round) {
  }
}

// Reads the session's options, and records them behind those of the compiler: times as they were said, others where
// they differ from the default.
void read_session(const nb::dict& d, GraphSessionOptions& o) {
  NamedAttrs times;
  const SessionOptions initial;
  each_session_option([&](const OptionFacts& facts, auto option) {
    const std::string name(facts.name);
    if (!facts.graphs || !d.contains(name.c_str())) return;
    auto& value = o.session.*option;
    read_option(d[name.c_str()], value);
    if (!facts.recorded) return;
    if constexpr (std::is_same_v<std::decay_t<decltype(value)>, Timeout>)
      times.emplace_back(name, nb::cast<double>(d[name.c_str()]));
    else if (value != initial.*option)
      o.recorded.emplace_back(name, option_attr(value));
  });
  if (d.contains("amp")) o.recorded.emplace_back("amp", nb::cast<std::string>(d["amp"]));
  o.recorded.insert(o.recorded.end(), times.begin(), times.end());
}

}  // namespace

std::chrono::nanoseconds nanoseconds_of(double seconds) {
  using Seconds = std::chrono::duration<double>;
  if (seconds < 0 || Seconds(seconds) > std::chrono::hours(24 * 365)) return std::chrono::nanoseconds::max();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Seconds(seconds));
}

plan::Machine machine_of(const std::string& path) {
  return std::filesystem::exists(path) ? plan::machine_from_json(read_file(path), path) : plan::Machine();
}

GraphSessionOptions graph_options_of(const nb::dict& d, const nb::dict& functions) {
  GraphSessionOptions o;
  each_compile_option([&](const OptionFacts& facts, auto option) {
    auto& value = o.compile.*option;
    const std::string key = key_of<std::decay_t<decltype(value)>>(facts);
    if (facts.graphs && d.contains(key.c_str())) read_option(d[key.c_str()], value);
  });
  read_session(d, o);
  o.compile.keep_ops = o.session.check_numerics || !o.session.dump.empty();
  if (d.contains("dry_run")) o.dry_run = nb::cast<bool>(d["dry_run"]);
  if (d.contains("meta")) o.meta = nb::cast<std::map<std::string, std::string>>(d["meta"]);
  if (d.contains("arenas")) o.session.arenas = nb::cast<const PyArenas&>(d["arenas"]).arenas;
  o.plans = process_plans();
  o.collect_dropped = collect_dropped;
  for (auto [name, function] : functions) {
    const std::string key = nb::cast<std::string>(name);
    o.session.functions[key] = host_function_of(key, nb::borrow(function));
  }
  return o;
}

void bind_graph_options(nb::module_& m) {
  m.def("option_table", &option_table,
        "What the tables compiler/options.inc and runtime/options.inc say of each option, in their order.");
}

}  // namespace sluice::python
