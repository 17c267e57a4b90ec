#include <boost/json.hpp>
#include <limits>

#include "base/error.h"
#include "plan/family/family.h"
#include "plan/json/json.h"

namespace sluice::plan {
namespace {

namespace js = boost::json;

template <class List, class One>
std::string lines_of(const List& list, One one) {
  std::string text;
  for (const auto& item : list) text += (text.empty() ? "\n  " : ",\n  ") + one(item);
  return "[" + text + "]";
}

template <class List, class One>
std::string list_of(const List& list, One one) {
  std::string text;
  for (const auto& item : list) text += (text.empty() ? "" : ", ") + one(item);
  return "[" + text + "]";
}

class FamilyReader {
 public:
  explicit FamilyReader(const std::string& file) : file_(file) {}

  [[noreturn]] void wrong(const std::string& where, const js::value& got, const char* need) const {
    std::string text = js::serialize(got);
    if (text.size() > 40) text = text.substr(0, 37) + "...";
    fail(ErrorKind::kValue, "{}: {}: {}; must be {}", file_, where, text, need);
  }
  // An object of exactly these keys.
  const js::object& object(const js::value& v, const std::string& where,
                           std::initializer_list<const char*> keys) const {
    if (!v.is_object()) wrong(where, v, "an object");
    const js::object& object = v.get_object();
    for (const char* key : keys)
      SLUICE_CHECK(object.contains(key), "{}: {}: no '{}'; every field must be given", file_, where, key);
    SLUICE_CHECK(object.size() == keys.size(), "{}: {}: {} fields; there are {}", file_, where, object.size(),
                 keys.size());
    return object;
  }
  const js::array& array(const js::value& v, const std::string& where, size_t most) const {
    if (!v.is_array() || v.get_array().size() > most)
      wrong(where, v, fmt::format("a list of at most {}", most).c_str());
    return v.get_array();
  }
  std::string string(const js::value& v, const std::string& where) const {
    if (!v.is_string()) wrong(where, v, "a string");
    return std::string(v.get_string());
  }
  int64_t size(const js::value& v, const std::string& where) const {
    constexpr int64_t kMost = int64_t{1} << 48;
    if (!v.is_int64() || v.get_int64() < 0 || v.get_int64() > kMost) wrong(where, v, "a whole number from 0 to 2^48");
    return v.get_int64();
  }
  template <class Parse>
  auto parsed(const js::value& v, const std::string& where, Parse parse) const {
    const std::string text = string(v, where);
    try {
      return parse(text);
    } catch (const Error& error) {
      fail(ErrorKind::kValue, "{}: {}: {}", file_, where, error.what());
    }
  }

  std::vector<FamilyPort> ports(const js::value& v, const std::string& where, const std::vector<Dim>& dims) const {
    std::vector<FamilyPort> ports;
    for (const js::value& item : array(v, where, kMostPorts)) {
      const std::string at = fmt::format("{}[{}]", where, ports.size());
      const js::object& port = object(item, at, {"name", "dtype", "shape"});
      FamilyPort read{string(port.at("name"), at + ".name"),
                      parsed(port.at("dtype"), at + ".dtype", [](const std::string& s) { return parse_dtype(s); }),
                      {}};
      for (const js::value& axis : array(port.at("shape"), at + ".shape", kMaxRank))
        read.axes.push_back(this->axis(axis, at + ".shape", dims));
      ports.push_back(std::move(read));
    }
    return ports;
  }

  static constexpr size_t kMostPorts = 65536, kMostDims = 64;

 private:
  FamilyAxis axis(const js::value& v, const std::string& where, const std::vector<Dim>& dims) const {
    if (v.is_null()) return {FamilyAxis::kOther, 0};
    if (!v.is_string()) return {FamilyAxis::kFixed, size(v, where)};
    for (size_t d = 0; d < dims.size(); ++d)
      if (dims[d].name == std::string(v.get_string())) return {static_cast<int>(d), 0};
    wrong(where, v, "a size, the name of a dim, or null");
  }

  const std::string& file_;
};

}  // namespace

std::string family_json(const Family& family) {
  const auto port_json = [&](const FamilyPort& port) {
    return fmt::format(R"({{"name": {}, "dtype": "{}", "shape": {}}})", quoted_json(port.name), dtype_name(port.dtype),
                       list_of(port.axes, [&](const FamilyAxis& axis) {
                         if (axis.dim == FamilyAxis::kOther) return std::string("null");
                         return axis.dim >= 0 ? quoted_json(family.dims[axis.dim].name) : std::to_string(axis.size);
                       }));
  };
  const auto dim_json = [](const Dim& dim) {
    return fmt::format(R"({{"name": {}, "min": {}, "max": {}, "fit": "{}"}})", quoted_json(dim.name), dim.min, dim.max,
                       fit_name(dim.fit));
  };
  const auto member_json = [](const Extents& extents) {
    return list_of(extents, [](int64_t e) { return std::to_string(e); });
  };
  return fmt::format(
      "{{\"schema_version\": 1,\n \"name\": {},\n \"dims\": {},\n \"inputs\": {},\n \"outputs\": {},\n \"members\": "
      "{}}}\n",
      quoted_json(family.name), lines_of(family.dims, dim_json), lines_of(family.inputs, port_json),
      lines_of(family.outputs, port_json), lines_of(family.members, member_json));
}

Family parse_family(const std::string& text, const std::string& file_name) {
  const FamilyReader read(file_name);
  js::error_code error;
  const js::value value = js::parse(text, error);
  SLUICE_CHECK(!error, "{}: not JSON: {}", file_name, error.message());
  refuse_repeated_keys(text, file_name);
  const js::object& all =
      read.object(value, "family", {"schema_version", "name", "dims", "inputs", "outputs", "members"});
  if (all.at("schema_version") != 1) read.wrong("schema_version", all.at("schema_version"), "1");
  Family family;
  family.name = read.string(all.at("name"), "name");
  for (const js::value& item : read.array(all.at("dims"), "dims", FamilyReader::kMostDims)) {
    const std::string at = fmt::format("dims[{}]", family.dims.size());
    const js::object& dim = read.object(item, at, {"name", "min", "max", "fit"});
    family.dims.push_back({read.string(dim.at("name"), at + ".name"), read.size(dim.at("min"), at + ".min"),
                           read.size(dim.at("max"), at + ".max"),
                           read.parsed(dim.at("fit"), at + ".fit", [](const std::string& s) { return parse_fit(s); })});
  }
  family.inputs = read.ports(all.at("inputs"), "inputs", family.dims);
  family.outputs = read.ports(all.at("outputs"), "outputs", family.dims);
  for (const js::value& item : read.array(all.at("members"), "members", kMostMembers)) {
    const std::string at = fmt::format("members[{}]", family.members.size());
    Extents extents;
    for (const js::value& extent : read.array(item, at, FamilyReader::kMostDims))
      extents.push_back(read.size(extent, at));
    family.members.push_back(std::move(extents));
  }
  try {
    check_family(family);
  } catch (const Error& e) {
    fail(e.kind(), "{}: {}", file_name, e.what());
  }
  return family;
}

}  // namespace sluice::plan
