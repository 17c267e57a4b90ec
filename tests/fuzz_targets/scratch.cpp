#include "fuzz_targets/scratch.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "fuzz_targets/targets.h"

namespace sluice::fuzz {
namespace {

namespace fs = std::filesystem;

struct Directory {
  std::string path;
  Directory() {
    std::error_code none;
    const fs::path base = fs::is_directory("/dev/shm", none) ? fs::path("/dev/shm") : fs::temp_directory_path();
    std::string name = (base / "sluice_fuzz_XXXXXX").string();
    expect(mkdtemp(name.data()) != nullptr, "scratch: no directory", name);
    path = name;
  }
  ~Directory() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

}  // namespace

const std::string& scratch() {
  static const Directory directory;
  return directory.path;
}

std::string scratch_file(const std::string& name, std::string_view content) {
  const std::string path = scratch() + "/" + name;
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  expect(file >= 0 && ::write(file, content.data(), content.size()) == static_cast<ssize_t>(content.size()),
         "scratch: cannot be written", path);
  ::close(file);
  return path;
}

}  // namespace sluice::fuzz
