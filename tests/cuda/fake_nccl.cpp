#include "cuda/fake_nccl.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "cuda/fake_driver/fake_driver.h"

namespace {

struct Piece {
  int peer = 0;
  const char* from = nullptr;  // of what is sent
  char* to = nullptr;          // of what is received
  size_t bytes = 0;
};

// The part of one rank in one call.
struct Part {
  std::vector<Piece> sends, receives;
  bool gather = false;
};

}  // namespace

// Kept for ever: its work may still be on a stream.
struct ncclComm {
  uint64_t job = 0;
  int rank = 0, size = 0;
  bool aborted = false;
  // A call goes on while the caller asks how it does: once all ranks have called, each waits for the others' streams
  // and copies from them; once all have queued that, each waits for the others' copies.
  enum class Phase { kIdle, kCalled, kCopying } phase = Phase::kIdle;
  uint64_t called = 0, copying = 0;  // how many calls have come so far
  Part part;
  CUstream stream = nullptr;
  CUevent ready = nullptr, copied = nullptr;
  fake_cuda::Function copy;
};

namespace {

struct State {
  std::recursive_mutex mutex;                         // a call of the driver may execute what was queued
  std::map<uint64_t, std::map<int, ncclComm*>> jobs;  // by id and rank
  struct Injected {
    std::string function;
    int countdown;
    ncclResult_t result;
  };
  std::vector<Injected> injected;
  int lost = -1;
  uint64_t next_id = 1;
  fake_nccl::Counts counted;

  static State& get() {
    static auto* const state = new State();  // threads may outlive main()
    return *state;
  }
  ncclResult_t enter(const char* function) {
    for (auto it = injected.begin(); it != injected.end(); ++it) {
      if (it->function != function || --it->countdown > 0) continue;
      const ncclResult_t result = it->result;
      injected.erase(it);
      return result;
    }
    return ncclSuccess;
  }
  // True when `come` holds for all ranks of a communicator's job.
  template <class Come>
  bool all(const ncclComm& comm, Come come) {
    const auto& ranks = jobs[comm.job];
    return std::all_of(ranks.begin(), ranks.end(), [&](const auto& other) {
      return !other.second->aborted && other.first != lost && come(*other.second);
    });
  }
};

constexpr size_t kBytesOf = 1;  // an element: NCCL is asked for bytes alone

// The pieces that `comm` gets: from which memory of which rank.
std::vector<Piece> pieces_of(ncclComm& comm) {
  std::map<int, size_t> taken;
  std::vector<Piece> pieces;
  for (const Piece& receive : comm.part.receives) {
    std::vector<Piece> sent;
    for (const Piece& piece : State::get().jobs[comm.job].at(receive.peer)->part.sends)
      if (piece.peer == comm.rank) sent.push_back(piece);
    pieces.push_back(receive);
    pieces.back().from = sent.at(taken[receive.peer]++).from;
  }
  return pieces;
}

// REQUIRES: the state is locked, the communicator's context current.
ncclResult_t advance(State& s, ncclComm& comm) {
  using Phase = ncclComm::Phase;
  const auto& ranks = s.jobs[comm.job];
  if (comm.phase == Phase::kIdle) return static_cast<int>(ranks.size()) == comm.size ? ncclSuccess : ncclInProgress;
  if (comm.phase == Phase::kCalled) {
    if (!s.all(comm, [&](const ncclComm& other) { return other.called >= comm.called; })) return ncclInProgress;
    for (const auto& [rank, other] : ranks)
      if (cuStreamWaitEvent(comm.stream, other->ready, 0) != CUDA_SUCCESS) return ncclUnhandledCudaError;
    if (cuLaunchKernel(fake_cuda::handle_of(comm.copy), 1, 1, 1, 1, 1, 1, 0, comm.stream, nullptr, nullptr) !=
            CUDA_SUCCESS ||
        cuEventRecord(comm.copied, comm.stream) != CUDA_SUCCESS)
      return ncclUnhandledCudaError;
    ++comm.copying;
    comm.phase = Phase::kCopying;
  }
  if (!s.all(comm, [&](const ncclComm& other) { return other.copying >= comm.copying; })) return ncclInProgress;
  for (const auto& [rank, other] : ranks)
    if (cuStreamWaitEvent(comm.stream, other->copied, 0) != CUDA_SUCCESS) return ncclUnhandledCudaError;
  ++(comm.part.gather ? s.counted.gathers : s.counted.exchanges);
  comm.phase = Phase::kIdle;
  return ncclSuccess;
}

// One call of a rank, at the end of its stream.
ncclResult_t call(ncclComm& comm, Part part, CUstream stream) {
  State& s = State::get();
  const std::lock_guard lock(s.mutex);
  if (comm.phase != ncclComm::Phase::kIdle) return ncclInvalidUsage;
  if (cuEventRecord(comm.ready, stream) != CUDA_SUCCESS) return ncclUnhandledCudaError;
  comm.part = std::move(part);
  comm.stream = stream;
  comm.phase = ncclComm::Phase::kCalled;
  ++comm.called;
  return ncclInProgress;
}

thread_local int grouped = 0;
thread_local Part group_part;
thread_local ncclComm* group_comm = nullptr;
thread_local CUstream group_stream = nullptr;

ncclResult_t enter(const char* function) {
  State& s = State::get();
  const std::lock_guard lock(s.mutex);
  return s.enter(function);
}

ncclResult_t add(const char* function, bool sends, Piece piece, ncclComm* comm, CUstream stream) {
  if (const ncclResult_t result = enter(function); result != ncclSuccess) return result;
  if (grouped == 0 || (group_comm != nullptr && group_comm != comm)) return ncclInvalidUsage;
  (sends ? group_part.sends : group_part.receives).push_back(piece);
  group_comm = comm;
  group_stream = stream;
  return ncclInProgress;
}

}  // namespace

namespace fake_nccl {

void fail_call(const std::string& function, int nth, ncclResult_t result) {
  State& s = State::get();
  const std::lock_guard lock(s.mutex);
  s.injected.push_back({function, nth, result});
}

void lose(int rank) {
  State& s = State::get();
  const std::lock_guard lock(s.mutex);
  s.lost = rank;
}

Counts counts() {
  State& s = State::get();
  const std::lock_guard lock(s.mutex);
  return s.counted;
}

}  // namespace fake_nccl

extern "C" {

FAKE_NCCL_API ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

FAKE_NCCL_API const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError ? "remote process exited or there was a network error" : "unhandled system error";
}

FAKE_NCCL_API ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  State& s = State::get();
  const std::lock_guard lock(s.mutex);
  if (const ncclResult_t result = s.enter("ncclGetUniqueId"); result != ncclSuccess) return result;
  std::memset(id, 0, sizeof(*id));
  std::memcpy(id->internal, &s.next_id, sizeof(s.next_id));
  ++s.next_id;
  return ncclSuccess;
}

FAKE_NCCL_API ncclResult_t ncclCommInitRankConfig(ncclComm_t* made, int size, ncclUniqueId id, int rank,
                                                  ncclConfig_t* config) {
  State& s = State::get();
  const std::lock_guard lock(s.mutex);
  if (const ncclResult_t result = s.enter("ncclCommInitRankConfig"); result != ncclSuccess) return result;
  CUcontext current = nullptr;
  if (config->blocking != 0 || cuCtxGetCurrent(&current) != CUDA_SUCCESS || current == nullptr) return ncclInvalidUsage;
  auto* comm = new ncclComm();
  std::memcpy(&comm->job, id.internal, sizeof(comm->job));
  comm->rank = rank;
  comm->size = size;
  if (cuEventCreate(&comm->ready, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS ||
      cuEventCreate(&comm->copied, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
    return ncclUnhandledCudaError;
  comm->copy.name = "NCCL";
  comm->copy.run = [comm](void**) {
    State& state = State::get();
    const std::lock_guard guard(state.mutex);
    if (comm->aborted) return;
    for (const Piece& piece : pieces_of(*comm))
      if (piece.bytes > 0) std::memcpy(fake_cuda::shadow(piece.to), fake_cuda::shadow(piece.from), piece.bytes);
  };
  comm->copy.accesses = [comm](void**, std::vector<fake_cuda::Access>& all) {
    for (const Piece& piece : pieces_of(*comm)) {
      all.push_back({piece.from, piece.bytes, false});
      all.push_back({piece.to, piece.bytes, true});
    }
  };
  s.jobs[comm->job][rank] = comm;
  ++s.counted.communicators;
  *made = comm;
  return ncclInProgress;
}

FAKE_NCCL_API ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  State& s = State::get();
  const std::lock_guard lock(s.mutex);
  *error = s.enter("ncclCommGetAsyncError");
  if (*error == ncclSuccess) *error = advance(s, *comm);
  return ncclSuccess;
}

FAKE_NCCL_API ncclResult_t ncclCommAbort(ncclComm_t comm) {
  State& s = State::get();
  const std::lock_guard lock(s.mutex);
  if (comm->aborted) return ncclInvalidUsage;
  comm->aborted = true;
  --s.counted.communicators;
  static_cast<void>(cuEventDestroy(comm->ready));
  static_cast<void>(cuEventDestroy(comm->copied));
  return ncclSuccess;
}

FAKE_NCCL_API ncclResult_t ncclGroupStart() {
  ++grouped;
  return ncclSuccess;
}

FAKE_NCCL_API ncclResult_t ncclGroupEnd() {
  ncclResult_t result = enter("ncclGroupEnd");
  --grouped;
  Part part = std::exchange(group_part, {});
  ncclComm* comm = std::exchange(group_comm, nullptr);
  if (result != ncclSuccess || comm == nullptr) return result;
  return call(*comm, std::move(part), group_stream);
}

FAKE_NCCL_API ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t, int peer, ncclComm_t comm,
                                    cudaStream_t stream) {
  return add("ncclSend", true, {peer, static_cast<const char*>(data), nullptr, count * kBytesOf}, comm, stream);
}

FAKE_NCCL_API ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t, int peer, ncclComm_t comm,
                                    cudaStream_t stream) {
  return add("ncclRecv", false, {peer, nullptr, static_cast<char*>(data), count * kBytesOf}, comm, stream);
}

FAKE_NCCL_API ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t, ncclComm_t comm,
                                         cudaStream_t stream) {
  if (const ncclResult_t result = enter("ncclAllGather"); result != ncclSuccess) return result;
  const size_t bytes = count * kBytesOf;
  Part part;
  part.gather = true;
  for (int r = 0; r < comm->size; ++r) {
    part.sends.push_back({r, static_cast<const char*>(from), nullptr, bytes});
    part.receives.push_back({r, nullptr, static_cast<char*>(to) + static_cast<size_t>(r) * bytes, bytes});
  }
  return call(*comm, std::move(part), stream);
}

}  // extern "C"
