// What the decoder tests share: goldens read from safetensors, and a Harness that runs a decoder on the CPU
// device with KV memory of its own, in any chunking, with block tables whose physical order is scattered.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "cpu/cpu.h"
#include "model/decoder.h"
#include "model/model_files.h"
#include "model/safetensors.h"
#include "support/cpu.h"
#include "support/data.h"

namespace barg::model::test {

class Goldens {
 public:
  explicit Goldens(const std::string& path) {
    auto file = MappedFile::open(path);
    if (!file) throw std::runtime_error(file.error().message);
    file_ = std::move(*file);
    auto tensors = parse_safetensors(file_.bytes());
    if (!tensors) throw std::runtime_error(tensors.error().message);
    for (Tensor& t : *tensors) by_name_.emplace(t.name, std::move(t));
  }
  bool has(const std::string& name) const { return by_name_.contains(name); }
  const Tensor& tensor(const std::string& name) const { return by_name_.at(name); }
  std::vector<float> floats(const std::string& name) const {
    const Tensor& t = by_name_.at(name);
    std::vector<float> out(t.elements());
    std::memcpy(out.data(), t.bytes.data(), t.bytes.size());
    return out;
  }
  std::vector<std::int32_t> ids(const std::string& name) const {
    const Tensor& t = by_name_.at(name);
    std::vector<std::int64_t> wide(t.elements());
    std::memcpy(wide.data(), t.bytes.data(), t.bytes.size());
    return {wide.begin(), wide.end()};
  }
  /// Names P for which P.input_ids exists.
  std::vector<std::string> prompts() const {
    std::vector<std::string> out;
    for (const auto& [name, t] : by_name_) {
      if (name.ends_with(".input_ids")) out.push_back(name.substr(0, name.size() - 10));
    }
    return out;
  }

 private:
  MappedFile file_;
  std::map<std::string, Tensor> by_name_;
};

struct HarnessOptions {
  Recipe recipe = Recipe::kF32;
  DType kv_dtype = DType::kF32;
  std::int32_t block_tokens = 16;
  std::int32_t max_tokens = 2048;  ///< of all sequences together
  std::int32_t context = 0;        ///< DecoderOptions::context
  std::size_t token_limit = 0;     ///< ids that greedy() may choose; 0 = all rows
  ops::CpuOptions cpu = barg::test::test_cpu(0);
};

class Harness {
 public:
  /// A run of tokens of one sequence, at positions [pos, pos + tokens.size()).
  struct Run {
    std::int32_t seq;
    std::int32_t pos;
    std::vector<std::int32_t> tokens;
    std::int32_t wanted = -1;  ///< hidden states of so many of the last rows; -1: of all
  };

  Harness(std::shared_ptr<const ModelFiles> files, const HarnessOptions& options)
      : options_(options), device_(options.cpu) {
    auto d = Decoder::load(*files, device_.ops(), device_.stream(),
                           {.recipe = options.recipe, .context = options.context});
    if (!d) throw std::runtime_error(d.error().message);
    decoder_ = std::move(*d);
    const std::int32_t blocks = options.max_tokens / options.block_tokens + 64;
    for (const LayerGroup& g : decoder_->groups()) {
      const bool recurrent = g.kind == StateKind::kRecurrent;
      const std::size_t head =
          recurrent ? 0 : head_bytes(g, device_.ops(), options.kv_dtype, options.block_tokens);
      const std::size_t layer = recurrent ? static_cast<std::size_t>(g.state_bytes)
                                          : head * static_cast<std::size_t>(g.num_kv_heads);
      const std::size_t block = layer * g.layers.size();
      Memory m;
      m.bytes.assign(block * static_cast<std::size_t>(blocks) + 64,
                     std::byte{0xff});  // NaN wherever nothing was written
      auto* base =
          reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(m.bytes.data()) + 63) / 64 * 64);
      m.base = base;
      m.block_bytes = block;
      for (std::size_t i = 0; i < g.layers.size(); ++i) {
        if (recurrent) {
          m.states.push_back({base + i * layer, static_cast<std::int64_t>(block), options.block_tokens});
          continue;
        }
        m.layers.push_back({.base = base + i * layer,
                            .block_stride = static_cast<std::int64_t>(block),
                            .head_stride = static_cast<std::int64_t>(head),
                            .v_offset = static_cast<std::int64_t>(head / 2),
                            .dtype = options.kv_dtype,
                            .block_tokens = options.block_tokens,
                            .num_kv_heads = g.num_kv_heads,
                            .head_dim = g.head_dim});
      }
      memory_.push_back(std::move(m));
    }
    // A scattered order without repeats: from both ends inwards.
    for (std::int32_t b = 0; b < blocks; ++b) free_.push_back(b % 2 == 0 ? b / 2 : blocks - 1 - b / 2);
  }

  Decoder& decoder() { return *decoder_; }
  ops::CpuDevice& device() { return device_; }
  std::size_t hidden() const { return static_cast<std::size_t>(decoder_->spec().hidden); }
  std::size_t vocab() const { return static_cast<std::size_t>(decoder_->spec().vocab_rows); }

  std::int32_t new_sequence(std::int32_t max_tokens) {
    const std::int32_t n = (max_tokens + options_.block_tokens - 1) / options_.block_tokens;
    std::vector<BlockId> table;
    for (std::int32_t i = 0; i < n; ++i) {
      if (next_ >= free_.size()) throw std::runtime_error("harness out of blocks");
      table.push_back(free_[next_++]);
    }
    tables_.push_back(std::vector<std::vector<BlockId>>(memory_.size(), table));
    return static_cast<std::int32_t>(tables_.size()) - 1;
  }
  void free_all() {
    tables_.clear();
    next_ = 0;
    for (Memory& m : memory_) std::fill(m.bytes.begin(), m.bytes.end(), std::byte{0xff});
  }
  /// Forgets block `index` of a sequence in one group: poisoned, and kNoBlock in its table.
  void drop_block(std::int32_t seq, std::size_t group, std::size_t index) {
    BlockId& b = tables_[static_cast<std::size_t>(seq)][group][index];
    Memory& m = memory_[group];
    std::memset(m.base + static_cast<std::size_t>(b) * m.block_bytes, 0xff, m.block_bytes);
    b = kNoBlock;
  }

  /// One step over all runs; hidden states [rows, hidden] in their order, of the wanted rows.
  std::vector<float> step(const std::vector<Run>& runs) {
    std::vector<std::int32_t> tokens, positions, wanted;
    std::vector<GroupSegments> segments(memory_.size());
    ForwardBatch batch;
    batch.groups.resize(memory_.size());
    for (std::size_t g = 0; g < memory_.size(); ++g) {
      batch.groups[g].layers = memory_[g].layers;
      batch.groups[g].states = memory_[g].states;
    }
    for (const Run& r : runs) {
      for (std::size_t g = 0; g < memory_.size(); ++g) {
        segments[g].all.push_back({static_cast<std::int32_t>(tokens.size()),
                                            static_cast<std::int32_t>(r.tokens.size()), r.pos,
                                            tables_[static_cast<std::size_t>(r.seq)][g].data()});
      }
      for (std::size_t i = 0; i < r.tokens.size(); ++i) {
        tokens.push_back(r.tokens[i]);
        positions.push_back(r.pos + static_cast<std::int32_t>(i));
      }
    }
    keep_wanted(segments, wanted, runs);
    for (std::size_t g = 0; g < segments.size(); ++g) {
      batch.groups[g].segments = segments[g].all;
      batch.groups[g].wanted_segments = segments[g].wanted;
    }
    batch.wanted = wanted;
    batch.rows = static_cast<std::int32_t>(tokens.size());
    batch.tokens = tokens.data();
    batch.positions = positions.data();
    Workspace& ws = workspace(batch.rows);
    std::vector<float> out(batch.wanted.size() * hidden());
    decoder_->forward(batch, ws, out.data());
    return out;
  }

  /// Runs `tokens` from position 0 in chunks of the given sizes (cycled); hidden of every token.
  std::vector<float> prefill(std::int32_t seq, const std::vector<std::int32_t>& tokens,
                             const std::vector<std::size_t>& chunks) {
    std::vector<float> out;
    for (std::size_t at = 0, c = 0; at < tokens.size(); ++c) {
      const std::size_t n = std::min(chunks[c % chunks.size()], tokens.size() - at);
      const auto begin = tokens.begin() + static_cast<std::ptrdiff_t>(at);
      const auto part =
          step({{seq, static_cast<std::int32_t>(at), {begin, begin + static_cast<std::ptrdiff_t>(n)}}});
      out.insert(out.end(), part.begin(), part.end());
      at += n;
    }
    return out;
  }

  /// [rows, vocab] of hidden states [rows, hidden].
  std::vector<float> logits(const std::vector<float>& h) {
    const std::size_t rows = h.size() / hidden();
    std::vector<float> out(rows * vocab());
    decoder_->logits(h.data(), static_cast<std::int32_t>(rows), workspace(static_cast<std::int32_t>(rows)),
                     out.data());
    return out;
  }

  std::vector<float> row(const std::vector<float>& h, std::size_t i) const {
    return {h.begin() + static_cast<std::ptrdiff_t>(i * hidden()),
            h.begin() + static_cast<std::ptrdiff_t>((i + 1) * hidden())};
  }

  static std::int32_t argmax(const float* x, std::size_t n) {
    return static_cast<std::int32_t>(std::max_element(x, x + n) - x);
  }

  /// Prefill in chunks, then decode `count` greedy tokens one by one.
  std::vector<std::int32_t> greedy(const std::vector<std::int32_t>& prompt, std::size_t count,
                                   const std::vector<std::size_t>& chunks) {
    const std::int32_t seq = new_sequence(static_cast<std::int32_t>(prompt.size() + count));
    std::vector<float> h = prefill(seq, prompt, chunks);
    h.erase(h.begin(), h.end() - static_cast<std::ptrdiff_t>(hidden()));
    std::vector<std::int32_t> out;
    for (std::size_t i = 0; i < count; ++i) {
      const auto l = logits(h);
      out.push_back(argmax(l.data(), options_.token_limit > 0 ? options_.token_limit : vocab()));
      if (i + 1 < count) h = step({{seq, static_cast<std::int32_t>(prompt.size() + i), {out.back()}}});
    }
    return out;
  }

 private:
  struct GroupSegments {
    std::vector<ops::Segment> all, wanted;
  };
  /// As BatchBuilder asks for the rows that want logits.
  static void keep_wanted(std::vector<GroupSegments>& groups, std::vector<std::int32_t>& wanted,
                          const std::vector<Run>& runs) {
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const ops::Segment whole = groups[0].all[i];
      const std::int32_t count = runs[i].wanted < 0 ? whole.row_count : runs[i].wanted;
      const std::int32_t skipped = whole.row_count - count;
      if (count == 0) continue;
      for (GroupSegments& g : groups) {
        g.wanted.push_back({static_cast<std::int32_t>(wanted.size()), count, whole.pos_begin + skipped,
                            g.all[i].block_table});
      }
      for (std::int32_t r = skipped; r < whole.row_count; ++r) wanted.push_back(whole.row_begin + r);
    }
  }

  struct Memory {
    std::vector<std::byte> bytes;
    std::byte* base = nullptr;
    std::size_t block_bytes = 0;
    std::vector<ops::KvLayerView> layers;
    std::vector<ops::StateView> states;
  };

  Workspace& workspace(std::int32_t rows) {
    const std::size_t need = decoder_->workspace_bytes(rows);
    if (need > workspace_.size()) workspace_ = Workspace(need);
    return workspace_;
  }

  HarnessOptions options_;
  ops::CpuDevice device_;
  std::unique_ptr<Decoder> decoder_;
  Workspace workspace_{64};
  std::vector<Memory> memory_;
  std::vector<BlockId> free_;
  std::size_t next_ = 0;
  std::vector<std::vector<std::vector<BlockId>>> tables_;  ///< [sequence][group][block]
};

inline std::shared_ptr<const ModelFiles> open_or_throw(const std::string& path) {
  auto m = ModelFiles::open(path);
  if (!m) throw std::runtime_error(m.error().message);
  return *m;
}

/// Bits, not values: NaN equals NaN, -0 differs from 0.
inline ::testing::AssertionResult same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size())
    return ::testing::AssertionFailure() << "sizes " << a.size() << " and " << b.size();
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::memcmp(&a[i], &b[i], sizeof(float)) != 0)
      return ::testing::AssertionFailure() << "element " << i << ": " << a[i] << " and " << b[i];
  }
  return ::testing::AssertionSuccess();
}

}  // namespace barg::model::test
