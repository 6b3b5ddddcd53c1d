#include "cpu_reference.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <memory>

#include "barg/constraint.h"
#include "cpu/cpu.h"
#include "model/quants.h"
#include "runtime/sampler_support.h"

namespace barg::cuda::cpu {
namespace {

using Words = std::vector<std::uint64_t>;

/// A language in which the same tokens may come everywhere.
class SameEverywhere final : public Constraint, public ConstraintState {
 public:
  SameEverywhere(Words language, Words fits) : language_(std::move(language)), fits_(std::move(fits)) {}
  std::unique_ptr<ConstraintState> start(bool) const override { return std::make_unique<SameEverywhere>(language_, fits_); }
  std::int32_t min_tokens() const override { return 1; }
  TokenMask mask(std::int32_t) override { return {set(fits_), set(language_)}; }
  void push(TokenId) override {}
  void rewind(std::int32_t) override {}

 private:
  static TokenSet set(const Words& words) {
    int count = 0;
    for (const std::uint64_t w : words) count += std::popcount(w);
    return {words, count};
  }
  Words language_, fits_;
};

bool has(const Words& words, std::size_t id) { return words.empty() || (words[id / 64] >> id % 64 & 1) != 0; }
bool has(const Ids& ids, std::int32_t id) { return std::find(ids.begin(), ids.end(), id) != ids.end(); }

/// Whether a static mask of the request lets `id` through.
bool let_through(const Choice& c, std::int32_t id) {
  return (c.allowed.empty() || has(c.allowed, id)) && !has(c.banned, id) && !has(c.ends, id);
}

std::vector<std::uint32_t> mask_of(const Choice& c, const Words& words) {
  std::vector<std::uint32_t> out((c.logits.size() + 31) / 32);
  for (std::size_t id = 0; id < c.logits.size(); ++id) {
    const bool in = has(words, id) && let_through(c, static_cast<std::int32_t>(id));
    out[id / 32] |= static_cast<std::uint32_t>(in) << id % 32;
  }
  return out;
}

std::shared_ptr<Request> request_of(const Choice& c) {
  SamplingParams p;
  p.temperature = c.temperature;
  p.top_p = c.top_p;
  p.min_p = c.min_p;
  p.top_k = c.top_k;
  p.repetition_penalty = c.repetition;
  p.frequency_penalty = c.frequency;
  p.presence_penalty = c.presence;
  p.seed = c.seed;
  p.logit_bias = c.biases;
  p.allowed_token_ids = c.allowed;
  p.banned_token_ids = c.banned;
  p.min_tokens = c.ends.empty() ? 0 : 1000;
  p.max_tokens = 1000;
  if (!c.language.empty()) p.constraint = std::make_shared<SameEverywhere>(c.language, c.fits);
  if (c.top_logprobs >= 0) p.logprobs = c.top_logprobs;
  return runtime::request_with(std::move(p), c.prompt);
}

}  // namespace

std::vector<float> embedded(std::uint32_t type, const std::vector<std::byte>& table, int vocab, int dim, const Ids& ids,
                            float scale) {
  std::vector<std::byte> rows = table;
  DType dtype = DType::kF32;
  switch (type) {
    case 1: dtype = DType::kF16; break;
    case 2: dtype = DType::kQ4_0; break;
    case 3: dtype = DType::kQ4_1; break;
    case 8: dtype = DType::kQ8_0; break;
    case 30: dtype = DType::kBF16; break;
    default: break;
  }
  if (const model::GgmlConversion* conversion = model::ggml_conversion(type); conversion != nullptr) {
    dtype = conversion->to;
    const std::size_t blocks = static_cast<std::size_t>(vocab) * static_cast<std::size_t>(dim) / 256;
    const std::size_t from = table.size() / blocks, to = 8 * block_bytes(dtype);
    rows.resize(blocks * to);
    for (std::size_t b = 0; b < blocks; ++b) conversion->convert(table.data() + b * from, rows.data() + b * to);
  }
  ops::CpuDevice device({.threads = 1, .isa = ops::Isa::kScalar});
  const ops::OpTable& ops = device.ops();
  const std::size_t bytes = ops.packed_bytes(dtype, vocab, dim, ops::Packing::kStored);
  std::vector<std::byte> memory(bytes + 64);
  void* packed = memory.data();
  std::size_t room = memory.size();
  std::align(64, bytes, packed, room);
  ops.pack(device.stream(), {.src = rows.data(), .n = vocab, .k = dim, .dtype = dtype, .dst = packed});
  std::vector<float> out(ids.size() * static_cast<std::size_t>(dim));
  ops.embed(device.stream(), {.table = {vocab, dim, dtype, packed},
                              .ids = ids.data(),
                              .rows = static_cast<std::int32_t>(ids.size()),
                              .scale = scale,
                              .out = out.data()});
  return out;
}

std::pair<std::vector<float>, std::vector<float>> rope_angles(const std::vector<float>& frequencies, float scale,
                                                              const Ids& positions) {
  std::vector<float> cos(positions.size() * frequencies.size()), sin(cos.size());
  ops::CpuDevice device({.threads = 1, .isa = ops::Isa::kScalar});
  device.ops().rope_angles(device.stream(), {.frequencies = frequencies.data(),
                                             .count = static_cast<std::int32_t>(frequencies.size()),
                                             .scale = scale,
                                             .positions = positions.data(),
                                             .rows = static_cast<std::int32_t>(positions.size()),
                                             .cos = cos.data(),
                                             .sin = sin.data()});
  return {std::move(cos), std::move(sin)};
}

void answer(Choice& c) {
  c.log_min_p = c.min_p > 0 ? runtime::exact_log(static_cast<double>(c.min_p)) : -std::numeric_limits<double>::infinity();
  c.position = static_cast<std::uint32_t>(c.prompt.size() + c.outputs.size());
  const bool masks = !c.language.empty() || !c.allowed.empty() || !c.banned.empty() || !c.ends.empty();
  c.mask = masks ? mask_of(c, c.language) : std::vector<std::uint32_t>{};
  c.fits_mask = c.fits.empty() ? std::vector<std::uint32_t>{} : mask_of(c, c.fits);
  const auto vocab = static_cast<std::int32_t>(c.logits.size());
  runtime::Sampler sampler(request_of(c), static_cast<std::int32_t>(c.number), vocab, c.ends);
  runtime::Bench bench(vocab);
  for (std::size_t i = 0; i < c.outputs.size(); ++i) {  // nothing else can be chosen
    std::vector<float> row(c.logits.size(), runtime::kMasked);
    row[static_cast<std::size_t>(c.outputs[i])] = 0;
    bench.sample(sampler, row, static_cast<std::int32_t>(i));
  }
  const auto out = bench.sample(sampler, c.logits, static_cast<std::int32_t>(c.outputs.size()));
  c.id = out ? out->id : kNoToken;
  if (!out) return;
  c.for_length = out->for_length;
  if (!out->logprobs) return;
  c.logprob = out->logprobs->logprob;
  c.rank = out->logprobs->rank;
  for (const TopLogprob& t : out->logprobs->top) c.top.emplace_back(t.id, t.logprob);
}

Choice random_choice(std::uint64_t seed, std::int32_t vocab) {
  Rng rng(seed);
  const SamplingParams p = runtime::random_params(rng, vocab);
  const auto some_id = [&] { return static_cast<std::int32_t>(rng.below(static_cast<std::uint64_t>(vocab))); };
  const auto one_in = [&](std::uint64_t n) { return rng.below(n) == 0; };
  Choice c;
  c.logits = runtime::random_row(rng, vocab);
  c.temperature = p.temperature;
  c.top_p = p.top_p;
  c.min_p = p.min_p;
  c.top_k = p.top_k;
  c.repetition = p.repetition_penalty;
  c.frequency = p.frequency_penalty;
  c.presence = p.presence_penalty;
  c.seed = *p.seed;
  c.number = static_cast<std::uint32_t>(rng.below(4));
  c.biases = p.logit_bias;
  if (!c.biases.empty() && one_in(2)) c.biases.emplace_back(c.biases.front().first, 0.3F);
  c.allowed = p.allowed_token_ids;
  c.banned = p.banned_token_ids;
  if (p.min_tokens > 0) c.ends = {some_id(), some_id()};
  if (one_in(4)) {
    const std::size_t words = (static_cast<std::size_t>(vocab) + 63) / 64;
    for (std::size_t w = 0; w < words; ++w) {
      const auto rest = static_cast<std::size_t>(vocab) - 64 * w;
      c.language.push_back(rng.next() & (rest >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << rest) - 1));
      c.fits.push_back(c.language.back() & rng.next());
    }
    c.ends.clear();
  }
  if (one_in(3)) c.top_logprobs = static_cast<std::int32_t>(rng.below(21));
  for (int i = 0; i < 6; ++i) c.prompt.push_back(some_id());
  for (int i = 0; i < 8; ++i) {
    const std::int32_t id = i < 4 ? some_id() : c.prompt[static_cast<std::size_t>(i)] ;
    if (let_through(c, id) && has(c.fits, static_cast<std::size_t>(id))) c.outputs.push_back(id);
  }
  answer(c);
  return c;
}

}  // namespace barg::cuda::cpu
