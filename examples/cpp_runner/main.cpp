// Classifies images with a saved bundle, without Python, from several threads.
//
//   cpp_runner BUNDLE IMAGES OUT [THREADS]
//
// IMAGES: raw float32, any number of images of the bundle's input shape (its first dimension is the batch), or a
// .safetensors file with one such tensor. OUT: raw float32 logits, one row per image; OUT.classes: one class per line.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sluice/sluice.hpp>
#include <thread>

using namespace sluice::api;

static std::vector<float> read_images(const std::string& path) {
  if (path.ends_with(".safetensors")) {
    const Tensor images = load_tensors(path).at(0).tensor;
    return {images.data<float>(), images.data<float>() + images.size()};
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error(ErrorKind::kIo, path + ": cannot be read");
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

static int64_t elements(const Port& port) {
  int64_t n = 1;
  for (const int64_t dim : port.shape) n *= dim;
  return n;
}

int main(int argc, char** argv) try {
  if (argc < 4) return std::fprintf(stderr, "usage: cpp_runner BUNDLE IMAGES OUT [THREADS]\n"), 2;
  Engine engine;
  Session session = Session::load(engine, argv[1]);
  for (const Port& port : session.inputs()) std::printf("input  %s\n", port.str().c_str());
  for (const Port& port : session.outputs()) std::printf("output %s\n", port.str().c_str());
  const Port in = session.inputs().at(0);
  const int64_t batch = in.shape.at(0), image = elements(in) / batch,
                classes = elements(session.outputs().at(0)) / batch;
  const std::vector<float> images = read_images(argv[2]);
  const int64_t count = static_cast<int64_t>(images.size()) / image, batches = (count + batch - 1) / batch;
  std::vector<float> logits(count * classes);

  std::atomic<int64_t> next{0};
  std::atomic<bool> failed{false};
  const auto work = [&] {
    for (int64_t b; (b = next++) < batches && !failed;) {
      const int64_t first = b * batch, n = std::min(batch, count - first);
      Tensor input(in.dtype, in.shape);  // zeros beyond the last image
      std::copy_n(images.data() + first * image, n * image, input.data<float>());
      try {
        const Tensor output = session.run({input}).at(0);
        std::copy_n(output.data<float>(), n * classes, logits.data() + first * classes);
      } catch (const Error& error) {
        std::fprintf(stderr, "error: %s\n", error.what());
        failed = true;
      }
    }
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < (argc > 4 ? std::atoi(argv[4]) : 4); ++t) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  if (failed) return 1;

  std::ofstream(argv[3], std::ios::binary)
      .write(reinterpret_cast<const char*>(logits.data()), logits.size() * sizeof(float));
  std::ofstream classes_file(std::string(argv[3]) + ".classes");
  for (int64_t i = 0; i < count; ++i) {
    const float* row = logits.data() + i * classes;
    classes_file << std::max_element(row, row + classes) - row << '\n';
  }
  std::printf("classified %ld images in %ld batches on %zu threads; logits in %s\n", static_cast<long>(count),
              static_cast<long>(batches), threads.size(), argv[3]);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 1;
}
