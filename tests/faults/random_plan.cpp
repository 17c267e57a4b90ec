#include "faults/random_plan.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <random>

#include "plan/time/fast_quotas.h"
#include "plan/verify/quota.h"
#include "runtime/fixture.h"
#include "support/accelerator.h"

namespace sluice::test {
namespace {

constexpr uint64_t kBytes = kN * sizeof(float);

// The place on which an actor runs. kUp and kDown copy to and from the device.
enum class Place : uint8_t { kHost, kUp, kDevice, kDown };

class Generator {
 public:
  Generator(uint64_t seed, const RandomPlanOptions& options)
      : options_(options), random_(seed), b_("random " + std::to_string(seed)) {}

  Plan make() {
    streams();
    actors();
    steps();
    forward();
    if (options_.sources) sources();
    if (options_.feedback) feedback();
    if (options_.variables) variables();
    in_place();
    registers();
    programs();
    interface();
    return finish();
  }

 private:
  // One register to be, and who reads it.
  struct Channel {
    int producer = 0;
    bool data = true;
    int emit_every = 1, initial = 0;
    bool alone = false;  // takes no further readers
    std::vector<int> readers;
    int in_place_of = -1;  // channel
    int reg = -1;
  };
  struct Member {
    int actor = 0;  // in the plan
    Place place = Place::kHost;
    int firings = 1;           // per period
    std::vector<int> in, out;  // channels
    std::vector<int> reads;    // variables
    std::vector<int> writes;
  };

  int below(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  bool chance(int percent) { return below(100) < percent; }
  int last() const { return static_cast<int>(members_.size()) - 1; }
  bool copies(int m) const { return members_[m].place == Place::kUp || members_[m].place == Place::kDown; }
  bool makes_on_device(int m) const { return members_[m].place == Place::kUp || members_[m].place == Place::kDevice; }
  bool reads_on_device(int m) const { return members_[m].place == Place::kDevice || members_[m].place == Place::kDown; }

  void streams() {
    const int n = 1 + below(options_.streams);
    for (int s = 0; s < n; ++s) {
      host_streams_.push_back(b_.stream("cpu:0", chance(50) ? StreamKind::kHost : StreamKind::kCompute, s));
    }
    if (!options_.device) return;
    up_ = b_.stream(accelerator().str(), StreamKind::kCopyIn);
    device_ = b_.stream(accelerator().str(), StreamKind::kCompute);
    down_ = b_.stream(accelerator().str(), StreamKind::kCopyOut);
    space_ = b_.space(SpaceKind::kDevice, accelerator().str());
  }

  void add(const std::string& name, int stream, Place place, ActorRole role = ActorRole::kNormal) {
    Member m;
    m.actor = b_.actor(name, stream, role);
    m.place = place;
    m.firings = period_;
    // Any number that divides the period; most actors fire as the feed does.
    if (role != ActorRole::kFeed && chance(35)) {
      do {
        m.firings = 1 + below(period_);
      } while (period_ % m.firings != 0);
    }
    members_.push_back(m);
  }

  void actors() {
    constexpr int kPeriods[] = {2, 3, 4, 6};
    if (options_.rates && chance(40)) period_ = kPeriods[below(4)];
    const auto host = [&] { return host_streams_[below(static_cast<int>(host_streams_.size()))]; };
    add("feed", host(), Place::kHost, ActorRole::kFeed);
    for (int n = options_.sources ? below(8) - 4 : 0; n > 0; --n)
      add("source" + std::to_string(n - 1), host(), Place::kHost, ActorRole::kSource);
    const int n = options_.min_actors + below(options_.max_actors - options_.min_actors + 1);
    for (int i = 1; i + 1 < n;) {
      const auto name = [&i] { return "a" + std::to_string(i++); };
      if (options_.device && chance(25)) {
        add(name(), up_, Place::kUp);
        for (int k = below(4); k > 0; --k) add(name(), device_, Place::kDevice);
        add(name(), down_, Place::kDown);
      } else {
        add(name(), host(), Place::kHost);
      }
    }
    add("sink", host(), Place::kHost, ActorRole::kSink);
  }

  // A step is some of a period's firings: as many steps as divide those of the feed and of every source, and of the
  // sink.
  void steps() {
    if (!options_.rates) return;
    do {
      steps_ = 1 + below(period_);
    } while (period_ % steps_ != 0);
    for (Member& m : members_) {
      const ActorRole role = b_.plan.actors[m.actor].role;
      if (role == ActorRole::kSource && m.firings % steps_ != 0) m.firings = period_;
      if (role == ActorRole::kSink && m.firings > steps_ && m.firings % steps_ != 0) m.firings = period_;
      if (is_started(b_.plan.actors[m.actor])) b_.plan.actors[m.actor].starts = m.firings / steps_;
    }
  }

  // A source makes values that depend on what it made before.
  void sources() {
    for (int m = 1; m < last(); ++m) {
      if (b_.plan.actors[members_[m].actor].role != ActorRole::kSource) continue;
      const int c = channel(m, true, 1, members_[m].firings);
      channels_[c].alone = connect(c, m);
    }
  }

  // Whether `to` can read what `from` makes.
  bool readable(int from, int to) const { return makes_on_device(from) == reads_on_device(to); }

  // The rates by which `to` reads a channel: as many tokens per period as are made.
  std::pair<int, int> rates(const Channel& c, int to) const {
    const int made = members_[c.producer].firings / c.emit_every, firings = members_[to].firings;
    const int common = std::gcd(made, firings);
    return {made / common, firings / common};
  }

  int channel(int from, bool data, int emit_every, int initial) {
    Channel c;
    c.producer = from;
    c.data = data;
    c.emit_every = emit_every;
    c.initial = initial;
    channels_.push_back(c);
    members_[from].out.push_back(static_cast<int>(channels_.size()) - 1);
    return members_[from].out.back();
  }
  bool connect(int c, int to) {
    std::vector<int>& readers = channels_[c].readers;
    if (channels_[c].alone || std::find(readers.begin(), readers.end(), to) != readers.end()) return false;
    readers.push_back(to);
    members_[to].in.push_back(c);
    return true;
  }
  // A token for every firing, or one for several.
  int random_emit_every(int from) {
    const int firings = members_[from].firings;
    if (from == 0 || !chance(20)) return 1;
    const int every = 1 + below(firings);
    return firings % every == 0 ? every : 1;
  }
  // `to` reads something `from` makes, perhaps together with others.
  void read(int from, int to, bool data) {
    for (const int c : members_[from].out) {
      if (channels_[c].data == data && channels_[c].initial == 0 && chance(70) && connect(c, to)) return;
    }
    connect(channel(from, data, random_emit_every(from), 0), to);
  }

  void forward() {
    for (int m = 1; m <= last(); ++m) {
      if (is_started(b_.plan.actors[members_[m].actor])) continue;
      std::vector<int> from;
      for (int k = 0; k < m; ++k) {
        if (readable(k, m)) from.push_back(k);
      }
      const int n = static_cast<int>(from.size());
      const int inputs = copies(m) ? 1 : 1 + below(std::min(3, n));
      for (int i = 0; i < inputs; ++i) {
        // Mostly from near by, which makes long chains.
        const int back = chance(65) ? 1 + below(std::min(3, n)) : 1 + below(n);
        const int source = from[n - back];
        const std::vector<int>& in = members_[m].in;
        if (std::any_of(in.begin(), in.end(), [&](int c) { return channels_[c].producer == source; })) continue;
        read(source, m, true);
      }
      if (chance(10)) read(below(m), m, false);
    }
    for (int m = 1; m < last(); ++m) {
      const std::vector<int>& out = members_[m].out;
      if (std::any_of(out.begin(), out.end(), [&](int c) { return !channels_[c].readers.empty(); })) continue;
      if (!options_.dangling || chance(50)) read(m, chance(50) ? last() : m + 1 + below(last() - m), false);
    }
  }

  // From an actor to itself or one before it, with tokens for a whole period.
  void feedback() {
    for (int n = below(3); n > 0; --n) {
      const int to = 1 + below(last());
      const int from = chance(40) ? to : to + below(last() - to + 1);
      if (copies(to)) continue;
      const bool data = from != last() && to != last() && readable(from, to) && chance(60);
      const int c = channel(from, data, 1, members_[from].firings);
      channels_[c].alone = connect(c, to);
    }
  }

  // One actor updates each, others read it; tokens order the updates and the reads of every firing.
  void variables() {
    for (int n = below(3); n > 0; --n) {
      const int variable = b_.variable("w" + std::to_string(n), {kN});
      const int writer = 1 + below(last());
      if (members_[writer].place != Place::kHost || writer == last()) continue;
      members_[writer].reads.push_back(variable);
      members_[writer].writes.push_back(variable);
      // Batches between them would need more than one token.
      for (int k = period_ == 1 ? below(3) : 0; k > 0; --k) {
        const int reader = 1 + below(last());
        const Member& r = members_[reader];
        if (reader == writer || reader == last() || r.place != Place::kHost) continue;
        if (r.firings != members_[writer].firings) continue;
        if (std::find(r.reads.begin(), r.reads.end(), variable) != r.reads.end()) continue;
        members_[reader].reads.push_back(variable);
        const int first = std::min(reader, writer), second = std::max(reader, writer);
        const int there = channel(first, false, 1, 0), back = channel(second, false, 1, 1);
        channels_[there].alone = connect(there, second);
        channels_[back].alone = connect(back, first);
      }
    }
  }

  // Some actors write over what they alone read.
  void in_place() {
    for (int m = 1; m < last(); ++m) {
      if (copies(m) || !chance(30)) continue;
      for (const int c : members_[m].in) {
        const Channel& in = channels_[c];
        const auto [take, hold] = rates(in, m);
        if (!in.data || in.readers.size() != 1 || take != 1 || in.initial != 0) continue;
        const auto out = std::find_if(members_[m].out.begin(), members_[m].out.end(), [&, hold = hold](int o) {
          return channels_[o].data && channels_[o].initial == 0 && channels_[o].emit_every == hold;
        });
        if (out == members_[m].out.end()) continue;
        channels_[*out].in_place_of = c;
        break;
      }
    }
  }

  void registers() {
    // By producers, so that what is in place of another comes after it.
    for (const Member& m : members_) {
      for (const int c : m.out) {
        Channel& channel = channels_[c];
        RegOptions o;
        o.quota = std::max(1 + below(4), channel.initial);
        o.bytes = channel.data ? kBytes : 0;
        o.emit_every = channel.emit_every;
        o.initial_tokens = channel.initial;
        o.space = makes_on_device(channel.producer) ? space_ : 0;
        if (channel.in_place_of >= 0) o.in_place_of = b_.edge_of(channels_[channel.in_place_of].reg, m.actor);
        channel.reg = b_.reg("r" + std::to_string(c), m.actor, {}, o);
        for (const int reader : channel.readers) {
          const auto [take, hold] = rates(channel, reader);
          b_.edge(channel.reg, members_[reader].actor, take, hold);
        }
      }
    }
    quotas();
  }

  // A register in place of another has its quota; and none is below what its rates need.
  void quotas() {
    const Adjacency adjacency(b_.plan);
    std::vector<Register>& registers = b_.plan.registers;
    const auto root = [&](int r) {
      while (registers[r].in_place_of >= 0) r = b_.plan.edges[registers[r].in_place_of].reg;
      return r;
    };
    const int n = static_cast<int>(registers.size());
    for (int r = 0; r < n; ++r) {
      int& quota = registers[root(r)].quota;
      quota = std::max(quota, least_quota(b_.plan, adjacency, r));
    }
    for (int r = 0; r < n; ++r) registers[r].quota = registers[root(r)].quota;
  }

  std::vector<View> inputs_of(int m) const {
    std::vector<View> views;
    for (const int c : members_[m].in) {
      const Channel& channel = channels_[c];
      if (!channel.data) continue;
      const int take = rates(channel, m).first;
      views.push_back(b_.r(channel.reg, take - 1));
      if (take > 1 && !copies(m)) views.push_back(b_.r(channel.reg, 0));
    }
    return views;
  }

  // The views that an actor which feeds itself may read after it has written everything: there the tokens taken,
  // elsewhere the slots written.
  std::vector<View> inputs_once_written(int m) const {
    std::vector<View> views;
    for (const int c : members_[m].in) {
      const Channel& channel = channels_[c];
      if (channel.data && channel.producer == m) views.push_back(b_.r(channel.reg, rates(channel, m).first - 1));
    }
    for (const int c : members_[m].out) {
      const std::vector<int>& readers = channels_[c].readers;
      const bool own = std::find(readers.begin(), readers.end(), m) != readers.end();
      if (!views.empty() && channels_[c].data && !own) views.push_back(b_.r(channels_[c].reg));
    }
    return views;
  }

  void programs() {
    for (int m = 1; m < last(); ++m) {
      const Member& member = members_[m];
      std::vector<View> in = inputs_of(m), out;
      for (const int c : member.out) {
        if (channels_[c].data) out.push_back(b_.r(channels_[c].reg));
      }
      if (copies(m)) {
        for (const View& to : out) b_.run(member.actor, "copy", {in.front()}, {to});
        continue;
      }
      for (const int v : member.reads) in.push_back(b_.v(v));
      for (const int v : member.writes) out.push_back(b_.v(v));
      const auto mix = [&] { return "mix" + std::to_string(below(8)); };
      if (const Actor& actor = b_.plan.actors[member.actor]; actor.role == ActorRole::kSource) {
        b_.call(member.actor, actor.name, in, out);
        continue;
      }
      if (options_.branches && member.place == Place::kHost && !in.empty() && !out.empty() && chance(40)) {
        branch(m, in, out);
        continue;
      }
      if (const std::vector<View> again = inputs_once_written(m); !again.empty() && chance(70)) {
        b_.call(member.actor, mix(), in, out);
        b_.call(member.actor, mix(), again, out);
        continue;
      }
      if (!chance(30)) {
        if (!out.empty()) b_.call(member.actor, mix(), in, out);
        continue;
      }
      // In two kernels, with what can be told and given back in between.
      const int space = member.place == Place::kDevice ? space_ : 0;
      const View between = b_.of_buffer(b_.buffer("b" + std::to_string(m), kBytes, space), {kN});
      b_.call(member.actor, mix(), in, {between});
      for (const int c : member.out) {
        const bool early = !channels_[c].data && member.writes.empty() && chance(50);  // the update comes last
        if (early) b_.emit(member.actor, channels_[c].reg);
      }
      const auto overwritten = [&](int c) {
        return std::any_of(member.out.begin(), member.out.end(), [&](int o) { return channels_[o].in_place_of == c; });
      };
      for (const int c : member.in) {
        if (!overwritten(c) && chance(50)) b_.release(member.actor, channels_[c].reg);
      }
      if (!out.empty()) b_.call(member.actor, mix(), {between}, out);
    }
  }

  // An actor that computes in two ways and goes on with one; or lets only one of its outputs be there; or goes on with
  // one of its inputs. Which one, a variable of its own says, that changes with every firing.
  void branch(int m, const std::vector<View>& in, const std::vector<View>& out) {
    const int actor = members_[m].actor;
    const std::string name = "b" + std::to_string(m) + "_";
    int made = 0;
    const auto fresh = [&] { return b_.of_buffer(b_.buffer(name + std::to_string(made++), kBytes), {kN}); };
    const auto mix = [&] { return "mix" + std::to_string(below(8)); };
    const View state = b_.v(b_.variable(name + "state", {kN}));
    const auto pick = [&](int n) {
      const View index{BaseKind::kBuffer, b_.buffer(name + "index", 8), 0, 0,
                       TensorSpec::contiguous({DType::kInt64, {}})};
      b_.call(actor, mix(), {state}, {state});
      b_.call(actor, "pick" + std::to_string(n), {state}, {index});
      return index;
    };
    const auto split = [&](const View& index, const View& x, const std::vector<View>& to) {
      b_.run(actor, "case", {index, x}, to, 0, {{"n", static_cast<int64_t>(to.size())}});
    };
    const int what = below(10);
    if (what < 6) {
      const View index = pick(2), left = fresh(), right = fresh(), l = fresh(), r = fresh(), one = fresh();
      split(index, in[below(static_cast<int>(in.size()))], {left, right});
      b_.call(actor, mix(), {left}, {l});
      std::vector<View> both = in;
      both.push_back(right);
      b_.call(actor, mix(), both, {r});
      b_.run(actor, "esac", {index, l, r}, {one});
      b_.call(actor, mix(), {one}, out);
    } else if (what < 8) {
      const View all = fresh();
      b_.call(actor, mix(), in, {all});
      std::vector<View> to = out;
      if (to.size() < 3) to.push_back(fresh());
      split(pick(static_cast<int>(to.size())), all, to);
    } else {
      const View one = fresh();
      std::vector<View> from = in;
      from.insert(from.begin(), pick(static_cast<int>(in.size())));
      b_.run(actor, "esac", from, {one});
      b_.call(actor, mix(), {one}, out);
    }
  }

  void interface() {
    int inputs = 0, outputs = 0;
    for (const int c : members_[0].out) {
      if (channels_[c].data) b_.input("x" + std::to_string(inputs++), channels_[c].reg, b_.f32({kN}));
    }
    for (const View& view : inputs_of(last())) b_.output("y" + std::to_string(outputs++), view);
  }

  // A step has its slots in the feed's registers, and in what is in place of them, beside those of the period before.
  void hold_steps() {
    const std::vector<int> groups = plan::slot_groups(b_.plan);
    std::vector<int> least(groups.size(), 1);
    for (size_t r = 0; r < groups.size(); ++r) {
      const Actor& producer = b_.plan.actors[b_.plan.registers[r].producer];
      if (producer.role == ActorRole::kFeed && period_ > 1)
        least[groups[r]] = std::max(least[groups[r]], producer.starts + period_);
    }
    for (size_t r = 0; r < groups.size(); ++r)
      b_.plan.registers[r].quota = std::max(b_.plan.registers[r].quota, least[groups[r]]);
  }

  // Quotas that would block are replaced by the least that do not.
  Plan finish() {
    hold_steps();
    Plans first = b_;
    Plan plan = first.build(false);
    try {
      plan.certificate = find_schedule(plan);
      return plan;
    } catch (const Error&) {
      const std::vector<int> quotas = minimal_quotas(plan, std::vector<bool>(plan.registers.size()));
      for (size_t r = 0; r < quotas.size(); ++r) b_.plan.registers[r].quota = quotas[r];
      hold_steps();
    }
    return b_.build();
  }

  const RandomPlanOptions options_;
  std::mt19937_64 random_;
  Plans b_;
  std::vector<int> host_streams_;
  int up_ = -1, device_ = -1, down_ = -1, space_ = 0;
  int period_ = 1;  // firings of the feed
  int steps_ = 1;   // of a period
  std::vector<Member> members_;
  std::vector<Channel> channels_;
};

HostFunction mix(uint32_t salt) {
  return [salt](const KernelArgs& args, const std::vector<TensorSpec>& inputs, const std::vector<TensorSpec>& outputs) {
    uint32_t all = salt;
    uint32_t element[kN] = {};
    for (size_t k = 0; k < inputs.size(); ++k) {
      for (int64_t i = 0; i < kN; ++i) {
        const auto x = std::bit_cast<uint32_t>(static_cast<const float*>(args.inputs[k])[i]);
        element[i] = (std::rotl(element[i], 7) ^ x) * 0x9E3779B1u;
        all = (std::rotl(all, 5) ^ x) * 0x85EBCA6Bu;
      }
    }
    for (size_t o = 0; o < outputs.size(); ++o) {
      for (int64_t i = 0; i < kN; ++i) {
        uint32_t h = (element[i] ^ std::rotl(all, static_cast<int>(o + 1))) * 0xC2B2AE35u;
        h ^= h >> 15;
        static_cast<float*>(args.outputs[o])[i] = std::bit_cast<float>(0x3F800000u | (h & 0x7FFFFFu));
      }
    }
  };
}

// Which of n, by the bits of the first element.
HostFunction pick(uint32_t n) {
  return [n](const KernelArgs& args, const std::vector<TensorSpec>&, const std::vector<TensorSpec>&) {
    const auto bits = std::bit_cast<uint32_t>(*static_cast<const float*>(args.inputs[0]));
    *static_cast<int64_t*>(args.outputs[0]) = static_cast<int64_t>((bits >> 3) % n);
  };
}

}  // namespace

Plan random_plan(uint64_t seed, const RandomPlanOptions& options) { return Generator(seed, options).make(); }

const HostFunctions& mixes() {
  static const HostFunctions functions = [] {
    HostFunctions f;
    for (uint32_t s = 0; s < 8; ++s) f["mix" + std::to_string(s)] = mix(0x1234567u * (s + 1));
    for (uint32_t n = 1; n < 64; ++n) f["pick" + std::to_string(n)] = pick(n);
    for (uint32_t s = 0; s < 3; ++s) f["source" + std::to_string(s)] = mix(0x7654321u * (s + 1));
    return f;
  }();
  return functions;
}

}  // namespace sluice::test
