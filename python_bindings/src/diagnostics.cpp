// Questions that are asked when something is wrong: the installation, the log, counters.
#include <nanobind/stl/pair.h>

#include "base/log.h"
#include "bindings.h"
#include "runtime/report/describe.h"
#include "runtime/session/session.h"

namespace sluice::python {

nb::dict counters_of(const SessionStats& stats) {
  nb::dict d;
  d["submitted"] = stats.submitted;
  d["finished"] = stats.finished;
  d["failed"] = stats.failed;
  d["in_flight"] = stats.in_flight;
  d["max_in_flight"] = stats.max_in_flight;
  d["bytes"] = stats.bytes;
  d["mapped"] = stats.mapped;
  d["input_copies"] = stats.input_copies;
  d["output_copies"] = stats.output_copies;
  d["spilled"] = stats.spilled;
  d["fetched"] = stats.fetched;
  nb::list actors, streams, registers;
  for (const ActorStats& a : stats.actors) {
    nb::dict row;
    row["name"] = a.name;
    row["stream"] = stats.streams.empty() ? std::string() : stats.streams.at(static_cast<size_t>(a.stream)).name;
    row["firings"] = a.firings;
    row["waits"] = a.waits;
    row["busy_ns"] = a.busy_ns;
    row["left_out"] = a.left_out;
    actors.append(row);
  }
  for (const StreamStats& s : stats.streams) {
    nb::dict row;
    row["name"] = s.name;
    row["busy_ns"] = s.busy_ns;
    row["parks"] = s.parks;
    streams.append(row);
  }
  for (const RegisterStats& r : stats.registers) {
    nb::dict row;
    row["name"] = r.name;
    row["tokens"] = r.tokens;
    row["quota"] = r.quota;
    row["used"] = r.used;
    row["ready"] = r.ready;
    row["peak"] = r.peak;
    registers.append(row);
  }
  d["actors"] = actors;
  d["streams"] = streams;
  d["registers"] = registers;
  return d;
}

void bind_diagnostics(nb::module_& m) {
  m.def(
      "describe",
      [](bool json, const std::vector<std::pair<std::string, std::string>>& libraries) {
        std::vector<LibraryVersion> more;
        for (const auto& [name, version] : libraries) more.push_back({name, version});
        return describe(json, more);
      },
      nb::arg("json") = false, nb::arg("libraries") = std::vector<std::pair<std::string, std::string>>(),
      "Versions, build, machine, devices and settings, for bug reports.");
  m.def(
      "set_log", [](const std::string& spec) { set_log(spec); }, nb::arg("spec"),
      "Sets what is logged, as SLUICE_LOG does at the start: \"warn,plan=debug,json\".");
  m.def("log_spec", &log_spec, "What is logged now, as set_log() takes it.");
}

}  // namespace sluice::python
