#include "base/files/mapped_file.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <mutex>

namespace sluice {

// The part of a mapping that the signal handler may read. Never freed, as a handler may look at it at any time; used
// again.
struct MappedRange {
  std::atomic<uintptr_t> begin{0}, end{0};  // end is 0 where it stands for nothing
  std::atomic<bool> lost{false};
  MappedRange* next = nullptr;
};

namespace {

constinit std::atomic<MappedRange*> ranges = nullptr;
constinit std::mutex ranges_mutex;  // of those who write to them
struct sigaction earlier;           // written before the handler may run
uintptr_t page_bytes = 0;           // likewise

// Hands on what is not about a mapping of ours. REQUIRES: in the signal handler.
void call_earlier(int signal, siginfo_t* info, void* context) {
  if ((earlier.sa_flags & SA_SIGINFO) != 0) {
    earlier.sa_sigaction(signal, info, context);
  } else if (earlier.sa_handler != SIG_DFL && earlier.sa_handler != SIG_IGN) {
    earlier.sa_handler(signal);
  } else {
    ::signal(signal, SIG_DFL);  // the access comes again, and ends the process as it would have
  }
}

// A file that was cut off has none of the pages from here on.
void on_missing_page(int signal, siginfo_t* info, void* context) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  const int error = errno;
  for (MappedRange* range = ranges.load(); range != nullptr; range = range->next) {
    const uintptr_t end = range->end;
    if (address < range->begin || address >= end) continue;
    range->lost = true;  // before anybody can read a zero
    const uintptr_t page = address / page_bytes * page_bytes;
    void* const zeros = ::mmap(reinterpret_cast<void*>(page), end - page, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    errno = error;
    if (zeros != MAP_FAILED) return;
    break;
  }
  call_earlier(signal, info, context);
}

// REQUIRES: ranges_mutex is held.
void install_handler() {
  static bool installed = false;
  if (installed) return;
  page_bytes = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  ::sigaction(SIGBUS, nullptr, &earlier);
  struct sigaction ours {};
  ours.sa_sigaction = on_missing_page;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
  installed = ::sigaction(SIGBUS, &ours, nullptr) == 0;
}

MappedRange* watch(uintptr_t begin, uintptr_t end) {
  const std::lock_guard lock(ranges_mutex);
  install_handler();
  MappedRange* range = ranges.load();
  while (range != nullptr && range->end != 0) range = range->next;
  const bool fresh = range == nullptr;
  if (fresh) range = new MappedRange();
  range->lost = false;
  range->begin = begin;
  range->end = end;
  if (fresh) {
    range->next = ranges.load();
    ranges = range;
  }
  return range;
}

}  // namespace

MappedFile::MappedFile(const InputFile& file) : path_(file.path()), size_(file.size()) {
  struct stat status {};
  SLUICE_CHECK_KIND(kIo, ::fstat(file.descriptor(), &status) == 0, "{}: cannot be mapped: {}", path_,
                    std::strerror(errno));
  identity_ = {status.st_dev, status.st_ino, status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
  void* const data = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file.descriptor(), 0);
  SLUICE_CHECK_KIND(kIo, data != MAP_FAILED, "{}: cannot be mapped: {}", path_, std::strerror(errno));
  data_ = static_cast<std::byte*>(data);
  try {
    const auto begin = reinterpret_cast<uintptr_t>(data);
    const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
    range_ = watch(begin, begin + (size_ + page - 1) / page * page);
  } catch (...) {
    ::munmap(data, size_);
    throw;
  }
}

MappedFile::~MappedFile() {
  {
    const std::lock_guard lock(ranges_mutex);
    range_->end = 0;
  }
  ::munmap(data_, size_);
}

bool MappedFile::same_file(const MappedFile& other) const {
  return size_ == other.size_ && identity_ == other.identity_ && !range_->lost && !other.range_->lost;
}

Status MappedFile::check() const {
  if (!range_->lost) return {};
  return {ErrorKind::kIo,
          fmt::format("{}: it was cut off while it was mapped, and pages of it read as zeros; replace files that are "
                      "in use by renaming others, and load it again",
                      path_)};
}

}  // namespace sluice
