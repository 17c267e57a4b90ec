#include "kernels/cpu/images/encoded_file.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace sluice::cpu {

EncodedFile::EncodedFile(const PackedFile& file, std::byte* buffer, int64_t most, ImageUse* use)
    : buffer_(buffer), size_(file.content.size()), here_(file.content) {
  if (file.content.empty()) {
    file_.emplace(std::string(file.name));
    size_ = file_->size();
    if (file.offset >= 0) {
      begin_ = static_cast<uint64_t>(file.offset);
      const auto length = static_cast<uint64_t>(file.length);
      SLUICE_CHECK_KIND(kIo, begin_ <= size_ && length <= size_ - begin_,
                        "it is at {}, {} bytes, of a file of {}; must lie in it", begin_, length, size_);
      size_ = length;
    }
  }
  if (use != nullptr) ImageUse::raise(use->file_bytes, static_cast<int64_t>(size_));
  SLUICE_CHECK(size_ <= static_cast<uint64_t>(most), "it has {} bytes; must be {} at most", size_, most);
}

std::span<const std::byte> EncodedFile::next() {
  if (here_.empty() && file_ && at_ < size_) first(std::min<uint64_t>(kBufferBytes, size_ - at_));
  at_ += here_.size();
  return std::exchange(here_, {});
}

std::span<const std::byte> EncodedFile::first(size_t n) {
  if (here_.empty() && file_) {
    const auto bytes = static_cast<size_t>(std::min<uint64_t>(kBufferBytes, size_ - at_));
    file_->read_at(begin_ + at_, buffer_, bytes);
    here_ = {buffer_, bytes};
  }
  return here_.first(std::min(n, here_.size()));
}

}  // namespace sluice::cpu
