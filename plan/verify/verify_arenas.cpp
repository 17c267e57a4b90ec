// Arenas: lifetimes recomputed from the programs, against the offsets. Independent of the packer.
#include <algorithm>
#include <map>
#include <memory>
#include <tuple>

#include "plan/firing/network.h"
#include "plan/verify.h"

namespace sluice::plan {
namespace {

struct Life {
  int64_t begin = 0, end = 0;  // begin <= t < end
};

class Arenas {
 public:
  Arenas(const Plan& plan, VerifyReport& report)
      : plan_(plan),
        report_(report),
        adjacency_(plan),
        users_(plan.buffers.size()),
        touches_(plan.buffers.size()),
        slot_of_(plan.buffers.size()) {}

  void run() {
    spaces();
    collect_users();
    std::vector<std::vector<int>> buffers(plan_.arenas.size());
    for (int b = 0; b < static_cast<int>(plan_.buffers.size()); ++b) buffers[plan_.buffers[b].arena].push_back(b);
    for (int a = 0; a < static_cast<int>(plan_.arenas.size()); ++a) {
      std::vector<int>& list = buffers[a];
      std::sort(list.begin(), list.end(),
                [&](int x, int y) { return plan_.buffers[x].offset < plan_.buffers[y].offset; });
      const auto [first, second] = first_overlap(list);
      if (first < 0) continue;
      if (plan_.arenas[a].stream < 0) {
        problem("arena '{}': {} and {} overlap; an arena without a stream holds disjoint buffers", plan_.arenas[a].name,
                range_str(first), range_str(second));
      } else {
        shared_arena(a, list);
      }
    }
  }

 private:
  template <class... Args>
  void problem(fmt::format_string<Args...> format, Args&&... args) {
    report_.problems.push_back({"arenas", fmt::format(format, std::forward<Args>(args)...)});
  }
  std::string range_str(int b) const {
    const Buffer& buffer = plan_.buffers[b];
    return fmt::format("'{}' (bytes {} to {})", buffer.name, buffer.offset, buffer.offset + buffer.bytes);
  }

  // A kernel's buffers must be where its device reaches them; what it does reach is the streams' business.
  void spaces() {
    for (const Arena& arena : plan_.arenas) {
      if (arena.stream < 0) continue;
      const Space& space = plan_.spaces[arena.space];
      const Stream& stream = plan_.streams[arena.stream];
      if (space.kind == SpaceKind::kDevice && space.device != stream.device) {
        problem("arena '{}': lies on {} but belongs to stream '{}' of {}", arena.name, space.device.str(), stream.name,
                stream.device.str());
      }
    }
  }

  void collect_users() {
    for (int r = 0; r < static_cast<int>(plan_.registers.size()); ++r) {
      for (const int slot : plan_.registers[r].slots) slot_of_[slot].push_back(r);
    }
    for (int a = 0; a < static_cast<int>(plan_.actors.size()); ++a) {
      const std::vector<Instr>& program = plan_.actors[a].program;
      for (int i = 0; i < static_cast<int>(program.size()); ++i) {
        const auto use = [&](int b, bool read) {
          if (users_[b].empty()) touches_[b] = {i, i, read};
          if (users_[b].empty() || users_[b].back() != a) users_[b].push_back(a);
          if (users_[b].size() == 1) touches_[b].last = i;
        };
        if (program[i].kind != InstrKind::kRun) continue;
        const Kernel& k = plan_.kernels[program[i].index];
        for (const View& v : k.inputs)
          if (v.base == BaseKind::kBuffer && !is_absent(v)) use(v.index, true);
        for (const View& v : k.outputs)
          if (v.base == BaseKind::kBuffer) use(v.index, false);
        if (k.workspace >= 0) use(k.workspace, false);
      }
    }
    for (int b = 0; b < static_cast<int>(plan_.buffers.size()); ++b) {
      for (const int r : slot_of_[b]) {
        const bool in_place = slot_of_[b].size() == 1 ||
                              std::all_of(slot_of_[b].begin(), slot_of_[b].end(),
                                          [&](int other) { return other == r || related(r, other, slot_of_[b]); });
        if (!in_place) {
          problem("buffer '{}': is a slot of '{}' and '{}', of which neither is in place of the other",
                  plan_.buffers[b].name, plan_.registers[slot_of_[b][0]].name, plan_.registers[slot_of_[b][1]].name);
          break;
        }
      }
      if (!slot_of_[b].empty() && !users_[b].empty()) {
        problem("buffer '{}': is a slot of '{}' and used by '{}' as a plain buffer; must be viewed as the register",
                plan_.buffers[b].name, plan_.registers[slot_of_[b][0]].name, plan_.actors[users_[b][0]].name);
      }
    }
  }

  // Registers that share slots must form a chain, each in place of an edge of the one before.
  // The number of steps is bounded by the number of registers, because a plan that is checked may have a circle of
  // them.
  bool related(int r, int other, const std::vector<int>& all) const {
    const auto parent = [&](int reg) {
      const int e = plan_.registers[reg].in_place_of;
      return e < 0 ? -1 : plan_.edges[e].reg;
    };
    const auto root = [&](int reg) {
      for (size_t i = 0; i <= all.size() && parent(reg) >= 0; ++i) reg = parent(reg);
      return reg;
    };
    return root(r) == root(other);
  }

  // Two buffers of the list (sorted by offset) that share bytes, or -1.
  std::pair<int, int> first_overlap(const std::vector<int>& list) const {
    int reaching = -1;  // the buffer that ends last so far
    for (const int b : list) {
      if (plan_.buffers[b].bytes == 0) continue;
      if (reaching >= 0 && plan_.buffers[reaching].offset + plan_.buffers[reaching].bytes > plan_.buffers[b].offset)
        return {reaching, b};
      if (reaching < 0 || plan_.buffers[b].offset + plan_.buffers[b].bytes >
                              plan_.buffers[reaching].offset + plan_.buffers[reaching].bytes) {
        reaching = b;
      }
    }
    return {-1, -1};
  }

  // One stream's firings of one period, each instruction at its own time.
  struct Timeline {
    std::vector<std::vector<int64_t>> starts;  // per actor: time of the first instruction of each firing
    int64_t end = 0;
  };
  // The certificate is one order in which the firings of a period can come. order() shows afterwards that those which
  // share bytes come in this order only.
  const Timeline& timeline(int stream) {
    Timeline& t = timelines_[stream];
    if (!t.starts.empty()) return t;
    t.starts.resize(plan_.actors.size());
    for (const int a : report_.certificate) {
      if (plan_.actors[a].stream != stream) continue;
      t.starts[a].push_back(t.end);
      t.end += static_cast<int64_t>(plan_.actors[a].program.size()) + 1;
    }
    return t;
  }

  // First and last instruction of the program that touches the base, or {-1, -1}; `read_first`: the first is a read.
  struct Touch {
    int first = -1, last = -1;
    bool read_first = false;
  };
  Touch touch(int actor, BaseKind base, int index) const {
    Touch t;
    const std::vector<Instr>& program = plan_.actors[actor].program;
    for (int i = 0; i < static_cast<int>(program.size()); ++i) {
      bool reads = false, writes = false;
      if (program[i].kind == InstrKind::kRun) {
        const Kernel& k = plan_.kernels[program[i].index];
        for (const View& v : k.inputs) reads |= v.base == base && v.index == index;
        for (const View& v : k.outputs) writes |= v.base == base && v.index == index;
        writes |= base == BaseKind::kBuffer && k.workspace == index;
      } else if (base == BaseKind::kRegister) {
        writes = program[i].kind == InstrKind::kEmit ? program[i].index == index
                                                     : plan_.edges[program[i].index].reg == index;
      }
      if (!reads && !writes) continue;
      if (t.first < 0) {
        t.first = i;
        t.read_first = reads;
      }
      t.last = i;
    }
    return t;
  }

  // Tokens that come and go one by one: the k-th firings of its ends are about the k-th token.
  bool one_by_one(int r) const {
    const Register& reg = plan_.registers[r];
    const std::vector<int>& edges = adjacency_.register_edges[r];
    return reg.emit_every == 1 && reg.initial_tokens == 0 && reg.in_place_of < 0 &&
           plan_.actors[reg.producer].role != ActorRole::kFeed && std::all_of(edges.begin(), edges.end(), [&](int e) {
             return plan_.edges[e].take == 1 && plan_.edges[e].hold == 1;
           });
  }
  bool is_on(int actor, int stream) const { return plan_.actors[actor].stream == stream; }
  // The instruction of an actor that emits a register.
  int emit_of(int actor, int r) const {
    const std::vector<Instr>& program = plan_.actors[actor].program;
    return static_cast<int>(std::find(program.begin(), program.end(), Instr{InstrKind::kEmit, r}) - program.begin());
  }
  // The last kernel of an actor that reads a register's token.
  int last_read(int actor, int r) const {
    const std::vector<Instr>& program = plan_.actors[actor].program;
    const auto reads = [&](const View& v) { return v.base == BaseKind::kRegister && v.index == r; };
    int last = -1;
    for (int i = 0; i < static_cast<int>(program.size()); ++i) {
      if (program[i].kind != InstrKind::kRun) continue;
      const std::vector<View>& inputs = plan_.kernels[program[i].index].inputs;
      if (std::any_of(inputs.begin(), inputs.end(), reads)) last = i;
    }
    return last;
  }
  // The first actor of the stream that fires for a token only when `reader`, of another stream, has emitted something
  // behind its last use of that token; -1: nobody waits so.
  int waits_for(int reader, int r, int stream) {
    const Timeline& time = timeline(stream);
    int first = -1;
    for (const int told : adjacency_.out_registers[reader]) {
      if (!one_by_one(told) || emit_of(reader, told) < last_read(reader, r)) continue;
      for (const int e : adjacency_.register_edges[told]) {
        const int actor = plan_.edges[e].consumer;
        if (is_on(actor, stream) && (first < 0 || time.starts[actor] < time.starts[first])) first = actor;
      }
    }
    return first;
  }
  // The last register by which an actor of the stream lets `writer`, of another one, fire; -1: there is none.
  int lets_go(int writer, int stream) {
    const Timeline& time = timeline(stream);
    const auto when = [&](int told) {
      const int actor = plan_.registers[told].producer;
      return time.starts[actor].at(0) + emit_of(actor, told);
    };
    int last = -1;
    for (const int e : adjacency_.in_edges[writer]) {
      const int told = plan_.edges[e].reg;
      if (!one_by_one(told) || !is_on(plan_.registers[told].producer, stream)) continue;
      if (last < 0 || when(told) > when(last)) last = told;
    }
    return last;
  }

  // The lives of tokens that another stream reads or writes, where this one says when: it lets the writer go, and waits
  // for the readers. False where it does not.
  bool bracketed_lives(int r, int stream, std::vector<Life>& lives, std::vector<bool>& uses) {
    const int producer = plan_.registers[r].producer;
    if (!one_by_one(r)) return false;
    const Timeline& time = timeline(stream);
    const bool made_here = is_on(producer, stream);
    const int told = made_here ? -1 : lets_go(producer, stream);
    if (!made_here && told < 0) return false;
    const int first = made_here ? producer : plan_.registers[told].producer;
    const int begin = made_here ? touch(producer, BaseKind::kRegister, r).first : emit_of(first, told);
    std::vector<std::pair<int, int>> ends;  // actors of this stream, and instructions of theirs
    if (made_here) ends.emplace_back(producer, touch(producer, BaseKind::kRegister, r).last + 1);
    for (const int e : adjacency_.register_edges[r]) {
      const int reader = plan_.edges[e].consumer;
      const bool here = is_on(reader, stream);
      const int until = here ? reader : waits_for(reader, r, stream);
      if (until < 0) return false;
      ends.emplace_back(until, here ? touch(reader, BaseKind::kRegister, r).last + 1 : 0);
    }
    uses[first] = true;
    for (const auto& [actor, instruction] : ends) {
      if (time.starts[actor].size() != time.starts[first].size()) return false;
      uses[actor] = true;
    }
    for (size_t token = 0; token < time.starts[first].size(); ++token) {
      Life life{time.starts[first][token] + begin, 0};
      for (const auto& [actor, instruction] : ends)
        life.end = std::max(life.end, time.starts[actor][token] + instruction);
      lives.push_back(life);
    }
    return true;
  }

  // `uses` gets the actors of the stream whose order the lives rest on.
  void register_lives(int r, int stream, std::vector<Life>& lives, std::vector<bool>& uses) {
    const Register& reg = plan_.registers[r];
    const Timeline& time = timeline(stream);
    bool local = reg.initial_tokens == 0 && plan_.actors[reg.producer].role != ActorRole::kFeed &&
                 plan_.actors[reg.producer].stream == stream;
    for (const int e : adjacency_.register_edges[r]) local &= plan_.actors[plan_.edges[e].consumer].stream == stream;
    // A token that another stream uses, or that is there from the start, may be alive at any time of the period, unless
    // this stream says otherwise.
    if (!local) {
      if (!bracketed_lives(r, stream, lives, uses)) lives.push_back({0, time.end});
      return;
    }
    const std::vector<int64_t>& firings = time.starts[reg.producer];
    const Touch produced = touch(reg.producer, BaseKind::kRegister, r);
    for (size_t token = 0; token < firings.size() / reg.emit_every; ++token) {
      Life life{firings[token * reg.emit_every] + produced.first,
                firings[(token + 1) * reg.emit_every - 1] + produced.last + 1};
      if (reg.in_place_of >= 0) life.begin = firings[token * reg.emit_every];
      for (const int e : adjacency_.register_edges[r]) {
        const Edge& edge = plan_.edges[e];
        const size_t last = (token / edge.take + 1) * edge.hold - 1;
        const std::vector<int64_t>& consumed = time.starts[edge.consumer];
        life.end = std::max(life.end, consumed[last] + touch(edge.consumer, BaseKind::kRegister, r).last + 1);
      }
      lives.push_back(life);
    }
  }

  void buffer_lives(int b, int stream, std::vector<Life>& lives) {
    const Timeline& time = timeline(stream);
    for (const int actor : users_[b]) {
      if (plan_.actors[actor].stream != stream) {
        problem("buffer '{}': lies in the arena of stream '{}' but '{}' uses it on '{}'", plan_.buffers[b].name,
                plan_.streams[stream].name, plan_.actors[actor].name, plan_.streams[plan_.actors[actor].stream].name);
        return;
      }
      const Touch& t = touches_[b];
      // A buffer that is read before it is written holds something from an earlier firing.
      if (users_[b].size() > 1 || t.read_first) {  // its content outlives a firing
        lives.push_back({0, time.end});
        return;
      }
      for (const int64_t start : time.starts[actor]) lives.push_back({start + t.first, start + t.last + 1});
    }
  }

  void shared_arena(int arena, const std::vector<int>& buffers) {
    const int stream = plan_.arenas[arena].stream;
    struct Event {
      int64_t time;
      bool birth;
      int buffer;
    };
    std::vector<Event> events;
    std::vector<bool> uses(plan_.actors.size());
    bool outlive = false;  // some of the values outlive a firing
    for (const int b : buffers) {
      if (plan_.buffers[b].bytes == 0) continue;
      outlive |= !slot_of_[b].empty();
      std::vector<Life> lives;
      for (const int r : slot_of_[b]) {
        register_lives(r, stream, lives, uses);
        uses[plan_.registers[r].producer] = true;
        for (const int e : adjacency_.register_edges[r]) uses[plan_.edges[e].consumer] = true;
      }
      buffer_lives(b, stream, lives);
      for (const int a : users_[b]) uses[a] = true;
      std::sort(lives.begin(), lives.end(), [](const Life& x, const Life& y) { return x.begin < y.begin; });
      // Lives of one buffer that touch or overlap count as one life, since several registers in place of each other
      // share its bytes at the same time.
      Life open{0, -1};
      const auto close = [&] {
        if (open.end < 0) return;
        events.push_back({open.begin, true, b});
        events.push_back({open.end, false, b});
      };
      for (const Life& life : lives) {
        if (open.end >= life.begin) {
          open.end = std::max(open.end, life.end);
        } else {
          close();
          open = life;
        }
      }
      close();
    }
    std::sort(events.begin(), events.end(), [](const Event& x, const Event& y) {
      return std::tuple(x.time, x.birth, x.buffer) < std::tuple(y.time, y.birth, y.buffer);
    });
    std::map<uint64_t, int> live;  // by offset
    for (const Event& event : events) {
      const Buffer& buffer = plan_.buffers[event.buffer];
      if (!event.birth) {
        live.erase(buffer.offset);
        continue;
      }
      int clash = -1;
      const auto next = live.lower_bound(buffer.offset);
      if (next != live.end() && next->first < buffer.offset + buffer.bytes) clash = next->second;
      if (clash < 0 && next != live.begin()) {
        const int previous = std::prev(next)->second;
        if (plan_.buffers[previous].offset + plan_.buffers[previous].bytes > buffer.offset) clash = previous;
      }
      if (clash >= 0) {
        problem("arena '{}': {} and {} overlap while both are alive (at {})", plan_.arenas[arena].name,
                range_str(clash), range_str(event.buffer), moment_str(stream, event.time));
        return;
      }
      live.emplace(buffer.offset, event.buffer);
    }
    if (outlive) order(arena, stream, uses);
  }

  std::string moment_str(int stream, int64_t time) {
    const Timeline& t = timeline(stream);
    for (int a = 0; a < static_cast<int>(plan_.actors.size()); ++a) {
      for (const int64_t start : t.starts[a]) {
        const std::vector<Instr>& program = plan_.actors[a].program;
        if (time < start || time > start + static_cast<int64_t>(program.size())) continue;
        const size_t i = time - start;
        if (i < program.size() && program[i].kind == InstrKind::kRun) {
          return fmt::format("kernel '{}' of '{}'", plan_.kernels[program[i].index].name, plan_.actors[a].name);
        }
        return fmt::format("'{}'", plan_.actors[a].name);
      }
    }
    return fmt::format("time {}", time);
  }

  // The lifetimes above hold only if the firings cannot come in another order.
  void order(int arena, int stream, const std::vector<bool>& uses) {
    struct Firing {
      int actor;
      int64_t index;
    };
    std::vector<Firing> sequence;
    std::vector<int64_t> count(plan_.actors.size());
    for (const int a : report_.certificate) {
      if (plan_.actors[a].stream == stream && uses[a]) sequence.push_back({a, count[a]++});
    }
    if (sequence.empty()) return;
    const Firing first = sequence.front();
    sequence.push_back({first.actor, first.index + count[first.actor]});  // of the next period
    for (size_t i = 0; i + 1 < sequence.size(); ++i) {
      const Firing& a = sequence[i];
      const Firing& b = sequence[i + 1];
      if (a.actor == b.actor) continue;
      if (!fixed_) fixed_ = std::make_unique<FixedOrder>(plan_);
      if (fixed_->precedes(a.actor, a.index, b.actor, b.index)) continue;
      problem(
          "arena '{}': nothing makes '{}' (firing {}) come before '{}' (firing {}), which reuse its bytes; order "
          "them by a control register",
          plan_.arenas[arena].name, plan_.actors[a.actor].name, a.index, plan_.actors[b.actor].name, b.index);
      return;
    }
  }

  const Plan& plan_;
  VerifyReport& report_;
  const Adjacency adjacency_;
  std::vector<std::vector<int>> users_;    // per buffer: actors that use it as a plain buffer
  std::vector<Touch> touches_;             // per buffer: by its first user
  std::vector<std::vector<int>> slot_of_;  // per buffer: registers it is a slot of
  std::map<int, Timeline> timelines_;
  std::unique_ptr<FixedOrder> fixed_;
};

}  // namespace

void verify_arenas(const Plan& plan, VerifyReport& report) { Arenas(plan, report).run(); }

}  // namespace sluice::plan
