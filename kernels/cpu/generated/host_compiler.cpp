#include "kernels/cpu/generated/host_compiler.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/files/file_cache.h"
#include "base/key.h"
#include "kernels/cpu/generated/headers.h"
#include "kernels/cpu/math/vector_math.h"

namespace sluice::generated {
namespace {

namespace fs = std::filesystem;
constexpr uint64_t kMostFileBytes = uint64_t{64} << 20;

// A folder that goes with this.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "sluice-XXXXXX").string();
    SLUICE_CHECK_KIND(kRuntime, mkdtemp(name.data()) != nullptr,
                      "generated kernels: {}: {}; must be a folder to write to", name,
                      std::system_category().message(errno));
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  const fs::path& path() const { return path_; }
  void write(const std::string& name, std::string_view text) const {
    fs::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << text;
  }
  std::string read(const std::string& name) const {
    std::ifstream in(path_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

 private:
  fs::path path_;
};

// Runs a program, whose output goes to a file. Gives its status, -1 where it did not start or did not end by itself.
int run(const std::vector<std::string>& words, const std::string& output) {
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  pid_t child = 0;
  const int failed = posix_spawn(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return -1;
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::string found(const std::string& name) {
  if (name.find('/') != std::string::npos) return access(name.c_str(), X_OK) == 0 ? name : "";
  const char* const path = std::getenv("PATH");
  for (std::string_view rest = path == nullptr ? "" : path; !rest.empty();) {
    const size_t end = std::min(rest.find(':'), rest.size());
    const std::string file = (fs::path(rest.substr(0, end)) / name).string();
    if (fs::path(file).is_absolute() && access(file.c_str(), X_OK) == 0) return file;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return "";
}

// The flags with which the library's kernels are compiled for processors (SLUICE_CLONES), so that bits are the same.
std::vector<std::string> flags(Language language) {
  if (language == Language::kC) return {"-x", "c", "-std=c99", "-O2", "-ffp-contract=off", "-fPIC", "-shared"};
  std::vector<std::string> flags = {"-std=c++20",       "-O3",      "-fno-math-errno", "-fno-trapping-math",
                                    "-falign-loops=64", "-DNDEBUG", "-fno-gnu-unique", "-fPIC",
                                    "-shared"};
#if SLUICE_CLONED
  if (__builtin_cpu_supports("x86-64-v4"))
    flags.emplace_back("-march=x86-64-v4");
  else if (__builtin_cpu_supports("x86-64-v3"))
    flags.emplace_back("-march=x86-64-v3");
#endif
  return flags;
}

// Code in a file of memory, which stays open: a loader takes two files of one name, its number, for the same.
class Loaded final : public Code {
 public:
  explicit Loaded(std::string_view image) : bytes_(image.size()), file_(memfd_create("sluice", MFD_CLOEXEC)) {
    for (std::string_view rest = image; file_ >= 0 && !rest.empty();) {
      const ssize_t n = ::write(file_, rest.data(), rest.size());
      if (n <= 0) break;
      rest.remove_prefix(static_cast<size_t>(n));
    }
    handle_ = dlopen(path().c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ != nullptr) return;
    if (file_ >= 0) close(file_);
    fail(ErrorKind::kRuntime, "generated kernels: {}", dlerror());
  }
  ~Loaded() override {
    dlclose(handle_);
    close(file_);
  }
  Loaded(const Loaded&) = delete;
  void* function(const char* name) const override {
    void* const at = dlsym(handle_, name);
    SLUICE_CHECK_KIND(kRuntime, at != nullptr, "generated kernels: no function {}", name);
    return at;
  }
  uint64_t bytes() const override { return bytes_; }
  std::string path() const override { return fmt::format("/proc/self/fd/{}", file_); }

 private:
  const uint64_t bytes_;
  const int file_;
  void* handle_ = nullptr;
};

struct Compiler {
  std::string path, version;
};
// clang joins products and sums elsewhere than g++ does, so that bits would differ.
const Compiler& compiler() {
  static const Compiler chosen = [] {
    const char* const named = std::getenv("CXX");
    std::vector<std::string> names = {"g++", "c++"};
    if (named != nullptr && *named != '\0') names = {named};
    for (const std::string& name : names) {
      Compiler one{found(name), ""};
      if (one.path.empty()) continue;
      const Folder folder;
      if (run({one.path, "--version"}, folder.path() / "version") != 0) continue;
      one.version = folder.read("version");
      if (one.version.find("clang") == std::string::npos) return one;
    }
    return Compiler();
  }();
  return chosen;
}

std::string image_of(const std::string& source, Language language) {
  const Folder folder;
  const char* const name = language == Language::kC ? "kernel.c" : "kernel.cpp";
  folder.write(name, source);
  if (language == Language::kCpp)
    for (const Header& header : headers()) folder.write(header.path, header.text);
  std::vector<std::string> words = {host_compiler()};
  for (std::string& flag : flags(language)) words.push_back(std::move(flag));
  const std::string result = folder.path() / "kernel.so";
  for (const std::string& word :
       {"-I" + folder.path().string(), (folder.path() / name).string(), std::string("-o"), result})
    words.push_back(word);
  const int status = run(words, folder.path() / "messages");
  SLUICE_CHECK_KIND(kRuntime, status == 0, "generated kernels: {} ended with {}; its messages:\n{}", host_compiler(),
                    status, folder.read("messages").substr(0, 4000));
  return folder.read("kernel.so");
}

}  // namespace

const std::string& host_compiler() { return compiler().path; }

std::shared_ptr<const Code> compile(const std::string& source, Language language) {
  SLUICE_CHECK_KIND(kUnsupported, !host_compiler().empty(),
                    "generated kernels: no g++; install it, or name it with the variable CXX");
  static FileCache* const files = [] {  // for as long as the process
    const std::string directory = caches_are_on() ? cache_directory("generated") : "";
    return directory.empty() ? nullptr : new FileCache(directory, kMostFileBytes);
  }();
  const auto load = [](std::string_view image) { return std::make_shared<const Loaded>(image); };
  if (files == nullptr) return load(image_of(source, language));
  Key key;
  key.add(source).add(compiler().path).add(compiler().version);
  for (const std::string& flag : flags(language)) key.add(flag);
  if (language == Language::kCpp)
    for (const Header& header : headers()) key.add(header.text);
  const std::string name = key.take();
  if (auto code = files->find(name, load)) return *code;
  const std::string image = image_of(source, language);
  auto code = load(image);
  files->put(name, image);
  return code;
}

}  // namespace sluice::generated
