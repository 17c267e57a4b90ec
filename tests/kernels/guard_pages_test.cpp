// Kernels between pages that nobody may touch: every operand, result and workspace ends at one, and then begins at one.
// A child process of its own runs the calls of each instruction set, and is started again behind the call that stopped
// it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <ucontext.h>

#include <array>
#include <atomic>
#include <map>

#include "kernels/guard_cases.h"
#include "kernels/guarded_memory.h"
#include "kernels/libraries.h"
#include "plan/query.h"
#include "support/processes.h"
#include "support/soak.h"

namespace sluice::test {
namespace {

constexpr const char* kRequest = "SLUICE_GUARD_PAGES";  // of a child: "FILE COUNT EVERY"

// The report of a child, in a file that both map.
struct Report {
  std::atomic<uint64_t> next;        // 1000 * case + run
  std::atomic<uint64_t> counts[64];  // runs by op
  char now[1024];                    // what runs
  char fault[1536];                  // and what it touched
  bool over;
};
Report* map_report(const char* path) {
  const int file = open(path, O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, sizeof(Report)) != 0) return nullptr;
  void* const at = mmap(nullptr, sizeof(Report), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  return at == MAP_FAILED ? nullptr : static_cast<Report*>(at);
}

std::vector<std::string> swept_ops() {
  std::vector<std::string> ops;
  for (const GuardFamily& family : guard_families()) ops.insert(ops.end(), family.ops.begin(), family.ops.end());
  return ops;
}

// --- the child
constexpr int kStopped = 9;
constexpr uint64_t kSamplesFrom = 1'000'000'000;  // numbers of the samples of all ops
constexpr size_t kMostOperands = 16;
Report* told = nullptr;
struct {
  std::array<const GuardedMemory*, kMostOperands> memory;
  std::array<const char*, kMostOperands> names;
  size_t count = 0;
} operands;

void on_fault(int, siginfo_t* info, void* context) {
  [[maybe_unused]] const char* how = "touched";
#if defined(__x86_64__)
  how = (static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & 2) != 0 ? "wrote" : "read";
#else
  (void)context;
#endif
  const char* what = "memory that is none of its own";
  long distance = 0;
  for (size_t i = 0; i < operands.count; ++i) {
    if (!operands.memory[i]->near(info->si_addr)) continue;
    what = operands.names[i];
    distance = static_cast<const std::byte*>(info->si_addr) - operands.memory[i]->data();
    if (distance >= 0) distance -= static_cast<long>(operands.memory[i]->bytes());
    break;
  }
  std::snprintf(told->fault, sizeof(told->fault), "%s %+ld bytes off its %s: %s", how, distance, what, told->now);
  _exit(kStopped);
}

// With the operands placed so. Inputs are zeros, which every op takes: what is looked for is where kernels go.
void run_between_pages(const PreparedKernel& kernel, const GuardCase& given, Placed placed) {
  const plan::KernelQuery& query = given.query;
  std::vector<std::unique_ptr<GuardedMemory>> memory;
  const auto add = [&](const char* name, uint64_t bytes, uint64_t alignment) {
    memory.push_back(std::make_unique<GuardedMemory>(bytes, alignment, placed));
    operands.memory.at(operands.count) = memory.back().get();
    operands.names[operands.count++] = name;
    return memory.back()->data();
  };
  operands.count = 0;
  std::vector<const void*> inputs;
  for (size_t i = 0; i < query.inputs.size(); ++i) {
    const TensorSpec& spec = query.inputs[i];
    uint64_t bytes = spec.extent_bytes(), alignment = dtype_size(spec.dtype);
    for (const Packing& packing : kernel.packings())
      if (packing.input == static_cast<int>(i)) bytes = packing.bytes, alignment = plan::kAlignment;
    inputs.push_back(given.present[i] ? add("input", bytes, alignment) : nullptr);
  }
  std::vector<void*> outputs;
  for (const TensorSpec& spec : query.outputs)
    outputs.push_back(add("output", spec.extent_bytes(), dtype_size(spec.dtype)));
  void* const workspace =
      kernel.workspace_bytes() == 0 ? nullptr : add("workspace", kernel.workspace_bytes(), plan::kAlignment);
  kernel.run({.inputs = inputs.data(), .outputs = outputs.data(), .workspace = workspace});
  for (size_t i = 0; i < operands.count; ++i) {
    if (operands.memory[i]->intact()) continue;
    std::snprintf(told->fault, sizeof(told->fault), "wrote behind its %s: %s", operands.names[i], told->now);
    _exit(kStopped);
  }
  operands.count = 0;
}

GuardCase pack_of(const plan::KernelQuery& query, const Packing& packing) {
  GuardCase pack{{.op = "pack",
                  .attrs = {},
                  .inputs = {query.inputs[static_cast<size_t>(packing.input)]},
                  .outputs = {dense({static_cast<int64_t>(packing.bytes)}, DType::kUInt8)},
                  .device = {}}};
  pack.present = {true};
  return pack;
}

// Every implementation of a call, twice; those that read packed weights as well.
void run_case(uint64_t number, const GuardCase& drawn, size_t op) {
  const KernelDef& def = *cpu_table().find(drawn.query.op, DeviceKind::kCpu);
  const PrepareContext context{.threads = drawn.query.cores, .kernels = &cpu_table()};
  std::vector<plan::KernelQuery> queries = {drawn.query};
  if (def.implementations) {
    for (const std::string& name : def.implementations(drawn.query, context)) {
      queries.push_back(drawn.query);
      queries.back().attrs.emplace_back(plan::kImplementation, name);
    }
  }
  if (!def.packs.empty()) {
    queries.push_back(drawn.query);
    queries.back().packed = def.packs;
  }
  const uint64_t begin = 1000 * number;
  for (size_t i = 0; i < queries.size(); ++i) {
    const auto implementation = plan::beside<std::string>(queries[i].attrs, plan::kImplementation, "the usual");
    std::unique_ptr<PreparedKernel> kernel;
    for (const Placed placed : {Placed::kAtEnd, Placed::kAtBegin}) {
      const uint64_t at = begin + 2 * i + (placed == Placed::kAtBegin ? 1 : 0);
      if (at < told->next) continue;
      told->next = at;
      std::snprintf(told->now, sizeof(told->now), "case %llu: %s, implementation '%s'%s, %s",
                    static_cast<unsigned long long>(number), drawn.text().c_str(), implementation.c_str(),
                    queries[i].packed.empty() ? "" : ", packed",
                    placed == Placed::kAtEnd ? "at the end" : "at the begin");
      if (kernel == nullptr) kernel = def.prepare(queries[i], context);
      run_between_pages(*kernel, {queries[i], drawn.present}, placed);
      for (const Packing& packing : kernel->packings())
        run_between_pages(*packing.kernel, pack_of(queries[i], packing), placed);
      ++told->counts[op];
    }
  }
}

// Run by RunsWithinItsMemory alone.
TEST(GuardPagesChild, Runs) {
  const char* const request = std::getenv(kRequest);
  if (request == nullptr) return;
  char path[512];
  unsigned long long count = 0, every = 1;
  ASSERT_EQ(std::sscanf(request, "%511s %llu %llu", path, &count, &every), 3);
  told = map_report(path);
  ASSERT_NE(told, nullptr);
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO;
  for (const int signal : {SIGSEGV, SIGBUS}) sigaction(signal, &action, nullptr);
  limit_instruction_sets();
  std::map<std::string, size_t> index;
  for (const std::string& op : swept_ops()) index.emplace(op, index.size());
  for (uint64_t n = 0; n < count; ++n) {
    const uint64_t number = n * every;
    if (1000 * number + 999 < told->next) continue;
    const std::string op = guard_case(number).query.op;
    if (cpu_table().find(op, DeviceKind::kCpu) == nullptr) {  // of processors with VNNI alone
      ASSERT_TRUE(op.starts_with("int8_")) << op;
      continue;
    }
    try {
      run_case(number, guard_case(number), index.at(op));
    } catch (const std::exception& error) {
      std::snprintf(told->fault, sizeof(told->fault), "threw '%s': %s", error.what(), told->now);
      _exit(kStopped);
    }
    told->next = 1000 * (number + 1);
  }
  // Zeros are no inputs for all of them (indices of ops that count from one, pictures): what is refused is left out.
  const std::vector<GuardCase> samples = guard_samples(cpu_table());
  for (size_t i = 0; i < samples.size(); i += long_run() ? 1 : 7) {
    const uint64_t number = kSamplesFrom + i;
    if (1000 * number + 999 < told->next) continue;
    try {
      run_case(number, samples[i], index.size());
    } catch (const Error&) {
    }
    told->next = 1000 * (number + 1);
  }
  told->over = true;
}

// A planted fault is found: a byte beyond either end, read or written, and one within the alignment.
TEST(GuardPages, FindTheFirstByteBeyond) {
  const auto touch = [](Placed placed, int64_t at, bool writes) {
    return in_processes(1, [=](int) {
      signal(SIGSEGV, SIG_DFL);  // sanitizers have a handler, which exits with a status of its own
      const GuardedMemory memory(10, 1, placed);
      volatile std::byte* const byte = memory.data() + at;
      if (writes)
        *byte = std::byte{1};
      else
        (void)*byte;
      return 0;
    })[0];
  };
  for (const bool writes : {false, true}) {
    EXPECT_EQ(touch(Placed::kAtEnd, 9, writes), 0);
    EXPECT_EQ(touch(Placed::kAtEnd, 10, writes), 128 + SIGSEGV);
    EXPECT_EQ(touch(Placed::kAtBegin, 0, writes), 0);
    EXPECT_EQ(touch(Placed::kAtBegin, -1, writes), 128 + SIGSEGV);
  }
  const GuardedMemory memory(10, 64, Placed::kAtEnd);
  EXPECT_TRUE(memory.intact());
  memory.data()[9] = std::byte{1};
  EXPECT_TRUE(memory.intact());
  memory.data()[10] = std::byte{1};
  EXPECT_FALSE(memory.intact());
}

// --- the parent
bool has_isa(const std::string& name) {
#if defined(__x86_64__)
  if (name == "avx2") return __builtin_cpu_supports("avx2") != 0;
  if (name == "avx512" || name.empty())
    return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0;
#endif
  return true;
}

class SoakGuardPages : public testing::TestWithParam<const char*> {};

TEST_P(SoakGuardPages, EveryKernelStaysWithinItsMemory) {
  const std::string isa = GetParam();
  if (!has_isa(isa)) return;  // there is nothing of the set to be run here
  const char* const asked = std::getenv("SLUICE_MAX_ISA");
  constexpr int64_t kQuick = 150;
  const int64_t cases = repetitions(kQuick, 6000);
  const std::string path = testing::TempDir() + fmt::format("guard_pages_{}_{}", getpid(), isa);
  Report* const report = map_report(path.c_str());
  ASSERT_NE(report, nullptr);
  // All children are other programs than this one, which has threads, and are told nothing by it but by their setting.
  std::vector<std::string> found;
  while (!report->over && found.size() < 50) {
    const pid_t child = fork();
    if (child == 0) {
      // A stride that is prime to the number of turns reaches every op in a part of the cases, too.
      setenv(kRequest, fmt::format("{} {} {}", path, cases, long_run() ? 1 : 83).c_str(), 1);
      if (isa.empty()) {
        if (asked == nullptr) unsetenv("SLUICE_MAX_ISA");
      } else {
        setenv("SLUICE_MAX_ISA", isa.c_str(), 1);
      }
      execl("/proc/self/exe", "kernels_tests", "--gtest_filter=GuardPagesChild.Runs", "--gtest_brief=1", nullptr);
      _exit(127);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    if (report->over) break;
    std::string fault = report->fault;
    if (fault.empty()) fault = fmt::format("ended with status {:#x}: {}", status, report->now);
    found.push_back(fault);
    report->fault[0] = '\0';
    ++report->next;
  }
  for (const std::string& fault : found) ADD_FAILURE() << fault;
  const std::vector<std::string> ops = swept_ops();
  std::string by_op;
  int64_t runs = 0;
  for (size_t i = 0; i < ops.size(); ++i) {
    const bool may_miss = cases < kQuick || ops[i].starts_with("int8_");  // as under sanitizers
    EXPECT_TRUE(may_miss || report->counts[i] > 0) << ops[i] << " was not run";
    by_op += fmt::format("{} {} {}", i == 0 ? " of kernels:" : ",", report->counts[i].load(), ops[i]);
    runs += static_cast<int64_t>(report->counts[i]);
  }
  EXPECT_GT(runs, 0) << "no kernel was run";
  EXPECT_GT(report->counts[ops.size()], 0u) << "no sample was run";
  by_op += fmt::format(", {} of samples of all ops", report->counts[ops.size()].load());
  runs += static_cast<int64_t>(report->counts[ops.size()]);
  report_count(fmt::format("guard pages, {}", isa.empty() ? "all instructions" : isa), runs, "runs" + by_op);
  munmap(report, sizeof(Report));
  unlink(path.c_str());
}
INSTANTIATE_TEST_SUITE_P(Sets, SoakGuardPages, testing::Values("baseline", "avx2", "avx512", ""),
                         [](const auto& info) { return std::string(*info.param ? info.param : "all"); });

}  // namespace
}  // namespace sluice::test
