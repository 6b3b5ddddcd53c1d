// Errors seeded into the GEMM at run time, and who sees each of them: the table of what the other tests rely on.
#include <gtest/gtest.h>

#include <vector>

#include "gemm_case.h"
#include "support.h"

namespace barg::cuda {
namespace {

using test::Detector;
using test::value;
using Seed = emu::Fault::Kind;

bool needs_hooks(Detector d) { return d < Detector::kOutside; }

/// Three slices in blocks of their own, or all in one; the number of rows and of tiles fills no block.
GemmCase shape_of(GemmFormat format, bool shared_out, const Behind& behind = {}) {
  GemmCase c;
  c.format = format;
  c.n = 40;
  c.k = 768;
  c.rows = 5;
  c.shared_out = shared_out;
  c.behind = behind;
  if (behind.norm) c.n = 136;
  if (behind.q_heads > 0) c.n = (behind.q_heads + 2 * behind.kv_heads) * behind.head_dim;
  return c;
}

struct Mutant {
  const char* name;
  Detector detector;
  GemmFormat format;
  bool shared_out;
  emu::Fault fault;
  bool gated = false;
  Behind behind{};
};

/// A fault of the first `call` after the line with `marker`.
emu::Fault at(Seed kind, const char* marker, const char* call) {
  return test::fault_at(kind, "gemm.cuh", marker, call);
}

std::vector<Mutant> mutants() {
  const auto square = [](double x) { return x * x; };
  const auto next = [](double x) { return x + 1; };
  const auto swapped = [](double x) { return 1 - x; };
  const auto constant = [](double y) { return [y](double) { return y; }; };
  const auto no_barrier = [](const char* marker) { return at(Seed::kNoBarrier, marker, "sync_block();"); };
  const auto before = [](double x) { return x - 1; };
  const Behind norm{.norm = true}, heads{.q_heads = 2};
  const emu::Fault no_release = at(Seed::kNoRelease, "arrives_last", "publish_count");
  using D = Detector;
  using F = GemmFormat;
  return {
      {"waits for too little", D::kPending, F::kBF16, false, at(Seed::kWaitOneLess, "This unit has come", "cp_wait")},
      {"no barrier after the wait", D::kPending, F::kBF16, false, no_barrier("This unit has come")},
      {"no barrier before the count", D::kRace, F::kBF16, true, no_barrier("All that this block has")},
      {"no barrier after the count", D::kRace, F::kBF16, true, no_barrier("The count is there")},
      {"the count releases nothing", D::kRace, F::kBF16, true, at(Seed::kNoRelease, "arrives_last", "publish_count")},
      {"folds before the last slice", D::kRace, F::kBF16, true, value("gemm.arrived", next)},
      {"all slices in one place", D::kRace, F::kBF16, true, value("gemm.partial", constant(0))},
      {"slices folded from the right", D::kBits, F::kBF16, true, value("gemm.order", [](double x) { return 2 - x; })},
      {"the unit behind the right one", D::kOutside, F::kBF16, false, value("gemm.unit", next)},
      {"copies tiles that are not there", D::kOutside, F::kBF16, false,
       at(Seed::kCopyAlways, "void copy(", "cp_async16(tile_to")},
      {"copies rows of x that are not there", D::kOutside, F::kBF16, false,
       at(Seed::kCopyAlways, "void copy(", "cp_async16(to + S::kXAt")},
      {"copies no weights", D::kUninitialised, F::kQ8_0, false,
       at(Seed::kNoCopy, "void copy(", "cp_async16(tile_to")},
      {"copies no x", D::kUninitialised, F::kQ8_0, false,
       at(Seed::kNoCopy, "void copy(", "cp_async16(to + S::kXAt")},
      {"no swizzle on the side of the copies", D::kReference, F::kBF16, false, value("gemm.copy_to", test::without_swizzle)},
      {"no swizzle", D::kLint, F::kBF16, false, value("gemm.swizzle", test::without_swizzle)},
      {"x transposed", D::kReference, F::kBF16, false, at(Seed::kTransposed, "void multiply(", "ldmatrix_x4(")},
      {"wrong lanes of weights", D::kReference, F::kBF16, false,
       at(Seed::kWrongLanes, "void multiply_tile(", "mma_16816<S::kHalf>(acc, a[0]")},
      {"wrong lanes of codes", D::kReference, F::kQ4_0, false,
       at(Seed::kWrongLanes, "void multiply_tile(", "mma_16816<S::kHalf>(d, a[0]")},
      {"the scale twice", D::kReference, F::kQ8_0, false, value("gemm.scale", square)},
      {"the scale twice, of 16 columns", D::kReference, F::kQ6_K, false, value("gemm.scale", square)},
      {"minima of the other sign", D::kReference, F::kQ4_K, false, value("gemm.minimum", [](double x) { return -x; })},
      {"no minima", D::kReference, F::kQ4_1, false, value("gemm.minimum", constant(0))},
      {"zero one code too high", D::kReference, F::kQ4_0, false, value("gemm.zero", next)},
      {"nibbles the other way round", D::kReference, F::kQ4_0, false, value("gemm.nibble", swapped)},
      {"gate for up", D::kReference, F::kBF16, false, value("gemm.up", constant(0)), true},
      {"nibbles of factors too", D::kReference, F::kQ4_K, false, value("gemm.nibble", swapped)},
      {"norm: no barrier before the count", D::kRace, F::kBF16, false, no_barrier("All that this block has"), false, norm},
      {"norm: no barrier after the count", D::kRace, F::kBF16, false, no_barrier("The count is there"), false, norm},
      {"norm: the count releases nothing", D::kRace, F::kBF16, true, no_release, false, norm},
      {"norm: the counter is one ahead", D::kRace, F::kBF16, false, value("gemm.arrived", next), false, norm},
      {"norm: before the last block", D::kRace, F::kBF16, false, value("gemm.norm_blocks", before), false, norm},
      {"norm: waits for one block more", D::kBits, F::kBF16, false, value("gemm.norm_blocks", next), false, norm},
      {"norm: another sum of squares", D::kBits, F::kBF16, false,
       value("gemm.norm_fold", [](double x) { return x * (1 + 0x1p-20); }), false, norm},
      {"heads: no barrier before the count", D::kRace, F::kBF16, false, no_barrier("All of the block's part"), false, heads},
      {"heads: no barrier after the count", D::kRace, F::kBF16, false, no_barrier("So are the other blocks"), false, heads},
      {"heads: the count releases nothing", D::kRace, F::kBF16, true, no_release, false, heads},
      {"heads: the counter is one ahead", D::kRace, F::kBF16, false, value("gemm.arrived", next), false, heads},
      {"heads: the key without its value", D::kRace, F::kBF16, false, value("gemm.parts", before), false, heads},
      {"heads: no barrier of the warp", D::kRace, F::kBF16, false,
       at(Seed::kNoWarpBarrier, "The next head takes", "sync_warp();"), false, heads},
      {"heads: another head", D::kBits, F::kBF16, false, value("gemm.head", [](double x) { return x < 2 ? 1 - x : x; }), false, heads},
  };
}

bool finds(Detector detector, const GemmCase& c, const GemmResult& r) {
  switch (detector) {
    case Detector::kReference: return !(worst_error(c, r.out) < kGemmTolerance);
    case Detector::kBits: {
      GemmCase alone = c;
      alone.shared_out = false;
      alone.behind.alone = true;
      alone.fault = {};
      const GemmResult a = run_gemm(alone);
      return a.out != r.out || a.normed_half != r.normed_half || a.normed != r.normed || a.kv != r.kv;
    }
    case Detector::kLint: return !test::serves_banks_well(r.sites);
    default: return test::reported(detector, r.kinds);
  }
}

TEST(GemmFaults, EachIsSeenByItsDetector) {
  for (const Mutant& m : mutants()) {
    if (needs_hooks(m.detector) && !emu::hooked()) continue;
    GemmCase c = shape_of(m.format, m.shared_out, m.behind);
    c.gated = m.gated;
    c.fault = m.fault;
    c.count_sites = m.detector == Detector::kLint;
    const GemmResult r = run_gemm(c);
    EXPECT_TRUE(finds(m.detector, c, r)) << m.name << "; found instead: " << r.text;
  }
}

TEST(GemmFaults, WithoutOneNobodySeesAnything) {
  const auto expect_nothing = [](GemmCase c) {
    c.count_sites = true;
    const GemmResult r = run_gemm(c);
    EXPECT_EQ(r.text, "");
    EXPECT_EQ(r.plan.work.shared_out, c.shared_out);
    for (const Detector d : {Detector::kReference, Detector::kBits, Detector::kLint}) {
      if (d == Detector::kReference && c.behind.q_heads > 0) continue;  // q is a product no more
      EXPECT_FALSE(finds(d, c, r));
    }
  };
  for (const bool shared_out : {false, true}) {
    for (const GemmFormat format : {GemmFormat::kBF16, GemmFormat::kQ8_0, GemmFormat::kQ4_0, GemmFormat::kQ4_1,
                                    GemmFormat::kQ4_K, GemmFormat::kQ6_K}) {
      expect_nothing(shape_of(format, shared_out));
    }
    expect_nothing(shape_of(GemmFormat::kBF16, shared_out, {.norm = true}));
    expect_nothing(shape_of(GemmFormat::kBF16, shared_out, {.q_heads = 2}));
  }
}

}  // namespace
}  // namespace barg::cuda
