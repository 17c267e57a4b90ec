#pragma once
// Reading files whose makers are not trusted.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace sluice {

// kRefuse: a file that belongs to a directory must lie in it, so it may not be a symbolic link.
enum class Links { kFollow, kRefuse };

// A regular file, opened for reading. Pipes, devices and sockets are refused without being read, so nothing waits for
// a writer. read() copies: a file that shrinks meanwhile is an error. base/files/mapped_file.h maps it.
class InputFile {
 public:
  // Throws kIo "<path>: cannot be read: <why>".
  explicit InputFile(std::string path, Links links = Links::kFollow);
  // The same of what is called `name` in an open folder. Errors call it `path`.
  InputFile(std::string path, int folder, const std::string& name, Links links);
  // Reads a file that has been opened already, and owns its descriptor from then on.
  InputFile(std::string path, int descriptor);
  // The same of bytes in memory, which errors call `path`. REQUIRES: they outlive it.
  InputFile(std::string path, std::span<const std::byte> bytes);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }         // when it was opened
  int descriptor() const { return descriptor_; }  // -1 where they are in memory
  // All of it as text. Throws kIo; also for more than 1 GiB, which no text of ours has.
  std::string read_all();
  // The next `bytes` bytes. Throws kIo when the file ends before them.
  void read(void* data, uint64_t bytes);
  // The same from `offset` on; what read() is at stays as it is.
  void read_at(uint64_t offset, void* data, uint64_t bytes);

 private:
  void open(int folder, const std::string& name, Links links);
  void check_kind();

  std::string path_;
  int descriptor_ = -1;
  const std::byte* memory_ = nullptr;
  uint64_t size_ = 0, position_ = 0;
};

// InputFile::read_all() of a file.
std::string read_file(const std::string& path, Links links = Links::kFollow);

// How many bytes of `text` are well-formed UTF-8, from its beginning.
size_t utf8_length(std::string_view text);

}  // namespace sluice
