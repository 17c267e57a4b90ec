#include "tools/sluice_run/audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>
#include <fstream>
#include <utility>

#include "base/build_id.h"
#include "base/error.h"
#include "base/files/file.h"
#include "base/files/sha256.h"
#include "include/sluice/sluice.hpp"

namespace sluice::run {
namespace {

namespace fs = std::filesystem;
namespace js = boost::json;

constexpr int64_t kVersion = 1;
constexpr const char* kMagic = "sluice_run_record";

// HMAC-SHA256 (RFC 2104) as text, or the plain digest where there is no key.
std::string seal_of(std::string_view text, std::string_view key) {
  if (key.empty()) return sha256_hex(text);
  const auto bytes_of = [](const std::string& hex) {
    std::string bytes;
    for (size_t i = 0; i < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
    return bytes;
  };
  std::string inner(key.size() > 64 ? bytes_of(sha256_hex(key)) : std::string(key));
  inner.resize(64, '\0');
  std::string outer = inner;
  for (char& c : inner) c = static_cast<char>(c ^ 0x36);
  for (char& c : outer) c = static_cast<char>(c ^ 0x5c);
  return sha256_hex(outer + bytes_of(sha256_hex(inner.append(text))));
}

js::array texts(const std::vector<std::string>& list) { return js::array(list.begin(), list.end()); }

js::object object_of(const std::map<std::string, std::string>& texts) {
  js::object object;
  for (const auto& [name, text] : texts) object[name] = text;
  return object;
}

js::object json_of(const RunRecord& record) {
  const RunCommand& command = record.command;
  js::object input{{"given", texts(command.input.inputs)},
                   {"dims", texts(command.input.dims)},
                   {"fill", command.input.fill},
                   {"seed", command.input.seed}};
  js::object facts;
  for (const auto& [section, list] : record.facts) facts[section] = object_of(list);
  js::object json{{kMagic, kVersion},
                  {"bundle", command.bundle},
                  {"steps", command.steps},
                  {"cores", command.cores},
                  {"shuffle", nullptr},
                  {"input", std::move(input)},
                  {"order", record.order},
                  {"order_digest", record.order_digest},
                  {"facts", std::move(facts)},
                  {"every", record.every},
                  {"outputs", object_of(record.outputs)},
                  {"digests", texts(record.digests)}};
  if (command.shuffle) json["shuffle"] = *command.shuffle;
  return json;
}

// Reads fields, and says which one is wrong.
class Reader {
 public:
  explicit Reader(std::string path) : path_(std::move(path)) {}

  template <class T>
  T number(const js::object& object, const char* name) const {
    boost::system::error_code error;
    const T value = field(object, name).to_number<T>(error);
    if (error || std::cmp_less(value, 0)) wrong(name, "a number that is not negative");
    return value;
  }
  std::string text(const js::object& object, const char* name) const { return text_of(field(object, name), name); }
  std::vector<std::string> texts(const js::object& object, const char* name) const {
    const js::value& value = field(object, name);
    if (!value.is_array()) wrong(name, "a list of texts");
    std::vector<std::string> list;
    for (const js::value& one : value.get_array()) list.push_back(text_of(one, name));
    return list;
  }
  const js::object& object(const js::object& outer, const char* name) const {
    const js::value& value = field(outer, name);
    if (!value.is_object()) wrong(name, "an object");
    return value.get_object();
  }
  std::map<std::string, std::string> map(const js::object& object) const {
    std::map<std::string, std::string> texts;
    for (const auto& [name, value] : object) texts[name] = text_of(value, std::string(name).c_str());
    return texts;
  }
  const js::value& field(const js::object& object, const char* name) const {
    const js::value* const value = object.if_contains(name);
    if (value == nullptr) wrong(name, "there");
    return *value;
  }
  [[noreturn]] void wrong(const char* name, const char* must) const {
    fail(ErrorKind::kValue, "{}: '{}' is not {}; it must be as sluice-run --audit wrote it", path_, name, must);
  }

 private:
  std::string text_of(const js::value& value, const char* name) const {
    if (!value.is_string()) wrong(name, "a text");
    return std::string(value.get_string());
  }

  const std::string path_;
};

RunRecord record_of(const js::object& json, const Reader& reader) {
  RunRecord record;
  RunCommand& command = record.command;
  command.bundle = reader.text(json, "bundle");
  command.steps = reader.number<int64_t>(json, "steps");
  command.cores = reader.number<int>(json, "cores");
  if (!reader.field(json, "shuffle").is_null()) command.shuffle = reader.number<uint64_t>(json, "shuffle");
  const js::object& input = reader.object(json, "input");
  command.input = {reader.texts(input, "given"), reader.texts(input, "dims"), reader.text(input, "fill"),
                   reader.number<uint64_t>(input, "seed")};
  record.order = reader.text(json, "order");
  record.order_digest = reader.text(json, "order_digest");
  if (record.order != fs::path(record.order).filename()) reader.wrong("order", "the name of a file beside it");
  for (const auto& [section, list] : reader.object(json, "facts")) {
    if (!list.is_object()) reader.wrong("facts", "an object of objects");
    record.facts[section] = reader.map(list.get_object());
  }
  record.every = reader.number<int64_t>(json, "every");
  record.outputs = reader.map(reader.object(json, "outputs"));
  record.digests = reader.texts(json, "digests");
  const int64_t steps = command.steps, every = record.every;
  if (steps == 0 || every != ResultDigest(steps).every() ||
      static_cast<int64_t>(record.digests.size()) != steps / every + (steps % every != 0))
    reader.wrong("digests", "a digest for each of its steps");
  return record;
}

}  // namespace

void ResultDigest::add(const std::vector<api::Tensor>& results) {
  for (const api::Tensor& result : results)
    digest_ = sha256_hex(digest_ + sha256_hex({static_cast<const char*>(result.raw()), result.bytes()}));
  if (++steps_ % every_ == 0) kept_.push_back(digest_);
}

std::vector<std::string> ResultDigest::kept() const {
  std::vector<std::string> all = kept_;
  if (steps_ % every_ != 0) all.push_back(digest_);
  return all;
}

std::string key_of(const std::string& path) {
  std::string key = read_file(path);
  SLUICE_CHECK(!key.empty(), "--key {}: the file is empty; it must have the key", path);
  return key;
}

std::string digest_of_file(const std::string& path) {
  InputFile file(path);
  std::string bytes(file.size(), '\0');
  file.read(bytes.data(), bytes.size());
  return sha256_hex(bytes);
}

Facts facts_of(const std::string& bundle, const std::vector<std::string>& code) {
  Facts facts;
  const js::object told = js::parse(api::describe(true)).as_object();
  const auto take = [&](const char* from, const char* section, std::initializer_list<std::string_view> names) {
    for (const auto& [name, value] : told.at(from).as_object()) {
      const bool wanted = names.size() == 0 || std::find(names.begin(), names.end(), name) != names.end();
      if (wanted && value.is_string()) facts[section][name] = value.get_string();
    }
  };
  take("sluice", "build", {"version"});
  take("build", "build", {});
  facts["build"]["id"] = build_id();
  take("libraries", "libraries", {});
  take("machine", "machine", {"processor", "cores_used"});
  take("instructions", "machine", {});
  std::map<std::string, std::string>& files = facts["files"];
  if (fs::is_directory(bundle)) {
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(bundle))
      if (entry.is_regular_file())
        files[entry.path().lexically_relative(bundle).string()] = digest_of_file(entry.path().string());
  } else {
    files[fs::path(bundle).filename().string()] = digest_of_file(bundle);
  }
  for (const std::string& path : code) files["code " + fs::path(path).filename().string()] = digest_of_file(path);
  return facts;
}

std::map<std::string, std::string> digests_of(const std::vector<api::Port>& ports,
                                              const std::vector<api::Tensor>& tensors) {
  std::map<std::string, std::string> digests;
  for (size_t p = 0; p < tensors.size(); ++p)
    digests[ports[p].name] =
        sha256_hex(tensors[p].str() + sha256_hex({static_cast<const char*>(tensors[p].raw()), tensors[p].bytes()}));
  return digests;
}

std::vector<std::string> differences(const Facts& now, const Facts& recorded) {
  std::vector<std::string> lines;
  const auto told = [](const std::map<std::string, std::string>& facts, const std::string& name) {
    const auto found = facts.find(name);
    return found == facts.end() ? std::string("nothing") : fmt::format("'{}'", found->second);
  };
  Facts all = now;
  for (const auto& [section, facts] : recorded) all[section].insert(facts.begin(), facts.end());
  for (const auto& [section, facts] : all) {
    const auto here = now.find(section), there = recorded.find(section);
    static const std::map<std::string, std::string> none;
    for (const auto& [name, fact] : facts) {
      const std::string a = told(here == now.end() ? none : here->second, name);
      const std::string b = told(there == recorded.end() ? none : there->second, name);
      if (a != b) lines.push_back(fmt::format("{}: {}: {}; {} was recorded", section, name, a, b));
    }
  }
  return lines;
}

std::vector<std::string> differences(const ResultDigest& now, const std::map<std::string, std::string>& outputs,
                                     const RunRecord& recorded) {
  std::vector<std::string> lines;
  const std::vector<std::string> kept = now.kept();
  const auto [here, there] = std::mismatch(kept.begin(), kept.end(), recorded.digests.begin(), recorded.digests.end());
  if (here != kept.end() || there != recorded.digests.end()) {
    const int64_t first = (here - kept.begin()) * recorded.every + 1;
    const int64_t last = std::min(first + recorded.every - 1, recorded.command.steps);
    lines.push_back(first == last ? fmt::format("results: they are others from step {} on", first)
                                  : fmt::format("results: they are others from a step on, of {} to {}", first, last));
  }
  for (const std::string& line :
       differences({{"results of the last step", outputs}}, {{"results of the last step", recorded.outputs}}))
    lines.push_back(line);
  return lines;
}

void write_record(const RunRecord& record, const std::string& path, std::string_view key) {
  js::object json = json_of(record);
  json["signed"] = !key.empty();
  const std::string seal = seal_of(js::serialize(json), key);
  json["seal"] = seal;
  std::string text = "{";  // a field a line, for people
  for (const auto& [name, value] : json)
    text +=
        fmt::format("{}\n {}: {}", text.size() > 1 ? "," : "", js::serialize(js::value(name)), js::serialize(value));
  std::ofstream file(path, std::ios::binary);
  file << text << "\n}\n";
  file.close();
  SLUICE_CHECK_KIND(kIo, file.good(), "{}: the record could not be written; its folder must exist and have room", path);
}

RunRecord read_record(const std::string& path, std::string_view key) {
  const std::string text = read_file(path);
  js::stream_parser parser;
  boost::system::error_code error;
  const size_t good = parser.write_some(text, error);
  if (!error) parser.finish(error);
  SLUICE_CHECK(!error && text.find_first_not_of(" \n\r\t", good) == std::string::npos,
               "{}: byte {}: {}; it must be a record that sluice-run --audit wrote", path, good,
               error ? error.message() : "there is more behind the end");
  const js::value value = parser.release();
  const js::object* const all = value.if_object();
  SLUICE_CHECK(all != nullptr && all->contains(kMagic),
               "{}: this is no record of a run; it must be one that sluice-run --audit wrote", path);
  const Reader reader(path);
  const auto version = reader.number<int64_t>(*all, kMagic);
  SLUICE_CHECK(version == kVersion, "{}: version {}; this build reads version {}", path, version, kVersion);
  const bool is_signed = reader.field(*all, "signed") == js::value(true);
  SLUICE_CHECK(!is_signed || !key.empty(), "{}: it is signed; give --key FILE to check by whom", path);
  SLUICE_CHECK(is_signed || key.empty(), "{}: it is not signed; a key cannot say who wrote it", path);
  js::object sealed;
  for (const auto& [name, field] : *all)
    if (name != "seal") sealed[name] = field;
  SLUICE_CHECK(reader.text(*all, "seal") == seal_of(js::serialize(sealed), key), "{}: its seal is another; {}", path,
               is_signed ? "it was changed, or signed by another key" : "it was changed since it was written");
  return record_of(sealed, reader);
}

}  // namespace sluice::run
