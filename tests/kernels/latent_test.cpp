// Latent attention: right against float64, and equal in bits whatever the instruction set, chunking, block size,
// block table, batch mates and threads. Arenas start as NaN, so a read of a slot that nobody wrote shows.
#include <algorithm>
#include <numeric>

#include "fixture.h"

namespace barg::test::latent_test {
namespace {

struct Shape {
  int heads, value, rotary;
  DType dtype = DType::kF32;
  bool interleaved = true;

  int dim() const { return value + rotary; }
  std::string name() const {
    return std::to_string(heads) + " heads, " + std::to_string(value) + "+" + std::to_string(rotary) + " " +
           dtype_name(dtype);
  }
};

std::size_t size(int a, int b) { return static_cast<std::size_t>(a) * static_cast<std::size_t>(b); }

/// The inputs of one sequence, rows = positions. `q` holds each head's query: the part of c, then q_pe.
struct Sequence {
  Sequence(const Shape& s, int length, Random& random)
      : length(length),
        q(random.normals(size(length, s.heads * s.dim()), 0.6f)),
        kv(random.normals(size(length, s.dim()))),
        cos(random.normals(size(length, s.rotary / 2))),
        sin(random.normals(size(length, s.rotary / 2))) {}
  int length;
  std::vector<float> q, kv, cos, sin;
};

class Runner {
 public:
  Runner(Isa isa, int threads, const Shape& shape, int block_tokens, int blocks, std::uint64_t seed)
      : device_(device(isa, threads)), shape_(shape), free_(static_cast<std::size_t>(blocks)) {
    const std::size_t bytes = device_->ops().latent_bytes(shape.dtype, block_tokens, shape.dim());
    memory_ = std::make_unique<GuardedBuffer>(bytes * static_cast<std::size_t>(blocks));
    std::memset(memory_->data(), 0xff, memory_->size());
    view_ = {memory_->data(), static_cast<std::int64_t>(bytes), 0, 0, shape.dtype, block_tokens, 1, shape.dim()};
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
  Running start(const Sequence& s) {
    Running r{&s, 0, {}, {}};
    for (int i = 0; i < (s.length + view_.block_tokens - 1) / view_.block_tokens; ++i) {
      r.table.push_back(free_.back());
      free_.pop_back();
    }
    return r;
  }

  void step(const std::vector<Running*>& running, const std::vector<int>& chunks) {
    std::vector<ops::Segment> segments;
    std::vector<float> q, kv, cos, sin;
    const auto append = [](std::vector<float>& to, const std::vector<float>& from, int row, int n, int width) {
      to.insert(to.end(), from.begin() + std::ptrdiff_t{row} * width, from.begin() + std::ptrdiff_t{row + n} * width);
    };
    int rows = 0;
    for (std::size_t i = 0; i < running.size(); ++i) {
      Running& r = *running[i];
      const int n = std::min(chunks[i], r.sequence->length - r.done);
      if (n <= 0) continue;
      segments.push_back({rows, n, r.done, r.table.data()});
      append(q, r.sequence->q, r.done, n, shape_.heads * shape_.dim());
      append(kv, r.sequence->kv, r.done, n, shape_.dim());
      append(cos, r.sequence->cos, r.done, n, shape_.rotary / 2);
      append(sin, r.sequence->sin, r.done, n, shape_.rotary / 2);
      rows += n;
    }
    const std::int64_t width = shape_.dim();
    std::vector<float> query = q, out(size(rows, shape_.heads * shape_.value), -7.0f);
    for (int i = 0; i < rows * shape_.heads; ++i)  // what latent_write must fill
      std::fill_n(query.begin() + i * width + shape_.value, shape_.rotary, std::nanf(""));
    device_->ops().latent_write(device_->stream(), {.c = kv.data(),
                                                    .k_pe = kv.data() + shape_.value,
                                                    .c_stride = width,
                                                    .pe_stride = width,
                                                    .q_pe = q.data() + shape_.value,
                                                    .q_stride = shape_.heads * width,
                                                    .q_head_stride = width,
                                                    .query = query.data(),
                                                    .cos = cos.data(),
                                                    .sin = sin.data(),
                                                    .rotary_dim = shape_.rotary,
                                                    .interleaved = shape_.interleaved,
                                                    .num_q_heads = shape_.heads,
                                                    .kv = view_,
                                                    .segments = segments.data(),
                                                    .num_segments = static_cast<std::int32_t>(segments.size())});
    Buffer workspace(device_->ops().latent_workspace_bytes(shape_.value));
    device_->ops().latent_attention(device_->stream(),
                                    {.q = query.data(),
                                     .out = out.data(),
                                     .scale = 0.3f,
                                     .num_q_heads = shape_.heads,
                                     .value_dim = shape_.value,
                                     .kv = view_,
                                     .segments = segments.data(),
                                     .num_segments = static_cast<std::int32_t>(segments.size()),
                                     .workspace = workspace.data()});
    const int out_width = shape_.heads * shape_.value;
    std::size_t at = 0;
    for (std::size_t i = 0; i < running.size(); ++i) {
      Running& r = *running[i];
      if (std::min(chunks[i], r.sequence->length - r.done) <= 0) continue;
      append(r.out, out, segments[at].row_begin, segments[at].row_count, out_width);
      r.done += segments[at++].row_count;
    }
  }

  std::vector<float> run(const Sequence& s, int chunk) {
    Running r = start(s);
    while (r.done < s.length) step({&r}, {chunk});
    return r.out;
  }

 private:
  std::unique_ptr<CpuDevice> device_;
  Shape shape_;
  std::unique_ptr<GuardedBuffer> memory_;
  ops::KvLayerView view_;
  std::vector<BlockId> free_;
};

/// Every row of the definition, in double on what is stored.
std::vector<double> exact(const Shape& s, const Sequence& in) {
  const int half = s.rotary / 2;
  const auto rotated = [&](const float* x, int row) {
    std::vector<float> out(x, x + s.dim());
    const float *cos = &in.cos[size(row, half)], *sin = &in.sin[size(row, half)];
    for (int i = 0; i < half; ++i) {
      const float a = x[s.value + (s.interleaved ? 2 * i : i)];
      const float b = x[s.value + (s.interleaved ? 2 * i + 1 : i + half)];
      out[static_cast<std::size_t>(s.value + i)] = a * cos[i] - b * sin[i];
      out[static_cast<std::size_t>(s.value + half + i)] = b * cos[i] + a * sin[i];
    }
    return out;
  };
  std::vector<std::vector<double>> keys;
  std::vector<double> out;
  for (int row = 0; row < in.length; ++row) {
    const auto key = rotated(&in.kv[size(row, s.dim())], row);
    keys.push_back(StoredToken(s.dtype, key.data(), s.value).values);
    const auto pe = StoredToken(s.dtype, key.data() + s.value, s.rotary).values;
    keys.back().insert(keys.back().end(), pe.begin(), pe.end());
    for (int h = 0; h < s.heads; ++h) {
      const auto q = rotated(&in.q[size(row, s.heads * s.dim()) + size(h, s.dim())], row);
      std::vector<double> e, acc(static_cast<std::size_t>(s.value));
      double max = -1e30, sum = 0;
      for (const auto& k : keys) {
        double dot = 0;
        for (std::size_t d = 0; d < k.size(); ++d) dot += static_cast<double>(q[d]) * k[d];
        e.push_back(dot * 0.3f);
        max = std::max(max, e.back());
      }
      for (std::size_t j = 0; j < keys.size(); ++j) {
        const double w = std::exp(e[j] - max);
        sum += w;
        for (std::size_t d = 0; d < acc.size(); ++d) acc[d] += w * keys[j][d];
      }
      for (const double a : acc) out.push_back(a / sum);
    }
  }
  return out;
}

TEST(LatentAttention, AgreesWithDouble) {
  Random random(81);
  for (const DType type : kKvTypes) {
    for (const bool interleaved : {true, false}) {
      const Shape s{3, 24, 16, type, interleaved};
      const Sequence in(s, 290, random);  // beyond a split of 256
      EXPECT_LE(distance(Runner(Isa::kScalar, 1, s, 16, 20, 1).run(in, 290), exact(s, in)), 2e-5) << s.name();
    }
  }
}

TEST(LatentAttention, EveryInstructionSetGivesTheScalarBits) {
  Random random(82);
  for (const DType type : kKvTypes) {
    for (const auto& [heads, value, rotary] :
         {std::tuple{1, 8, 2}, {4, 32, 16}, {16, 64, 16}, {17, 30, 6}, {20, 129, 22}, {40, 61, 32}}) {
      const Shape s{heads, value, rotary, type};
      const Sequence in(s, 75, random);
      const auto want = Runner(Isa::kScalar, 1, s, 32, 8, 1).run(in, 75);
      for (const Isa isa : vector_isas()) {
        for (const int threads : {1, 3})
          EXPECT_TRUE(same(Runner(isa, threads, s, 16, 8, 2).run(in, 75), want)) << s.name();
      }
    }
  }
}

TEST(LatentAttention, TheSizesOfPublishedModels) {
  Random random(83);
  const Shape s{16, 512, 64, DType::kF16};
  const Sequence in(s, 70, random);
  const auto want = Runner(Isa::kScalar, 1, s, 16, 8, 1).run(in, 70);
  for (const Isa isa : vector_isas()) EXPECT_TRUE(same(Runner(isa, 2, s, 16, 8, 1).run(in, 33), want));
}

/// One row and few heads share out their splits: long contexts, several threads, several rounds.
TEST(LatentAttention, ChunksBlocksAndThreadsChangeNothing) {
  Random random(84);
  for (const DType type : {DType::kF32, DType::kF8E4M3}) {
    const Shape s{4, 16, 8, type};
    const Sequence in(s, 1100, random);
    const auto want = Runner(Isa::kAuto, 1, s, 16, 80, 1).run(in, 1100);
    EXPECT_TRUE(same(Runner(Isa::kScalar, 2, s, 64, 80, 2).run(in, 500), want));
    for (const Isa isa : vector_isas()) {
      for (const int threads : {1, 2, 4, 16}) {
        EXPECT_TRUE(same(Runner(isa, threads, s, 32, 80, 3).run(in, 37), want)) << threads;
        EXPECT_TRUE(same(Runner(isa, threads, s, 16, 80, 4).run(in, 3), want)) << threads;
      }
    }
  }
}

TEST(LatentAttention, LengthsOnBothSidesOfTileAndSplitEdges) {
  Random random(85);
  const Shape s{2, 12, 4};
  for (const int length : {1, 31, 32, 33, 63, 64, 65, 255, 256, 257, 511, 512, 513}) {
    const Sequence in(s, length, random);
    const auto want = Runner(Isa::kScalar, 1, s, 16, 40, 1).run(in, length);
    EXPECT_TRUE(same(Runner(Isa::kAuto, 8, s, 16, 40, 2).run(in, 1), want)) << length;
  }
}

TEST(LatentAttention, BatchMatesChangeNothing) {
  Random random(86);
  const Shape s{5, 20, 10, DType::kBF16};
  const Sequence a(s, 300, random), b(s, 41, random), c(s, 600, random);
  Runner alone(Isa::kAuto, 1, s, 16, 80, 1);
  const auto want_a = alone.run(a, 300), want_b = alone.run(b, 41), want_c = alone.run(c, 600);
  Runner together(Isa::kAuto, 3, s, 16, 80, 2);
  auto ra = together.start(a), rb = together.start(b), rc = together.start(c);
  for (int i = 0; ra.done < a.length || rb.done < b.length || rc.done < c.length; ++i)
    together.step({&rc, &ra, &rb}, {i % 3 == 0 ? 61 : 1, 1 + i % 7, i % 2});
  EXPECT_TRUE(same(ra.out, want_a));
  EXPECT_TRUE(same(rb.out, want_b));
  EXPECT_TRUE(same(rc.out, want_c));
}

TEST(LatentAttention, NotANumberSpoilsExactlyWhoSeesIt) {
  Random random(87);
  std::vector<Isa> isas = vector_isas();
  isas.push_back(Isa::kScalar);
  for (const Isa isa : isas) {
    for (const DType type : kKvTypes) {
      for (const int at : {0, 13}) {  // in c, in k_pe
        const Shape s{2, 12, 4, type};
        Sequence in(s, 70, random);
        in.kv[size(40, s.dim()) + static_cast<std::size_t>(at)] = std::nanf("");
        const auto out = Runner(isa, 1, s, 16, 8, 1).run(in, 70);
        for (int row = 0; row < 70; ++row)
          EXPECT_EQ(std::isnan(out[size(row, s.heads * s.value)]), row >= 40) << row << " " << s.name();
      }
    }
  }
}

}  // namespace
}  // namespace barg::test::latent_test
