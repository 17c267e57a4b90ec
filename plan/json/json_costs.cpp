// Cost files: links and kernels that somebody has named, and what kernels took when they ran.
#include <boost/json.hpp>

#include "plan/json/json.h"
#include "plan/json/json_fields-inl.h"
#include "plan/time/costs.h"
#include "plan/time/machine.h"

namespace sluice::plan {
namespace {

constexpr int kCostVersion = 1;

// Reads a number of a file that people write: without quotes.
double number(Fields& f, const char* key, bool zero_too) {
  const js::value& v = f.at(key);
  const double n = v.is_double() ? v.get_double() : f.reader().number(v, f.path(key));
  if (!(n > 0 || (zero_too && n == 0)) || n > 1e18)
    f.reader().wrong(f.path(key), fmt::format("out of range: {}; must be a {}number up to 1e18", n,
                                              zero_too ? "non-negative " : "positive "));
  return n;
}

// A list of objects, each read by `one`.
template <class T>
std::vector<T> objects(Fields& f, const char* key, T (*one)(Fields&)) {
  return f.list<T>(key, [&](const js::value& v, const Path& path) {
    Fields fields(f.reader(), v, path);
    T result = one(fields);
    fields.done();
    return result;
  });
}

LinkCost read_link(Fields& f) {
  const std::vector<std::string> ends =
      f.list<std::string>("between", [&](const js::value& v, const Path& path) { return f.reader().string(v, path); });
  if (ends.size() != 2) f.reader().wrong(f.path("between"), fmt::format("{} names; must be two", ends.size()));
  return {ends[0], ends[1], number(f, "latency_ns", true), number(f, "bytes_per_s", false)};
}

KernelCost read_kernel(Fields& f) { return {f.string("name"), number(f, "cost_ns", true)}; }

KernelHistory read_history(Fields& f) {
  KernelHistory h;
  h.kernel = {f.string("op"), f.string("attrs"), f.string("operands"), f.string("device"), f.integer("cores", 1)};
  h.runs = f.reader().integer(f.at("n"), f.path("n"), 1, kMostRuns);
  h.mean_ns = number(f, "mean_ns", true);
  const double std_ns = number(f, "std_ns", true);
  h.squares = std_ns * std_ns * static_cast<double>(h.runs - 1);
  h.min_ns = number(f, "min_ns", true);
  h.max_ns = number(f, "max_ns", true);
  if (h.min_ns > h.mean_ns || h.mean_ns > h.max_ns)
    f.reader().wrong(f.path("mean_ns"), fmt::format("out of range: {}; must be between min_ns, {}, and max_ns, {}",
                                                    h.mean_ns, h.min_ns, h.max_ns));
  return h;
}

template <class T, class One>
std::string section(const char* key, const std::vector<T>& entries, One one) {
  std::string s = fmt::format("\"{}\": [", key);
  for (const T& entry : entries) s += (&entry == entries.data() ? "\n  " : ",\n  ") + one(entry);
  return s + "]";
}

}  // namespace

Machine machine_from_json(std::string_view text, const std::string& file_name) {
  const js::value document = read_document(text, file_name, "cost file");
  const Reader reader(file_name);
  const Path root;
  Fields f(reader, document, root);
  if (f.has("version")) {  // files without one are of before kernels had histories
    const int version = f.integer("version", 1);
    SLUICE_CHECK(version == kCostVersion,
                 "{}: version {}: newer than this build, which reads version {}; upgrade Sluice", file_name, version,
                 kCostVersion);
  }
  Machine machine;
  machine.links = objects<LinkCost>(f, "links", read_link);
  if (f.has("kernels")) machine.kernels = objects<KernelCost>(f, "kernels", read_kernel);
  if (f.has("measured")) merge(machine.measured, objects<KernelHistory>(f, "measured", read_history));
  f.done();
  return machine;
}

std::string to_json(const Machine& machine) {
  const auto number = [](double v) { return fmt::format("\"{}\"", v); };  // as text, which comes back bit for bit
  const auto link = [&](const LinkCost& l) {
    return fmt::format("{{\"between\": [{}, {}], \"latency_ns\": {}, \"bytes_per_s\": {}}}", quoted_json(l.one),
                       quoted_json(l.other), number(l.latency_ns), number(l.bytes_per_s));
  };
  const auto kernel = [&](const KernelCost& k) {
    return fmt::format("{{\"name\": {}, \"cost_ns\": {}}}", quoted_json(k.name), number(k.cost_ns));
  };
  const auto history = [&](const KernelHistory& h) {
    return fmt::format(
        "{{\"op\": {}, \"attrs\": {}, \"operands\": {}, \"device\": {}, \"cores\": {}, \"n\": {}, \"mean_ns\": {}, "
        "\"std_ns\": {}, \"min_ns\": {}, \"max_ns\": {}}}",
        quoted_json(h.kernel.op), quoted_json(h.kernel.attrs), quoted_json(h.kernel.operands),
        quoted_json(h.kernel.device), h.kernel.cores, h.runs, number(h.mean_ns), number(h.std_ns()), number(h.min_ns),
        number(h.max_ns));
  };
  return fmt::format("{{\"version\": {},\n{},\n{},\n{}}}\n", kCostVersion, section("links", machine.links, link),
                     section("kernels", machine.kernels, kernel), section("measured", machine.measured, history));
}

}  // namespace sluice::plan
