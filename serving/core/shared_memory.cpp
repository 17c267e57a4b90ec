#include "serving/core/shared_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>

namespace sluice::serving {

Error no_cuda_memory() {
  return Error(Code::kUnsupported, "shared memory: that of CUDA is not offered; system shared memory is");
}

struct SharedMemory::Region {
  ~Region() {
    if (fd >= 0) close(fd);
  }
  int fd = -1;
  std::string name, key;
  uint64_t offset = 0, bytes = 0;
};

namespace {

constexpr size_t kMostRegions = 1024;

bool is_key(const std::string& key) {
  if (key.size() < 2 || key.size() > 250 || key[0] != '/') return false;
  return std::all_of(key.begin() + 1, key.end(),
                     [](unsigned char c) { return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-'; });
}

bool ends_within(uint64_t offset, uint64_t bytes, uint64_t whole) { return offset <= whole && bytes <= whole - offset; }

// Reads or writes all; false where the memory ends before.
template <class Step>
bool all(uint64_t bytes, const Step& step) {
  for (uint64_t done = 0; done < bytes;) {
    const ssize_t n = step(done, bytes - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += static_cast<uint64_t>(n);
  }
  return true;
}

}  // namespace

void SharedMemory::check_allowed() const {
  if (!allowed_)
    throw Error(Code::kForbidden, "shared memory: this server does not offer it; its --allow-shared-memory does");
}

inference::SystemSharedMemoryStatusResponse SharedMemory::status(const std::string& name) const {
  inference::SystemSharedMemoryStatusResponse response;
  const std::lock_guard lock(mutex_);
  if (!name.empty() && !regions_.contains(name))
    throw Error(Code::kNotFound, "shared memory: there is no region '" + name + "'");
  for (const auto& [key, region] : regions_) {
    if (!name.empty() && key != name) continue;
    auto& status = (*response.mutable_regions())[key];
    status.set_name(region->name);
    status.set_key(region->key);
    status.set_offset(region->offset);
    status.set_byte_size(region->bytes);
  }
  return response;
}

void SharedMemory::add(const inference::SystemSharedMemoryRegisterRequest& request) {
  check_allowed();
  const std::string where = "shared memory: region '" + request.name() + "'";
  if (request.name().empty() || request.name().size() > 256)
    throw Error(Code::kInvalidArgument, where + ": a name has 1 to 256 characters");
  if (!is_key(request.key()) || !request.key().starts_with(prefix_))
    throw Error(Code::kInvalidArgument,
                fmt::format("{}: key '{}'; it must begin with '{}' and have letters, digits, '.', "
                            "'_' and '-' alone",
                            where, request.key().substr(0, 64), prefix_));
  if (request.byte_size() == 0) throw Error(Code::kInvalidArgument, where + ": byte_size: 0; must be above 0");
  auto region = std::make_shared<Region>();
  region->name = request.name();
  region->key = request.key();
  region->offset = request.offset();
  region->bytes = request.byte_size();
  region->fd = shm_open(request.key().c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0);
  struct stat stat {};
  if (region->fd < 0 || fstat(region->fd, &stat) != 0 || !S_ISREG(stat.st_mode))
    throw Error(Code::kInvalidArgument, where + ": this server cannot open shared memory of that key");
  if (!ends_within(region->offset, region->bytes, static_cast<uint64_t>(stat.st_size)))
    throw Error(Code::kInvalidArgument, fmt::format("{}: {} bytes from {} on; the shared memory has {}", where,
                                                    region->bytes, region->offset, stat.st_size));
  const std::lock_guard lock(mutex_);
  if (regions_.size() >= kMostRegions)
    throw Error(Code::kUnavailable, fmt::format("{}: {} regions are registered; no more may be", where, kMostRegions));
  if (!regions_.emplace(request.name(), std::move(region)).second)
    throw Error(Code::kAlreadyExists, where + " is registered already; unregister it first");
}

void SharedMemory::remove(const std::string& name) {
  check_allowed();
  const std::lock_guard lock(mutex_);
  if (name.empty())
    regions_.clear();
  else
    regions_.erase(name);
}

std::shared_ptr<const SharedMemory::Region> SharedMemory::find(const SharedRegion& part) const {
  check_allowed();
  std::shared_ptr<const Region> region;
  {
    const std::lock_guard lock(mutex_);
    const auto found = regions_.find(part.region);
    if (found == regions_.end())
      throw Error(Code::kNotFound, "shared memory: there is no region '" + part.region + "'");
    region = found->second;
  }
  if (!ends_within(part.offset, part.bytes, region->bytes))
    throw Error(Code::kInvalidArgument, fmt::format("shared memory: region '{}': {} bytes from {} on; it has {}",
                                                    part.region, part.bytes, part.offset, region->bytes));
  return region;
}

std::shared_ptr<void> SharedMemory::read(const SharedRegion& part, BufferPool& buffers, const MemoryPtr& share) const {
  const std::shared_ptr<const Region> region = find(part);
  struct stat stat {};  // before memory is taken for what is not there
  const bool there = fstat(region->fd, &stat) == 0 &&
                     ends_within(region->offset + part.offset, part.bytes, static_cast<uint64_t>(stat.st_size));
  std::shared_ptr<void> data = there ? buffers.take(part.bytes, share) : nullptr;
  const bool whole = there && all(part.bytes, [&](uint64_t done, uint64_t left) {
                       return pread(region->fd, static_cast<char*>(data.get()) + done, left,
                                    static_cast<off_t>(region->offset + part.offset + done));
                     });
  if (!whole) throw Error(Code::kInvalidArgument, "shared memory: region '" + part.region + "' has become shorter");
  return data;
}

void SharedMemory::write(const SharedRegion& part, const void* data, size_t bytes) const {
  const std::shared_ptr<const Region> region = find(part);
  if (bytes > part.bytes)
    throw Error(Code::kInvalidArgument,
                fmt::format("shared memory: region '{}': the output has {} bytes; the request has room for {}",
                            part.region, bytes, part.bytes));
  struct stat stat {};
  const bool there = fstat(region->fd, &stat) == 0 &&
                     ends_within(region->offset + part.offset, bytes, static_cast<uint64_t>(stat.st_size));
  const bool whole = there && all(bytes, [&](uint64_t done, uint64_t left) {
                       return pwrite(region->fd, static_cast<const char*>(data) + done, left,
                                     static_cast<off_t>(region->offset + part.offset + done));
                     });
  if (!whole) throw Error(Code::kInvalidArgument, "shared memory: region '" + part.region + "' has become shorter");
}

}  // namespace sluice::serving
