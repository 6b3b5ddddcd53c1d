#include "store/redis_ops.h"

#include <utility>

#include "store/redis_commands.h"

namespace barg::store {
namespace {

/// In bytes on the wire, about.
constexpr std::uint64_t kCommandCost = 128;
constexpr const char* kDamaged = "a value did not pass verification and was removed";

std::string remove_command(const std::string& name) { return resp_command({"DEL", name}); }

std::span<std::byte> bytes_of(std::vector<Sum128>& sums) { return std::as_writable_bytes(std::span(sums)); }

}  // namespace

std::vector<std::string> removal(const Digest& root, const Key& key, std::uint64_t part_bytes) {
  const std::string name = record_name(root, key);
  const Cut cut = cut_part(part_bytes);
  std::vector<std::string> out{remove_command(name)};
  for (std::uint32_t i = 0; cut.pieces > 1 && i < cut.pieces; ++i)
    out.push_back(remove_command(piece_name(name, i)));
  return out;
}

std::vector<std::string> renewal(const Digest& root, const Key& key, std::uint64_t part_bytes,
                                 std::uint64_t ttl_s) {
  const std::string name = record_name(root, key), ttl = std::to_string(ttl_s);
  const Cut cut = cut_part(part_bytes);
  std::vector<std::string> out{resp_command({"EXPIRE", name, ttl})};
  for (std::uint32_t i = 0; cut.pieces > 1 && i < cut.pieces; ++i) {
    out.push_back(resp_command({"EXPIRE", piece_name(name, i), ttl}));
  }
  return out;
}

// ---- get ----

RedisGet::RedisGet(RedisHub& hub, std::shared_ptr<const RedisBatch> batch, Ticket ticket, const GetItem& item,
                   double deadline)
    : RedisOp(ticket, deadline, item.to.length + kCommandCost),
      hub_(hub),
      batch_(std::move(batch)),
      item_(item),
      cut_(cut_part(item.to.length)) {}

RecordFacts RedisGet::facts(RecordKind kind, std::uint32_t piece) const {
  return {hub_.domain().root, item_.key, item_.info, cut_.length, kind, piece, cut_.pieces};
}

std::span<std::byte> RedisGet::piece_memory(std::uint32_t piece) const {
  return {item_.to.address + cut_.begin(piece), cut_.size(piece)};
}

void RedisGet::start(RedisWire& wire) {
  asked_at_ = hub_.now();
  name_ = record_name(hub_.domain().root, item_.key);
  wire.command(this, 0, resp_command({"GET", name_}));
  if (cut_.pieces == 1) return;
  sums_.resize(cut_.pieces);
  for (std::uint32_t i = 0; i < cut_.pieces; ++i) {
    wire.command(this, i + 1, resp_command({"GET", piece_name(name_, i)}));
  }
}

ValueSink* RedisGet::bulk(std::uint32_t index, std::uint64_t length) {
  length_fits_ = false;
  if (status_ != Status::kOk) return nullptr;
  std::span<std::byte> payload = bytes_of(sums_);
  if (index > 0) {
    payload = piece_memory(index - 1);
  } else if (cut_.pieces == 1) {
    payload = piece_memory(0);
  }
  if (length != kValueHeaderBytes + payload.size()) return nullptr;
  length_fits_ = true;
  sink_ = ValueSink(header_, payload);
  return &sink_;
}

/// The value for command `index` is there, in its place.
void RedisGet::check(std::uint32_t index) {
  if (status_ != Status::kOk) return;
  bool good = length_fits_;
  if (good && index == 0 && cut_.pieces == 1) {
    good = fits(header_, facts(RecordKind::kWhole, 0), piece_memory(0));
  } else if (good && index == 0) {
    good = fits(header_, facts(RecordKind::kHead, 0), bytes_of(sums_));
    have_head_ = good;
  } else if (good) {
    good = fits(header_, facts(RecordKind::kPiece, index - 1), piece_memory(index - 1)) &&
           header_sum(header_) == sums_[index - 1];
  }
  if (!good) worse(Status::kCorrupt);
}

bool RedisGet::reply(std::uint32_t index, const ServerReply& r, RedisWire& wire) {
  switch (r.kind) {
    case ServerReply::Kind::kBulk:
      check(index);
      break;
    case ServerReply::Kind::kNull:
      worse(Status::kMissing);
      break;
    case ServerReply::Kind::kError:
      worse(hub_.refused(r.text, false));
      break;
    default:
      return false;
  }
  if (++answers_ < (cut_.pieces == 1 ? 1 : cut_.pieces + 1)) return true;

  const bool torn =
      status_ == Status::kMissing && have_head_;  // a head without all its pieces would hide the lack
  if (status_ == Status::kCorrupt || torn) {
    for (std::string& c : removal(hub_.domain().root, item_.key, cut_.length))
      wire.command(nullptr, 0, std::move(c));
  }
  if (status_ == Status::kCorrupt) hub_.corrupt(kDamaged);
  if (status_ == Status::kOk) hub_.saw(item_.key, true, asked_at_);
  if (status_ == Status::kMissing || status_ == Status::kCorrupt) hub_.saw(item_.key, false, asked_at_);
  end(status_);
  return true;
}

void RedisGet::finish(Status status) {
  hub_.ended_get(status, item_.to.length);
  Report report{item_.key, item_.tag, status, hub_.now() - batch_->submitted};
  if (status == Status::kOk && cut_.pieces == 1) report.hash = hash_of(header_sum(header_));
  batch_->report(report);
}

// ---- put ----

RedisPut::RedisPut(RedisHub& hub, std::shared_ptr<const RedisBatch> batch, Ticket ticket, const PutItem& item,
                   bool admitted)
    : RedisOp(ticket, 0, item.from.length + kCommandCost),
      hub_(hub),
      batch_(std::move(batch)),
      item_(item),
      admitted_(admitted) {}

void RedisPut::start(RedisWire& wire) {
  cut_ = cut_part(item_.from.length);
  name_ = record_name(hub_.domain().root, item_.key);
  to_come_ = 1;
  const std::uint64_t ttl = hub_.ttl_s();
  wire.command(
      this, 0,
      ttl > 0 ? resp_command({"EXPIRE", name_, std::to_string(ttl)}) : resp_command({"EXISTS", name_}));
}

void RedisPut::write_value(RedisWire& wire, RecordKind kind, std::uint32_t piece) {
  const RecordFacts facts{hub_.domain().root, item_.key, item_.info, cut_.length, kind, piece, cut_.pieces};
  std::span<const std::byte> payload = std::as_bytes(std::span(sums_));
  if (kind != RecordKind::kHead) {
    payload = {item_.from.address + cut_.begin(piece), cut_.size(piece)};
    written_ += payload.size();
  }
  const bool known = kind == RecordKind::kWhole && item_.hash.has_value();
  const RecordHeader header = make_header(facts, payload.size(), known ? *item_.hash : payload_hash(payload));
  if (kind == RecordKind::kPiece) sums_[piece] = header_sum(header);
  SetCommand set = resp_set(kind == RecordKind::kPiece ? piece_name(name_, piece) : name_,
                            header.size() + payload.size(), hub_.ttl_s());
  set.head.append(reinterpret_cast<const char*>(header.data()), header.size());
  overhead_ += set.head.size() + set.tail.size();
  ++to_come_;
  wire.command(this, kind == RecordKind::kPiece ? 1 : 2, std::move(set.head), payload, std::move(set.tail));
}

void RedisPut::renew(RedisWire& wire) {
  if (hub_.ttl_s() == 0 || cut_.pieces == 1) return;
  for (std::string& c : renewal(hub_.domain().root, item_.key, cut_.length, hub_.ttl_s())) {
    wire.command(nullptr, 0, std::move(c));
  }
}

/// Index 0: is it there; 1: a piece; 2: the value or the head.
bool RedisPut::reply(std::uint32_t index, const ServerReply& r, RedisWire& wire) {
  --to_come_;
  if (r.kind == ServerReply::Kind::kError) {
    const Status s = hub_.refused(r.text, true);
    if (status_ == Status::kOk) status_ = s;
  } else if (index == 0) {
    if (r.kind != ServerReply::Kind::kInteger) return false;
    if (r.integer == 1) {
      renew(wire);
      hub_.saw(item_.key, true, 0);
      end(Status::kOk);
      return true;
    }
    sums_.resize(cut_.pieces > 1 ? cut_.pieces : 0);
    if (cut_.pieces == 1) write_value(wire, RecordKind::kWhole, 0);
    for (std::uint32_t i = 0; cut_.pieces > 1 && i < cut_.pieces; ++i)
      write_value(wire, RecordKind::kPiece, i);
    return true;
  } else if (r.kind != ServerReply::Kind::kSimple) {
    return false;
  }
  if (to_come_ > 0) return true;
  if (status_ == Status::kOk && index == 1) {
    write_value(wire, RecordKind::kHead, 0);
    return true;
  }
  if (status_ == Status::kOk) {
    hub_.saw(item_.key, true, 0);
    hub_.own(item_.key);
  }
  if (status_ != Status::kOk && written_ > 0 &&
      cut_.pieces > 1) {  // pieces without a head would only take room
    for (std::string& c : removal(hub_.domain().root, item_.key, cut_.length))
      wire.command(nullptr, 0, std::move(c));
  }
  end(status_ == Status::kCorrupt ? Status::kIoError : status_);
  return true;
}

void RedisPut::finish(Status status) {
  if (admitted_) hub_.ended_put(status, item_.from.length, status == Status::kOk ? written_ : 0, overhead_);
  batch_->report({item_.key, item_.tag, status, hub_.now() - batch_->submitted});
}

// ---- probe ----

void ProbeBatch::set(std::size_t i, Presence p) {
  const std::lock_guard lock(mutex_);
  answers_[i] = p;
}

void ProbeBatch::part_ended() {
  {
    const std::lock_guard lock(mutex_);
    if (--parts_ > 0) return;
  }
  done_(std::move(answers_));
}

RedisProbe::RedisProbe(RedisHub& hub, std::shared_ptr<ProbeBatch> batch, std::vector<Question> questions,
                       double deadline)
    : RedisOp(Ticket{0}, deadline, questions.size() * kCommandCost),
      hub_(hub),
      batch_(std::move(batch)),
      questions_(std::move(questions)) {}

void RedisProbe::start(RedisWire& wire) {
  asked_at_ = hub_.now();
  to_come_ = questions_.size();
  for (std::uint32_t i = 0; i < questions_.size(); ++i) {
    wire.command(this, i, resp_command({"EXISTS", record_name(hub_.domain().root, questions_[i].key)}));
  }
}

bool RedisProbe::reply(std::uint32_t index, const ServerReply& r, RedisWire&) {
  const Question& q = questions_[index];
  if (r.kind == ServerReply::Kind::kInteger) {
    hub_.saw(q.key, r.integer == 1, asked_at_);
    batch_->set(q.at, r.integer == 1 ? Presence::kPresent : Presence::kAbsent);
  } else if (r.kind == ServerReply::Kind::kError) {
    hub_.refused(r.text, false);
  } else {
    return false;
  }
  if (--to_come_ == 0) end(Status::kOk);
  return true;
}

void RedisProbe::finish(Status) { batch_->part_ended(); }

// ---- hints ----

RedisHint::RedisHint(std::vector<std::string> commands)
    : RedisOp(Ticket{0}, 0, commands.size() * kCommandCost), commands_(std::move(commands)) {}

void RedisHint::start(RedisWire& wire) {
  to_come_ = commands_.size();
  for (std::string& c : commands_) wire.command(this, 0, std::move(c));
}

bool RedisHint::reply(std::uint32_t, const ServerReply& r, RedisWire&) {
  if (r.kind == ServerReply::Kind::kBulk) return false;
  if (--to_come_ == 0) end(Status::kOk);
  return true;
}

}  // namespace barg::store
