#include "compiler/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "compiler/compiler.h"

namespace sluice {
namespace {

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// What one option allows only beside another, or beside what the compiler has.
void check_together(const CompileOptions& options) {
  if (!options.devices.empty() && options.ranks > 1) {
    refuse_option(
        fmt::format("devices: an order of devices with {} ranks; place tensors with to_global()", options.ranks), {});
  }
  if (options.auto_memory == "adaptive" && options.memory_budget == 0) {
    refuse_option("auto_memory: \"adaptive\" without a memory_budget; say what the plan has to fit into",
                  {{"option", std::string("auto_memory")}, {"value", std::string("moderate")}});
  }
  if (options.concurrency < 0 || (options.concurrency > 0 && options.ranks > 1)) {
    refuse_option(
        fmt::format("concurrency: {}{}; must be at least 0 (0 = no limit), and 0 where several ranks run the plan",
                    options.concurrency, options.ranks > 1 ? fmt::format(" with {} ranks", options.ranks) : ""),
        {{"option", std::string("concurrency")}, {"value", int64_t{0}}});
  }
  for (const auto& [name, weight] :
       {std::pair("sbp_compute_ratio", options.sbp_compute_ratio), std::pair("sbp_wait_bytes", options.sbp_wait_bytes)})
    SLUICE_CHECK(std::isfinite(weight) && weight >= 0, "{}: {}; must be a finite number, and not negative", name,
                 weight);
  SLUICE_CHECK(!options.name.empty(), "name: empty; a plan needs a name");
  for (const std::string& name : options.disabled_passes) {
    const std::vector<std::string> known = pass_names();
    if (contains(known, name)) continue;
    refuse_option(fmt::format("disabled_passes: unknown pass: '{}'; the passes are {}", name, fmt::join(known, ", ")),
                  {{"option", std::string("disabled_passes")}, {"key", name}, {"value", Attr()}});
  }
  const std::vector<std::string> stages = stage_names();
  SLUICE_CHECK(options.until.empty() || contains(stages, options.until),
               "until: unknown stage: '{}'; the stages are {}", options.until, fmt::join(stages, ", "));
}

Attr option_attr(Granularity value) { return str_of(value); }

// An entry of a list or a map, as a plan keeps it: "disabled.simplify": true, "quota.x": 2.
std::pair<std::string, Attr> entry_of(const std::string& value) { return {value, true}; }
std::pair<std::string, Attr> entry_of(const DeviceId& value) { return {value.str(), true}; }
std::pair<std::string, Attr> entry_of(const Pattern& value) { return {value.name, true}; }
std::pair<std::string, Attr> entry_of(const NumberByName::value_type& value) {
  return {value.first, int64_t{value.second}};
}

void add_value(Key& key, Granularity value) { key.add(value); }
void add_value(Key& key, bool value) { key.add(value); }
void add_value(Key& key, int value) { key.add(value); }
void add_value(Key& key, uint64_t value) { key.add(value); }
void add_value(Key& key, double value) { key.add(value); }
void add_value(Key& key, const std::string& value) { key.add(value); }
void add_value(Key& key, const DeviceId& value) { key.add(value); }
void add_value(Key& key, const plan::Machine& value) { key.add(plan::to_json(value)); }
void add_value(Key& key, const GlobalPlacement& value) { key.add(value.str()); }
void add_value(Key& key, const std::vector<std::byte>& bytes) {
  key.add(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}
template <class T>
void add_value(Key& key, const std::map<std::string, T>& map) {
  key.add(map.size());
  for (const auto& [name, value] : map) add_value(key.add(name), value);
}
void add_value(Key& key, const Pattern& value) {
  key.add(value.name).add(graph::to_text(value.before)).add(graph::to_text(value.after));
  add_value(key, value.before_constants);
  add_value(key, value.after_constants);
}
template <class T>
void add_value(Key& key, const std::vector<T>& list) {
  key.add(list.size());
  for (const T& value : list) add_value(key, value);
}

}  // namespace

std::string str_of(Granularity granularity) { return granularity == Granularity::kOp ? "op" : "program"; }

void check_options(const CompileOptions& options) {
  const CompileOptions initial;
  each_compile_option(
      [&](const OptionFacts& facts, auto option) { check_option(facts, options.*option, initial.*option); });
  check_together(options);
}

NamedAttrs recorded_options(const CompileOptions& options) {
  const CompileOptions initial;
  NamedAttrs attrs;
  each_compile_option([&](const OptionFacts& facts, auto option) {
    const auto& value = options.*option;
    if (!facts.recorded) return;
    if constexpr (requires { option_attr(value); }) {
      if (!(value == initial.*option)) attrs.emplace_back(std::string(facts.name), option_attr(value));
    } else if constexpr (requires { entry_of(*value.begin()); }) {
      for (const auto& each : value) {
        auto [key, attr] = entry_of(each);
        attrs.emplace_back(fmt::format("{}.{}", facts.entry, key), std::move(attr));
      }
    } else {
      fail(ErrorKind::kUnsupported, "compiler/options.inc: {}: a plan has no form for its type", facts.name);
    }
  });
  return attrs;
}

void add_options(Key& key, const CompileOptions& options) {
  each_compile_option([&](const OptionFacts&, auto option) { add_value(key, options.*option); });
}

}  // namespace sluice
