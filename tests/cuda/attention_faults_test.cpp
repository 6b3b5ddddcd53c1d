// Errors seeded into attention at run time, and who sees each of them: the table of what the other tests rely on.
#include <gtest/gtest.h>

#include <vector>

#include "attention_case.h"
#include "cuda/attention.cuh"
#include "support.h"

namespace barg::cuda {
namespace {

using test::Detector;
using test::value;
using Seed = emu::Fault::Kind;

bool needs_hooks(Detector d) { return d < Detector::kReference; }

/// Two splits, the end of a block in each tile's way; or what else a fault needs to show.
enum class Shape : std::uint8_t { kShared, kAlone, kWindow, kFp8, kOnePlace };

AttentionCase shape_of(Shape s) {
  AttentionCase c;
  c.dim = 64;
  c.rows = {{1, 260, 2}, {2, 37, 1}, {3, 4, 1}};
  c.shared_out = s == Shape::kShared;
  c.workers = 2;
  if (s == Shape::kWindow) c.window = 40;
  if (s == Shape::kFp8) c.kv = KvType::kFp8;
  if (s == Shape::kOnePlace) {
    c.dim = 256;
    c.block_shared_bytes = kLeastBlockShared;
  }
  return c;
}

struct Mutant {
  const char* name;
  Detector detector;
  Shape shape;
  emu::Fault fault;
};

/// A fault of the first `call` after the line with `marker`.
emu::Fault at(Seed kind, const char* marker, const char* call) {
  return test::fault_at(kind, "attention.cuh", marker, call);
}

std::vector<Mutant> mutants() {
  const auto square = [](double x) { return x * x; };
  const auto next = [](double x) { return x + 1; };
  const auto constant = [](double y) { return [y](double) { return y; }; };
  const auto no_barrier = [](const char* marker) { return at(Seed::kNoBarrier, marker, "sync_block();"); };
  using D = Detector;
  return {
      {"no barrier after the wait for K", D::kPending, Shape::kShared, no_barrier("K of this stage has come")},
      {"no barrier after the scores", D::kRace, Shape::kShared, no_barrier("The maxima of all tiles")},
      {"no barrier after the weights", D::kRace, Shape::kShared, no_barrier("V has come")},
      {"no barrier before the next V", D::kRace, Shape::kShared, no_barrier("V may be overwritten")},
      {"no barrier after the factors", D::kRace, Shape::kAlone, no_barrier("The factors are there")},
      {"no barrier before the count", D::kRace, Shape::kShared, no_barrier("All of this block's splits")},
      {"no barrier after the count", D::kRace, Shape::kShared, no_barrier("The count is there")},
      {"V comes over K", D::kRace, Shape::kOnePlace, no_barrier("The maxima of all tiles")},
      {"K comes over V", D::kRace, Shape::kOnePlace, no_barrier("V may be overwritten")},
      {"waits for too little of K", D::kPending, Shape::kShared, at(Seed::kWaitOneLess, "K of this stage", "cp_wait")},
      {"waits for too little of V", D::kPending, Shape::kShared, at(Seed::kWaitOneLess, "V has come", "cp_wait")},
      {"the count releases nothing", D::kRace, Shape::kShared, at(Seed::kNoRelease, "last_to_come", "publish_count")},
      {"merges before the last part", D::kRace, Shape::kShared, value("attention.arrived", next)},
      {"all splits in one slot", D::kRace, Shape::kShared, value("attention.slot", constant(0))},
      {"splits folded from the right", D::kBits, Shape::kShared,
       value("attention.order", [](double x) { return x <= 1 ? 1 - x : x; })},
      {"the block behind the right one", D::kOutside, Shape::kAlone, value("attention.block", next)},
      {"copies keys that nobody wrote", D::kUninitialised, Shape::kAlone,
       at(Seed::kCopyAlways, "void copy(", "cp_async16(")},
      {"copies nothing", D::kUninitialised, Shape::kAlone, at(Seed::kNoCopy, "void copy(", "cp_async16(")},
      {"leaves rows of Q unwritten", D::kUninitialised, Shape::kAlone, value("attention.fill", constant(8))},
      {"no swizzle on the side of the copies", D::kReference, Shape::kAlone, value("attention.copy_to", test::without_swizzle)},
      {"no swizzle", D::kLint, Shape::kAlone, value("attention.swizzle", test::without_swizzle)},
      {"K transposed", D::kReference, Shape::kAlone,
       at(Seed::kTransposed, "const int row = tile + 16 * half", "ldmatrix_x4(")},
      {"V not transposed", D::kReference, Shape::kAlone, at(Seed::kTransposed, "void weigh()", "ldmatrix_x4_trans(")},
      {"wrong lanes of Q", D::kReference, Shape::kAlone, at(Seed::kWrongLanes, "void score(", "mma_16816")},
      {"wrong lanes of the weights", D::kReference, Shape::kAlone, at(Seed::kWrongLanes, "void multiply(", "mma_16816")},
      {"the scale twice", D::kReference, Shape::kAlone, value("attention.scale", square)},
      {"the scales of values twice", D::kReference, Shape::kFp8, value("attention.value_scale", square)},
      {"one key too many", D::kReference, Shape::kAlone, value("attention.newest", next)},
      {"the window one key too wide", D::kReference, Shape::kWindow, value("attention.window", next)},
      {"a new maximum corrects nothing", D::kReference, Shape::kAlone, value("attention.correction", constant(1))},
  };
}

bool finds(Detector detector, const AttentionCase& c, const AttentionResult& r) {
  switch (detector) {
    case Detector::kReference: return !(worst_error(c, r.out) < tolerance(c.kv));
    case Detector::kBits: {
      AttentionCase alone = c;
      alone.shared_out = false;
      return run_attention(alone).out != r.out;
    }
    case Detector::kLint: return !test::serves_banks_well(r.sites);
    default: return test::reported(detector, r.kinds);
  }
}

TEST(AttentionFaults, EachIsSeenByItsDetector) {
  for (const Mutant& m : mutants()) {
    if (needs_hooks(m.detector) && !emu::hooked()) continue;
    AttentionCase c = shape_of(m.shape);
    c.fault = m.fault;
    c.count_sites = m.detector == Detector::kLint;
    const AttentionResult r = run_attention(c);
    EXPECT_TRUE(finds(m.detector, c, r)) << m.name << "; found instead: " << r.text;
  }
}

TEST(AttentionFaults, WithoutOneNobodySeesAnything) {
  for (const Shape s : {Shape::kShared, Shape::kAlone, Shape::kWindow, Shape::kFp8, Shape::kOnePlace}) {
    AttentionCase c = shape_of(s);
    c.count_sites = true;
    const AttentionResult r = run_attention(c);
    EXPECT_EQ(r.text, "");
    EXPECT_EQ(r.parts > 1, s == Shape::kShared);
    for (const Detector d : {Detector::kReference, Detector::kBits, Detector::kLint}) EXPECT_FALSE(finds(d, c, r));
  }
}

}  // namespace
}  // namespace barg::cuda
