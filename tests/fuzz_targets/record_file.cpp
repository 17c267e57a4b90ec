#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "base/files/crc32c.h"
#include "base/files/record_index.h"
#include "fuzz_targets/bytes.h"
#include "fuzz_targets/scratch.h"
#include "fuzz_targets/targets.h"

namespace sluice::fuzz {
namespace {

std::vector<RecordPlace> places(const std::string& path, bool lengths) {
  try {
    return record_places(path, lengths);
  } catch (const Error& error) {
    expect(error.kind() == ErrorKind::kValue && std::string_view(error.what()).starts_with(path + ": "),
           "record_file: the error names no file", error.what());
    return {};
  }
}

template <class Word>
std::string_view bytes_of(const Word& word) {
  return {reinterpret_cast<const char*>(&word), sizeof(word)};
}

std::string sum_of(std::string_view bytes) {
  const uint32_t crc = crc32c(std::as_bytes(std::span(bytes)));
  return std::string(bytes_of((crc >> 15 | crc << 17) + 0xA282EAD8));
}

std::string framed(std::string_view bytes) {
  const uint64_t length = bytes.size();
  return std::string(bytes_of(length)) + sum_of(bytes_of(length)) + std::string(bytes) + sum_of(bytes);
}

// A file whose check sums are right, which chance does not find: records, an index of any numbers, and where that is.
std::string with_sums(Bytes& from) {
  std::string file;
  for (int records = from.below(4); records > 0; --records) file += framed(from.text(from.byte()));
  const uint64_t end = from.flag() ? file.size() : static_cast<uint64_t>(from.integer());
  std::string index = "sluice-records-index-1\n";
  for (int numbers = 3 * from.below(4) + from.below(2); numbers > 0; --numbers) index += bytes_of(from.integer());
  file += framed(index) + framed("sluice-records-end-1\n" + std::string(bytes_of(end)));
  return file + from.rest();
}

}  // namespace

// The first byte says whether the rest is a file, or what a file is made of.
int record_file(const uint8_t* data, size_t length) {
  Bytes bytes(data, length);
  const std::string content = bytes.flag() ? with_sums(bytes) : bytes.rest();
  const size_t size = content.size();
  const std::string path = scratch_file("in.rec", content);
  for (const bool lengths : {false, true}) {
    const std::vector<RecordPlace> found = places(path, lengths);
    for (const RecordPlace& place : found) {
      expect(place.offset >= 0 && place.bytes >= 0, "record_file: a negative place");
      const auto offset = static_cast<uint64_t>(place.offset), bytes = static_cast<uint64_t>(place.bytes);
      expect(offset <= size && bytes <= size - offset, "record_file: a record ends behind the file");
    }
    expect(!lengths || std::is_sorted(found.begin(), found.end(),
                                      [](const auto& a, const auto& b) { return a.offset < b.offset; }),
           "record_file: records lie in each other");
  }
  return 0;
}

}  // namespace sluice::fuzz
