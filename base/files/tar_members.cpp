#include "base/files/tar_members.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/files/file.h"

namespace sluice {
namespace {

constexpr uint64_t kBlock = 512, kMostAbout = 1 << 20;  // bytes that a header may say about the next file

// A field of a header: where it begins, and its bytes.
struct Field {
  size_t at, bytes;
};
constexpr Field kName{0, 100}, kSize{124, 12}, kChecksum{148, 8}, kPrefix{345, 155}, kMagic{257, 6};
constexpr size_t kKind = 156;

using Header = std::array<char, kBlock>;

std::string_view text_of(const Header& header, Field field) {
  const std::string_view all(header.data() + field.at, field.bytes);
  return all.substr(0, all.find('\0'));
}

// The number of a field in octal digits, or in binary ones behind a byte that says so; none where it is neither.
std::optional<uint64_t> number_of(const Header& header, Field field) {
  const auto first = static_cast<uint8_t>(header[field.at]);
  uint64_t value = 0;
  if (first == 0x80) {
    for (size_t i = 1; i < field.bytes; ++i) {
      if (value >> 56 != 0) return std::nullopt;
      value = value << 8 | static_cast<uint8_t>(header[field.at + i]);
    }
    return value;
  }
  std::string_view text = text_of(header, field);
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  if (text.empty()) return std::nullopt;
  for (const char c : text) {  // at most 12 digits, which do not overflow
    if (c < '0' || c > '7') return std::nullopt;
    value = value * 8 + static_cast<uint64_t>(c - '0');
  }
  return value;
}

// Some programs have added up signed bytes.
bool has_its_checksum(const Header& header) {
  int64_t plain = 0, with_signs = 0;
  for (size_t i = 0; i < kBlock; ++i) {
    const bool own = i >= kChecksum.at && i < kChecksum.at + kChecksum.bytes;  // counts as spaces
    const char c = own ? ' ' : header[i];
    plain += static_cast<uint8_t>(c);
    with_signs += static_cast<int8_t>(c);
  }
  const std::optional<uint64_t> told = number_of(header, kChecksum);
  return told && (static_cast<int64_t>(*told) == plain || static_cast<int64_t>(*told) == with_signs);
}

// Headers before a file say this about it.
struct About {
  std::optional<std::string> name;
  std::optional<uint64_t> bytes;
};

class Reader {
 public:
  explicit Reader(const std::string& path) : file_(path) {}

  std::vector<TarMember> members() {
    std::vector<TarMember> found;
    About about;
    while (next_header()) {
      const uint64_t at = at_ - kBlock;
      const char kind = header_[kKind];
      std::optional<uint64_t> bytes = number_of(header_, kSize);
      check(bytes.has_value(), at, "its size is no number");
      if (kind == 'L' || kind == 'K' || kind == 'x' || kind == 'X' || kind == 'g') {
        read_about(kind, *bytes, at, about);
        continue;
      }
      if (about.bytes) bytes = about.bytes;
      const bool has_no_content = kind >= '1' && kind <= '6';
      check(kind != 'S', at, "a sparse file is in it; must hold whole files");
      if (!has_no_content) {
        check(*bytes <= file_.size() - at_, at, "the file that begins here ends behind the archive");
        const bool regular = kind == '0' || kind == '\0' || kind == '7';
        std::string name = about.name ? *std::move(about.name) : own_name();
        // The oldest format says by its name that a file is a folder.
        if (regular && !name.ends_with('/')) found.push_back({std::move(name), at_, *bytes});
        skip(*bytes, at);
      }
      about = {};
    }
    check(!about.name && !about.bytes, at_, "a header is about a file that does not come");
    return found;
  }

 private:
  // False at the mark of the end.
  bool next_header() {
    check(file_.size() - at_ >= kBlock, at_, "the archive ends without its mark of the end; it may have been cut");
    file_.read_at(at_, header_.data(), kBlock);
    if (std::all_of(header_.begin(), header_.end(), [](char c) { return c == 0; })) return false;
    check(has_its_checksum(header_), at_, "no header of tar, or one that is damaged");
    at_ += kBlock;
    return true;
  }

  void skip(uint64_t bytes, uint64_t at) {
    const uint64_t padded = bytes + (kBlock - bytes % kBlock) % kBlock;
    check(padded <= file_.size() - at_, at, "the file that begins here ends behind the archive");
    at_ += padded;
  }

  std::string own_name() const {
    std::string name(text_of(header_, kName));
    const std::string_view magic(header_.data() + kMagic.at, kMagic.bytes), prefix = text_of(header_, kPrefix);
    // In GNU's format the field holds times.
    return magic == std::string_view("ustar\0", 6) && !prefix.empty() ? std::string(prefix) + "/" + name : name;
  }

  void read_about(char kind, uint64_t bytes, uint64_t at, About& about) {
    check(bytes <= kMostAbout && bytes <= file_.size() - at_, at, "it says too much about the next file");
    std::string text(bytes, '\0');
    file_.read_at(at_, text.data(), bytes);
    skip(bytes, at);
    if (kind == 'L') about.name = text.substr(0, text.find('\0'));
    if (kind == 'x' || kind == 'X') read_records(text, at, about);
    if (kind == 'g') {
      About all;
      read_records(text, at, all);
      check(!all.name && !all.bytes, at, "it says one name or size for all files");
    }
  }

  // "<length> <key>=<value>\n", again and again; the length counts itself.
  void read_records(std::string_view text, uint64_t at, About& about) {
    while (!text.empty()) {
      uint64_t length = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), length);
      const auto digits = static_cast<size_t>(end - text.data());
      check(error == std::errc() && length > digits + 1 && length <= text.size() && text[digits] == ' ' &&
                text[length - 1] == '\n',
            at, "what it says about the next file is broken");
      const std::string_view record = text.substr(digits + 1, length - digits - 2);
      text.remove_prefix(length);
      const size_t equals = record.find('=');
      check(equals != std::string_view::npos, at, "what it says about the next file is broken");
      const std::string_view key = record.substr(0, equals), value = record.substr(equals + 1);
      check(!key.starts_with("GNU.sparse"), at, "a sparse file is in it; must hold whole files");
      if (key == "path") about.name = value;
      if (key != "size") continue;
      uint64_t bytes = 0;
      const auto [last, wrong] = std::from_chars(value.data(), value.data() + value.size(), bytes);
      check(wrong == std::errc() && last == value.data() + value.size(), at, "its size is no number");
      about.bytes = bytes;
    }
  }

  void check(bool holds, uint64_t at, std::string_view what) const {
    SLUICE_CHECK(holds, "{}: byte {}: {}", file_.path(), at, what);
  }

  InputFile file_;
  uint64_t at_ = 0;
  Header header_{};
};

}  // namespace

std::vector<TarMember> tar_members(const std::string& path) { return Reader(path).members(); }

}  // namespace sluice
