// decode_jpeg, decode_image: files are read, decoded, cut, resized, flipped and normalised, an image per thread at a
// time.
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <numeric>
#include <string>
#include <utility>

#include "base/core_offer.h"
#include "base/files/data_roots.h"
#include "base/files/image_call.h"
#include "base/files/packed_files.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/images/crops.h"
#include "kernels/cpu/images/encoded_file.h"
#include "kernels/cpu/images/image_reader.h"
#include "kernels/cpu/images/resize.h"
#include "kernels/cpu/random/philox.h"
#include "kernels/cpu/strides/strided.h"
#include "kernels/cpu/support/support.h"
#include "kernels/kernel.h"

namespace sluice::cpu {
namespace {

class DecodeImages final : public PreparedKernel {
 public:
  DecodeImages(const plan::KernelQuery& q, const PrepareContext& context, ImageFormats formats)
      : op_(q.op),
        formats_(formats),
        call_(formats == ImageFormats::kJpeg ? ImageCall() : ImageCall(q.attrs)),
        roots_(q.attrs),
        count_(q.outputs[0].shape[0]),
        channels_(static_cast<int>(q.outputs[0].shape[1])),
        height_(q.outputs[0].shape[2]),
        width_(q.outputs[0].shape[3]),
        bytes_(static_cast<size_t>(q.inputs[0].shape[0])),
        has_boxes_(has_operand(q.inputs, 1)),
        has_flip_(has_operand(q.inputs, 2)),
        has_keys_(has_operand(q.inputs, 3)),
        doubles_(has_boxes_ && q.inputs[1].dtype == DType::kFloat64),
        image_bytes_(static_cast<int64_t>(dtype_size(q.outputs[0].dtype)) * channels_ * height_ * width_),
        limits_{call_.pixels, call_.bytes, call_.scans, call_.decoder_bytes,
                call_.meter == 0 ? nullptr : &image_use(call_.meter)},
        sink_(sink_of(q.outputs[0].dtype)),
        threads_(context.threads),
        places_(channels_, height_, width_) {
    file_at_ = layout_.add(EncodedFile::kBufferBytes);
    resize_at_ = layout_.add(places_.bytes());
    WorkspaceLayout all;
    order_at_ = all.add(static_cast<uint64_t>(count_) * sizeof(int64_t));
    sizes_at_ = all.add(static_cast<uint64_t>(count_) * sizeof(int64_t));
    threads_at_ = all.add(layout_.bytes() * static_cast<uint64_t>(threads_));
    workspace_bytes_ = all.bytes();
  }

  void run(const KernelArgs& args) const override {
    auto* const order = reinterpret_cast<int64_t*>(at_offset(args.workspace, order_at_));
    largest_first(args, order, reinterpret_cast<int64_t*>(at_offset(args.workspace, sizes_at_)));
    auto* const status = call_.tells() ? static_cast<uint8_t*>(args.outputs[1]) : nullptr;
    Status first;
    int64_t failed = count_;
    std::mutex mutex;
    in_turns(order, [&](int64_t i, int worker) {
      try {
        const ImageStatus got = decode(args, i, worker);
        if (status != nullptr) status[i] = static_cast<uint8_t>(got);
      } catch (const Error& error) {
        std::memset(image(args, i), 0, static_cast<size_t>(image_bytes_));
        if (status != nullptr)
          status[i] =
              static_cast<uint8_t>(error.kind() == ErrorKind::kIo ? ImageStatus::kUnreadable : ImageStatus::kBroken);
        const std::lock_guard lock(mutex);
        if (i < failed) first = Status::from_current_exception();
        failed = std::min(failed, i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        first = Status::from_current_exception();
        failed = -1;  // nothing about the file
      }
    });
    if (failed < 0 || call_.policy == ImagePolicy::kRaise) first.throw_if_error();
    if (call_.tells()) settle(args, first);
  }

 private:
  // make(i, worker) for all images, in their order. Where others wait for cores, they have a turn between images.
  template <class Make>
  void in_turns(int64_t* order, const Make& make) const {
    CoreOffer* const offer = CoreOffer::here();
    for (int64_t left = count_; left > 0;) {
      std::atomic<bool> over{false};
      const int64_t begin_ns = now_ns();
      parallel_jobs(threads_, left, [&](int64_t job, int worker) {
        if (job >= threads_ && offer != nullptr) {  // each thread makes one in a turn, at least
          if (!over.load(std::memory_order_relaxed) && offer->ends_turn(begin_ns)) over = true;
          if (over.load(std::memory_order_relaxed)) return;
        }
        make(std::exchange(order[job], -1), worker);
      });
      left = std::remove(order, order + left, int64_t{-1}) - order;
      if (left > 0) offer->give_way();
    }
  }

  // Threads end at about the same time where the last images are small ones.
  void largest_first(const KernelArgs& args, int64_t* order, int64_t* sizes) const {
    std::iota(order, order + count_, 0);
    for (int64_t i = 0; i < count_; ++i) {
      const PackedFile file = file_of(args, i);  // throws where the caller has packed it badly
      if (threads_ == 1) continue;
      sizes[i] = std::max(static_cast<int64_t>(file.content.size()), file.length);
      struct stat facts;
      if (sizes[i] == 0 && file.there() && ::stat(roots_.moved(file.name).c_str(), &facts) == 0)
        sizes[i] = facts.st_size;
    }
    if (threads_ == 1) return;
    std::sort(order, order + count_,
              [&](int64_t a, int64_t b) { return sizes[a] != sizes[b] ? sizes[a] > sizes[b] : a < b; });
  }

  PackedFile file_of(const KernelArgs& args, int64_t i) const {
    return packed_file({static_cast<const std::byte*>(args.inputs[0]), bytes_}, i);
  }
  std::byte* image(const KernelArgs& args, int64_t i) const {
    return static_cast<std::byte*>(args.outputs[0]) + i * image_bytes_;
  }

  // Tells what an image has taken when it is done, and when it has failed.
  struct Told {
    Told(const ImageReader& from, ImageUse* to) : reader(from), use(to) {}
    ~Told() {
      if (use == nullptr) return;
      use->images.fetch_add(1, std::memory_order_relaxed);
      ImageUse::raise(use->decoder_bytes, reader.decoder_bytes());
    }
    const ImageReader& reader;
    ImageUse* const use;
  };

  ImageStatus decode(const KernelArgs& args, int64_t i, int worker) const {
    PackedFile file = file_of(args, i);
    const std::string name = roots_.moved(file.name);
    file.name = name;
    if (!file.there()) {
      std::memset(image(args, i), 0, static_cast<size_t>(image_bytes_));
      return ImageStatus::kAbsent;
    }
    std::byte* const mine = at_offset(args.workspace, threads_at_ + static_cast<uint64_t>(worker) * layout_.bytes());
    try {
      EncodedFile encoded(file, at_offset(mine, file_at_), limits_.bytes, limits_.use);
      const std::unique_ptr<ImageReader> reader = open_image(encoded, formats_, limits_);
      const Told told(*reader, limits_.use);
      std::array<uint32_t, kCropWords + 1> words{};
      if (has_keys_)
        PhiloxStream(static_cast<const int64_t*>(args.inputs[3]) + 2 * i, call_.salt)
            .words_at(0, static_cast<int64_t>(words.size()), words.data());
      const Box box = box_of(args, i, *reader, std::span(words).first<kCropWords>());
      bool flip = has_flip_ && static_cast<const bool*>(args.inputs[2])[i];
      if (has_keys_ && words[kCropWords] < chosen_below(call_.flip)) flip = !flip;
      reader->start(channels_, box);
      Resizer(places_, at_offset(mine, resize_at_), channels_, height_, width_)
          .run(*reader, box, flip, sink_, image(args, i));
      return ImageStatus::kGood;
    } catch (const Error& error) {
      fail(error.kind(), "{}: image {}{}: {}", op_, i, file.name.empty() ? "" : fmt::format(" ('{}')", file.name),
           error.what());
    }
  }

  Box box_of(const KernelArgs& args, int64_t i, const ImageReader& reader,
             std::span<const uint32_t, kCropWords> words) const {
    const int64_t height = reader.height(), width = reader.width();
    if (call_.crop == ImageCrop::kRandom) return random_resized_box(height, width, call_.crop_numbers, words);
    if (call_.crop == ImageCrop::kCentral) return central_box(height, width, call_.crop_numbers[0], height_, width_);
    std::array<double, 4> box{0, 0, 1, 1};
    for (int64_t k = 0; has_boxes_ && k < 4; ++k)
      box[static_cast<size_t>(k)] = doubles_
                                        ? static_cast<const double*>(args.inputs[1])[4 * i + k]
                                        : static_cast<double>(static_cast<const float*>(args.inputs[1])[4 * i + k]);
    return {part_of(height, box[0], box[2]), part_of(width, box[1], box[3])};
  }

  // Says for each row which sample stands in it, once broken ones are replaced or left out.
  void settle(const KernelArgs& args, const Status& first) const {
    const auto* const status = static_cast<const uint8_t*>(args.outputs[1]);
    auto* const source = static_cast<int64_t*>(args.outputs[2]);
    const auto is = [&](int64_t i, ImageStatus what) { return status[i] == static_cast<uint8_t>(what); };
    for (int64_t i = 0; i < count_; ++i) source[i] = is(i, ImageStatus::kAbsent) ? -1 : i;
    if (first.ok() || call_.policy == ImagePolicy::kMark) return;
    if (call_.policy == ImagePolicy::kSkip) {
      int64_t kept = 0;
      for (int64_t i = 0; i < count_; ++i) {
        if (!is(i, ImageStatus::kGood)) continue;
        if (kept != i) std::memcpy(image(args, kept), image(args, i), static_cast<size_t>(image_bytes_));
        source[kept++] = i;
      }
      for (int64_t i = kept; i < count_; ++i) {
        std::memset(image(args, i), 0, static_cast<size_t>(image_bytes_));
        source[i] = -1;
      }
      return;
    }
    for (int64_t i = 0; i < count_; ++i) {
      if (is(i, ImageStatus::kGood) || is(i, ImageStatus::kAbsent)) continue;
      int64_t other = -1;
      for (int64_t k = 1; k < count_ && other < 0; ++k)
        if (is((i + k) % count_, ImageStatus::kGood)) other = (i + k) % count_;
      if (other < 0) first.throw_if_error();  // there is none to take instead
      std::memcpy(image(args, i), image(args, other), static_cast<size_t>(image_bytes_));
      source[i] = other;
    }
  }

  PixelSink sink_of(DType dtype) const {
    PixelSink sink{.dtype = dtype};
    for (size_t c = 0; c < static_cast<size_t>(channels_) && !call_.mean.empty(); ++c) {
      sink.scale[c] = static_cast<float>(1 / (255 * call_.std[c]));
      sink.shift[c] = static_cast<float>(-call_.mean[c] / call_.std[c]);
    }
    return sink;
  }

  const std::string op_;
  const ImageFormats formats_;
  const ImageCall call_;
  const DataRoots roots_;
  const int64_t count_;
  const int channels_;
  const int64_t height_, width_;
  const size_t bytes_;
  const bool has_boxes_, has_flip_, has_keys_, doubles_;
  const int64_t image_bytes_;
  const ImageLimits limits_;
  const PixelSink sink_;
  const int threads_;
  const ResizeWorkspace places_;
  WorkspaceLayout layout_;  // of a thread
  uint64_t file_at_ = 0, resize_at_ = 0, order_at_ = 0, sizes_at_ = 0, threads_at_ = 0;
};

PrepareFn prepare(ImageFormats formats) {
  return [formats](const plan::KernelQuery& q, const PrepareContext& context) {
    return std::make_unique<DecodeImages>(q, context, formats);
  };
}

}  // namespace

void add_image_kernels(KernelTable& table) {
  table.add(DeviceKind::kCpu, {.op = "decode_jpeg", .prepare = prepare(ImageFormats::kJpeg)});
  table.add(DeviceKind::kCpu, {.op = "decode_image", .prepare = prepare(ImageFormats::kAny)});
}

}  // namespace sluice::cpu
