#include "kernels/trials.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <deque>
#include <limits>
#include <optional>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "base/log.h"
#include "kernels/libraries.h"
#include "plan/query.h"
#include "plan/time/costs.h"

namespace sluice {
namespace {

constexpr uint64_t kMostFileBytes = uint64_t{16} << 20;
constexpr double kWorthIt = 0.97;  // of the usual one's time: what is nearer may be chance
constexpr double kHopeless = 4;    // times the fastest's: not run again
constexpr int kFirstRuns = 3, kRounds = 5;
constexpr int64_t kRoundNs = 2'000'000, kLongNs = 50'000'000;
constexpr uint64_t kStaysInCaches = uint64_t{1} << 20;  // bytes of a weight that may be there still in the next step

// From all caches. Nothing happens where there is no instruction for it.
void evict([[maybe_unused]] const void* data, [[maybe_unused]] uint64_t bytes) {
#if defined(__SSE2__)
  constexpr uint64_t kLine = 64;
  for (uint64_t at = 0; at < bytes; at += kLine) _mm_clflush(static_cast<const std::byte*>(data) + at);
  _mm_mfence();
#endif
}

// Memory of a device for the operands of a kernel, filled with numbers that are neither zero nor slow to compute with.
class Operands {
 public:
  explicit Operands(Device& device) : device_(device), space_(space_of(device.describe())) {}
  ~Operands() {
    for (const auto& [data, bytes] : blocks_) device_.deallocate(space_, data, bytes);
  }
  Operands(const Operands&) = delete;

  // Throws kMemory; what there is already goes with this.
  void lay_out(const plan::KernelQuery& query) {
    for (const TensorSpec& spec : query.inputs) inputs.push_back(filled(spec, spec.extent_bytes()));
    for (const TensorSpec& spec : query.outputs) outputs.push_back(filled(spec, spec.extent_bytes()));
  }
  void* allocate(uint64_t bytes) {
    blocks_.emplace_back(device_.allocate(space_, bytes), bytes);
    return blocks_.back().first;
  }
  void* filled(const TensorSpec& spec, uint64_t bytes) {
    if (bytes == 0) return nullptr;
    constexpr uint32_t kNumber = 0x3f003f00;  // 0.5 in bfloat16, about that in float32
    const std::vector<uint32_t> numbers(kAtOnce / sizeof(kNumber), is_floating(spec.dtype) ? kNumber : 0);
    auto* const data = static_cast<std::byte*>(allocate(bytes));
    for (uint64_t at = 0; at < bytes; at += kAtOnce)
      device_.copy_from_host(data + at, numbers.data(), std::min(kAtOnce, bytes - at));
    return data;
  }

  std::vector<const void*> inputs;
  std::vector<void*> outputs;

 private:
  static constexpr uint64_t kAtOnce = 1 << 20;  // bytes that are copied
  static plan::Space space_of(const plan::DeviceDesc& device) {
    return device.host_memory ? plan::Space{} : plan::Space{plan::SpaceKind::kDevice, device.device};
  }

  Device& device_;
  const plan::Space space_;
  std::vector<std::pair<void*, uint64_t>> blocks_;
};

// An implementation, on operands that it shares with the others. A step reads each of its large weights once, and so
// from memory: `weights`, inputs of the query, are not in the host's caches when a run begins.
class Contestant {
 public:
  Contestant(const plan::KernelQuery& query, std::unique_ptr<PreparedKernel> kernel, Operands& operands, Stream& stream,
             const std::vector<int>& weights)
      : kernel_(std::move(kernel)), operands_(operands), stream_(stream), inputs_(operands.inputs) {
    std::vector<uint64_t> bytes;
    for (const TensorSpec& spec : query.inputs) bytes.push_back(spec.extent_bytes());
    for (const Packing& packing : kernel_->packings()) {
      inputs_[packing.input] = operands.filled(query.inputs[packing.input], packing.bytes);
      bytes[packing.input] = packing.bytes;
    }
    for (const int weight : weights)
      if (bytes[weight] > kStaysInCaches) cold_.emplace_back(inputs_[weight], bytes[weight]);
    if (kernel_->workspace_bytes() > 0) workspace_ = operands.allocate(kernel_->workspace_bytes());
    time(1);
    // Several, since a thread that was not scheduled would look slow; of what takes long, one.
    for (int i = 0; i < kFirstRuns && (i == 0 || first_ < kLongNs); ++i) first_ = std::min(first_, time(1));
    runs_ = static_cast<int>(std::clamp(kRoundNs / std::max(first_, 1.0), 1.0, 50.0));
  }

  double first() const { return first_; }      // ns of the least of its first runs
  double time() const { return time(runs_); }  // ns of a run

 private:
  double time(int runs) const {
    if (cold_.empty()) return together(runs) / runs;
    double ns = 0;
    for (int i = 0; i < runs; ++i) {
      for (const auto& [data, bytes] : cold_) evict(data, bytes);
      ns += together(1);
    }
    return ns / runs;
  }

  double together(int runs) const {
    const auto start = std::chrono::steady_clock::now();
    stream_.begin_firing(0);
    for (int i = 0; i < runs; ++i) {
      kernel_->run(
          {.inputs = inputs_.data(), .outputs = operands_.outputs.data(), .workspace = workspace_, .stream = &stream_});
    }
    stream_.synchronize().throw_if_error();
    return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count();
  }

  const std::unique_ptr<PreparedKernel> kernel_;
  const Operands& operands_;
  Stream& stream_;
  std::vector<const void*> inputs_;
  std::vector<std::pair<const void*, uint64_t>> cold_;
  void* workspace_ = nullptr;
  double first_ = std::numeric_limits<double>::infinity();
  int runs_ = 1;
};

std::string signature_str(const plan::KernelQuery& query) {
  const plan::KernelSignature s = plan::signature_of(query);
  return fmt::format("{}  {}  {{{}}} on {} cores of {}", s.op, s.operands, s.attrs, s.cores, s.device);
}

std::string table_of(const KernelTrials::Trial& trial) {
  std::string text;
  for (const KernelTrials::Candidate& c : trial.candidates) {
    const bool chosen = c.name == trial.chosen || (trial.chosen.empty() && &c == trial.candidates.data());
    text += fmt::format("\n  {:>9.1f} us  {}{}", c.ns / 1e3, c.name, chosen ? "  <- chosen" : "");
  }
  return text;
}

// "CHOSEN\n", then "NANOSECONDS NAME\n" of each.
std::string text_of(const KernelTrials::Trial& trial) {
  std::string text = trial.chosen + "\n";
  for (const KernelTrials::Candidate& c : trial.candidates)
    text += fmt::format("{} {}\n", static_cast<int64_t>(c.ns), c.name);
  return text;
}

KernelTrials::Trial trial_of(std::string_view text) {
  KernelTrials::Trial trial;
  const auto line = [&] {
    const size_t end = text.find('\n');
    SLUICE_CHECK(end != std::string_view::npos, "ends too early");
    const std::string_view found = text.substr(0, end);
    text.remove_prefix(end + 1);
    return found;
  };
  trial.chosen = line();
  while (!text.empty()) {
    const std::string_view candidate = line();
    int64_t ns = 0;
    const auto [end, error] = std::from_chars(candidate.data(), candidate.data() + candidate.size(), ns);
    SLUICE_CHECK(error == std::errc() && end < candidate.data() + candidate.size() && *end == ' ', "'{}' is no line",
                 candidate);
    trial.candidates.push_back({std::string(end + 1, candidate.data() + candidate.size()), static_cast<double>(ns)});
  }
  return trial;
}

}  // namespace

KernelTrials::KernelTrials(const KernelTable& table, CoreLeases& leases,
                           std::function<Device&(const DeviceId&)> devices, size_t most, const std::string& directory)
    : table_(table),
      leases_(leases),
      devices_(std::move(devices)),
      most_(most),
      files_(directory.empty() ? nullptr : std::make_unique<FileCache>(directory, kMostFileBytes)) {}

std::string KernelTrials::fastest(const plan::KernelQuery& query) {
  const KernelDef* const def = table_.find(query.op, query.device.kind);
  if (def == nullptr || !def->implementations) return "";
  const std::string key = plan::key_of(query).take();
  if (const std::optional<std::string> chosen = known(key)) return *chosen;
  const MutexLock searching(searching_);
  if (const std::optional<std::string> chosen = known(key)) return *chosen;
  const std::vector<std::string> names = def->implementations(query, {.threads = std::max(query.cores, 1)});
  if (names.size() < 2) return keep(key, {}, nullptr);
  Key on_disk;
  add_machine(on_disk.add(std::string_view("kernel")));
  const plan::DeviceDesc device = devices_(query.device).describe();
  on_disk.add(def->library).add(device.host_memory ? 0 : device.memory_bytes);  // that tells models of GPUs apart
  on_disk.add(key);
  const std::string file_key = on_disk.take();
  if (files_ != nullptr) {
    std::optional<Trial> read = files_->find(file_key, trial_of);
    const auto is_there = [&](const std::string& name) {
      return name.empty() || std::find(names.begin(), names.end(), name) != names.end();
    };
    if (read && is_there(read->chosen)) {
      read->kernel = signature_str(query);
      log(LogLevel::kDebug, LogArea::kKernels, "kernel trial: {}: known from {}{}", read->kernel, files_->directory(),
          table_of(*read));
      return keep(key, std::move(*read), &stats_.read);
    }
  }
  Trial trial;
  try {
    trial = search(*def, query, names);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kMemory) throw;
    log(LogLevel::kWarn, LogArea::kKernels, "kernel trial: {}: not run: {}", signature_str(query), error.what());
    return keep(key, {}, nullptr);
  }
  trial.kernel = signature_str(query);
  log(LogLevel::kInfo, LogArea::kKernels, "kernel trial: {}: searched{}", trial.kernel, table_of(trial));
  if (files_ != nullptr) files_->put(file_key, text_of(trial));
  return keep(key, std::move(trial), &stats_.searches);
}

std::optional<std::string> KernelTrials::known(const std::string& key) {
  const MutexLock lock(mutex_);
  const auto at = by_key_.find(key);
  if (at == by_key_.end()) return std::nullopt;
  order_.splice(order_.begin(), order_, at->second);
  Trial& trial = at->second->second;
  trial.used = ++used_;
  stats_.hits += !trial.candidates.empty();
  return trial.chosen;
}

std::string KernelTrials::keep(const std::string& key, Trial trial, uint64_t* counter) {
  const MutexLock lock(mutex_);
  if (counter != nullptr) ++*counter;
  trial.used = ++used_;
  std::string chosen = trial.chosen;
  order_.emplace_front(key, std::move(trial));
  by_key_[key] = order_.begin();
  while (order_.size() > most_) {
    by_key_.erase(order_.back().first);
    order_.pop_back();
  }
  return chosen;
}

KernelTrials::Trial KernelTrials::search(const KernelDef& def, const plan::KernelQuery& query,
                                         const std::vector<std::string>& names) const {
  Device& device = devices_(query.device);
  std::optional<CoreLease> lease;
  if (!device.describe().asynchronous) lease.emplace(leases_, query.cores);
  const std::unique_ptr<Stream> stream = device.create_stream(plan::StreamKind::kCompute, 0);
  Operands operands(device);
  operands.lay_out(query);
  std::deque<Contestant> contestants;
  Trial trial;
  for (const std::string& name : names) {
    plan::KernelQuery asked = query;
    asked.attrs.emplace_back(plan::kImplementation, name);
    contestants.emplace_back(query, def.prepare(asked, {.threads = std::max(query.cores, 1)}), operands, *stream,
                             def.packs);
    trial.candidates.push_back({name, contestants.back().first()});
  }
  const auto fastest = [&] {
    return std::min_element(trial.candidates.begin(), trial.candidates.end(),
                            [](const Candidate& a, const Candidate& b) { return a.ns < b.ns; });
  };
  const double worth_rounds = kHopeless * fastest()->ns;
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < contestants.size(); ++i)
      if (contestants[i].first() < worth_rounds)
        trial.candidates[i].ns = std::min(trial.candidates[i].ns, contestants[i].time());
  }
  const auto best = fastest();
  if (best->ns < kWorthIt * trial.candidates[0].ns) trial.chosen = best->name;
  return trial;
}

std::vector<KernelTrials::Trial> KernelTrials::trials(uint64_t used) const {
  const MutexLock lock(mutex_);
  std::vector<Trial> trials;
  for (const auto& [key, trial] : order_)
    if (trial.used > used && !trial.candidates.empty()) trials.push_back(trial);
  std::reverse(trials.begin(), trials.end());
  return trials;
}

uint64_t KernelTrials::used() const {
  const MutexLock lock(mutex_);
  return used_;
}

KernelTrials::Stats KernelTrials::stats() const {
  const MutexLock lock(mutex_);
  Stats stats = stats_;
  stats.entries = order_.size();
  return stats;
}

}  // namespace sluice
