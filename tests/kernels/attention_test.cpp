// Attention and the KV write: right against float64, and equal in bits whatever the instruction set,
// chunking, block size, block table, batch mates and threads. Arenas start as NaN, so a read of a slot that
// nobody wrote shows; blocks left of a window have no address at all.
#include <algorithm>
#include <numeric>
#include <utility>

#include "cpu/layout.h"
#include "fixture.h"

namespace barg::test::attention_test {
namespace {

struct Shape {
  int q_heads, kv_heads, dim;
  int window = 0;
  DType dtype = DType::kF32;
  int rotary = 0;
  float softcap = 0.0f;
  bool causal = true;
};

std::string name(const Shape& s) {
  return std::to_string(s.q_heads) + "/" + std::to_string(s.kv_heads) + " heads of " + std::to_string(s.dim) +
         " window " + std::to_string(s.window) + " " + dtype_name(s.dtype);
}

/// The inputs of one sequence, rows = positions.
struct Sequence {
  Sequence(const Shape& s, int length, Random& random)
      : length(length),
        q(random.normals(static_cast<std::size_t>(length) * s.q_heads * s.dim)),
        k(random.normals(static_cast<std::size_t>(length) * s.kv_heads * s.dim)),
        v(random.normals(static_cast<std::size_t>(length) * s.kv_heads * s.dim)),
        cos(random.normals(static_cast<std::size_t>(length) * s.rotary / 2)),
        sin(random.normals(static_cast<std::size_t>(length) * s.rotary / 2)) {}
  int length;
  std::vector<float> q, k, v, cos, sin;
};

/// What a call writes: its results, the prepared form of them, or both.
enum class Output { kFloats, kPrepared, kBoth };

/// A device with one arena; sequences get random blocks and run in any chunks.
class Runner {
 public:
  Runner(Isa isa, int threads, const Shape& shape, int block_tokens, int blocks, std::uint64_t seed,
         Output output = Output::kFloats)
      : device_(device(isa, threads)),
        shape_(shape),
        output_(output),
        arena_(*device_, shape.dtype, block_tokens, shape.kv_heads, shape.dim, blocks),
        free_(static_cast<std::size_t>(blocks)) {
    std::iota(free_.begin(), free_.end(), 0);
    std::mt19937_64 engine(seed);
    std::shuffle(free_.begin(), free_.end(), engine);
  }

  struct Running {
    const Sequence* sequence;
    int done = 0;
    std::vector<BlockId> table;
    std::vector<float> out;
  };

  Running start(const Sequence& sequence) {
    Running running{&sequence, 0, {}, {}};
    const int blocks = (sequence.length + arena_.view.block_tokens - 1) / arena_.view.block_tokens;
    for (int i = 0; i < blocks; ++i) {
      running.table.push_back(free_.back());
      free_.pop_back();
    }
    return running;
  }

  /// One step: the next `chunks[i]` tokens of each sequence, in one batch.
  void step(const std::vector<Running*>& sequences, const std::vector<int>& chunks) {
    std::vector<ops::Segment> segments;
    std::vector<std::vector<BlockId>> tables;
    std::vector<float> q, k, v, cos, sin;
    std::int32_t rows = 0;
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      Running& r = *sequences[i];
      const int n = std::min(chunks[i], r.sequence->length - r.done);
      if (n <= 0) continue;
      tables.push_back(visible_table(r));
      segments.push_back({rows, n, r.done, nullptr});
      append(q, r.sequence->q, r.done, n, shape_.q_heads * shape_.dim);
      append(k, r.sequence->k, r.done, n, shape_.kv_heads * shape_.dim);
      append(v, r.sequence->v, r.done, n, shape_.kv_heads * shape_.dim);
      append(cos, r.sequence->cos, r.done, n, shape_.rotary / 2);
      append(sin, r.sequence->sin, r.done, n, shape_.rotary / 2);
      rows += n;
    }
    for (std::size_t i = 0; i < segments.size(); ++i) segments[i].block_table = tables[i].data();
    run_ops(segments, rows, q, k, v, cos, sin);
    std::size_t segment = 0;
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      Running& r = *sequences[i];
      if (std::min(chunks[i], r.sequence->length - r.done) <= 0) continue;
      const int width = static_cast<int>(row_width());
      const auto begin = out_.begin() + std::ptrdiff_t{segments[segment].row_begin} * width;
      r.out.insert(r.out.end(), begin, begin + std::ptrdiff_t{segments[segment].row_count} * width);
      r.done += segments[segment++].row_count;
    }
  }

  std::vector<float> run(const Sequence& sequence, int chunk) {
    Running r = start(sequence);
    while (r.done < sequence.length) step({&r}, {chunk});
    return r.out;
  }

  const Arena& arena() const { return arena_; }

 private:
  /// The table as the window leaves it: blocks that no further row can see are gone.
  std::vector<BlockId> visible_table(const Running& r) const {
    auto table = r.table;
    if (shape_.window > 0) {
      const int first = std::max(0, r.done - shape_.window + 1);
      for (int i = 0; i < first / arena_.view.block_tokens; ++i)
        table[static_cast<std::size_t>(i)] = kNoBlock;
    }
    return table;
  }

  static void append(std::vector<float>& to, const std::vector<float>& from, int row, int rows, int width) {
    const auto begin = from.begin() + std::ptrdiff_t{row} * width;
    to.insert(to.end(), begin, begin + std::ptrdiff_t{rows} * width);
  }

  void run_ops(const std::vector<ops::Segment>& segments, std::int32_t rows, std::vector<float>& q,
               std::vector<float>& k, const std::vector<float>& v, const std::vector<float>& cos,
               const std::vector<float>& sin) {
    const std::int64_t q_width = shape_.q_heads * shape_.dim;
    const std::int64_t kv_width = shape_.kv_heads * shape_.dim;
    const auto num_segments = static_cast<std::int32_t>(segments.size());
    device_->ops().rope_kv_write(device_->stream(),
                                 {q.data(), k.data(), v.data(), q_width, kv_width, cos.data(), sin.data(),
                                  shape_.rotary, shape_.q_heads, arena_.view, segments.data(), num_segments});
    Buffer workspace(device_->ops().attention_workspace_bytes(rows, shape_.q_heads, shape_.dim));
    std::vector<float> out(static_cast<std::size_t>(rows * q_width), -7.0f);
    Buffer prepared;
    if (output_ != Output::kFloats)
      prepared =
          Buffer(device_->ops().prepared_bytes(rows, static_cast<std::int32_t>(q_width), Recipe::kInt8));
    device_->ops().attention(
        device_->stream(),
        {q.data(), q_width, output_ != Output::kPrepared ? out.data() : nullptr, q_width, 0.3f, shape_.window,
         shape_.q_heads, arena_.view, segments.data(), num_segments, workspace.data(),
         output_ != Output::kFloats ? prepared.data() : nullptr, shape_.softcap, nullptr, shape_.causal});
    out_.clear();
    for (std::int32_t r = 0; r < rows; ++r) {
      if (output_ != Output::kPrepared) append(out_, out, r, 1, static_cast<int>(q_width));
      if (output_ != Output::kFloats) append_prepared(prepared.data(), rows, r);
    }
  }

  std::int64_t row_width() const {
    const std::int64_t width = std::int64_t{shape_.q_heads} * shape_.dim;
    return (output_ != Output::kPrepared ? width : 0) +
           (output_ != Output::kFloats ? width + width / 16 * 2 + width / 32 : 0);
  }

  /// Every number of a prepared row, but for the copy of q that a back end may leave out.
  void append_prepared(void* memory, std::int32_t rows, std::int32_t row) {
    const std::int32_t width = shape_.q_heads * shape_.dim;
    const auto prepared = ops::cpu::quantised_rows(memory, rows, width);
    const std::int8_t* q = prepared.row_q(row);
    out_.insert(out_.end(), q, q + width);
    const std::int64_t half = prepared.half(row, 0);
    out_.insert(out_.end(), prepared.scale + half, prepared.scale + half + width / 16);
    for (int i = 0; i < width / 16; ++i) out_.push_back(static_cast<float>(prepared.sum[half + i]));
    const float* scaled = prepared.scaled_sum + prepared.block(row, 0);
    out_.insert(out_.end(), scaled, scaled + width / 32);
  }

  std::unique_ptr<CpuDevice> device_;
  Shape shape_;
  Output output_;
  Arena arena_;
  std::vector<BlockId> free_;
  std::vector<float> out_;
};

std::vector<float> run_alone(Isa isa, int threads, const Shape& shape, const Sequence& sequence,
                             int block_tokens, int chunk, std::uint64_t seed = 1,
                             Output output = Output::kFloats) {
  Runner runner(isa, threads, shape, block_tokens, (sequence.length + block_tokens - 1) / block_tokens + 3,
                seed, output);
  return runner.run(sequence, chunk);
}

/// Rows of `dim` numbers as they are stored.
std::vector<double> stored(DType type, const std::vector<float>& x, int dim) {
  std::vector<double> out;
  for (std::size_t i = 0; i < x.size(); i += static_cast<std::size_t>(dim)) {
    const StoredToken token(type, &x[i], dim);
    out.insert(out.end(), token.values.begin(), token.values.end());
  }
  return out;
}

/// Softmax attention in double, without tiles (no rotation).
std::vector<double> attention_f64(const Shape& s, const Sequence& seq) {
  std::vector<double> out;
  const auto k = stored(s.dtype, seq.k, s.dim), v = stored(s.dtype, seq.v, s.dim);
  for (int p = 0; p < seq.length; ++p) {
    for (int h = 0; h < s.q_heads; ++h) {
      const int kv = h / (s.q_heads / s.kv_heads);
      const float* q = &seq.q[static_cast<std::size_t>((p * s.q_heads + h) * s.dim)];
      std::vector<double> acc(static_cast<std::size_t>(s.dim), 0.0);
      double sum = 0.0;
      for (int j = s.window > 0 ? std::max(0, p - s.window + 1) : 0; j <= (s.causal ? p : seq.length - 1); ++j) {
        const std::size_t at = static_cast<std::size_t>((j * s.kv_heads + kv) * s.dim);
        double dot = 0.0;
        for (int d = 0; d < s.dim; ++d) dot += q[d] * k[at + d];
        dot *= 0.3f;
        const double e = std::exp(s.softcap > 0 ? std::tanh(dot / s.softcap) * s.softcap : dot);
        sum += e;
        for (int d = 0; d < s.dim; ++d) acc[d] += e * v[at + d];
      }
      for (const double a : acc) out.push_back(a / sum);
    }
  }
  return out;
}

const Shape kShapes[] = {
    {1, 1, 16},
    {9, 3, 64, 0, DType::kF16},
    {4, 4, 8, 0, DType::kBF16},
    {8, 2, 96, 40, DType::kF32},
    {6, 1, 128, 33, DType::kF16},
    {20, 1, 24, 0, DType::kBF16},  // more query heads than an item holds
    {2, 1, 256, 300, DType::kF32},
    {3, 1, 40, 1, DType::kF32},   // sees itself only
    {4, 4, 100, 0, DType::kF16},  // heads that are no whole vectors
    {4, 2, 20, 40, DType::kBF16},
    {3, 1, 6, 0, DType::kF32},
    {9, 3, 64, 0, DType::kF8E4M3},
    {9, 3, 64, 0, DType::kI8},
    {6, 1, 128, 33, DType::kF8E4M3},
    {8, 2, 96, 40, DType::kI8},
    {2, 1, 256, 300, DType::kI8},
    {2, 1, 256, 0, DType::kF8E4M3},
    {4, 4, 100, 0, DType::kF8E4M3},
    {4, 2, 20, 40, DType::kI8},
    {3, 1, 6, 1, DType::kF8E4M3},
    {4, 2, 20, 40, DType::kF32, 0, 1.5f},
    {9, 3, 64, 0, DType::kF16, 0, 5.0f},
    {2, 1, 96, 0, DType::kI8, 0, 5.0f},
    {2, 1, 512, 300, DType::kF16},
    {18, 1, 512, 0, DType::kF16},
};

TEST(Attention, AgreesWithDouble) {
  Random random(21);
  for (const Shape& shape : kShapes) {
    for (const int length : {1, 31, 33, 290}) {
      const Sequence sequence(shape, length, random);
      for (const Isa isa : {Isa::kScalar, Isa::kAuto}) {
        if (isa == Isa::kScalar && length > 33) continue;
        const auto got = run_alone(isa, 2, shape, sequence, 16, length);
        // A score is one chain of FMAs over the head, so that its error grows with the head and with the score. Scores
        // are scaled by 0.3 here, and reach 30 in heads of 512: 3.1e-5 with KV in f16, 2.6e-5 in f32 (heads of 256:
        // 1.3e-5 and 1.6e-5). At the usual 1 / sqrt(512) it is 3.2e-6.
        EXPECT_LE(distance(got, attention_f64(shape, sequence)), shape.dim > 256 ? 6e-5 : 2e-5)
            << name(shape) << " length " << length;
      }
    }
  }
}

TEST(Attention, EveryInstructionSetGivesTheScalarBits) {
  Random random(22);
  for (const Isa isa : vector_isas()) {
    for (const Shape& shape : kShapes) {
      for (const int length : {1, 15, 16, 17, 32, 64, 97, 258, 540}) {
        if (length > 100 && shape.dim > 64) continue;
        const Sequence sequence(shape, length, random);
        EXPECT_TRUE(same(run_alone(Isa::kScalar, 2, shape, sequence, 16, length),
                         run_alone(isa, 2, shape, sequence, 32, length)))
            << name(shape) << " length " << length;
      }
    }
  }
}

TEST(Attention, ChunksBlocksTablesAndThreadsChangeNothing) {
  Random random(23);
  for (const Shape& shape : kShapes) {
    const Sequence sequence(shape, 531, random);
    const auto want = run_alone(Isa::kAuto, 1, shape, sequence, 64, 531);
    for (const Isa isa : vector_isas()) {
      for (const int block_tokens : {16, 32, 64}) {
        for (const int chunk : {1, 7, 32, 100, 256, 531}) {
          const int threads = 1 + chunk % 3;
          EXPECT_TRUE(same(want, run_alone(isa, threads, shape, sequence, block_tokens, chunk,
                                           static_cast<std::uint64_t>(chunk))))
              << name(shape) << " blocks of " << block_tokens << ", chunks of " << chunk;
        }
      }
    }
  }
}

/// Of an encoder: every row sees all of its segment.
constexpr Shape both_ways(Shape s) {
  s.causal = false;
  return s;
}

TEST(Attention, WithoutCausalityRowsSeeTheirWholeSegment) {
  Random random(27);
  for (const Shape& causal : {Shape{1, 1, 16}, Shape{12, 12, 32, 0, DType::kF16}, Shape{9, 3, 64, 0, DType::kI8},
                              Shape{4, 4, 100, 0, DType::kBF16}, Shape{2, 1, 256}}) {
    const Shape shape = both_ways(causal);
    for (const int length : {1, 31, 32, 33, 64, 65, 255, 256, 257, 512, 530}) {
      if (length > 100 && shape.dim > 64) continue;
      const Sequence sequence(shape, length, random);
      const auto want = run_alone(Isa::kAuto, 1, shape, sequence, 16, length);
      EXPECT_LE(distance(want, attention_f64(shape, sequence)), 2e-5) << name(shape) << " length " << length;
      if (length < 260) {
        EXPECT_TRUE(same(run_alone(Isa::kScalar, 2, shape, sequence, 64, length), want)) << name(shape) << " length " << length;
      }
      for (const Isa isa : vector_isas()) {
        for (const int threads : {1, 2, 3}) {
          EXPECT_TRUE(same(run_alone(isa, threads, shape, sequence, 16 << threads % 3, length, 7), want))
              << name(shape) << " length " << length << " threads " << threads;
        }
      }
      const Sequence mate(shape, 40, random);
      Runner runner(Isa::kAuto, 2, shape, 16, 60, 5);
      Runner::Running a = runner.start(mate), b = runner.start(sequence);
      runner.step({&a, &b}, {40, length});
      EXPECT_TRUE(same(b.out, want)) << name(shape) << " length " << length << " beside another";
    }
  }
}

TEST(Attention, LengthsOnBothSidesOfTileAndSplitEdges) {
  Random random(24);
  const Shape shape{3, 1, 16, 0, DType::kF16};
  const Shape windowed{3, 1, 16, 260, DType::kF16};
  const Sequence sequence(shape, 770, random);
  for (const Shape& s : {shape, windowed}) {
    const auto all = run_alone(Isa::kAuto, 1, s, sequence, 16, 770);
    EXPECT_LE(distance(all, attention_f64(s, sequence)), 2e-5);
    for (const int length : {31, 32, 33, 255, 256, 257, 511, 512, 513, 768, 769}) {
      Sequence prefix = sequence;
      prefix.length = length;
      const auto got = run_alone(Isa::kAuto, 1, s, prefix, 16, length);
      EXPECT_TRUE(same({all.begin(), all.begin() + std::ptrdiff_t{length} * 48}, got)) << length;
    }
  }
}

TEST(Attention, BatchMatesChangeNothing) {
  Random random(25);
  for (const Shape& shape : {kShapes[1], kShapes[3], kShapes[11], kShapes[14]}) {
    std::vector<Sequence> sequences;
    for (const int length : {300, 40, 1, 129, 64}) sequences.emplace_back(shape, length, random);
    Runner runner(Isa::kAuto, 2, shape, 16, 60, 5);
    std::vector<Runner::Running> running;
    for (const Sequence& s : sequences) running.push_back(runner.start(s));
    std::vector<Runner::Running*> pointers;
    for (auto& r : running) pointers.push_back(&r);
    while (std::any_of(running.begin(), running.end(),
                       [](const auto& r) { return r.done < r.sequence->length; })) {
      std::vector<int> chunks;
      for (std::size_t i = 0; i < running.size(); ++i)
        chunks.push_back(random.below(3) * random.between(1, 40));
      runner.step(pointers, chunks);
    }
    for (const auto& r : running) {
      EXPECT_TRUE(same(run_alone(Isa::kAuto, 1, shape, *r.sequence, 32, r.sequence->length), r.out))
          << name(shape);
    }
  }
}

/// Few rows behind long contexts: threads share the splits, in several rounds.
TEST(Attention, SplitsInParallelChangeNothing) {
  Random random(28);
  for (const Shape& shape :
       {Shape{2, 1, 16, 0, DType::kF16}, Shape{2, 1, 16, 700, DType::kF32}, Shape{18, 1, 8},
        Shape{2, 1, 16, 700, DType::kF8E4M3}, Shape{2, 1, 16, 0, DType::kI8}}) {
    std::vector<Sequence> sequences;
    for (const int length : {1700, 1025, 1024, 600, 513, 257, 40, 1})
      sequences.emplace_back(shape, length, random);
    std::vector<std::vector<float>> want;
    for (const auto& [isa, threads] :
         {std::pair{Isa::kAuto, 1}, {Isa::kAuto, 2}, {Isa::kAvx2, 3}, {Isa::kAuto, 8}}) {
      if (!ops::isa_supported(isa)) continue;
      Runner runner(isa, threads, shape, 64, 110, 7);
      std::vector<Runner::Running> running;
      for (const Sequence& s : sequences) running.push_back(runner.start(s));
      std::vector<Runner::Running*> pointers;
      for (auto& r : running) pointers.push_back(&r);
      std::vector<int> prefill;
      for (const Sequence& s : sequences) prefill.push_back(std::max(0, s.length - 5));
      runner.step(pointers, prefill);
      for (const int chunk : {1, 2, 1, 1}) runner.step(pointers, std::vector<int>(pointers.size(), chunk));
      for (std::size_t i = 0; i < running.size(); ++i) {
        if (want.size() == i) want.push_back(running[i].out);
        EXPECT_TRUE(same(want[i], running[i].out))
            << name(shape) << " sequence " << i << " threads " << threads;
      }
      // One sequence alone: every round of its splits is wide.
      Runner alone(isa, threads, shape, 32, 60, 8);
      auto r = alone.start(sequences[0]);
      alone.step({&r}, {1695});
      for (int i = 0; i < 5; ++i) alone.step({&r}, {1});
      EXPECT_TRUE(same(want[0], r.out)) << name(shape) << " alone, threads " << threads;
    }
  }
}

/// Shapes, dtypes, windows, blocks, chunks and threads drawn at random; prepared rows among them.
TEST(Attention, RandomCallsHaveTheScalarBits) {
  Random random(29);
  constexpr int kDims[] = {32, 64, 80, 96, 100, 128, 160, 256};
  for (int round = 0; round < 75; ++round) {
    Shape shape{0, random.between(1, 3), kDims[random.below(8)]};
    shape.q_heads = shape.kv_heads * random.between(1, shape.dim > 128 ? 4 : 16);
    shape.dtype = kKvTypes[random.below(5)];
    shape.window = random.below(3) == 0 ? random.between(1, 120) : 0;
    // The scalar kernel is slow: long sequences for small shapes only.
    const int most = std::clamp(200000 / (shape.q_heads * shape.dim), 40, 600);
    const Sequence sequence(shape, random.between(1, most), random);
    const Output outputs[] = {Output::kFloats, Output::kPrepared, Output::kBoth};
    const Output output = shape.dim % 32 == 0 ? outputs[round % 3] : Output::kFloats;
    const auto want = run_alone(Isa::kScalar, 2, shape, sequence, 16, sequence.length, 1, output);
    for (const Isa isa : vector_isas()) {
      const int block_tokens = 16 << random.below(3);
      const int chunk = random.below(2) == 0 ? sequence.length : random.between(1, 40);
      const int threads = random.between(1, 8);
      EXPECT_TRUE(same(want, run_alone(isa, threads, shape, sequence, block_tokens, chunk, 2, output)))
          << ops::isa_name(isa) << " " << name(shape) << " length " << sequence.length << " blocks of "
          << block_tokens << ", chunks of " << chunk << ", " << threads << " threads";
    }
  }
}

/// As many as a model file may have (model/family_llama.cpp): numbers of heads outgrow 15 bits.
TEST(Attention, TensOfThousandsOfHeadsHaveTheScalarBits) {
  Random random(31);
  const Shape shape{33000, 33000, 2, 0, DType::kBF16};
  const Sequence sequence(shape, 2, random);
  const auto want = run_alone(Isa::kScalar, 2, shape, sequence, 16, 2);
  for (const Isa isa : vector_isas()) {
    for (const int threads : {1, 2}) {  // kv heads together, and one by one
      EXPECT_TRUE(same(want, run_alone(isa, threads, shape, sequence, 16, 2)))
          << ops::isa_name(isa) << " " << threads << " threads";
    }
  }
}

/// A step as the engine makes them: many sequences decode, far apart in length, beside a chunk of a prompt.
TEST(Attention, ManyDecodesBesideAPromptHaveTheScalarBits) {
  Random random(30);
  for (const Shape& shape : {Shape{9, 3, 64, 0, DType::kF16}, Shape{4, 4, 32, 90, DType::kBF16},
                             Shape{9, 3, 64, 0, DType::kI8}, Shape{4, 4, 32, 90, DType::kF8E4M3}}) {
    std::vector<Sequence> sequences;
    for (int i = 0; i < 32; ++i)
      sequences.emplace_back(shape, i % 9 == 0 ? 300 + i : random.between(3, 60), random);
    sequences.emplace_back(shape, 200, random);
    const auto run = [&](Isa isa, int threads) {
      Runner runner(isa, threads, shape, 16, 700, 9, Output::kBoth);
      std::vector<Runner::Running> running;
      for (const Sequence& s : sequences) running.push_back(runner.start(s));
      std::vector<Runner::Running*> pointers;
      for (auto& r : running) pointers.push_back(&r);
      // Prompts but for two tokens; then a step of decodes and the long prompt; then decodes alone.
      std::vector<int> chunks;
      for (const Sequence& s : sequences) chunks.push_back(s.length - 2);
      chunks.back() = 70;
      runner.step(pointers, chunks);
      runner.step(pointers, [&] {
        std::vector<int> mixed(sequences.size(), 1);
        mixed.back() = 129;
        return mixed;
      }());
      runner.step(pointers, std::vector<int>(sequences.size(), 1));
      std::vector<float> out;
      for (const auto& r : running) out.insert(out.end(), r.out.begin(), r.out.end());
      return out;
    };
    const auto want = run(Isa::kScalar, 2);
    for (const Isa isa : vector_isas()) {
      for (const int threads : {1, 2, 5, 8}) {
        EXPECT_TRUE(same(want, run(isa, threads)))
            << ops::isa_name(isa) << " " << name(shape) << " " << threads;
      }
    }
  }
}

/// Large scores: the running maximum moves a lot, weights underflow, nothing overflows.
TEST(Attention, ExtremeScoresStayFiniteAndEqual) {
  Random random(26);
  const Shape shape{2, 1, 16};
  Sequence sequence(shape, 300, random);
  for (float& x : sequence.q) x *= 60.0f;
  const auto scalar = run_alone(Isa::kScalar, 1, shape, sequence, 16, 300);
  EXPECT_TRUE(same(scalar, run_alone(Isa::kAuto, 1, shape, sequence, 16, 300)));
  for (const float x : scalar) ASSERT_TRUE(std::isfinite(x));
  EXPECT_LE(distance(scalar, attention_f64(shape, sequence)), 1e-3);
}

/// One number that is none spoils the rows that see it, all of their numbers and nothing else.
TEST(Attention, NotANumberSpoilsExactlyWhoSeesIt) {
  Random random(32);
  constexpr int kLength = 130, kBad = 70, kWindow = 40;
  for (const DType dtype : {DType::kF8E4M3, DType::kI8}) {
    const Shape shape{4, 2, 48, kWindow, dtype};
    const Sequence good(shape, kLength, random), mate(shape, kLength, random);
    const auto want = run_alone(Isa::kScalar, 1, shape, good, 16, kLength);
    const auto want_mate = run_alone(Isa::kScalar, 1, shape, mate, 16, kLength);
    for (const float bad : {std::nanf(""), INFINITY, -INFINITY}) {
      for (const bool in_k : {true, false}) {
        Sequence spoiled = good;
        // The second kv head: query heads 2 and 3.
        (in_k ? spoiled.k : spoiled.v)[static_cast<std::size_t>((kBad * 2 + 1) * shape.dim + 17)] = bad;
        auto isas = vector_isas();
        isas.push_back(Isa::kScalar);
        for (const Isa isa : isas) {
          Runner runner(isa, 2, shape, 16, 40, 3);
          auto a = runner.start(spoiled), b = runner.start(mate);
          while (a.done < kLength) runner.step({&a, &b}, {23, 11});
          while (b.done < kLength) runner.step({&b}, {50});
          EXPECT_TRUE(same(b.out, want_mate));
          for (std::size_t i = 0; i < a.out.size(); ++i) {
            const int row = static_cast<int>(i) / (shape.q_heads * shape.dim);
            const int head = static_cast<int>(i) / shape.dim % shape.q_heads;
            const bool sees = row >= kBad && row < kBad + kWindow && head >= 2;
            ASSERT_TRUE(sees ? std::isnan(a.out[i]) : same_bits(a.out[i], want[i]))
                << ops::isa_name(isa) << " " << name(shape) << " " << bad << (in_k ? " in k" : " in v")
                << ", row " << row << " head " << head << ": " << a.out[i];
          }
        }
      }
    }
  }
}

// --- the KV write ----------------------------------------------------------------------------------------

TEST(RopeKvWrite, RotatesByHalvesAndStoresRounded) {
  Random random(27);
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAuto}) {
    if (!ops::isa_supported(isa)) continue;
    for (const DType dtype : kKvTypes) {
      for (const auto& [dim, rotary] : {std::pair{16, 16}, {64, 64}, {24, 12}, {96, 48}, {8, 0}, {40, 40}}) {
        auto d = device(isa);
        const int rows = 5;
        const int begin = 14;  // crosses a block edge
        Arena arena(*d, dtype, 16, 2, dim, 3);
        auto q = random.normals(static_cast<std::size_t>(rows) * 3 * dim);
        auto k = random.normals(static_cast<std::size_t>(rows) * 2 * dim);
        const auto v = random.normals(k.size());
        const auto cos = random.normals(static_cast<std::size_t>(rows) * rotary / 2);
        const auto sin = random.normals(cos.size());
        const auto rotated = [&](std::vector<float> x, int heads) {
          for (int h = 0; h < rows * heads; ++h) {
            for (int i = 0; i < rotary / 2; ++i) {
              const float c = cos[static_cast<std::size_t>(h / heads * (rotary / 2) + i)];
              const float s = sin[static_cast<std::size_t>(h / heads * (rotary / 2) + i)];
              float& a = x[static_cast<std::size_t>(h * dim + i)];
              float& b = x[static_cast<std::size_t>(h * dim + i + rotary / 2)];
              const float old = a;
              a = old * c - b * s;
              b = b * c + old * s;
            }
          }
          return x;
        };
        const auto want_q = rotated(q, 3);
        const auto want_k = rotated(k, 2);
        const BlockId table[] = {2, 0};
        const ops::Segment segment{0, rows, begin, table};
        d->ops().rope_kv_write(d->stream(), {q.data(), k.data(), v.data(), 3 * dim, 2 * dim, cos.data(),
                                             sin.data(), rotary, 3, arena.view, &segment, 1});
        EXPECT_TRUE(same(want_q, q));
        EXPECT_TRUE(same(want_k, k));
        const std::size_t element = block_bytes(dtype);
        // Element i of a plane, of a token in this slot.
        const auto at = [&](const std::byte* plane, std::size_t i, std::size_t slot) -> double {
          std::uint32_t bits = 0;
          std::memcpy(&bits, plane + i * element, element);
          if (dtype == DType::kF32) return ops::bits_float(bits);
          if (dtype == DType::kF16) return ops::f16_to_f32(static_cast<std::uint16_t>(bits));
          if (dtype == DType::kBF16) return ops::bf16_to_f32(static_cast<std::uint16_t>(bits));
          float scale;
          std::memcpy(&scale, plane + 16 * dim + slot * 4, 4);
          const auto code = static_cast<std::uint8_t>(bits);
          return (dtype == DType::kI8 ? static_cast<std::int8_t>(code) : f8_value(code)) * scale;
        };
        const auto stored_k = stored(dtype, want_k, dim), stored_v = stored(dtype, v, dim);
        for (int r = 0; r < rows; ++r) {
          const std::byte* block = arena.view.base + table[(begin + r) / 16] * arena.view.block_stride;
          const std::size_t slot = static_cast<std::size_t>((begin + r) % 16);
          for (int h = 0; h < 2; ++h) {
            for (int i = 0; i < dim; ++i) {
              const std::size_t source = static_cast<std::size_t>((r * 2 + h) * dim + i);
              const std::byte* plane = block + h * arena.view.head_stride;
              ASSERT_EQ(at(plane, static_cast<std::size_t>(i) * 16 + slot, slot), stored_k[source]);
              ASSERT_EQ(at(plane + arena.view.v_offset, slot * dim + i, slot), stored_v[source]);
            }
          }
        }
      }
    }
  }
}

TEST(RopeKvWrite, RoundingIsThatOfTheScalarForEveryKindOfNumber) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    std::vector<float> values;
    for (std::uint64_t bits = 0; bits <= 0xffffffffu; bits += 65521)
      values.push_back(ops::bits_float(static_cast<std::uint32_t>(bits)));
    for (std::uint32_t h = 0; h < 65536; h += 7) {  // exact middles
      values.push_back(ops::bits_float((h << 16) + 0x8000));
      values.push_back((ops::f16_to_f32(static_cast<std::uint16_t>(h)) +
                        ops::f16_to_f32(static_cast<std::uint16_t>(h + 1))) /
                       2);
    }
    values.resize(values.size() / 256 * 256);
    std::vector<GuardedBuffer> memories;
    for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAuto}) {
      if (!ops::isa_supported(isa)) continue;
      auto d = device(isa);
      const auto rows = static_cast<std::int32_t>(values.size() / 256);
      Arena arena(*d, dtype, 64, 1, 256, (rows + 63) / 64, 0);
      std::vector<BlockId> table(static_cast<std::size_t>((rows + 63) / 64));
      std::iota(table.begin(), table.end(), 0);
      const ops::Segment segment{0, rows, 0, table.data()};
      auto k = values;
      std::vector<float> q(values.size());
      d->ops().rope_kv_write(d->stream(), {q.data(), k.data(), values.data(), 256, 256, nullptr, nullptr, 0,
                                           1, arena.view, &segment, 1});
      memories.push_back(std::move(arena.memory));
    }
    for (std::size_t i = 1; i < memories.size(); ++i) {
      EXPECT_EQ(std::memcmp(memories[0].data(), memories[i].data(), memories[0].size()), 0)
          << dtype_name(dtype);
    }
  }
}

}  // namespace
}  // namespace barg::test::attention_test
