#include "runtime/report/describe.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/utsname.h>

#include <algorithm>
#include <boost/version.hpp>
#include <cctype>
#include <fstream>
#include <functional>
#include <thread>

#include "actors/system.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/log.h"
#include "include/sluice/sluice.hpp"
#include "kernels/libraries.h"
#include "plan/plan.h"
#include "plan/target.h"
#include "streams/backend.h"
#include "streams/collective/world.h"
#include "streams/cores.h"
#include "streams/devices.h"

extern char** environ;

namespace sluice {
namespace {

struct Field {
  std::string key, value;
  bool number = false;
};
struct Section {
  std::string name;
  std::vector<Field> fields;

  void add(std::string key, std::string value) { fields.push_back({std::move(key), std::move(value)}); }
  void add(std::string key, uint64_t value) { fields.push_back({std::move(key), std::to_string(value), true}); }
};

// A failure is part of the answer: this is called when something is wrong.
std::string told(const std::function<std::string()>& ask) {
  try {
    return ask();
  } catch (const std::exception& e) {
    return fmt::format("error: {}", e.what());
  }
}

std::string compiler() {
#if defined(__clang__)
  return "clang " __clang_version__;
#elif defined(__GNUC__)
  return "g++ " __VERSION__;
#else
  return "unknown";
#endif
}

Section sluice_section() {
  Section section{"sluice", {}};
  section.add("version", api::version());
  section.add("plan_schema", static_cast<uint64_t>(plan::kSchemaVersion));
  return section;
}

Section build_section() {
  Section section{"build", {}};
  section.add("compiler", compiler());
  section.add("standard", fmt::format("C++{}", __cplusplus / 100 % 100));
  section.add("type", SLUICE_BUILD_TYPE);
  section.add("sanitizers", *SLUICE_BUILD_SANITIZERS == '\0' ? "none" : SLUICE_BUILD_SANITIZERS);
#ifdef NDEBUG
  section.add("assertions", "off");
#else
  section.add("assertions", "on");
#endif
  return section;
}

Section libraries_section(const std::vector<LibraryVersion>& more) {
  Section section{"libraries", {}};
  const auto add = [&](const std::vector<LibraryVersion>& libraries) {
    for (const LibraryVersion& library : libraries) section.add(library.name, library.version);
  };
  add({{"CAF", actors::caf_version()}});
  add(kernel_libraries());
  add(collective::collective_libraries());
  add({{"Boost", fmt::format("{}.{}.{}", BOOST_VERSION / 100000, BOOST_VERSION / 100 % 1000, BOOST_VERSION % 100)}});
  add(base_libraries());
  add(more);
  return section;
}

std::string first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

// "model name : X" -> X
std::string field_of(const std::string& path, const std::string& key) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (line.compare(0, key.size(), key) != 0) continue;
    const size_t value = line.find_first_not_of(" \t", line.find(':') + 1);
    return value == std::string::npos ? std::string() : line.substr(value);
  }
  return "";
}

// The process's own group of control groups (version 2), where it is not the root.
std::vector<std::string> cgroup_folders() {
  std::vector<std::string> folders;
  std::ifstream in("/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    if (line.compare(0, 3, "0::") == 0) folders.push_back("/sys/fs/cgroup" + line.substr(3));
  }
  folders.push_back("/sys/fs/cgroup");
  return folders;
}

std::string cgroup_limit(const std::string& file) {
  for (const std::string& folder : cgroup_folders()) {
    const std::string line = first_line(folder + "/" + file);
    if (!line.empty()) return line;
  }
  return "none";
}

Section machine_section() {
  Section section{"machine", {}};
  utsname name{};
  if (uname(&name) == 0) section.add("system", fmt::format("{} {} {}", name.sysname, name.release, name.machine));
  section.add("processor", field_of("/proc/cpuinfo", "model name"));
  section.add("cores", static_cast<uint64_t>(std::thread::hardware_concurrency()));
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0) {
    section.add("cores_allowed", static_cast<uint64_t>(CPU_COUNT(&allowed)));
  }
  section.add("cores_used", told([] { return std::to_string(machine_cores()); }));
  section.add("cpu_limit", cgroup_limit("cpu.max"));
  section.add("memory", field_of("/proc/meminfo", "MemTotal"));
  section.add("memory_available", field_of("/proc/meminfo", "MemAvailable"));
  section.add("memory_limit", cgroup_limit("memory.max"));
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) == 0) {
    section.add("address_space_limit", limit.rlim_cur == RLIM_INFINITY ? "none" : std::to_string(limit.rlim_cur));
  }
  return section;
}

Section instructions_section() {
  Section section{"instructions", {}};
  for (const InstructionSet& set : cpu_instruction_sets()) section.add(set.part, set.name);
  return section;
}

Section devices_section() {
  Section section{"devices", {}};
  std::vector<DeviceKind> kinds = known_kinds();
  if (std::find(kinds.begin(), kinds.end(), DeviceKind::kCuda) == kinds.end()) kinds.push_back(DeviceKind::kCuda);
  for (const DeviceKind kind : kinds) {
    const std::string name = DeviceId{.kind = kind}.str();
    section.add(
        name, told([&]() -> std::string {
          try {
            const plan::DeviceDesc device = make_device(parse_device(name))->describe();
            std::string text = fmt::format(
                "{} cores, {}, {}, {}", device.cores,
                device.memory_bytes == 0 ? "memory without limit" : fmt::format("{} bytes", device.memory_bytes),
                device.host_memory ? "host memory" : "memory of its own",
                device.asynchronous ? "asynchronous" : "synchronous");
            const Backend* backend = backend_of(device.device.kind);
            if (backend == nullptr || backend->libraries == nullptr) return text;
            for (const LibraryVersion& library : backend->libraries())
              text += fmt::format(", {} {}", library.name, library.version);
            return text;
          } catch (const Error& error) {
            if (error.kind() != ErrorKind::kUnsupported) throw;
            // "device: cuda:0: what is missing: ...", of which the rest may name paths.
            const std::string text = std::string(error.what()).substr(std::string("device: : ").size() + name.size());
            return text.substr(0, text.find(": "));
          }
        }));
  }
  return section;
}

Section environment_section() {
  Section section{"environment", {}};
  static constexpr const char* kPrefixes[] = {"SLUICE_", "OMP_", "GOMP_", "DNNL_", "ONEDNN_"};
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text = *variable;
    const size_t equals = text.find('=');
    if (equals == std::string::npos) continue;
    const bool ours = std::any_of(std::begin(kPrefixes), std::end(kPrefixes),
                                  [&](const char* prefix) { return text.rfind(prefix, 0) == 0; });
    if (ours) section.add(text.substr(0, equals), shown_value(text.substr(equals + 1)));
  }
  std::sort(section.fields.begin(), section.fields.end(), [](const Field& a, const Field& b) { return a.key < b.key; });
  section.fields.insert(section.fields.begin(), {"log", log_spec()});
  return section;
}

std::string as_json(const std::vector<Section>& sections) {
  std::string text = "{";
  for (const Section& section : sections) {
    text += fmt::format("{}\n  {}: {{", text.size() > 1 ? "," : "", quoted_json(section.name));
    for (size_t i = 0; i < section.fields.size(); ++i) {
      const Field& field = section.fields[i];
      text += fmt::format("{}\n    {}: {}", i ? "," : "", quoted_json(field.key),
                          field.number ? field.value : quoted_json(field.value));
    }
    text += "\n  }";
  }
  return text + "\n}\n";
}

std::string as_text(const std::vector<Section>& sections) {
  size_t width = 0;
  for (const Section& section : sections) {
    for (const Field& field : section.fields) width = std::max(width, field.key.size());
  }
  std::string text;
  for (const Section& section : sections) {
    text += fmt::format("{}{}\n", text.empty() ? "" : "\n", section.name);
    for (const Field& field : section.fields) text += fmt::format("  {:<{}}  {}\n", field.key, width, field.value);
  }
  return text;
}

}  // namespace

std::string shown_value(const std::string& value) {
  const bool plain = value.size() <= 64 && std::all_of(value.begin(), value.end(), [](unsigned char c) {
                       return std::isalnum(c) != 0 || c == ',' || c == '=' || c == '.' || c == '_' || c == '-' ||
                              c == ':' || c == ' ' || c == '{' || c == '}';
                     });
  return plain ? value : "(set)";
}

std::string describe(bool json, const std::vector<LibraryVersion>& more) {
  const std::vector<Section> sections = {sluice_section(),     build_section(),        libraries_section(more),
                                         machine_section(),    instructions_section(), devices_section(),
                                         environment_section()};
  return json ? as_json(sections) : as_text(sections);
}

}  // namespace sluice
