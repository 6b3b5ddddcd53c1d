// ModelFiles: the files of one model, opened, mapped and validated: a GGUF file or a Hugging Face directory.
// It answers what the model is (spec), how it speaks (vocab), and where its weights lie (tensors).
//
// open() trusts nothing: sizes are checked before anything is allocated, there is no recursion on input, and
// every failure is one Error that names the file and the field. A container that parses but holds a model
// Barg cannot run opens fine (inspect and tokenize work on it); spec() then says what is not supported.
//
// Immutable after open() and safe to read from any thread. Views (Tensor::bytes) live as long as the object.
// It does not: read weights into memory (decoder.h), build a tokenizer (text/), choose a recipe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "barg/result.h"
#include "barg/tokenizer.h"
#include "base/hash.h"
#include "model/decoder_spec.h"
#include "model/tensor.h"

namespace barg::model {

/// Sampling defaults a model's generation_config.json asks for; all empty when it says do_sample=false.
struct GenerationDefaults {
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<std::int32_t> top_k;
  std::vector<TokenId> eos_ids;  ///< ascending union of every EOS id of the config files
};

class ModelFiles {
 public:
  /// `path`: a .gguf file or a directory with config.json and safetensors.
  static Result<std::shared_ptr<const ModelFiles>> open(const std::string& path);
  virtual ~ModelFiles() = default;

  const std::string& path() const { return path_; }
  /// "gguf" or "safetensors".
  virtual std::string_view container() const = 0;
  /// The architecture the file names, also when it is not supported.
  virtual std::string architecture() const = 0;
  /// A name for people and for the API: general.name or the file's stem; the directory's name.
  virtual std::string display_name() const = 0;
  /// What the decoder needs, checked against the tensors' shapes. Unsupported features are errors that name
  /// the field and what is known.
  virtual Result<DecoderSpec> spec() const = 0;
  virtual Result<VocabData> vocab() const = 0;
  virtual Result<GenerationDefaults> generation_defaults() const = 0;

  const std::vector<Tensor>& tensors() const { return tensors_; }
  /// By the GGUF name ("blk.0.attn_q.weight"), whichever the container: HF names are translated.
  /// nullptr if absent.
  const Tensor* find(std::string_view canonical_name) const;
  /// Indices of tensors() by canonical name.
  const std::map<std::string, std::size_t, std::less<>>& by_canonical_name() const {
    return by_canonical_name_;
  }
  /// Sum of all tensor storage.
  std::uint64_t total_bytes() const { return total_bytes_; }
  /// Parameters and bytes by stored type name ("Q4_1": ...), largest first.
  struct TypeShare {
    std::string type;
    std::uint64_t tensors = 0, elements = 0, bytes = 0;
  };
  std::vector<TypeShare> quantisation() const;
  /// "Q4_1 (96%), F32 (4%)".
  std::string quantisation_summary() const;
  /// True when at least half of the weights that are multiplied by are in types of 8 bits or fewer (numerics auto =
  /// int8): those of the layers' matrices and of the output's, by number, not by size.
  bool is_quantised() const;
  /// SHA-256 over every tensor's name, type, shape and bytes, in name order. Reads the whole file (a fraction
  /// of a second for 100 MB) and drops its pages as it goes; remember the answer.
  Digest weights_digest() const;
  /// The file pages of `part`, some of the tensor's bytes, are not needed any more.
  virtual void drop(const Tensor& tensor, std::span<const std::byte> part) const = 0;

 protected:
  ModelFiles() = default;
  /// Last step of opening: indexes tensors_. Fails when two tensors have one canonical name.
  Result<void> index_tensors(std::vector<std::string> canonical_names);

  std::string path_;
  std::vector<Tensor> tensors_;

 private:
  std::map<std::string, std::size_t, std::less<>> by_canonical_name_;
  std::uint64_t total_bytes_ = 0;
};

}  // namespace barg::model
