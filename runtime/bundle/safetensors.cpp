#include "runtime/bundle/safetensors.h"

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <cstring>
#include <fstream>
#include <vector>

#include "base/files/mapped_file.h"
#include "plan/json/json.h"
#include "runtime/bundle/bundle_digest.h"
#include "runtime/bundle/replace_bundle.h"

namespace sluice {
namespace {

namespace json = boost::json;

constexpr uint64_t kMaxHeader = uint64_t{100} << 20;
constexpr size_t kLengthBytes = 8;  // of the header's length

bool whole_units(uint64_t bytes) { return bytes % plan::kAlignment == 0; }

struct Name {
  const char* name;
  DType dtype;
};
constexpr std::array<Name, 12> kNames = {{{"BOOL", DType::kBool},
                                          {"U8", DType::kUInt8},
                                          {"I8", DType::kInt8},
                                          {"I16", DType::kInt16},
                                          {"I32", DType::kInt32},
                                          {"I64", DType::kInt64},
                                          {"F16", DType::kFloat16},
                                          {"BF16", DType::kBFloat16},
                                          {"F32", DType::kFloat32},
                                          {"F64", DType::kFloat64},
                                          {"C64", DType::kComplex64},
                                          {"C128", DType::kComplex128}}};  // which other readers lack

// The header's entry for one tensor, checked.
struct Entry {
  std::string name;
  TensorSpec spec;
  uint64_t begin = 0, end = 0;  // in the data
};

[[noreturn]] void bad_tensor(const std::string& path, std::string_view name, const std::string& what) {
  fail(ErrorKind::kValue, "{}: tensor '{}': {}", path, name, what);
}

std::string shown(const json::value& value) {
  const std::string text = json::serialize(value);
  return text.size() > 40 ? text.substr(0, 37) + "..." : text;
}

Entry parse_entry(const std::string& path, std::string_view name, const json::value& value, uint64_t data_bytes) {
  const auto bad = [&](const std::string& what) { bad_tensor(path, name, what); };
  Entry entry;
  entry.name = std::string(name);
  const json::object* object = value.if_object();
  if (object == nullptr) bad("its entry is not an object; it must have dtype, shape and data_offsets");
  const json::value* dtype = object->if_contains("dtype");
  const json::value* shape = object->if_contains("shape");
  const json::value* offsets = object->if_contains("data_offsets");
  if (object->size() != 3 || dtype == nullptr || shape == nullptr || offsets == nullptr || !dtype->is_string() ||
      !shape->is_array() || !offsets->is_array() || offsets->as_array().size() != 2) {
    bad("its entry is malformed; it must have dtype, shape and two data_offsets");
  }
  const auto known =
      std::find_if(kNames.begin(), kNames.end(), [&](const Name& n) { return dtype->as_string() == n.name; });
  if (known == kNames.end()) bad(fmt::format("dtype '{}' is not supported", std::string(dtype->as_string())));
  TensorType type;
  type.dtype = known->dtype;
  const auto number = [&](const json::value& v) -> uint64_t {
    if (v.is_int64() && v.as_int64() >= 0) return static_cast<uint64_t>(v.as_int64());
    bad_tensor(path, name, fmt::format("a dimension or offset is {}; it must be a whole number of 63 bits", shown(v)));
  };
  if (shape->as_array().size() > kMaxRank) bad(fmt::format("rank {}; at most {}", shape->as_array().size(), kMaxRank));
  for (const json::value& dim : shape->as_array()) type.shape.push_back(static_cast<int64_t>(number(dim)));
  entry.begin = number(offsets->as_array()[0]);
  entry.end = number(offsets->as_array()[1]);
  uint64_t bytes = 0;
  try {
    bytes = checked_bytes(type.shape, dtype_size(type.dtype));
  } catch (const Error& error) {
    bad(error.what());
  }
  if (entry.begin > entry.end || entry.end > data_bytes || entry.end - entry.begin != bytes) {
    bad(fmt::format("data_offsets [{}, {}) of {} bytes of data; {} needs {} bytes", entry.begin, entry.end, data_bytes,
                    type.str(), bytes));
  }
  entry.spec = TensorSpec::contiguous(type);
  return entry;
}

constexpr const char* kMetadata = "__metadata__";

void check_metadata(const std::string& path, const json::value& value) {
  bool strings = value.is_object();
  if (strings) {
    for (const json::key_value_pair& pair : value.as_object()) strings &= pair.value().is_string();
  }
  if (strings) return;
  fail(ErrorKind::kValue, "{}: __metadata__: wrong type: {}; must be an object of strings", path, shown(value));
}

std::vector<Entry> parse_header(const std::string& path, const std::string& text, uint64_t data_bytes,
                                std::map<std::string, std::string>* metadata) {
  json::error_code error;
  const json::value header = json::parse(text, error);
  SLUICE_CHECK(!error && header.is_object(), "{}: the header is not a JSON object: {}", path,
               error ? error.message() : std::string("another value"));
  plan::refuse_repeated_keys(text, path);
  std::vector<Entry> entries;
  for (const json::key_value_pair& pair : header.as_object()) {
    if (pair.key() == kMetadata) {
      check_metadata(path, pair.value());
      if (metadata != nullptr)
        for (const json::key_value_pair& said : pair.value().as_object())
          metadata->emplace(std::string(said.key()), std::string(said.value().as_string()));
      continue;
    }
    entries.push_back(
        parse_entry(path, std::string_view(pair.key().data(), pair.key().size()), pair.value(), data_bytes));
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return std::tie(a.begin, a.end) < std::tie(b.begin, b.end); });
  uint64_t at = 0;
  for (const Entry& entry : entries) {
    SLUICE_CHECK(entry.begin == at, "{}: tensor '{}' begins at {}; the data before it ends at {}: no holes or overlaps",
                 path, entry.name, entry.begin, at);
    at = entry.end;
  }
  SLUICE_CHECK(at == data_bytes, "{}: {} bytes of data; the header accounts for {}", path, data_bytes, at);
  return entries;
}

}  // namespace

std::string write_safetensors(const std::string& path, const std::map<std::string, BundleTensor>& tensors) {
  using Named = std::pair<const std::string, BundleTensor>;
  std::vector<const Named*> order;
  for (const Named& named : tensors) order.push_back(&named);
  std::stable_partition(order.begin(), order.end(),
                        [](const Named* named) { return whole_units(named->second.spec.extent_bytes()); });
  json::object header;
  uint64_t at = 0;
  Fingerprint content;
  for (const Named* named : order) {
    const auto& [name, tensor] = *named;
    SLUICE_CHECK(is_contiguous(tensor.spec.shape, tensor.spec.strides), "{}: tensor '{}' is not contiguous", path,
                 name);
    const auto known =
        std::find_if(kNames.begin(), kNames.end(), [&](const Name& n) { return n.dtype == tensor.spec.dtype; });
    json::array shape;
    for (const int64_t dim : tensor.spec.shape) shape.push_back(dim);
    const uint64_t end = checked_add(at, tensor.spec.extent_bytes());
    header[name] = {{"dtype", known->name}, {"shape", shape}, {"data_offsets", {at, end}}};
    at = end;
    content.add(tensor.storage->data(), tensor.spec.extent_bytes());
  }
  content.add(json::serialize(header));
  header[kMetadata] = {{kDigestKey, content.str()}};
  std::string text = json::serialize(header);
  text.resize(align_up(kLengthBytes + text.size(), plan::kAlignment) - kLengthBytes, ' ');
  replace_file(path, [&](std::ofstream& file) {
    std::array<char, kLengthBytes> length{};
    for (size_t i = 0; i < kLengthBytes; ++i) length[i] = static_cast<char>(text.size() >> (8 * i));
    file.write(length.data(), length.size());
    file.write(text.data(), static_cast<std::streamsize>(text.size()));
    for (const Named* named : order) {
      const BundleTensor& tensor = named->second;
      file.write(static_cast<const char*>(tensor.storage->data()),
                 static_cast<std::streamsize>(tensor.spec.extent_bytes()));
      tensor.storage->check().throw_if_error();
    }
  });
  return content.str();
}

InPlace pages_of(const InputFile& file) {
  return [&file, mapped = std::shared_ptr<const MappedFile>()](uint64_t offset, uint64_t bytes) mutable {
    if (mapped == nullptr) mapped = std::make_shared<const MappedFile>(file);
    return std::make_shared<Storage>(mapped, offset, bytes);
  };
}

std::map<std::string, BundleTensor> read_safetensors(const std::string& path,
                                                     const std::shared_ptr<Allocator>& allocator, Links links,
                                                     Pages pages) {
  InputFile file(path, links);
  return read_safetensors(file, allocator, pages == Pages::kMap ? pages_of(file) : nullptr);
}

std::map<std::string, BundleTensor> read_safetensors(InputFile& file, const std::shared_ptr<Allocator>& allocator,
                                                     const InPlace& in_place,
                                                     std::map<std::string, std::string>* metadata) {
  const std::string& path = file.path();
  const uint64_t size = file.size();
  SLUICE_CHECK(size >= kLengthBytes, "{}: {} bytes; a safetensors file has at least {}", path, size, kLengthBytes);
  std::array<unsigned char, kLengthBytes> bytes{};
  file.read(bytes.data(), bytes.size());
  uint64_t length = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) length |= static_cast<uint64_t>(bytes[i]) << (8 * i);
  SLUICE_CHECK(length <= kMaxHeader && length <= size - kLengthBytes,
               "{}: a header of {} bytes in a file of {}; the file is truncated or not safetensors", path, length,
               size);
  std::string text(length, '\0');
  file.read(text.data(), length);
  const uint64_t data = kLengthBytes + length;  // where it begins
  std::map<std::string, BundleTensor> tensors;
  for (const Entry& entry : parse_header(path, text, size - data, metadata)) {
    const uint64_t at = data + entry.begin, count = entry.end - entry.begin;
    std::shared_ptr<Storage>& storage = tensors.emplace(entry.name, BundleTensor{entry.spec, {}}).first->second.storage;
    if (in_place && count > 0 && whole_units(at) && whole_units(count)) storage = in_place(at, count);
    if (storage != nullptr) continue;
    storage = std::make_shared<Storage>(allocator, align_up(count, plan::kAlignment));  // as variables are
    file.read_at(at, storage->data(), count);
  }
  return tensors;
}

}  // namespace sluice
