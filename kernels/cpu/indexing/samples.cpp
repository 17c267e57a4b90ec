// sample_order, pack_files: which samples come next, and the names of the files they lie in.
#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"
#include "base/files/packed_files.h"
#include "base/files/sample_order.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/support/support.h"
#include "kernels/kernel.h"

namespace sluice::cpu {
namespace {

constexpr uint64_t kKeys = 0x5EED;  // apart from the order, whose hash has the epoch alone

class SampleOrder final : public PreparedKernel {
 public:
  explicit SampleOrder(const plan::KernelQuery& q)
      : size_(number(q, "size")),
        count_(number(q, "count")),
        length_(number(q, "length")),
        whole_(number(q, "whole")),
        skipped_(number(q, "skipped")),
        rank_(number(q, "rank")),
        world_(number(q, "world")),
        seed_(static_cast<uint64_t>(number(q, "seed"))),
        shuffled_(get_attr<bool>(q.attrs, "shuffled")),
        end_(number(q, "end")) {}

  void run(const KernelArgs& args) const override {
    const int64_t place = *static_cast<const int64_t*>(args.inputs[0]);
    SLUICE_CHECK(place >= 0, "sample_order: place: {}; must not be negative", place);
    auto* const ids = static_cast<int64_t*>(args.outputs[0]);
    auto* const keys = static_cast<int64_t*>(args.outputs[1]);
    const int64_t there = end_ < 0 ? size_ : std::clamp<int64_t>(end_ - place, 0, size_);
    for (int64_t i = 0; i < there;) {
      const int64_t epoch = (place + i) / length_, first = (place + i) % length_;
      const int64_t some = std::min(length_ - first, there - i);
      fill_epoch(static_cast<uint64_t>(epoch), first, {ids + i, static_cast<size_t>(some)}, keys + 2 * i);
      i += some;
    }
    std::fill(ids + there, ids + size_, -1);
    std::fill(keys + 2 * there, keys + 2 * size_, 0);
  }

 private:
  static int64_t number(const plan::KernelQuery& q, const char* name) { return get_attr<int64_t>(q.attrs, name); }

  void fill_epoch(uint64_t epoch, int64_t first, std::span<int64_t> ids, int64_t* keys) const {
    const Permutation order(static_cast<uint64_t>(count_), mixed(std::array{seed_, epoch}));
    const auto key = static_cast<int64_t>(mixed(std::array{seed_, epoch, kKeys}));
    for (size_t k = 0; k < ids.size(); ++k) {
      const int64_t at = ((first + static_cast<int64_t>(k)) * world_ + rank_) % whole_ + skipped_;
      ids[k] = shuffled_ ? static_cast<int64_t>(order(static_cast<uint64_t>(at))) : at;
      keys[2 * k] = key;
      keys[2 * k + 1] = ids[k];
    }
  }

  const int64_t size_, count_, length_, whole_, skipped_, rank_, world_;
  const uint64_t seed_;
  const bool shuffled_;
  const int64_t end_;
};

class PackFiles final : public PreparedKernel {
 public:
  explicit PackFiles(const plan::KernelQuery& q)
      : bytes_(q.inputs[0].shape[0]),
        known_(q.inputs[1].shape[0]),
        count_(q.inputs[2].shape[0]),
        longest_(get_attr<int64_t>(q.attrs, "longest")),
        has_places_(has_operand(q.inputs, 3)) {}

  void run(const KernelArgs& args) const override {
    const auto* const names = static_cast<const std::byte*>(args.inputs[0]);
    const auto* const ends = static_cast<const int64_t*>(args.inputs[1]);
    const auto* const files = static_cast<const int64_t*>(args.inputs[2]);
    auto* const out = static_cast<std::byte*>(args.outputs[0]);
    std::memset(out, 0, static_cast<size_t>(count_ * (PackedFile::kHeadBytes + longest_)));
    int64_t at = count_ * PackedFile::kHeadBytes;
    for (int64_t i = 0; i < count_; ++i) {
      const int64_t file = files[i];
      if (file == -1) continue;
      SLUICE_CHECK_KIND(kIndex, file >= 0 && file < known_, "pack_files: files: {}; must be one of {}, or -1", file,
                        known_);
      const int64_t begin = file == 0 ? 0 : ends[file - 1], length = ends[file] - begin;
      SLUICE_CHECK_KIND(kIndex, begin >= 0 && length >= 0 && length <= longest_ && ends[file] <= bytes_,
                        "pack_files: name {} lies from {} to {} of {} bytes; must have {} at most, inside of them",
                        file, begin, ends[file], bytes_, longest_);
      std::array<int64_t, 4> head{at, length, 0, 0};
      if (has_places_) std::memcpy(&head[2], static_cast<const int64_t*>(args.inputs[3]) + 2 * i, 2 * sizeof(int64_t));
      std::memcpy(out + i * PackedFile::kHeadBytes, head.data(), sizeof(head));
      std::memcpy(out + at, names + begin, static_cast<size_t>(length));
      at += length;
    }
  }

 private:
  const int64_t bytes_, known_, count_, longest_;
  const bool has_places_;
};

}  // namespace

void add_sample_kernels(KernelTable& table) {
  table.add(DeviceKind::kCpu, {.op = "sample_order", .prepare = [](const plan::KernelQuery& q, const PrepareContext&) {
                                 return std::make_unique<SampleOrder>(q);
                               }});
  table.add(DeviceKind::kCpu, {.op = "pack_files", .prepare = [](const plan::KernelQuery& q, const PrepareContext&) {
                                 return std::make_unique<PackFiles>(q);
                               }});
}

}  // namespace sluice::cpu
