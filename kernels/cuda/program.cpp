#include "kernels/cuda/program.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/files/file.h"
#include "base/files/file_cache.h"
#include "base/log.h"
#include "kernels/cuda/nvrtc.h"

namespace sluice::cuda {
namespace {

namespace fs = std::filesystem;

uint64_t fnv(const std::string& text, uint64_t hash = 14695981039346656037ull) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  return hash;
}

// Everything the image depends on, and its size.
std::string key_of(const std::string& source, const std::string& arch, bool contract) {
  return fmt::format("sluice program 2\n{} {}\nNVRTC {}\n{}\n{}", arch, contract, nvrtc().version(), source.size(),
                     source);
}

}  // namespace

std::shared_ptr<const Program> ProgramCache::get(const std::string& entry, const std::string& source,
                                                 const std::string& arch, bool contract) {
  const std::string key = key_of(source, arch, contract);
  const std::string path =
      directory_.empty() ? std::string() : (fs::path(directory_) / fmt::format("{}-{:016x}", entry, fnv(key))).string();
  std::lock_guard lock(mutex_);
  std::string image = path.empty() ? std::string() : read(path, key);
  if (!image.empty()) {
    ++stats_.loaded;
  } else {
    image = nvrtc().compile(entry, source, arch, contract);
    ++stats_.compiled;
    if (!path.empty()) write(path, key, image);
  }
  return std::make_shared<const Program>(Program{entry, std::move(image)});
}

ProgramCache::Stats ProgramCache::stats() const {
  std::lock_guard lock(mutex_);
  return stats_;
}

// key, checksum of the image in 16 digits, image.
std::string ProgramCache::read(const std::string& path, const std::string& key) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return {};
  try {
    const std::string all = read_file(path);
    if (all.size() > key.size() + 16 && all.compare(0, key.size(), key) == 0) {
      std::string image = all.substr(key.size() + 16);
      if (all.compare(key.size(), 16, fmt::format("{:016x}", fnv(image))) == 0) return image;
    }
  } catch (const Error&) {
    // Then it is compiled again.
  }
  ++stats_.ignored;
  log(LogLevel::kWarn, LogArea::kKernels, "program cache: {}: the file is damaged; it is made again", path);
  return {};
}

void ProgramCache::write(const std::string& path, const std::string& key, const std::string& image) {
  std::error_code error;
  fs::create_directories(directory_, error);
  const std::string part = fmt::format("{}.{}.part", path, getpid());
  {
    std::ofstream file(part, std::ios::binary | std::ios::trunc);
    file << key << fmt::format("{:016x}", fnv(image)) << image;
    file.flush();
    if (!file) error = std::make_error_code(std::errc::io_error);
  }
  if (!error) fs::rename(part, path, error);
  if (!error) return;
  log(LogLevel::kWarn, LogArea::kKernels, "program cache: {}: cannot be written: {}; programs are compiled each time",
      directory_, error.message());
  std::error_code ignored;
  fs::remove(part, ignored);
}

ProgramCache& program_cache() {
  static auto* const cache = new ProgramCache(cache_directory("cuda"));  // for the process: threads may outlive main()
  return *cache;
}

}  // namespace sluice::cuda
