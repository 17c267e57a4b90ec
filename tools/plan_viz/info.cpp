// Says what a plan is: made for what, asked for what, of which size.
#include <algorithm>
#include <set>

#include "base/files/sha256.h"
#include "plan/json/json.h"
#include "plan/pack/ledger.h"
#include "plan/placed.h"
#include "tools/plan_viz/text.h"
#include "tools/plan_viz/views.h"

namespace sluice::plan_viz {
namespace {

using plan::Plan;
using plan::quoted_json;

// Options as they were set, by the names they have in Python: "quota.x" is an entry of quotas, "disabled.p" of
// disabled_passes, "pattern.p" of patterns, "devices.d" of devices.
struct Config {
  std::vector<std::pair<std::string, Attr>> plain;
  std::vector<std::pair<std::string, Attr>> quotas;
  std::vector<std::string> disabled, patterns, devices;
};
Config config_of(const Plan& plan) {
  constexpr std::string_view kQuota = "quota.", kDisabled = "disabled.", kPattern = "pattern.",
                             kDevices = plan::kDeviceOrder;
  Config config;
  for (const auto& [name, value] : plan.options) {
    if (name.starts_with(kQuota)) {
      config.quotas.emplace_back(name.substr(kQuota.size()), value);
    } else if (name.starts_with(kDisabled)) {
      config.disabled.push_back(name.substr(kDisabled.size()));
    } else if (name.starts_with(kPattern)) {
      config.patterns.push_back(name.substr(kPattern.size()));
    } else if (name.starts_with(kDevices)) {
      config.devices.push_back(name.substr(kDevices.size()));
    } else {
      config.plain.emplace_back(name, value);
    }
  }
  return config;
}

// Doubles as plain numbers: nobody reads them back into a plan.
std::string value_json(const Attr& value) {
  const auto* number = std::get_if<double>(&value);
  return number ? fmt::format("{}", *number) : plan::attr_json(value);
}

std::string config_json(const Config& config) {
  std::string json;
  const auto add = [&json](const std::string& name, const std::string& value) {
    json += (json.empty() ? "" : ", ") + quoted_json(name) + ": " + value;
  };
  for (const auto& [name, value] : config.plain) add(name, value_json(value));
  std::string entries;
  for (const auto& [name, value] : config.quotas)
    entries += (entries.empty() ? "" : ", ") + quoted_json(name) + ": " + value_json(value);
  if (!entries.empty()) add("quotas", "{" + entries + "}");
  const auto add_names = [&](const char* list, const std::vector<std::string>& names) {
    std::string quoted;
    for (const std::string& name : names) quoted += (quoted.empty() ? "" : ", ") + quoted_json(name);
    if (!quoted.empty()) add(list, "[" + quoted + "]");
  };
  add_names("disabled_passes", config.disabled);
  add_names("patterns", config.patterns);
  add_names("devices", config.devices);
  return "{" + json + "}";
}

std::set<std::string> devices_of(const Plan& plan) {
  std::set<std::string> devices;
  for (const plan::Stream& s : plan.streams) devices.insert(s.device.str());
  return devices;
}

struct Count {
  const char* name;
  size_t n;
};
std::vector<Count> counts_of(const Plan& plan) {
  return {{"streams", plan.streams.size()},     {"arenas", plan.arenas.size()},   {"buffers", plan.buffers.size()},
          {"variables", plan.variables.size()}, {"kernels", plan.kernels.size()}, {"actors", plan.actors.size()},
          {"registers", plan.registers.size()}, {"edges", plan.edges.size()},     {"inputs", plan.inputs.size()},
          {"outputs", plan.outputs.size()}};
}

}  // namespace

std::string info_text(const Plan& plan, const TextOptions&) {
  std::string text;
  const auto line = [&text](const char* name, const std::string& value) {
    text += fmt::format("{:<9} {}\n", name, value);
  };
  line("name", plan.name);
  line("schema", fmt::format("{}", plan.schema_version));
  for (const plan::Actor& actor : plan.actors)
    if (actor.starts > 1) line("step", fmt::format("{} firings of '{}'", actor.starts, actor.name));
  line("sha256", sha256_hex(plan::to_json(plan)));
  line("target", plan.target);
  const Config config = config_of(plan);
  line("config", plan.options.empty() ? "all options as by default" : config_json(config));
  std::string devices;
  for (const std::string& device : devices_of(plan)) devices += (devices.empty() ? "" : ", ") + device;
  line("devices", devices);
  const plan::Ledger ledger = plan::ledger(plan);
  for (size_t i = 0; i < plan.spaces.size(); ++i)
    line(i == 0 ? "memory" : "", fmt::format("{}: {}", plan.spaces[i].str(), plan::bytes_str(ledger.space_bytes[i])));
  std::string counts;
  for (const Count& count : counts_of(plan)) {
    const std::string one(count.name, std::string_view(count.name).size() - 1);
    counts += (counts.empty() ? "" : ", ") + count_str(count.n, one.c_str());
  }
  line("counts", counts);
  return text;
}

std::string info_json(const Plan& plan) {
  std::string devices, spaces, counts;
  for (const std::string& device : devices_of(plan)) devices += (devices.empty() ? "" : ", ") + quoted_json(device);
  const plan::Ledger ledger = plan::ledger(plan);
  for (size_t i = 0; i < plan.spaces.size(); ++i)
    spaces += fmt::format("{}{}: {}", i ? ", " : "", quoted_json(plan.spaces[i].str()), ledger.space_bytes[i]);
  for (const Count& count : counts_of(plan))
    counts += fmt::format("{}\"{}\": {}", counts.empty() ? "" : ", ", count.name, count.n);
  return fmt::format(
      "{{\"name\": {}, \"schema_version\": {}, \"sha256\": \"{}\", \"target\": {}, \"config\": {}, \"devices\": [{}], "
      "\"memory\": {{\"total\": {}, {}}}, \"counts\": {{{}}}}}\n",
      quoted_json(plan.name), plan.schema_version, sha256_hex(plan::to_json(plan)), quoted_json(plan.target),
      config_json(config_of(plan)), devices, ledger.total, spaces, counts);
}

}  // namespace sluice::plan_viz
