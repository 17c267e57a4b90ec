// The functions that make a plan of tasks, each by itself.
#include "compiler/planning/planning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/error_of.h"

namespace sluice::compiler {
namespace {

using testing::ElementsAre;

// Tasks on two streams of the cpu. Store 0 is the input "x", store 1 the variable "w".
struct Tasks {
  Tasks() {
    lowered.spaces = {{plan::SpaceKind::kHost, {}}};
    lowered.streams = {{"compute", {}, plan::StreamKind::kCompute, 0, 1}, {"host", {}, plan::StreamKind::kHost, 0, 1}};
    lowered.stream_space = {0, 0};
    lowered.feed_streams = lowered.sink_streams = {0};
    lowered.stores = {{Store::Kind::kInput, 0, 0, 64, "x"}, {Store::Kind::kVariable, 0, 0, 64, "w"}};
    lowered.variable_store = {1};
    lowered.writer = {-1};
  }
  static Operand operand(int store) { return {store, 0, TensorSpec::contiguous({DType::kFloat32, {16}})}; }
  // Returns the store that it writes: a new one, unless `into` says which.
  int add(const std::string& name, int stream, const std::vector<int>& reads, int into = -1) {
    Task task;
    task.name = task.op = name;
    task.stream = stream;
    for (int store : reads) task.inputs.push_back(operand(store));
    const int store = into >= 0 ? into : static_cast<int>(lowered.stores.size());
    if (into < 0) lowered.stores.push_back({Store::Kind::kTemp, -1, 0, 64, name});
    if (into == 1) lowered.writer[0] = static_cast<int>(lowered.tasks.size());
    task.outputs = {operand(store)};
    lowered.tasks.push_back(task);
    return store;
  }
  void output(int store) { lowered.outputs.push_back(operand(store)); }

  ActorSet actors(Granularity granularity = Granularity::kProgram) const {
    return make_actors(lowered, make_programs(lowered, granularity), 1, granularity);
  }
  graph::Graph graph() const {
    graph::Graph graph;
    graph.add_input("x", {DType::kFloat32, {16}});
    const graph::ValueId w = graph.add_variable("w", {DType::kFloat32, {16}});
    for (size_t k = 0; k < lowered.outputs.size(); ++k) graph.add_output(fmt::format("y{}", k), w);
    return graph;
  }

  Lowered lowered;
};

// "name: producer@task -> consumer@task, ..." of each.
std::vector<std::string> lines(const std::vector<Channel>& channels) {
  std::vector<std::string> lines;
  for (const Channel& c : channels) {
    std::vector<std::string> consumers;
    for (const Channel::Consumer& consumer : c.consumers)
      consumers.push_back(fmt::format("{}@{}", consumer.actor, consumer.task));
    lines.push_back(fmt::format("{}: {}@{} -> {}", c.name, c.producer, c.task, fmt::join(consumers, ", ")));
  }
  return lines;
}

// x -> a (compute) -> b (host) -> c (compute) -> output; a is read again by c.
Tasks there_and_back() {
  Tasks tasks;
  const int a = tasks.add("a", 0, {0}), b = tasks.add("b", 1, {a});
  tasks.output(tasks.add("c", 0, {b, a}));
  return tasks;
}

TEST(Planning, ActorsAreFeedProgramsAndSink) {
  const ActorSet actors = there_and_back().actors();
  std::vector<std::string> names;
  for (const plan::Actor& a : actors.actors) names.push_back(a.name);
  EXPECT_THAT(names, ElementsAre("inputs", "compute", "host", "compute#2", "outputs"));
  EXPECT_THAT(actors.actor_of, ElementsAre(1, 2, 3));
  EXPECT_THAT(actors.of_stream, ElementsAre(ElementsAre(1, 3), ElementsAre(2)));
  EXPECT_THAT(actors.position, ElementsAre(0, 0, 1));
  EXPECT_EQ(actors.sink(0), 4);
}

TEST(Planning, UsesNameOtherActorsAndTheirLastTask) {
  const Tasks tasks = there_and_back();
  const std::vector<StoreUse> uses = find_uses(tasks.lowered, tasks.actors());
  EXPECT_EQ(uses[0].writer, -1);
  EXPECT_EQ(uses[2].writer, 0);
  EXPECT_THAT(uses[2].consumers, ElementsAre(std::pair(2, 1), std::pair(3, 2)));
  EXPECT_TRUE(uses[4].output);
  EXPECT_FALSE(uses[2].output);
}

struct Planned {
  explicit Planned(const Tasks& tasks, const CompileOptions& options = {})
      : lowered(tasks.lowered),
        actors(tasks.actors(options.granularity)),
        uses(find_uses(lowered, actors)),
        data(data_channels(tasks.graph(), lowered, actors, uses, {false, {1, 1}}, options)) {}
  const Lowered lowered;
  const ActorSet actors;
  const std::vector<StoreUse> uses;
  const DataChannels data;
};

TEST(Planning, DataChannelsFollowWhatOtherActorsRead) {
  const Planned p(there_and_back());
  EXPECT_THAT(lines(p.data.channels),
              ElementsAre("x: 0@-1 -> 1@0", "a: 1@0 -> 2@1, 3@2", "b: 2@1 -> 3@2", "y0: 3@2 -> 4@-1"));
  EXPECT_EQ(p.data.channels[0].quota, 2);
  EXPECT_TRUE(p.data.channels[0].fixed_quota);
  EXPECT_FALSE(p.data.channels[1].fixed_quota);
  EXPECT_THAT(p.data.of_store, ElementsAre(0, -1, 1, 2, 3));
}

TEST(Planning, ActorsOfAStreamWithMemoryRunInOneOrder) {
  Tasks tasks;
  const int a = tasks.add("a", 0, {0}), b = tasks.add("b", 1, {a}), kept = tasks.add("kept", 0, {b});
  tasks.output(tasks.add("c", 0, {kept}));
  const Planned p(tasks);
  EXPECT_THAT(lines(stream_order(p.lowered, p.actors, p.data, {false, {1, 1}}, p.data.channels)),
              ElementsAre("order: compute -> compute#2: 1@-1 -> 3@-1", "order: compute#2 -> compute: 3@-1 -> 1@-1"));
  const Planned free(there_and_back());  // every value of it is in a register of its own
  EXPECT_THAT(lines(stream_order(free.lowered, free.actors, free.data, {false, {1, 1}}, free.data.channels)),
              ElementsAre());
}

TEST(Planning, ReadersOfAVariableComeBeforeItsWriterAndAfterTheLast) {
  Tasks tasks;
  const int read = tasks.add("read", 1, {1});
  tasks.add("write", 0, {0}, 1);
  tasks.output(read);
  const Planned p(tasks);
  const std::vector<Channel> order = variable_order(p.lowered, p.actors);
  EXPECT_THAT(lines(order), ElementsAre("read: host -> compute: 1@0 -> 2@-1", "written: compute -> host: 2@1 -> 1@-1"));
  EXPECT_EQ(order[1].initial_tokens, 1);
}

TEST(Planning, EveryActorIsStartedAndHeard) {
  Tasks tasks;
  tasks.output(tasks.add("made", 1, {}));
  tasks.add("write", 0, {0}, 1);
  const Planned p(tasks);
  EXPECT_THAT(lines(start_and_finish(p.lowered, p.actors, p.data.channels, 3)),
              ElementsAre("done: compute: 2@-1 -> 3@-1", "start: 0@-1 -> 1@-1"));
}

TEST(Planning, ProgramsEmitAfterTheTaskAndReleaseAfterTheLastUse) {
  const Planned p(there_and_back());
  const auto programs = write_programs(p.actors, p.data.channels);
  using enum plan::InstrKind;
  EXPECT_EQ(programs[0], (std::vector<plan::Instr>{{kEmit, 0}}));
  EXPECT_EQ(programs[1], (std::vector<plan::Instr>{{kRun, 0}, {kEmit, 1}, {kRelease, 0}}));
  EXPECT_EQ(programs[3], (std::vector<plan::Instr>{{kRun, 2}, {kEmit, 3}, {kRelease, 2}, {kRelease, 3}}));
  EXPECT_EQ(programs[4], (std::vector<plan::Instr>{{kRelease, 4}}));
}

TEST(Planning, EdgesTakeAndHoldAsOftenAsTheirEndsFire) {
  ActorSet actors = there_and_back().actors();
  actors.every = {1, 1, 4, 1, 4};
  std::vector<Channel> channels(3);
  channels[0] = {.name = "up", .producer = 1, .consumers = {{2, 1}}};
  channels[1] = {.name = "down", .producer = 2, .consumers = {{3, 2}}};
  channels[2] = {.name = "sum", .producer = 1, .emit_every = 4, .consumers = {{2, 1}}};
  const RegisterSet set = make_registers(actors, channels);
  const auto rates = [&](int e) { return std::pair(set.edges[e].take, set.edges[e].hold); };
  EXPECT_EQ(rates(0), std::pair(4, 1));
  EXPECT_EQ(rates(1), std::pair(1, 4));
  EXPECT_EQ(rates(2), std::pair(1, 1));
}

TEST(Planning, ChannelsAreToldApartByName) {
  std::vector<Channel> channels(4);
  const char* given[] = {"start", "a", "a", "start"};
  for (int i = 0; i < 4; ++i) channels[i].name = given[i];
  tell_apart(channels);
  std::vector<std::string> names;
  for (const Channel& c : channels) names.push_back(c.name);
  EXPECT_THAT(names, ElementsAre("start", "a", "a#2", "start#2"));
}

// a -> b -> c -> output: b may lie in a, c in neither of them, since the sink reads it.
Tasks in_a_row() {
  Tasks tasks;
  const int a = tasks.add("a", 0, {0}), b = tasks.add("b", 0, {a});
  tasks.output(tasks.add("c", 0, {b}));
  for (Task& task : tasks.lowered.tasks) task.in_place = {{0, 0}};
  return tasks;
}

TEST(Planning, OutputsTakeOverInputsThatDie) {
  const Planned p(in_a_row());
  const RegisterSet registers = make_registers(p.actors, p.data.channels);
  const Sharing sharing = share_in_place(p.lowered, p.actors, p.uses, p.data, registers, {});
  EXPECT_THAT(sharing.with, ElementsAre(0, 1, 2, 2, 4));
  EXPECT_EQ(sharing.end[2], 3);
  const Memory memory = place_memory(p.lowered, p.actors, p.uses, p.data, registers.registers, sharing, {});
  EXPECT_THAT(memory.buffer_of, ElementsAre(-1, -1, memory.buffer_of[3], memory.buffer_of[2], -1));
  EXPECT_EQ(memory.slots[p.data.of_store[0]].size(), 2u);
  uint64_t bytes = 0;
  for (const plan::Arena& arena : memory.arenas) bytes += arena.bytes;
  EXPECT_EQ(bytes, 5 * 64u);  // two slots of x, two of the output, one buffer
  CompileOptions apart;
  apart.in_place = false;
  EXPECT_THAT(share_in_place(p.lowered, p.actors, p.uses, p.data, registers, apart).with, ElementsAre(0, 1, 2, 3, 4));
}

TEST(Planning, SlotsAreTakenOverWhereAnActorIsOneKernel) {
  CompileOptions options;
  options.granularity = Granularity::kOp;
  const Planned p(in_a_row(), options);
  const RegisterSet registers = make_registers(p.actors, p.data.channels);
  const Sharing sharing = share_in_place(p.lowered, p.actors, p.uses, p.data, registers, options);
  const int edge = sharing.in_place_of[p.data.of_store[3]];
  ASSERT_GE(edge, 0);
  EXPECT_EQ(registers.edges[edge].reg, p.data.of_store[2]);
  EXPECT_EQ(registers.edges[edge].consumer, p.actors.actor_of[1]);
}

// ---- donated inputs

CompileOptions donating(std::vector<std::string> inputs = {"x"}) {
  CompileOptions options;
  options.donated = std::move(inputs);
  return options;
}
// The input whose slots each output has, by names of channels: "y0 in x".
std::vector<std::string> laid(const Planned& p) {
  std::vector<std::string> pairs;
  for (size_t c = 0; c < p.data.channels.size(); ++c)
    if (const int from = p.data.in_slots_of[c]; from >= 0)
      pairs.push_back(p.data.channels[c].name + " in " + p.data.channels[from].name);
  return pairs;
}
std::vector<std::string> laid(const Tasks& tasks, const CompileOptions& options) {
  return laid(Planned(tasks, options));
}
// x -> a -> output, which may lie where x does.
Tasks updated() {
  Tasks tasks;
  tasks.output(tasks.add("a", 0, {0}));
  tasks.lowered.tasks[0].in_place = {{0, 0}};
  return tasks;
}

TEST(Planning, AnOutputLiesInTheSlotsOfADonatedInput) {
  for (const Granularity granularity : {Granularity::kProgram, Granularity::kOp}) {
    CompileOptions options = donating();
    options.granularity = granularity;
    const Planned p(updated(), options);
    ASSERT_THAT(laid(p), ElementsAre("y0 in x"));
    const RegisterSet registers = make_registers(p.actors, p.data.channels);
    const Sharing sharing = share_in_place(p.lowered, p.actors, p.uses, p.data, registers, options);
    ASSERT_THAT(sharing.in_place_of, ElementsAre(-1, 0));
    EXPECT_EQ(registers.edges[0].reg, 0);
    EXPECT_EQ(registers.edges[0].consumer, p.actors.actor_of[0]);
    const Memory memory = place_memory(p.lowered, p.actors, p.uses, p.data, registers.registers, sharing, {});
    EXPECT_EQ(memory.slots[0], memory.slots[1]);
    uint64_t bytes = 0;
    for (const plan::Arena& arena : memory.arenas) bytes += arena.bytes;
    EXPECT_EQ(bytes, 2 * 64u);
  }
  EXPECT_THAT(laid(updated(), {}), ElementsAre()) << "x is not donated";
  CompileOptions apart = donating();
  apart.in_place = false;
  EXPECT_THAT(laid(updated(), apart), ElementsAre());
}

TEST(Planning, ADonatedInputThatIsReadEarlierIsKeptUntilTheOutputIsWritten) {
  Tasks tasks = in_a_row();
  for (Task& task : tasks.lowered.tasks) task.in_place.clear();
  const Planned p(tasks, donating());
  EXPECT_THAT(laid(p), ElementsAre("y0 in x"));
  EXPECT_THAT(lines(p.data.channels), ElementsAre("x: 0@-1 -> 1@2", "y0: 1@2 -> 2@-1"));
  using enum plan::InstrKind;
  EXPECT_EQ(write_programs(p.actors, p.data.channels)[1],
            (std::vector<plan::Instr>{{kRun, 0}, {kRun, 1}, {kRun, 2}, {kEmit, 1}, {kRelease, 0}}));
}

TEST(Planning, DonatedInputsThatAreNeededStayAsTheyAre) {
  Tasks read_meanwhile = updated();
  read_meanwhile.lowered.tasks[0].in_place.clear();
  EXPECT_THAT(laid(read_meanwhile, donating()), ElementsAre()) << "the kernel reads x while it writes";
  Tasks read_twice = updated();
  read_twice.lowered.tasks[0].inputs.push_back(Tasks::operand(0));
  EXPECT_THAT(laid(read_twice, donating()), ElementsAre()) << "the kernel reads x in another place, too";
  Tasks read_later;
  const int a = read_later.add("a", 0, {0});
  read_later.output(a);
  read_later.output(read_later.add("b", 0, {0, a}));
  read_later.lowered.tasks[0].in_place = {{0, 0}};
  EXPECT_THAT(laid(read_later, donating()), ElementsAre()) << "b reads it after a";
  Tasks read_elsewhere = updated();
  read_elsewhere.output(read_elsewhere.add("b", 1, {0}));
  EXPECT_THAT(laid(read_elsewhere, donating()), ElementsAre()) << "another stream reads it";
  Tasks smaller = updated();
  smaller.lowered.stores[2].bytes = 32;
  EXPECT_THAT(laid(smaller, donating()), ElementsAre());
  Tasks elsewhere = updated();
  elsewhere.lowered.spaces.push_back({plan::SpaceKind::kPinned, {0, DeviceKind::kCuda, 0}});
  elsewhere.lowered.stores[2].space = 1;
  EXPECT_THAT(laid(elsewhere, donating()), ElementsAre());
  CompileOptions more_slots = donating();
  more_slots.quotas["y0"] = 3;
  EXPECT_THAT(laid(updated(), more_slots), ElementsAre()) << "slots do not go round in step";
}

TEST(Planning, OneOutputPerDonatedInputAndThoseFirstThatAreMadeOfIt) {
  Tasks tasks;
  const int other = tasks.add("other", 0, {1}), made = tasks.add("made", 0, {0});
  tasks.output(other);
  tasks.output(made);
  tasks.output(tasks.add("later", 0, {1}));
  tasks.lowered.tasks[1].in_place = {{0, 0}};
  EXPECT_THAT(laid(tasks, donating()), ElementsAre("y1 in x"));
}

TEST(Planning, WithoutReuseBuffersLieBesideEachOther) {
  const Planned p(in_a_row());
  const RegisterSet registers = make_registers(p.actors, p.data.channels);
  CompileOptions apart;
  apart.in_place = false;
  const Sharing sharing = share_in_place(p.lowered, p.actors, p.uses, p.data, registers, apart);
  CompileOptions options;
  options.reuse_memory = false;
  const Memory memory = place_memory(p.lowered, p.actors, p.uses, p.data, registers.registers, sharing, options);
  EXPECT_NE(memory.buffers[memory.buffer_of[2]].offset, memory.buffers[memory.buffer_of[3]].offset);
}

TEST(Planning, NamedQuotasAreOfRegistersThatAreThere) {
  plan::Plan plan;
  plan.registers.resize(1);
  plan.registers[0].name = "x";
  plan.registers[0].bytes = 4;
  const auto refusal = [&](const std::string& name, int quota) {
    CompileOptions options;
    options.quotas = {{name, quota}};
    return test::error_of([&] { choose_quotas(plan, Lowered(), {true}, options, 0); });
  };
  EXPECT_EQ(refusal("y", 2), "value: quota of register 'y': there is no such register; the plan has x");
  EXPECT_EQ(refusal("x", 0), "value: quota of register 'x': 0; must be from 1 to 65536");
  EXPECT_EQ(refusal("x", 1'000'000'000), "value: quota of register 'x': 1000000000; must be from 1 to 65536");
}

}  // namespace
}  // namespace sluice::compiler
