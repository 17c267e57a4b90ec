// A batch of images is a long kernel: where others wait for cores, it gives them back between images.
#include "base/core_offer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "kernels/cpu/families.h"
#include "kernels/kernel.h"

namespace sluice {
namespace {

constexpr int64_t kImages = 8, kHeight = 4, kWidth = 5;

class Wanted final : public CoreOffer {
 public:
  explicit Wanted(int64_t from = 0, int64_t turn_ns = 0) : CoreOffer(turn_ns), from_(from) {}
  bool wanted() const override { return from_ == 0 || asked_++ >= from_; }
  int given = 0;

 private:
  int64_t give() override {
    ++given;
    return 7;
  }
  const int64_t from_;
  mutable int64_t asked_ = 0;
};

// Files that are not there, so black images. Memory that no image was written to is not black.
bool all_black(int threads) {
  KernelTable table;
  cpu::add_image_kernels(table);
  const plan::KernelQuery query{
      .op = "decode_jpeg",
      .attrs = {},
      .inputs = {TensorSpec::contiguous({DType::kUInt8, Shape{32 * kImages}})},
      .outputs = {TensorSpec::contiguous({DType::kUInt8, Shape{kImages, 3, kHeight, kWidth}})},
      .device = {},
      .cores = threads};
  const auto kernel = table.get("decode_jpeg", DeviceKind::kCpu).prepare(query, {.threads = threads});
  const std::vector<std::byte> files(32 * kImages);
  std::vector<unsigned char> images(kImages * 3 * kHeight * kWidth, 0x7e);
  std::vector<std::byte> workspace(kernel->workspace_bytes() + 64);
  void* aligned = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(workspace.data()) + 63) & ~uintptr_t{63});
  const void* inputs[] = {files.data(), nullptr, nullptr};
  void* outputs[] = {images.data()};
  kernel->run({.inputs = inputs, .outputs = outputs, .workspace = aligned});
  return std::all_of(images.begin(), images.end(), [](unsigned char value) { return value == 0; });
}

TEST(CoreOffer, ImagesGiveWayBetweenThem) {
  Wanted offer;
  const CoreOffer::Scope scope(offer);
  EXPECT_TRUE(all_black(1));
  EXPECT_EQ(offer.given, kImages - 1);
  EXPECT_EQ(CoreOffer::take_waited_ns(), 7 * (kImages - 1));
  EXPECT_EQ(CoreOffer::take_waited_ns(), 0);
  offer.given = 0;
  EXPECT_TRUE(all_black(3));  // each of three threads makes one in a turn
  EXPECT_EQ(offer.given, 2);
  CoreOffer::take_waited_ns();
}

TEST(CoreOffer, ATurnIsWorthWhatItTakesToHandCoresOver) {
  Wanted offer(0, int64_t{3600} * 1'000'000'000);
  const CoreOffer::Scope scope(offer);
  EXPECT_TRUE(all_black(1));
  EXPECT_EQ(offer.given, 0);
}

TEST(CoreOffer, ImagesGoOnWhereNobodyWaits) {
  Wanted late(5);  // it is asked before the second image, the third and so on
  {
    const CoreOffer::Scope scope(late);
    EXPECT_TRUE(all_black(1));
  }
  EXPECT_EQ(late.given, 2);  // before the seventh image, which begins a turn, and before the last
  EXPECT_EQ(CoreOffer::here(), nullptr);
  EXPECT_TRUE(all_black(1));
  CoreOffer::take_waited_ns();
}

}  // namespace
}  // namespace sluice
