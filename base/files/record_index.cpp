#include "base/files/record_index.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

#include "base/error.h"
#include "base/files/crc32c.h"
#include "base/files/file.h"

namespace sluice {
namespace {

constexpr std::string_view kIndex = "sluice-records-index-1\n", kEnd = "sluice-records-end-1\n";
constexpr uint64_t kHead = 12, kAround = 16;     // bytes before a record's own; those before and behind together
constexpr uint64_t kRow = 3 * sizeof(uint64_t);  // of the index

uint32_t masked(const void* data, size_t bytes) {
  const uint32_t crc = crc32c({static_cast<const std::byte*>(data), bytes});
  return (crc >> 15 | crc << 17) + 0xA282EAD8;
}

template <class Word>
Word word_at(const char* bytes) {
  Word word;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}

// Does `text` begin with the mark, but for some bytes that were changed?
bool resembles(std::string_view text, std::string_view mark) {
  size_t equal = 0;
  for (size_t i = 0; i < std::min(text.size(), mark.size()); ++i) equal += text[i] == mark[i] ? 1 : 0;
  return 2 * equal > mark.size();
}

class Reader {
 public:
  explicit Reader(const std::string& path) : file_(path) {}

  std::vector<RecordPlace> places(bool lengths) {
    const std::optional<uint64_t> index = footer();
    if (index && !lengths) return by_index(*index);
    std::vector<RecordPlace> found = by_lengths(index.value_or(file_.size()));
    if (!index) check_no_index(found);
    return found;
  }

 private:
  // How many bytes the record at `at` has.
  uint64_t length_at(uint64_t at) {
    char head[kHead];
    const bool there = at <= file_.size() && file_.size() - at >= kHead;
    if (there) file_.read_at(at, head, kHead);
    SLUICE_CHECK(there && masked(head, 8) == word_at<uint32_t>(head + 8),
                 "{}: no record at byte {}: its length is broken; must be a file of records", file_.path(), at);
    const auto bytes = word_at<uint64_t>(head);
    SLUICE_CHECK(file_.size() - at >= kAround && bytes <= file_.size() - at - kAround,
                 "{}: the record at byte {} has {} bytes; the file ends before", file_.path(), at, bytes);
    return bytes;
  }

  std::string record_at(uint64_t at) {
    std::string data(length_at(at), '\0');
    uint32_t told = 0;
    file_.read_at(at + kHead, data.data(), data.size());
    file_.read_at(at + kHead + data.size(), &told, sizeof(told));
    SLUICE_CHECK(told == masked(data.data(), data.size()),
                 "{}: the record at byte {} is broken: its check sum is another one", file_.path(), at);
    return data;
  }

  // The index begins here, if there is one.
  std::optional<uint64_t> footer() {
    constexpr uint64_t bytes = kEnd.size() + sizeof(uint64_t) + kAround;
    if (file_.size() < bytes) return std::nullopt;
    const uint64_t at = file_.size() - bytes;
    std::string mark(kEnd.size(), '\0');
    file_.read_at(at + kHead, mark.data(), mark.size());
    if (mark != kEnd) return std::nullopt;
    const std::string data = record_at(at);
    SLUICE_CHECK(data.size() == kEnd.size() + sizeof(uint64_t),
                 "{}: the end at byte {} has {} bytes; must have {}; write the file again", file_.path(), at,
                 data.size(), kEnd.size() + sizeof(uint64_t));
    return word_at<uint64_t>(data.data() + kEnd.size());
  }

  std::vector<RecordPlace> by_index(uint64_t at) {
    const std::string data = record_at(at);
    const uint64_t bytes = data.size() - std::min<uint64_t>(data.size(), kIndex.size());
    SLUICE_CHECK(data.starts_with(kIndex) && bytes % kRow == 0,
                 "{}: the index at byte {} is none; write the file again", file_.path(), at);
    std::vector<RecordPlace> found(bytes / kRow);
    if (bytes > 0) std::memcpy(found.data(), data.data() + kIndex.size(), bytes);
    for (const RecordPlace& place : found) {
      const bool within = place.offset >= 0 && place.bytes >= 0 && static_cast<uint64_t>(place.offset) <= at &&
                          static_cast<uint64_t>(place.bytes) <= at - static_cast<uint64_t>(place.offset);
      SLUICE_CHECK(within, "{}: the index names records beyond the file; write the file again", file_.path());
    }
    return found;
  }

  // An index that nothing points to would count as samples, and the labels would be lost.
  void check_no_index(const std::vector<RecordPlace>& found) {
    for (size_t k = found.size() - std::min<size_t>(found.size(), 2); k < found.size(); ++k) {
      std::string begin(std::min<uint64_t>(static_cast<uint64_t>(found[k].bytes), kIndex.size()), '\0');
      file_.read_at(static_cast<uint64_t>(found[k].offset), begin.data(), begin.size());
      SLUICE_CHECK(!resembles(begin, kIndex) && !resembles(begin, kEnd),
                   "{}: the record at byte {} is of an index that is broken; write the file again", file_.path(),
                   found[k].offset - static_cast<int64_t>(kHead));
    }
  }

  std::vector<RecordPlace> by_lengths(uint64_t end) {
    std::vector<RecordPlace> found;
    uint64_t at = 0;
    while (at < end) {
      const uint64_t bytes = length_at(at);
      found.push_back({static_cast<int64_t>(at + kHead), static_cast<int64_t>(bytes), 0});
      at += bytes + kAround;
    }
    SLUICE_CHECK(at == end, "{}: the index is said to be at byte {}, within a record; write the file again",
                 file_.path(), end);
    return found;
  }

  InputFile file_;
};

}  // namespace

std::vector<RecordPlace> record_places(const std::string& path, bool lengths) { return Reader(path).places(lengths); }

}  // namespace sluice
